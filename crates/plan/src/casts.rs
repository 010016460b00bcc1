//! Which casts a comparison with a constant can do without.
//!
//! `cast(c AS T) < v` means `c < v` for all values of `c` only if the cast gives different values for
//! different ones, in the same order, and never fails; and if the type of `c` has the value `v` itself.
//! A cast that rounds, truncates or shifts by a time zone has none of that: `cast(2.4 AS int) = 2`.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

/// Whether a cast keeps all values apart and in order, and fails for none.
pub fn is_exact(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let text = |t: &DataType| matches!(t, Utf8 | LargeUtf8 | Utf8View);
    let binary = |t: &DataType| matches!(t, Binary | LargeBinary | BinaryView);
    if from == to || text(from) && text(to) || binary(from) && binary(to) {
        return true;
    }
    match (from, to) {
        (Dictionary(_, values), to) => is_exact(values, to),
        (from, Dictionary(_, values)) => is_exact(from, values),
        (Date32, Timestamp(_, None)) => true,
        (Timestamp(from, zone), Timestamp(to, other)) => {
            from <= to && zone.is_some() == other.is_some()
        }
        _ => match (whole_digits(from), whole_digits(to)) {
            (Some(Whole::Bits(signed, bits)), Some(Whole::Bits(to_signed, to_bits))) => {
                match (signed, to_signed) {
                    (false, true) => bits < to_bits,
                    (true, false) => false,
                    _ => bits <= to_bits,
                }
            }
            (Some(Whole::Bits(signed, bits)), Some(Whole::Digits(digits, _))) => {
                digits_of(signed, bits) <= digits
            }
            (Some(Whole::Digits(digits, scale)), Some(Whole::Digits(to_digits, to_scale))) => {
                digits <= to_digits && scale <= to_scale
            }
            _ => false,
        },
    }
}

/// The value of type `from` that the cast makes `value` of; `None` if there is none.
pub fn before_cast(value: &ScalarValue, from: &DataType) -> Option<ScalarValue> {
    let before = value.cast_to(from).ok()?;
    let back = before.cast_to(&value.data_type()).ok()?;
    (back == *value && before.is_null() == value.is_null()).then_some(before)
}

enum Whole {
    /// Whether there are negative ones, and how many bits they have.
    Bits(bool, u32),
    /// Before the point, and behind it.
    Digits(i16, i16),
}

fn whole_digits(of: &DataType) -> Option<Whole> {
    use DataType::*;
    Some(match of {
        Int8 => Whole::Bits(true, 8),
        Int16 => Whole::Bits(true, 16),
        Int32 => Whole::Bits(true, 32),
        Int64 => Whole::Bits(true, 64),
        UInt8 => Whole::Bits(false, 8),
        UInt16 => Whole::Bits(false, 16),
        UInt32 => Whole::Bits(false, 32),
        UInt64 => Whole::Bits(false, 64),
        Decimal32(digits, scale)
        | Decimal64(digits, scale)
        | Decimal128(digits, scale)
        | Decimal256(digits, scale) => {
            Whole::Digits(i16::from(*digits) - i16::from(*scale), i16::from(*scale))
        }
        _ => return None,
    })
}

/// How many digits the longest number of so many bits has.
fn digits_of(signed: bool, bits: u32) -> i16 {
    match (signed, bits) {
        (_, 8) => 3,
        (_, 16) => 5,
        (_, 32) => 10,
        (true, _) => 19,
        (false, _) => 20,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn casts_that_round_cut_or_fail_are_not_exact() {
        use DataType::*;
        let check = |from: DataType, to: DataType, exact: bool| {
            assert_eq!(is_exact(&from, &to), exact, "{from} to {to}");
        };
        let zone = || Some("+00:00".into());
        check(Int32, Int64, true);
        check(Int64, Int32, false);
        check(UInt32, Int64, true);
        check(UInt64, Int64, false);
        check(Int8, UInt64, false);
        check(Int32, Decimal128(10, 0), true);
        check(Int32, Decimal128(11, 2), false);
        check(Int64, Decimal256(22, 3), true);
        check(Decimal128(10, 2), Decimal128(12, 4), true);
        check(Decimal128(10, 2), Decimal128(12, 1), false);
        check(Decimal128(10, 2), Decimal128(11, 4), false);
        check(Decimal128(10, 0), Int64, false);
        check(Float64, Int64, false);
        check(Int64, Float64, false);
        check(Timestamp(TimeUnit::Second, None), Timestamp(TimeUnit::Microsecond, None), true);
        check(Timestamp(TimeUnit::Microsecond, None), Timestamp(TimeUnit::Second, None), false);
        check(Timestamp(TimeUnit::Second, zone()), Timestamp(TimeUnit::Second, None), false);
        check(Timestamp(TimeUnit::Second, None), Date32, false);
        check(Date32, Timestamp(TimeUnit::Nanosecond, None), true);
        check(Utf8View, Utf8, true);
        check(Int32, Utf8, false);
    }

    #[test]
    fn a_value_that_the_narrower_type_has_not_stays() {
        let check = |value: ScalarValue, from: DataType, expected: Option<ScalarValue>| {
            assert_eq!(before_cast(&value, &from), expected, "{value} as {from}");
        };
        let decimal = |value, digits, scale| ScalarValue::Decimal128(Some(value), digits, scale);
        check(ScalarValue::Int64(Some(7)), DataType::Int32, Some(ScalarValue::Int32(Some(7))));
        check(ScalarValue::Int64(Some(1 << 40)), DataType::Int32, None);
        check(decimal(700, 5, 2), DataType::Int32, Some(ScalarValue::Int32(Some(7))));
        check(decimal(750, 5, 2), DataType::Int32, None);
        check(decimal(750, 5, 2), DataType::Decimal128(9, 1), Some(decimal(75, 9, 1)));
        check(decimal(755, 5, 2), DataType::Decimal128(9, 1), None);
        let nanoseconds = |ns| ScalarValue::TimestampNanosecond(Some(ns), None);
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let one = ScalarValue::TimestampSecond(Some(1), None);
        check(nanoseconds(1_000_000_000), seconds.clone(), Some(one));
        check(nanoseconds(1_000_000_001), seconds, None);
        check(
            nanoseconds(86_400_000_000_000),
            DataType::Date32,
            Some(ScalarValue::Date32(Some(1))),
        );
        check(nanoseconds(86_400_000_000_001), DataType::Date32, None);
        check(ScalarValue::Utf8(Some("07".into())), DataType::Int32, None);
        check(ScalarValue::Utf8(Some("x".into())), DataType::Int32, None);
    }
}
