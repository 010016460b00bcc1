//! Backups of a database that others write to, and what becomes of them.

use std::process::Stdio;

use crate::{Place, command};

/// Of the process that writes.
const ROUNDS: usize = 60;
const BACKUPS_MIN: usize = 4;

/// Whether a table and what was written of it in the same transactions agree.
const CHECK: &str = "SELECT (SELECT count(*) FROM t) = (SELECT r FROM sums) AS counts, \
                     (SELECT sum(n) FROM t) = (SELECT s FROM sums) AS totals";

#[test]
fn a_backup_is_restored_as_it_was() {
    let place = Place::new();
    place.run(&["sql", "shop.db", "--create", "-c", "CREATE TABLE t AS SELECT 1 AS n"]).succeeds();
    let made = place.run(&["backup", "shop.db", "archive"]).succeeds();
    assert!(made.out.contains("backup of snapshot 1: 1 tables in 1 extents"), "{}", made.out);
    place.run(&["sql", "shop.db", "-c", "INSERT INTO t VALUES (2)"]).succeeds();
    place.run(&["backup", "shop.db", "archive", "--verify"]).succeeds();
    let list = place.run(&["restore", "archive", "--list"]).succeeds().out;
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.starts_with("snapshot 1  20"), "{list}");
    place.run(&["restore", "archive", "--check"]).succeeds();
    place.run(&["restore", "archive", "new.db"]).succeeds();
    place.run(&["restore", "archive", "old.db", "--snapshot", "1", "-q"]).prints("");
    let rows = |db| ["sql", db, "-c", "SELECT n FROM t ORDER BY n", "--format", "csv"];
    place.run(&rows("new.db")).prints("n\n1\n2\n");
    place.run(&rows("old.db")).prints("n\n1\n");
    place.run(&["check", "-q", "new.db", "--decode"]).prints("");

    place.run(&["restore", "archive", "new.db"]).fails(1, &["there is a database at", "new.db"]);
    place
        .run(&["restore", "archive", "x", "--snapshot", "9"])
        .fails(1, &["snapshot 9", "snapshot 2"]);
    place.run(&["restore", "nowhere", "x"]).fails(1, &["there is no backup at", "nowhere"]);
    place
        .run(&["backup", "nosuch.db", "archive"])
        .fails(1, &["there is no database \"nosuch.db\""]);
    place.run(&["backup", ":memory:", "archive"]).fails(1, &[":memory:"]);
    place.run(&["backup", "shop.db", "new.db"]).fails(1, &["is a database"]);
}

#[test]
fn backups_of_a_database_in_use_are_snapshots() {
    let place = Place::new();
    let setup = "SET thalweg.retention_ms = 0; \
                 CREATE TABLE t AS SELECT value AS n FROM generate_series(1, 100); \
                 CREATE TABLE sums AS SELECT count(*) AS r, sum(n) AS s FROM t;";
    place.run(&["sql", "shop.db", "--create", "-c", setup]).succeeds();
    // Loads, deletes, compacts and sweeps; after each transaction the sums are right.
    let mut script = String::new();
    for round in 1..=ROUNDS {
        let (from, to, part) = (round * 1000, round * 1000 + 999, round % 7);
        script.push_str(&format!(
            "BEGIN; INSERT INTO t SELECT value FROM generate_series({from}, {to}); \
             DELETE FROM t WHERE n % 7 = {part}; DELETE FROM sums; \
             INSERT INTO sums SELECT count(*), sum(n) FROM t; COMMIT;\n"
        ));
        if round % 4 == 0 {
            script.push_str("OPTIMIZE TABLE t; VACUUM;\n");
        }
    }
    place.write("script.sql", &script);
    let mut writer = command(place.folder.path())
        .args(["sql", "shop.db", "-f", "script.sql"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut backups = 0;
    let mut last = false;
    loop {
        place.run(&["backup", "-q", "shop.db", "archive"]).succeeds();
        let copy = format!("copy{backups}.db");
        place.run(&["restore", "-q", "archive", &copy]).succeeds();
        let sums = place.run(&["sql", &copy, "-c", CHECK, "--format", "csv"]);
        sums.prints("counts,totals\ntrue,true\n");
        place.run(&["check", "-q", "--decode", &copy]).prints("");
        backups += 1;
        if last {
            break;
        }
        // Once more when all is done.
        last = writer.try_wait().unwrap().is_some();
    }
    assert!(writer.wait().unwrap().success());
    assert!(backups >= BACKUPS_MIN, "{backups}: the writer was too fast");
    let of = |db| ["sql", db, "-c", "SELECT count(*), sum(n) FROM t", "--format", "csv"];
    let copy = format!("copy{}.db", backups - 1);
    assert_eq!(place.run(&of("shop.db")).succeeds().out, place.run(&of(&copy)).succeeds().out);
}
