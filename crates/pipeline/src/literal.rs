//! Constants as arrays of one value.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray,
    IntervalMonthDayNanoArray, LargeBinaryArray, LargeStringArray, StringArray, StringViewArray,
    make_array, new_null_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType};
use thalweg_base::{Error, Result};
use thalweg_ir::Literal;
use thalweg_ir::literal::Value;

/// An array of that one value.
pub fn array(literal: &Literal) -> Result<ArrayRef> {
    let Literal { data_type, value } = literal;
    if !literal.is_valid() {
        return Err(Error::internal(format!("{literal} is no value of {data_type}")));
    }
    // The bytes of a value, lowest first, of which its type takes as many as it has.
    let words = |bytes: [u8; 16]| -> Result<ArrayRef> {
        let width = data_type.primitive_width().filter(|&width| width <= bytes.len());
        let Some(width) = width else {
            return Err(Error::internal(format!("a value of {data_type} has no fixed width")));
        };
        let buffer = Buffer::from(bytes[..width].to_vec());
        let data = ArrayData::builder(data_type.clone()).len(1).add_buffer(aligned(&buffer));
        Ok(make_array(data.build().map_err(crate::encoding::internal)?))
    };
    Ok(match value {
        Value::Null => new_null_array(data_type, 1),
        Value::Boolean(value) => Arc::new(BooleanArray::from(vec![*value])),
        Value::Signed(value) => words(i128::from(*value).to_le_bytes())?,
        Value::Unsigned(value) => words(u128::from(*value).to_le_bytes())?,
        Value::Float(bits) => words(u128::from(*bits).to_le_bytes())?,
        Value::Decimal(digits) => words(digits.to_le_bytes())?,
        Value::Text(text) => match data_type {
            DataType::Utf8 => Arc::new(StringArray::from(vec![text.as_str()])),
            DataType::LargeUtf8 => Arc::new(LargeStringArray::from(vec![text.as_str()])),
            _ => Arc::new(StringViewArray::from(vec![text.as_str()])),
        },
        Value::Bytes(bytes) => match data_type {
            DataType::Binary => Arc::new(BinaryArray::from(vec![bytes.as_slice()])),
            DataType::LargeBinary => Arc::new(LargeBinaryArray::from(vec![bytes.as_slice()])),
            _ => Arc::new(BinaryViewArray::from(vec![bytes.as_slice()])),
        },
        Value::Interval { months, days, nanoseconds } => {
            let value = IntervalMonthDayNano::new(*months, *days, *nanoseconds);
            Arc::new(IntervalMonthDayNanoArray::from(vec![value]))
        }
    })
}

/// The same bytes where words of 128 bits may lie.
fn aligned(bytes: &Buffer) -> Buffer {
    let mut word = [0u8; 16];
    word[..bytes.len()].copy_from_slice(bytes);
    Buffer::from_vec(vec![u128::from_le_bytes(word)]).slice_with_length(0, bytes.len())
}

/// The value of an array of one; `None`: plans have no literals of that type.
pub fn of(array: &dyn Array) -> Option<Literal> {
    let data_type = array.data_type().clone();
    if array.len() != 1 {
        return None;
    }
    if array.is_null(0) || data_type.is_null() {
        return Some(Literal::null(data_type));
    }
    let word = || -> Option<[u8; 16]> {
        let width = data_type.primitive_width().filter(|&width| width <= 16)?;
        let data = array.to_data();
        let bytes = data.buffers().first()?.get(data.offset() * width..)?.get(..width)?;
        // The highest bit of a number with a sign is all of those above it.
        let fill = if *bytes.last()? & 0x80 == 0 { 0 } else { 0xff };
        let mut word = [fill; 16];
        word[..width].copy_from_slice(bytes);
        Some(word)
    };
    let signed = || word().map(i128::from_le_bytes);
    let unsigned = || {
        let width = data_type.primitive_width()?;
        let word = u128::from_le_bytes(word()?) & (u128::MAX >> (128 - 8 * width));
        u64::try_from(word).ok()
    };
    use DataType::*;
    let value = match &data_type {
        Boolean => Value::Boolean(array.as_boolean().value(0)),
        Int8
        | Int16
        | Int32
        | Int64
        | Date32
        | Date64
        | Time32(_)
        | Time64(_)
        | Timestamp(..)
        | Duration(_)
        | Interval(arrow::datatypes::IntervalUnit::YearMonth) => {
            Value::Signed(i64::try_from(signed()?).ok()?)
        }
        UInt8 | UInt16 | UInt32 | UInt64 => Value::Unsigned(unsigned()?),
        Float16 | Float32 | Float64 => Value::Float(unsigned()?),
        Decimal32(..) | Decimal64(..) | Decimal128(..) => Value::Decimal(signed()?),
        Utf8 => Value::Text(array.as_string::<i32>().value(0).to_owned()),
        LargeUtf8 => Value::Text(array.as_string::<i64>().value(0).to_owned()),
        Utf8View => Value::Text(array.as_string_view().value(0).to_owned()),
        Binary => Value::Bytes(array.as_binary::<i32>().value(0).to_owned()),
        LargeBinary => Value::Bytes(array.as_binary::<i64>().value(0).to_owned()),
        BinaryView => Value::Bytes(array.as_binary_view().value(0).to_owned()),
        Interval(arrow::datatypes::IntervalUnit::MonthDayNano) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(0);
            let IntervalMonthDayNano { months, days, nanoseconds } = value;
            Value::Interval { months, days, nanoseconds }
        }
        _ => return None,
    };
    Some(Literal { data_type, value }).filter(Literal::is_valid)
}

#[cfg(test)]
mod tests {
    use arrow::array::*;
    use arrow::datatypes::{Float16Type, i256};

    use super::*;

    #[test]
    fn values_become_arrays_and_values_again() {
        let check = |values: ArrayRef| {
            for row in 0..values.len() {
                let one = values.slice(row, 1);
                let literal = of(&one).unwrap_or_else(|| panic!("{one:?} is no literal"));
                assert_eq!(&array(&literal).unwrap(), &one, "{literal}");
            }
        };
        check(Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])));
        check(Arc::new(Int8Array::from(vec![Some(-128), None, Some(127)])));
        check(Arc::new(Int16Array::from(vec![-1, 300])));
        check(Arc::new(Int32Array::from(vec![i32::MIN, 7])));
        check(Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX])));
        check(Arc::new(UInt8Array::from(vec![255, 0])));
        check(Arc::new(UInt64Array::from(vec![u64::MAX, 0])));
        let none = <Float16Type as arrow::datatypes::ArrowPrimitiveType>::Native::default();
        check(Arc::new(PrimitiveArray::<Float16Type>::from_value(none, 1)));
        check(Arc::new(Float32Array::from(vec![-0.0, 1.5, f32::INFINITY])));
        check(Arc::new(Float64Array::from(vec![-0.0, 0.1, f64::MIN])));
        check(Arc::new(Date32Array::from(vec![-1, 20_000])));
        check(Arc::new(TimestampMicrosecondArray::from(vec![-1, 1]).with_timezone("UTC")));
        check(Arc::new(Time64MicrosecondArray::from(vec![0, 86_400_000_000])));
        check(Arc::new(DurationSecondArray::from(vec![-5])));
        check(Arc::new(IntervalYearMonthArray::from(vec![-13])));
        check(Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(
            -1, 2, -3,
        )])));
        let decimals = Decimal128Array::from(vec![-(10i128.pow(38) - 1), 5]);
        check(Arc::new(decimals.with_precision_and_scale(38, 4).unwrap()));
        check(Arc::new(Decimal64Array::from(vec![-7]).with_precision_and_scale(18, 2).unwrap()));
        check(Arc::new(StringArray::from(vec!["", "a text of more than twelve bytes"])));
        check(Arc::new(StringViewArray::from(vec!["", "a text of more than twelve bytes"])));
        check(Arc::new(BinaryViewArray::from(vec![&b"\x00\xff"[..]])));
    }

    #[test]
    fn what_plans_have_no_literals_of_is_none() {
        let wide = Decimal256Array::from(vec![i256::ONE]);
        assert_eq!(of(&wide), None);
        assert_eq!(of(&Int64Array::from(vec![1, 2])), None);
        let list =
            ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>([Some(vec![
                Some(1),
            ])]);
        assert_eq!(of(&list), None);
        let none: ArrayRef = new_null_array(list.data_type(), 1);
        assert_eq!(array(&of(&none).unwrap()).unwrap().data_type(), list.data_type());
    }

    #[test]
    fn a_value_of_another_type_is_an_error() {
        let wrong = Literal { data_type: DataType::Int8, value: Value::Signed(128) };
        array(&wrong).unwrap_err();
        let wrong = Literal { data_type: DataType::Utf8, value: Value::Boolean(true) };
        array(&wrong).unwrap_err();
    }
}
