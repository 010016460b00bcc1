//! `thalweg shell` over a pipe; its interactive side is the terminal's.

use crate::Place;

#[test]
fn statements_and_commands_are_read_from_a_pipe() {
    let place = Place::new();
    let input =
        "\\format csv\nSELECT\n  1 AS a;\nSELECT 2 AS b; SELECT 'x;y' AS c;\n\nSELECT 3 AS d";
    place.run_with(&["shell", ":memory:"], input).prints("a\n1\nb\n2\nc\nx;y\nd\n3\n");
}

#[test]
fn the_first_error_ends_it() {
    let place = Place::new();
    let input = "\\format csv\nSELECT 1 AS a;\nSELECT nosuch;\nSELECT 2 AS b;\n";
    let ran = place.run_with(&["shell", ":memory:"], input).fails(1, &["nosuch"]);
    assert_eq!(ran.out, "a\n1\n");
    place.run_with(&["shell", ":memory:"], "\\nosuch\n").fails(1, &["\\nosuch", "\\?"]);
}

#[test]
fn tables_and_columns_are_described() {
    let place = Place::new();
    let input = "CREATE TABLE items (id int, price decimal(12,2));\n\\d\n\\d items\n\\dt\n\\dv\n";
    let out = place.run_with(&["shell", ":memory:"], input).succeeds().out;
    assert!(out.contains("│ public │ items │ table"), "{out}");
    assert!(out.contains("decimal(12,2)"), "{out}");
    place.run_with(&["shell", ":memory:"], "\\d nosuch\n").fails(1, &["nosuch"]);
}

#[test]
fn results_can_go_to_a_file_and_come_from_one() {
    let place = Place::new();
    place.write("in.sql", "SELECT 1 AS a; SELECT 2 AS b;");
    let input = "\\format csv\n\\o out.csv\n\\i in.sql\n\\o\nSELECT 3 AS c;\n\\q\nSELECT 4 AS d;\n";
    place.run_with(&["shell", ":memory:"], input).prints("c\n3\n");
    assert_eq!(std::fs::read_to_string(place.path("out.csv")).unwrap(), "a\n1\nb\n2\n");
}

#[test]
fn rows_can_be_expanded() {
    let place = Place::new();
    place
        .run_with(&["shell", ":memory:"], "\\x\nSELECT 1 AS a, 'x' AS bc;\n")
        .prints("── row 1 ──\na  │ 1\nbc │ x\n1 row\n");
}

#[test]
fn a_missing_database_is_not_created() {
    let place = Place::new();
    place.run_with(&["shell", "no.db"], "SELECT 1;").fails(1, &["no.db", "hint: "]);
    assert!(!place.path("no.db").exists());
}
