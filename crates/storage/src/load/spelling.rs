//! Values that are spelled otherwise than the builders of columns take them.
//!
//! Numbers with a decimal comma or grouped digits, and dates in a told format or a found order, are
//! written anew in the spelling that [`super::parse`] reads. Columns without such values, which is
//! nearly every one, do not come here.

use arrow::datatypes::DataType;

use super::dates::{DateOrder, Pattern, in_order};
use super::input::CsvOptions;
use super::parse::{Look, look_exact};

/// How the values of one column are spelled.
#[derive(Clone, Debug)]
pub(super) enum Spelling {
    Plain,
    Numbers(Numbers),
    Pattern(Pattern),
    Order(DateOrder),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    decimal: u8,
    thousands: Option<u8>,
}

impl Numbers {
    fn of(options: &CsvOptions) -> Option<Numbers> {
        let numbers = Numbers { decimal: options.decimal_separator, thousands: options.thousands };
        (numbers.decimal != b'.' || numbers.thousands.is_some()).then_some(numbers)
    }

    /// A number with a decimal point and nothing between its digits. Groups have three digits,
    /// but for the first: `1,5` is no whole number grouped by commas.
    fn plain<'a>(&self, value: &[u8], out: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        out.clear();
        let point = value.iter().position(|&b| b == self.decimal).unwrap_or(value.len());
        let (whole, fraction) = value.split_at(point);
        let signed = whole.iter().take_while(|b| matches!(b, b'-' | b'+')).count();
        out.extend_from_slice(&whole[..signed]);
        match self.thousands {
            Some(thousands) => {
                let mut groups = whole[signed..].split(|&b| b == thousands);
                let first = groups.next()?;
                out.extend_from_slice(first);
                for (i, group) in groups.enumerate() {
                    let digits = |group: &[u8]| group.iter().all(u8::is_ascii_digit);
                    let first_fits = i > 0 || (1..=3).contains(&first.len()) && digits(first);
                    if group.len() != 3 || !digits(group) || !first_fits {
                        return None;
                    }
                    out.extend_from_slice(group);
                }
            }
            None => out.extend_from_slice(&whole[signed..]),
        }
        // A point is none of this spelling's characters, unless it is the decimal's.
        if self.decimal != b'.' && (out.contains(&b'.') || fraction.contains(&b'.')) {
            return None;
        }
        if let Some(fraction) = fraction.get(1..) {
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
        Some(out)
    }
}

impl Spelling {
    /// That of a column called `name` of `data_type`.
    pub(super) fn of(options: &CsvOptions, name: &str, data_type: &DataType) -> Spelling {
        let pattern = |format: &Option<String>| {
            format.as_ref().and_then(|f| Pattern::new(f).ok()).map(Spelling::Pattern)
        };
        let found = match data_type {
            DataType::Date32 | DataType::Date64 => pattern(&options.dateformat),
            DataType::Timestamp(..) => {
                pattern(&options.timestampformat).or_else(|| pattern(&options.dateformat))
            }
            _ if data_type.is_numeric() => {
                return Numbers::of(options).map_or(Spelling::Plain, Spelling::Numbers);
            }
            _ => return Spelling::Plain,
        };
        let lower = name.to_lowercase();
        let order = || options.orders.iter().find(|(column, _)| column.to_lowercase() == lower);
        found
            .or_else(|| order().map(|(_, order)| Spelling::Order(*order)))
            .unwrap_or(Spelling::Plain)
    }

    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Spelling::Plain)
    }

    /// `value` as the builders take it; `None`: it is not spelled so.
    pub(super) fn plain<'a>(&self, value: &'a [u8], out: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        match self {
            Spelling::Plain => Some(value),
            Spelling::Numbers(numbers) => numbers.plain(value, out),
            Spelling::Pattern(pattern) => Some(pattern.parse(value)?.iso(out)),
            Spelling::Order(order) => Some(in_order(value, *order)?.iso(out)),
        }
    }
}

/// All that values of a file whose columns are not known yet may be spelled like.
#[derive(Debug)]
pub(super) struct Spellings {
    date: Option<Pattern>,
    timestamp: Option<Pattern>,
    numbers: Option<Numbers>,
}

impl Spellings {
    /// `None`: plain ones.
    pub(super) fn new(options: &CsvOptions) -> Option<Spellings> {
        let pattern = |format: &Option<String>| format.as_ref().and_then(|f| Pattern::new(f).ok());
        let found = Spellings {
            date: pattern(&options.dateformat),
            timestamp: pattern(&options.timestampformat),
            numbers: Numbers::of(options),
        };
        let any = found.date.is_some() || found.timestamp.is_some() || found.numbers.is_some();
        any.then_some(found)
    }

    /// What a value looks like that is spelled so. Dates are only what a told format reads.
    pub(super) fn look(&self, value: &[u8], out: &mut Vec<u8>) -> Look {
        let value = value.trim_ascii();
        for pattern in [&self.date, &self.timestamp].into_iter().flatten() {
            if let Some(fields) = pattern.parse(value) {
                return look_exact(fields.iso(out));
            }
        }
        let look = match &self.numbers {
            Some(numbers) => match numbers.plain(value, out).map(look_exact) {
                Some(number @ (Look::Integer | Look::Long | Look::Float)) => return number,
                _ => look_exact(value),
            },
            None => look_exact(value),
        };
        let date = matches!(look, Look::Date { .. } | Look::Ordered(_));
        let stamp = matches!(look, Look::Timestamp { .. });
        match look {
            Look::Integer | Look::Long | Look::Float if self.numbers.is_some() => Look::Text,
            _ if date && self.date.is_some() => Look::Text,
            _ if stamp && self.timestamp.is_some() => Look::Text,
            Look::Ordered(o) if o.clock && self.timestamp.is_some() => Look::Text,
            look => look,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lose_their_separators() {
        let check = |decimal: u8, thousands: Option<u8>, value: &str, expected: Option<&str>| {
            let mut out = Vec::new();
            let plain = Numbers { decimal, thousands }.plain(value.as_bytes(), &mut out);
            assert_eq!(
                plain.map(|p| String::from_utf8_lossy(p).into_owned()).as_deref(),
                expected,
                "{value}"
            );
        };
        check(b',', None, "1,5", Some("1.5"));
        check(b',', None, "-1,5e3", Some("-1.5e3"));
        check(b',', None, "15", Some("15"));
        check(b',', None, "1.5", None);
        check(b',', None, "1,5.5", None);
        check(b',', Some(b'.'), "1.234.567,5", Some("1234567.5"));
        check(b'.', Some(b','), "1,234", Some("1234"));
        check(b'.', Some(b','), "-12,345.6", Some("-12345.6"));
        check(b'.', Some(b','), "1,5", None);
        check(b'.', Some(b','), "1234,567", None);
        check(b'.', Some(b','), ",567", None);
        check(b'.', Some(b','), "1,234,56", None);
        check(b'.', Some(b' '), "1 234", Some("1234"));
    }
}
