//! How JSON is to be read: what a person says, and what is left to be found out.

use thalweg_base::limits::LOAD_RECORD_BYTES_MAX;
use thalweg_base::{Error, Result, text};

use super::book::BookOptions;
use super::layout::shortened;
use super::options::CsvOptions;

/// Objects and lists within each other that get types of their own; what is further inside is text.
pub(super) const DEPTH_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonOptions {
    pub form: JsonForm,
    /// Whether the records are objects whose keys are columns, or values of the one column `json`.
    /// `None`: what the first record of each file is.
    pub records: Option<bool>,
    /// Bytes that a record may have.
    pub record_bytes_max: usize,
    /// Levels of columns that get types of their own: with 1, objects and lists are text.
    pub depth_max: usize,
    /// How dates are written, as `strptime` takes it. `None`: as ISO 8601 has them.
    pub dateformat: Option<String>,
    pub timestampformat: Option<String>,
    /// Bad records are left out, however many they are.
    pub ignore_errors: bool,
    /// The records are the rows of a sheet.
    pub book: Option<BookOptions>,
}

/// How records lie in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonForm {
    /// Found out for each file.
    #[default]
    Auto,
    /// One a line.
    Lines,
    /// The elements of an array, or of several.
    Array,
    /// One after the other; an array is a record.
    Values,
}

impl Default for JsonOptions {
    fn default() -> Self {
        JsonOptions {
            form: JsonForm::Auto,
            records: None,
            record_bytes_max: LOAD_RECORD_BYTES_MAX,
            depth_max: DEPTH_MAX,
            dateformat: None,
            timestampformat: None,
            ignore_errors: false,
            book: None,
        }
    }
}

impl JsonOptions {
    /// Of workbooks of Excel.
    pub fn of_book() -> Self {
        JsonOptions {
            form: JsonForm::Lines,
            records: Some(true),
            book: Some(BookOptions::default()),
            ..JsonOptions::default()
        }
    }

    /// The options in SQL, for people.
    pub const NAMES: &'static str = "FORMAT (auto, newline_delimited, array, unstructured), ARRAY, RECORDS, MAXIMUM_OBJECT_SIZE, MAXIMUM_DEPTH, DATEFORMAT, TIMESTAMPFORMAT, COMPRESSION and IGNORE_ERRORS";

    /// Takes one option under the name that DuckDB has for it. Without values it is switched on. False:
    /// it is none of these options.
    ///
    /// # Errors
    /// The values are none that the option takes. Formats of dates are up to [`JsonOptions::check`].
    pub fn tell(&mut self, name: &str, values: &[String]) -> Result<bool> {
        if let Some(book) = &mut self.book {
            return book.tell(name, values);
        }
        let name = name.to_ascii_lowercase();
        let wrong = |takes: &str, hint: &str| {
            let given: Vec<String> = values.iter().map(|v| shortened(v.as_bytes())).collect();
            Err(Error::user(format!("option {name} takes {takes}"))
                .detail(format!("it is {}", given.join(", ")))
                .hint(hint.to_owned()))
        };
        let one = match values {
            [value] => value.trim(),
            [] => "true",
            _ => return wrong("one value", "give it one"),
        };
        let lower = one.to_ascii_lowercase();
        match name.as_str() {
            "format" => {
                self.form = match lower.as_str() {
                    "auto" => JsonForm::Auto,
                    "newline_delimited" | "nd" | "lines" => JsonForm::Lines,
                    "array" => JsonForm::Array,
                    "unstructured" => JsonForm::Values,
                    _ => {
                        return wrong(
                            "auto, newline_delimited, array or unstructured",
                            "leave it out to have it found out",
                        );
                    }
                }
            }
            // DuckDB's COPY has it for the format.
            "array" => {
                self.form = match lower.as_str() {
                    "true" | "on" | "1" => JsonForm::Array,
                    "false" | "off" | "0" => JsonForm::Lines,
                    _ => return wrong("true or false", "leave it out to have it found out"),
                }
            }
            "records" => {
                self.records = match lower.as_str() {
                    "auto" => None,
                    "true" | "on" | "1" => Some(true),
                    "false" | "off" | "0" => Some(false),
                    _ => {
                        return wrong(
                            "auto, true or false",
                            "with false, each record is a value of the one column json",
                        );
                    }
                }
            }
            "maximum_object_size" => match one.parse() {
                Ok(bytes) if (1..=LOAD_RECORD_BYTES_MAX).contains(&bytes) => {
                    self.record_bytes_max = bytes;
                }
                _ => {
                    let most = text::bytes(LOAD_RECORD_BYTES_MAX as u64);
                    return wrong(
                        &format!("a number of bytes up to {LOAD_RECORD_BYTES_MAX}"),
                        &format!("leave it out: records of up to {most} are read"),
                    );
                }
            },
            "maximum_depth" => match one.parse::<i64>() {
                Ok(-1) => self.depth_max = DEPTH_MAX,
                Ok(depth) if (1..=DEPTH_MAX as i64).contains(&depth) => {
                    self.depth_max = depth as usize;
                }
                _ => {
                    return wrong(
                        &format!("1 to {DEPTH_MAX}, or -1"),
                        "what is nested more deeply is JSON text",
                    );
                }
            },
            "ignore_errors" => {
                self.ignore_errors = match lower.as_str() {
                    "true" | "on" | "1" | "" => true,
                    "false" | "off" | "0" => false,
                    _ => return wrong("true or false", "bad records are left out if it is true"),
                }
            }
            // The first bytes of a file say how it is compressed; this can only be wrong.
            "compression" => match lower.as_str() {
                "auto" | "auto_detect" | "none" | "uncompressed" | "gzip" | "gz" | "zstd"
                | "zst" | "bzip2" | "bz2" | "xz" | "zip" => {}
                _ => {
                    return wrong(
                        "auto, none, gzip, zstd, bzip2, xz or zip",
                        "leave it out: the first bytes of the file say it",
                    );
                }
            },
            "dateformat" | "date_format" => self.dateformat = Some(one.to_owned()),
            "timestampformat" | "timestamp_format" => self.timestampformat = Some(one.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses formats of dates that are none.
    pub fn check(&self) -> Result<()> {
        self.spelled().check()
    }

    /// What texts are spelled like.
    pub(super) fn spelled(&self) -> CsvOptions {
        CsvOptions {
            dateformat: self.dateformat.clone().filter(|format| !is_iso(format)),
            timestampformat: self.timestampformat.clone().filter(|format| !is_iso(format)),
            ..CsvOptions::default()
        }
    }
}

/// As DuckDB calls the format that is taken without a word.
fn is_iso(format: &str) -> bool {
    format.eq_ignore_ascii_case("iso") || format.eq_ignore_ascii_case("auto")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told() {
        let tell = |name: &str, value: &str| {
            let mut options = JsonOptions::default();
            options.tell(name, &[value.to_owned()]).map(|known| known.then_some(options))
        };
        let told = |name: &str, value: &str| tell(name, value).unwrap().unwrap();
        assert_eq!(told("FORMAT", "newline_delimited").form, JsonForm::Lines);
        assert_eq!(told("format", "Array").form, JsonForm::Array);
        assert_eq!(told("records", "false").records, Some(false));
        assert_eq!(told("maximum_object_size", "1000").record_bytes_max, 1000);
        assert_eq!(told("maximum_depth", "1").depth_max, 1);
        assert!(told("ignore_errors", "true").ignore_errors);
        assert!(told("dateformat", "%d.%m.%Y").check().is_ok());
        assert!(told("dateformat", "%q").check().is_err());
        assert_eq!(tell("header", "true").unwrap(), None);
        for (name, value) in [
            ("format", "csv"),
            ("records", "maybe"),
            ("maximum_object_size", "0"),
            ("maximum_object_size", "1000000000000"),
            ("maximum_depth", "0"),
            ("maximum_depth", "33"),
            ("ignore_errors", "perhaps"),
            ("compression", "rar"),
        ] {
            assert!(tell(name, value).is_err(), "{name} {value}");
        }
    }
}
