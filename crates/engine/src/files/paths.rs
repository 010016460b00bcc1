//! Which files are meant, and the columns that they have by where they lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, TimeUnit};
use datafusion::catalog::Session;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::Expr;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::load;

use super::told::{Told, same_name};

/// What writers call the folder of rows whose key is NULL.
const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// A column that has one value in each file.
#[derive(Clone, Debug, PartialEq)]
pub struct OfPath {
    pub field: Field,
    /// By the places of the files.
    pub values: Vec<ScalarValue>,
}

/// The files, in the order in which they are named; those of a glob or a folder in the order of their
/// paths. Blocking.
pub fn find(paths: &[String]) -> Result<Vec<PathBuf>> {
    let mut files = vec![];
    for path in paths {
        files.extend(load::expand(std::slice::from_ref(path))?);
    }
    Ok(files)
}

/// The path of the file, and the keys of its folders.
pub fn columns(paths: &[PathBuf], told: &Told) -> Result<Vec<OfPath>> {
    let mut columns = vec![];
    if let Some(name) = &told.filename {
        let path =
            |path: &PathBuf| ScalarValue::Utf8View(Some(path.to_string_lossy().into_owned()));
        columns.push(OfPath {
            field: Field::new(name, DataType::Utf8View, true),
            values: paths.iter().map(path).collect(),
        });
    }
    for (key, values) in keys(paths, told)? {
        let told_type = told.hive_types.iter().find(|(name, _)| same_name(name, &key));
        let data_type = match told_type {
            Some((_, data_type)) => data_type.clone(),
            None if told.hive_as_text => DataType::Utf8View,
            None => found_type(&values),
        };
        let values = values.into_iter().zip(paths).map(|(value, path)| {
            let text = ScalarValue::Utf8(value.clone());
            text.cast_to(&data_type).map_err(|_| {
                Error::user(format!(
                    "file {}: folder {} is no {}",
                    load::shown(path),
                    quoted(&format!("{key}={}", value.unwrap_or_default())),
                    crate::sql_type::sql_type(&data_type)
                ))
                .hint("leave it out of hive_types, or name a type that holds all of its values")
            })
        });
        let values = values.collect::<Result<_>>()?;
        columns.push(OfPath { field: Field::new(&key, data_type, true), values });
    }
    for told in &told.hive_types {
        if !columns.iter().any(|column| same_name(column.field.name(), &told.0)) {
            return Err(Error::user(format!(
                "hive_types has a type for {}, which no folder of the files is called by",
                quoted(&told.0)
            ))
            .hint("a folder such as year=2024 has the key \"year\""));
        }
    }
    for (at, column) in columns.iter().enumerate() {
        let name = column.field.name();
        if columns[..at].iter().any(|other| same_name(other.field.name(), name)) {
            return Err(Error::user(format!("two columns are called {}", quoted(name)))
                .hint("give that of the paths another name: filename = 'path'"));
        }
    }
    Ok(columns)
}

/// The keys that all files have, each with the values of all files.
fn keys(paths: &[PathBuf], told: &Told) -> Result<Vec<(String, Vec<Option<String>>)>> {
    if told.hive == Some(false) {
        return Ok(vec![]);
    }
    let mut all: Vec<(String, Vec<Option<String>>)> = vec![];
    for (at, path) in paths.iter().enumerate() {
        let own = folders(path);
        let fits = at == 0
            || own.len() == all.len()
                && all.iter().all(|(key, _)| own.iter().any(|(other, _)| same_name(key, other)));
        if !fits {
            if told.hive.is_none() {
                return Ok(vec![]);
            }
            let [first, other] = [&paths[0], path].map(|path| load::shown(path));
            return Err(Error::user(format!("{first} and {other} lie in folders of other keys"))
                .hint("read them by two calls, or leave hive_partitioning out"));
        }
        if at == 0 {
            all = own.iter().map(|(key, _)| (key.clone(), vec![])).collect();
        }
        for (key, value) in own {
            if let Some((_, values)) = all.iter_mut().find(|(other, _)| same_name(other, &key)) {
                values.push(value);
            }
        }
    }
    // A key that is there twice has no one value.
    let is_clear = |(_, values): &(_, Vec<_>)| values.len() == paths.len();
    match all.iter().all(is_clear) {
        true => Ok(all),
        false if told.hive.is_none() => Ok(vec![]),
        false => Err(Error::user("the folders of a file have one key twice")
            .hint("leave hive_partitioning out")),
    }
}

/// The keys of the folders that a file lies in, from the outermost on.
fn folders(path: &Path) -> Vec<(String, Option<String>)> {
    // What is signed of an address stands behind its path, and may have a `/` in it.
    let bare = load::address(path).map(load::shown_address);
    let path = bare.as_deref().map_or(path, Path::new);
    let folders = path.parent().into_iter().flat_map(Path::components);
    let key = |folder: std::path::Component<'_>| {
        let text = folder.as_os_str().to_string_lossy();
        let (key, value) = text.split_once('=')?;
        let (key, value) = (decoded(key), decoded(value));
        (!key.is_empty()).then(|| (key, (value != NULL_FOLDER).then_some(value)))
    };
    folders.filter_map(key).collect()
}

/// Writers put `%20` for what a path may not have.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |b: u8| char::from(b).to_digit(16);
        let code = match bytes[at..] {
            [b'%', high, low, ..] => hex(high).zip(hex(low)).map(|(h, l)| (h * 16 + l) as u8),
            _ => None,
        };
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// The type that all values are written as; a number with leading zeros would lose them.
fn found_type(values: &[Option<String>]) -> DataType {
    let mut texts = values.iter().flatten().peekable();
    if texts.peek().is_none() {
        return DataType::Utf8View;
    }
    let texts: Vec<&String> = texts.collect();
    if texts.iter().all(|t| t.parse::<i64>().is_ok_and(|n| n.to_string() == **t)) {
        return DataType::Int64;
    }
    let stamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    for data_type in [DataType::Date32, stamp] {
        let same = |text: &&String| {
            let value = ScalarValue::Utf8(Some((*text).clone())).cast_to(&data_type);
            let back = value.and_then(|value| value.cast_to(&DataType::Utf8));
            back.is_ok_and(|back| back == ScalarValue::Utf8(Some(text.replacen(' ', "T", 1))))
        };
        if texts.iter().all(same) {
            return data_type;
        }
    }
    DataType::Utf8View
}

/// Whether a filter asks for nothing but `columns`.
pub fn decide(columns: &[FieldRef], filter: &Expr) -> bool {
    let is_known = |column: &Column| columns.iter().any(|field| *field.name() == column.name);
    let columns = filter.column_refs();
    let has_subquery =
        |e: &Expr| matches!(e, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_));
    !columns.is_empty()
        && columns.into_iter().all(is_known)
        && !filter.is_volatile()
        && !filter.exists(|e| Ok(has_subquery(e))).unwrap_or(true)
}

/// The places of the files whose values of `columns` the filters let through, of `files` altogether.
pub fn kept(
    columns: &[FieldRef],
    values: &[Vec<ScalarValue>],
    files: usize,
    filters: &[Expr],
    state: &dyn Session,
) -> DfResult<Vec<usize>> {
    let mut kept: Vec<usize> = (0..files).collect();
    let filters: Vec<&Expr> = filters.iter().filter(|filter| decide(columns, filter)).collect();
    if filters.is_empty() {
        return Ok(kept);
    }
    let arrays = values.iter().zip(columns).map(|(values, field)| {
        let array = ScalarValue::iter_to_array(values.iter().cloned())?;
        Ok(arrow::compute::cast(&array, field.data_type())?)
    });
    let arrays = arrays.collect::<DfResult<Vec<_>>>()?;
    let schema = Arc::new(Schema::new(columns.to_vec()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    let schema = DFSchema::try_from(schema)?;
    for filter in filters {
        // Filters may name the table.
        let bare = filter.clone().transform(|e| {
            Ok(match e {
                Expr::Column(column) => {
                    Transformed::yes(Expr::Column(Column::from_name(column.name)))
                }
                other => Transformed::no(other),
            })
        })?;
        let expr = state.create_physical_expr(bare.data, &schema)?;
        let passed = expr.evaluate(&batch)?.into_array(files)?;
        let passed = as_boolean_array(&passed)?;
        kept.retain(|&file| passed.is_valid(file) && passed.value(file));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(paths: &[&str], told: &Told) -> String {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let shown = |c: &OfPath| {
            let values: Vec<String> = c.values.iter().map(ToString::to_string).collect();
            format!("{} {} [{}]", c.field.name(), c.field.data_type(), values.join(" "))
        };
        match columns(&paths, told) {
            Ok(columns) => columns.iter().map(shown).collect::<Vec<_>>().join(", "),
            Err(e) => format!("error: {}", e.message()),
        }
    }

    #[test]
    fn folders_are_columns() {
        let auto = Told::default();
        assert_eq!(types(&["k=1/a.csv", "k=2/a.csv"], &auto), "k Int64 [1 2]");
        assert_eq!(types(&["k=1/a.csv", "k=2.5/a.csv"], &auto), "k Utf8View [1 2.5]");
        assert_eq!(types(&["k=01/a.csv"], &auto), "k Utf8View [01]");
        assert_eq!(types(&["d=2024-02-29/a.csv"], &auto), "d Date32 [2024-02-29]");
        assert_eq!(types(&["d=2024-02-30/a.csv"], &auto), "d Utf8View [2024-02-30]");
        let null = format!("k={NULL_FOLDER}/a");
        assert_eq!(types(&["k=7/a", &null], &auto), "k Int64 [7 NULL]");
        assert_eq!(types(&["x/c=a%20b/y=1/f"], &auto), "c Utf8View [a b], y Int64 [1]");
        // Other keys, none, or one twice: nothing is found by itself.
        for paths in [&["a=1/x", "b=1/x"][..], &["a=1/x", "x"], &["a=1/a=2/x"], &["x"]] {
            assert_eq!(types(paths, &auto), "", "{paths:?}");
        }
        let wanted = Told { hive: Some(true), ..Told::default() };
        assert!(types(&["a=1/x", "b=1/x"], &wanted).contains("other keys"));
        assert!(types(&["a=1/a=2/x"], &wanted).contains("one key twice"));
        let text = Told { hive_as_text: true, filename: Some("f".into()), ..Told::default() };
        assert_eq!(types(&["k=1/x"], &text), "f Utf8View [k=1/x], k Utf8View [1]");
        let told = |t| Told { hive_types: vec![("K".into(), t)], ..Told::default() };
        assert_eq!(types(&["k=1/x"], &told(DataType::Int16)), "k Int16 [1]");
        assert!(types(&["k=z/x"], &told(DataType::Int16)).contains("\"k=z\" is no smallint"));
        assert!(types(&["j=1/x"], &told(DataType::Int16)).contains("no folder"));
        assert!(
            types(&["k=1/x"], &Told { filename: Some("k".into()), ..told(DataType::Int16) })
                .contains("two columns")
        );
    }
}
