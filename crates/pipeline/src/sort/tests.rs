use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, StringViewArray};
use arrow::datatypes::Int64Type;
use proptest::prelude::*;

use arrow::compute::SortOptions;
use arrow::datatypes::DataType;

use super::*;

fn sorted(values: &[Vec<i64>], parts: usize, fetch: Option<usize>) -> Vec<i64> {
    let options = SortOptions { descending: true, nulls_first: false };
    let keys = vec![(DataType::Int64, options)];
    let (payload_types, together) = (vec![DataType::Int64], 0);
    let spec = Spec { keys, payload_types, fetch, together };
    let mut collected: Vec<_> = (0..parts).map(|_| Collected::new(&spec).unwrap()).collect();
    for (i, batch) in values.iter().enumerate() {
        let column: ArrayRef = Arc::new(Int64Array::from(batch.clone()));
        let part = &mut collected[i % parts];
        part.push(&[Arc::clone(&column)], &[column], batch.len()).unwrap();
    }
    let sorting = Sorting::new(spec, collected).unwrap();
    for phase in 0..sorting.phases() {
        (0..sorting.tasks(phase)).rev().for_each(|task| sorting.run(phase, task).unwrap());
    }
    let batches = sorting.finish().unwrap();
    let values = batches.iter().flat_map(|b| b.columns[0].as_primitive::<Int64Type>().values());
    values.copied().collect()
}

#[test]
fn texts_in_common_count_once_and_those_of_the_first_rows_alone() {
    let texts = StringViewArray::from_iter_values((0..20_000).map(|n| format!("{n:0100}")));
    let texts: ArrayRef = Arc::new(texts);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
    let bytes = |fetch| {
        let keys = vec![(DataType::Int64, SortOptions::default())];
        let payload_types = vec![DataType::Utf8View];
        let spec = Spec { keys, payload_types, fetch, together: 0 };
        let mut collected = Collected::new(&spec).unwrap();
        for n in (0..20_000).step_by(500) {
            let column = |of: &ArrayRef| of.slice(n, 500);
            collected.push(&[column(&numbers)], &[column(&texts)], 500).unwrap();
        }
        collected.memory_bytes()
    };
    let (all, first) = (bytes(None), bytes(Some(10)));
    assert!((2_000_000..4_000_000).contains(&all), "{all}");
    assert!(first < 1_000_000, "{first}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn as_a_plain_sort_does(
        batches in prop::collection::vec(prop::collection::vec(-5000i64..5000, 0..9000), 0..12),
        parts in 1usize..4,
        fetch in prop::option::of(0usize..30_000),
    ) {
        let mut expected: Vec<i64> = batches.iter().flatten().copied().collect();
        expected.sort_by(|a, b| b.cmp(a));
        expected.truncate(fetch.unwrap_or(usize::MAX));
        prop_assert_eq!(sorted(&batches, parts, fetch), expected);
    }
}

/// Texts that make keys too long to be packed from some row on, numbers with NULLs, and the row.
fn mixed(rows: usize, long_from: usize) -> Vec<ArrayRef> {
    let text = |row: usize| match row < long_from {
        true => format!("text {}", row * 31 % 7),
        false => format!("a text of its own, of many bytes, {}", row * 31 % 7),
    };
    let number = |row: usize| (!row.is_multiple_of(11)).then_some((row * 7919 % 1000) as i64 - 500);
    vec![
        Arc::new(StringViewArray::from_iter_values((0..rows).map(text))),
        Arc::new((0..rows).map(number).collect::<Int64Array>()),
        Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row as i64))),
    ]
}

/// Sorts the rows, of which each of three workers takes a third and gives the first away early.
fn check_mixed(long_from: usize, fetch: Option<usize>) {
    let rows = 40_000;
    let columns = mixed(rows, long_from);
    let options = |descending, nulls_first| SortOptions { descending, nulls_first };
    let keys = vec![
        (DataType::Utf8View, options(true, true)),
        (DataType::Int64, options(false, false)),
        (DataType::Int64, options(true, false)),
    ];
    let payload_types = keys.iter().map(|(data_type, _)| data_type.clone()).rev().collect();
    let spec = Spec { keys, payload_types, fetch, together: 1 };
    let converter = converter(&spec).unwrap();
    let bytes = converter.convert_columns(&columns).unwrap();
    let mut expected: Vec<usize> = (0..rows).collect();
    expected.sort_by_key(|&row| bytes.row(row));
    expected.truncate(fetch.unwrap_or(rows));
    let mut workers: Vec<_> = (0..3).map(|_| Collected::new(&spec).unwrap()).collect();
    let mut start = 0;
    for batch in (0..).map(|n| [500, 7000, 300][n % 3]) {
        let length = batch.min(rows - start);
        let slice: Vec<ArrayRef> = columns.iter().map(|c| c.slice(start, length)).collect();
        let payload: Vec<ArrayRef> = slice.iter().rev().cloned().collect();
        workers[3 * start / rows].push(&slice, &payload, length).unwrap();
        start += length;
        if start == rows {
            break;
        }
    }
    let sorting = Sorting::new(spec, workers).unwrap();
    (0..sorting.tasks(0)).for_each(|task| sorting.run(0, task).unwrap());
    let mut with_keys: Vec<Vec<u8>> = vec![];
    for range in 0..sorting.ranges() {
        let (groups, keys) = sorting.range_with_keys(range).unwrap();
        assert_eq!(groups.rows, keys.len());
        with_keys.extend(keys.iter().flatten().map(<[u8]>::to_vec));
    }
    with_keys.truncate(expected.len());
    let known: Vec<Vec<u8>> = expected.iter().map(|&row| bytes.row(row).data().to_vec()).collect();
    assert!(with_keys == known, "keys come with their rows");
    (0..sorting.tasks(1)).for_each(|task| sorting.run(1, task).unwrap());
    let batches = sorting.finish().unwrap();
    let places = batches.iter().flat_map(|b| b.columns[0].as_primitive::<Int64Type>().values());
    let places: Vec<usize> = places.map(|&place| place as usize).collect();
    assert!(places == expected, "from {long_from}, the first {fetch:?}");
}

#[test]
fn keys_that_cannot_be_packed_after_all_become_bytes() {
    for long_from in [0, 300, 12_000, 30_000, 39_990, 40_000] {
        for fetch in [None, Some(20), Some(17_000), Some(50_000)] {
            check_mixed(long_from, fetch);
        }
    }
}
