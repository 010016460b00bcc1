//! JSON read and compared with what was written.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use proptest::prelude::*;

use super::layout::sql_type;
use super::tests::{
    check_error, folder, inferred, json_format, load, open, read_all, rows, schema, two, why, write,
};
use super::*;

#[test]
fn json_lines() {
    let dir = folder();
    let json = |text: &str| load(&write(&dir, "x.jsonl", text), &json_format(), &two());
    let ok = |text: &str, expected: &[&str]| assert_eq!(json(text).unwrap(), expected, "{text}");
    ok("{\"a\":1,\"b\":\"x\"}\n\n{\"B\":null,\"A\":\"2\"}\r\n{}", &["1|x", "2|∅", "∅|∅"]);
    ok(
        "{\"b\":{\"k\":[1,2]}}\n{\"b\":1.50}\n{\"b\":true}",
        &["∅|{\"k\":[1,2]}", "∅|1.50", "∅|true"],
    );
    let bad = |text: &str, parts: &[&str]| check_error(json(text), parts);
    bad("{\"a\":1}\n{\"a\":1.5}\n", &["x.jsonl\", line 2", "column \"a\"", "\"1.5\"", "BIGINT"]);
    bad("{\"a\":1}\n{\"c\":1}\n", &["line 2", "\"c\"", "unknown to the table"]);
    bad("{\"a\":1,\"A\":2}\n", &["line 1", "two values", "\"a\""]);
    bad("{\"a\":1}\n[{\"a\":1}]\n", &["line 2", "array", "jq -c '.[]'"]);
    bad("[{\"a\":1},[1]]", &["row 2", "array"]);
    bad("[{\"a\":1},\n{\"a\":\"x\"}]", &["row 2", "column \"a\"", "\"x\""]);
    bad("[{\"a\":1} {\"a\":2}]", &["after row 1", "a comma"]);
    bad("[{\"a\":1},{\"a\":2}", &["after row 2", "does not end"]);
    bad("{\n\"a\":1,\n", &["line 1", "does not end on its line"]);
    ok("[{\"a\":1,\"b\":\"x\"},{\"b\":[1,\n2]}]\n", &["1|x", "∅|[1,\n2]"]);
    ok("{\n  \"a\": 1\n}\n{\"a\":\n2}", &["1|∅", "2|∅"]);
    ok("[{\"a\":1}]\n[{\"a\":2}]\n", &["1|∅", "2|∅"]);
    ok("[]", &[]);
    bad("{\"a\":[1]}\n", &["\"[1]\" is not a valid BIGINT"]);
    bad("", &["empty"]);

    let decimals = schema(&[("d", DataType::Decimal128(38, 2))]);
    let path = write(&dir, "d.jsonl", "{\"d\":123456789012345678901234567890.12}\n");
    assert_eq!(
        load(&path, &json_format(), &decimals).unwrap(),
        ["123456789012345678901234567890.12"]
    );

    let check = |text: &str, expected: &str| {
        assert_eq!(inferred(&[("i.jsonl", text)], &json_format()).unwrap(), expected, "{text}");
    };
    check(
        "{\"i\":1,\"s\":\"1\",\"d\":\"2024-01-01\"}\n{\"i\":2.5,\"n\":{\"x\":1},\"b\":true,\"e\":null}\n",
        "i DOUBLE, s VARCHAR, d DATE, n STRUCT(x BIGINT), b BOOLEAN, e VARCHAR",
    );
    check("{\"Id\":1}\n{\"id\":2}\n", "Id BIGINT");
    check("[{\"z\":1},{\"b\":2,\"z\":0.5}]", "z DOUBLE, b BIGINT");
    let array = [("1.json", "[{\"a\":1},{\"a\":\"x\"}]")];
    assert_eq!(
        why(&array, &json_format(), "a"),
        "VARCHAR; row 2 of \"1.json\" has \"x\"; BIGINT before it; Some(0)"
    );
    let geo = "{\"type\":\"FeatureCollection\",\n\"features\":[{\"id\":1},\n{\"id\":2}]}";
    check(geo, "type VARCHAR, features STRUCT(id BIGINT)[]");
    check_error(inferred(&[("i.jsonl", "{}")], &json_format()), &["no keys"]);
}

/// The columns found in a file, and its rows.
fn read(text: &str, options: &[(&str, &str)]) -> thalweg_base::Result<(String, Vec<String>)> {
    let dir = folder();
    let path = write(&dir, "x.json", text);
    let mut format = json_format();
    for (name, value) in options {
        assert!(format.tell(name, &[(*value).to_owned()])?, "{name}");
    }
    let found = infer(std::slice::from_ref(&path), &format)?;
    let column = |c: &InferredColumn| format!("{} {}", c.name, sql_type(&c.data_type));
    let columns = found.columns.iter().map(column).collect::<Vec<_>>().join(", ");
    Ok((columns, load(&path, &format, &found.schema())?))
}

#[track_caller]
fn check(text: &str, columns: &str, rows: &[&str]) {
    assert_eq!(
        read(text, &[]).unwrap(),
        (columns.to_owned(), rows.iter().map(|r| (*r).to_owned()).collect())
    );
}

#[test]
fn nested_values_are_structs_and_lists() {
    check(
        r#"{"s":{"a":1,"b":"x"},"l":[1,2.5,null]}
           {"s":{"c":true,"a":null},"l":[]}
           {"s":null,"l":null}
           {}"#,
        "s STRUCT(a BIGINT, b VARCHAR, c BOOLEAN), l DOUBLE[]",
        &["{a: 1, b: x, c: ∅}|[1.0, 2.5, ∅]", "{a: ∅, b: ∅, c: true}|[]", "∅|∅", "∅|∅"],
    );
    check(
        r#"{"l":[{"a":[[1],[]]},{"b":{"c":"2024-01-02"}}]}"#,
        "l STRUCT(a BIGINT[][], b STRUCT(c DATE))[]",
        &["[{a: [[1], []], b: ∅}, {a: ∅, b: {c: 2024-01-02}}]"],
    );
    check(r#"{"l":[[],null]}"#, "l VARCHAR[][]", &["[[], ∅]"]);
    check(r#"{"s":{"a":null}}"#, "s STRUCT(a VARCHAR)", &["{a: ∅}"]);
    check(r#"{"s":{"A":1}}{"s":{"a":2.5}}"#, "s STRUCT(A DOUBLE)", &["{A: 1.0}", "{A: 2.5}"]);
}

#[test]
fn what_no_type_holds_is_text() {
    check(
        "{\"a\":1}\n{\"a\":[1, 2]}\n{\"a\":{\"b\":2}}\n{\"a\":\"x\"}",
        "a VARCHAR",
        &["1", "[1, 2]", "{\"b\":2}", "x"],
    );
    check(r#"{"l":[1,"x",[true]]}"#, "l VARCHAR[]", &["[1, x, [true]]"]);
    check(r#"{"s":{}}"#, "s VARCHAR", &["{}"]);
    check(r#"{"s":{"a":1,"a":2}}"#, "s VARCHAR", &[r#"{"a":1,"a":2}"#]);
    check(r#"{"s":{"a":1,"A":2}}"#, "s VARCHAR", &[r#"{"a":1,"A":2}"#]);
    check(r#"{"s":{"":1}}"#, "s VARCHAR", &[r#"{"":1}"#]);
    check(r#"{"n":18446744073709551615}"#, "n VARCHAR", &["18446744073709551615"]);
    check(r#"{"n":null}"#, "n VARCHAR", &["∅"]);
    let names = |count: usize| -> String {
        (0..count).map(|i| format!("{{\"m\":{{\"k{i}\":{i}}}}}\n")).collect()
    };
    assert!(read(&names(200), &[]).unwrap().0.starts_with("m STRUCT(k0 BIGINT, k1 BIGINT"));
    assert_eq!(read(&names(201), &[]).unwrap().0, "m VARCHAR");
    assert_eq!(read(&names(1500), &[]).unwrap().0, "m VARCHAR");
    let deep = format!("{{\"d\":{}1{}}}", "[".repeat(40), "]".repeat(40));
    let (columns, rows) = read(&deep, &[]).unwrap();
    assert_eq!(columns, format!("d VARCHAR{}", "[]".repeat(31)));
    assert_eq!(rows[0].matches('[').count(), 40);
    let bottomless = format!("{{\"d\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(read(&bottomless, &[]).unwrap().1.len(), 1);
}

#[test]
fn records_that_are_no_objects_are_one_column() {
    check("[1,2.5,null]", "json DOUBLE", &["1.0", "2.5", "∅"]);
    check("1\n2\n", "json BIGINT", &["1", "2"]);
    check("[[1,2],[3]]", "json BIGINT[]", &["[1, 2]", "[3]"]);
    check("[1,2]\n[3]\n", "json BIGINT[]", &["[1, 2]", "[3]"]);
    check("[1,{\"a\":1},\"x\"]", "json VARCHAR", &["1", "{\"a\":1}", "x"]);
    check("[]", "json VARCHAR", &[]);
    check("[[]]", "json VARCHAR[]", &["[]"]);
    check_error(read("{\"a\":1}\n2\n", &[]), &["line 2", "an object is expected"]);
    check_error(read("hello\n", &[]), &["line 1", "an object is expected"]);
    check_error(read("1\nx\n", &[]), &["line 2", "not a JSON value"]);
}

#[test]
fn options_say_how_files_are_read() {
    let ok = |text: &str, options: &[(&str, &str)], columns: &str, rows: &[&str]| {
        let found = read(text, options).unwrap();
        assert_eq!(found, (columns.to_owned(), rows.iter().map(|r| (*r).to_owned()).collect()));
    };
    ok("{\"a\":[1]}", &[("maximum_depth", "1")], "a VARCHAR", &["[1]"]);
    ok("{\"a\":[[1]]}", &[("maximum_depth", "2")], "a VARCHAR[]", &["[[1]]"]);
    ok(
        "{\"a\":1}\n{\"b\":2}",
        &[("records", "false")],
        "json STRUCT(a BIGINT, b BIGINT)",
        &["{a: 1, b: ∅}", "{a: ∅, b: 2}"],
    );
    ok("[1,2]\n[3]\n", &[("format", "array")], "json BIGINT", &["1", "2", "3"]);
    ok("[1,2]\n[3]\n", &[("format", "unstructured")], "json BIGINT[]", &["[1, 2]", "[3]"]);
    ok("[1,\n2]", &[("format", "unstructured")], "json BIGINT[]", &["[1, 2]"]);
    ok("[1,2]\n", &[("format", "newline_delimited")], "json BIGINT[]", &["[1, 2]"]);
    ok("{\"d\":\"31.12.2024\"}", &[("dateformat", "%d.%m.%Y")], "d DATE", &["2024-12-31"]);
    ok(
        "{\"d\":{\"e\":\"31.12.2024 10:20\"}}",
        &[("timestampformat", "%d.%m.%Y %H:%M")],
        "d STRUCT(e TIMESTAMP)",
        &["{e: 2024-12-31T10:20:00}"],
    );
    ok("{\"d\":\"2024-12-31\"}", &[("dateformat", "%d.%m.%Y")], "d VARCHAR", &["2024-12-31"]);
    ok("{\"a\":1}\n{x}\n{\"a\":2}", &[("ignore_errors", "true")], "a BIGINT", &["1", "2"]);
    check_error(read("{\"a\":1}", &[("format", "array")]), &["holds no array", "format"]);
    check_error(
        read("{\"a\":1}\n{\"a\":12345}\n", &[("maximum_object_size", "9")]),
        &["line 2", "longer than maximum_object_size"],
    );
    check_error(
        read("{\n\"a\":1}", &[("format", "newline_delimited")]),
        &["line 1", "does not end"],
    );
}

#[test]
fn faults_say_where_they_are() {
    let dir = folder();
    let typed = |text: &str, data_type: DataType| {
        let path = write(&dir, "t.json", text);
        load(&path, &json_format(), &schema(&[("c", data_type)]))
    };
    let list = || DataType::new_list(DataType::Int64, true);
    let a_struct = || DataType::Struct(vec![Field::new("f", list(), true)].into());
    check_error(
        typed("{\"c\":[1,\"x\"]}", list()),
        &["line 1", "column \"c[]\"", "\"x\"", "BIGINT"],
    );
    check_error(typed("{\"c\":1}", list()), &["\"1\" is not a valid BIGINT[]"]);
    check_error(typed("{\"c\":{}}", list()), &["\"{}\" is not a valid BIGINT[]"]);
    check_error(
        typed("{\"c\":{\"f\":[1]}}\n{\"c\":{\"f\":[1,2.5]}}", a_struct()),
        &["line 2", "column \"c.f[]\"", "\"2.5\""],
    );
    check_error(typed("{\"c\":{\"g\":1}}", a_struct()), &["\"c.g\"", "unknown to the table"]);
    check_error(typed("{\"c\":{\"f\":null,\"F\":[]}}", a_struct()), &["c.f", "two values"]);
    check_error(typed("{\"c\":[1 2]}", DataType::Utf8View), &["character 9", "a comma"]);
    check_error(typed("{\"c\":{\"f\":[1,x]}}", a_struct()), &["character 14", "not a JSON value"]);
    // Rows around one that is left out are whole.
    let text = "{\"c\":{\"f\":[1]}}\n{\"c\":{\"f\":[2,\"x\"]}}\n{\"c\":{\"f\":[3]}}\n{\"c\":null}\n{\"c\":{}}\n";
    let path = write(&dir, "r.json", text);
    let columns = schema(&[("c", a_struct())]);
    let reader = open(&[path], &json_format(), &columns).unwrap().with_rejects_max(9);
    let read = read_all(&reader, &columns).unwrap();
    assert_eq!(rows(&read), ["{f: [1]}", "{f: [3]}", "∅", "{f: ∅}"]);
}

#[test]
fn only_wanted_columns_are_built() {
    let dir = folder();
    let text = "{\"a\":1,\"b\":{\"c\":[1]},\"d\":\"x\"}\n{\"d\":\"y\",\"z\":0}\n";
    let path = write(&dir, "w.json", text);
    let all = schema(&[("a", DataType::Int64), ("b", DataType::Int64), ("d", DataType::Utf8View)]);
    let read = |wanted: Vec<usize>, text: Option<&str>| {
        let path = text.map_or(path.clone(), |text| write(&dir, "v.json", text));
        let kept = Arc::new(all.project(&wanted).unwrap());
        let columns =
            Columns { wanted: Some(wanted), ignore_unknown: true, ..Columns::new(all.clone()) };
        read_all(&Reader::open(vec![path], json_format(), columns)?, &kept).map(|read| rows(&read))
    };
    assert_eq!(read(vec![2, 0], None).unwrap(), ["x|1", "y|∅"]);
    // What is not wanted must be JSON all the same, and come once.
    check_error(read(vec![1], None), &["column \"b\""]);
    check_error(read(vec![0], Some("{\"b\":[1 2]}")), &["a comma"]);
    check_error(read(vec![0], Some("{\"b\":1,\"B\":2}")), &["column \"b\"", "two values"]);
    check_error(read(vec![0], Some("{\"q\":[1 2]}")), &["a comma"]);
}

/// A document to be written in several ways.
#[derive(Clone, Debug)]
enum Doc {
    Null,
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Doc>),
    Object(Vec<(String, Doc)>),
}

fn any_doc() -> impl Strategy<Value = Doc> {
    let leaf = prop_oneof![
        Just(Doc::Null),
        any::<bool>().prop_map(Doc::Boolean),
        any::<i64>().prop_map(Doc::Integer),
        (-9i64..9).prop_map(Doc::Integer),
        any::<f64>().prop_filter("JSON has no such number", |f| f.is_finite()).prop_map(Doc::Float),
        "[a\"\\\\{}\\[\\],\n é😀]{0,6}".prop_map(Doc::Text),
        Just(Doc::Text("2024-02-29".into())),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Doc::List),
            any_object(inner).prop_map(Doc::Object),
        ]
    })
}

fn any_object(values: impl Strategy<Value = Doc>) -> impl Strategy<Value = Vec<(String, Doc)>> {
    prop::collection::vec(("[a-e]", values), 0..4).prop_map(|mut members| {
        let mut seen = std::collections::HashSet::new();
        members.retain(|(key, _)| seen.insert(key.clone()));
        members
    })
}

impl Doc {
    /// As JSON, with `blank` wherever there may be blanks.
    fn json(&self, blank: &str) -> String {
        let between = |parts: Vec<String>, open: char, close: char| {
            let parts = parts.join(&format!("{blank},{blank}"));
            format!("{open}{blank}{parts}{blank}{close}")
        };
        match self {
            Doc::Null => "null".into(),
            Doc::Boolean(value) => value.to_string(),
            Doc::Integer(value) => value.to_string(),
            Doc::Float(value) => format!("{value:?}"),
            Doc::Text(text) => quoted_json(text),
            Doc::List(items) => between(items.iter().map(|i| i.json(blank)).collect(), '[', ']'),
            Doc::Object(members) => {
                let member = |(key, value): &(String, Doc)| {
                    format!("{}{blank}:{blank}{}", quoted_json(key), value.json(blank))
                };
                between(members.iter().map(member).collect(), '{', '}')
            }
        }
    }

    /// Whether the value of a column is what was written; `blank` is how.
    fn is(&self, column: &ArrayRef, row: usize, blank: &str) -> bool {
        match (self, column.data_type()) {
            (Doc::Null, _) => column.is_null(row),
            (_, _) if column.is_null(row) => false,
            (Doc::Text(text), DataType::Utf8View) => column.as_string_view().value(row) == text,
            (_, DataType::Utf8View) => column.as_string_view().value(row) == self.json(blank),
            (Doc::Boolean(value), DataType::Boolean) => column.as_boolean().value(row) == *value,
            (Doc::Integer(value), DataType::Int64) => {
                column.as_primitive::<Int64Type>().value(row) == *value
            }
            (Doc::Integer(value), DataType::Float64) => {
                column.as_primitive::<Float64Type>().value(row) == *value as f64
            }
            (Doc::Float(value), DataType::Float64) => {
                column.as_primitive::<Float64Type>().value(row).to_bits() == value.to_bits()
            }
            (Doc::Text(text), DataType::Date32) => {
                let shown = ArrayFormatter::try_new(column, &FormatOptions::new()).unwrap();
                shown.value(row).to_string() == *text
            }
            (Doc::List(items), DataType::List(_)) => {
                let values = column.as_list::<i32>().value(row);
                items.len() == values.len()
                    && items.iter().enumerate().all(|(at, item)| item.is(&values, at, blank))
            }
            (Doc::Object(members), DataType::Struct(fields)) => {
                let value = column.as_struct();
                members.iter().all(|(key, _)| fields.find(key).is_some())
                    && fields.iter().zip(value.columns()).all(|(field, column)| {
                        let member = members.iter().find(|(key, _)| key == field.name());
                        member.map_or(&Doc::Null, |(_, member)| member).is(column, row, blank)
                    })
            }
            _ => false,
        }
    }
}

fn quoted_json(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            // A surrogate pair.
            '😀' => out += "\\ud83d\\ude00",
            c => out.push(c),
        }
    }
    out + "\""
}

/// What `threads` find and read together.
fn together(path: &PathBuf, block_bytes: usize, threads: usize) -> (SchemaRef, Vec<RecordBatch>) {
    let inference = Inference::open(vec![path.clone()], json_format()).unwrap();
    let inference = inference.with_block_bytes(block_bytes);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(mut piece) = inference.next() {
                    while piece.step() {}
                }
            });
        }
    });
    let found = inference.finish().1.unwrap().schema();
    let reader = open(std::slice::from_ref(path), &json_format(), &found).unwrap();
    let reader = reader.with_block_bytes(block_bytes);
    let batches = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let units = std::iter::from_fn(|| reader.next());
                    units.flat_map(Unit::parse).map(Result::unwrap).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    reader.finish().1.unwrap();
    (found, batches)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Lines, an array, and what is spread over lines hold the same columns and rows, whoever reads them.
    #[test]
    fn documents_come_back(
        records in prop::collection::vec(any_object(any_doc()), 1..12),
        block_bytes in 1usize..300,
    ) {
        let records: Vec<Doc> = records
            .into_iter()
            .enumerate()
            .map(|(id, mut members)| {
                members.insert(0, ("id".into(), Doc::Integer(id as i64)));
                Doc::Object(members)
            })
            .collect();
        let joined = |blank: &str, by: &str| {
            records.iter().map(|record| record.json(blank)).collect::<Vec<_>>().join(by)
        };
        let dir = folder();
        let mut first: Option<SchemaRef> = None;
        for (name, blank, text) in [
            ("lines.json", "", joined("", "\n")),
            ("crlf.json", " ", joined(" ", "\r\n")),
            ("array.json", "", format!("[{}]", joined("", ","))),
            ("pretty.json", "\n  ", format!("[\n{}\n]\n", joined("\n  ", ",\n"))),
            ("values.json", "\n", joined("\n", "")),
        ] {
            let path = write(&dir, name, text);
            for (block_bytes, threads) in [(1 << 20, 1), (block_bytes, 1), (block_bytes, 8)] {
                let (columns, batches) = together(&path, block_bytes, threads);
                let first = first.get_or_insert_with(|| columns.clone());
                prop_assert_eq!(&columns, &*first, "{}", name);
                let mut seen = vec![false; records.len()];
                for batch in &batches {
                    let row: ArrayRef = Arc::new(arrow::array::StructArray::from(batch.clone()));
                    let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
                    for at in 0..batch.num_rows() {
                        let id = ids.value(at) as usize;
                        prop_assert!(records[id].is(&row, at, blank), "{} {:?}", name, batch);
                        prop_assert!(!std::mem::replace(&mut seen[id], true));
                    }
                }
                prop_assert!(seen.iter().all(|seen| *seen));
            }
        }
        // In the order in which keys come first.
        let mut keys: Vec<&String> = vec![];
        for record in &records {
            let Doc::Object(members) = record else { unreachable!() };
            for (key, _) in members {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        let found = first.unwrap();
        let found: Vec<&String> = found.fields().iter().map(|field| field.name()).collect();
        prop_assert_eq!(found, keys);
    }
}
