use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    BinaryViewArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array,
    StringViewArray, UInt8Array, UInt64Array,
};
use arrow::compute::interleave;
use arrow::row::{RowConverter, SortField};
use proptest::prelude::*;

use super::*;

type Key = (ArrayRef, SortOptions);

/// The places of rows in order, as packed keys have it; `None`: they are not packed.
fn places(keys: &[Key], parts: usize) -> Option<(Vec<usize>, usize)> {
    let rows = keys[0].0.len();
    let types: Vec<DataType> = keys.iter().map(|(key, _)| key.data_type().clone()).collect();
    let part = |n: usize| rows * n / parts..rows * (n + 1) / parts;
    let columns = |n: usize| -> Vec<ArrayRef> {
        keys.iter().map(|(key, _)| key.slice(part(n).start, part(n).len())).collect()
    };
    let mut spans = Spans::new(&types).unwrap();
    for n in 0..parts {
        let mut own = Spans::new(&types).unwrap();
        own.see(&columns(n));
        spans.join(&own);
    }
    let packing = Packing::new(&spans, keys.iter().map(|(_, options)| *options))?;
    fn sorted<const W: usize>(
        packing: &Packing,
        columns: &[(Vec<ArrayRef>, Range<usize>)],
    ) -> Vec<usize> {
        let mut entries: Vec<Entry<W>> = vec![];
        for (n, (columns, rows)) in columns.iter().enumerate() {
            add_entries(&mut entries, packing, n, columns, rows.len());
        }
        sort(&mut entries);
        for key in 0..packing.fields.len() {
            let parts: Vec<&dyn Array> =
                columns.iter().map(|(columns, _)| columns[key].as_ref()).collect();
            let places: Vec<(usize, usize)> =
                entries.iter().map(|e| (e.part as usize, e.row as usize)).collect();
            let expected = interleave(&parts, &places).unwrap();
            if let Some(found) = packing.unpack(key, &entries, expected.data_type()).unwrap() {
                assert_eq!(found.null_count(), expected.null_count());
                let field = SortField::new(found.data_type().clone());
                let converter = RowConverter::new(vec![field]).unwrap();
                let bytes = |column: ArrayRef| converter.convert_columns(&[column]).unwrap();
                let (found, expected) = (bytes(found), bytes(expected));
                assert!(found.iter().eq(expected.iter()), "key {key} comes back");
            }
        }
        let place = |entry: &Entry<W>| columns[entry.part as usize].1.start + entry.row as usize;
        entries.iter().map(place).collect()
    }
    let columns: Vec<_> = (0..parts).map(|n| (columns(n), part(n))).collect();
    let words = packing.words();
    let places = match words {
        1 => sorted::<1>(&packing, &columns),
        2 => sorted::<2>(&packing, &columns),
        _ => sorted::<WORDS_MAX>(&packing, &columns),
    };
    Some((places, words))
}

/// Rows are in the order of their normalised keys. Gives how many words keys come to.
fn check(keys: &[Key], parts: usize) -> usize {
    let (places, words) = places(keys, parts).expect("these are packed");
    let field =
        |(key, options): &Key| SortField::new_with_options(key.data_type().clone(), *options);
    let converter = RowConverter::new(keys.iter().map(field).collect()).unwrap();
    let columns: Vec<ArrayRef> = keys.iter().map(|(key, _)| Arc::clone(key)).collect();
    let rows = converter.convert_columns(&columns).unwrap();
    let mut expected: Vec<usize> = (0..rows.num_rows()).collect();
    expected.sort_by_key(|&row| rows.row(row));
    let bytes = |places: &[usize]| -> Vec<Vec<u8>> {
        places.iter().map(|&row| rows.row(row).data().to_vec()).collect()
    };
    assert_eq!(bytes(&places), bytes(&expected), "{keys:?}");
    let mut places = places;
    places.sort_unstable();
    assert!(places.into_iter().eq(0..rows.num_rows()), "each row is there once");
    words
}

fn ascending(key: impl Array + 'static) -> Key {
    (Arc::new(key), SortOptions { descending: false, nulls_first: false })
}

#[test]
fn keys_of_known_ranges_come_to_few_bits() {
    let texts = |n: i64| format!("region {}", n % 25);
    let keys = [
        ascending(StringViewArray::from_iter_values((0..10_000).map(texts))),
        ascending(Int64Array::from_iter_values((0..10_000).map(|n| -(n * 7919 % 10_000)))),
        ascending(Int64Array::from_iter_values(1_000_000_000_000..1_000_000_010_000)),
    ];
    // 2 bytes and a length below 3, and 14 bits twice.
    assert_eq!(check(&keys, 3), 1);
    let (lengths, options) = (keys.len(), keys.iter().map(|(_, options)| *options));
    let mut spans = Spans::new(keys.iter().map(|(key, _)| key.data_type())).unwrap();
    spans.see(&keys.each_ref().map(|(key, _)| Arc::clone(key)));
    let packing = Packing::new(&spans, options).unwrap();
    assert_eq!(packing.bits, 18 + 14 + 14);
    assert_eq!(packing.mask::<1>(1), [u64::MAX << 28]);
    assert_eq!(packing.mask::<2>(lengths), [u64::MAX, u64::MAX]);
    assert_eq!(packing.mask::<2>(2), [u64::MAX, u64::MAX << 14]);
    assert_eq!(packing.mask::<1>(0), [u64::MAX << 46]);
}

#[test]
fn extremes_are_packed() {
    let decimals = [-10i128.pow(38) + 1, 10i128.pow(38) - 1, 0, 5];
    let keys = [
        ascending(Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), None, Some(0)])),
        ascending(UInt64Array::from(vec![Some(u64::MAX), Some(0), Some(1 << 63), None])),
    ];
    assert_eq!(check(&keys, 1), 3, "65 bits each");
    assert_eq!(check(&keys[..1], 2), 2);
    let decimals = Decimal128Array::from_iter_values(decimals);
    assert_eq!(check(&[ascending(decimals.with_precision_and_scale(38, 0).unwrap())], 1), 2);
    check(&[ascending(Float64Array::from(vec![f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY]))], 2);
    assert_eq!(check(&[ascending(BooleanArray::from(vec![true; 9]))], 1), 1, "no bit at all");
    check(&[ascending(Int64Array::new_null(5))], 2);
}

#[test]
fn texts_are_packed_if_they_are_short_behind_what_they_begin_with() {
    let long = "what all of these texts begin with, ".repeat(3);
    let texts = |tails: &[&str]| {
        let texts = tails.iter().map(|tail| format!("{long}{tail}"));
        ascending(StringViewArray::from_iter_values(texts))
    };
    check(&[texts(&["a\0", "a", "", "a\0\0", "b", "fifteen bytes ."])], 2);
    assert!(places(&[texts(&["a", "sixteen bytes it"])], 1).is_none());
    check(&[texts(&["same", "same"])], 1);
    check(&[ascending(StringViewArray::from(vec!["", "\0", "\0\0", "twelve bytes", "x"]))], 1);
}

fn key(rows: usize) -> impl Strategy<Value = Key> {
    fn of<T: std::fmt::Debug + 'static, A: Array + From<Vec<Option<T>>> + 'static>(
        values: impl Strategy<Value = T> + 'static,
        rows: usize,
    ) -> BoxedStrategy<ArrayRef> {
        let weight = prop_oneof![Just(0.999), Just(0.7)];
        let values = values.boxed();
        let all = weight.prop_flat_map(move |weight| {
            prop::collection::vec(prop::option::weighted(weight, values.clone()), rows)
        });
        all.prop_map(|values| Arc::new(A::from(values)) as ArrayRef).boxed()
    }
    let special = prop_oneof![Just(f64::NAN), Just(-f64::NAN), Just(0.0), Just(-0.0), -9.0..9.0];
    let decimal = -10i128.pow(38) + 1..10i128.pow(38);
    let keys = prop_oneof![
        of::<_, Int64Array>(-5i64..5, rows),
        of::<_, Int64Array>(any::<i64>(), rows),
        of::<_, UInt64Array>(any::<u64>(), rows),
        of::<_, UInt8Array>(any::<u8>(), rows),
        of::<_, BooleanArray>(any::<bool>(), rows),
        of::<_, Float64Array>(prop_oneof![any::<f64>(), special.clone()], rows),
        of::<_, Float32Array>(special.prop_map(|v| v as f32), rows),
        of::<_, Decimal128Array>(prop_oneof![decimal, -9i128..9], rows),
        of::<_, StringViewArray>("(ab|a)?[a-c\0]{0,4}".prop_map(String::from), rows),
        of::<_, StringViewArray>("a prefix of many bytes[a-c\0]{0,9}", rows),
    ];
    let binary = "[a-c]{0,3}".prop_map(String::into_bytes);
    let binaries = prop::collection::vec(prop::option::weighted(0.9, binary), rows);
    let binaries = binaries.prop_map(|values| {
        let values = values.iter().map(Option::as_deref);
        Arc::new(values.collect::<BinaryViewArray>()) as ArrayRef
    });
    let options = (any::<bool>(), any::<bool>());
    (prop_oneof![10 => keys, 1 => binaries], options)
        .prop_map(|(key, (descending, nulls_first))| (key, SortOptions { descending, nulls_first }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn packed_keys_compare_as_normalised_ones_do(
        (keys, parts) in (1usize..80, 1usize..4).prop_flat_map(|(rows, parts)| {
            (prop::collection::vec(key(rows), 1..4), Just(parts))
        }),
    ) {
        if places(&keys, parts).is_some() {
            check(&keys, parts);
        }
    }

    #[test]
    fn many_entries_are_distributed(
        numbers in prop::collection::vec(any::<u64>(), 1100..5000),
        bits in 1u32..64,
        shift in 0u32..20,
    ) {
        let word = |number: &u64| (number & ((1 << bits) - 1)) << shift;
        let entry = |(row, number): (usize, &u64)| {
            Entry { words: [7, word(number)], part: 0, row: row as u32 }
        };
        let mut entries: Vec<Entry<2>> = numbers.iter().enumerate().map(entry).collect();
        let mut expected: Vec<u64> = numbers.iter().map(word).collect();
        expected.sort_unstable();
        sort(&mut entries);
        prop_assert_eq!(entries.iter().map(|entry| entry.words[1]).collect::<Vec<_>>(), expected);
        for entry in &entries {
            prop_assert_eq!(entry.words[1], word(&numbers[entry.row as usize]));
        }
    }
}
