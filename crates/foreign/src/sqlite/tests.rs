use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use rusqlite::Connection;
use tempfile::TempDir;

use super::Sqlite;
use crate::{Foreign, Stop, Table, Wanted};

fn made(sql: &str) -> (TempDir, Sqlite) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let sqlite = Sqlite::open(&path, false).unwrap();
    (folder, sqlite)
}

fn table(sqlite: &Sqlite, name: &str) -> Table {
    sqlite.table("main", name, &Stop::default()).unwrap().unwrap()
}

fn all(sqlite: &Sqlite, table: &Table) -> thalweg_base::Result<Vec<RecordBatch>> {
    let wanted =
        Wanted { columns: (0..table.columns.fields().len()).collect(), ..Wanted::default() };
    let mut batches = vec![];
    sqlite.scan(table, &wanted, &Stop::default(), &mut |batch| {
        batches.push(batch);
        true
    })?;
    Ok(batches)
}

#[test]
fn declared_types_and_values_that_decide() {
    let (_folder, sqlite) = made(
        "CREATE TABLE \"T x\" (i INTEGER PRIMARY KEY, t VARCHAR(3), r DECIMAL(5,2), b BOOLEAN, d DATE,
             s DATETIME, c TIME, y BLOB, n, m JSON, z UUID, g INT AS (i * 2));
         INSERT INTO \"T x\" VALUES (1, 'long', 1.5, 1, '2024-01-01', '2024-01-01 10:00:00.5', '10:30',
             x'00ff', 7, '[1]', 7), (2, NULL, 2, 0, NULL, '2024-01-01T10:00', NULL, NULL, 8, 5, 1.5);",
    );
    let found = table(&sqlite, "t X");
    let types: Vec<&DataType> = found.columns.fields().iter().map(|f| f.data_type()).collect();
    let micros = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let nanos = DataType::Time64(arrow::datatypes::TimeUnit::Nanosecond);
    assert_eq!(
        types,
        [
            &DataType::Int64,
            &DataType::Utf8View,
            &DataType::Float64,
            &DataType::Boolean,
            &DataType::Date32,
            &micros,
            &nanos,
            &DataType::Binary,
            &DataType::Int64,
            &DataType::Utf8View,
            &DataType::Float64,
            &DataType::Int64,
        ]
    );
    let batches = all(&sqlite, &found).unwrap();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].column(9).as_string_view().value(1), "5");
    assert_eq!(batches[0].column(11).as_primitive::<Int64Type>().values(), &[2, 4]);
    assert!(batches[0].column(4).is_null(1));
    // Nothing but the rows.
    let wanted = Wanted::default();
    let mut rows = 0;
    let count = &mut |batch: RecordBatch| {
        rows += batch.num_rows();
        true
    };
    sqlite.scan(&found, &wanted, &Stop::default(), count).unwrap();
    assert_eq!(rows, 2);
}

#[test]
fn contradictions_are_errors() {
    for (declared, value, message) in [
        (
            "INTEGER",
            "'abc'",
            "table \"t\", column \"a\", row 2: the text 'abc' is not a whole number",
        ),
        ("INTEGER", "1.5", "row 2: the number 1.5 is not a whole number"),
        ("DATE", "'01/02/2024'", "the text '01/02/2024' is not a day such as '2024-12-31'"),
        ("DATE", "1700000000", "the whole number 1700000000 is not a day"),
        ("DATETIME", "'2024-01-01 10:00+02:00'", "without a zone"),
        ("BOOLEAN", "2", "the whole number 2 is not 0 or 1"),
        ("TEXT", "x'00'", "of bytes is not text"),
        ("TEXT", "CAST(x'ff' AS TEXT)", "which is not UTF-8"),
        ("NUMERIC", "9007199254740993", "is not a number that a double holds"),
        ("BLOB", "'text'", "the text 'text' is not bytes"),
    ] {
        let (_folder, sqlite) =
            made(&format!("CREATE TABLE t (a {declared}); INSERT INTO t VALUES (NULL), ({value})"));
        let error = all(&sqlite, &table(&sqlite, "t")).unwrap_err();
        assert!(error.message().contains(message), "{declared}: {error:#}");
        assert!(error.hint_text().is_some());
    }
}

#[test]
fn a_scan_that_nobody_wants_ends() {
    let (_folder, sqlite) = made(
        "CREATE TABLE t (a INTEGER);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
             INSERT INTO t SELECT i FROM n;
         CREATE VIEW v AS SELECT count(*) AS n FROM t a, t b, t c;",
    );
    let found = table(&sqlite, "t");
    assert_eq!(found.rows, Some(50_000));
    let wanted = Wanted { columns: vec![0], ..Wanted::default() };
    let mut batches = 0;
    let some = &mut |_| {
        batches += 1;
        batches < 2
    };
    sqlite.scan(&found, &wanted, &Stop::default(), some).unwrap();
    assert_eq!(batches, 2);
    // What would take days: its column has no declared type, so that finding it out takes as long.
    let stop = Stop::default();
    let sqlite = Arc::new(sqlite);
    let (other, asked) = (Arc::clone(&sqlite), stop.clone());
    let thread = std::thread::spawn(move || other.table("main", "v", &asked).map(|_| ()));
    std::thread::sleep(std::time::Duration::from_millis(50));
    stop.ask();
    let error = thread.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), thalweg_base::Kind::Cancelled);
}

#[test]
fn what_is_no_database() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    std::fs::write(&path, "SQLite forma").unwrap();
    let error = Sqlite::open(&path, false).err().unwrap();
    assert!(error.message().ends_with("is no SQLite database"), "{error}");
    let mut bytes = b"SQLite format 3\0".to_vec();
    bytes.extend([7; 5000]);
    std::fs::write(&path, bytes).unwrap();
    assert!(Sqlite::open(&path, false).is_err());
    assert!(Sqlite::open(&folder.path().join("none"), false).is_err());
}
