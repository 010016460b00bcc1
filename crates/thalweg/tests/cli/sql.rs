//! `thalweg sql`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::{Place, Ran, command};

fn csv(sql: &str) -> Ran {
    Place::new().run(&["sql", ":memory:", "--format", "csv", "-c", sql])
}

#[test]
fn csv_is_a_header_and_rows_and_nothing_else() {
    csv("SELECT 1 AS a, 'x' AS b").prints("a,b\n1,x\n");
    csv("SELECT 1 AS a WHERE false").prints("a\n");
    csv("SELECT 'a,b' AS \"x,y\", 'say \"hi\"' AS q, 'two\nlines' AS l")
        .prints("\"x,y\",q,l\n\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\"\n");
}

#[test]
fn csv_tells_null_from_the_empty_string() {
    csv("SELECT * FROM (VALUES (1, ''), (2, NULL), (3, 'x')) t(n, s) ORDER BY n")
        .prints("n,s\n1,\"\"\n2,\n3,x\n");
}

#[test]
fn csv_values_are_exact() {
    csv("SELECT CAST(1.10 AS decimal(12,2)) AS d, DATE '2024-02-29' AS day, \
         TIMESTAMP '2024-02-29 12:30:00' AS t, true AS b")
    .prints("d,day,t,b\n1.10,2024-02-29,2024-02-29 12:30:00,true\n");
}

#[test]
fn several_statements_run_in_order_in_one_session() {
    let place = Place::new();
    place
        .run(&[
            "sql",
            ":memory:",
            "--format",
            "csv",
            "-c",
            "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)",
            "-c",
            "SELECT count(*) AS n FROM t; SELECT sum(n) AS s FROM t",
        ])
        .prints("n\n2\ns\n3\n");
}

#[test]
fn tables_are_the_default_and_statements_without_rows_are_confirmed() {
    let place = Place::new();
    let ran = place.run(&[
        "sql",
        ":memory:",
        "-c",
        "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (20); SELECT n FROM t ORDER BY n",
    ]);
    let ran = ran.succeeds();
    assert!(ran.out.contains("INSERT: 2 rows\n"), "{}", ran.out);
    assert!(
        ran.out.ends_with("┌────┐\n│  n │\n├────┤\n│  1 │\n│ 20 │\n└────┘\n2 rows\n"),
        "{}",
        ran.out
    );
}

#[test]
fn json_is_one_object_per_line() {
    let place = Place::new();
    let sql = "SELECT * FROM (VALUES (1, 'a\"b'), (2, NULL)) t(n, s) ORDER BY n";
    let ran = place.run(&["sql", ":memory:", "--format", "json", "-c", sql]).succeeds();
    let rows: Vec<serde_json::Value> =
        ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(
        rows,
        [serde_json::json!({"n": 1, "s": "a\"b"}), serde_json::json!({"n": 2, "s": null})]
    );
}

#[test]
fn a_script_stops_at_its_first_error_and_says_where() {
    let place = Place::new();
    place.write(
        "script.sql",
        "SELECT 1 AS a;\n-- the next one fails\nSELECT * FROM nowhere;\nSELECT 2 AS b;\n",
    );
    let ran = place.run(&["sql", ":memory:", "--format", "csv", "-f", "script.sql"]);
    let ran = ran.fails(1, &["nowhere"]);
    assert_eq!(ran.out, "a\n1\n");
}

#[test]
fn statements_may_come_from_standard_input() {
    let place = Place::new();
    let args = ["sql", ":memory:", "--format", "csv"];
    place.run_with(&args, "SELECT 1 AS a; SELECT 2 AS b;").prints("a\n1\nb\n2\n");
    place.run_with(&[&args[..], &["-f", "-"]].concat(), "SELECT 3 AS c").prints("c\n3\n");
    place.run_with(&args, "").prints("");
}

#[test]
fn malformed_sql_is_the_users_error() {
    for sql in ["SELEC 1", "SELECT", "SELECT ';", "SELECT * FROM", "SELECT nosuch"] {
        let ran = csv(sql).fails(1, &[]);
        assert_eq!(ran.out, "", "{sql}");
    }
}

#[test]
fn a_missing_database_is_not_created() {
    let place = Place::new();
    place.run(&["sql", "no.db", "-c", "SELECT 1"]).fails(1, &["no.db", "hint: ", "thalweg load"]);
    assert!(!place.path("no.db").exists());
    std::fs::create_dir(place.path("empty")).unwrap();
    place.run(&["sql", "empty", "-c", "SELECT 1"]).fails(1, &["empty"]);
    place.write("file.db", "no database");
    place.run(&["sql", "file.db", "-c", "SELECT 1"]).fails(1, &["file.db"]);
    place.write("other/notes.txt", "no database either");
    place.run(&["sql", "other", "-c", "SELECT 1"]).fails(1, &["other"]);
}

#[test]
fn a_database_made_on_request_keeps_its_tables() {
    let place = Place::new();
    let fill = "CREATE TABLE t (n int); INSERT INTO t VALUES (7)";
    place.run(&["sql", "new.db", "--create", "-c", fill]).succeeds();
    place.run(&["sql", "new.db", "--format", "csv", "-c", "SELECT n FROM t"]).prints("n\n7\n");
}

#[test]
fn a_missing_script_is_named() {
    let place = Place::new();
    place.run(&["sql", ":memory:", "-f", "no.sql"]).fails(1, &["no.sql"]);
}

#[test]
fn output_goes_to_a_file_only_when_all_went_well() {
    let place = Place::new();
    let to_file =
        |sql| place.run(&["sql", ":memory:", "--format", "csv", "-o", "out.csv", "-c", sql]);
    to_file("SELECT 1 AS a").prints("");
    assert_eq!(std::fs::read_to_string(place.path("out.csv")).unwrap(), "a\n1\n");
    to_file("SELECT 2 AS b; SELECT * FROM nowhere").fails(1, &[]);
    assert_eq!(std::fs::read_to_string(place.path("out.csv")).unwrap(), "a\n1\n");
    let left = std::fs::read_dir(place.folder.path()).unwrap().count();
    assert_eq!(left, 1, "no partial file stays");
    place
        .run(&["sql", ":memory:", "-o", "no/folder/out.csv", "-c", "SELECT 1"])
        .fails(1, &["no/folder/out.csv"]);
}

#[test]
fn parquet_and_arrow_hold_one_result() {
    let place = Place::new();
    for format in ["parquet", "arrow"] {
        let run =
            |sql| place.run(&["sql", ":memory:", "--format", format, "-o", format, "-c", sql]);
        run("SELECT 1 AS a; SELECT 2 AS b").fails(1, &["one statement, not 2"]);
        run("SELECT 1 AS a").prints("");
    }
    let bytes = std::fs::read(place.path("parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    assert!(std::fs::read(place.path("arrow")).unwrap().starts_with(b"ARROW1"));
}

#[test]
fn timing_is_on_stderr() {
    let place = Place::new();
    let ran = place.run(&["sql", ":memory:", "--format", "csv", "--timing", "-c", "SELECT 1 AS a"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "a\n1\n"));
    assert!(ran.err.starts_with("time: "), "{}", ran.err);
}

#[test]
fn policies_and_threads_can_be_chosen() {
    let place = Place::new();
    for policy in ["fair", "small_first", "round_robin", "fifo"] {
        place
            .run(&[
                "sql",
                ":memory:",
                "--policy",
                policy,
                "--threads",
                "1",
                "--format",
                "csv",
                "-c",
                "SELECT 1 AS a",
            ])
            .prints("a\n1\n");
    }
    place
        .run(&["sql", ":memory:", "--policy", "best", "-c", "SELECT 1"])
        .fails(2, &["small_first"]);
    place.run(&["sql", ":memory:", "--threads", "0", "-c", "SELECT 1"]).fails(2, &["--threads"]);
}

/// A result far larger than a pipe holds, whose reader leaves after the first line.
#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = Place::new();
    for format in ["csv", "table", "json"] {
        let sql = "SELECT value FROM generate_series(1, 3000000)";
        let mut child = command(place.folder.path())
            .args(["sql", ":memory:", "--format", format, "-c", sql])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ran = Ran::new(&[format], child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{format}");
    }
}

/// Minutes of work, if nobody stops it.
const LONG: &str = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 10000000) b \
                    WHERE a.value * b.value % 7 = 3";

#[test]
fn a_timeout_cancels() {
    let place = Place::new();
    let start = Instant::now();
    place
        .run(&["sql", ":memory:", "--timeout", "0.3", "-c", LONG])
        .fails(130, &["300.0 ms", "--timeout"]);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn ctrl_c_cancels() {
    let place = Place::new();
    let child = command(place.folder.path())
        .args(["sql", ":memory:", "-c", LONG])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ran = Ran::new(&["sql"], child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (130, "error: cancelled\n"));
}
