//! Values that a statement writes out.

use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::sql::sqlparser::ast::{self, UnaryOperator, Value};

use thalweg_base::Error;

use crate::binder::Binder;
use crate::failure::{Result, not_covered, wrong};
use crate::span::{self, Fields};
use crate::typed::Typed;
use crate::types::{DIGITS_MAX, INTERVAL, TEXT};

fn literal(value: ScalarValue) -> Typed {
    let (data_type, nullable) = (value.data_type(), value.is_null());
    Typed::new(Expr::Literal(value, None), data_type, nullable)
}

impl Binder<'_> {
    pub(crate) fn literal(&self, value: &Value) -> Result<Typed> {
        match value {
            Value::Number(text, _) => self.numeric(text, false),
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => {
                let value = literal(ScalarValue::from(text.as_str()));
                Ok(Typed { unknown: true, ..value })
            }
            Value::DollarQuotedString(text) => {
                let value = literal(ScalarValue::from(text.value.as_str()));
                Ok(Typed { unknown: true, ..value })
            }
            Value::Boolean(value) => Ok(literal(ScalarValue::from(*value))),
            Value::Null => Ok(literal(ScalarValue::Null)),
            Value::HexStringLiteral(text) => match bytes(text) {
                Some(bytes) => Ok(literal(ScalarValue::Binary(Some(bytes)))),
                None => wrong("22P02", format!("'{text}' is no text of hexadecimal digits")),
            },
            // It gets the type of what it meets, as a literal in quotes does.
            Value::Placeholder(name) => {
                let parameter = Placeholder::new_with_field(name.clone(), None);
                let value = Typed::new(Expr::Placeholder(parameter), TEXT, true);
                Ok(Typed { unknown: true, ..value })
            }
            _ => not_covered("this literal"),
        }
    }

    /// The same with a minus before it: the least bigint has no positive counterpart.
    pub(crate) fn negative(&self, value: &Value) -> Result<Typed> {
        match value {
            Value::Number(text, _) => self.numeric(text, true),
            _ => not_covered("this literal"),
        }
    }

    fn numeric(&self, text: &str, negative: bool) -> Result<Typed> {
        let mut text: String = text.chars().filter(|c| *c != '_').collect();
        if negative {
            text.insert(0, '-');
        }
        if let Ok(n) = text.parse::<i32>() {
            return Ok(literal(ScalarValue::from(n)));
        }
        if let Ok(n) = text.parse::<i64>() {
            return Ok(literal(ScalarValue::from(n)));
        }
        if text.contains(['e', 'E']) {
            return match text.parse::<f64>() {
                Ok(n) if n.is_finite() => Ok(literal(ScalarValue::from(n))),
                Ok(_) => {
                    wrong("22003", format!("{text} is out of range for type double precision"))
                }
                Err(_) => wrong("42601", format!("{text} is no number")),
            };
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let whole_digits = whole.trim_start_matches(['-', '0']).len();
        let digits = (whole_digits + fraction.len()).max(1);
        if digits > DIGITS_MAX as usize {
            return Err(Error::user(format!("{text} has more than {DIGITS_MAX} digits"))
                .code("22003")
                .hint(format!("{text}e0 is the nearest double"))
                .into());
        }
        match format!("{whole}{fraction}").parse::<i128>() {
            Ok(unscaled) => {
                let (precision, scale) = (digits as u8, fraction.len() as i8);
                Ok(literal(ScalarValue::Decimal128(Some(unscaled), precision, scale)))
            }
            Err(_) => wrong("42601", format!("{text} is no number")),
        }
    }

    pub(crate) fn interval(&self, interval: &ast::Interval, negative: bool) -> Result<Typed> {
        let ast::Interval {
            value,
            leading_field,
            leading_precision: None,
            last_field,
            fractional_seconds_precision: None,
        } = interval
        else {
            return not_covered("this interval");
        };
        let Some(text) = amount(value, false) else { return not_covered("this interval") };
        let unit = |field: &Option<ast::DateTimeField>| match field {
            None => Ok(None),
            Some(field) => match span::unit(field) {
                Some(unit) => Ok(Some(unit)),
                None => wrong("42601", format!("{field} is no field of an interval")),
            },
        };
        let (first, last) = (unit(leading_field)?, unit(last_field)?);
        let fields = first.map(|first| Fields { first, last: last.unwrap_or(first) });
        let value = span::read(&text, fields)?;
        let value = match negative {
            false => value,
            true => match negated(value) {
                Some(value) => value,
                None => return wrong("22008", "interval out of range"),
            },
        };
        let value = ScalarValue::IntervalMonthDayNano(Some(value));
        Ok(Typed::new(Expr::Literal(value, None), INTERVAL, false))
    }
}

fn negated(span: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    Some(IntervalMonthDayNano::new(
        span.months.checked_neg()?,
        span.days.checked_neg()?,
        span.nanoseconds.checked_neg()?,
    ))
}

/// The text of an interval's amount.
fn amount(value: &ast::Expr, negative: bool) -> Option<String> {
    let text = match value {
        ast::Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, false) => text.clone(),
            _ => return None,
        },
        ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr } => return amount(expr, !negative),
        ast::Expr::UnaryOp { op: UnaryOperator::Plus, expr } => return amount(expr, negative),
        _ => return None,
    };
    Some(if negative { format!("-{text}") } else { text })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || text.len() % 2 == 1 {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

/// A whole number of a clause such as LIMIT.
pub(crate) fn count(n: i64) -> Typed {
    Typed::new(Expr::Literal(ScalarValue::from(n), None), DataType::Int64, false)
}
