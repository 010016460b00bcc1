use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use thalweg_base::{Kind, Prng, TableId};

use super::*;
use crate::database::Options;
use crate::extent::Limits;
use crate::table::{PartitionBy, TableSpec};
use crate::transaction::{RowSet, Transaction};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, true),
        Field::new("n", DataType::Int64, false),
    ]))
}

/// A table of several loads, each of scattered keys, some of them NULL.
fn scattered(db: &Database, spec: &TableSpec, loads: u64, rows: i64) -> TableId {
    let mut transaction = db.begin();
    let id = transaction.create_table("public", "t", schema(), spec.clone()).unwrap();
    transaction.commit().unwrap();
    for load in 0..loads {
        let mut random = Prng::new(load);
        let key = |_| (random.below(50) > 0).then(|| random.below(1_000_000) as i64);
        let keys = Int64Array::from_iter((0..rows).map(key));
        let first = load as i64 * rows;
        let columns: Vec<ArrayRef> =
            vec![Arc::new(keys), Arc::new(Int64Array::from_iter_values(first..first + rows))];
        let limits = Limits { chunk_rows: 500, ..Limits::default() };
        let mut writer = db.small_writer(Layout::of_new(schema(), spec), limits);
        writer.push(&RecordBatch::try_new(schema(), columns).unwrap()).unwrap();
        let mut transaction = db.begin();
        transaction.append(id, writer.finish().unwrap()).unwrap();
        transaction.commit().unwrap();
    }
    id
}

fn table(db: &Database) -> Arc<Table> {
    db.snapshot().table("public", "t").unwrap().clone()
}

/// Live rows in the order of the table.
fn rows(db: &Database) -> Vec<(Option<i64>, i64)> {
    let contents = table(db).contents().unwrap();
    let mut rows = Vec::new();
    for i in 0..contents.chunks() {
        let chunk = contents.chunk(i);
        let arrays: Vec<ArrayRef> = db
            .read(&chunk, &[0, 1])
            .unwrap()
            .into_iter()
            .map(|s| s.decode_plain().unwrap())
            .collect();
        let live = chunk.live();
        for row in (0..chunk.rows).filter(|&r| live.as_ref().is_none_or(|l| l.value(r))) {
            let key = arrays[0].as_primitive::<Int64Type>();
            let key = key.is_valid(row).then(|| key.value(row));
            rows.push((key, arrays[1].as_primitive::<Int64Type>().value(row)));
        }
    }
    rows
}

fn begin(db: &Database, scope: CompactionScope) -> Option<Compaction> {
    Compaction::begin(db, &table(db), scope).unwrap()
}

fn compact(db: &Database, scope: CompactionScope) -> Option<Compacted> {
    let mut compaction = begin(db, scope)?;
    drive(&mut compaction);
    compaction.finish(false).unwrap()
}

fn drive(compaction: &mut Compaction) {
    while let Some(piece) = compaction.fetch().unwrap() {
        compaction.take(piece).unwrap();
        while compaction.work().unwrap() {}
    }
    let (done, total) = compaction.progress();
    assert_eq!(done, total);
}

fn sorted(mut rows: Vec<(Option<i64>, i64)>) -> Vec<(Option<i64>, i64)> {
    rows.sort_unstable();
    rows
}

fn delete(db: &Database, wanted: impl Fn(i64) -> bool) {
    let mut transaction = db.begin();
    delete_in(&mut transaction, db, wanted);
    transaction.commit().unwrap();
}

fn delete_in(transaction: &mut Transaction, db: &Database, wanted: impl Fn(i64) -> bool) {
    let version = table(db);
    let contents = version.contents().unwrap();
    let mut gone = RowSet::default();
    for i in 0..contents.chunks() {
        let chunk = contents.chunk(i);
        let array = db.read(&chunk, &[1]).unwrap().remove(0).decode_plain().unwrap();
        let values = array.as_primitive::<Int64Type>();
        let live = chunk.live();
        for (row, id) in chunk.row_ids().values().iter().enumerate() {
            if live.as_ref().is_none_or(|l| l.value(row)) && wanted(values.value(row)) {
                gone.insert(&[*id]);
            }
        }
    }
    transaction.delete(&version, &gone).unwrap();
}

#[test]
fn small_extents_become_one_and_then_nothing_is_to_be_done() {
    let db = Database::memory(Options::default()).unwrap();
    scattered(&db, &TableSpec::default(), 12, 700);
    let before = rows(&db);
    let report = compact(&db, CompactionScope::Worthwhile).unwrap();
    assert_eq!((report.extents_before, report.extents_after, report.rows), (12, 1, 8_400));
    assert_eq!(rows(&db), before, "in the same order");
    assert!(begin(&db, CompactionScope::Everything).is_none());
    assert_eq!(db.history().last().unwrap().summary.operation, "COMPACT");
    assert_eq!(db.history().last().unwrap().summary.table, "public.t");
}

#[test]
fn few_small_extents_are_left_alone_unless_asked_for() {
    let db = Database::memory(Options::default()).unwrap();
    scattered(&db, &TableSpec::default(), 2, 700);
    assert!(begin(&db, CompactionScope::Worthwhile).is_none());
    assert_eq!(compact(&db, CompactionScope::Everything).unwrap().extents_after, 1);
}

#[test]
fn deleted_rows_no_longer_take_space() {
    let db = Database::memory(Options::default()).unwrap();
    scattered(&db, &TableSpec::default(), 3, 2_000);
    delete(&db, |n| n % 2 == 0);
    let before = rows(&db);
    let report = compact(&db, CompactionScope::Worthwhile).unwrap();
    assert_eq!((report.rows, report.rows_removed), (3_000, 3_000));
    assert!(report.bytes_after < report.bytes_before);
    assert_eq!(rows(&db), before);
    assert_eq!(table(&db).deleted_rows(), 0);
}

#[test]
fn a_clustered_table_becomes_sorted_as_a_whole() {
    for key in [0, 1] {
        let db = Database::memory(Options::default()).unwrap();
        let spec = TableSpec { cluster_by: vec![key], ..TableSpec::default() };
        scattered(&db, &spec, 4, 5_000);
        delete(&db, |n| n % 7 == 0);
        let before = rows(&db);
        compact(&db, CompactionScope::Everything).unwrap();
        let after = rows(&db);
        assert_eq!(sorted(after.clone()), sorted(before));
        let order = |row: &(Option<i64>, i64)| match key {
            0 => row.0.unwrap_or(i64::MIN),
            _ => row.1,
        };
        assert!(after.is_sorted_by_key(order));
        let contents = table(&db).contents().unwrap();
        assert!(overlap(&contents, key, &[0]) <= 1.0 + f64::EPSILON || key == 0);
        assert!(begin(&db, CompactionScope::Worthwhile).is_none());
    }
}

#[test]
fn ranges_hold_every_row_once() {
    let db = Database::memory(Options::default()).unwrap();
    let spec = TableSpec { cluster_by: vec![0], ..TableSpec::default() };
    scattered(&db, &spec, 3, 4_000);
    let contents = table(&db).contents().unwrap();
    let bounds: Vec<ArrayRef> = [200_000, 600_000]
        .into_iter()
        .map(|n| Arc::new(Int64Array::from(vec![n])) as ArrayRef)
        .collect();
    let some = |i: usize| Some(bounds[i].clone());
    let ranges = [
        Range { from: None, to: some(0) },
        Range { from: some(0), to: some(1) },
        Range { from: some(1), to: None },
    ];
    for i in 0..contents.chunks() {
        let array = db.read(&contents.chunk(i), &[0]).unwrap().remove(0).decode_plain().unwrap();
        let masks: Vec<_> = ranges.iter().map(|r| r.contains(&array).unwrap()).collect();
        for row in 0..array.len() {
            assert_eq!(masks.iter().filter(|m| m.value(row)).count(), 1);
        }
    }
}

#[test]
fn buckets_stay_apart() {
    let db = Database::memory(Options::default()).unwrap();
    let partition_by = Some(PartitionBy { column: 1, buckets: 3 });
    let spec = TableSpec { partition_by, ..TableSpec::default() };
    scattered(&db, &spec, 9, 600);
    let before = sorted(rows(&db));
    let report = compact(&db, CompactionScope::Worthwhile).unwrap();
    assert_eq!((report.extents_before, report.extents_after), (27, 3));
    assert_eq!(sorted(rows(&db)), before);
    let buckets: Vec<_> = table(&db).extents.iter().map(|e| e.extent.bucket).collect();
    assert_eq!(buckets, [Some(0), Some(1), Some(2)]);
}

#[test]
fn what_nobody_asked_for_gives_way_to_an_open_transaction() {
    let db = Database::memory(Options::default()).unwrap();
    scattered(&db, &TableSpec::default(), 12, 700);
    let compacted = |gives_way| {
        let mut compaction = begin(&db, CompactionScope::Worthwhile).unwrap();
        drive(&mut compaction);
        compaction.finish(gives_way).unwrap()
    };
    let hold = db.hold();
    let mut reading = db.begin();
    assert!(compacted(true).is_none());
    delete_in(&mut reading, &db, |n| n == 77);
    reading.commit().unwrap();
    drop(hold);
    assert!(compacted(true).is_some());
    assert_eq!(rows(&db).len(), 8_399);
}

#[test]
fn a_writer_that_came_between_wins() {
    let db = Database::memory(Options::default()).unwrap();
    scattered(&db, &TableSpec::default(), 12, 700);
    let mut compaction = begin(&db, CompactionScope::Worthwhile).unwrap();
    drive(&mut compaction);
    delete(&db, |n| n == 77);
    let e = compaction.finish(false).unwrap_err();
    assert_eq!(e.kind(), Kind::Conflict);
    assert_eq!(rows(&db).len(), 8_399);
}

#[test]
fn rows_added_meanwhile_stay() {
    let db = Database::memory(Options::default()).unwrap();
    let id = scattered(&db, &TableSpec::default(), 12, 700);
    let mut compaction = begin(&db, CompactionScope::Worthwhile).unwrap();
    drive(&mut compaction);
    let mut writer = db.extent_writer(Layout::of(&table(&db)));
    let column = || Arc::new(Int64Array::from(vec![-1])) as ArrayRef;
    writer.push(&RecordBatch::try_new(schema(), vec![column(), column()]).unwrap()).unwrap();
    let mut transaction = db.begin();
    transaction.append(id, writer.finish().unwrap()).unwrap();
    transaction.commit().unwrap();
    compaction.finish(false).unwrap();
    assert_eq!(rows(&db).len(), 8_401);
}
