use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    BinaryViewArray, BooleanArray, Date32Array, Decimal64Array, Decimal128Array, DictionaryArray,
    FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array, ListArray, StringArray,
    StringViewArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::{Int32Type, UInt8Type, UInt16Type, UInt32Type};
use proptest::prelude::*;
use thalweg_base::Prng;

use super::collect::Piece;
use super::*;
use crate::phases::{Phases, Turns, at_once, no_pause};

/// What a column of a test is made of.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Small,
    Sparse,
    Unsigned,
    Bool,
    Date,
    Float,
    Decimal,
    /// Decimals of which some are beyond 64 bits.
    Huge,
    View,
    Text,
    Binary,
    Fixed,
    List,
}

const KINDS: [Kind; 13] = [
    Kind::Small,
    Kind::Sparse,
    Kind::Unsigned,
    Kind::Bool,
    Kind::Date,
    Kind::Float,
    Kind::Decimal,
    Kind::Huge,
    Kind::View,
    Kind::Text,
    Kind::Binary,
    Kind::Fixed,
    Kind::List,
];

/// A value of any kind: numbers themselves, of others the number they are made from.
type Value = Option<i128>;

impl Kind {
    fn logical(self) -> DataType {
        match self {
            Kind::Small => DataType::Int32,
            Kind::Sparse => DataType::Int64,
            Kind::Unsigned => DataType::UInt64,
            Kind::Bool => DataType::Boolean,
            Kind::Date => DataType::Date32,
            Kind::Float => DataType::Float64,
            Kind::Decimal | Kind::Huge => DataType::Decimal128(30, 2),
            Kind::View => DataType::Utf8View,
            Kind::Text => DataType::Utf8,
            Kind::Binary => DataType::BinaryView,
            Kind::Fixed => DataType::FixedSizeBinary(3),
            Kind::List => DataType::new_list(DataType::Int32, true),
        }
    }

    fn value(self, random: &mut Prng, distinct: u64, nulls: bool) -> Value {
        if nulls && random.below(6) == 0 {
            return None;
        }
        let n = random.below(distinct) as i128;
        Some(match self {
            Kind::Small | Kind::Date => n - 3,
            Kind::Sparse => i128::from((n as i64).wrapping_mul(0x1234_5678_9abc_def1)),
            Kind::Unsigned => n + i128::from(i64::MAX),
            Kind::Bool => n % 2,
            Kind::Huge => (n - 1) * (1 << 62),
            _ => n,
        })
    }

    /// An array, in one of the forms in which it may come.
    fn array(self, values: &[Value], random: &mut Prng) -> ArrayRef {
        fn all<T>(values: &[Value], of: impl Fn(i128) -> T) -> Vec<Option<T>> {
            values.iter().map(|v| v.map(&of)).collect()
        }
        let text = |n: i128| match n {
            7 => String::new(),
            _ => format!("{n}{}", "x".repeat(n as usize % 50)),
        };
        let dictionary = random.below(2) == 0;
        let plain: ArrayRef = match self {
            Kind::Small => Arc::new(Int32Array::from(all(values, |n| n as i32))),
            Kind::Sparse => Arc::new(Int64Array::from(all(values, |n| n as i64))),
            Kind::Unsigned => Arc::new(UInt64Array::from(all(values, |n| n as u64))),
            Kind::Bool => Arc::new(BooleanArray::from(all(values, |n| n == 1))),
            Kind::Date => Arc::new(Date32Array::from(all(values, |n| n as i32))),
            Kind::Float => {
                // 0 comes with either sign.
                let zero = if random.below(2) == 0 { 0.0 } else { -0.0 };
                let float = |n| match n {
                    0 => zero,
                    1 => f64::NAN,
                    _ => n as f64 / 3.0,
                };
                Arc::new(Float64Array::from(all(values, float)))
            }
            Kind::Decimal | Kind::Huge => {
                let fits = values.iter().flatten().all(|&v| i64::try_from(v).is_ok());
                if fits && dictionary {
                    let narrow = Decimal64Array::from(all(values, |n| n as i64));
                    Arc::new(narrow.with_precision_and_scale(18, 2).unwrap())
                } else {
                    let wide = Decimal128Array::from(all(values, |n| n));
                    Arc::new(wide.with_precision_and_scale(30, 2).unwrap())
                }
            }
            Kind::View => Arc::new(StringViewArray::from(all(values, text))),
            Kind::Text => Arc::new(StringArray::from(all(values, text))),
            Kind::Binary => {
                let owned = all(values, |n| text(n).into_bytes());
                Arc::new(BinaryViewArray::from_iter(owned.iter().map(Option::as_deref)))
            }
            Kind::Fixed => {
                let owned = all(values, |n| [n as u8, 0, 1]);
                let values = owned.into_iter();
                Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 3).unwrap())
            }
            Kind::List => {
                let lists = all(values, |n| vec![Some(n as i32), None]);
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
            }
        };
        let text = matches!(self, Kind::View | Kind::Text | Kind::Binary | Kind::Fixed);
        if text && dictionary { as_dictionary(&plain, random) } else { plain }
    }

    /// Back from an array of any form.
    fn values(self, array: &ArrayRef) -> Vec<Value> {
        let plain = encoding::expand(array, &self.logical()).unwrap();
        let mut known = HashMap::new();
        if matches!(self, Kind::View | Kind::Text | Kind::Binary | Kind::Fixed) {
            let all = (0..200).map(Some).collect::<Vec<_>>();
            let all = self.array(&all, &mut Prng::new(0));
            known.extend((0..200).map(|n| (bytes_of(&all, n as usize).unwrap(), n)));
        }
        (0..plain.len())
            .map(|i| {
                if plain.is_null(i) {
                    return None;
                }
                Some(match self {
                    Kind::Small | Kind::Date | Kind::Sparse | Kind::Bool => {
                        match encoding::words(plain.as_ref()) {
                            Some(words) => i128::from(words[i]),
                            None => unreachable!(),
                        }
                    }
                    Kind::Unsigned => {
                        plain.as_primitive::<arrow::datatypes::UInt64Type>().value(i).into()
                    }
                    Kind::Decimal | Kind::Huge => {
                        plain.as_primitive::<arrow::datatypes::Decimal128Type>().value(i)
                    }
                    Kind::Float => {
                        let value = plain.as_primitive::<arrow::datatypes::Float64Type>().value(i);
                        if value.is_nan() { 1 } else { (value * 3.0).round() as i128 }
                    }
                    Kind::List => {
                        plain.as_list::<i32>().value(i).as_primitive::<Int32Type>().value(0).into()
                    }
                    _ => known[&bytes_of(&plain, i).unwrap()],
                })
            })
            .collect()
    }
}

fn bytes_of(array: &ArrayRef, i: usize) -> Option<Vec<u8>> {
    bytes::slice_of(array.as_ref()).map(|of| of(i).to_vec())
}

/// The array as a dictionary with repeated values and values that nobody uses.
fn as_dictionary(plain: &ArrayRef, random: &mut Prng) -> ArrayRef {
    let valid = (0..plain.len()).filter(|&i| plain.is_valid(i)).collect::<Vec<_>>();
    if valid.len() > 100 {
        return Arc::clone(plain);
    }
    let indices = UInt32Array::from_iter_values(valid.iter().map(|&i| i as u32));
    let values = arrow::compute::take(plain, &indices, None).unwrap();
    let code = |i: usize| {
        let at = plain.is_valid(i).then(|| valid.partition_point(|&v| v < i))?;
        // Sometimes another one with the same value.
        let same = |j: usize| bytes_of(plain, valid[j]) == bytes_of(plain, i);
        Some((0..at).find(|&j| same(j)).filter(|_| i.is_multiple_of(2)).unwrap_or(at))
    };
    let codes = (0..plain.len()).map(code);
    match random.below(3) {
        0 => {
            let codes = codes.map(|c| c.map(|c| c as u8)).collect::<UInt8Array>();
            Arc::new(DictionaryArray::<UInt8Type>::new(codes, values))
        }
        1 => {
            let codes = codes.map(|c| c.map(|c| c as u16)).collect::<UInt16Array>();
            Arc::new(DictionaryArray::<UInt16Type>::new(codes, values))
        }
        _ => {
            let codes = codes.map(|c| c.map(|c| c as u32)).collect::<UInt32Array>();
            Arc::new(DictionaryArray::<UInt32Type>::new(codes, values))
        }
    }
}

/// All tasks, on one thread or several, in a random order.
fn build(spec: Spec, parts: Vec<Collected>, random: &mut Prng, threads: usize) -> Table {
    build_within(&LIMITS, spec, parts, random, threads)
}

fn build_within(
    limits: &Limits,
    spec: Spec,
    parts: Vec<Collected>,
    random: &mut Prng,
    threads: usize,
) -> Table {
    let building = Building::with_limits(spec, parts, limits).unwrap();
    building.memory_bytes_needed();
    if random.below(2) == 0 {
        let turns = Turns::new(building, threads);
        let run = |phase, worker| at_once(turns.run(phase, worker, &no_pause)).unwrap().unwrap();
        for phase in 0..turns.phases() {
            std::thread::scope(|scope| {
                for worker in 1..threads {
                    let run = &run;
                    scope.spawn(move || while run(phase, worker) {});
                }
                while run(phase, 0) {}
            });
        }
        return turns.into_work().finish().unwrap();
    }
    for phase in 0..building.phases() {
        let mut tasks = (0..building.tasks(phase)).collect::<Vec<_>>();
        random.shuffle(&mut tasks);
        let turn = AtomicUsize::new(0);
        let work = || {
            while let Some(&task) = tasks.get(turn.fetch_add(1, Ordering::Relaxed)) {
                building.run(phase, task).unwrap();
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        if building.tasks(phase) > 0 {
            building.run(phase, 0).unwrap_err();
        }
    }
    building.finish().unwrap()
}

/// All rows with equal keys of a probe row.
fn matches(table: &Table, first: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut row = first;
    while row != NONE {
        assert!(found.insert(row), "row {row} is chained twice");
        assert!((row as usize) < table.rows());
        row = table.next_equal(row);
    }
    found
}

#[derive(Clone, Debug)]
struct Case {
    kinds: Vec<Kind>,
    nulls_equal: bool,
    keep_null_keys: bool,
    build_nulls: bool,
    probe_nulls: bool,
    distinct: u64,
    rows: usize,
    parts: usize,
    layouts: Layouts,
    seed: u64,
}

/// What a table of few rows is made to be.
#[derive(Clone, Copy, Debug)]
enum Layouts {
    Usual,
    Hashed,
    Bitmap,
    /// A bit for some keys in a row.
    Coarse,
    Bloom,
    /// By index, with a bitmap in front.
    Sparse,
}

const LAYOUTS: [Layouts; 6] = [
    Layouts::Usual,
    Layouts::Hashed,
    Layouts::Bitmap,
    Layouts::Coarse,
    Layouts::Bloom,
    Layouts::Sparse,
];

impl Layouts {
    fn limits(self) -> Limits {
        let hashed = Limits {
            small_dense_places: 0,
            dense_places: 0,
            large_dense_places_per_row: 0,
            bitmap_bits_per_row: 0,
            small_bitmap_bits: 0,
            coarse_bitmap_bits: 0,
            coarse_bitmap_bits_per_row: 0,
            ..LIMITS
        };
        match self {
            Layouts::Usual => LIMITS,
            Layouts::Hashed => hashed,
            Layouts::Bitmap => Limits {
                small_bitmap_bits: 1 << 16,
                small_bitmap_bits_per_row: u64::from(u32::MAX),
                ..hashed
            },
            Layouts::Coarse => Limits { coarse_bitmap_bits: 20, ..hashed },
            Layouts::Bloom => Limits { bloom_table_bytes: 0, ..hashed },
            Layouts::Sparse => {
                Limits { dense_filter_places: 0, dense_filter_places_per_row: 1, ..LIMITS }
            }
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let kinds = prop::collection::vec((0..KINDS.len()).prop_map(|i| KINDS[i]), 0..4);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let layouts = (0..LAYOUTS.len()).prop_map(|i| LAYOUTS[i]);
    (kinds, flags, 1..60u64, 0..150usize, 1..4usize, layouts, any::<u64>()).prop_map(
        |(kinds, (nulls_equal, keep, build, probe), distinct, rows, parts, layouts, seed)| Case {
            kinds,
            nulls_equal,
            keep_null_keys: keep,
            build_nulls: build,
            probe_nulls: probe,
            distinct,
            rows,
            parts,
            layouts,
            seed,
        },
    )
}

type Row = Vec<Value>;

fn rows_of(kinds: &[Kind], rows: usize, distinct: u64, nulls: bool, random: &mut Prng) -> Vec<Row> {
    let row = |_| kinds.iter().map(|k| k.value(random, distinct, nulls)).collect();
    (0..rows).map(row).collect()
}

fn arrays_of(kinds: &[Kind], rows: &[Row], random: &mut Prng) -> Vec<ArrayRef> {
    let column = |(i, kind): (usize, &Kind)| {
        kind.array(&rows.iter().map(|row| row[i]).collect::<Vec<_>>(), random)
    };
    kinds.iter().enumerate().map(column).collect()
}

fn check(case: &Case) {
    let Case { kinds, nulls_equal, keep_null_keys, distinct, .. } = case.clone();
    let mut random = Prng::new(case.seed);
    let payload_kinds = KINDS.map(|k| if let Kind::Huge = k { Kind::Decimal } else { k });
    let types = |kinds: &[Kind]| kinds.iter().map(|k| k.logical()).collect::<Vec<_>>();
    let spec = Spec {
        key_types: types(&kinds),
        payload_types: types(&payload_kinds),
        nulls_equal,
        keep_null_keys,
    };
    let mut parts = (0..case.parts).map(|_| Collected::new(&spec)).collect::<Vec<_>>();
    // Of each part what it should hold, in order.
    let mut held = vec![Vec::new(); case.parts];
    let mut null_key = false;
    let mut left = case.rows;
    while left > 0 {
        let part = random.below(case.parts as u64) as usize;
        let rows = (1 + random.below(left as u64)) as usize;
        left -= rows;
        let nulls = case.build_nulls && random.below(2) == 0;
        let keys = rows_of(&kinds, rows, distinct, nulls, &mut random);
        let payload = rows_of(&payload_kinds, rows, 150, nulls, &mut random);
        let key_arrays = arrays_of(&kinds, &keys, &mut random);
        let payload_arrays = arrays_of(&payload_kinds, &payload, &mut random);
        parts[part].push(&key_arrays, &payload_arrays, rows).unwrap();
        for (keys, payload) in keys.into_iter().zip(payload) {
            let null = keys.contains(&None);
            null_key |= null;
            if !null || nulls_equal || keep_null_keys {
                held[part].push((keys, payload));
            }
        }
    }
    let held = held.concat();
    let bounds_sum = parts.iter().map(Collected::rows).sum::<usize>();
    assert_eq!(bounds_sum, held.len());
    let table = build_within(&case.layouts.limits(), spec, parts, &mut random, 2);
    assert_eq!(table.rows(), held.len());
    assert_eq!(table.has_null_key(), null_key);
    for (i, kind) in payload_kinds.iter().enumerate() {
        let expected = held.iter().map(|(_, payload)| payload[i]).collect::<Vec<_>>();
        let array = table.payload(i);
        array.to_data().validate_full().unwrap();
        assert_eq!(kind.values(array), expected, "payload of {kind:?}");
        if let DataType::Dictionary(key, _) = array.data_type() {
            assert_eq!(key.as_ref(), &DataType::UInt32);
            let values = array.as_any_dictionary().values();
            let distinct = (0..values.len()).map(|i| bytes_of(values, i)).collect::<BTreeSet<_>>();
            assert_eq!(distinct.len(), values.len());
        }
    }
    let mut scratch = Scratch::default();
    let mut out = vec![7];
    let mut unique = true;
    for probe in 0..3 {
        // More values than the build side has, too.
        let rows = random.below(100) as usize;
        let wider = distinct + probe * 5;
        let probes = rows_of(&kinds, rows, wider, case.probe_nulls, &mut random);
        let arrays = arrays_of(&kinds, &probes, &mut random);
        table.lookup(&arrays, rows, &mut scratch, &mut out).unwrap();
        let (mut positions, mut found) = (vec![7], vec![7]);
        table.matches(&arrays, rows, &mut scratch, &mut positions, &mut found).unwrap();
        let expected = (0..).zip(&out).filter(|(_, row)| **row != NONE);
        let expected: (Vec<u32>, Vec<u32>) = expected.map(|(i, row)| (i, *row)).unzip();
        assert_eq!((positions, found), expected);
        assert_eq!(out.len(), rows);
        for (keys, &first) in probes.iter().zip(&out) {
            let expected = (0..held.len() as u32)
                .filter(|&row| {
                    &held[row as usize].0 == keys && (nulls_equal || !keys.contains(&None))
                })
                .collect::<BTreeSet<_>>();
            assert_eq!(matches(&table, first), expected, "{keys:?}");
        }
    }
    let mut seen = BTreeSet::new();
    for (keys, _) in &held {
        unique &= !nulls_equal && keys.contains(&None) || seen.insert(keys.clone());
    }
    assert_eq!(table.is_unique(), unique);
    for (i, kind) in kinds.iter().enumerate() {
        if let (Kind::Small | Kind::Decimal, Some((min, max))) = (kind, table.key_range(i)) {
            let values = held.iter().filter_map(|(keys, _)| keys[i]).collect::<Vec<_>>();
            assert!(values.iter().all(|v| (i128::from(min)..=i128::from(max)).contains(v)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lookups_agree_with_a_nested_loop(case in cases()) {
        check(&case);
    }
}

/// Many rows, so that there are several tasks and threads meet.
fn big(distinct: u64, stretch: i64, key: DataType) {
    let rows = 300_000;
    let mut random = Prng::new(distinct);
    let spec = Spec {
        key_types: vec![key.clone()],
        payload_types: vec![DataType::Int64, DataType::Boolean],
        nulls_equal: false,
        keep_null_keys: true,
    };
    let to_array = |values: &[i64]| -> ArrayRef {
        match key {
            DataType::Int64 => Arc::new(Int64Array::from(values.to_vec())),
            _ => Arc::new(StringViewArray::from_iter_values(values.iter().map(|v| v.to_string()))),
        }
    };
    let mut part = Collected::new(&spec);
    let mut all = Vec::new();
    while all.len() < rows {
        let n = 1 + random.below(9000) as usize;
        let keys = (0..n).map(|_| random.below(distinct) as i64 * stretch).collect::<Vec<_>>();
        let payload: ArrayRef = Arc::new(Int64Array::from(keys.clone()));
        let bits: ArrayRef =
            Arc::new(BooleanArray::from(keys.iter().map(|k| k % 3 == 0).collect::<Vec<_>>()));
        part.push(&[to_array(&keys)], &[payload, bits], n).unwrap();
        all.extend(keys);
    }
    let table = build(spec, vec![part], &mut random, 3);
    let payload = table.payload(0).as_primitive::<arrow::datatypes::Int64Type>();
    assert_eq!(payload.values(), all.as_slice());
    let bits = table.payload(1).as_boolean();
    assert!(all.iter().enumerate().all(|(i, k)| bits.value(i) == (k % 3 == 0)));
    let mut counts = HashMap::<i64, usize>::new();
    all.iter().for_each(|&k| *counts.entry(k).or_default() += 1);
    let probes = (0..5000).map(|i| i * stretch).collect::<Vec<_>>();
    let mut out = Vec::new();
    table.lookup(&[to_array(&probes)], probes.len(), &mut Scratch::default(), &mut out).unwrap();
    for (probe, &first) in probes.iter().zip(&out) {
        let found = matches(&table, first);
        assert!(found.iter().all(|&row| all[row as usize] == *probe));
        assert_eq!(found.len(), counts.get(probe).copied().unwrap_or(0));
    }
}

#[test]
fn many_rows_in_several_threads() {
    big(1 << 18, 1, DataType::Int64);
    big(4000, 1, DataType::Int64);
    big(1 << 18, 20, DataType::Int64);
    big(1 << 18, 1 << 40, DataType::Int64);
    big(4000, 1 << 40, DataType::Int64);
    big(100_000, 1, DataType::Utf8View);
}

/// Which filter a table has, and whether it rests.
fn filter_of(table: &Table) -> Option<(filter::Shape, bool)> {
    table.filter.as_ref().map(|filter| filter.state())
}

#[test]
fn filters_pass_what_is_there_and_rest_where_most_is() {
    let spec = Spec {
        key_types: vec![DataType::Int64],
        payload_types: Vec::new(),
        nulls_equal: false,
        keep_null_keys: false,
    };
    for (rows, stretch, bitmap) in
        [(40_000, 20, true), (40_000, 1 << 40, false), (4000, 1 << 30, true)]
    {
        let rows: i64 = rows;
        let array = |keys: &mut dyn Iterator<Item = i64>| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(keys))
        };
        let mut part = Collected::new(&spec);
        part.push(&[array(&mut (0..rows).map(|i| i * stretch))], &[], rows as usize).unwrap();
        let table = build(spec.clone(), vec![part], &mut Prng::new(1), 3);
        let (shape, resting) = filter_of(&table).unwrap();
        assert!(matches!(shape, filter::Shape::Bitmap { .. }) == bitmap && !resting);
        assert!(
            table.memory_bytes() >= slots::buckets_for(rows as usize) * 64 + shape.memory_bytes()
        );
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        let mut look_up = |keys: &mut dyn Iterator<Item = i64>| {
            let keys = array(keys);
            table.lookup(&[Arc::clone(&keys)], keys.len(), &mut scratch, &mut out).unwrap();
            (out.clone(), filter_of(&table).unwrap().1)
        };
        for round in 0..2 {
            // One in 10, and keys below the range.
            let step = stretch / 10;
            let (found, resting) = look_up(&mut (-500..4500).map(|i| i * step));
            for (i, &row) in (-500..4500).zip(&found) {
                let there = i >= 0 && i * step % stretch == 0;
                assert_eq!(row, if there { (i * step / stretch) as u32 } else { NONE }, "{i}");
            }
            assert!(!resting, "round {round}");
            let (found, resting) = look_up(&mut (0..rows).map(|i| i * stretch));
            assert!(found.iter().copied().eq(0..rows as u32));
            assert!(resting);
            // It is tried again when so many rows have gone without.
            for _ in 0..15 {
                let (found, _) = look_up(&mut (0..rows).map(|i| i * stretch + 1));
                assert!(found.iter().all(|&row| row == NONE));
            }
            assert!(!filter_of(&table).unwrap().1);
        }
    }
}

#[test]
fn no_rows() {
    let text = vec![Kind::View, Kind::Small];
    let kinds = [vec![], vec![Kind::Small], vec![Kind::Sparse, Kind::Date], vec![Kind::View], text];
    for (kinds, layouts) in kinds.iter().flat_map(|kinds| LAYOUTS.map(|l| (kinds, l))) {
        for nulls_equal in [false, true] {
            check(&Case {
                kinds: kinds.clone(),
                nulls_equal,
                keep_null_keys: false,
                build_nulls: true,
                probe_nulls: true,
                distinct: 9,
                rows: 0,
                parts: 2,
                layouts,
                seed: 1,
            });
        }
    }
}

/// Texts that differ in one byte, wherever it is, and in their length alone; of two keys, the second of
/// which would be where the first one ends.
#[test]
fn texts_of_every_length_are_told_apart() {
    let lengths: Vec<usize> = (0..70).chain([255, 256, 70_000]).collect();
    let mut texts: Vec<String> = vec![];
    for length in lengths {
        texts.push("-".repeat(length));
        let places = [0, 3, 7, 8, 11, 12, 15, 16, 31, 32, length / 2, length.wrapping_sub(1)];
        let mut places: Vec<usize> = places.into_iter().filter(|at| *at < length).collect();
        places.sort_unstable();
        places.dedup();
        for at in places {
            let mut text = "-".repeat(length);
            text.replace_range(at..at + 1, "+");
            texts.push(text);
        }
    }
    let (built, missing): (Vec<_>, Vec<_>) = texts.iter().enumerate().partition(|(n, _)| n % 4 > 0);
    for keys in [1, 2] {
        let spec = Spec {
            key_types: vec![DataType::Utf8View; keys],
            payload_types: vec![],
            nulls_equal: false,
            keep_null_keys: false,
        };
        let column = |texts: &[(usize, &String)]| -> ArrayRef {
            Arc::new(StringViewArray::from_iter_values(texts.iter().map(|(_, text)| text)))
        };
        let columns = |texts: &[(usize, &String)]| vec![column(texts); keys];
        let mut part = Collected::new(&spec);
        part.push(&columns(&built), &[], built.len()).unwrap();
        let table = build(spec, vec![part], &mut Prng::new(keys as u64), 2);
        let mut found = vec![];
        let mut look_up = |texts: &[ArrayRef], rows| {
            table.lookup(texts, rows, &mut Scratch::default(), &mut found).unwrap();
            found.clone()
        };
        let rows: Vec<u32> = (0..built.len() as u32).collect();
        assert_eq!(look_up(&columns(&built), built.len()), rows);
        assert_eq!(look_up(&columns(&missing), missing.len()), vec![NONE; missing.len()]);
        if keys == 2 {
            // The same bytes one after the other, divided elsewhere.
            let halves = |texts: [&str; 2]| {
                texts.map(|text| -> ArrayRef { Arc::new(StringViewArray::from(vec![text])) })
            };
            let [of_20, of_40] = ["-".repeat(20), "-".repeat(40)];
            assert_eq!(look_up(&halves(["", &of_40]), 1), [NONE]);
            assert_ne!(look_up(&halves([&of_20, &of_20]), 1), [NONE]);
        }
    }
}

#[test]
fn the_full_range_of_64_bits() {
    let spec = Spec {
        key_types: vec![DataType::Int64],
        payload_types: Vec::new(),
        nulls_equal: true,
        keep_null_keys: false,
    };
    for keys in [vec![i64::MIN, i64::MAX], vec![i64::MIN, i64::MAX - 1], vec![0, i64::MAX]] {
        let array: ArrayRef = Arc::new(Int64Array::from(keys));
        let mut part = Collected::new(&spec);
        part.push(&[Arc::clone(&array)], &[], 2).unwrap();
        let table = build(spec.clone(), vec![part], &mut Prng::new(1), 1);
        let mut out = Vec::new();
        table.lookup(&[array], 2, &mut Scratch::default(), &mut out).unwrap();
        assert_eq!(out, [0, 1]);
        let others: ArrayRef = Arc::new(Int64Array::from(vec![Some(-1), Some(1), None]));
        table.lookup(&[others], 3, &mut Scratch::default(), &mut out).unwrap();
        assert_eq!(out, [NONE; 3]);
    }
}

#[test]
fn dictionaries_with_too_many_values_become_plain() {
    let spec = Spec {
        key_types: vec![DataType::Int32],
        payload_types: vec![DataType::Utf8View, DataType::Utf8],
        nulls_equal: false,
        keep_null_keys: false,
    };
    let mut part = Collected::new(&spec);
    let rows = 50_000;
    for batch in 0..2 {
        let codes = UInt32Array::from_iter_values(0..rows);
        let values = (0..rows).map(|i| format!("a value of batch {batch}, number {i}"));
        let values = values.collect::<Vec<_>>();
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(&values));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(&values));
        let payload = [views, texts]
            .map(|v| Arc::new(DictionaryArray::<UInt32Type>::new(codes.clone(), v)) as ArrayRef);
        let keys: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows as i32));
        part.push(&[keys], &payload, rows as usize).unwrap();
    }
    let table = build(spec, vec![part], &mut Prng::new(1), 2);
    assert_eq!(table.payload(0).data_type(), &DataType::Utf8View);
    assert_eq!(table.payload(1).data_type(), &DataType::Utf8);
    let text = "a value of batch 1, number 7";
    assert_eq!(table.payload(0).as_string_view().value(50_007), text);
    assert_eq!(table.payload(1).as_string::<i32>().value(50_007), text);
}

#[test]
fn tasks_out_of_order_and_arrays_of_other_types_are_errors() {
    let spec = Spec {
        key_types: vec![DataType::Int32],
        payload_types: Vec::new(),
        nulls_equal: false,
        keep_null_keys: false,
    };
    let mut part = Collected::new(&spec);
    let other: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    part.push(&[Arc::clone(&other)], &[], 1).unwrap_err();
    let key: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    part.push(&[Arc::clone(&key)], &[], 2).unwrap_err();
    part.push(&[Arc::clone(&key)], &[Arc::clone(&key)], 1).unwrap_err();
    part.push(&[key], &[], 1).unwrap();
    let building = Building::new(spec, vec![part]).unwrap();
    building.run(1, 0).unwrap_err();
    building.run(0, 1).unwrap_err();
    building.run(0, 0).unwrap();
    building.run(0, 0).unwrap_err();
    assert!(building.finish().is_err());
}

#[test]
fn small_batches_are_put_together() {
    let spec = Spec {
        key_types: vec![DataType::Int64],
        payload_types: vec![DataType::Utf8View],
        nulls_equal: false,
        keep_null_keys: false,
    };
    let dictionaries: Vec<ArrayRef> = ["one", "other"]
        .map(|of| StringViewArray::from_iter_values((0..5).map(|n| format!("{of} {n}"))))
        .map(|values| Arc::new(values) as ArrayRef)
        .into();
    // The batches of rows with a dictionary, and how many pieces they become.
    for (batches, pieces) in [(vec![0; 500], 7), ([vec![0; 100], vec![1; 100]].concat(), 4)] {
        let mut part = Collected::new(&spec);
        for (n, &dictionary) in batches.iter().enumerate() {
            let rows = n as i64 * 100..n as i64 * 100 + 100;
            let keys = Int64Array::from_iter_values(rows.clone());
            let codes: UInt16Array =
                rows.map(|row| (row % 7 < 5).then_some((row % 7) as u16)).collect();
            let values = Arc::clone(&dictionaries[dictionary]);
            let texts = DictionaryArray::new(codes, values);
            let before = part.memory_bytes();
            part.push(&[Arc::new(keys)], &[Arc::new(texts)], 100).unwrap();
            assert_ne!(part.memory_bytes(), before);
        }
        assert_eq!(part.rows(), batches.len() * 100);
        let part = part.into_pieces().unwrap();
        assert_eq!(part.len(), pieces);
        let mut again = Collected::new(&spec);
        for Piece { keys, payload, rows } in &part {
            again.push(keys, payload, *rows).unwrap();
        }
        let table = build(spec.clone(), vec![again], &mut Prng::new(1), 1);
        let texts = crate::encoding::expand(table.payload(0), &DataType::Utf8View).unwrap();
        for (n, row) in (0..batches.len()).flat_map(|n| (0..100).map(move |i| (n, n * 100 + i))) {
            let of = ["one", "other"][batches[n]];
            let text = (row % 7 < 5).then(|| format!("{of} {}", row % 7));
            let found = texts.as_string_view();
            assert_eq!(found.is_valid(row).then(|| found.value(row).to_string()), text);
        }
    }
}
