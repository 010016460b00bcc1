use arrow::array::{Decimal64Array, StringViewArray, UInt8Array, UInt16Array, UInt32Array};
use arrow::array::{Decimal128Array, Int64Array};

use super::*;

const LONG: &str = "longer than what a view has room for";

fn views(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(values.iter().collect::<StringViewArray>())
}

/// The dictionary is as the module says, and is `expected` in plain.
fn check(dictionary: &ArrayRef, expected: &[Option<&str>]) {
    assert!(is_form_of(dictionary.data_type(), &DataType::Utf8View));
    let any = dictionary.as_any_dictionary();
    assert_eq!(any.values().null_count(), 0);
    assert!(any.normalized_keys().iter().all(|key| *key < any.values().len()));
    assert_eq!(any.keys().nulls().is_some(), expected.contains(&None));
    assert_eq!(&expand(dictionary, &DataType::Utf8View).unwrap(), &views(expected));
}

#[test]
fn keys_and_values_may_be_null() {
    let keys: ArrayRef = Arc::new(UInt8Array::from(vec![Some(0), None, Some(2), Some(1), Some(2)]));
    let plain = dictionary(&keys, views(&[Some(""), Some(LONG), Some("b")]), None).unwrap();
    check(&plain, &[Some(""), None, Some("b"), Some(LONG), Some("b")]);

    let gaps = dictionary(&keys, views(&[None, Some(LONG), Some("b")]), None).unwrap();
    check(&gaps, &[None, None, Some("b"), Some(LONG), Some("b")]);
    assert_eq!(gaps.as_any_dictionary().values().len(), 2);

    let masked = NullBuffer::from(vec![true, true, true, true, false]);
    let masked = dictionary(&keys, views(&[Some("a"), None, Some("c")]), Some(&masked)).unwrap();
    check(&masked, &[Some("a"), None, Some("c"), None, None]);
}

#[test]
fn keys_of_every_width() {
    let values = views(&[Some("a"), Some(LONG)]);
    let keys: [ArrayRef; 3] = [
        Arc::new(UInt8Array::from(vec![1, 0])),
        Arc::new(UInt16Array::from(vec![1, 0])),
        Arc::new(UInt32Array::from(vec![1, 0])),
    ];
    for keys in keys {
        check(&dictionary(&keys, values.clone(), None).unwrap(), &[Some(LONG), Some("a")]);
    }
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![1, 0]));
    assert!(dictionary(&wide, values, None).is_err());
}

#[test]
fn all_null() {
    // What lies under a NULL is anything.
    let keys = UInt16Array::new(vec![700, 0, 9].into(), Some(NullBuffer::new_null(3)));
    for values in [views(&[]), views(&[None]), views(&[Some("x")])] {
        let keys: ArrayRef = Arc::new(keys.clone());
        check(&dictionary(&keys, values, None).unwrap(), &[None, None, None]);
    }
    let none_left =
        dictionary(&(Arc::new(UInt8Array::from(vec![0, 0])) as _), views(&[None]), None);
    check(&none_left.unwrap(), &[None, None]);
    check(&repeated(views(&[None]), 2).unwrap(), &[None, None]);
}

#[test]
fn one_value() {
    check(&repeated(views(&[Some(LONG)]), 3).unwrap(), &[Some(LONG); 3]);
    check(&repeated(views(&[Some("")]), 1).unwrap(), &[Some("")]);
    check(&repeated(views(&[Some("")]), 0).unwrap(), &[]);
}

#[test]
fn a_key_without_a_value_is_an_error() {
    let keys: ArrayRef = Arc::new(UInt8Array::from(vec![Some(0), None, Some(2)]));
    assert!(dictionary(&keys, views(&[Some("a"), Some("b")]), None).is_err());
    assert!(dictionary(&keys, views(&[Some("a"), None]), None).is_err());
    assert!(dictionary(&keys, views(&[]), None).is_err());
    // Unless the row is NULL in any case.
    let nulls = NullBuffer::from(vec![true, true, false]);
    let masked = dictionary(&keys, views(&[Some("a"), Some("b")]), Some(&nulls)).unwrap();
    check(&masked, &[Some("a"), None, None]);
}

#[test]
fn a_dictionary_is_expanded_without_copying_strings() {
    let keys: ArrayRef = Arc::new(UInt8Array::from(vec![0, 0, 0]));
    let encoded = dictionary(&keys, views(&[Some(LONG)]), None).unwrap();
    let values = encoded.as_any_dictionary().values().as_string_view();
    let plain = expand(&encoded, &DataType::Utf8View).unwrap();
    let buffers = plain.as_string_view().data_buffers();
    assert_eq!(buffers[0].as_ptr(), values.data_buffers()[0].as_ptr());
    assert_eq!(buffers.len(), 1);
}

#[test]
fn decimals_are_widened_with_their_sign() {
    let values = vec![Some(0), None, Some(-1), Some(i64::MIN), Some(i64::MAX)];
    let narrow = Decimal64Array::from(values.clone()).with_data_type(narrow_decimal(2).unwrap());
    let wide: Decimal128Array = values.into_iter().map(|v| v.map(i128::from)).collect();
    for precision in [5, 18, 38] {
        let field_type = DataType::Decimal128(precision, 2);
        assert!(is_form_of(narrow.data_type(), &field_type));
        let plain = expand(&(Arc::new(narrow.clone()) as _), &field_type).unwrap();
        assert_eq!(plain.as_ref(), &wide.clone().with_data_type(field_type));
    }
    assert_eq!(narrow_decimal(19), None);
    assert_eq!(narrow_decimal(-3), Some(DataType::Decimal64(18, -3)));
}

#[test]
fn whole_numbers_are_narrowed_to_what_holds_them() {
    use arrow::array::{Date32Array, Int16Array, TimestampMicrosecondArray};
    let forms = |values: Vec<i64>| {
        let arrays: [ArrayRef; 4] = [
            Arc::new(Int16Array::from_iter_values(values.iter().map(|&v| v as i16))),
            Arc::new(Date32Array::from_iter_values(values.iter().map(|&v| v as i32))),
            Arc::new(Int64Array::from(values.clone())),
            Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC")),
        ];
        arrays.map(|array| {
            let narrow = narrowed(Arc::clone(&array));
            assert!(is_form_of(narrow.data_type(), array.data_type()));
            assert_eq!(&expand(&narrow, array.data_type()).unwrap(), &array);
            let slice = narrowed(array.slice(1, 1));
            assert_eq!(&expand(&slice, array.data_type()).unwrap(), &array.slice(1, 1));
            narrow.data_type().primitive_width().unwrap()
        })
    };
    assert_eq!(forms(vec![0, -1, 127, -128]), [1, 1, 1, 1]);
    assert_eq!(forms(vec![0, 128]), [2, 2, 2, 2]);
    assert_eq!(forms(vec![-129, 0]), [2, 2, 2, 2]);
    assert_eq!(forms(vec![i16::MAX.into(), i16::MIN.into()]), [2, 2, 2, 2]);
    assert_eq!(forms(vec![1 << 15, 0])[1..], [4, 4, 4]);
    assert_eq!(forms(vec![i32::MAX.into(), i32::MIN.into()])[1..], [4, 4, 4]);
    assert_eq!(forms(vec![1 << 31, 0])[2..], [8, 8]);
    assert_eq!(forms(vec![i64::MIN, i64::MAX])[2..], [8, 8]);
    // Wide only beyond the first part.
    let late = (0..10_000).map(|n| if n == 9_999 { 70_000 } else { n % 100 }).collect();
    assert_eq!(forms(late)[1..], [4, 4, 4]);

    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), None]));
    let narrow = narrowed(Arc::clone(&nulls));
    assert_eq!((narrow.data_type(), narrow.null_count()), (&DataType::Int8, 1));
    assert_eq!(&expand(&narrow, &DataType::Int64).unwrap(), &nulls);
    let cents = DataType::Decimal128(15, 2);
    let wide = expand(&narrow, &cents).unwrap();
    assert_eq!(wide.data_type(), &cents);
    assert_eq!(wide.as_primitive::<arrow::datatypes::Decimal128Type>().value(0), 5);
}

#[test]
fn what_is_plain_is_not_touched_and_what_is_something_else_refused() {
    let plain: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    assert!(Arc::ptr_eq(&plain, &expand(&plain, &DataType::Int64).unwrap()));
    let refused = |array: &ArrayRef, field_type| {
        assert!(!is_form_of(array.data_type(), &field_type));
        assert!(expand(array, &field_type).is_err());
    };
    refused(&plain, DataType::Int32);
    refused(&repeated(views(&[Some("a")]), 1).unwrap(), DataType::BinaryView);
    let narrow = Decimal64Array::from(vec![1]).with_data_type(narrow_decimal(2).unwrap());
    refused(&(Arc::new(narrow) as _), DataType::Decimal128(18, 3));
}

#[test]
fn what_lies_in_the_memory_of_a_read_is_copied_and_the_rest_is_not() {
    // As a column that is stored as it is: the validity before the values, in one piece.
    let read = Buffer::from_iter((0..64).map(|i: i64| if i == 0 { 0b1011 } else { i }));
    let nulls = BooleanBuffer::new(read.clone(), 1, 3);
    let numbers = Int64Array::new(read.slice(16).into(), None).slice(5, 3);
    let numbers: ArrayRef =
        Arc::new(Int64Array::new(numbers.values().clone(), Some(NullBuffer::new(nulls))));
    let keys = UInt8Array::from(vec![2, 0]);
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::clone(&numbers)));

    let inside = |buffer: &Buffer| read.as_slice().as_ptr_range().contains(&buffer.as_ptr());
    for array in [numbers, dictionary] {
        let own = without_memory_of(&read, Arc::clone(&array));
        assert_eq!(&own, &array);
        let data = own.to_data();
        let all = [&data].into_iter().chain(data.child_data());
        for data in all {
            assert!(!data.buffers().iter().any(inside));
            assert!(!data.nulls().is_some_and(|nulls| inside(nulls.buffer())));
        }
        assert!(Arc::ptr_eq(&without_memory_of(&read, Arc::clone(&own)), &own));
    }
}
