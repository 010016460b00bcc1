//! The operations that expressions are made of, as plain values.
//!
//! What an operation means is said here; who runs a plan computes it. The rules that hold for all that do
//! not say otherwise:
//!
//! * A row with a NULL among its arguments gives NULL, and never an error.
//! * An operation that fails for a row fails for the batch, with the error of the operator that it
//!   stands for.
//! * All arguments are of one type, and so is the result.

use std::fmt;

use arrow_schema::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::{Literal, written};

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Of two signed integers, an error where the result is out of their range; or of two floats, an
    /// error where finite numbers give an infinite one.
    Add,
    /// As [`Op::Add`].
    Subtract,
    /// As [`Op::Add`]; also an error where floats that are not zero give zero.
    Multiply,
    /// Of two signed integers without the fraction, or of two floats. Division by zero is an error,
    /// and so is what [`Op::Multiply`] takes for one.
    Divide,
    /// What a division leaves, with the sign of the dividend. Of zero it is an error.
    Modulo,
    /// A decimal divided by another as a decimal of these digits, rounded half away from zero. An
    /// error by zero and where the digits do not hold it.
    Quotient { precision: u8, scale: i8 },
    /// A decimal itself; an error if it has more digits than a decimal may have.
    WithinDigits,
    /// A float or a decimal with the other sign; of decimals it wraps.
    Negate,
    /// An integer, a float or a decimal without its sign; the least integer is an error.
    Absolute,
    /// A float itself, of those that are equal always the same: there is one zero, and one NaN.
    Canonical,
    /// The whole number that is nearest to a float, of two the even one, as a float.
    NearestWhole,
    /// The largest whole number that is no larger than a float, as a float.
    Floor,
    /// The smallest whole number that is no smaller than a float, as a float.
    Ceiling,
    /// As another type. [`Op::result_type`] says from which to which; what has no counterpart there
    /// is an error.
    Cast(#[serde(with = "written::data_type")] DataType),
    /// Conditions, each followed by its value, and at the end, if their number is odd, the value
    /// where none is true; without it that is NULL. A condition is asked only for the rows for which
    /// those before are not true, and a value is computed only for the rows that get it.
    Case,
    /// The first argument that is not NULL. An argument is computed only for the rows that have NULL
    /// in all before.
    Coalesce,
    /// The first argument, or NULL where the second is equal to it.
    NullIf,
    /// The largest argument that is not NULL.
    Greatest,
    /// The smallest argument that is not NULL.
    Least,
    /// Whether a value is equal to one of a list, which has at least one. If it is not, and there is a
    /// NULL among these, it is unknown.
    In { list: Vec<Literal>, negated: bool },
    /// Whether a text is as the pattern says, in which `%` is any text, `_` any character, and a
    /// backslash makes the next of these, or a backslash, one that is meant itself.
    Like { pattern: String, negated: bool, any_case: bool },
    /// The characters of a text from a place on, the first is 1, or as many as the third argument
    /// says, of which fewer than none is an error. A place before the first counts.
    Substring,
    /// How many characters a text has.
    Characters,
    /// How many bytes a text has.
    Octets,
    /// Each character in upper case, if one character is its upper case.
    Upper,
    /// Each character in lower case, if one character is its lower case.
    Lower,
    /// A text without blanks at one of its ends, or at both.
    Trim { start: bool, end: bool },
    /// One text after the other.
    Concatenate,
    /// A part of a point of time.
    DatePart(DatePart),
    /// The beginning of the time that a timestamp of microseconds lies in.
    DateTrunc(DateUnit),
}

/// What a point of time is taken apart into. Of timestamps on the clock of UTC, or without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DatePart {
    /// There is no year 0: the one before the year 1 is -1.
    Year,
    Quarter,
    Month,
    /// Of ISO 8601: week 1 has the first Thursday of its year.
    Week,
    Day,
    /// 0 is Sunday.
    DayOfWeek,
    /// 1 is Monday, 7 is Sunday.
    IsoDayOfWeek,
    DayOfYear,
    Hour,
    Minute,
    /// With six digits after the point.
    Second,
    /// Seconds since 1970; of timestamps with six digits after the point.
    Epoch,
}

/// What timestamps are cut to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DateUnit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    /// Which begins on a Monday.
    Week,
    Month,
    Quarter,
    Year,
}

/// Digits of what is stored in an integer.
pub(crate) fn integer_digits(data_type: &DataType) -> Option<u8> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => 3,
        DataType::Int16 | DataType::UInt16 => 5,
        DataType::Int32 | DataType::UInt32 => 10,
        DataType::Int64 => 19,
        DataType::UInt64 => 20,
        _ => return None,
    })
}

pub(crate) fn is_signed(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64)
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Whether two values of a type are equal if, and only if, they are the same bits, and ordered as
/// integers are.
fn is_discrete(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Int8 | Int16
            | Int32
            | Int64
            | UInt8
            | UInt16
            | UInt32
            | Date32
            | Timestamp(..)
            | Decimal128(..)
    )
}

/// A date, or a timestamp whose clock is that of UTC.
fn is_point(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date32 | DataType::Timestamp(_, None) => true,
        DataType::Timestamp(_, Some(zone)) => {
            matches!(zone.as_ref(), "UTC" | "Etc/UTC" | "+00:00")
        }
        _ => false,
    }
}

/// Whether the digits before the point of the one decimal are no more than those of the other.
fn holds_whole(from: (u8, i8), to: (u8, i8), more: i16) -> bool {
    let whole = |(precision, scale): (u8, i8)| i16::from(precision) - i16::from(scale);
    whole(to) >= whole(from) + more
}

/// Whether a type is none of decimals, or one of decimals that there are, without zeros that are not written.
fn is_sound(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(precision, scale) => {
            (1..=38).contains(precision) && (0..=*precision as i8).contains(scale)
        }
        _ => true,
    }
}

/// Whether a cast is one of ours.
fn casts(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    if !is_sound(from) || !is_sound(to) {
        return false;
    }
    if from == to {
        return true;
    }
    match (from, to) {
        (Boolean, Int32 | Int64 | Utf8View) => true,
        (from, Utf8View) if integer_digits(from).is_some() => true,
        (from, to) if integer_digits(from).is_some() && integer_digits(to).is_some() => true,
        (from, Float32 | Float64) if integer_digits(from).is_some() => true,
        (Float32, Float64) => true,
        (from, to) if is_float(from) && integer_digits(to).is_some() => true,
        // Every integer of the type fits, so that no digit can be lost.
        (from, Decimal128(precision, scale)) if *scale >= 0 => match (from, integer_digits(from)) {
            (_, Some(digits)) => holds_whole((digits, 0), (*precision, *scale), 0),
            (Decimal128(p, s), None) => {
                // One more, where a digit is rounded away and carries.
                let more = i16::from(scale < s);
                *s >= 0 && holds_whole((*p, *s), (*precision, *scale), more)
            }
            _ => false,
        },
        (Decimal128(_, scale), Float64) => *scale >= 0,
        (Decimal128(_, 0), to) => integer_digits(to).is_some(),
        (Int32, Date32) | (Date32, Int32) => true,
        (Date32, Timestamp(_, None)) | (Timestamp(_, None), Date32) => true,
        _ => false,
    }
}

impl Op {
    /// The type of the result for arguments of these types. `None`: the operation takes no such.
    pub fn result_type(&self, arguments: &[DataType]) -> Option<DataType> {
        use DataType::*;
        let first = arguments.first()?;
        let alike = arguments.iter().all(|argument| argument == first);
        if !arguments.iter().all(is_sound) {
            return None;
        }
        match (self, arguments) {
            (Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Modulo, [_, _]) => {
                (alike && (is_signed(first) || is_float(first))).then(|| first.clone())
            }
            (&Op::Quotient { precision, scale }, [Decimal128(_, s1), Decimal128(_, s2)]) => {
                let fits = (1..=38).contains(&precision)
                    && (0..=precision as i8).contains(&scale)
                    && *s1 >= 0
                    && *s2 >= 0
                    && *s1 <= scale;
                fits.then_some(Decimal128(precision, scale))
            }
            (Op::WithinDigits, [t @ Decimal128(..)]) => Some(t.clone()),
            (Op::Negate, [t]) if is_float(t) || matches!(t, Decimal128(..)) => Some(t.clone()),
            (Op::Absolute, [t]) if is_signed(t) || is_float(t) || matches!(t, Decimal128(..)) => {
                Some(t.clone())
            }
            (Op::Canonical | Op::NearestWhole | Op::Floor | Op::Ceiling, [t]) if is_float(t) => {
                Some(t.clone())
            }
            (Op::Cast(to), [from]) => casts(from, to).then(|| to.clone()),
            (Op::Case, [_, value, ..]) => {
                let value = value.clone();
                let (branches, rest) = arguments.as_chunks::<2>();
                let fits =
                    |[condition, other]: &[DataType; 2]| *condition == Boolean && *other == value;
                let all = branches.iter().all(fits) && rest.iter().all(|other| *other == value);
                (all && !value.is_nested()).then_some(value)
            }
            (Op::Coalesce, [_, ..]) => (alike && !first.is_nested()).then(|| first.clone()),
            (Op::NullIf, [_, _]) => {
                let compared = is_discrete(first) || matches!(first, Utf8View | Boolean);
                (alike && compared).then(|| first.clone())
            }
            (Op::Greatest | Op::Least, [_, ..]) => {
                (alike && is_discrete(first)).then(|| first.clone())
            }
            (Op::In { list, .. }, [value]) => {
                let is_one = |item: &Literal| item.data_type == *value && item.is_valid();
                let fits = !list.is_empty() && list.iter().all(is_one);
                (fits && (is_discrete(value) || *value == Utf8View)).then_some(Boolean)
            }
            (Op::Like { .. }, [Utf8View]) => Some(Boolean),
            (Op::Substring, [Utf8View, Int64] | [Utf8View, Int64, Int64]) => Some(Utf8View),
            (Op::Characters | Op::Octets, [Utf8View]) => Some(Int32),
            (Op::Upper | Op::Lower | Op::Trim { .. }, [Utf8View]) => Some(Utf8View),
            (Op::Concatenate, [_, _, ..]) => (alike && *first == Utf8View).then_some(Utf8View),
            (Op::DatePart(part), [time]) => is_point(time).then(|| part.result_type(time)),
            (Op::DateTrunc(_), [Timestamp(TimeUnit::Microsecond, _)]) => {
                is_point(first).then(|| first.clone())
            }
            _ => None,
        }
    }

    /// Whether it is an error for some arguments of these types.
    pub fn may_fail(&self, arguments: &[DataType]) -> bool {
        let first = arguments.first();
        match self {
            Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Modulo => true,
            Op::Quotient { .. } | Op::WithinDigits | Op::Substring | Op::Concatenate => true,
            Op::Absolute => first.is_some_and(is_signed),
            Op::Cast(to) => first.is_none_or(|from| cast_may_fail(from, to)),
            _ => false,
        }
    }

    /// Whether a value costs so little that it is not worth while to find out first which rows need
    /// it.
    pub fn is_cheap(&self) -> bool {
        !matches!(
            self,
            Op::Quotient { .. }
                | Op::Like { .. }
                | Op::Substring
                | Op::Upper
                | Op::Lower
                | Op::Trim { .. }
                | Op::Concatenate
                | Op::Cast(DataType::Utf8View)
        )
    }
}

fn cast_may_fail(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        (_, Utf8View | Float32 | Float64) | (Boolean, _) => false,
        (Int32, Date32) | (Date32, Int32) => false,
        // A decimal may have more digits than its type has.
        (from, Decimal128(..)) => integer_digits(from).is_none(),
        (Int8, Int16 | Int32 | Int64) | (Int16, Int32 | Int64) | (Int32, Int64) => false,
        (UInt8, UInt16 | UInt32 | UInt64 | Int16 | Int32 | Int64) => false,
        (UInt16, UInt32 | UInt64 | Int32 | Int64) | (UInt32, UInt64 | Int64) => false,
        (from, to) => from != to,
    }
}

impl DatePart {
    fn result_type(self, time: &DataType) -> DataType {
        match self {
            DatePart::Second => DataType::Decimal128(8, 6),
            DatePart::Epoch if *time == DataType::Date32 => DataType::Int64,
            DatePart::Epoch => DataType::Decimal128(22, 6),
            _ => DataType::Int32,
        }
    }

    fn name(self) -> &'static str {
        match self {
            DatePart::Year => "year",
            DatePart::Quarter => "quarter",
            DatePart::Month => "month",
            DatePart::Week => "week",
            DatePart::Day => "day",
            DatePart::DayOfWeek => "dow",
            DatePart::IsoDayOfWeek => "isodow",
            DatePart::DayOfYear => "doy",
            DatePart::Hour => "hour",
            DatePart::Minute => "minute",
            DatePart::Second => "second",
            DatePart::Epoch => "epoch",
        }
    }
}

impl DateUnit {
    fn name(self) -> &'static str {
        match self {
            DateUnit::Millisecond => "millisecond",
            DateUnit::Second => "second",
            DateUnit::Minute => "minute",
            DateUnit::Hour => "hour",
            DateUnit::Day => "day",
            DateUnit::Week => "week",
            DateUnit::Month => "month",
            DateUnit::Quarter => "quarter",
            DateUnit::Year => "year",
        }
    }
}

/// The short form, without arguments.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: bool| if negated { "not " } else { "" };
        match self {
            Op::Add => f.write_str("+"),
            Op::Subtract => f.write_str("-"),
            Op::Multiply => f.write_str("*"),
            Op::Divide | Op::Quotient { .. } => f.write_str("/"),
            Op::Modulo => f.write_str("%"),
            Op::WithinDigits => f.write_str("within_digits"),
            Op::Negate => f.write_str("negate"),
            Op::Absolute => f.write_str("abs"),
            Op::Canonical => f.write_str("canonical_float"),
            Op::NearestWhole => f.write_str("nearest_whole"),
            Op::Floor => f.write_str("floor"),
            Op::Ceiling => f.write_str("ceil"),
            Op::Cast(to) => write!(f, "cast to {to}"),
            Op::Case => f.write_str("case"),
            Op::Coalesce => f.write_str("coalesce"),
            Op::NullIf => f.write_str("nullif"),
            Op::Greatest => f.write_str("greatest"),
            Op::Least => f.write_str("least"),
            Op::In { negated, .. } => write!(f, "{}in", not(*negated)),
            Op::Like { pattern, negated, any_case } => {
                let like = if *any_case { "ilike" } else { "like" };
                write!(f, "{}{like} '{pattern}'", not(*negated))
            }
            Op::Substring => f.write_str("substr"),
            Op::Characters => f.write_str("character_length"),
            Op::Octets => f.write_str("octet_length"),
            Op::Upper => f.write_str("upper"),
            Op::Lower => f.write_str("lower"),
            Op::Trim { start: true, end: false } => f.write_str("ltrim"),
            Op::Trim { start: false, end: true } => f.write_str("rtrim"),
            Op::Trim { .. } => f.write_str("btrim"),
            Op::Concatenate => f.write_str("||"),
            Op::DatePart(part) => write!(f, "{} of", part.name()),
            Op::DateTrunc(unit) => write!(f, "date_trunc {} of", unit.name()),
        }
    }
}

impl Op {
    /// How it is shown over arguments that are shown so.
    pub fn describe(&self, arguments: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, arguments) {
            (Op::Case, arguments) => {
                f.write_str("CASE")?;
                let (branches, rest) = arguments.as_chunks::<2>();
                for [condition, value] in branches {
                    write!(f, " WHEN {condition} THEN {value}")?;
                }
                for value in rest {
                    write!(f, " ELSE {value}")?;
                }
                f.write_str(" END")
            }
            (Op::In { list, negated }, [value]) => {
                let not = if *negated { "NOT " } else { "" };
                let list: Vec<String> = list.iter().map(ToString::to_string).collect();
                write!(f, "{value} {not}IN ({})", list.join(", "))
            }
            (Op::Like { pattern, negated, any_case }, [value]) => {
                let not = if *negated { "NOT " } else { "" };
                let like = if *any_case { "ILIKE" } else { "LIKE" };
                write!(f, "{value} {not}{like} '{pattern}'")
            }
            (Op::Cast(to), [value]) => write!(f, "CAST({value} AS {to})"),
            (Op::WithinDigits, [value]) => f.write_str(value),
            (Op::Negate, [value]) => write!(f, "(- {value})"),
            (Op::DatePart(part), [value]) => write!(f, "date_part({}, {value})", part.name()),
            (Op::DateTrunc(unit), [value]) => write!(f, "date_trunc({}, {value})", unit.name()),
            (
                Op::Add
                | Op::Subtract
                | Op::Multiply
                | Op::Divide
                | Op::Quotient { .. }
                | Op::Modulo
                | Op::Concatenate,
                arguments,
            ) => write!(f, "({})", arguments.join(&format!(" {self} "))),
            (op, arguments) => write!(f, "{op}({})", arguments.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_say_what_they_take() {
        use DataType::*;
        let check = |op: Op, arguments: &[DataType], expected: Option<DataType>| {
            assert_eq!(op.result_type(arguments), expected, "{op} of {arguments:?}");
        };
        check(Op::Add, &[Int32, Int32], Some(Int32));
        check(Op::Add, &[Int32, Int64], None);
        check(Op::Add, &[Int32], None);
        check(Op::Add, &[], None);
        check(Op::Add, &[Decimal128(5, 2), Decimal128(5, 2)], None);
        check(Op::Case, &[Boolean, Int32], Some(Int32));
        check(Op::Case, &[Boolean, Int32, Int32], Some(Int32));
        check(Op::Case, &[Boolean, Int32, Boolean, Int32, Int32], Some(Int32));
        check(Op::Case, &[Boolean, Int32, Int32, Int32], None);
        check(Op::Case, &[Boolean], None);
        check(Op::Cast(Int8), &[Int64], Some(Int8));
        check(Op::Cast(Decimal128(19, 0)), &[Int64], Some(Decimal128(19, 0)));
        check(Op::Cast(Decimal128(18, 0)), &[Int64], None);
        check(Op::Cast(Decimal128(6, 1)), &[Decimal128(6, 2)], Some(Decimal128(6, 1)));
        check(Op::Cast(Decimal128(5, 1)), &[Decimal128(6, 2)], None);
        check(Op::Cast(Decimal128(127, -128)), &[Decimal128(255, -128)], None);
        check(Op::Cast(Utf8View), &[Float64], None);
        let list = |list: Vec<Literal>| Op::In { list, negated: false };
        check(list(vec![Literal::int64(1), Literal::null(Int64)]), &[Int64], Some(Boolean));
        check(list(vec![Literal::int64(1)]), &[Int32], None);
        check(list(vec![Literal::null(Float64)]), &[Float64], None);
        check(list(vec![]), &[Int64], None);
        check(Op::DatePart(DatePart::Epoch), &[Date32], Some(Int64));
        let zoned = |zone: &str| Timestamp(TimeUnit::Microsecond, Some(zone.into()));
        check(Op::DatePart(DatePart::Hour), &[zoned("UTC")], Some(Int32));
        check(Op::DatePart(DatePart::Hour), &[zoned("Europe/Berlin")], None);
        check(
            Op::Quotient { precision: 250, scale: -3 },
            &[Decimal128(1, 0), Decimal128(1, 0)],
            None,
        );
    }

    #[test]
    fn operations_are_read_as_they_were_written_down() {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        for op in [
            Op::Quotient { precision: 20, scale: 4 },
            Op::Cast(zoned),
            Op::In { list: vec![Literal::int64(-1)], negated: true },
            Op::Like { pattern: "a%".into(), negated: false, any_case: true },
            Op::Trim { start: true, end: false },
            Op::DatePart(DatePart::IsoDayOfWeek),
            Op::DateTrunc(DateUnit::Week),
        ] {
            let written = postcard::to_stdvec(&op).unwrap();
            assert_eq!(postcard::from_bytes::<Op>(&written).unwrap(), op);
        }
    }
}
