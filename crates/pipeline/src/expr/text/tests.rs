use arrow::array::Int64Array;
use arrow::datatypes::{DataType, Int32Type};

use super::*;

fn texts() -> StringViewArray {
    StringViewArray::from(vec![
        Some(""),
        Some("Aa"),
        None,
        Some("twelve bytes"),
        Some("a text that has no room in its view"),
        Some("äöü and a ß, which is longer in a text"),
        Some("Ǆ ẞ €"),
        Some("  blanks around, more than a view  "),
        Some("   "),
        Some("ἀὐτός \u{1fb3}"),
    ])
}

fn array() -> ArrayRef {
    Arc::new(texts())
}

fn strings(array: &ArrayRef) -> Vec<Option<String>> {
    array.to_data().validate_full().unwrap();
    array.as_string_view().iter().map(|t| t.map(str::to_string)).collect()
}

fn check(found: ArrayRef, expected: impl Fn(&str) -> String) {
    let expected: Vec<_> = texts().iter().map(|t| t.map(&expected)).collect();
    assert_eq!(strings(&found), expected);
}

#[test]
fn a_substring_is_a_part_of_the_characters() {
    for start in [i64::MIN + 1, -3, 0, 1, 2, 5, 20, 35, 36, 100, i64::MAX] {
        for count in [None, Some(0), Some(1), Some(3), Some(14), Some(40), Some(i64::MAX)] {
            let constant = |n: i64| Value::Scalar(Arc::new(Int64Array::from(vec![n])));
            let rest: Vec<Value> =
                [Some(start), count].into_iter().flatten().map(constant).collect();
            check(substring(&array(), &rest).unwrap(), |text| {
                let end = count.map_or(i64::MAX, |count| start.saturating_add(count));
                let within = |n: usize| (n as i64 + 1) >= start && (n as i64 + 1) < end;
                let characters = text.chars().enumerate();
                characters.filter(|(n, _)| within(*n)).map(|(_, c)| c).collect()
            });
        }
    }
}

#[test]
fn a_substring_may_be_another_one_in_each_row() {
    let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("abc"), Some("abc"), None]));
    let starts = Value::Array(Arc::new(Int64Array::from(vec![Some(2), None, Some(1)])));
    let found = substring(&texts, std::slice::from_ref(&starts)).unwrap();
    assert_eq!(strings(&found), [Some("bc".to_string()), None, None]);
    // A length under a NULL is none.
    let lengths = Value::Array(Arc::new(Int64Array::from(vec![1, -1, -1])));
    assert!(substring(&texts, &[starts, lengths]).is_ok());
    let negative = Value::Scalar(Arc::new(Int64Array::from(vec![-1])));
    let one = Value::Scalar(Arc::new(Int64Array::from(vec![1])));
    assert!(substring(&texts, &[one, negative]).is_err());
    let null = Value::Scalar(Arc::new(Int64Array::new_null(1)));
    assert_eq!(substring(&texts, &[null]).unwrap().null_count(), 3);
}

#[test]
fn blanks_are_trimmed() {
    check(trimmed(&array(), true, true).unwrap(), |text| text.trim_matches(' ').into());
    check(trimmed(&array(), true, false).unwrap(), |text| text.trim_start_matches(' ').into());
    check(trimmed(&array(), false, true).unwrap(), |text| text.trim_end_matches(' ').into());
}

#[test]
fn one_character_stays_one_in_another_case() {
    check(in_case(&array(), true).unwrap(), |text| text.chars().map(one_upper).collect());
    check(in_case(&array(), false).unwrap(), |text| text.chars().map(one_lower).collect());
    let slice = array().slice(3, 3);
    assert_eq!(strings(&in_case(&slice, true).unwrap())[0].as_deref(), Some("TWELVE BYTES"));
}

#[test]
fn lengths_are_those_of_characters_or_bytes() {
    let check = |found: ArrayRef, length: fn(&str) -> usize| {
        let expected = texts().iter().map(|t| t.map(|t| length(t) as i32)).collect::<Int32Array>();
        assert_eq!(found.as_primitive::<Int32Type>(), &expected);
    };
    check(characters(&array()).unwrap(), |text| text.chars().count());
    check(octets(&array()).unwrap(), str::len);
    let few: ArrayRef = Arc::new(StringViewArray::from(vec!["ä€b", "日本語", "😀x"]));
    let found = characters(&few).unwrap();
    assert_eq!(found.as_primitive::<Int32Type>().values().as_ref(), [3, 3, 2]);
}

#[test]
fn texts_are_put_one_after_the_other() {
    let one = |t: &str| Value::Scalar(Arc::new(StringViewArray::from(vec![t])));
    let all = [one("<"), Value::Array(array()), Value::Array(array()), one(">")];
    check(concatenated(&all, texts().len()).unwrap(), |text| format!("<{text}{text}>"));
    let null = Value::Scalar(arrow::array::new_null_array(&DataType::Utf8View, 1));
    let found = concatenated(&[Value::Array(array()), null], texts().len()).unwrap();
    assert_eq!(found.null_count(), texts().len());
}

#[test]
fn few_ways_of_putting_texts_together_are_put_together_once() {
    use arrow::array::DictionaryArray;
    let rows = 200;
    let coded = |values: &[&str], nulls: bool, step: usize| -> ArrayRef {
        let key =
            |n: usize| (!nulls || !n.is_multiple_of(7)).then_some((n * step % values.len()) as u32);
        let keys: UInt32Array = (0..rows).map(key).collect();
        let values: ArrayRef = Arc::new(StringViewArray::from(values.to_vec()));
        Arc::new(DictionaryArray::new(keys, values))
    };
    let plain = |value: &Value| match value {
        Value::Array(array) => {
            Value::Array(crate::encoding::expand(array, &DataType::Utf8View).unwrap())
        }
        one => one.clone(),
    };
    let one = |text: &str| Value::Scalar(Arc::new(StringViewArray::from(vec![text])) as ArrayRef);
    let check = |values: &[Value], is_coded: bool| {
        let found = concatenated_codes(values, rows).unwrap();
        assert_eq!(found.is_some(), is_coded);
        let values: Vec<Value> = values.iter().map(plain).collect();
        let expected = strings(&concatenated(&values, rows).unwrap());
        if let Some(found) = found {
            let found = crate::encoding::expand(&found, &DataType::Utf8View).unwrap();
            assert_eq!(strings(&found), expected);
        }
    };
    let names = ["a", "", "a name that has no room in its view", "b"];
    let few = || Value::Array(coded(&names, false, 3));
    let nulls = || Value::Array(coded(&["x", "yy", "z"], true, 5));
    check(&[few(), one("/"), nulls()], true);
    check(&[nulls(), few(), one("")], true);
    check(&[one("<"), few()], true);
    check(&[few(), nulls(), few()], true);
    // There are as many ways as that, or a side that is not coded.
    check(&[few(), nulls(), few(), few()], false);
    check(&[few(), plain(&nulls())], false);
    check(&[one("a"), one("b")], false);
    // All are NULL, and there is no value.
    let keys = UInt32Array::new_null(rows);
    let none: ArrayRef = Arc::new(StringViewArray::new_null(0));
    check(&[few(), Value::Array(Arc::new(DictionaryArray::new(keys, none)))], false);
}
