//! `thalweg load`.

use crate::{Place, Ran};

impl Place {
    fn csv(&self, sql: &str) -> Ran {
        self.run(&["sql", "test.db", "--format", "csv", "-c", sql])
    }
}

#[test]
fn a_file_becomes_a_table_and_the_next_is_appended() {
    let place = Place::new();
    place.write("a.csv", "id,name\n1,one\n2,\n3,\"\"\n");
    place.write("b.csv", "id,name\n4,four\n");
    let ran = place.run(&["load", "test.db", "items", "a.csv"]).succeeds();
    assert!(ran.out.contains("items") && ran.out.contains("3 rows in"), "{}", ran.out);
    place.run(&["load", "test.db", "items", "b.csv", "--quiet"]).prints("");
    place.csv("SELECT * FROM items ORDER BY id").prints("id,name\n1,one\n2,\n3,\"\"\n4,four\n");
}

#[test]
fn each_file_becomes_a_table_of_its_own() {
    let place = Place::new();
    place.write("data/airlines.csv", "code,name\nAA,American\n");
    place.write("data/flights.csv", "code,day\nAA,2024-01-01\nAA,2024-01-02\n");
    let ran = place.run(&["load", "test.db", "--each", "data/airlines.csv", "data/flights.csv"]);
    let ran = ran.succeeds();
    assert!(ran.out.contains("3 rows in"), "{}", ran.out);
    place
        .csv("SELECT name, count(*) AS n FROM flights JOIN airlines USING (code) GROUP BY name")
        .prints("name,n\nAmerican,2\n");
}

#[test]
fn tables_can_be_given_their_files() {
    let place = Place::new();
    place.write("1.csv", "n\n1\n");
    place.write("2.csv", "n\n2\n");
    place.write("3.csv", "n\n3\n");
    place.run(&["load", "test.db", "a=1.csv,2.csv", "b=3.csv", "-q"]).prints("");
    place.csv("SELECT sum(n) AS a FROM a").prints("a\n3\n");
    place.csv("SELECT sum(n) AS b FROM b").prints("b\n3\n");
}

#[test]
fn a_load_of_several_tables_is_all_or_nothing() {
    let place = Place::new();
    place.write("good.csv", "n\n1\n");
    place.write("bad.csv", "n\n1\nx\n");
    place.run(&["load", "test.db", "first=good.csv", "-q"]).prints("");
    place.run(&["sql", "test.db", "-c", "CREATE TABLE bad (n int)"]).succeeds();
    place.run(&["load", "test.db", "good=good.csv", "bad=bad.csv"]).fails(1, &["bad.csv"]);
    place.csv("SELECT count(*) AS n FROM bad").prints("n\n0\n");
    place.csv("SELECT * FROM good").fails(1, &["good"]);
}

#[test]
fn the_dialect_can_be_told() {
    let place = Place::new();
    place.write("items.txt", "1|NA|2.50\n2|b|-\n");
    place
        .run(&[
            "load",
            "test.db",
            "items",
            "items.txt",
            "-q",
            "--format",
            "csv",
            "--delimiter",
            "|",
            "--no-header",
            "--null",
            "NA",
            "--null",
            "-",
            "--columns",
            "id int, s varchar, p decimal(12,2)",
            "--cluster-by",
            "id",
        ])
        .prints("");
    place.csv("SELECT * FROM items ORDER BY id").prints("id,s,p\n1,,2.50\n2,b,\n");
}

#[test]
fn what_cannot_be_loaded_is_said_before_a_database_is_made() {
    let place = Place::new();
    place.write("a.csv", "n\n1\n");
    place.write("x/a.csv", "n\n1\n");
    place.run(&["load", "test.db", "items", "no.csv"]).fails(1, &["no.csv"]);
    place.run(&["load", "test.db", "items"]).fails(1, &["items", "hint: "]);
    place.run(&["load", "test.db", "items=a.csv", "other"]).fails(1, &["other", "TABLE=FILE"]);
    place.run(&["load", "test.db", "--each", "a.csv", "x/a.csv"]).fails(1, &["\"a\""]);
    place
        .run(&["load", "test.db", "a=a.csv", "b=a.csv", "--columns", "n int"])
        .fails(1, &["--columns"]);
    place.run(&["load", ":memory:", "items", "a.csv"]).fails(1, &["lost"]);
    place
        .run(&["load", "test.db", "items", "a.csv", "--delimiter", "ab"])
        .fails(2, &["--delimiter"]);
    assert!(!place.path("test.db").exists());
}
