//! `thalweg inspect`.

use crate::Place;

fn loaded() -> Place {
    let place = Place::new();
    place.write("items.csv", "id,name\n1,one\n2,\n3,three\n");
    place.run(&["load", "test.db", "items", "items.csv", "-q"]).prints("");
    place
        .run(&["sql", "test.db", "-c", "CREATE VIEW big AS SELECT * FROM items WHERE id > 1"])
        .succeeds();
    place
}

#[test]
fn a_database_lists_its_relations() {
    let place = loaded();
    let ran = place.run(&["inspect", "test.db", "--format", "csv"]).succeeds();
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[0], "schema,name,kind,columns,rows,extents,chunks,stored_bytes");
    assert!(lines[1].starts_with("public,items,table,2,3,1,1,"), "{}", ran.out);
    assert_eq!(lines[2], "public,big,view,,,,,");
    let table = place.run(&["inspect", "test.db"]).succeeds().out;
    assert!(table.contains("stored") && table.contains("KiB"), "{table}");
}

#[test]
fn a_table_shows_what_is_known_of_its_columns() {
    let place = loaded();
    let ran = place.run(&["inspect", "test.db", "items", "--format", "csv"]).succeeds();
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[0], "column,type,nulls,distinct,min,max,plain_bytes,stored_bytes");
    assert!(lines[1].starts_with("id,bigint,0,3,1,3,"), "{}", ran.out);
    assert!(lines[2].starts_with("name,varchar,1,2,one,three,"), "{}", ran.out);

    let ran =
        place.run(&["inspect", "test.db", "items", "--extents", "--format", "json"]).succeeds();
    let extent: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(extent["rows"], 3);

    let args = ["inspect", "test.db", "items", "--chunks", "--column", "id", "--format", "csv"];
    let ran = place.run(&args).succeeds();
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    assert!(ran.out.contains(",0,3,id,0,3,1,3,"), "{}", ran.out);
}

#[test]
fn what_is_not_there_is_named() {
    let place = loaded();
    place.run(&["inspect", "no.db"]).fails(1, &["no.db", "hint: "]);
    place.run(&["inspect", "test.db", "nosuch"]).fails(1, &["nosuch", "items"]);
    place.run(&["inspect", "test.db", "items", "--column", "x"]).fails(1, &["\"x\"", "id, name"]);
    place.run(&["inspect", ":memory:"]).fails(1, &[":memory:"]);
    assert!(!place.path("no.db").exists());
}
