//! `to_number`: a text as the number that a pattern of PostgreSQL finds in it.
//!
//! As in PostgreSQL, the pattern leads the way, and what it does not expect is passed over: each of its
//! places looks at one character of the text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_bind::decimal;

use super::number_pattern::{Anchored, Part, Pattern};
use thalweg_errors::into_datafusion;

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ToNumber {
    signature: Signature,
}

impl Default for ToNumber {
    fn default() -> Self {
        ToNumber { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ToNumber {
    fn name(&self) -> &str {
        "to_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let is_text = |t: &DataType| {
            matches!(t, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 | DataType::Null)
        };
        match types {
            [text, pattern] if is_text(text) && is_text(pattern) => {
                Ok(vec![DataType::Utf8, DataType::Utf8])
            }
            _ => plan_err!("to_number takes a text and a pattern such as '9G999D99'"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        exec_err!("the type of to_number depends on its pattern")
    }

    /// A pattern that is written says how many digits are behind the point.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        let pattern = args.scalar_arguments.get(1).copied().flatten();
        let data_type = match pattern.and_then(|p| p.try_as_str().flatten()) {
            Some(text) => {
                let pattern = Pattern::parse(text).map_err(into_datafusion)?;
                let digits = (pattern.before + pattern.after).clamp(1, 38);
                DataType::Decimal128(digits as u8, pattern.after.min(digits) as i8)
            }
            None => DataType::Decimal128(38, 10),
        };
        Ok(Arc::new(Field::new(self.name(), data_type, true)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let DataType::Decimal128(precision, scale) = *args.return_field.data_type() else {
            return exec_err!("to_number gives a numeric");
        };
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| {
            let array = arg.into_array(rows)?;
            Ok(cast(&array, &DataType::Utf8)?)
        });
        let arrays = arrays.collect::<DfResult<Vec<ArrayRef>>>()?;
        let (texts, patterns) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>());
        let mut known: Option<(&str, Pattern)> = None;
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            if texts.is_null(row) || patterns.is_null(row) {
                values.push(None);
                continue;
            }
            let text = patterns.value(row);
            if known.as_ref().is_none_or(|(of, _)| *of != text) {
                known = Some((text, Pattern::parse(text).map_err(into_datafusion)?));
            }
            let Some((_, pattern)) = &known else { continue };
            // An empty pattern finds nothing.
            if text.is_empty() {
                values.push(None);
                continue;
            }
            let value = read(pattern, texts.value(row), precision, scale);
            values.push(Some(value.map_err(into_datafusion)?));
        }
        let array = Decimal128Array::from(values).with_precision_and_scale(precision, scale)?;
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(Arc::new(array))),
        }
    }
}

fn read(pattern: &Pattern, text: &str, precision: u8, scale: i8) -> Result<i128> {
    if pattern.is_roman || pattern.scientific || pattern.shift.is_some() {
        let what = if pattern.is_roman { "RN" } else { "EEEE and V" };
        return Err(Error::unsupported(format!("{what} is not supported for input")));
    }
    let number = found(pattern, text);
    decimal::read(&number, precision, scale).map_err(|unread| match unread {
        decimal::Unread::Range => {
            let error =
                format!("numeric field overflow: {} does not fit the pattern", number.trim());
            Error::user(error).code("22003")
        }
        decimal::Unread::Syntax => {
            Error::user(format!("invalid input syntax for type numeric: {}", quoted(&number)))
                .code("22P02")
        }
    })
}

/// A text that is being read.
struct Reader<'p> {
    pattern: &'p Pattern,
    text: Vec<char>,
    at: usize,
    sign: Option<char>,
    digits: String,
    before: usize,
    after: usize,
    has_point: bool,
}

/// The number that the pattern finds, with a blank or a sign before it.
fn found(pattern: &Pattern, text: &str) -> String {
    let mut reader = Reader {
        pattern,
        text: text.chars().collect(),
        at: 0,
        sign: None,
        digits: String::new(),
        before: 0,
        after: 0,
        has_point: false,
    };
    for part in &pattern.parts {
        let Some(now) = reader.now() else { break };
        match part {
            Part::Digit { .. } => reader.digit(true),
            Part::Point => reader.digit(false),
            Part::Comma if pattern.tight || now != ',' => continue,
            Part::Comma => {}
            Part::Minus if now == '-' => reader.sign = Some(now),
            Part::Plus if now == '+' => reader.sign = Some(now),
            Part::Sign if matches!(now, '-' | '+') => reader.sign = Some(now),
            Part::Minus | Part::Plus | Part::Sign | Part::Currency => {
                reader.pass(1);
                continue;
            }
            Part::Ordinal { .. } => {
                reader.pass(2);
                continue;
            }
            Part::Roman { .. } => continue,
            Part::Text(_) => {}
        }
        reader.at += 1;
    }
    let digits = reader.digits.strip_suffix('.').unwrap_or(&reader.digits);
    format!("{}{digits}", reader.sign.unwrap_or(' '))
}

impl Reader<'_> {
    fn now(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    /// Characters that are of no number.
    fn pass(&mut self, most: usize) {
        for _ in 0..most {
            match self.now() {
                Some(c) if !"0123456789.,+-".contains(c) => self.at += 1,
                _ => break,
            }
        }
    }

    /// A place of the pattern that is a digit, or the point.
    fn digit(&mut self, is_digit: bool) {
        let has_sign = self.pattern.sign != Anchored::No;
        if self.now() == Some(' ') {
            self.at += 1;
        }
        if self.sign.is_none() && is_digit && self.before + self.after == 0 {
            match self.now() {
                Some(c @ ('-' | '+')) => {
                    self.sign = Some(c);
                    self.at += 1;
                }
                Some('<') if self.pattern.brackets => {
                    self.sign = Some('-');
                    self.at += 1;
                }
                _ => {}
            }
        }
        let mut is_read = false;
        match self.now() {
            None => return,
            Some(c) if c.is_ascii_digit() => {
                if self.has_point && self.after == self.pattern.after {
                    return;
                }
                self.digits.push(c);
                if self.has_point {
                    self.after += 1
                } else {
                    self.before += 1
                }
                is_read = true;
            }
            Some('.') if self.pattern.has_point && !self.has_point => {
                self.digits.push('.');
                self.has_point = true;
                is_read = true;
            }
            Some(_) => {}
        }
        if self.sign.is_some() || self.before + self.after == 0 {
            return;
        }
        if has_sign && is_read {
            // The sign is behind the last digit.
            if let Some(c @ ('-' | '+')) = self.text.get(self.at + 1).copied() {
                self.sign = Some(c);
                self.at += 1;
            }
        } else if !is_read
            && !has_sign
            && (self.pattern.has_plus || self.pattern.has_minus)
            && let Some(c @ ('-' | '+')) = self.now()
        {
            self.sign = Some(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_numbers_as_in_postgresql() {
        let check = |text: &str, pattern: &str, expected: &str| {
            let number = found(&Pattern::parse(pattern).unwrap(), text);
            assert_eq!(number, expected, "{text} {pattern}");
        };
        check("12,454.8-", "99G999D9S", "-12454.8");
        check("-34,338,492", "99G999G999", "-34338492");
        check("$1,234.56", "L9,999.99", " 1234.56");
        check("<564646.654564>", "999999.999999PR", "-564646.654564");
        check("42nd", "99th", " 42");
        check("123abc", "999", " 123");
    }
}
