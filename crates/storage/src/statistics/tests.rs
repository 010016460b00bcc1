use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Decimal128Array, Float64Array,
    Int32Array, ListArray, StringViewArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Float64Type, Int32Type};

use super::*;

fn of(array: impl Array + 'static) -> (ColumnStatistics, Measured) {
    let array: ArrayRef = Arc::new(array);
    let mut builder = StatisticsBuilder::new(array.data_type());
    builder.push(measure(&array), 7);
    let (chunks, sketch, _) = builder.finish().unwrap();
    (chunks.summary(Some(sketch.estimate())), measure(&array))
}

fn text(bound: &Option<ArrayRef>) -> String {
    bound.as_ref().unwrap().as_string_view().value(0).to_owned()
}

#[test]
fn integers_have_exact_bounds_and_counts() {
    let (s, _) = of(Int32Array::from(vec![Some(3), None, Some(-5), Some(3)]));
    assert_eq!(
        (s.rows, s.nulls, s.distinct, s.value_bytes, s.stored_bytes),
        (4, 1, Some(2), 16, 7)
    );
    assert_eq!(s.min.unwrap().as_primitive::<Int32Type>().value(0), -5);
    assert_eq!(s.max.unwrap().as_primitive::<Int32Type>().value(0), 3);
    assert!(s.min_exact && s.max_exact);
}

#[test]
fn bounds_keep_the_parameters_of_their_type() {
    let decimals =
        Decimal128Array::from(vec![1, i128::MAX / 2, -7]).with_precision_and_scale(38, 4).unwrap();
    assert_eq!(of(decimals.clone()).0.max.unwrap().data_type(), decimals.data_type());
    let times = TimestampMicrosecondArray::from(vec![1, 2]).with_timezone("Europe/Paris");
    assert_eq!(of(times.clone()).0.min.unwrap().data_type(), times.data_type());
}

#[test]
fn a_column_of_nulls_has_no_bounds() {
    for array in [
        Arc::new(Int32Array::from(vec![None, None])) as ArrayRef,
        Arc::new(StringViewArray::from(vec![None::<&str>])),
        Arc::new(Float64Array::from(vec![None])),
    ] {
        let measured = measure(&array);
        assert_eq!(measured.nulls, measured.rows);
        assert!(measured.bounds.min.is_null(0) && !measured.bounds.min_exact);
    }
}

#[test]
fn booleans() {
    let (s, _) = of(BooleanArray::from(vec![Some(true), None, Some(true)]));
    assert!(s.min.unwrap().as_boolean().value(0));
    assert_eq!(s.distinct, Some(1));
}

#[test]
fn a_nan_leaves_a_chunk_without_bounds() {
    let (s, _) = of(Float64Array::from(vec![1.0, f64::NAN, 2.0]));
    assert!(s.min.is_none() && s.max.is_none());
    let (s, _) = of(Float64Array::from(vec![1.0, f64::INFINITY, -2.0]));
    assert_eq!(s.min.unwrap().as_primitive::<Float64Type>().value(0), -2.0);
    assert!(s.min_exact && s.max_exact);
}

#[test]
fn zeros_are_widened_and_never_an_answer() {
    for zeros in [vec![0.0, -0.0], vec![0.0], vec![-0.0]] {
        let (s, _) = of(Float64Array::from(zeros));
        let bits =
            |b: Option<ArrayRef>| b.unwrap().as_primitive::<Float64Type>().value(0).to_bits();
        assert_eq!((bits(s.min), bits(s.max)), ((-0.0f64).to_bits(), 0.0f64.to_bits()));
        assert!(!s.min_exact && !s.max_exact);
        assert_eq!(s.distinct, Some(1));
    }
}

#[test]
fn short_strings_are_exact_and_long_ones_are_bounds() {
    let (s, _) = of(StringViewArray::from(vec!["pear", "apple", "zebra"]));
    assert_eq!((text(&s.min), text(&s.max)), ("apple".into(), "zebra".into()));
    assert!(s.min_exact && s.max_exact);

    let long = "m".repeat(200);
    let (s, _) = of(StringViewArray::from(vec![long.as_str()]));
    assert_eq!(text(&s.min), "m".repeat(64));
    assert_eq!(text(&s.max), "m".repeat(63) + "n");
    assert!(!s.min_exact && !s.max_exact);
    assert!(text(&s.min) <= long && long <= text(&s.max));

    let exactly = "x".repeat(BOUND_BYTES_MAX);
    let (s, _) = of(StringViewArray::from(vec![exactly.as_str()]));
    assert!(s.max_exact && text(&s.max) == exactly);
}

#[test]
fn cut_bounds_stay_text_and_stay_bounds() {
    let tails = ["é", "\u{d7ff}", "\u{ffff}", "\u{10ffff}", "\u{7f}", "\u{7ff}", "日"];
    for tail in tails {
        for before in 58..66 {
            let value = "a".repeat(before) + &tail.repeat(40);
            let (s, _) = of(StringViewArray::from(vec![value.as_str()]));
            let (min, max) = (text(&s.min), text(&s.max));
            assert!(min <= value && value < max, "{min:?} {value:?} {max:?}");
            assert!(min.len() <= BOUND_BYTES_MAX && max.len() <= BOUND_BYTES_MAX);
        }
    }
    let highest = "\u{10ffff}".repeat(30);
    let (s, _) = of(StringViewArray::from(vec![highest.as_str()]));
    assert!(s.max.is_none() && s.min.is_some(), "nothing lies above it");
}

#[test]
fn binaries_are_ordered_by_bytes() {
    let high = vec![0xff; 100];
    let mixed = [vec![1; 63], vec![0xff; 40]].concat();
    let (s, _) = of(BinaryViewArray::from_iter_values([&[0u8, 1][..], &mixed]));
    assert_eq!(s.min.unwrap().as_binary_view().value(0), &[0, 1]);
    assert_eq!(s.max.unwrap().as_binary_view().value(0), [vec![1; 62], vec![2]].concat());
    let (s, _) = of(BinaryViewArray::from_iter_values([&high]));
    assert!(s.max.is_none());
}

#[test]
fn equal_prefixes_are_compared_to_the_end() {
    let (s, _) = of(StringViewArray::from(vec!["abcd", "abc", "abcdz", "abcda", "ab\u{0}", "ab"]));
    assert_eq!((text(&s.min), text(&s.max)), ("ab".into(), "abcdz".into()));
}

#[test]
fn one_unknown_bound_makes_the_tables_unknown() {
    let part = |v: Vec<Option<f64>>| {
        let array: ArrayRef = Arc::new(Float64Array::from(v));
        let mut builder = StatisticsBuilder::new(array.data_type());
        builder.push(measure(&array), 0);
        builder.finish().unwrap().0
    };
    let (known, nulls, nan) = (part(vec![Some(5.0)]), part(vec![None]), part(vec![Some(f64::NAN)]));
    let both =
        ChunkStatistics::concat(&[&known, &nulls], &DataType::Float64).unwrap().summary(None);
    assert!(both.min.is_some() && both.min_exact, "a chunk of nulls has nothing to say");
    let both = ChunkStatistics::concat(&[&known, &nan], &DataType::Float64).unwrap().summary(None);
    assert!(both.min.is_none() && both.max.is_none() && !both.min_exact);
}

#[test]
fn an_exact_bound_wins_over_an_equal_cut_one() {
    let part = |v: &str| {
        let array: ArrayRef = Arc::new(StringViewArray::from(vec![v]));
        let mut builder = StatisticsBuilder::new(array.data_type());
        builder.push(measure(&array), 0);
        builder.finish().unwrap().0
    };
    let (cut, exact) = (part(&"a".repeat(100)), part(&"a".repeat(64)));
    for parts in [[&cut, &exact], [&exact, &cut]] {
        let summary = ChunkStatistics::concat(&parts, &DataType::Utf8View).unwrap().summary(None);
        assert!(summary.min_exact, "the 64-byte value is a value");
        assert!(!summary.max_exact);
    }
}

#[test]
fn nested_columns_have_no_bounds() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None]);
    let (s, _) = of(lists);
    assert!(s.min.is_none() && s.max.is_none());
    assert_eq!(s.nulls, 1);
}

#[test]
fn distinct_counts_do_not_depend_on_the_range() {
    let narrow = measure(
        &(Arc::new(Int32Array::from_iter_values((0..4000).map(|i| i % 200 - 100))) as ArrayRef),
    );
    let mut wide: Vec<i32> = (-100..100).collect();
    wide.push(i32::MAX);
    let mut wide = measure(&(Arc::new(Int32Array::from(wide)) as ArrayRef)).sketch;
    assert_eq!((narrow.sketch.estimate(), wide.estimate()), (200, 201));
    wide.merge(&narrow.sketch);
    assert_eq!(wide.estimate(), 201, "both ways hash alike");

    let decimals =
        |values: Vec<i128>| measure(&(Arc::new(Decimal128Array::from(values)) as ArrayRef)).sketch;
    let mut narrow = decimals((0..4000).map(|i| i % 200 - 100).collect());
    narrow.merge(&decimals((-100..100).chain([i128::MAX / 4, i128::MIN / 4]).collect()));
    assert_eq!(narrow.estimate(), 202);
}
