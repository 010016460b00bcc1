use arrow::array::{
    BooleanArray, Float32Array, Int8Array, Int64Array, TimestampMicrosecondArray, UInt8Array,
};
use arrow::compute::{CastOptions, cast_with_options};

use super::*;

/// What Arrow makes of it, or that it fails.
fn arrows(array: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    cast_with_options(array, to, &CastOptions { safe: false, ..CastOptions::default() }).ok()
}

/// Every cast of ours of values that come in their own type, one by one.
fn check(array: ArrayRef, to: &[DataType]) {
    let from = array.data_type().clone();
    for to in to {
        for row in 0..array.len() {
            let one = array.slice(row, 1);
            let found = cast(&one, &from, to).and_then(|found| expand(&found, to)).ok();
            assert_eq!(found, arrows(&one, to), "{one:?} as {to}");
        }
        let all = cast(&array.slice(0, 0), &from, to).unwrap();
        assert_eq!(expand(&all, to).unwrap().data_type(), to);
    }
}

fn integers() -> Vec<DataType> {
    use DataType::*;
    vec![Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64]
}

#[test]
fn integers_are_those_of_other_types_where_they_fit() {
    let mut to = integers();
    to.extend([DataType::Float32, DataType::Float64, DataType::Utf8View]);
    to.push(DataType::Decimal128(20, 0));
    to.push(DataType::Decimal128(38, 4));
    let values = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32_767, 32_768, 65_535, 65_536]
        .into_iter()
        .chain([i32::MAX.into(), i32::MIN.into(), u32::MAX.into(), 1 << 32, i64::MAX, i64::MIN])
        .chain([(1 << 53) + 1, -(1 << 53) - 1]);
    let values: Int64Array = values.map(Some).chain([None]).collect();
    let unsigned = UInt64Array::from(vec![Some(0), Some(u64::MAX), Some(1 << 63), None]);
    check(Arc::new(unsigned), &to);
    check(Arc::new(values), &to);
    to.push(DataType::Decimal128(5, 2));
    check(Arc::new(UInt8Array::from(vec![0, 255])), &to);
    check(Arc::new(Int8Array::from(vec![-128, 127])), &to);
}

#[test]
fn floats_lose_their_fractions() {
    let values = [0.0, -0.0, 0.9, -0.9, 127.9, 128.0, -128.9, -129.0, 255.9, 256.0, 1e10, -1e10]
        .into_iter()
        .chain([9.3e18, 1.9e19, -9.3e18, i64::MIN as f64, i64::MAX as f64, u64::MAX as f64])
        .chain([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, i32::MIN as f64 - 0.5]);
    let doubles: Float64Array = values.map(Some).chain([None]).collect();
    let reals: Float32Array = doubles.unary(|v| v as f32);
    check(Arc::new(doubles), &integers());
    let mut to = integers();
    to.push(DataType::Float64);
    check(Arc::new(reals), &to);
}

#[test]
fn decimals_are_cast_in_either_form() {
    let values = [0, 49, 50, -49, -50, 12_345, -12_355, 10_i128.pow(15), 10_i128.pow(18) - 1];
    let from = DataType::Decimal128(18, 2);
    let wide: Decimal128Array = values.into_iter().map(Some).chain([None]).collect();
    let wide: ArrayRef = Arc::new(wide.with_precision_and_scale(18, 2).unwrap());
    let narrow: Decimal64Array = values.into_iter().map(|v| Some(v as i64)).chain([None]).collect();
    let narrow: ArrayRef = Arc::new(narrow.with_precision_and_scale(18, 2).unwrap());
    for to in [
        DataType::Decimal128(17, 0),
        DataType::Decimal128(18, 1),
        DataType::Decimal128(19, 3),
        DataType::Decimal128(36, 20),
        DataType::Decimal128(18, 2),
        DataType::Float64,
    ] {
        let expected = arrows(&wide, &to).unwrap();
        for form in [&wide, &narrow] {
            let found = cast(form, &from, &to).unwrap();
            assert_eq!(&expand(&found, &to).unwrap(), &expected, "{to}");
        }
    }
    let whole: Decimal128Array = [0, 127, -129, 1 << 40, -(1 << 63), 1 << 63, i128::MAX / 4]
        .into_iter()
        .map(Some)
        .chain([None])
        .collect();
    let whole = whole.with_precision_and_scale(38, 0).unwrap();
    check(Arc::new(whole), &integers());
}

#[test]
fn days_and_times_are_one_another() {
    let dates = Date32Array::from(vec![Some(0), Some(-1), Some(19_000), None]);
    let timestamps = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond]
        .map(|unit| DataType::Timestamp(unit, None));
    check(Arc::new(dates.clone()), &timestamps);
    check(Arc::new(dates), &[DataType::Int32, DataType::Timestamp(TimeUnit::Nanosecond, None)]);
    let far: ArrayRef = Arc::new(Date32Array::from(vec![Some(i32::MAX)]));
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    assert!(cast(&far, &DataType::Date32, &micros).is_err());
    let times = TimestampMicrosecondArray::from(vec![
        Some(0),
        Some(-1),
        Some(86_400_000_000),
        Some(i64::MAX),
        Some(i64::MIN),
        Some(days_of(262_142, 12, 31) * 86_400_000_000),
        Some(days_of(262_143, 1, 1) * 86_400_000_000),
        Some(days_of(-262_143, 1, 1) * 86_400_000_000),
        Some(days_of(-262_143, 1, 1) * 86_400_000_000 - 1),
        None,
    ]);
    check(Arc::new(times), &[DataType::Date32]);
}

#[test]
fn truths_are_texts_and_numbers() {
    let truths = BooleanArray::from(vec![Some(true), Some(false), None]);
    check(Arc::new(truths), &[DataType::Utf8View, DataType::Int32, DataType::Int64]);
}

#[test]
fn numbers_near_each_other_are_written_once() {
    let check = |values: Vec<Option<i64>>, is_coded: bool| {
        let expected: Vec<_> = values.iter().map(|v| v.map(|v| v.to_string())).collect();
        let array: ArrayRef = Arc::new(Int64Array::from(values));
        let found = cast(&array, &DataType::Int64, &DataType::Utf8View).unwrap();
        assert_eq!(found.as_any_dictionary_opt().is_some(), is_coded);
        let found = expand(&found, &DataType::Utf8View).unwrap();
        let found = found.as_string_view().iter().map(|t| t.map(str::to_string));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    };
    let near = |first: i64| move |n: i64| Some(first + n % 9);
    for first in [-4, 100, i64::MAX - 8, i64::MIN] {
        check((0..40).map(near(first)).collect(), true);
        check((0..35).map(near(first)).collect(), false);
    }
    check((0..40).map(|n| (n % 3 > 0).then_some(n % 9)).collect(), true);
    check((0..40).map(|n| if n == 7 { Some(i64::MIN) } else { Some(i64::MAX) }).collect(), false);
    check(vec![None; 40], true);
    check(vec![], false);
}
