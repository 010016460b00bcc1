//! `thalweg load`.

mod follow;

use crate::{Place, Ran};

impl Place {
    pub(crate) fn csv(&self, sql: &str) -> Ran {
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
            "--partition-by",
            "s=4",
        ])
        .prints("");
    place
        .csv("SELECT cluster_by, partition_by FROM system.tables")
        .prints("cluster_by,partition_by\nid,hash(s) into 4\n");
    place.csv("SELECT * FROM items ORDER BY id").prints("id,s,p\n1,,2.50\n2,b,\n");
}

#[test]
fn what_columns_are_declared_as_is_kept_or_refused() {
    let place = Place::new();
    place.write("a.csv", "v\nabc\nabcdef\n");
    let load = |columns: &str| place.run(&["load", "test.db", "t", "a.csv", "--columns", columns]);
    load("v varchar(3)").fails(1, &["too long", "varying(3)"]);
    load("v text primary key").fails(1, &["PRIMARY KEY", "hint: "]);
    load("v varchar(6)").succeeds();
    place
        .csv("SELECT data_type FROM system.columns WHERE table_name = 't'")
        .prints("data_type\nvarchar(6)\n");
    place
        .run(&["load", "test.db", "u", "a.csv", "--type", "v=varchar(3)"])
        .fails(1, &["varchar(3)", "--columns"]);
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
    for (partition, told) in [("n=0", "1 to 256"), ("no=4", "\"no\""), ("n=4000000000", "1 to 256")]
    {
        place
            .run(&["load", "test.db", "items", "a.csv", "--partition-by", partition, "--dry-run"])
            .fails(1, &[told]);
    }
    place
        .run(&["load", "test.db", "items", "a.csv", "--partition-by", "n"])
        .fails(2, &["COLUMN=N"]);
    place.run(&["load", ":memory:", "items", "a.csv"]).fails(1, &["lost"]);
    place.run(&["load", "test.db", "items", "x/no", "--follow"]).fails(1, &["no folder"]);
    place.run(&["load", "test.db", "items", "a.csv", "--memory", "1k"]).fails(2, &["--memory"]);
    place
        .run(&["load", "test.db", "items", "a.csv", "--delimiter", "ab"])
        .fails(2, &["--delimiter"]);
    assert!(!place.path("test.db").exists());
}

#[test]
fn a_first_load_that_fails_leaves_no_database() {
    let place = Place::new();
    place.write("bad.csv", "n,s\n1,x\n2\n");
    place.run(&["load", "test.db", "t", "bad.csv"]).fails(1, &["bad.csv", "line 3"]);
    assert!(!place.path("test.db").exists());
    // A folder that was there stays, empty as it was.
    std::fs::create_dir(place.path("mine.db")).unwrap();
    place.run(&["load", "mine.db", "t", "bad.csv"]).fails(1, &["bad.csv"]);
    assert_eq!(std::fs::read_dir(place.path("mine.db")).unwrap().count(), 0);
    // So does a database.
    place.write("good.csv", "n,s\n1,x\n");
    place.run(&["load", "test.db", "t", "good.csv", "-q"]).prints("");
    place.run(&["load", "test.db", "u", "bad.csv"]).fails(1, &["bad.csv"]);
    place.csv("SELECT count(*) AS n FROM t").prints("n\n1\n");
}

#[test]
fn what_was_found_out_is_shown() {
    let place = Place::new();
    place.write("a.csv", "id,price,when\n1,2,2024-01-01\n2,NA,\n3,4,\n");
    let ran = place.run(&["load", "test.db", "t", "a.csv"]).succeeds();
    for words in ["id", "bigint", "all 3 values, such as \"1\"", "--null \"NA\"", "date"] {
        assert!(ran.out.contains(words), "{words} is not in {}", ran.out);
    }
    let ran = place.run(&["load", "dry.db", "t", "a.csv", "--null", "NA", "--dry-run"]).succeeds();
    assert!(ran.out.contains("1 (\"NA\")"), "{}", ran.out);
    let sql = "CREATE TABLE t (\n  id bigint,\n  price bigint,\n  \"when\" date\n);\n";
    assert!(ran.out.ends_with(&sql.replace("\"when\"", "when")), "{}", ran.out);
    assert!(!place.path("dry.db").exists());
    // The statement makes just that table.
    place.run(&["sql", "test.db", "-c", &sql.replace(" t ", " u ")]).succeeds();
    place.run(&["load", "test.db", "u", "a.csv", "--null", "NA", "-q"]).prints("");
    let ran = place.run(&["load", "test.db", "u", "a.csv", "--null", "NA", "--dry-run"]).succeeds();
    assert!(ran.out.contains("stays as it is"), "{}", ran.out);
    place.write("b.csv", "id,more\n1,x\n");
    let ran = place
        .run(&["load", "test.db", "u", "b.csv", "--new-columns", "add", "--dry-run"])
        .succeeds();
    assert!(ran.out.contains("ALTER TABLE u ADD COLUMN more varchar;"), "{}", ran.out);
    place.csv("SELECT count(*) AS n FROM u").prints("n\n3\n");
}

#[test]
fn bad_rows_are_left_out_and_written_down() {
    let place = Place::new();
    place.write("a.csv", "id,day\n1,2024-01-01\nx,2024-01-02\n3,2024-02-30\n4,\n");
    let load = ["load", "test.db", "t", "a.csv", "--columns", "id int, day date"];
    let with = |more: &[&str]| place.run(&[&load, more].concat());
    with(&[]).fails(1, &["line 3", "column \"id\"", "\"x\" is not a valid INTEGER"]);
    with(&["--max-errors", "1"]).fails(1, &["more than 1 bad rows", "line 3", "line 4"]);
    assert!(!place.path("test.db").exists());
    let ran = with(&["--max-errors", "2", "--rejects", "bad.csv"]).succeeds();
    assert!(ran.out.contains("2 bad rows left out and written to \"bad.csv\""), "{}", ran.out);
    let written = std::fs::read_to_string(place.path("bad.csv")).unwrap();
    assert_eq!(
        written,
        "file,line,column,value,reason,record\n\
         a.csv,3,id,x,\"\"\"x\"\" is not a valid INTEGER\",\"x,2024-01-02\"\n\
         a.csv,4,day,2024-02-30,\"\"\"2024-02-30\"\" is out of range for DATE\",\"3,2024-02-30\"\n"
    );
    place.csv("SELECT id FROM t ORDER BY id").prints("id\n1\n4\n");
    let ran = place.run(&["load", "test.db", "t", "a.csv", "--max-errors", "9"]).succeeds();
    assert!(ran.out.contains("--rejects FILE") && ran.out.contains("\"a.csv\", line 3"));
}

#[test]
fn the_type_of_a_column_can_be_told() {
    let place = Place::new();
    place.write("a.csv", "id,zip,Price\n1,123,2.5\n2,456,3\n3,789,x\n");
    let load = ["load", "test.db", "t", "a.csv", "--type", "zip=varchar", "-q"];
    let with = |more: &[&str]| place.run(&[&load, more].concat());
    with(&["--type", "price=decimal(8,2)"]).fails(1, &["line 4", "\"Price\"", "\"x\""]);
    with(&["--type", "price=decimal(8,2)", "--max-errors", "1"]).prints("");
    place
        .csv("SELECT id, zip || '!' AS zip, \"Price\" AS p FROM t ORDER BY id")
        .prints("id,zip,p\n1,123!,2.50\n2,456!,3.00\n");
    with(&[]).fails(1, &["--type", "has its columns"]);
    place.run(&["load", "u.db", "t", "a.csv", "--type", "no=int"]).fails(1, &["\"no\"", "zip"]);
    place.run(&["load", "u.db", "t", "a.csv", "--type", "id=nosuch"]).fails(1, &["declared"]);
}

#[test]
fn new_columns_are_added_when_asked() {
    let place = Place::new();
    place.write("a.csv", "id\n1\n");
    place.write("b.csv", "size,id\n2.5,2\n");
    place.write("c.csv", "id,junk\n3,?\n");
    place.run(&["load", "test.db", "t", "a.csv", "-q"]).prints("");
    place.run(&["load", "test.db", "t", "b.csv"]).fails(1, &["\"size\"", "--new-columns add"]);
    let ran = place.run(&["load", "test.db", "t", "b.csv", "--new-columns", "add"]).succeeds();
    assert!(ran.out.contains("t: columns added") && ran.out.contains("double"), "{}", ran.out);
    let ran = place.run(&["load", "test.db", "t", "c.csv", "--new-columns", "ignore"]).succeeds();
    assert!(ran.out.contains("column \"junk\" of the file is left out"), "{}", ran.out);
    assert!(ran.out.contains("column \"size\" is missing in the file"), "{}", ran.out);
    place.csv("SELECT * FROM t ORDER BY id").prints("id,size\n1,\n2,2.5\n3,\n");
}

#[test]
fn a_manifest_lists_tables_with_their_options() {
    let place = Place::new();
    place.write("in/a.tbl", "1|NA\n2|x\n");
    place.write("in/b.csv", "n\n1\n");
    place.write(
        "in/load.json",
        r#"{ "tables": [
            { "table": "a", "files": ["*.tbl"], "delimiter": "|", "header": false,
              "null": ["NA"], "columns": "id int, s varchar", "cluster_by": ["id"] },
            { "table": "b", "files": ["b.csv"] } ] }"#,
    );
    place.run(&["load", "test.db", "--manifest", "in/load.json", "-q"]).prints("");
    place.csv("SELECT * FROM a ORDER BY id").prints("id,s\n1,\n2,x\n");
    place.csv("SELECT * FROM b").prints("n\n1\n");
    let wrong = |text: &str, words: &[&str]| {
        place.write("bad.json", text);
        place.run(&["load", "test.db", "--manifest", "bad.json"]).fails(1, words);
    };
    wrong("[]", &["bad.json", "not a manifest", "hint: "]);
    wrong(r#"{"tables":[{"table":"a","files":["x"],"delimeter":";"}]}"#, &["delimeter"]);
    wrong(
        r#"{"tables":[{"table":"a","files":["x"],"format":"xml"}]}"#,
        &["format", "xml", "jsonl"],
    );
    place.run(&["load", "test.db", "--manifest", "no.json"]).fails(1, &["no.json"]);
}

#[test]
fn a_load_in_steps_goes_on_where_it_stopped() {
    let place = Place::new();
    for i in 1..=4 {
        let n = if i == 4 { "x".to_owned() } else { i.to_string() };
        place.write(&format!("in/{i}.csv"), &format!("n\n{n}\n"));
    }
    let load = ["load", "test.db", "t", "in", "--columns", "n int", "--commit-every", "1"];
    place.run(&load).fails(1, &["4.csv", "3 files are loaded and stay", "--resume"]);
    place.csv("SELECT sum(n) AS n FROM t").prints("n\n6\n");
    place.write("in/4.csv", "n\n4\n");
    let ran = place.run(&["load", "test.db", "t", "in", "--resume"]).succeeds();
    assert!(ran.out.contains("3 files were loaded before"), "{}", ran.out);
    place.csv("SELECT sum(n) AS n FROM t").prints("n\n10\n");
    place.run(&["load", "test.db", "t", "in", "--resume", "-q"]).prints("");
    place.csv("SELECT sum(n) AS n FROM t").prints("n\n10\n");
    // Several tables, one of them new columns included.
    place.write("more/1.csv", "n,s\n5,x\n");
    place.write("more/2.csv", "n,s\n6,y\n");
    place
        .run(&[
            "load",
            "test.db",
            "t=more",
            "u=in,more",
            "--commit-every",
            "1",
            "--new-columns",
            "add",
            "-q",
        ])
        .prints("");
    place.csv("SELECT sum(n) AS n, max(s) AS s FROM t").prints("n,s\n21,y\n");
    place.csv("SELECT sum(n) AS n, count(s) AS s FROM u").prints("n,s\n21,2\n");
}

#[test]
fn standard_input_is_loaded_like_a_file() {
    let place = Place::new();
    let load = ["load", "test.db", "t", "-", "-q"];
    place.run_with(&load, "n,s\n1,x\n2,y\n").prints("");
    place.run_with(&load, "n,s\n3,z\n").prints("");
    place.run_with(&load, "n,s\nq,z\n").fails(1, &["stdin\", line 2", "\"q\""]);
    place.csv("SELECT sum(n) AS n FROM t").prints("n\n6\n");
}

/// Ctrl-C in the middle of a first load.
#[test]
fn a_load_that_is_interrupted_leaves_nothing() {
    let place = Place::new();
    let rows: String =
        (0..400_000).map(|i| format!("{i},some text {i},{}.5\n", i % 1000)).collect();
    place.write("a.csv", &format!("id,text,number\n{rows}"));
    let mut child = crate::command(place.folder.path())
        .args(["load", "test.db", "t", "a.csv", "--quiet"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The rows begin to be written some time after the database is there.
    while !place.path("test.db/extents").exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "error: cancelled\n");
    assert!(!place.path("test.db").exists());
}
