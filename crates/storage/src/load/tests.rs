//! Files written, read back and compared; and what is said about files that are wrong.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use proptest::prelude::*;
use thalweg_base::{Error, Kind, Result};

use super::block::{Dialect, TextSource};
use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn write(dir: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect();
    Arc::new(Schema::new(fields))
}

fn csv() -> Format {
    Format::Csv(CsvOptions::default())
}

fn read_all(reader: &Reader, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut batches = Vec::new();
    while let Some(unit) = reader.next()? {
        for batch in unit.parse() {
            batches.push(batch?);
        }
    }
    assert_eq!(reader.bytes_done(), reader.bytes_total());
    Ok(concat_batches(schema, &batches).unwrap())
}

/// Every row as text, `∅` for NULL, fields separated by bars.
fn rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("∅");
    let columns: Vec<_> =
        batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    let row = |row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

/// Loads one file; tiny blocks must not make a difference.
fn load(path: &Path, format: &Format, schema: &SchemaRef) -> Result<Vec<String>> {
    let open = || Reader::open(vec![path.to_owned()], format.clone(), schema.clone());
    let whole = read_all(&open()?, schema);
    let pieces = read_all(&open()?.with_block_bytes(16), schema);
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert_eq!(whole, pieces);
            Ok(rows(&whole))
        }
        (Err(e), Err(f)) => {
            assert_eq!(e.message(), f.message());
            Err(e)
        }
        (whole, pieces) => panic!("{whole:?} with one block, {pieces:?} with many"),
    }
}

/// The error must hold each of `parts` somewhere in message, detail or hint, and be the user's.
fn check_error<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
    let error = result.expect_err("an error is expected");
    assert!(matches!(error.kind(), Kind::User | Kind::Unsupported), "{error:?}");
    let text = format!("{error:#}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
    assert!(error.hint_text().is_some(), "no way out in: {text}");
}

fn two() -> SchemaRef {
    schema(&[("a", DataType::Int64), ("b", DataType::Utf8View)])
}

fn csv_text(text: &str) -> Result<Vec<String>> {
    let dir = folder();
    load(&write(&dir, "x.csv", text), &csv(), &two())
}

#[test]
fn csv_dialect() {
    let ok =
        |text: &str, expected: &[&str]| assert_eq!(csv_text(text).unwrap(), expected, "{text:?}");
    ok("a,b\n1,x\n2,y\n", &["1|x", "2|y"]);
    ok("1,x\n2,y", &["1|x", "2|y"]);
    ok("a,b\r\n1,x\r\n\r\n2,y", &["1|x", "2|y"]);
    ok("\u{feff}a,b\n1,x\n", &["1|x"]);
    ok("\n\nA, B\n1,x\n\n\n", &["1|x"]);
    ok("b,a\nx,1\n", &["1|x"]);
    ok("b\nx\n\ny\n", &["∅|x", "∅|∅", "∅|y"]);
    ok("a,b\n,\n1,\"\"\n", &["∅|∅", "1|"]);
    ok("a,b\n1,\"x,\"\"y\"\"\nz\"\n\"2\",w\n", &["1|x,\"y\"\nz", "2|w"]);
    ok("a,b\n 1 , x \n", &["1| x "]);
    ok("a,b,\n1,x,\n2,y,\n", &["1|x", "2|y"]);
    ok("1,x,\n2,y,\n", &["1|x", "2|y"]);
    ok("a,b\n", &[]);
    ok("a,b\n1,12\" pipe\n", &["1|12\" pipe"]);
}

#[test]
fn csv_errors_name_the_place() {
    let bad = |text: &str, parts: &[&str]| check_error(csv_text(text), parts);
    bad("a,b\n1,x\n12q,y\n", &["x.csv\", line 3", "column \"a\"", "\"12q\"", "BIGINT", "--null"]);
    bad("a,b\n1,\"x\n\n\"\nNA,y\n", &["line 5", "\"NA\""]);
    bad("a,b\n99999999999999999999,y\n", &["out of range for BIGINT"]);
    bad("a,b\n1,x\n2\n", &["line 3", "1 fields", "has 2"]);
    bad("a,b\n1,x\n2,y,z\n", &["line 3", "3 fields"]);
    bad("a,b\n1,\"x\n2,y\n3,z\n", &["line 2", "never closed"]);
    bad("a,b\n1,\"x\"y\n", &["line 2", "closing quote"]);
    bad("a,b,c\n1,x,2\n", &["\"c\"", "unknown to the table", "\"a\", \"b\""]);
    bad("1,x,2\n", &["3 columns", "the table has 2"]);
    bad("a,A\n1,x\n", &["unknown", "A_2"]);
    bad("a,b\r1,x\r2,y\r", &["carriage return"]);
    bad("", &["is empty"]);
    bad("\n\n", &["no records"]);
    bad(&format!("a,b\n{},x\n", "9x".repeat(1000)), &["…\""]);

    let dir = folder();
    let latin1 = write(&dir, "l.csv", b"a,b\n1,caf\xe9\n");
    check_error(load(&latin1, &csv(), &two()), &["line 2", "column \"b\"", "not UTF-8", "iconv"]);
    let utf16 = write(&dir, "u.csv", b"\xff\xfea\0,\0b\0\n\0");
    check_error(load(&utf16, &csv(), &two()), &["UTF-16", "iconv"]);
    let absent = dir.path().join("absent.csv");
    check_error(load(&absent, &csv(), &two()), &["absent.csv"]);

    let strict = Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, false),
        Field::new("b", DataType::Utf8View, true),
    ]));
    let path = write(&dir, "n.csv", "a,b\n1,x\n,y\n");
    check_error(load(&path, &csv(), &strict), &["line 3", "column \"a\"", "NOT NULL"]);
    let path = write(&dir, "m.csv", "b\nx\n");
    check_error(load(&path, &csv(), &strict), &["no column \"a\"", "NOT NULL"]);
    let list =
        schema(&[("l", DataType::List(Arc::new(Field::new("item", DataType::Int64, true))))]);
    check_error(load(&path, &csv(), &list), &["\"l\"", "cannot be loaded from text"]);
}

#[test]
fn csv_options() {
    let dir = folder();
    let with = |text: &str, options: CsvOptions| {
        load(&write(&dir, "o.csv", text), &Format::Csv(options), &two())
    };
    let base = CsvOptions::default;
    let nulls = CsvOptions { nulls: vec!["NA".into(), "\\N".into()], ..base() };
    assert_eq!(with("a,b\nNA,\\N\n1,\n2,\"NA\"\n", nulls.clone()).unwrap(), ["∅|∅", "1|", "2|NA"]);
    check_error(with("a,b\n,x\n", nulls), &["line 2", "\"\" is not a valid BIGINT"]);
    let tabs = CsvOptions { delimiter: b'\t', quote: None, ..base() };
    assert_eq!(with("a\tb\n1\t\"x\n", tabs).unwrap(), ["1|\"x"]);
    let escape = CsvOptions { escape: Some(b'\\'), ..base() };
    assert_eq!(with("a,b\n1,\"x\\\"\n,y\"\n", escape).unwrap(), ["1|x\"\n,y"]);
    let data = CsvOptions { header: Some(false), ..base() };
    check_error(with("a,b\n1,x\n", data), &["line 1", "\"a\" is not a valid BIGINT"]);
    let single = CsvOptions { quote: Some(b'\''), ..base() };
    assert_eq!(with("a,b\n1,'x,''y'\n", single).unwrap(), ["1|x,'y"]);
    check_error(with("a,b\n", CsvOptions { delimiter: 0xe9, ..base() }), &["ASCII"]);
    assert!(with("a,b\n", CsvOptions { delimiter: b'"', ..base() }).is_err());
}

#[test]
fn csv_types() {
    use DataType as T;
    let dir = folder();
    let all = schema(&[
        ("i8", T::Int8),
        ("u64", T::UInt64),
        ("f32", T::Float32),
        ("f64", T::Float64),
        ("dec", T::Decimal128(15, 2)),
        ("bool", T::Boolean),
        ("date", T::Date32),
        ("time", T::Time64(TimeUnit::Microsecond)),
        ("ts", T::Timestamp(TimeUnit::Microsecond, None)),
        ("tz", T::Timestamp(TimeUnit::Millisecond, Some("+00:00".into()))),
        ("bin", T::BinaryView),
        ("s", T::Utf8),
    ]);
    let text = "-128,18446744073709551615,0.5,1e3,12.50,yes,2024-02-29,23:59:59.000001,2024-02-29 10:00:00.5,2024-02-29T10:00:00+02:00,ab,é\n,,,,,,,,,,,\n";
    let path = write(&dir, "t.csv", text);
    assert_eq!(
        load(&path, &csv(), &all).unwrap(),
        [
            "-128|18446744073709551615|0.5|1000.0|12.50|true|2024-02-29|23:59:59.000001|2024-02-29T10:00:00.500|2024-02-29T08:00:00Z|6162|é",
            "∅|∅|∅|∅|∅|∅|∅|∅|∅|∅|∅|∅",
        ]
    );
    let one = |t: T, value: &str| {
        let path = write(&dir, "one.csv", format!("v\n{value}\n"));
        load(&path, &csv(), &schema(&[("v", t)]))
    };
    check_error(one(T::Int8, "128"), &["\"128\" is out of range for TINYINT"]);
    check_error(one(T::Decimal128(5, 2), "1.005"), &["more fractional digits than DECIMAL(5,2)"]);
    check_error(one(T::Decimal128(5, 2), "1000"), &["out of range for DECIMAL(5,2)"]);
    check_error(one(T::Date32, "2023-02-29"), &["out of range for DATE"]);
    check_error(
        one(T::Timestamp(TimeUnit::Second, None), "2024-01-01 00:00:00.5"),
        &["fractional digits"],
    );
    check_error(one(T::Boolean, "maybe"), &["BOOLEAN"]);
    let paris = T::Timestamp(TimeUnit::Second, Some("Europe/Paris".into()));
    check_error(one(paris, "2024-01-01 00:00:00"), &["lacks an offset"]);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_text() {
    let dir = folder();
    let mut text = "a,b\n".to_owned();
    (0..20_000).for_each(|i| text += &format!("{i},value {i}\n"));
    let gz = gzip(text.as_bytes());
    // Two members, as `cat a.gz b.gz` makes them.
    let two_members = [gz.clone(), gzip(b"20000,last\n")].concat();
    let path = write(&dir, "x.csv.gz", &two_members);
    assert_eq!(load(&path, &csv(), &two()).unwrap().last().unwrap(), "20000|last");
    let zst = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let path = write(&dir, "x.csv.zst", &zst);
    assert_eq!(load(&path, &csv(), &two()).unwrap().len(), 20_000);
    for (name, bytes) in [("cut.csv.gz", &gz), ("cut.csv.zst", &zst)] {
        let path = write(&dir, name, &bytes[..bytes.len() / 2]);
        check_error(load(&path, &csv(), &two()), &[name, "damaged or cut short"]);
    }
    let path = write(&dir, "plain.csv.gz", "a,b\n1,x\n");
    assert_eq!(load(&path, &csv(), &two()).unwrap(), ["1|x"]);
}

#[test]
fn a_record_has_a_limit() {
    let dir = folder();
    let path = write(&dir, "x.csv", format!("a\n\"{}", "x\n".repeat(1000)));
    let dialect = Dialect { delimiter: b',', quote: Some(b'"'), escape: None };
    let mut source =
        TextSource::open(&path, dialect, 64, Arc::default()).unwrap().with_record_bytes_max(256);
    assert_eq!(source.next_block().unwrap().unwrap().data, b"a\n");
    let error: Error = source.next_block().err().unwrap();
    check_error::<()>(Err(error), &["line 2", "longer than 256 B", "opened in line 2"]);
}

#[test]
fn files_of_many_kinds_are_found() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["b.csv", "a.csv.gz", "sub/c.parquet", "sub/_SUCCESS", "readme.md", ".hidden.csv"] {
        write(&dir, name, "x");
    }
    let names = |args: &[String]| -> Vec<String> {
        expand(args)
            .unwrap()
            .iter()
            .map(|p| p.strip_prefix(dir.path()).unwrap().display().to_string())
            .collect()
    };
    assert_eq!(names(&[at("")]), ["a.csv.gz", "b.csv", "sub/c.parquet"]);
    assert_eq!(names(&[at("*.csv"), at("b.csv"), at("readme.md")]), ["b.csv", "readme.md"]);
    assert_eq!(names(&[at("s*")]), ["sub/c.parquet"]);
    check_error(expand(&[at("b.csv"), at("absent.csv")]), &["absent.csv"]);
    check_error(expand(&[at("*.json")]), &["*.json"]);
    fs::create_dir(dir.path().join("none")).unwrap();
    check_error(expand(&[at("none")]), &["none", "no data files"]);
    assert!(expand(&[]).is_err());
}

#[test]
fn formats_are_recognised() {
    let dir = folder();
    let check = |name: &str, content: &[u8], expected: Format, compression: Compression| {
        assert_eq!(
            format_of(&write(&dir, name, content)).unwrap(),
            (expected, compression),
            "{name}"
        );
    };
    let delimited = |delimiter| Format::Csv(CsvOptions { delimiter, ..CsvOptions::default() });
    check("a.csv", b"a,b;c\n1,2;3\n", delimited(b','), Compression::None);
    check("b.csv", b"a;b\n1,5;2\n", delimited(b';'), Compression::None);
    check("c.txt", b"a|b\n1|2\n", delimited(b'|'), Compression::None);
    check("d.tsv", b"a\n", delimited(b'\t'), Compression::None);
    check("e.JSONL", b"{}", Format::JsonLines, Compression::None);
    check("f.csv.gz", &gzip(b"a\tb\n"), delimited(b'\t'), Compression::Gzip);
    check("g", b"PAR1...", Format::Parquet, Compression::None);
    check("h", b"{\"a\":1}", Format::JsonLines, Compression::None);
    check("i", b"ARROW1..", Format::Arrow, Compression::None);
    check("j", b"a,b\n1,2\n", delimited(b','), Compression::None);
    check_error(format_of(&write(&dir, "k.zip", "PK")), &["k.zip", "unzip"]);
    check_error(format_of(&write(&dir, "l", b"\0\x01\x02")), &["cannot tell the format"]);
    check_error(format_of(&write(&dir, "m.parquet.gz", gzip(b"PAR1"))), &["compressed Parquet"]);
}

fn inferred(files: &[(&str, &str)], format: &Format) -> Result<String> {
    let dir = folder();
    let paths: Vec<PathBuf> = files.iter().map(|(name, text)| write(&dir, name, text)).collect();
    let found = infer(&paths, format)?;
    // What was inferred can be loaded.
    let reader = Reader::open(paths, format.clone(), found.schema.clone())?;
    let loaded = read_all(&reader, &found.schema)?;
    assert_eq!(found.sampled_rows.unwrap(), loaded.num_rows() as u64);
    let column =
        |f: &Arc<Field>| format!("{} {}", f.name(), super::layout::sql_type(f.data_type()));
    Ok(found.schema.fields().iter().map(column).collect::<Vec<_>>().join(", "))
}

#[test]
fn csv_inference() {
    let check = |text: &str, expected: &str| {
        assert_eq!(inferred(&[("i.csv", text)], &csv()).unwrap(), expected, "{text:?}")
    };
    check(
        "i,f,b,d,t,s,z\n1,1.5,true,2024-01-01,2024-01-01 00:00:00,x,00501\n-2,3,false,,,,1\n",
        "i BIGINT, f DOUBLE, b BOOLEAN, d DATE, t TIMESTAMP, s VARCHAR, z VARCHAR",
    );
    check("1,x\n2,y\n", "column_1 BIGINT, column_2 VARCHAR");
    check("name,city\nAnn,Rome\nBob,Oslo\n", "name VARCHAR, city VARCHAR");
    check("Ann,Rome\nBob,Rome\n", "column_1 VARCHAR, column_2 VARCHAR");
    check("a,a,,b\n1,2,3,4\n", "a BIGINT, a_2 BIGINT, column_3 BIGINT, b BIGINT");
    check("a,b|\n1,2|\n", "a BIGINT, b| VARCHAR");
    check("a,b,\n1,2,\n3,4,\n", "a BIGINT, b BIGINT");
    check("1,2,\n3,4,\n", "column_1 BIGINT, column_2 BIGINT");
    check("a,e\n1,\n2,\n", "a BIGINT, e VARCHAR");
    check("a\n2024-01-01T00:00:00Z\n2024-01-01T00:00:00+02:00\n", "a TIMESTAMP WITH TIME ZONE");
    check("a\n2024-01-01T00:00:00Z\n2024-01-01T00:00:00\n", "a VARCHAR");
    check("a\n2024-01-01\n2024-01-01 00:00:00.123456789\n", "a TIMESTAMP(9)");
    check("a\n99999999999999999999\n1\n", "a VARCHAR");
    check("a\n1\ntrue\n", "a VARCHAR");
    check("a,b\n\"1\",\"\"\n\"2\",3\n", "a BIGINT, b VARCHAR");
    check("a,b\n", "a VARCHAR, b VARCHAR");
    let two = [("1.csv", "a,b\n1,2\n"), ("2.csv", "B,A,c\n1.5,2,x\n")];
    assert_eq!(inferred(&two, &csv()).unwrap(), "a BIGINT, b DOUBLE, c VARCHAR");
    check_error(
        inferred(&[("1.csv", "a,b\n1,2\n"), ("2.csv", "3,4\n")], &csv()),
        &["1.csv", "2.csv", "header"],
    );
    check_error(inferred(&[("e.csv", "")], &csv()), &["e.csv", "empty"]);
    check_error(inferred(&[("r.csv", "a,b\n1\n")], &csv()), &["line 2", "1 fields"]);
}

#[test]
fn a_value_that_contradicts_the_sample_says_so() {
    let dir = folder();
    let mut text = "a,b\n".to_owned();
    (0..150_000).for_each(|i| text += &format!("{i},x\n"));
    text += "NA,y\n";
    let path = write(&dir, "late.csv", &text);
    let found = infer(std::slice::from_ref(&path), &csv()).unwrap();
    assert_eq!(found.schema.field(0).data_type(), &DataType::Int64);
    assert_eq!(found.header, Some(true));
    let reader = Reader::open(vec![path], csv(), found.schema.clone()).unwrap();
    let reader = reader.with_inferred_rows(found.sampled_rows.unwrap());
    check_error(
        read_all(&reader, &found.schema),
        &[
            "line 150002",
            "\"NA\"",
            "inferred from the first 100,000 rows",
            "declare",
            "--null \"NA\"",
        ],
    );
}

#[test]
fn later_rows_of_a_large_file_are_sampled() {
    let dir = folder();
    let mut text = "a\n".to_owned();
    (0..3_000_000).for_each(|i| text += if i < 1_000_000 { "1234567\n" } else { "0.12345\n" });
    let found = infer(&[write(&dir, "large.csv", &text)], &csv()).unwrap();
    assert_eq!(found.schema.field(0).data_type(), &DataType::Float64);
}

#[test]
fn json_lines() {
    let dir = folder();
    let json = |text: &str| load(&write(&dir, "x.jsonl", text), &Format::JsonLines, &two());
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
    bad("[{\"a\":1}]\n", &["line 1", "array", "jq -c '.[]'"]);
    bad("{\n  \"a\": 1\n}\n", &["line 1", "does not end on its line", "jq -c"]);
    bad("{\"a\":[1]}\n", &["\"[1]\" is not a valid BIGINT"]);
    bad("", &["empty"]);

    let decimals = schema(&[("d", DataType::Decimal128(38, 2))]);
    let path = write(&dir, "d.jsonl", "{\"d\":123456789012345678901234567890.12}\n");
    assert_eq!(
        load(&path, &Format::JsonLines, &decimals).unwrap(),
        ["123456789012345678901234567890.12"]
    );

    let check = |text: &str, expected: &str| {
        assert_eq!(inferred(&[("i.jsonl", text)], &Format::JsonLines).unwrap(), expected, "{text}");
    };
    check(
        "{\"i\":1,\"s\":\"1\",\"d\":\"2024-01-01\"}\n{\"i\":2.5,\"n\":{\"x\":1},\"b\":true,\"e\":null}\n",
        "i DOUBLE, s VARCHAR, d DATE, n VARCHAR, b BOOLEAN, e VARCHAR",
    );
    check("{\"Id\":1}\n{\"id\":2}\n", "Id BIGINT");
    check_error(inferred(&[("i.jsonl", "[1]")], &Format::JsonLines), &["array"]);
}

fn numbers(count: i64) -> RecordBatch {
    let names: StringArray =
        (0..count).map(|i| (i % 7 != 0).then(|| format!("a longer name {i}"))).collect();
    let columns: Vec<(&str, ArrayRef)> =
        vec![("Name", Arc::new(names)), ("id", Arc::new(Int64Array::from_iter(0..count)))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn parquet_file(batch: &RecordBatch) -> Vec<u8> {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::file::properties::WriterProperties;
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10_000)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn parquet_row_groups() {
    let dir = folder();
    let path = write(&dir, "x.parquet", parquet_file(&numbers(25_000)));
    let found = infer(std::slice::from_ref(&path), &Format::Parquet).unwrap();
    assert_eq!(found.schema, schema(&[("Name", DataType::Utf8View), ("id", DataType::Int64)]));

    let target = schema(&[
        ("ID", DataType::Int32),
        ("name", DataType::Utf8View),
        ("extra", DataType::Date32),
    ]);
    let reader = Reader::open(vec![path.clone()], Format::Parquet, target.clone()).unwrap();
    let mut units = 0;
    while let Some(unit) = reader.next().unwrap() {
        units += 1;
        for batch in unit.parse() {
            assert!(batch.unwrap().num_rows() <= 8192);
        }
    }
    assert_eq!(units, 3);
    let loaded = load(&path, &Format::Parquet, &target).unwrap();
    assert_eq!((loaded.len(), loaded[24_999].as_str()), (25_000, "24999|a longer name 24999|∅"));

    let read = |target: &SchemaRef| load(&path, &Format::Parquet, target);
    check_error(read(&schema(&[("id", DataType::Int64)])), &["\"Name\"", "unknown to the table"]);
    let narrow = schema(&[("id", DataType::Int8), ("name", DataType::Utf8View)]);
    check_error(read(&narrow), &["x.parquet\", row group 0", "\"id\"", "TINYINT"]);
    let strict = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("name", DataType::Utf8View, false),
    ]));
    check_error(read(&strict), &["row group 0", "NOT NULL", "\"name\""]);
}

/// A file cut or overwritten anywhere gives its rows or an error, but never a panic.
#[test]
fn damaged_files_are_errors() {
    let dir = folder();
    let whole = numbers(3000);
    let target = schema(&[("id", DataType::Int64), ("name", DataType::Utf8View)]);
    let mut prng = thalweg_base::Prng::new(7);
    for (name, format, bytes) in [
        ("x.parquet", Format::Parquet, parquet_file(&whole)),
        ("x.arrow", Format::Arrow, arrow_file(&whole)),
    ] {
        for share in [1, 3, 5, 9] {
            let path = write(&dir, name, &bytes[..bytes.len() * share / 10]);
            check_error(load(&path, &format, &target), &[name, "damaged or cut short"]);
        }
        let mut failed = 0;
        for _ in 0..200 {
            let mut bytes = bytes.clone();
            for _ in 0..4 {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] = prng.next_u64() as u8;
            }
            let path = write(&dir, name, &bytes);
            let reader = Reader::open(vec![path], format.clone(), target.clone()).unwrap();
            failed += usize::from(read_all(&reader, &target).is_err());
        }
        assert!(failed > 0, "{name}");
    }
}

fn arrow_file(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.write(&batch.slice(0, 5)).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn arrow_files_and_streams() {
    let dir = folder();
    let batch = numbers(10_000);
    let target = schema(&[("id", DataType::Int64), ("name", DataType::Utf8View)]);
    let file = write(&dir, "x.arrow", arrow_file(&batch));
    let mut writer =
        arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.write(&batch.slice(0, 5)).unwrap();
    let stream = write(&dir, "y.arrow", writer.into_inner().unwrap());
    for path in [&file, &stream] {
        let loaded = load(path, &Format::Arrow, &target).unwrap();
        assert_eq!((loaded.len(), loaded[1].as_str()), (10_005, "1|a longer name 1"));
        assert_eq!(
            infer(std::slice::from_ref(path), &Format::Arrow).unwrap().schema.field(0).name(),
            "Name"
        );
    }
    check_error(
        load(&file, &Format::Arrow, &schema(&[("name", DataType::Utf8View)])),
        &["\"id\"", "unknown"],
    );
    let text = write(&dir, "z.arrow", "a,b\n");
    check_error(load(&text, &Format::Arrow, &target), &["z.arrow", "damaged"]);
}

#[test]
fn many_workers_read_every_row_once() {
    let dir = folder();
    let mut files = Vec::new();
    for file in 0..3i64 {
        let mut text = "a,b\n".to_owned();
        (0..20_000).for_each(|i| text += &format!("{},\"x\n{i}\"\n", file * 20_000 + i));
        let name = format!("{file}.csv");
        files.push(match file {
            0 => write(&dir, &format!("{name}.gz"), gzip(text.as_bytes())),
            _ => write(&dir, &name, text),
        });
    }
    let reader = Reader::open(files, csv(), two()).unwrap().with_block_bytes(10_000);
    let worker = || {
        let mut sum = (0i64, 0usize);
        while let Some(unit) = reader.next().unwrap() {
            for batch in unit.parse() {
                let batch = batch.unwrap();
                sum.0 += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
                sum.1 += batch.num_rows();
            }
        }
        sum
    };
    let sums: Vec<(i64, usize)> = std::thread::scope(|s| {
        (0..4)
            .map(|_| s.spawn(worker))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|t| t.join().unwrap())
            .collect()
    });
    assert_eq!(sums.iter().map(|s| s.1).sum::<usize>(), 60_000);
    assert_eq!(sums.iter().map(|s| s.0).sum::<i64>(), 60_000 * 59_999 / 2);
    assert_eq!(reader.bytes_done(), reader.bytes_total());
}

/// A value as CSV: quoted where it must be, and now and then where it need not.
fn field(value: &Option<String>, quote: bool) -> String {
    match value {
        None => String::new(),
        Some(v) if quote || v.is_empty() || v.contains(['"', ',', '\n', '\r']) => {
            format!("\"{}\"", v.replace('"', "\"\""))
        }
        Some(v) => v.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_csv_comes_back(
        table in prop::collection::vec(
            (any::<Option<i64>>(), prop::option::of("[a\"\n,\r é]{0,12}"), any::<bool>()), 1..60),
        block_bytes in 1usize..200,
        crlf: bool,
        header: bool,
        final_newline: bool,
    ) {
        let line_end = if crlf { "\r\n" } else { "\n" };
        let mut lines: Vec<String> = header.then(|| "a,b".to_owned()).into_iter().collect();
        for (a, b, quote) in &table {
            lines.push(format!("{},{}", field(&a.map(|a| a.to_string()), *quote), field(b, *quote)));
        }
        let mut text = lines.join(line_end);
        if final_newline {
            text += line_end;
        }
        let dir = folder();
        let path = write(&dir, "p.csv", &text);
        let options = CsvOptions { header: Some(header), ..CsvOptions::default() };
        let reader = Reader::open(vec![path], Format::Csv(options), two()).unwrap().with_block_bytes(block_bytes);
        let loaded = read_all(&reader, &two()).unwrap();
        let a: Int64Array = table.iter().map(|row| row.0).collect();
        let b: StringViewArray = table.iter().map(|row| row.1.as_deref()).collect();
        prop_assert_eq!(loaded.column(0).as_primitive::<Int64Type>(), &a);
        prop_assert_eq!(loaded.column(1).as_string_view(), &b);
    }
}
