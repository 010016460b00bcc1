//! Constants.

use std::fmt;

use arrow_schema::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::written;

/// A value of a type, or NULL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Literal {
    #[serde(with = "written::data_type")]
    pub data_type: DataType,
    pub value: Value,
}

/// The value of a [`Literal`], whose type says what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Value {
    Null,
    Boolean(bool),
    /// Of signed integers; of dates, times, timestamps and durations in the unit of their type; of
    /// intervals of years and months.
    Signed(i64),
    Unsigned(u64),
    /// The bits of a float of 64 bits, or those of 32 or 16 bits in the lowest of these.
    Float(u64),
    /// The digits of a decimal of at most 128 bits, without its point.
    Decimal(i128),
    Text(String),
    Bytes(Vec<u8>),
    Interval {
        months: i32,
        days: i32,
        nanoseconds: i64,
    },
}

impl Literal {
    pub fn null(data_type: DataType) -> Self {
        Literal { data_type, value: Value::Null }
    }

    pub fn boolean(value: bool) -> Self {
        Literal { data_type: DataType::Boolean, value: Value::Boolean(value) }
    }

    pub fn int64(value: i64) -> Self {
        Literal { data_type: DataType::Int64, value: Value::Signed(value) }
    }

    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// Whether the value is one of its type: in its range, and no NULL but of a type that has it.
    pub fn is_valid(&self) -> bool {
        use DataType::*;
        let within = |low: i64, high: i64, value: i64| (low..=high).contains(&value);
        match (&self.data_type, &self.value) {
            (_, Value::Null) => true,
            (Boolean, Value::Boolean(_)) => true,
            (Int8, Value::Signed(v)) => within(i8::MIN.into(), i8::MAX.into(), *v),
            (Int16, Value::Signed(v)) => within(i16::MIN.into(), i16::MAX.into(), *v),
            (Int32 | Date32, Value::Signed(v)) => within(i32::MIN.into(), i32::MAX.into(), *v),
            (Time32(TimeUnit::Second | TimeUnit::Millisecond), Value::Signed(v))
            | (Interval(arrow_schema::IntervalUnit::YearMonth), Value::Signed(v)) => {
                within(i32::MIN.into(), i32::MAX.into(), *v)
            }
            (Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond), Value::Signed(_)) => true,
            (Int64 | Date64 | Timestamp(..) | Duration(_), Value::Signed(_)) => true,
            (UInt8, Value::Unsigned(v)) => *v <= u8::MAX.into(),
            (UInt16, Value::Unsigned(v)) => *v <= u16::MAX.into(),
            (UInt32, Value::Unsigned(v)) => *v <= u32::MAX.into(),
            (UInt64, Value::Unsigned(_)) => true,
            (Float16, Value::Float(bits)) => *bits <= u16::MAX.into(),
            (Float32, Value::Float(bits)) => *bits <= u32::MAX.into(),
            (Float64, Value::Float(_)) => true,
            (Decimal32(..), Value::Decimal(v)) => i32::try_from(*v).is_ok(),
            (Decimal64(..), Value::Decimal(v)) => i64::try_from(*v).is_ok(),
            (Decimal128(..), Value::Decimal(_)) => true,
            (Utf8 | LargeUtf8 | Utf8View, Value::Text(text)) => text.len() <= i32::MAX as usize,
            (Binary | LargeBinary | BinaryView, Value::Bytes(bytes)) => {
                bytes.len() <= i32::MAX as usize
            }
            (Interval(arrow_schema::IntervalUnit::MonthDayNano), Value::Interval { .. }) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Null => f.write_str("NULL"),
            Value::Boolean(v) => write!(f, "{v}"),
            Value::Signed(v) => write!(f, "{v}"),
            Value::Unsigned(v) => write!(f, "{v}"),
            Value::Float(bits) if self.data_type == DataType::Float64 => {
                write!(f, "{}", f64::from_bits(*bits))
            }
            Value::Float(bits) if self.data_type == DataType::Float32 => {
                write!(f, "{}", f32::from_bits(*bits as u32))
            }
            Value::Float(bits) => write!(f, "{bits:#x}"),
            Value::Decimal(digits) => match self.data_type {
                DataType::Decimal32(_, scale)
                | DataType::Decimal64(_, scale)
                | DataType::Decimal128(_, scale)
                    if scale != 0 =>
                {
                    write!(f, "{digits}e{}", -i16::from(scale))
                }
                _ => write!(f, "{digits}"),
            },
            Value::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Value::Bytes(bytes) => {
                f.write_str("'\\x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
            Value::Interval { months, days, nanoseconds } => {
                write!(f, "{months} months {days} days {nanoseconds} ns")
            }
        }
    }
}
