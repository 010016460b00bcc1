use arrow::array::{Decimal64Array, Float64Array, Int8Array, Int32Array, Int64Array};

use super::*;

fn array(array: impl Array + 'static) -> Value {
    Value::Array(Arc::new(array))
}

fn one(array: impl Array + 'static) -> Value {
    Value::Scalar(Arc::new(array))
}

fn ints(values: &[Option<i64>]) -> Value {
    array(Int64Array::from(values.to_vec()))
}

fn code(result: Result<ArrayRef>) -> Option<&'static str> {
    result.err().and_then(|e| e.code_text())
}

/// The values of three rows, or the code of an error.
type Expected = std::result::Result<[Option<i64>; 3], &'static str>;

#[test]
fn integers_are_calculated_or_fail() {
    let check = |op: Op, left: Value, right: Value, expected: Expected| {
        let found = calculated(&op, &left, &right, 3);
        match expected {
            Ok(expected) => {
                let found = found.unwrap();
                let found = found.as_primitive::<Int64Type>();
                assert_eq!(found, &Int64Array::from(Vec::from(expected)), "{op}");
            }
            Err(expected) => assert_eq!(code(found), Some(expected), "{op}"),
        }
    };
    let some = || ints(&[Some(7), None, Some(-9)]);
    let least = || ints(&[Some(1), None, Some(i64::MIN)]);
    let of = |n: i64| one(Int64Array::from(vec![n]));
    check(Op::Add, some(), of(1), Ok([Some(8), None, Some(-8)]));
    check(Op::Add, of(i64::MAX), some(), Err("22003"));
    check(Op::Subtract, some(), some(), Ok([Some(0), None, Some(0)]));
    check(Op::Subtract, least(), of(1), Err("22003"));
    check(Op::Subtract, of(0), least(), Err("22003"));
    check(Op::Multiply, some(), of(-3), Ok([Some(-21), None, Some(27)]));
    check(Op::Multiply, least(), of(-1), Err("22003"));
    check(Op::Divide, some(), of(2), Ok([Some(3), None, Some(-4)]));
    check(Op::Divide, some(), of(0), Err("22012"));
    check(Op::Divide, least(), of(-1), Err("22003"));
    check(Op::Modulo, some(), of(4), Ok([Some(3), None, Some(-1)]));
    check(Op::Modulo, least(), of(-1), Ok([Some(0), None, Some(0)]));
    check(Op::Modulo, some(), of(0), Err("22012"));
    check(Op::Add, some(), one(Int64Array::new_null(1)), Ok([None; 3]));
    check(Op::Divide, of(1), ints(&[Some(1), None, Some(2)]), Ok([Some(1), None, Some(0)]));
}

#[test]
fn what_stands_under_a_null_fails_nothing() {
    let hidden = Int32Array::new(vec![i32::MAX, 5].into(), Some(vec![false, true].into()));
    let found = calculated(&Op::Add, &array(hidden), &one(Int32Array::from(vec![1])), 2).unwrap();
    assert_eq!(found.as_primitive::<Int32Type>(), &Int32Array::from(vec![None, Some(6)]));
    let hidden = Int32Array::new(vec![0, 2].into(), Some(vec![false, true].into()));
    let found = calculated(&Op::Divide, &one(Int32Array::from(vec![8])), &array(hidden), 2);
    let expected = Int32Array::from(vec![None, Some(4)]);
    assert_eq!(found.unwrap().as_primitive::<Int32Type>(), &expected);
    let hidden = Int8Array::new(vec![i8::MIN, 2].into(), Some(vec![false, true].into()));
    assert!(absolute(&(Arc::new(hidden) as ArrayRef)).is_ok());
    let nothing = array(Int32Array::from(Vec::<i32>::new()));
    let found = calculated(&Op::Modulo, &nothing, &one(Int32Array::from(vec![0])), 0).unwrap();
    assert_eq!(found.len(), 0);
}

#[test]
fn floats_neither_overflow_nor_vanish() {
    let check = |op: Op, a: f64, b: f64, expected: std::result::Result<f64, &str>| {
        let values = array(Float64Array::from(vec![Some(a), None]));
        let found = calculated(&op, &values, &one(Float64Array::from(vec![b])), 2);
        match expected {
            Ok(expected) => {
                let found = found.unwrap();
                let found = found.as_primitive::<Float64Type>();
                assert!(found.is_null(1));
                let same =
                    found.value(0) == expected || found.value(0).is_nan() && expected.is_nan();
                assert!(same, "{a} {op} {b}: {}", found.value(0));
            }
            Err(expected) => assert_eq!(code(found), Some(expected), "{a} {op} {b}"),
        }
    };
    check(Op::Add, f64::MAX, f64::MAX, Err("22003"));
    check(Op::Add, f64::INFINITY, 1.0, Ok(f64::INFINITY));
    check(Op::Subtract, f64::INFINITY, f64::INFINITY, Ok(f64::NAN));
    check(Op::Multiply, 1e300, 1e300, Err("22003"));
    check(Op::Multiply, 1e-300, 1e-300, Err("22003"));
    check(Op::Multiply, 0.0, 1e-300, Ok(0.0));
    check(Op::Divide, 1.0, f64::INFINITY, Ok(0.0));
    check(Op::Divide, 1e-300, 1e300, Err("22003"));
    check(Op::Divide, 1.0, -0.0, Err("22012"));
    check(Op::Divide, f64::NAN, 0.0, Ok(f64::NAN));
    check(Op::Modulo, 5.5, 2.0, Ok(1.5));
    check(Op::Modulo, 5.5, 0.0, Err("22012"));
}

#[test]
fn quotients_of_either_form_are_rounded_away_from_zero() {
    let narrow = |values: Vec<Option<i64>>, scale| {
        array(Decimal64Array::from(values).with_precision_and_scale(18, scale).unwrap())
    };
    let wide = |value: i128, scale| {
        one(Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).unwrap())
    };
    let found = quotient(&narrow(vec![Some(200), None, Some(-200)], 2), &wide(3, 0), 3, 20, 4);
    let found = found.unwrap();
    let found = found.as_primitive::<Decimal128Type>();
    assert_eq!((found.value(0), found.value(2)), (6_667, -6_667));
    assert!(found.is_null(1));
    let by_zero = quotient(&narrow(vec![Some(1)], 0), &wide(0, 0), 1, 20, 4);
    assert_eq!(code(by_zero), Some("22012"));
    let large = quotient(&wide(10_i128.pow(37), 0), &wide(1, 0), 1, 38, 16);
    assert_eq!(code(large), Some("22003"));
    assert_eq!(
        divided(10_i128.pow(37), 3 * 10_i128.pow(20), i256::from_i128(10).wrapping_pow(20)),
        Some(3_333_333_333_333_333_333_333_333_333_333_333_333)
    );
    assert_eq!(divided(1, 2, i256::ONE), Some(1));
    assert_eq!(divided(-1, 2, i256::ONE), Some(-1));
}

#[test]
fn signs_are_turned_and_taken_away() {
    let least = Decimal64Array::from(vec![i64::MIN, 5]).with_precision_and_scale(18, 2).unwrap();
    let least: ArrayRef = Arc::new(least);
    for found in [negated(&least).unwrap(), absolute(&least).unwrap()] {
        assert_eq!(found.as_primitive::<Decimal128Type>().value(0), 1 << 63);
    }
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.0), None, Some(-2.5)]));
    let found = negated(&floats).unwrap();
    let found = found.as_primitive::<Float64Type>();
    assert!(found.value(0).is_sign_negative() && found.is_null(1) && found.value(2) == 2.5);
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(-3), None, Some(i64::MIN)]));
    assert_eq!(code(absolute(&ints)), Some("22003"));
    let found = absolute(&ints.slice(0, 2)).unwrap();
    assert_eq!(found.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(3), None]));
}

#[test]
fn the_nearest_whole_number_is_even() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5, -2.5, 2.4]));
    let check = |op: Op, expected: [f64; 4]| {
        let found = whole(&op, &floats).unwrap();
        assert_eq!(found.as_primitive::<Float64Type>().values().as_ref(), expected);
    };
    check(Op::NearestWhole, [0.0, 2.0, -2.0, 2.0]);
    check(Op::Floor, [0.0, 1.0, -3.0, 2.0]);
    check(Op::Ceiling, [1.0, 2.0, -2.0, 3.0]);
}

#[test]
fn extremes_are_of_what_is_not_null() {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, None, Some(4)]));
    let b: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), Some(-1), None, Some(3)]));
    let check = |greatest, expected: Vec<Option<i64>>| {
        let found = extreme(&[Arc::clone(&a), Arc::clone(&b)], greatest).unwrap();
        assert_eq!(found.as_primitive::<Int64Type>(), &Int64Array::from(expected));
    };
    check(true, vec![Some(2), Some(-1), None, Some(4)]);
    check(false, vec![Some(1), Some(-1), None, Some(3)]);
}

#[test]
fn a_decimal_has_no_more_digits_than_the_largest() {
    let of = |value: i128| -> ArrayRef {
        let one = Decimal128Array::from(vec![Some(value), None]);
        Arc::new(one.with_precision_and_scale(38, 0).unwrap())
    };
    assert!(within_digits(of(10_i128.pow(38) - 1)).is_ok());
    assert_eq!(code(within_digits(of(-(10_i128.pow(38))))), Some("22003"));
}
