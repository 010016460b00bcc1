use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema};
use thalweg_base::Kind;

use super::*;
use crate::database::Options;

fn numbers() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![Field::new("n", DataType::Int64, true)]))
}

fn extents(db: &Database, rows: std::ops::Range<i64>) -> Vec<NewExtent> {
    let mut writer = db.extent_writer(numbers(), &[]).unwrap();
    let batch =
        RecordBatch::try_new(numbers(), vec![Arc::new(Int64Array::from_iter(rows))]).unwrap();
    writer.push(&batch).unwrap();
    writer.finish().unwrap()
}

/// A database with table `t` of three rows.
fn with_table() -> (Database, TableId) {
    let db = Database::memory(Options::default()).unwrap();
    let mut tx = db.begin();
    let id = tx.create_table("public", "t", numbers(), vec![]).unwrap();
    tx.append(id, extents(&db, 0..3)).unwrap();
    tx.commit().unwrap();
    (db, id)
}

fn rows(db: &Database) -> u64 {
    db.snapshot().table("public", "t").unwrap().rows()
}

#[test]
fn a_transaction_sees_its_own_changes_and_nobody_else_does() {
    let (db, id) = with_table();
    let mut tx = db.begin();
    tx.append(id, extents(&db, 3..5)).unwrap();
    assert_eq!(tx.snapshot().table("public", "t").unwrap().rows(), 5);
    assert_eq!(tx.base().table("public", "t").unwrap().rows(), 3);
    assert_eq!(rows(&db), 3);
    let committed = tx.commit().unwrap();
    assert_eq!((committed.id, rows(&db)), (SnapshotId(2), 5));
}

#[test]
fn appends_do_not_conflict_with_appends() {
    let (db, id) = with_table();
    let (mut a, mut b) = (db.begin(), db.begin());
    a.append(id, extents(&db, 0..10)).unwrap();
    b.append(id, extents(&db, 0..100)).unwrap();
    b.commit().unwrap();
    a.commit().unwrap();
    assert_eq!(rows(&db), 113);
}

#[test]
fn writing_to_what_was_dropped_or_replaced_conflicts() {
    for replaced in [false, true] {
        let (db, id) = with_table();
        let mut late = db.begin();
        late.append(id, extents(&db, 0..10)).unwrap();
        let mut first = db.begin();
        if replaced {
            first.replace(id, extents(&db, 0..1)).unwrap();
        } else {
            first.drop_table("public", "t").unwrap();
        }
        first.commit().unwrap();
        let e = late.commit().unwrap_err();
        assert_eq!(e.kind(), Kind::Conflict, "{e:?}");
        assert!(e.message().contains("\"t\""), "{e:?}");
    }
}

#[test]
fn replacing_what_was_changed_conflicts() {
    let (db, id) = with_table();
    let mut late = db.begin();
    late.replace(id, extents(&db, 0..1)).unwrap();
    let mut first = db.begin();
    first.append(id, extents(&db, 0..1)).unwrap();
    first.commit().unwrap();
    assert_eq!(late.commit().unwrap_err().kind(), Kind::Conflict);
    assert_eq!(rows(&db), 4);
}

#[test]
fn a_recreated_table_is_another_table() {
    let (db, id) = with_table();
    let mut late = db.begin();
    late.append(id, extents(&db, 0..10)).unwrap();
    let mut first = db.begin();
    first.drop_table("public", "t").unwrap();
    let new = first.create_table("public", "t", numbers(), vec![]).unwrap();
    first.append(new, extents(&db, 0..1)).unwrap();
    first.commit().unwrap();
    assert_ne!(id, new);
    assert_eq!(late.commit().unwrap_err().kind(), Kind::Conflict);
    assert_eq!(rows(&db), 1);
}

#[test]
fn one_transaction_may_replace_and_append() {
    let (db, id) = with_table();
    let mut tx = db.begin();
    tx.append(id, extents(&db, 0..7)).unwrap();
    tx.replace(id, extents(&db, 0..2)).unwrap();
    tx.append(id, extents(&db, 0..4)).unwrap();
    tx.commit().unwrap();
    assert_eq!(rows(&db), 6);
}

#[test]
fn a_name_taken_meanwhile_conflicts_and_a_name_taken_before_is_the_users_mistake() {
    let (db, _) = with_table();
    assert_eq!(
        db.begin().create_view("public", "t", "SELECT 1", true).unwrap_err().kind(),
        Kind::User
    );
    let (mut a, mut b) = (db.begin(), db.begin());
    a.create_table("public", "u", numbers(), vec![]).unwrap();
    b.create_view("public", "u", "SELECT 1", false).unwrap();
    b.commit().unwrap();
    let e = a.commit().unwrap_err();
    assert_eq!(e.kind(), Kind::Conflict);
    assert!(e.message().contains("view \"u\" already exists"), "{e}");
}

#[test]
fn a_failed_commit_changes_nothing() {
    let (db, id) = with_table();
    let mut late = db.begin();
    late.create_schema("s", false).unwrap();
    late.replace(id, extents(&db, 0..1)).unwrap();
    let mut first = db.begin();
    first.append(id, extents(&db, 0..1)).unwrap();
    let before = first.commit().unwrap();
    late.commit().unwrap_err();
    assert!(Arc::ptr_eq(&before, &db.snapshot()));
    assert!(!db.snapshot().schemas.contains_key("s"));
}

#[test]
fn schemas_views_and_externals() {
    let (db, _) = with_table();
    let mut tx = db.begin();
    tx.create_schema("S", false).unwrap();
    tx.create_schema("S", true).unwrap();
    assert_eq!(tx.create_schema("S", false).unwrap_err().kind(), Kind::User);
    tx.create_view("S", "v", "SELECT 1", false).unwrap();
    tx.create_view("S", "v", "SELECT 2", true).unwrap();
    tx.create_external("S", "e", "CREATE EXTERNAL TABLE e …").unwrap();
    assert!(tx.create_view("S", "v", "SELECT 3", false).is_err());
    assert!(tx.create_table("nowhere", "x", numbers(), vec![]).is_err());
    assert!(tx.drop_schema("S", false, false).unwrap_err().message().contains("not empty"));
    tx.drop_schema("absent", true, false).unwrap();
    assert!(tx.drop_schema("absent", false, false).is_err());
    assert!(tx.drop_schema("public", false, true).is_err());
    let snapshot = tx.commit().unwrap();
    assert_eq!(snapshot.schemas["S"].views["v"].sql, "SELECT 2");
    let mut tx = db.begin();
    assert!(tx.drop_table("S", "v").unwrap_err().message().contains("is a view"));
    tx.drop_schema("S", false, true).unwrap();
    assert_eq!(tx.commit().unwrap().schemas.len(), 1);
}

#[test]
fn bad_tables_are_refused() {
    let db = Database::memory(Options::default()).unwrap();
    let mut tx = db.begin();
    let schema = |fields: Vec<Field>| Arc::new(ArrowSchema::new(fields));
    let int = |name: &str| Field::new(name, DataType::Int64, true);
    let mut refuse = |name: &str, fields: Vec<Field>, cluster_by: Vec<usize>, text: &str| {
        let e = tx.create_table("public", name, schema(fields), cluster_by).unwrap_err();
        assert!(e.message().contains(text), "{e:?}");
    };
    refuse("", vec![int("a")], vec![], "needs a name");
    refuse(&"n".repeat(300), vec![int("a")], vec![], "300 bytes");
    refuse("t", vec![], vec![], "no columns");
    refuse("t", vec![int("a"), int("a")], vec![], "two columns named \"a\"");
    refuse("t", vec![int("a")], vec![0, 0], "twice");
    refuse("t", (0..5000).map(|i| int(&format!("c{i}"))).collect(), vec![], "4096");
    let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    refuse("t", vec![Field::new("i", interval, true)], vec![], "Interval");
    assert!(tx.is_empty());
}

#[test]
fn names_keep_their_case() {
    let (db, _) = with_table();
    let mut tx = db.begin();
    tx.create_table("public", "T", numbers(), vec![]).unwrap();
    let snapshot = tx.commit().unwrap();
    assert_eq!(snapshot.schemas[PUBLIC].tables.keys().collect::<Vec<_>>(), ["T", "t"]);
}

#[test]
fn rows_come_back_in_the_order_of_their_commits() {
    let (db, id) = with_table();
    for part in 1..5 {
        let mut tx = db.begin();
        tx.append(id, extents(&db, part * 3..part * 3 + 3)).unwrap();
        tx.commit().unwrap();
    }
    let snapshot = db.snapshot();
    let table = snapshot.table("public", "t").unwrap();
    let mut seen = Vec::new();
    for i in 0..table.chunks() {
        let chunk = table.chunk(i);
        assert_eq!(chunk.first_row, seen.len() as u64);
        let segment = db.read(&chunk.extent, chunk.chunk, &[0]).unwrap().remove(0);
        seen.extend(
            db.decode(segment).unwrap().as_primitive::<Int64Type>().values().iter().copied(),
        );
    }
    assert_eq!(seen, (0..15).collect::<Vec<_>>());
}
