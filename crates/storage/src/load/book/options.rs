//! What a person says of a workbook.

use thalweg_base::{Error, Result};

use crate::load::layout::shortened;

/// Rows and columns that a sheet may have.
const ROWS_MAX: u32 = 1 << 20;
const COLUMNS_MAX: u32 = 1 << 14;

/// How the table of a sheet is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BookOptions {
    /// `None`: the first that has a value.
    pub sheet: Option<String>,
    pub range: Option<Area>,
    /// Whether the first row names the columns; `None`: found out.
    pub header: Option<bool>,
    /// Columns are text, whatever their cells are.
    pub all_varchar: bool,
    /// The table ends at the first empty row.
    pub stop_at_empty: bool,
    /// Cells that are errors are NULL.
    pub ignore_errors: bool,
}

/// Cells of a sheet, from 0; the last ones are within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    pub top: u32,
    pub left: u32,
    pub bottom: u32,
    pub right: u32,
}

impl Area {
    const ALL: Area = Area { top: 0, left: 0, bottom: ROWS_MAX - 1, right: COLUMNS_MAX - 1 };

    /// `A1:D20`, `A:D` or `1:20`.
    fn parse(text: &str) -> Option<Area> {
        let text = text.trim().replace('$', "");
        let (from, to) = text.split_once(':')?;
        let ((left, top), (right, bottom)) = (place(from)?, place(to)?);
        // Of a cell alone, a column and a row both ends are the same kind of place.
        if left.is_some() != right.is_some() || top.is_some() != bottom.is_some() {
            return None;
        }
        let all = Area::ALL;
        let (left, right) = (left.unwrap_or(all.left), right.unwrap_or(all.right));
        let (top, bottom) = (top.unwrap_or(all.top), bottom.unwrap_or(all.bottom));
        let is_one = left <= right && top <= bottom && right <= all.right && bottom <= all.bottom;
        is_one.then_some(Area { top, left, bottom, right })
    }
}

/// `B7` as column 1 and row 6, `B` and `7` as one of these.
pub(super) fn place(text: &str) -> Option<(Option<u32>, Option<u32>)> {
    let digits = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
    let (letters, digits) = text.split_at(digits);
    if text.is_empty() || letters.len() > 3 || digits.len() > 7 {
        return None;
    }
    let mut column = 0_u32;
    for letter in letters.chars() {
        let letter = letter.to_ascii_uppercase();
        if !letter.is_ascii_uppercase() {
            return None;
        }
        column = column * 26 + (letter as u32 - 'A' as u32 + 1);
    }
    let row = match digits {
        "" => None,
        digits => Some(digits.parse::<u32>().ok()?.checked_sub(1)?),
    };
    Some((column.checked_sub(1), row))
}

impl BookOptions {
    /// The options in SQL, for people.
    pub const NAMES: [&str; 6] =
        ["sheet", "range", "header", "all_varchar", "stop_at_empty", "ignore_errors"];

    /// Where cells are looked for.
    pub(super) fn area(&self) -> Area {
        self.range.unwrap_or(Area::ALL)
    }

    /// Takes one option under the name that DuckDB has for it. Without values it is switched on. False:
    /// it is none of these options.
    ///
    /// # Errors
    /// The values are none that the option takes.
    pub fn tell(&mut self, name: &str, values: &[String]) -> Result<bool> {
        let name = name.to_ascii_lowercase();
        let given = || {
            let given: Vec<String> = values.iter().map(|v| shortened(v.as_bytes())).collect();
            format!("it is {}", given.join(", "))
        };
        let one = match values {
            [value] => value.as_str(),
            [] => "true",
            _ => {
                return Err(Error::user(format!("option {name} takes one value")).detail(given()));
            }
        };
        let flag = || match one.trim().to_ascii_lowercase().as_str() {
            "true" | "on" | "1" | "" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(Error::user(format!("option {name} takes true or false")).detail(given())),
        };
        match name.as_str() {
            "sheet" => self.sheet = Some(one.to_owned()),
            "range" => {
                let area = Area::parse(one).ok_or_else(|| {
                    Error::user("option range takes cells of a sheet")
                        .detail(given())
                        .hint("for example 'A1:D20', 'A:D' or '3:20'")
                })?;
                self.range = Some(area);
            }
            "header" => self.header = Some(flag()?),
            "all_varchar" => self.all_varchar = flag()?,
            "stop_at_empty" => self.stop_at_empty = flag()?,
            "ignore_errors" => self.ignore_errors = flag()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cells() {
        let area = |top, left, bottom, right| Some(Area { top, left, bottom, right });
        assert_eq!(Area::parse("A1:D20"), area(0, 0, 19, 3));
        assert_eq!(Area::parse("$b$2:AA2"), area(1, 1, 1, 26));
        assert_eq!(Area::parse("A:C"), area(0, 0, ROWS_MAX - 1, 2));
        assert_eq!(Area::parse(" 3:4 "), area(2, 0, 3, COLUMNS_MAX - 1));
        assert_eq!(Area::parse("XFD1048576:XFD1048576").map(|a| a.right), Some(COLUMNS_MAX - 1));
        for bad in [
            "",
            "A1",
            "A1:",
            ":B2",
            "A1:B",
            "B1:A1",
            "A2:A1",
            "A0:B1",
            "A1:XFE1",
            "Ä1:B2",
            "A1:B9999999",
        ] {
            assert_eq!(Area::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn options_are_told() {
        let tell = |name: &str, value: &str| {
            let mut options = BookOptions::default();
            options.tell(name, &[value.to_owned()]).map(|known| known.then_some(options))
        };
        assert_eq!(tell("Sheet", "Q 1").unwrap().unwrap().sheet.as_deref(), Some("Q 1"));
        assert_eq!(tell("header", "false").unwrap().unwrap().header, Some(false));
        assert!(tell("ignore_errors", "true").unwrap().unwrap().ignore_errors);
        assert_eq!(tell("delim", ";").unwrap(), None);
        assert!(tell("range", "A1").is_err() && tell("header", "maybe").is_err());
    }
}
