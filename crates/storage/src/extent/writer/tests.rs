use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryViewArray, BooleanArray, Decimal128Array, Float64Array, Int32Array,
    Int64Array, ListArray, StringArray, StringViewArray, StructArray, new_null_array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, TimeUnit};
use proptest::prelude::*;
use thalweg_base::{Kind, Prng};
use vortex::VortexSessionDefault;
use vortex::array::VortexSessionExecute;
use vortex::arrow::ArrowSessionExt;
use vortex::file::OpenOptionsSessionExt;
use vortex::io::runtime::BlockingRuntime;
use vortex::session::VortexSession;

use super::*;
use crate::database::{Database, Options};
use crate::floats::canonical_f64;
use crate::{Segment, expand, storable, stored_schema};

const SMALL: Limits = Limits { chunk_rows: 100, run_bytes: 20_000, extent_bytes: 20_000 };

fn memory() -> Database {
    Database::memory(Options { cache_bytes_max: 64 << 20, ..Options::default() }).unwrap()
}

/// Writes the batches and reads everything back, as one batch.
fn round_trip(
    db: &Database,
    batches: &[RecordBatch],
    cluster_by: &[usize],
    limits: Limits,
) -> RecordBatch {
    let schema = stored_schema(&batches[0].schema()).unwrap();
    let mut writer = small(db, schema.clone(), cluster_by, limits);
    for batch in batches {
        writer.push(batch).unwrap();
    }
    writer.flush().unwrap();
    while writer.step().unwrap() {}
    assert_eq!(writer.buffered_bytes(), 0);
    let extents = writer.finish().unwrap();
    let parts = read_back(db, &schema, &extents);
    concat_batches(&schema, &parts).unwrap()
}

fn small(db: &Database, schema: SchemaRef, cluster_by: &[usize], limits: Limits) -> ExtentWriter {
    let spec = TableSpec { cluster_by: cluster_by.to_vec(), ..TableSpec::default() };
    db.small_writer(Layout::of_new(schema, &spec), limits)
}

/// All chunks of new extents, read back.
fn read_back(db: &Database, schema: &SchemaRef, extents: &[NewExtent]) -> Vec<RecordBatch> {
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let mut parts = vec![RecordBatch::new_empty(schema.clone())];
    for new in extents {
        let metadata = new.extent.open().unwrap();
        for chunk in 0..new.extent.chunks() {
            let segments = new.extent.read(&metadata, chunk, &columns).unwrap();
            let plain = |(column, segment): (usize, Segment)| {
                let array = db.decode(segment).unwrap();
                expand(&array, schema.field(column).data_type()).unwrap()
            };
            let arrays = segments.into_iter().enumerate().map(plain).collect();
            parts.push(RecordBatch::try_new(schema.clone(), arrays).unwrap());
        }
    }
    parts
}

fn one(array: ArrayRef, nullable: bool) -> RecordBatch {
    let field = Field::new("c", array.data_type().clone(), nullable);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array]).unwrap()
}

/// The seeded values of `data_type`, by way of integers cast to it.
fn values(data_type: &DataType, rows: usize, nulls: bool, seed: u64) -> ArrayRef {
    let mut random = Prng::new(seed);
    let mut pick = |below: u64| (!nulls || random.below(4) > 0).then(|| random.below(below) as i64);
    let small = matches!(
        data_type,
        DataType::Int8 | DataType::UInt8 | DataType::Decimal128(..) | DataType::Time32(_)
    );
    let numbers: ArrayRef =
        Arc::new(Int64Array::from_iter((0..rows).map(|_| pick(if small { 90 } else { 30_000 }))));
    match data_type {
        DataType::Boolean => {
            let odd = numbers.as_primitive::<Int64Type>().iter().map(|n| n.map(|n| n % 2 == 1));
            Arc::new(BooleanArray::from_iter(odd))
        }
        DataType::Utf8View => {
            let text = numbers
                .as_primitive::<Int64Type>()
                .iter()
                .map(|n| n.map(|n| "añ".repeat(n as usize % 17)));
            Arc::new(StringViewArray::from_iter(text))
        }
        DataType::BinaryView => {
            let bytes = numbers
                .as_primitive::<Int64Type>()
                .iter()
                .map(|n| n.map(|n| n.to_le_bytes().repeat(n as usize % 3)));
            Arc::new(BinaryViewArray::from_iter(bytes))
        }
        DataType::Date32 | DataType::Time32(_) => {
            let narrow = arrow::compute::cast(&numbers, &DataType::Int32).unwrap();
            arrow::compute::cast(&narrow, data_type).unwrap()
        }
        _ => arrow::compute::cast(&numbers, data_type).unwrap(),
    }
}

fn flat_types() -> Vec<DataType> {
    use DataType::*;
    let mut types = vec![
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float32,
        Float64,
        Utf8View,
        BinaryView,
        Date32,
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
    ];
    for unit in
        [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond]
    {
        types.push(Timestamp(unit, None));
        types.push(Timestamp(unit, Some("America/New_York".into())));
    }
    types.extend((2..=38).map(|p| Decimal128(p, 0)));
    types.extend([Decimal128(38, 10), Decimal128(18, 2), Decimal128(5, -3), Decimal128(9, 7)]);
    types
}

#[test]
fn every_type_comes_back_with_and_without_nulls() {
    let db = memory();
    for data_type in flat_types() {
        storable(&data_type).unwrap();
        for (nulls, nullable) in [(true, true), (false, true), (false, false)] {
            for rows in [1, 99, 250] {
                let batch = one(values(&data_type, rows, nulls, rows as u64), nullable);
                let back = round_trip(&db, std::slice::from_ref(&batch), &[], SMALL);
                assert_eq!(
                    back, batch,
                    "{data_type}, nulls {nulls}, nullable {nullable}, {rows} rows"
                );
            }
        }
        let nothing = one(new_null_array(&data_type, 130), true);
        assert_eq!(
            round_trip(&db, std::slice::from_ref(&nothing), &[], SMALL),
            nothing,
            "{data_type}"
        );
    }
}

#[test]
fn timestamps_of_any_year() {
    let ends = [i64::MIN + 1, -1, 0, i64::MAX, i64::MAX / 7];
    for unit in
        [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond]
    {
        let counts = Int64Array::from_iter((0..300).map(|n| (n % 6 > 0).then(|| ends[n % 5])));
        let array = arrow::compute::cast(&counts, &DataType::Timestamp(unit, None)).unwrap();
        let batch = one(array, true);
        assert_eq!(
            round_trip(&memory(), std::slice::from_ref(&batch), &[], SMALL),
            batch,
            "{unit:?}"
        );
    }
}

#[test]
fn decimals_of_all_38_digits() {
    let most = 10i128.pow(38) - 1;
    let array = Decimal128Array::from(vec![Some(most), Some(-most), None, Some(0)]);
    let batch = one(Arc::new(array.with_precision_and_scale(38, 2).unwrap()), true);
    assert_eq!(round_trip(&memory(), std::slice::from_ref(&batch), &[], SMALL), batch);
}

/// In what form a column comes back that is written as one chunk; in plain, it is what was written.
fn form(array: ArrayRef) -> ArrayRef {
    let db = memory();
    let (rows, data_type) = (array.len(), array.data_type().clone());
    let batch = one(array, true);
    let mut writer =
        small(&db, batch.schema(), &[], Limits { chunk_rows: rows, ..Limits::default() });
    writer.push(&batch).unwrap();
    let new = writer.finish().unwrap().remove(0);
    let metadata = new.extent.open().unwrap();
    let segment = new.extent.read(&metadata, 0, &[0]).unwrap().remove(0);
    let encoded = db.decode(segment).unwrap();
    assert_eq!(&expand(&encoded, &data_type).unwrap(), batch.column(0));
    encoded
}

/// Of a dictionary: how many values it has.
fn dictionary_values(array: ArrayRef) -> Option<usize> {
    let encoded = form(array);
    let dictionary = encoded.as_any_dictionary_opt()?;
    assert_eq!(dictionary.values().null_count(), 0);
    assert!(dictionary.normalized_keys().iter().all(|key| *key < dictionary.values().len()));
    Some(dictionary.values().len())
}

#[test]
fn strings_of_few_values_stay_dictionaries() {
    let strings = |of: &dyn Fn(usize) -> Option<String>| -> ArrayRef {
        Arc::new((0..5_000).map(of).collect::<StringViewArray>())
    };
    let word = |n: usize| match n {
        0 => String::new(),
        n => format!("the {n}th of the words that come again and again"),
    };
    let mixed = |n: usize| n * 7919 % 1009;
    assert_eq!(dictionary_values(strings(&|n| Some(word(mixed(n) % 50)))), Some(50));
    let nulls = strings(&|n| (!mixed(n).is_multiple_of(3)).then(|| word(mixed(n) % 50)));
    assert_eq!(dictionary_values(nulls), Some(50));
    // More than 256.
    assert_eq!(dictionary_values(strings(&|n| Some(word(mixed(n) % 500)))), Some(500));
    assert_eq!(dictionary_values(strings(&|_| Some(word(1)))), Some(1));
    assert_eq!(dictionary_values(strings(&|_| Some(word(0)))), Some(1));
    assert_eq!(
        dictionary_values(strings(&|n| mixed(n).is_multiple_of(3).then(|| word(1)))),
        Some(1)
    );
    assert_eq!(dictionary_values(strings(&|_| None)), Some(1));
    assert_eq!(dictionary_values(strings(&|n| Some(word(n)))), None);
    let bytes = (0..5_000).map(|n| mixed(n).is_multiple_of(3).then(|| [mixed(n) as u8 % 9; 40]));
    assert_eq!(dictionary_values(Arc::new(bytes.collect::<BinaryViewArray>())), Some(9));
}

#[test]
fn decimals_of_64_bits_stay_narrow() {
    let narrow = |precision, scale, values: &dyn Fn(i128) -> Option<i128>| {
        let array = (0..300).map(values).collect::<Decimal128Array>();
        let array = array.with_precision_and_scale(precision, scale).unwrap();
        match form(Arc::new(array)).data_type() {
            DataType::Decimal64(18, s) if *s == scale => true,
            DataType::Int8 | DataType::Int16 | DataType::Int32 => true,
            DataType::Decimal128(p, s) if (*p, *s) == (precision, scale) => false,
            other => panic!("{other}"),
        }
    };
    let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
    assert!(narrow(38, 2, &|n| Some(n - 150)));
    assert!(narrow(15, 2, &|n| (n % 3 > 0).then_some(n * 1_000_003 - 150)));
    assert!(narrow(38, 0, &|n| Some(most - n)));
    assert!(narrow(38, 0, &|n| Some(least + n)));
    assert!(narrow(38, 0, &|n| (n % 3 > 0).then_some(if n % 2 == 0 { least } else { most })));
    assert!(!narrow(38, 0, &|n| Some(most + n)));
    assert!(!narrow(38, 0, &|n| Some(least - n)));
    assert!(!narrow(38, 0, &|n| (n % 3 > 0).then_some(least - n)));
    for one in [0, -7, most, least] {
        assert!(narrow(38, 18, &|_| Some(one)));
        assert!(narrow(20, 3, &|n| (n % 7 == 3).then_some(one)));
    }
    assert!(!narrow(38, 4, &|_| Some(most + 1)));
    assert!(narrow(18, -3, &|n| Some(n)));
    assert!(narrow(9, 9, &|_| None));
    // Decimal64 has no such scale.
    assert!(!narrow(38, 19, &|n| Some(n)));
}

#[test]
fn whole_numbers_come_as_narrow_as_they_are() {
    let of = |values: &dyn Fn(i64) -> i64, data_type: &DataType| {
        let numbers = Int64Array::from_iter((0..300).map(|n| (n % 7 > 0).then(|| values(n))));
        let array = arrow::compute::cast(&numbers, data_type).unwrap();
        form(array).data_type().clone()
    };
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    let (small, date, key) = (|n| n - 150, |n| 8_000 + n * 7, |n| n * 1_000_003);
    assert_eq!(of(&|n| n % 100, &DataType::Int64), DataType::Int8);
    assert_eq!(of(&small, &DataType::Int64), DataType::Int16);
    assert_eq!(of(&date, &DataType::Date32), DataType::Int16);
    assert_eq!(of(&key, &DataType::Int64), DataType::Int32);
    assert_eq!(of(&key, &DataType::Int32), DataType::Int32);
    assert_eq!(of(&key, &seconds), DataType::Int32);
    assert_eq!(of(&|n| n * 10_000_000_019, &DataType::Int64), DataType::Int64);
    assert_eq!(of(&|n| n % 100, &DataType::Int8), DataType::Int8);
    assert_eq!(of(&|n| n % 100, &DataType::UInt32), DataType::UInt32);
    let cents = Decimal128Array::from_iter_values((0..300).map(|n| n * 1_009));
    let cents: ArrayRef = Arc::new(cents.with_precision_and_scale(15, 2).unwrap());
    assert_eq!(form(cents).data_type(), &DataType::Int32);
}

#[test]
fn numbers_that_come_in_runs_are_coded_by_the_run() {
    // Rows of orders: each has one to seven, and a key a little greater than the one before.
    let mut random = Prng::new(3);
    let mut keys = vec![];
    for order in 0i64.. {
        let key = order * 4 + random.below(4) as i64;
        keys.extend(std::iter::repeat_n(key, 1 + random.below(7) as usize));
        if keys.len() >= 1 << 16 {
            break;
        }
    }
    keys.truncate(1 << 16);
    let customers = keys.iter().map(|key| key.wrapping_mul(0x9e37_79b9) >> 7 & 0x7fff);
    for (numbers, bits_max) in [(Int64Array::from_iter_values(customers), 5.2), (keys.into(), 2.0)]
    {
        let db = memory();
        let batch = one(Arc::new(numbers), false);
        let limits = Limits { chunk_rows: 1 << 16, run_bytes: 1 << 30, extent_bytes: 1 << 30 };
        let mut writer = small(&db, batch.schema(), &[], limits);
        writer.push(&batch).unwrap();
        writer.flush().unwrap();
        while writer.step().unwrap() {}
        let extents = writer.finish().unwrap();
        let metadata = extents[0].extent.open().unwrap();
        let bytes = extents[0].extent.read(&metadata, 0, &[0]).unwrap()[0].bytes();
        let bits = bytes as f64 * 8.0 / batch.num_rows() as f64;
        assert!(bits < bits_max, "{bits} bits a value");
        assert_eq!(read_back(&db, &batch.schema(), &extents)[1], batch);
    }
}

#[test]
fn floats_come_back_with_one_zero_and_one_nan() {
    let odd = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE / 2.0,
        1.1,
        1e300,
    ];
    let array: Vec<f64> = odd.iter().copied().cycle().take(300).collect();
    let back = round_trip(
        &memory(),
        &[one(Arc::new(Float64Array::from(array.clone())), true)],
        &[],
        SMALL,
    );
    let back = back.column(0).as_primitive::<arrow::datatypes::Float64Type>().values().to_vec();
    let same = |(a, b): (&f64, &f64)| canonical_f64(*a).to_bits() == b.to_bits();
    assert!(array.iter().zip(&back).all(same));
}

#[test]
fn lists_and_structs() {
    let db = memory();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>((0..250).map(|i| {
        (i % 5 > 0).then(|| (0..i % 7).map(|k| (k % 3 > 0).then_some(k)).collect::<Vec<_>>())
    }));
    let batch = one(Arc::new(lists), true);
    assert_eq!(round_trip(&db, std::slice::from_ref(&batch), &[], SMALL), batch);
    let structs = StructArray::from(vec![
        (Arc::new(Field::new("a", DataType::Int32, true)), values(&DataType::Int32, 250, true, 1)),
        (
            Arc::new(Field::new("b", DataType::Utf8View, true)),
            values(&DataType::Utf8View, 250, true, 2),
        ),
    ]);
    let batch = one(Arc::new(structs), true);
    assert_eq!(round_trip(&db, std::slice::from_ref(&batch), &[], SMALL), batch);
}

#[test]
fn other_types_are_cast_on_the_way_in() {
    let db = memory();
    let mut writer = small(
        &db,
        stored_schema(&Schema::new(vec![Field::new("c", DataType::LargeUtf8, true)])).unwrap(),
        &[],
        SMALL,
    );
    writer.push(&one(Arc::new(StringArray::from(vec![Some("a"), None])), true)).unwrap();
    assert_eq!(writer.finish().unwrap()[0].rows(), 2);

    let bytes = Arc::new(Schema::new(vec![Field::new("c", DataType::Int8, true)]));
    let mut writer = small(&db, bytes, &[], SMALL);
    let e = writer.push(&one(Arc::new(Int32Array::from(vec![1000])), true)).unwrap_err();
    assert!(e.kind() == Kind::User && e.message().contains("\"c\""), "{e:?}");
}

#[test]
fn nulls_are_refused_where_they_must_not_be() {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, false)]));
    let mut writer = small(&memory(), schema, &[], SMALL);
    let e = writer.push(&one(Arc::new(Int32Array::from(vec![Some(1), None])), true)).unwrap_err();
    assert!(e.kind() == Kind::User && e.message().contains("\"id\" is NOT NULL"), "{e:?}");
    let two = Schema::new(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Int32, true),
    ]);
    let mut writer = small(&memory(), Arc::new(two), &[], SMALL);
    assert!(writer.push(&one(Arc::new(Int32Array::from(vec![1])), true)).is_err());
}

#[test]
fn chunks_are_full_but_for_the_last_and_extents_roll() {
    let db = memory();
    let mut writer =
        small(&db, one(values(&DataType::Int64, 1, false, 0), true).schema(), &[], SMALL);
    for n in 0..70 {
        writer.push(&one(values(&DataType::Int64, 37 + n, false, n as u64), true)).unwrap();
        while writer.step().unwrap() {}
    }
    let rows = writer.rows();
    let extents = writer.finish().unwrap();
    assert!(extents.len() > 1);
    let schema = one(values(&DataType::Int64, 1, false, 0), true).schema();
    let chunks: Vec<u32> =
        read_back(&db, &schema, &extents)[1..].iter().map(|b| b.num_rows() as u32).collect();
    assert!(chunks[..chunks.len() - 1].iter().all(|&n| n == 100), "{chunks:?}");
    assert_eq!(chunks.iter().map(|&n| u64::from(n)).sum::<u64>(), rows);
    assert!(small(&memory(), schema, &[], SMALL).finish().unwrap().is_empty());
}

#[test]
fn clustered_rows_are_sorted_in_runs_and_all_there() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("key", DataType::Utf8View, true),
        Field::new("k2", DataType::Int32, true),
    ]));
    let batches: Vec<RecordBatch> = (0..23)
        .map(|i| {
            let rows = 30 + i * 9;
            let columns = vec![
                Arc::new(Int64Array::from_iter_values(
                    (0..rows as i64).map(|n| i as i64 * 1000 + n),
                )) as ArrayRef,
                values(&DataType::Utf8View, rows, true, i as u64),
                values(&DataType::Int32, rows, true, i as u64 + 50),
            ];
            RecordBatch::try_new(schema.clone(), columns).unwrap()
        })
        .collect();
    let all = concat_batches(&schema, &batches).unwrap();
    let sorted_by = |batch: &RecordBatch| {
        let columns = [1, 2, 0]
            .map(|c| arrow::compute::SortColumn { values: batch.column(c).clone(), options: None });
        let order = arrow::compute::lexsort_to_indices(&columns, None).unwrap();
        arrow::compute::take_record_batch(batch, &order).unwrap()
    };
    let one_run = Limits { run_bytes: 1 << 30, ..SMALL };
    // `n` grows with arrival: that it breaks ties shows that the sort is stable.
    assert_eq!(round_trip(&memory(), &batches, &[1, 2], one_run), sorted_by(&all));
    let runs = round_trip(&memory(), &batches, &[1, 2], SMALL);
    assert_ne!(runs, sorted_by(&all));
    assert_eq!(sorted_by(&runs), sorted_by(&all));
}

#[test]
fn partitioned_rows_are_in_extents_of_their_bucket() {
    let db = memory();
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("key", values(&DataType::Utf8View, 2_000, true, 1), true),
        ("n", values(&DataType::Int64, 2_000, false, 2), true),
    ])
    .unwrap();
    let partition = PartitionBy { column: 0, buckets: 3 };
    let spec = TableSpec { partition_by: Some(partition), ..TableSpec::default() };
    let mut writer = db.small_writer(Layout::of_new(batch.schema(), &spec), SMALL);
    for at in (0..2_000).step_by(130) {
        writer.push(&batch.slice(at, 130.min(2_000 - at))).unwrap();
        while writer.step().unwrap() {}
    }
    assert_eq!(writer.rows(), 2_000);
    let extents = writer.finish().unwrap();
    let mut rows = 0;
    let mut seen = std::collections::BTreeSet::new();
    for new in extents {
        let bucket = new.extent.bucket.unwrap();
        seen.insert(bucket);
        for part in read_back(&db, &batch.schema(), &[new]) {
            let buckets = partition.buckets_of(part.column(0)).unwrap();
            assert!(buckets.iter().all(|&b| b == bucket));
            rows += part.num_rows();
        }
    }
    assert_eq!((rows, seen.len()), (2_000, 3));
}

/// The promise of the format: a stock Vortex reader opens the file.
#[test]
fn any_vortex_reader_can_read_an_extent() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("n", values(&DataType::Int64, 950, true, 1), true),
        ("s", values(&DataType::Utf8View, 950, false, 2), false),
        ("t", values(&DataType::Time32(TimeUnit::Second), 950, true, 3), true),
    ])
    .unwrap();
    let mut writer = small(&db, batch.schema(), &[], Limits { extent_bytes: 1 << 30, ..SMALL });
    writer.push(&batch).unwrap();
    let extents = writer.finish().unwrap();
    let bytes = std::fs::read(extents[0].extent().path().unwrap()).unwrap();

    let runtime = vortex::io::runtime::single::SingleThreadRuntime::default();
    let session = <VortexSession as VortexSessionDefault>::default();
    let session = vortex::io::session::RuntimeSessionExt::with_handle(session, runtime.handle());
    let file = session.open_options().open_buffer(bytes).unwrap();
    assert_eq!(file.row_count(), 950);
    let rows: Vec<_> = file.scan().unwrap().into_array_iter(&runtime).unwrap().collect();
    let mut parts = Vec::new();
    let target = Field::new("", DataType::Struct(batch.schema().fields().clone()), false);
    for part in rows {
        let mut ctx = session.create_execution_ctx();
        let array = session.arrow().execute_arrow(part.unwrap(), Some(&target), &mut ctx).unwrap();
        parts.push(RecordBatch::from(array.as_struct()));
    }
    assert_eq!(concat_batches(&batch.schema(), &parts).unwrap(), batch);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_pushed_comes_back(
        rows in proptest::collection::vec(
            (any::<Option<i64>>(), any::<Option<f64>>(), proptest::option::of(".{0,40}"), 0u8..4),
            0..600,
        ),
        cut in 1usize..200,
    ) {
        let few = ["", "one", "a somewhat longer string", "日本"];
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("i", Arc::new(Int64Array::from_iter(rows.iter().map(|r| r.0))) as ArrayRef, true),
            ("f", Arc::new(Float64Array::from_iter(rows.iter().map(|r| r.1))), true),
            ("s", Arc::new(StringViewArray::from_iter(rows.iter().map(|r| r.2.as_deref()))), true),
            ("d", Arc::new(StringViewArray::from_iter_values(rows.iter().map(|r| few[r.3 as usize]))), false),
        ]).unwrap();
        let parts: Vec<RecordBatch> = (0..rows.len().max(1))
            .step_by(cut)
            .map(|at| batch.slice(at, cut.min(rows.len() - at)))
            .collect();
        let back = round_trip(&memory(), &parts, &[], SMALL);
        prop_assert_eq!(back.num_rows(), batch.num_rows());
        for column in [0, 2, 3] {
            prop_assert_eq!(back.column(column), batch.column(column));
        }
        let bits = |b: &RecordBatch| -> Vec<Option<u64>> {
            b.column(1).as_primitive::<arrow::datatypes::Float64Type>().iter().map(|v| v.map(|v| canonical_f64(v).to_bits())).collect()
        };
        prop_assert_eq!(bits(&back), bits(&batch));
    }
}
