//! Types by their names in SQL, and the type that two expressions meet in.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::logical_expr::type_coercion::binary::{comparison_coercion, type_union_coercion};
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType as SqlType, ExactNumberInfo, TimezoneInfo,
};

use thalweg_base::Error;
use thalweg_base::text::DECLARED_TYPE_KEY;

use crate::failure::{Result, wrong};
use crate::name::Part;

pub const TEXT: DataType = DataType::Utf8View;
pub const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// Digits that a decimal has at most.
pub const DIGITS_MAX: u8 = 38;
/// Digits behind the point of a NUMERIC that does not say how many it has.
const NUMERIC: DataType = DataType::Decimal128(38, 10);

pub fn is_text(t: &DataType) -> bool {
    match t {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

/// What a value of texts was declared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// `text`, or what is no text.
    Any,
    /// `varchar(n)`: beside a `char(n)`, and only there, blanks at its end do not count.
    Varying,
    /// `char(n)`: blanks at its end do not count. It is kept without these.
    Padded,
}

/// What a column was declared as.
pub fn text_kind(field: &Field) -> TextKind {
    let declared = field.metadata().get(DECLARED_TYPE_KEY).filter(|_| is_text(field.data_type()));
    match declared {
        Some(declared) if declared.starts_with("char(") => TextKind::Padded,
        Some(declared) if declared.starts_with("varchar(") => TextKind::Varying,
        _ => TextKind::Any,
    }
}

pub fn is_bytes(t: &DataType) -> bool {
    matches!(
        t,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    )
}

pub fn is_float(t: &DataType) -> bool {
    matches!(t, DataType::Float16 | DataType::Float32 | DataType::Float64)
}

pub fn is_decimal(t: &DataType) -> bool {
    t.is_decimal()
}

pub fn is_number(t: &DataType) -> bool {
    t.is_integer() || is_float(t) || is_decimal(t)
}

/// Whether all its values are numbers that are told exactly.
pub fn is_exact(t: &DataType) -> bool {
    t.is_integer() || is_decimal(t)
}

/// What PostgreSQL calls a type, for messages.
pub fn name(t: &DataType) -> String {
    match t {
        DataType::Null => "unknown".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Int8 => "tinyint".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int32 => "integer".into(),
        DataType::Int64 => "bigint".into(),
        DataType::UInt8 => "tinyint unsigned".into(),
        DataType::UInt16 => "smallint unsigned".into(),
        DataType::UInt32 => "integer unsigned".into(),
        DataType::UInt64 => "bigint unsigned".into(),
        DataType::Float16 | DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        t if is_text(t) => "text".into(),
        t if is_decimal(t) => "numeric".into(),
        t if is_bytes(t) => "bytea".into(),
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone".into(),
        DataType::Timestamp(_, None) => "timestamp without time zone".into(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        DataType::Interval(_) | DataType::Duration(_) => "interval".into(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("{}[]", name(item.data_type()))
        }
        DataType::Struct(_) => "record".into(),
        DataType::Map(..) => "map".into(),
        other => other.to_string().to_lowercase(),
    }
}

/// The type that a statement names. `zone` is what `WITH TIME ZONE` shows its instants in.
pub fn of_sql(sql: &SqlType, zone: Option<&str>) -> Result<DataType> {
    Ok(match sql {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(_) => DataType::Int8,
        SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => DataType::Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) => DataType::Int64,
        SqlType::TinyIntUnsigned(_) | SqlType::UTinyInt => DataType::UInt8,
        SqlType::SmallIntUnsigned(_) | SqlType::Int2Unsigned(_) | SqlType::USmallInt => {
            DataType::UInt16
        }
        SqlType::IntUnsigned(_) | SqlType::IntegerUnsigned(_) | SqlType::Int4Unsigned(_) => {
            DataType::UInt32
        }
        SqlType::BigIntUnsigned(_) | SqlType::Int8Unsigned(_) | SqlType::UBigInt => {
            DataType::UInt64
        }
        SqlType::Real | SqlType::Float4 => DataType::Float32,
        // The precision is in bits.
        SqlType::Float(ExactNumberInfo::None) => DataType::Float64,
        SqlType::Float(ExactNumberInfo::Precision(1..=24)) => DataType::Float32,
        SqlType::Float(ExactNumberInfo::Precision(25..=53)) => DataType::Float64,
        SqlType::Float(_) => {
            return wrong("22023", "the precision of FLOAT is between 1 and 53 bits");
        }
        SqlType::Double(ExactNumberInfo::None) | SqlType::DoublePrecision | SqlType::Float8 => {
            DataType::Float64
        }
        // Their lengths are seen to apart.
        SqlType::Text
        | SqlType::String(None)
        | SqlType::Varchar(_)
        | SqlType::CharacterVarying(_)
        | SqlType::CharVarying(_)
        | SqlType::Nvarchar(_)
        | SqlType::Char(_)
        | SqlType::Character(_) => TEXT,
        SqlType::Bytea => DataType::Binary,
        SqlType::Date => DataType::Date32,
        SqlType::Time(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            DataType::Time64(TimeUnit::Nanosecond)
        }
        SqlType::Time(Some(digits), _) => {
            let error = format!("TIME({digits}) is not supported as the type of a column");
            return Err(Error::unsupported(error)
                .hint("write TIME; a cast rounds: x::time(0)")
                .into());
        }
        SqlType::Timestamp(digits, zoned) => {
            let unit = match digits {
                Some(9) => TimeUnit::Nanosecond,
                None | Some(6) => TimeUnit::Microsecond,
                Some(3) => TimeUnit::Millisecond,
                Some(0) => TimeUnit::Second,
                Some(digits) => {
                    let error = Error::unsupported(format!("TIMESTAMP({digits}) is not supported"));
                    return Err(error.hint("there are TIMESTAMP(0), (3), (6) and (9)").into());
                }
            };
            let zoned = matches!(zoned, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
            DataType::Timestamp(unit, zone.filter(|_| zoned).map(Into::into))
        }
        SqlType::Numeric(info) | SqlType::Decimal(info) => decimal(info)?,
        SqlType::Interval { fields: None, precision: None } => INTERVAL,
        // As in PostgreSQL, a list of `int[3]` may have any length.
        SqlType::Array(
            ArrayElemTypeDef::AngleBracket(inner) | ArrayElemTypeDef::SquareBracket(inner, _),
        ) => {
            let item = Field::new_list_field(of_sql(inner, zone)?, true);
            DataType::List(Arc::new(item))
        }
        SqlType::Struct(fields, _) => {
            let fields = fields.iter().enumerate().map(|(at, field)| {
                let name = match &field.field_name {
                    Some(name) => Part::of(name).text,
                    None => format!("c{at}"),
                };
                Ok(Field::new(name, of_sql(&field.field_type, zone)?, true))
            });
            DataType::Struct(fields.collect::<Result<_>>()?)
        }
        SqlType::Custom(name, _) => {
            let part = name.0.last().and_then(|part| part.as_ident()).map(Part::of);
            return Err(thalweg_errors::no_type(
                &part.map_or_else(|| name.to_string(), |part| part.text),
            )
            .into());
        }
        other => return Err(thalweg_errors::no_type(&other.to_string()).into()),
    })
}

/// The type of a time that says how many digits its seconds have, where no type of ours has just these: that
/// number, and the type that has more.
pub fn with_digits(sql: &SqlType) -> Option<(u32, SqlType)> {
    match sql {
        SqlType::Time(Some(digits @ 0..=6), zone) => {
            Some((*digits as u32, SqlType::Time(None, *zone)))
        }
        SqlType::Timestamp(Some(digits @ (1 | 2 | 4 | 5)), zone) => {
            Some((*digits as u32, SqlType::Timestamp(None, *zone)))
        }
        _ => None,
    }
}

/// Whether it is a NUMERIC of any digits.
pub fn any_numeric(sql: &SqlType) -> bool {
    matches!(sql, SqlType::Numeric(ExactNumberInfo::None) | SqlType::Decimal(ExactNumberInfo::None))
}

/// The decimal that has the digits of a number that is written, perhaps with an exponent.
pub fn written(text: &str) -> Option<DataType> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, exponent) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i16>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || digits.len() > 128 || digits.is_empty() {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let scale = (fraction.len() as i16 - exponent).max(0);
    let count = (whole.len() as i16 + exponent).max(0) + scale;
    if count > i16::from(DIGITS_MAX) {
        return None;
    }
    Some(DataType::Decimal128(count.max(1) as u8, scale as i8))
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(NUMERIC),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if precision == 0 || precision > u64::from(DIGITS_MAX) {
        return wrong(
            "22023",
            format!("NUMERIC precision {precision} must be between 1 and {DIGITS_MAX}"),
        );
    }
    if scale < 0 || scale as u64 > precision {
        return wrong(
            "22023",
            format!("NUMERIC scale {scale} must be between 0 and precision {precision}"),
        );
    }
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}

/// The decimal that holds all values of an integer type.
pub fn as_decimal(t: &DataType) -> Option<DataType> {
    let digits = match t {
        DataType::Int8 | DataType::UInt8 => 3,
        DataType::Int16 | DataType::UInt16 => 5,
        DataType::Int32 | DataType::UInt32 => 10,
        DataType::Int64 => 19,
        DataType::UInt64 => 20,
        DataType::Decimal128(..) => return Some(t.clone()),
        _ => return None,
    };
    Some(DataType::Decimal128(digits, 0))
}

/// Whether values of a type are put into a column of another without a cast that is written.
pub fn may_assign(from: &DataType, to: &DataType) -> bool {
    if is_union(from) || is_union(to) {
        return from == to;
    }
    let is_time = |t: &DataType| t.is_temporal();
    let apart = |a: &DataType, b: &DataType| {
        is_number(a) && (is_time(b) || *b == DataType::Boolean)
            || is_time(a) && *b == DataType::Boolean
    };
    match (family(from), family(to)) {
        (Family::List(from), Family::List(to)) => may_assign(from, to),
        _ => !apart(from, to) && !apart(to, from) && may_cast(from, to),
    }
}

/// Whether there is a cast from a type to another. There are those of PostgreSQL, and between booleans and
/// all numbers; Arrow would cast much more, such as a number to the date that is so many days after 1970.
pub fn may_cast(from: &DataType, to: &DataType) -> bool {
    use Family::{Boolean, Date, Number, Other, Text, Timestamp};
    if is_union(from) || is_union(to) {
        return from == to;
    }
    match (family(from), family(to)) {
        (Family::List(from), Family::List(to)) => may_cast(from, to),
        (Text | Other, _) | (_, Text | Other) => true,
        (Number | Boolean, Number | Boolean) => true,
        (Date, Timestamp) | (Timestamp, Date | Family::Time) => true,
        (Family::Interval, Family::Time) | (Family::Time, Family::Interval) => true,
        (from, to) => from == to,
    }
}

/// Values of several types in one column. Arrow's cast of it to one of these gives NULL for those of the
/// others; `union_extract` says so by its name.
fn is_union(t: &DataType) -> bool {
    matches!(t, DataType::Union(..))
}

/// Types between which there are the same casts.
#[derive(PartialEq)]
enum Family<'t> {
    Number,
    Boolean,
    Text,
    Date,
    Time,
    Timestamp,
    Interval,
    Bytes,
    List(&'t DataType),
    Other,
}

fn family(t: &DataType) -> Family<'_> {
    match t {
        t if is_number(t) => Family::Number,
        t if is_text(t) => Family::Text,
        DataType::Boolean => Family::Boolean,
        DataType::Date32 | DataType::Date64 => Family::Date,
        DataType::Time32(_) | DataType::Time64(_) => Family::Time,
        DataType::Timestamp(..) => Family::Timestamp,
        DataType::Interval(_) | DataType::Duration(_) => Family::Interval,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Family::Bytes,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Family::List(item.data_type())
        }
        _ => Family::Other,
    }
}

/// The type in which two values are compared, or stand in one column. `None`: there is none without a
/// cast that the statement writes.
pub fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    if a == b || *b == DataType::Null {
        return Some(a.clone());
    }
    if *a == DataType::Null {
        return Some(b.clone());
    }
    // A text is no number and no date unless the statement says so.
    if is_text(a) != is_text(b) {
        return None;
    }
    if is_number(a) != is_number(b) || (*a == DataType::Boolean) != (*b == DataType::Boolean) {
        return None;
    }
    if is_float(a) || is_float(b) {
        return Some(match (a, b) {
            (DataType::Float32, DataType::Float32) => DataType::Float32,
            _ => DataType::Float64,
        });
    }
    if is_decimal(a) != is_decimal(b) {
        let (decimal, integer) = if is_decimal(a) { (a, b) } else { (b, a) };
        return match (decimal, as_decimal(integer)) {
            (DataType::Decimal128(..), Some(integer)) => wider(decimal, &integer),
            _ => comparison_coercion(a, b),
        };
    }
    if let (DataType::Decimal128(..), DataType::Decimal128(..)) = (a, b) {
        return wider(a, b);
    }
    // Of two times the finer unit: years that nanoseconds do not reach stay what they are.
    match (a, b) {
        (DataType::Date32, time @ DataType::Timestamp(..))
        | (time @ DataType::Timestamp(..), DataType::Date32) => return Some(time.clone()),
        (DataType::Timestamp(x, zone), DataType::Timestamp(y, other)) => {
            let zone = zone.clone().or_else(|| other.clone());
            return Some(DataType::Timestamp(*x.max(y), zone));
        }
        (DataType::Time32(_) | DataType::Time64(_), DataType::Time32(_) | DataType::Time64(_)) => {
            return Some(DataType::Time64(TimeUnit::Nanosecond));
        }
        _ => {}
    }
    comparison_coercion(a, b).or_else(|| type_union_coercion(a, b))
}

/// The type of a column in which values of both stand. There a real stays one beside whole numbers and
/// numerics, as in PostgreSQL; compared with these it is a double.
pub fn united(a: &DataType, b: &DataType) -> Option<DataType> {
    let is_real_with = |a: &DataType, b: &DataType| *a == DataType::Float32 && is_exact(b);
    match is_real_with(a, b) || is_real_with(b, a) {
        true => Some(DataType::Float32),
        false => common(a, b),
    }
}

/// The decimal that holds the values of both, as far as 38 digits do.
fn wider(a: &DataType, b: &DataType) -> Option<DataType> {
    let (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) = (a, b) else { return None };
    let scale = *s1.max(s2);
    let whole = (*p1 as i16 - *s1 as i16).max(*p2 as i16 - *s2 as i16);
    let precision = (whole + scale as i16).clamp(1, DIGITS_MAX as i16) as u8;
    Some(DataType::Decimal128(precision, scale))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{UnionFields, UnionMode};

    use super::*;

    #[test]
    fn a_union_becomes_nothing_else() {
        let fields =
            [Field::new("n", DataType::Int64, true), Field::new("s", DataType::Utf8, true)];
        let fields = UnionFields::try_new([0, 1], fields).unwrap();
        let union = DataType::Union(fields, UnionMode::Sparse);
        for other in [DataType::Utf8, DataType::Int64, DataType::Boolean] {
            assert!(!may_cast(&union, &other) && !may_assign(&union, &other), "{other}");
            assert!(!may_cast(&other, &union) && !may_assign(&other, &union), "{other}");
        }
        assert!(may_cast(&union, &union));
    }

    #[test]
    fn columns_take_no_values_of_other_kinds() {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        let check = |from: DataType, to: DataType, expected: bool| {
            assert_eq!(may_assign(&from, &to), expected, "{from} {to}");
        };
        check(DataType::Float64, DataType::Int32, true);
        check(DataType::Boolean, DataType::Int32, false);
        check(DataType::Date32, DataType::Timestamp(TimeUnit::Microsecond, None), true);
        check(INTERVAL, DataType::Timestamp(TimeUnit::Microsecond, None), false);
        check(DataType::Int32, list(DataType::Int32), false);
        check(DataType::Date32, list(DataType::Int32), false);
        check(list(DataType::Int32), DataType::Int32, false);
        check(list(DataType::Int32), TEXT, true);
        check(list(DataType::Float64), list(DataType::Int32), true);
        check(list(DataType::Float64), list(DataType::Boolean), false);
        check(list(DataType::Null), list(DataType::Int32), true);
    }

    #[test]
    fn types_meet_where_no_cast_is_needed() {
        let decimal = DataType::Decimal128;
        let check = |a: DataType, b: DataType, expected: Option<DataType>| {
            assert_eq!(common(&a, &b), expected, "{a} {b}");
            assert_eq!(common(&b, &a), expected, "{b} {a}");
        };
        check(DataType::Int32, DataType::Int64, Some(DataType::Int64));
        check(DataType::Int32, DataType::Float32, Some(DataType::Float64));
        check(DataType::Int32, decimal(5, 2), Some(decimal(12, 2)));
        check(decimal(38, 10), decimal(38, 2), Some(decimal(38, 10)));
        check(DataType::Null, DataType::Date32, Some(DataType::Date32));
        let time = DataType::Time64;
        check(
            time(TimeUnit::Microsecond),
            time(TimeUnit::Nanosecond),
            Some(time(TimeUnit::Nanosecond)),
        );
        check(TEXT, DataType::Int32, None);
        check(TEXT, DataType::Date32, None);
        check(DataType::Boolean, DataType::Int32, None);
    }
}
