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
use super::layout::sql_type;
use super::*;

pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub(super) fn write(dir: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

pub(super) fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect();
    Arc::new(Schema::new(fields))
}

pub(super) fn json_format() -> Format {
    Format::Json(JsonOptions::default())
}

fn csv() -> Format {
    Format::Csv(CsvOptions::default())
}

pub(super) fn open(files: &[PathBuf], format: &Format, schema: &SchemaRef) -> Result<Reader> {
    Reader::open(files.to_vec(), format.clone(), Columns::new(schema.clone()))
}

pub(super) fn read_all(reader: &Reader, schema: &SchemaRef) -> Result<RecordBatch> {
    read_some(reader, schema).map(|(rows, _)| rows)
}

/// The rows that are loaded, and what became of the others.
fn read_some(reader: &Reader, schema: &SchemaRef) -> Result<(RecordBatch, Outcome)> {
    let mut batches = Vec::new();
    while let Some(unit) = reader.next() {
        for batch in unit.parse() {
            batches.push(batch?);
        }
    }
    let (outcome, result) = reader.finish();
    result?;
    assert_eq!(reader.bytes_done(), reader.bytes_total());
    Ok((concat_batches(schema, &batches).unwrap(), outcome))
}

/// Every row as text, `∅` for NULL, fields separated by bars.
pub(super) fn rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("∅");
    let columns: Vec<_> =
        batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    let row = |row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

/// Loads one file; tiny blocks must not make a difference.
pub(super) fn load(path: &Path, format: &Format, schema: &SchemaRef) -> Result<Vec<String>> {
    let open = || open(&[path.to_owned()], format, schema);
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
pub(super) fn check_error<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
    let error = result.expect_err("an error is expected");
    assert!(matches!(error.kind(), Kind::User | Kind::Unsupported), "{error:?}");
    let text = format!("{error:#}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
    assert!(error.hint_text().is_some(), "no way out in: {text}");
}

pub(super) fn two() -> SchemaRef {
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
    ok("a,b\n1,\"x\"y\n", &["1|\"x\"y"]);
    ok("a,b\r1,x\r2,\"y\rz\"\r", &["1|x", "2|y\rz"]);
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
    bad("a,b\n1,\"x\nz\"y\n", &["line 2", "closing quote"]);
    bad("a,b,c\n1,x,2\n", &["\"c\"", "unknown to the table", "\"a\", \"b\""]);
    bad("1,x,2\n", &["3 columns", "the table has 2"]);
    bad("a,A\n1,x\n", &["unknown", "A_1"]);
    bad("a\rb,c\n1,x\n", &["carriage return"]);
    bad("", &["is empty"]);
    bad("\n\n", &["no records"]);
    bad(&format!("a,b\n{},x\n", "9x".repeat(1000)), &["…\""]);

    let dir = folder();
    let latin1 = write(&dir, "l.csv", b"a,b\n1,caf\xe9\n");
    check_error(load(&latin1, &csv(), &two()), &["line 2", "column \"b\"", "not UTF-8", "iconv"]);
    let utf16 = write(&dir, "u.csv", b"\xff\xfea\0,\0b\0\n\x001\0,\0x\0");
    assert_eq!(load(&utf16, &csv(), &two()).unwrap(), ["1|x"]);
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
    let path = write(&dir, "l.csv", "l\nx\n");
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
    let dialect = Dialect { delimiter: b',', quote: Some(b'"'), ..Dialect::LINES };
    let stream = Box::new(fs::File::open(&path).unwrap());
    let source = TextSource::new(&Arc::new(path), 0, stream, dialect, 1, 64);
    let mut source = source.with_record_bytes_max(256);
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
        let (mut found, packed) = format_of(&write(&dir, name, content)).unwrap();
        if let Format::Csv(options) = &mut found {
            assert_eq!(std::mem::take(&mut options.sniff), Sniff::ALL);
        }
        assert_eq!((found, packed), (expected, compression), "{name}");
    };
    let delimited = |delimiter| Format::Csv(CsvOptions { delimiter, ..CsvOptions::default() });
    check("a.csv", b"a,b;c\n1,2;3\n", delimited(b','), Compression::None);
    check("b.CSV", b"a;b\n1,5;2\n", delimited(b','), Compression::None);
    check("c.txt", b"a|b\n1|2\n", delimited(b','), Compression::None);
    check("d.tsv", b"a\n", delimited(b'\t'), Compression::None);
    check("e.JSONL", b"{}", json_format(), Compression::None);
    check("f.csv.gz", &gzip(b"a\tb\n"), delimited(b','), Compression::Gzip);
    check("g", b"PAR1...", Format::Parquet, Compression::None);
    check("h", b"{\"a\":1}", json_format(), Compression::None);
    check("i", b"ARROW1..", Format::Arrow, Compression::None);
    check("j", b"a,b\n1,2\n", delimited(b','), Compression::None);
    check("k.dat", b"a;b\n1;2\n", delimited(b','), Compression::None);
    check("l.geojson", b"{}", json_format(), Compression::None);
    check("m", b" [\n{\"a\":1}]", json_format(), Compression::None);
    check("n.tab", b"a\tb\n", delimited(b'\t'), Compression::None);
    check_error(format_of(&write(&dir, "k.zip", b"PK\x03\x04")), &["k.zip", "damaged"]);
    check_error(format_of(&write(&dir, "k.7z", b"7z")), &["k.7z", "unpack"]);
    check_error(format_of(&write(&dir, "l", b"\0\x01\x02")), &["cannot tell the format"]);
    check_error(format_of(&write(&dir, "m.parquet.gz", gzip(b"PAR1"))), &["compressed Parquet"]);
}

pub(super) fn inferred(files: &[(&str, &str)], format: &Format) -> Result<String> {
    let dir = folder();
    let paths: Vec<PathBuf> = files.iter().map(|(name, text)| write(&dir, name, text)).collect();
    let found = infer(&paths, format)?;
    // What was inferred can be loaded.
    let schema = found.schema();
    let loaded = read_all(&open(&paths, format, &schema)?, &schema)?;
    if let Some(rows) = found.rows {
        assert_eq!(rows, loaded.num_rows() as u64);
    }
    for (column, array) in found.columns.iter().zip(loaded.columns()) {
        let nulls = array.null_count() as u64;
        assert_eq!(column.nulls.unwrap_or(nulls), nulls, "{column:?}");
    }
    let column = |c: &InferredColumn| format!("{} {}", c.name, sql_type(&c.data_type));
    Ok(found.columns.iter().map(column).collect::<Vec<_>>().join(", "))
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
    check("a,a,,b\n1,2,3,4\n", "a BIGINT, a_1 BIGINT, column_3 BIGINT, b BIGINT");
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

/// The report on one column.
pub(super) fn why(files: &[(&str, &str)], format: &Format, column: &str) -> String {
    let dir = folder();
    let paths: Vec<PathBuf> = files.iter().map(|(name, text)| write(&dir, name, text)).collect();
    let found = infer(&paths, format).unwrap();
    let column = found.columns.iter().find(|c| c.name == column).unwrap();
    let nulls = match column.null_spellings.as_slice() {
        [] => format!("{:?}", column.nulls),
        spellings => format!("{:?} {spellings:?}", column.nulls),
    };
    format!("{}; {}; {nulls}", sql_type(&column.data_type), column.why)
}

#[test]
fn inference_says_why() {
    let check = |text: &str, expected: &str| {
        assert_eq!(why(&[("i.csv", text)], &csv(), "a"), expected, "{text:?}")
    };
    check("a,b\n1,2\n2,\n", "BIGINT; all 2 values, such as \"1\"; Some(0)");
    check(
        "a,b\n1,2\n,3\n2.5,4\n",
        "DOUBLE; line 4 of \"i.csv\" has \"2.5\"; BIGINT before it; Some(1) [\"\"]",
    );
    check(
        "a,b\n1,2\n2,3\nN/A,3\nfalse,3\n",
        "VARCHAR; line 4 of \"i.csv\" has \"N/A\"; BIGINT before it; if it means NULL: --null \"N/A\"; Some(0)",
    );
    check(
        "a,b\n1,2\ntrue,3\nx,1\n",
        "VARCHAR; line 3 of \"i.csv\" has \"true\"; BIGINT before it; Some(0)",
    );
    check("a,b\n,2\n,3\n", "VARCHAR; no value in any row; Some(2) [\"\"]");
    check("a,b\nx,2\ny,3\n", "VARCHAR; line 2 of \"i.csv\" has \"x\"; Some(0)");
    let two = [("1.csv", "a,b\n1,2\n"), ("2.csv", "b,a\n1.5,x\n2,3\n"), ("3.csv", "b\n1\n")];
    assert_eq!(
        why(&two, &csv(), "a"),
        "VARCHAR; line 2 of \"2.csv\" has \"x\"; BIGINT before it; Some(1)"
    );
    assert_eq!(
        why(&two, &csv(), "b"),
        "DOUBLE; line 2 of \"2.csv\" has \"1.5\"; BIGINT before it; Some(0)"
    );
    let json = [("1.jsonl", "{\"a\":1}\n{}\n"), ("2.jsonl", "{\"b\":1,\"a\":\"x\"}\n")];
    assert_eq!(
        why(&json, &json_format(), "a"),
        "VARCHAR; line 1 of \"2.jsonl\" has \"x\"; BIGINT before it; Some(1)"
    );
}

/// The last value of a large input counts like the first.
#[test]
fn inference_looks_at_every_row() {
    let dir = folder();
    let mut text = "a,b\n".to_owned();
    (0..400_000).for_each(|i| text += &format!("{i},{}\n", i % 7));
    text += "NA,0.5\n";
    let path = write(&dir, "late.csv", &text);
    let found = infer(std::slice::from_ref(&path), &csv()).unwrap();
    assert_eq!(found.rows, Some(400_001));
    assert_eq!(found.columns[0].data_type, DataType::Utf8View);
    assert!(found.columns[0].why.starts_with("line 400002 of \"late.csv\" has \"NA\""));
    assert_eq!(found.columns[1].data_type, DataType::Float64);
    let json: String = (0..50_000).map(|i| format!("{{\"a\":{i}}}\n")).collect();
    let path = write(&dir, "late.jsonl", json + "{\"a\":1.5,\"z\":1}\n");
    let found = infer(&[path], &json_format()).unwrap();
    assert_eq!((found.columns[0].data_type.clone(), found.columns.len()), (DataType::Float64, 2));
}

/// Workers that share an inference find what one finds alone, to the letter of the report.
#[test]
fn inference_is_the_same_for_any_number_of_workers() {
    let dir = folder();
    let mut prng = thalweg_base::Prng::new(3);
    let mut files = Vec::new();
    for file in 0..3 {
        let mut text = "a,b,c\n".to_owned();
        for _ in 0..3000 {
            for column in 0..3 {
                text += match prng.below(3000) {
                    0 => "x",
                    1 => "1.5",
                    2 => "true",
                    3..500 => "",
                    _ => "17",
                };
                text += if column < 2 { "," } else { "\n" };
            }
        }
        files.push(write(&dir, &format!("{file}.csv"), text));
    }
    let run = |workers: usize, block_bytes: usize| {
        let inference = Inference::open(files.clone(), csv()).unwrap();
        let inference = inference.with_block_bytes(block_bytes);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(mut piece) = inference.next() {
                        while piece.step() {}
                    }
                });
            }
        });
        inference.finish().1.unwrap().columns
    };
    let alone = run(1, 1 << 20);
    for (workers, block_bytes) in [(1, 100), (4, 100), (4, 1000), (3, 5000)] {
        assert_eq!(run(workers, block_bytes), alone, "{workers} workers");
    }
}

#[test]
fn inference_beside_a_table_finds_only_what_it_lacks() {
    let dir = folder();
    let one = write(&dir, "1.csv", "a,b\n1,x\n");
    let more = write(&dir, "2.csv", "b,c,A,d\nx,5,1,2024-01-01\ny,0.5,q,\n");
    let beside = |files: &[&PathBuf], format: Format| {
        let files = files.iter().map(|p| (*p).clone()).collect();
        let inference = Inference::open(files, format).unwrap().beside(two());
        while let Some(mut piece) = inference.next() {
            while piece.step() {}
        }
        let columns = inference.finish().1.unwrap().columns;
        columns.iter().map(|c| format!("{} {}", c.name, sql_type(&c.data_type))).collect::<Vec<_>>()
    };
    assert_eq!(beside(&[&one], csv()), [] as [&str; 0]);
    assert_eq!(beside(&[&one, &more], csv()), ["c DOUBLE", "d DATE"]);
    let json = write(&dir, "1.jsonl", "{\"B\":1}\n{\"a\":1,\"e\":true}\n");
    assert_eq!(beside(&[&json], json_format()), ["e BOOLEAN"]);
    let parquet = write(&dir, "1.parquet", parquet_file(&numbers(10)));
    assert_eq!(beside(&[&parquet], Format::Parquet), ["Name VARCHAR", "id BIGINT"]);
}

#[test]
fn files_that_declare_their_columns_are_all_compared() {
    let dir = folder();
    let file = |name: &str, columns: Vec<(&str, ArrayRef)>| {
        write(&dir, name, parquet_file(&RecordBatch::try_from_iter(columns).unwrap()))
    };
    let ints = || -> ArrayRef { Arc::new(arrow::array::Int32Array::from(vec![1, 2])) };
    let longs = || -> ArrayRef { Arc::new(Int64Array::from(vec![1 << 40])) };
    let texts = || -> ArrayRef { Arc::new(StringArray::from(vec!["x"])) };
    let a = file("a.parquet", vec![("n", ints())]);
    let b = file("b.parquet", vec![("N", longs()), ("s", texts())]);
    let c = file("c.parquet", vec![("n", texts())]);
    let found = infer(&[a.clone(), b.clone()], &Format::Parquet).unwrap();
    assert_eq!(found.schema(), schema(&[("n", DataType::Int64), ("s", DataType::Utf8View)]));
    assert_eq!(found.columns[0].why, "\"b.parquet\" holds more; INTEGER before it");
    assert_eq!(found.columns[1].why, "declared by the files; in 1 of 2 files");
    let schema = found.schema();
    let loaded = read_all(&open(&[a.clone(), b], &Format::Parquet, &schema).unwrap(), &schema);
    assert_eq!(loaded.unwrap().num_rows(), 3);
    check_error(
        infer(&[a, c], &Format::Parquet),
        &["\"n\" is INTEGER in", "a.parquet", "VARCHAR in", "c.parquet"],
    );
}

#[test]
fn rejected_rows_are_put_aside() {
    let dir = folder();
    let strict = Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, false),
        Field::new("b", DataType::Utf8View, true),
        Field::new("d", DataType::Date32, true),
    ]));
    let text =
        "a,b,d\n1,x,2024-01-01\nq,\"two\nlines\",2024-13-01\n,y,\n4,z\n5,\"w\",\"2024\"\n6,v,\n";
    let path = write(&dir, "r.csv", text);
    let reader = |max: u64, block_bytes: usize| {
        let reader = open(std::slice::from_ref(&path), &csv(), &strict).unwrap();
        reader.with_rejects_max(max).with_block_bytes(block_bytes)
    };
    for block_bytes in [1 << 20, 16] {
        let (loaded, outcome) = read_some(&reader(4, block_bytes), &strict).unwrap();
        assert_eq!(rows(&loaded), ["1|x|2024-01-01", "6|v|∅"]);
        let told: Vec<String> = outcome
            .rejects
            .iter()
            .map(|r| format!("{} {:?} {:?} {} <{}>", r.line, r.column, r.value, r.reason, r.record))
            .collect();
        assert_eq!(
            told,
            [
                "3 Some(\"a\") Some(\"q\") \"q\" is not a valid BIGINT <q,\"two\nlines\",2024-13-01>",
                "5 Some(\"a\") None NULL in a NOT NULL column <,y,>",
                "6 None None 2 fields where the first line has 3 <4,z>",
                "7 Some(\"d\") Some(\"2024\") \"2024\" is not a valid DATE <5,\"w\",\"2024\">",
            ]
        );
        let failing = reader(3, block_bytes);
        check_error(
            read_all(&failing, &strict),
            &["more than 3 bad rows", "line 3, column \"a\"", "line 7, column \"d\""],
        );
    }

    let text = "{\"a\":1}\n{\"a\":\"x\",\"b\":\"kept?\"}\n{\"a\":2\n{\"b\":1}\n{\"a\":3,\"c\":1}\n{\"a\":4,\"d\":\"2024-01-01\"}\n";
    let path = write(&dir, "r.jsonl", text);
    let json = open(&[path], &json_format(), &strict).unwrap().with_rejects_max(9);
    let (loaded, outcome) = read_some(&json, &strict).unwrap();
    assert_eq!(rows(&loaded), ["1|∅|∅", "4|∅|2024-01-01"]);
    let lines: Vec<u64> = outcome.rejects.iter().map(|r| r.line).collect();
    assert_eq!(lines, [2, 3, 4, 5]);
    assert_eq!(outcome.rejects[0].record, "{\"a\":\"x\",\"b\":\"kept?\"}");

    let narrow = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int8, true),
        Field::new("name", DataType::Utf8View, false),
    ]));
    for (name, format, bytes) in [
        ("r.parquet", Format::Parquet, parquet_file(&numbers(20_000))),
        ("r.arrow", Format::Arrow, arrow_file(&numbers(20_000))),
    ] {
        let path = write(&dir, name, bytes);
        let reader = open(&[path], &format, &narrow).unwrap().with_rejects_max(30_000);
        let (loaded, outcome) = read_some(&reader, &narrow).unwrap();
        // Of 128 ids that fit every seventh has no name; an Arrow file has five rows more.
        let more = if format == Format::Arrow { 5 } else { 0 };
        let kept = 128 - 19 + (more - more / 5);
        assert_eq!(loaded.num_rows(), kept, "{name}");
        assert_eq!(outcome.rejects.len(), 20_000 + more - kept, "{name}");
        assert_eq!(
            (outcome.rejects[0].line, outcome.rejects[0].column.as_deref()),
            (1, Some("name"))
        );
        let last = outcome.rejects.iter().find(|r| r.line == 19_999).unwrap();
        assert_eq!(last.reason, "\"19998\" does not fit TINYINT");
    }
}

/// The error is that of the first bad row in the order of the input, whoever meets one first.
#[test]
fn the_first_bad_row_is_named_by_any_number_of_workers() {
    let dir = folder();
    let mut files = Vec::new();
    for file in 0..4 {
        let mut text = "a,b\n".to_owned();
        for row in 0..5000 {
            let bad = file >= 1 && row >= 4000 - 1000 * file;
            text += if bad { "x,y\n" } else { "1,y\n" };
        }
        files.push(write(&dir, &format!("{file}.csv"), text));
    }
    files.push(write(&dir, "4.csv", "a,b\n\"1,y\n"));
    for workers in [1, 2, 5] {
        for (rejects_max, expected) in [(0, "line 3002"), (2, "more than 2 bad rows")] {
            let reader = open(&files, &csv(), &two()).unwrap();
            let reader = reader.with_rejects_max(rejects_max).with_block_bytes(2000);
            std::thread::scope(|scope| {
                for _ in 0..workers {
                    scope.spawn(|| {
                        while let Some(unit) = reader.next() {
                            unit.parse().for_each(|batch| drop(batch.unwrap()));
                        }
                    });
                }
            });
            let (outcome, result) = reader.finish();
            check_error(result, &["1.csv", expected]);
            let lines: Vec<u64> = outcome.rejects.iter().map(|r| r.line).collect();
            assert_eq!(lines, (3002..=3002 + rejects_max).collect::<Vec<_>>());
        }
    }
}

#[test]
fn columns_that_only_one_side_has() {
    let dir = folder();
    let path = write(&dir, "e.csv", "b,z,a\nx,9,1\n");
    let other = write(&dir, "f.csv", "a,y\n2,8\n");
    let seven: ArrayRef = Arc::new(StringViewArray::from(vec!["seven"]));
    let columns =
        Columns { defaults: vec![None, Some(seven)], ignore_unknown: true, ..Columns::new(two()) };
    let reader = Reader::open(vec![path, other], csv(), columns.clone()).unwrap();
    let (loaded, outcome) = read_some(&reader, &two()).unwrap();
    assert_eq!(rows(&loaded), ["1|x", "2|seven"]);
    let named = |m: &std::collections::BTreeMap<String, std::collections::BTreeSet<usize>>| {
        m.iter().map(|(n, f)| format!("{n} {f:?}")).collect::<Vec<_>>()
    };
    assert_eq!(named(&outcome.matched.missing), ["b {1}"]);
    assert_eq!(named(&outcome.matched.ignored), ["y {1}", "z {0}"]);

    let path = write(&dir, "e.jsonl", "{\"a\":1,\"q\":[1]}\n{\"a\":2,\"b\":null}\n{\"b\":\"x\"}\n");
    let reader = Reader::open(vec![path], json_format(), columns).unwrap();
    let (loaded, outcome) = read_some(&reader, &two()).unwrap();
    assert_eq!(rows(&loaded), ["1|seven", "2|∅", "∅|x"]);
    assert_eq!(named(&outcome.matched.ignored), ["q {0}"]);

    let path = write(&dir, "g.csv", "1,x\n");
    let columns = Columns { names: Some(vec!["b".into(), "a".into()]), ..Columns::new(two()) };
    let reader = Reader::open(vec![path], csv(), columns).unwrap();
    check_error(read_all(&reader, &two()), &["line 1", "column \"a\"", "\"x\""]);
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
    assert_eq!(found.schema(), schema(&[("Name", DataType::Utf8View), ("id", DataType::Int64)]));

    let target = schema(&[
        ("ID", DataType::Int32),
        ("name", DataType::Utf8View),
        ("extra", DataType::Date32),
    ]);
    let reader = open(std::slice::from_ref(&path), &Format::Parquet, &target).unwrap();
    let mut units = 0;
    while let Some(unit) = reader.next() {
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
    check_error(read(&narrow), &["x.parquet\", row 129", "\"id\"", "\"128\" does not fit TINYINT"]);
    let strict = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("name", DataType::Utf8View, false),
    ]));
    check_error(read(&strict), &["row 1,", "NOT NULL", "\"name\""]);
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
            let reader = open(&[path], &format, &target).unwrap();
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
            infer(std::slice::from_ref(path), &Format::Arrow).unwrap().columns[0].name,
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
    let reader = open(&files, &csv(), &two()).unwrap().with_block_bytes(10_000);
    let worker = || {
        let mut sum = (0i64, 0usize);
        while let Some(unit) = reader.next() {
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
        let reader = open(&[path], &Format::Csv(options), &two()).unwrap();
        let reader = reader.with_block_bytes(block_bytes);
        let loaded = read_all(&reader, &two()).unwrap();
        let a: Int64Array = table.iter().map(|row| row.0).collect();
        let b: StringViewArray = table.iter().map(|row| row.1.as_deref()).collect();
        prop_assert_eq!(loaded.column(0).as_primitive::<Int64Type>(), &a);
        prop_assert_eq!(loaded.column(1).as_string_view(), &b);
    }
}

/// A value that any type might be taken for.
fn anything() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(String::new()),
        6 => any::<i64>().prop_map(|n| n.to_string()),
        2 => (-99i64..99).prop_map(|n| n.to_string()),
        2 => any::<f64>().prop_map(|f| f.to_string()),
        2 => "-?[0-9]{1,4}\\.[0-9]{1,4}",
        1 => "[-+]?[0-9]{1,22}",
        1 => "(true|FALSE|t|yes|NaN|inf|-)",
        2 => "(0001|1677|1970|2024|2262|9999)-(01|02|12)-(01|29|31)",
        2 => "(0001|1970|2024|9999)-01-0[1-9][T ](00:00:00|23:59:59\\.5|10:00:00\\.123456789)(Z|\\+02:00|)",
        1 => "[0-2][0-9]:[0-5][0-9]:[0-9]{2}(\\.[0-9]{1,9})?",
        1 => "[ a-z\"é]{0,4}",
        1 => " (1|2\\.5|true|2024-01-01|x) ",
    ]
}

/// Like the first of a few kinds, mostly: columns of one type are the interesting ones.
fn column() -> impl Strategy<Value = Vec<String>> {
    let like = |kind: &'static str| prop::collection::vec(kind, 1..40).boxed();
    prop_oneof![
        prop::collection::vec(anything(), 1..40).boxed(),
        like("-?[1-9][0-9]{0,17}"),
        like("-?[0-9]{1,3}\\.[0-9]{1,3}"),
        like("20[0-9]{2}-0[1-9]-[012][0-9]"),
        like("(1500|2024)-01-0[1-9]( 10:00:00(\\.[0-9]{1,9})?)?"),
        like("2024-01-01T10:00:00(\\.[0-9]{1,3})?(Z|-05:30)"),
        like("[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"),
        like("(true|false|)"),
    ]
}

/// The type of a column by trying one after the other on all values, as the loader reads them.
fn model(values: &[String]) -> DataType {
    use super::parse::{Look, look};
    let present: Vec<&[u8]> =
        values.iter().map(|v| v.as_bytes()).filter(|v| !v.trim_ascii().is_empty()).collect();
    let looks: Vec<Look> = present.iter().map(|v| look(v)).collect();
    let all = |f: &dyn Fn(&Look) -> bool| !looks.is_empty() && looks.iter().all(f);
    let any = |f: &dyn Fn(&Look) -> bool| looks.iter().any(f);
    let stamp = |l: &Look| matches!(l, Look::Timestamp { .. });
    let zoned = |l: &Look| matches!(l, Look::Timestamp { zoned: true, .. });
    let date = |l: &Look| matches!(l, Look::Date { .. });
    let fine = any(&|l| matches!(l, Look::Timestamp { fine: true, .. }));
    let ancient =
        any(&|l| matches!(l, Look::Timestamp { ancient: true, .. } | Look::Date { ancient: true }));
    let unit = if fine { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
    if all(&|l| *l == Look::Boolean) {
        DataType::Boolean
    } else if all(&|l| matches!(l, Look::Integer | Look::Long)) {
        DataType::Int64
    } else if all(&|l| matches!(l, Look::Integer | Look::Float)) {
        DataType::Float64
    } else if all(&date) {
        DataType::Date32
    } else if all(&|l| *l == Look::Time) {
        DataType::Time64(TimeUnit::Nanosecond)
    } else if fine && ancient {
        DataType::Utf8View
    } else if all(&zoned) {
        DataType::Timestamp(unit, Some("UTC".into()))
    } else if all(&|l| date(l) || stamp(l)) && !any(&zoned) {
        DataType::Timestamp(unit, None)
    } else {
        DataType::Utf8View
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The inferred type is the model's, whatever the blocks; and every value can be read as it.
    #[test]
    fn inferred_types_hold_every_value(
        a in column(),
        b in column(),
        quotes in prop::collection::vec(any::<bool>(), 40),
        block_bytes in 1usize..300,
    ) {
        let lines = a.len().max(b.len());
        let value = |column: &[String], row: usize| column.get(row).cloned().unwrap_or_default();
        let mut text = "a,b\n".to_owned();
        for (row, &quote) in quotes.iter().enumerate().take(lines) {
            let quoted = |v: String| match v.is_empty() {
                true => v,
                false => field(&Some(v), quote),
            };
            text += &format!("{},{}\n", quoted(value(&a, row)), quoted(value(&b, row)));
        }
        let dir = folder();
        let path = write(&dir, "p.csv", &text);
        let options = CsvOptions { header: Some(true), ..CsvOptions::default() };
        let format = Format::Csv(options);
        let inference = Inference::open(vec![path.clone()], format.clone()).unwrap();
        let inference = inference.with_block_bytes(block_bytes);
        while let Some(mut piece) = inference.next() {
            while piece.step() {}
        }
        let found = inference.finish().1.unwrap();
        for (column, values) in found.columns.iter().zip([&a, &b]) {
            // A quoted blank is text; the model knows no quotes.
            let blank = values.iter().any(|v| !v.is_empty() && v.trim().is_empty());
            prop_assert!(blank || column.data_type == model(values), "{column:?} of {values:?}");
        }
        let schema = found.schema();
        let loaded = read_all(&open(&[path], &format, &schema).unwrap(), &schema);
        prop_assert!(loaded.is_ok(), "{loaded:?}");
        prop_assert_eq!(loaded.unwrap().num_rows() as u64, found.rows.unwrap());
    }
}

mod dialects;
