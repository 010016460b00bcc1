use datafusion::sql::sqlparser::ast::{SetExpr, Statement};

use super::*;

fn read(call: &str) -> Result<Reading> {
    let sql = format!("SELECT * FROM {call}");
    let parsed = Parser::new(&Thalweg).try_with_sql(&sql).unwrap().parse_statement().unwrap();
    let Statement::Query(query) = parsed else { panic!("{call}") };
    let SetExpr::Select(select) = *query.body else { panic!("{call}") };
    Reading::of_call(&Reads::of(&select.from[0].relation).unwrap())
}

fn told(call: &str) -> Told {
    read(call).unwrap_or_else(|e| panic!("{call}: {e}")).told
}

fn csv_of(told: &Told) -> CsvOptions {
    match &told.text {
        Some(Format::Csv(options)) => options.clone(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(call: &str, texts: &[&str]) {
    let error = read(call).expect_err(call);
    let all = format!("{error} {} {:?}", error.hint_text().unwrap_or_default(), error.place());
    for text in texts {
        assert!(all.contains(text), "{call}: {all}");
    }
}

#[test]
fn paths_and_options() {
    let reading = read("read_csv(['a.csv', '~/b*.csv'], header = true, DELIM := '|', skip => 2)");
    let Reading { name, paths, told: all } = reading.unwrap();
    assert_eq!((name.as_str(), paths.len()), ("a.csv, …", 2));
    let csv = csv_of(&all);
    assert_eq!((csv.header, csv.delimiter, csv.skip), (Some(true), b'|', 2));
    assert!(!csv.sniff.delimiter && csv.sniff.quote);
    let csv = csv_of(&told("read_csv_auto('a', sep = E'\\t', quote = '', nullstr = ['NA', '-'])"));
    assert_eq!((csv.delimiter, csv.quote), (b'\t', None));
    assert_eq!(csv.nulls, ["NA", "-"]);
    let all = told("read_parquet('a', filename = true, hive_partitioning = 0)");
    assert_eq!((all.filename.as_deref(), all.hive), (Some("filename"), Some(false)));
    assert_eq!(told("parquet_scan('a', filename = 'f')").filename.as_deref(), Some("f"));
    assert_eq!(told("read_csv('a', sample_size = -1)").sample, None);
    assert_eq!(told("read_csv('a', sample_size = 100)").sample, Some(100));
    assert_eq!(told("read_csv('a', compression = NULL)").compression, None);
    assert_eq!(told("read_csv('a', compression = 'GZIP')").compression, Some(Compression::Gzip));
    assert!(told("read_csv('a', union_by_name = false)").same_columns);
}

#[test]
fn columns_have_types() {
    let all = told("read_csv('a', columns = {'a': 'INTEGER', 'b': 'DECIMAL(10,2)', c: 'text'})");
    let columns = all.columns.unwrap();
    let types: Vec<String> = columns.fields().iter().map(|f| f.data_type().to_string()).collect();
    assert_eq!(types, ["Int32", "Decimal128(10, 2)", "Utf8View"]);
    let named = Types::Named(vec![("zip".into(), DataType::Utf8View)]);
    assert_eq!(told("read_csv('a', types = {'zip': 'VARCHAR'})").types, named);
    let first = Types::First(vec![DataType::Date32, DataType::Int64]);
    assert_eq!(told("read_csv('a', dtypes = ['DATE', 'BIGINT'])").types, first);
    let off = csv_of(&told("read_csv('a', auto_detect = false, columns = {'a': 'INT'})"));
    assert_eq!((off.header, off.sniff), (Some(false), Sniff::default()));
}

#[test]
fn what_is_not_known_is_refused() {
    refused("read_csv()", &["takes the path", "read_csv('data/*.csv')"]);
    refused("read_csv(header = true)", &["takes the path"]);
    refused("read_csv([])", &["list of files is empty"]);
    refused("read_csv(1)", &["paths as texts"]);
    refused("read_csv('a', 'b')", &["one list of paths"]);
    refused("read_csv('a' || 'b')", &["written out"]);
    refused(
        "read_csv('a', hedaer = true)",
        &["\"hedaer\"", "did you mean header?", "timestampformat"],
    );
    refused("read_csv('a',\n  nosuch = 1)", &["no option \"nosuch\"", "Line(2, 3)"]);
    refused(
        "read_parquet('a', delim = ';')",
        &["read_parquet has no option \"delim\"", "filename"],
    );
    refused("read_csv('a', header = 'maybe')", &["true or false"]);
    refused("read_csv('a', delim = 'ab')", &["one ASCII character"]);
    refused("read_csv('a', delim = ';', quote = ';')", &["cannot also be"]);
    refused("read_csv('a', types = {'a': 'NOSUCH'})", &["\"NOSUCH\" is no type"]);
    refused("read_csv('a', types = {'a': 'INT INT'})", &["is no type"]);
    refused("read_csv('a', columns = ['a'])", &["takes columns and their types"]);
    refused("read_csv('a', columns = {'a': 'INT', 'A': 'INT'})", &["there twice"]);
    refused("read_csv('a', names = ['a', ''])", &["empty or there twice"]);
    refused("read_csv('a', columns = {'a': 'INT'}, names = ['b'])", &["already"]);
    refused("read_csv('a', auto_detect = false)", &["nobody knows the columns"]);
    refused("read_csv('a', sample_size = 0)", &["number of rows"]);
    refused("read_csv('a', compression = 'lzo')", &["not known"]);
    refused("read_csv('a', max_line_size = 99999999999)", &["number of bytes"]);
    refused("read_csv('a', filename = 3)", &["true or false"]);
    refused("read_json('a', header = true)", &["read_json has no option \"header\"", "records"]);
    assert_eq!(told("read_json('a', filename = true)").filename.as_deref(), Some("filename"));
    let all = told("read_ndjson('a', ignore_errors = true, columns = {'a': 'INT'})");
    assert!(matches!(&all.text, Some(Format::Json(json)) if json.ignore_errors));
    assert_eq!(all.columns.unwrap().fields().len(), 1);
}
