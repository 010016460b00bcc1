use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema};
use thalweg_base::Kind;

use super::*;
use crate::database::Options;
use crate::extent::Layout;

fn numbers() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![Field::new("n", DataType::Int64, true)]))
}

fn extents(db: &Database, rows: std::ops::Range<i64>) -> Vec<NewExtent> {
    let mut writer = db.extent_writer(Layout::of_new(numbers(), &TableSpec::default()));
    let batch =
        RecordBatch::try_new(numbers(), vec![Arc::new(Int64Array::from_iter(rows))]).unwrap();
    writer.push(&batch).unwrap();
    writer.finish().unwrap()
}

/// A database with table `t` of three rows.
fn with_table() -> (Database, TableId) {
    let db = Database::memory(Options::default()).unwrap();
    let mut tx = db.begin();
    let id = tx.create_table("public", "t", numbers(), TableSpec::default()).unwrap();
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
fn writing_to_what_was_dropped_conflicts() {
    let (db, id) = with_table();
    let mut late = db.begin();
    late.append(id, extents(&db, 0..10)).unwrap();
    let mut first = db.begin();
    first.drop_table("public", "t").unwrap();
    first.commit().unwrap();
    let e = late.commit().unwrap_err();
    assert_eq!(e.kind(), Kind::Conflict, "{e:?}");
    assert!(e.message().contains("\"t\""), "{e:?}");
}

#[test]
fn rows_added_while_others_are_replaced_stay() {
    let (db, id) = with_table();
    let mut late = db.begin();
    late.append(id, extents(&db, 0..10)).unwrap();
    let mut first = db.begin();
    first.truncate(id).unwrap();
    first.commit().unwrap();
    late.commit().unwrap();
    assert_eq!(rows(&db), 10);
}

fn set(ids: &[u64]) -> RowSet {
    let mut rows = RowSet::default();
    assert_eq!(rows.insert(ids), ids.len() as u64);
    rows
}

fn table(tx: &Transaction) -> Arc<Table> {
    tx.snapshot().table("public", "t").unwrap().clone()
}

/// Live values of `t`, in order.
fn values(db: &Database, snapshot: &Snapshot) -> Vec<i64> {
    let contents = snapshot.table("public", "t").unwrap().contents().unwrap();
    let mut seen = Vec::new();
    for i in 0..contents.chunks() {
        let chunk = contents.chunk(i);
        let array = db.read(&chunk, &[0]).unwrap().remove(0).decode_plain().unwrap();
        let array = array.as_primitive::<Int64Type>();
        let live = chunk.live();
        assert_eq!(live.as_ref().map_or(chunk.rows, |l| l.count_set_bits()), chunk.live_rows());
        let is_live = |row: &usize| live.as_ref().is_none_or(|l| l.value(*row));
        seen.extend((0..chunk.rows).filter(is_live).map(|row| array.value(row)));
    }
    assert_eq!(seen.len() as u64, contents.rows());
    seen
}

#[test]
fn deleted_rows_are_gone_and_others_stay() {
    let (db, id) = with_table();
    let mut tx = db.begin();
    tx.append(id, extents(&db, 10..15)).unwrap();
    let version = table(&tx);
    assert_eq!(tx.delete(&version, &set(&[1, 1 << 32, (1 << 32) + 4])).unwrap(), 3);
    assert_eq!(values(&db, tx.snapshot()), [0, 2, 11, 12, 13]);
    let snapshot = tx.commit().unwrap();
    assert_eq!(values(&db, &snapshot), [0, 2, 11, 12, 13]);
    let contents = snapshot.table("public", "t").unwrap().contents().unwrap();
    assert!(!contents.column_statistics(0).max_exact);
    assert_eq!((contents.rows(), contents.deleted_rows()), (5, 3));
    // The last rows of an extent take it along.
    let mut tx = db.begin();
    let version = table(&tx);
    tx.delete(&version, &set(&[0, 2])).unwrap();
    assert_eq!(tx.commit().unwrap().table("public", "t").unwrap().extents.len(), 1);
    let mut tx = db.begin();
    let version = table(&tx);
    assert_eq!(tx.delete(&version, &set(&[7])).unwrap_err().kind(), Kind::Internal);
}

#[test]
fn two_deletes_conflict_only_over_the_same_row() {
    for (other, conflict) in [(0, false), (1, true)] {
        let (db, _) = with_table();
        let (mut a, mut b) = (db.begin(), db.begin());
        let version = table(&a);
        a.delete(&version, &set(&[1])).unwrap();
        b.delete(&version, &set(&[other])).unwrap();
        a.commit().unwrap();
        match b.commit() {
            Ok(snapshot) => assert_eq!((conflict, values(&db, &snapshot)), (false, vec![2])),
            Err(e) => assert_eq!((conflict, e.kind()), (true, Kind::Conflict)),
        }
    }
}

#[test]
fn deleting_from_a_rewritten_extent_conflicts_and_so_does_rewriting_what_was_deleted_from() {
    for delete_first in [false, true] {
        let (db, id) = with_table();
        let (mut delete, mut rewrite) = (db.begin(), db.begin());
        let version = table(&delete);
        delete.delete(&version, &set(&[1])).unwrap();
        rewrite.rewrite(id, version.extents.clone(), extents(&db, 0..3)).unwrap();
        let (first, second) = if delete_first { (delete, rewrite) } else { (rewrite, delete) };
        first.commit().unwrap();
        let e = second.commit().unwrap_err();
        assert_eq!(e.kind(), Kind::Conflict);
        assert!(e.message().contains("by a transaction that committed first"), "{e}");
    }
}

#[test]
fn columns_come_and_go_without_touching_the_extents() {
    let (db, id) = with_table();
    let mut tx = db.begin();
    let initial: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let field = |name: &str| Field::new(name, DataType::Int64, true);
    tx.add_column(id, field("m").with_nullable(false), Some(initial), Some("7".into())).unwrap();
    tx.add_column(id, field("o"), None, None).unwrap();
    assert!(tx.add_column(id, field("o"), None, None).unwrap_err().message().contains("already"));
    let e = tx.add_column(id, field("p").with_nullable(false), None, None).unwrap_err();
    assert!(e.message().contains("NOT NULL") && e.hint_text().is_some(), "{e:?}");
    tx.rename_column(id, "n", "first").unwrap();
    tx.drop_column(id, "o").unwrap();
    tx.add_column(id, field("o"), None, None).unwrap();
    let table = tx.commit().unwrap().table("public", "t").unwrap().clone();
    let names: Vec<_> = table.arrow_schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["first", "m", "o"]);
    assert_eq!(table.columns.iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1, 3]);
    let contents = table.contents().unwrap();
    let chunk = contents.chunk(0);
    let constant = |c| db.cached(&chunk, c).unwrap();
    assert_eq!(constant(1).as_primitive::<Int64Type>().values(), &[7, 7, 7]);
    assert_eq!(constant(2).null_count(), 3);
    assert_eq!(contents.column_statistics(1).nulls, 0);
    assert_eq!(contents.column_statistics(2).nulls, 3);
    assert_eq!(contents.chunk_statistics(1).maxs.as_primitive::<Int64Type>().value(0), 7);

    let mut tx = db.begin();
    tx.drop_column(id, "m").unwrap();
    tx.drop_column(id, "o").unwrap();
    assert!(tx.drop_column(id, "first").unwrap_err().message().contains("only one"));
    assert!(tx.drop_column(id, "m").unwrap_err().message().contains("does not exist"));
    let snapshot = tx.commit().unwrap();
    assert_eq!(values(&db, &snapshot), [0, 1, 2]);
}

#[test]
fn altering_what_was_altered_conflicts_and_appending_does_not() {
    let (db, id) = with_table();
    let (mut append, mut alter, mut late) = (db.begin(), db.begin(), db.begin());
    append.append(id, extents(&db, 3..5)).unwrap();
    alter.rename_column(id, "n", "x").unwrap();
    late.rename_table(id, "u").unwrap();
    alter.commit().unwrap();
    let snapshot = append.commit().unwrap();
    assert_eq!(values(&db, &snapshot), [0, 1, 2, 3, 4]);
    assert_eq!(late.commit().unwrap_err().kind(), Kind::Conflict);
}

#[test]
fn names_can_be_exchanged_in_one_transaction() {
    let (db, t) = with_table();
    let mut tx = db.begin();
    let u = tx.create_table("public", "u", numbers(), TableSpec::default()).unwrap();
    tx.commit().unwrap();
    let mut tx = db.begin();
    tx.rename_table(t, "x").unwrap();
    tx.rename_table(u, "t").unwrap();
    tx.rename_table(t, "u").unwrap();
    let snapshot = tx.commit().unwrap();
    assert_eq!(snapshot.table("public", "u").unwrap().id, t);
    assert_eq!(snapshot.table("public", "t").unwrap().rows(), 0);
}

#[test]
fn a_clone_is_a_savepoint() {
    let (db, id) = with_table();
    let mut tx = db.begin();
    tx.append(id, extents(&db, 3..4)).unwrap();
    let savepoint = tx.clone();
    tx.drop_table("public", "t").unwrap();
    drop(tx);
    savepoint.commit().unwrap();
    assert_eq!(rows(&db), 4);
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
    let new = first.create_table("public", "t", numbers(), TableSpec::default()).unwrap();
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
    a.create_table("public", "u", numbers(), TableSpec::default()).unwrap();
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
    assert!(tx.create_table("nowhere", "x", numbers(), TableSpec::default()).is_err());
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
        let spec = TableSpec { cluster_by, ..TableSpec::default() };
        let e = tx.create_table("public", name, schema(fields), spec).unwrap_err();
        assert!(e.message().contains(text), "{e:?}");
    };
    refuse("", vec![int("a")], vec![], "needs a name");
    refuse(&"n".repeat(300), vec![int("a")], vec![], "300 bytes");
    refuse("t", vec![], vec![], "no columns");
    refuse("t", vec![int("a"), int("a")], vec![], "specified more than once");
    refuse("t", vec![int("a")], vec![0, 0], "twice");
    refuse("t", (0..5000).map(|i| int(&format!("c{i}"))).collect(), vec![], "4096");
    let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    refuse("t", vec![Field::new("i", interval.clone(), true)], vec![0], "cannot be clustered");
    let list = DataType::new_list(interval, true);
    refuse("t", vec![Field::new("i", list, true)], vec![], "Interval");
    assert!(tx.is_empty());
}

#[test]
fn names_keep_their_case() {
    let (db, _) = with_table();
    let mut tx = db.begin();
    tx.create_table("public", "T", numbers(), TableSpec::default()).unwrap();
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
    assert_eq!(values(&db, &db.snapshot()), (0..15).collect::<Vec<_>>());
}

#[test]
fn what_belongs_to_a_relation_goes_with_it() {
    let db = Database::memory(Options::default()).unwrap();
    let mut tx = db.begin();
    tx.mark_new(Some(("owner".into(), "7".into())));
    let id = tx.create_table("public", "t", numbers(), TableSpec::default()).unwrap();
    tx.create_schema("s", false).unwrap();
    tx.create_view("s", "v", "SELECT 1", false).unwrap();
    tx.set_property(&format!("{}grant", of_relation("public", "t")), Some("x".into())).unwrap();
    tx.mark_new(None);
    tx.create_view("s", "w", "SELECT 1", false).unwrap();
    tx.create_view("s", "v", "SELECT 2", true).unwrap();
    tx.commit().unwrap();
    let names = |db: &Database| db.snapshot().properties.keys().cloned().collect::<Vec<_>>();
    let all = ["of \"public\".\"t\" grant", "of \"public\".\"t\" owner", "of \"s\" owner"];
    assert_eq!(names(&db), [&all[..], &["of \"s\".\"v\" owner"]].concat());
    let mut tx = db.begin();
    tx.rename_table(id, "u").unwrap();
    tx.mark_new(Some(("owner".into(), "8".into())));
    tx.recreate_table("public", "u", numbers(), TableSpec::default()).unwrap();
    tx.drop_schema("s", false, true).unwrap();
    tx.commit().unwrap();
    assert_eq!(names(&db), ["of \"public\".\"u\" grant", "of \"public\".\"u\" owner"]);
    assert_eq!(db.snapshot().properties["of \"public\".\"u\" owner"], "7");
    let mut tx = db.begin();
    tx.drop_table("public", "u").unwrap();
    tx.commit().unwrap();
    assert!(names(&db).is_empty());
}

#[test]
fn neither_of_two_changes_of_a_property_is_lost() {
    let (db, _) = with_table();
    let name = format!("{}grant", of_relation("public", "t"));
    let set = |value: &str| {
        let mut tx = db.begin();
        tx.set_property(&name, Some(value.into())).unwrap();
        tx
    };
    let (a, b) = (set("a"), set("b"));
    a.commit().unwrap();
    assert_eq!(b.commit().unwrap_err().kind(), Kind::Conflict);
    assert_eq!(db.snapshot().properties[&name], "a");
    // Nor is one left of what was dropped meanwhile.
    let c = set("c");
    let mut tx = db.begin();
    tx.drop_table("public", "t").unwrap();
    tx.commit().unwrap();
    assert_eq!(c.commit().unwrap_err().kind(), Kind::Conflict);
    let mut tx = db.begin();
    tx.set_property(&name, Some("d".into())).unwrap_err();
}
