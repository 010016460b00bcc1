//! What is said of files: by a call such as `read_csv(['a.csv', 'b.csv'], delim = ';')`, or nothing but
//! their name.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DictionaryField, Expr, FunctionArg, FunctionArgExpr, Ident, Spanned,
    UnaryOperator, Value as Sql,
};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use thalweg_base::text::{nearest, quoted};
use thalweg_base::{Error, Result};
use thalweg_bind::{READERS, Reads};
use thalweg_storage::load::{BookOptions, Compression, CsvOptions, Format, JsonOptions, Sniff};
use thalweg_storage::stored_type;

use crate::declared;
use crate::dialect::Thalweg;

/// Which files, and how they are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What the statement calls them, for people.
    pub name: String,
    /// Paths, folders and globs, in the order in which they are read.
    pub paths: Vec<String>,
    pub told: Told,
}

/// The format that a function reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Csv,
    Json,
    Parquet,
    Arrow,
    Xlsx,
}

/// What is told and not left to be found out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// `None`: the format of their names, or else of their first bytes.
    pub kind: Option<Kind>,
    /// How files of text are written.
    pub text: Option<Format>,
    /// All columns, in the order of the files.
    pub columns: Option<SchemaRef>,
    pub types: Types,
    /// Rows of each file by which the types are found; `None`: all.
    pub sample: Option<u64>,
    pub compression: Option<Compression>,
    /// The column with the path of the file of each row.
    pub filename: Option<String>,
    /// Whether folders called `key=value` are columns; `None`: if all files have the same keys.
    pub hive: Option<bool>,
    pub hive_types: Vec<(String, DataType)>,
    /// The values of those columns are texts, if no type is told.
    pub hive_as_text: bool,
    /// Files that have other columns than the first are refused.
    pub same_columns: bool,
}

/// Types of some of the columns that are found.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Types {
    #[default]
    Found,
    Named(Vec<(String, DataType)>),
    /// Of the first columns.
    First(Vec<DataType>),
}

/// Options of the paths, which all functions take.
const OF_PATHS: [&str; 5] =
    ["filename", "hive_partitioning", "hive_types", "hive_types_autocast", "union_by_name"];

/// Those of delimited text besides [`CsvOptions::NAMES`].
const OF_CSV: [&str; 6] =
    ["columns", "types", "names", "sample_size", "auto_detect", "compression"];

/// Those of JSON, as [`JsonOptions::tell`] takes them, and `columns`.
const OF_JSON: [&str; 10] = [
    "format",
    "array",
    "records",
    "maximum_object_size",
    "maximum_depth",
    "dateformat",
    "timestampformat",
    "compression",
    "ignore_errors",
    "columns",
];

impl Reading {
    /// Files of which nothing but the name is said.
    pub fn of_name(name: &str) -> Reading {
        Reading { name: name.to_owned(), paths: vec![name.to_owned()], told: Told::default() }
    }

    /// # Errors
    /// An option is not known, or its value is none that it takes; with its place in the text.
    pub fn of_call(call: &Reads<'_>) -> Result<Reading> {
        let first = READERS.iter().find(|(name, _)| *name == call.name).map(|(_, first)| *first);
        let kind = match first {
            Some("read_csv") => Kind::Csv,
            Some("read_parquet") => Kind::Parquet,
            Some("read_arrow") => Kind::Arrow,
            Some("read_xlsx") => Kind::Xlsx,
            _ => Kind::Json,
        };
        let mut call = Call {
            function: &call.name,
            kind,
            csv: CsvOptions::sniffed(),
            json: match kind {
                Kind::Xlsx => JsonOptions::of_book(),
                _ => JsonOptions::default(),
            },
            auto_detect: true,
            told: Told { kind: Some(kind), ..Told::default() },
            args: call.args,
        };
        let paths = call.paths()?;
        for arg in &call.args[1..] {
            let Some((name, value)) = named(arg) else {
                return Err(at(
                    Error::user(format!("{} takes one path, or one list of paths", call.function))
                        .hint("write several files as a list: ['a.csv', 'b.csv']; options follow by name: header = true"),
                    arg,
                ));
            };
            call.option(&name.value.to_lowercase(), value).map_err(|e| at(e, arg))?;
        }
        let name = match &paths[..] {
            [path] => path.clone(),
            [path, ..] => format!("{path}, …"),
            [] => String::new(),
        };
        let told = call.settled()?;
        Ok(Reading { name, paths, told })
    }
}

fn at(error: Error, sql: &impl Spanned) -> Error {
    let start = sql.span().start;
    let whole = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    match start.line > 0 {
        true => error.within(whole(start.line), whole(start.column)),
        false => error,
    }
}

/// `name = value`, `name := value` or `name => value`.
fn named(arg: &FunctionArg) -> Option<(&Ident, &Expr)> {
    match arg {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => Some((name, value)),
        FunctionArg::ExprNamed {
            name: Expr::Identifier(name),
            arg: FunctionArgExpr::Expr(value),
            ..
        } => Some((name, value)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        })) => match left.as_ref() {
            Expr::Identifier(name) => Some((name, right)),
            _ => None,
        },
        _ => None,
    }
}

/// A value that is written out.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Value>),
    Fields(Vec<(String, Value)>),
}

impl Value {
    fn of(expr: &Expr) -> Result<Value> {
        let list = |items: &[Expr]| items.iter().map(Value::of).collect::<Result<_>>();
        Ok(match expr {
            Expr::Nested(inner) => Value::of(inner)?,
            Expr::Value(value) => match &value.value {
                Sql::Null => Value::Null,
                Sql::Boolean(value) => Value::Bool(*value),
                Sql::Number(digits, _) => Value::Number(digits.clone()),
                other => match other.clone().into_string() {
                    Some(text) => Value::Text(text),
                    None => return Err(unwritten(expr)),
                },
            },
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => match Value::of(inner)? {
                Value::Number(digits) => Value::Number(format!("-{digits}")),
                _ => return Err(unwritten(expr)),
            },
            Expr::Array(array) => Value::List(list(&array.elem)?),
            Expr::Tuple(items) => Value::List(list(items)?),
            Expr::Dictionary(fields) => {
                let field = |f: &DictionaryField| Ok((f.key.value.clone(), Value::of(&f.value)?));
                Value::Fields(fields.iter().map(field).collect::<Result<_>>()?)
            }
            other => return Err(unwritten(other)),
        })
    }

    /// As options take it: one text, or several.
    fn texts(self) -> Result<Vec<String>> {
        match self {
            Value::List(items) => items.into_iter().map(Value::text).collect(),
            one => Ok(vec![one.text()?]),
        }
    }

    fn text(self) -> Result<String> {
        match self {
            Value::Bool(value) => Ok(value.to_string()),
            Value::Number(text) | Value::Text(text) => Ok(text),
            Value::Null | Value::List(_) | Value::Fields(_) => {
                Err(Error::user("a text is expected here").hint("write it in single quotes"))
            }
        }
    }
}

fn unwritten(expr: &Expr) -> Error {
    let error =
        Error::user(format!("{} is no value that is written out", quoted(&expr.to_string())));
    error.hint("functions that read files take texts, numbers, true and false, lists ['a', 'b'] and fields {'a': 'INTEGER'}; what they read cannot depend on other rows")
}

struct Call<'t> {
    function: &'t str,
    kind: Kind,
    csv: CsvOptions,
    json: JsonOptions,
    auto_detect: bool,
    told: Told,
    args: &'t [FunctionArg],
}

impl Call<'_> {
    fn paths(&self) -> Result<Vec<String>> {
        let function = self.function;
        let hint =
            format!("for example {function}('data/*.csv'), or a list: {function}(['a', 'b'])");
        let Some(first) = self.args.first() else {
            return Err(Error::user(format!("{function} takes the path of a file")).hint(hint));
        };
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = first else {
            return Err(at(
                Error::user(format!("{function} takes the path of a file first")).hint(hint),
                first,
            ));
        };
        if named(first).is_some() {
            return Err(at(
                Error::user(format!("{function} takes the path of a file first")).hint(hint),
                first,
            ));
        }
        let text = |value: Value| match value {
            Value::Text(path) if !path.is_empty() => Ok(path),
            _ => Err(at(
                Error::user(format!("{function} takes paths as texts")).hint(hint.clone()),
                first,
            )),
        };
        let paths: Vec<String> = match Value::of(expr).map_err(|e| at(e, first))? {
            Value::List(items) => items.into_iter().map(text).collect::<Result<_>>()?,
            one => vec![text(one)?],
        };
        match paths.is_empty() {
            true => Err(at(Error::user("the list of files is empty").hint(hint), first)),
            false => Ok(paths),
        }
    }

    /// The names of all options, as errors list them.
    fn known(&self) -> Vec<&'static str> {
        let mut known: Vec<&str> = OF_PATHS.to_vec();
        match self.kind {
            Kind::Csv => {
                known.extend(CsvOptions::NAMES);
                known.extend(OF_CSV);
            }
            Kind::Json => known.extend(OF_JSON),
            Kind::Xlsx => known.extend(BookOptions::NAMES),
            Kind::Parquet | Kind::Arrow => {}
        }
        known.sort_unstable();
        known
    }

    fn option(&mut self, name: &str, value: &Expr) -> Result<()> {
        let value = Value::of(value)?;
        // As if it were not written.
        if value == Value::Null && self.is_known(name) {
            return Ok(());
        }
        let flag = |value: Value| match value {
            Value::Bool(value) => Ok(value),
            Value::Number(digits) if digits == "1" || digits == "0" => Ok(digits == "1"),
            _ => Err(Error::user(format!("option {name} is true or false"))
                .hint(format!("write {name} = true"))),
        };
        match name {
            "filename" => {
                self.told.filename = match value {
                    Value::Text(name) => Some(name),
                    other => flag(other)?.then(|| "filename".to_owned()),
                }
            }
            "hive_partitioning" => self.told.hive = Some(flag(value)?),
            "hive_types_autocast" => self.told.hive_as_text = !flag(value)?,
            "hive_types" => self.told.hive_types = typed_fields(name, value)?,
            "union_by_name" => self.told.same_columns = !flag(value)?,
            _ if self.kind == Kind::Csv => return self.of_csv(name, value),
            "columns" if self.kind == Kind::Json => return self.of_csv(name, value),
            _ if matches!(self.kind, Kind::Json | Kind::Xlsx) => {
                let is_known = self.json.tell(name, &value.texts()?)?;
                if !is_known {
                    return Err(self.unknown(name));
                }
            }
            _ => return Err(self.unknown(name)),
        }
        Ok(())
    }

    fn is_known(&self, name: &str) -> bool {
        self.known().contains(&name)
    }

    fn of_csv(&mut self, name: &str, value: Value) -> Result<()> {
        match name {
            "auto_detect" => match value {
                Value::Bool(value) => self.auto_detect = value,
                _ => return Err(Error::user("option auto_detect is true or false")),
            },
            "sample_size" => {
                let rows = match value {
                    Value::Number(digits) => digits.parse::<i64>().ok(),
                    _ => None,
                };
                self.told.sample = match rows {
                    Some(-1) => None,
                    Some(rows @ 1..) => Some(rows.unsigned_abs()),
                    _ => {
                        return Err(Error::user("option sample_size takes a number of rows")
                            .hint("all rows decide the types if it is left out, or -1"));
                    }
                };
            }
            "compression" => {
                self.told.compression = compression(&value.text()?)?;
            }
            "columns" => {
                let fields = typed_fields(name, value)?;
                let mut seen = HashSet::new();
                if let Some((twice, _)) =
                    fields.iter().find(|(n, _)| !seen.insert(n.to_lowercase()))
                {
                    return Err(Error::user(format!("column {} is there twice", quoted(twice)))
                        .hint("give each column a name of its own"));
                }
                let field =
                    |(name, data_type): (String, DataType)| Field::new(name, data_type, true);
                let fields: Vec<Field> = fields.into_iter().map(field).collect();
                self.told.columns = Some(Arc::new(Schema::new(fields)));
            }
            "types" | "dtypes" | "column_types" => {
                self.told.types = match value {
                    Value::List(types) => {
                        let data_type = |value: Value| data_type(name, &value.text()?);
                        Types::First(types.into_iter().map(data_type).collect::<Result<_>>()?)
                    }
                    other => Types::Named(typed_fields(name, other)?),
                };
            }
            "names" | "column_names" => {
                let names = value.texts()?;
                let mut seen = HashSet::new();
                let is_bad = |n: &&String| n.trim().is_empty() || !seen.insert(n.to_lowercase());
                if let Some(bad) = names.iter().find(is_bad) {
                    return Err(Error::user(format!(
                        "{} is empty or there twice among the names",
                        quoted(bad)
                    ))
                    .hint("give each column a name of its own"));
                }
                self.csv.names = names;
            }
            _ => {
                let is_known = self.csv.tell(name, &value.texts()?)?;
                if !is_known {
                    return Err(self.unknown(name));
                }
            }
        }
        Ok(())
    }

    fn unknown(&self, name: &str) -> Error {
        let known = self.known();
        let error = Error::user(format!("{} has no option {}", self.function, quoted(name)));
        let all = format!("it has {}", known.join(", "));
        match nearest(name, known.iter().copied()) {
            Some(near) => error.hint(format!("did you mean {near}? {all}")),
            None => error.hint(all),
        }
    }

    /// How the options go together.
    fn settled(mut self) -> Result<Told> {
        if matches!(self.kind, Kind::Json | Kind::Xlsx) {
            self.json.check()?;
            self.told.text = Some(Format::Json(self.json));
            return Ok(self.told);
        }
        if self.kind != Kind::Csv {
            return Ok(self.told);
        }
        let told = &self.told;
        if told.columns.is_some() && (told.types != Types::Found || !self.csv.names.is_empty()) {
            return Err(Error::user("columns has the names and the types already")
                .hint("leave out types and names, or columns"));
        }
        if !self.auto_detect {
            if told.columns.is_none() {
                return Err(Error::user("without auto_detect nobody knows the columns")
                    .hint("name them: columns = {'a': 'INTEGER', 'b': 'VARCHAR'}"));
            }
            self.csv.sniff = Sniff::default();
            self.csv.header = self.csv.header.or(Some(false));
        }
        self.csv.same_columns = told.same_columns;
        self.csv.check()?;
        self.told.text = Some(Format::Csv(self.csv));
        Ok(self.told)
    }
}

/// `{'a': 'INTEGER', 'b': 'DATE'}`
fn typed_fields(option: &str, value: Value) -> Result<Vec<(String, DataType)>> {
    let Value::Fields(fields) = value else {
        return Err(Error::user(format!("option {option} takes columns and their types"))
            .hint(format!("for example {option} = {{'a': 'INTEGER', 'b': 'DATE'}}")));
    };
    let typed = |(name, value): (String, Value)| {
        let data_type = data_type(option, &value.text()?)?;
        Ok((name, data_type))
    };
    let fields: Vec<_> = fields.into_iter().map(typed).collect::<Result<_>>()?;
    match fields.is_empty() {
        true => Err(Error::user(format!("option {option} names no column"))
            .hint(format!("for example {option} = {{'a': 'INTEGER'}}"))),
        false => Ok(fields),
    }
}

/// A type by its name in SQL, as one that columns of tables have.
fn data_type(option: &str, text: &str) -> Result<DataType> {
    let bad = || {
        Error::user(format!("option {option}: {} is no type", quoted(text)))
            .hint("for example 'INTEGER', 'DECIMAL(10,2)', 'VARCHAR', 'DATE' or 'TIMESTAMP'")
    };
    let mut parser = Parser::new(&Thalweg).try_with_sql(text).map_err(|_| bad())?;
    let parsed = parser.parse_data_type().map_err(|_| bad())?;
    if parser.peek_token_ref().token != Token::EOF {
        return Err(bad());
    }
    if declared::length(&parsed)?.is_some() {
        let message =
            format!("option {option}: files have texts of any length, not {}", quoted(text));
        return Err(Error::unsupported(message)
            .hint("say VARCHAR; a table whose column has the length, and COPY, check it"));
    }
    let found = thalweg_bind::sql_type(&parsed, Some("UTC")).map_err(|_| bad())?;
    stored_type(&found).ok_or_else(bad)
}

fn compression(name: &str) -> Result<Option<Compression>> {
    Ok(Some(match name.to_lowercase().as_str() {
        "auto" | "auto_detect" | "infer" => return Ok(None),
        "none" | "uncompressed" => Compression::None,
        "gzip" | "gz" => Compression::Gzip,
        "zstd" | "zst" => Compression::Zstd,
        "bzip2" | "bz2" => Compression::Bzip2,
        "xz" => Compression::Xz,
        "zip" => Compression::Zip,
        _ => {
            return Err(Error::user(format!("compression {} is not known", quoted(name)))
                .hint("none, gzip, zstd, bz2, xz and zip are; it is found out if left out"));
        }
    }))
}

/// What a name is, as identifiers are compared.
pub fn same_name(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

#[cfg(test)]
#[path = "told/tests.rs"]
mod tests;
