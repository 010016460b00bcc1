//! `--manifest`: the tables of a load in a JSON file.
//!
//! ```json
//! { "tables": [
//!   { "table": "orders", "files": ["orders/*.csv"], "null": ["NA"], "cluster_by": ["day"] },
//!   { "table": "items", "files": ["items.tbl"], "delimiter": "|", "header": false,
//!     "columns": "id bigint, price decimal(12,2)" } ] }
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use clap::ValueEnum;
use serde::Deserialize;
use thalweg_base::{Error, Result, text};

use super::targets::{Reading, Target};
use super::{InputFormat, NewColumnsArg, Quote, delimiter, one_byte, partition_by, quote};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    tables: Vec<Entry>,
}

/// What is left out is as the command line says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    table: String,
    /// Relative to the folder of the manifest.
    files: Vec<String>,
    format: Option<String>,
    delimiter: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
    header: Option<bool>,
    #[serde(default)]
    null: Vec<String>,
    /// Others, by the names that they have in SQL.
    #[serde(default)]
    options: BTreeMap<String, Scalar>,
    columns: Option<String>,
    /// By column.
    #[serde(default)]
    types: BTreeMap<String, String>,
    #[serde(default)]
    cluster_by: Vec<String>,
    /// `customer=16`
    partition_by: Option<String>,
    new_columns: Option<String>,
}

/// The value of an option.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Flag(bool),
    Number(i64),
    Text(String),
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Scalar::Flag(on) => on.to_string(),
            Scalar::Number(n) => n.to_string(),
            Scalar::Text(text) => text.clone(),
        }
    }
}

pub fn read(path: &Path, common: &Target) -> Result<Vec<Target>> {
    let shown = text::quoted(&path.to_string_lossy());
    let bytes = std::fs::read(path).map_err(|e| Error::io(format!("cannot read {shown}"), e))?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|e| {
        Error::user(format!("{shown} is not a manifest: {e}"))
            .hint("it looks like { \"tables\": [ { \"table\": \"t\", \"files\": [\"t.csv\"] } ] }")
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let targets: Result<Vec<Target>> =
        manifest.tables.into_iter().map(|entry| entry.target(folder, common)).collect();
    let targets = targets.map_err(|e| e.context(&shown))?;
    let mut names: Vec<&str> = targets.iter().map(|t| t.table.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
        return Err(Error::user(format!("{shown} has table {} twice", text::quoted(twice[0])))
            .hint("list all its files in one entry"));
    }
    if targets.is_empty() {
        return Err(Error::user(format!("{shown} has no tables")));
    }
    Ok(targets)
}

impl Entry {
    fn target(self, folder: &Path, common: &Target) -> Result<Target> {
        let table = self.table.clone();
        let wrong = |what: &str, value: &str, why: String| {
            let (what, table) = (text::quoted(what), text::quoted(&table));
            Error::user(format!("{what} of table {table} is {}: {why}", text::quoted(value)))
        };
        let byte = |what: &str, value: &Option<String>, parse: fn(&str) -> Result<u8, String>| {
            let parsed = value.as_ref().map(|v| parse(v).map_err(|e| wrong(what, v, e)));
            parsed.transpose()
        };
        fn choice<T: ValueEnum>(value: &str) -> Result<T, String> {
            T::from_str(value, true).map_err(|_| {
                let names = T::value_variants().iter().filter_map(|v| v.to_possible_value());
                let names: Vec<String> = names.map(|v| v.get_name().to_owned()).collect();
                format!("{} are known", names.join(", "))
            })
        }
        let format = self
            .format
            .as_ref()
            .map(|v| choice::<InputFormat>(v).map_err(|e| wrong("format", v, e)));
        let new_columns = self
            .new_columns
            .as_ref()
            .map(|v| choice::<NewColumnsArg>(v).map_err(|e| wrong("new_columns", v, e)));
        let enclosing = self
            .quote
            .as_ref()
            .map(|v| quote(v).map(|Quote(byte)| byte).map_err(|e| wrong("quote", v, e)));
        let partition_by = self
            .partition_by
            .as_ref()
            .map(|v| partition_by(v).map_err(|e| wrong("partition_by", v, e)));
        let reading = &common.reading;
        let mut nulls = reading.nulls.clone();
        nulls.extend(self.null);
        // Those of the table come last, and stand.
        let mut options = reading.options.clone();
        options.extend(self.options.iter().map(|(name, value)| (name.clone(), value.text())));
        Ok(Target {
            reading: Reading {
                format: format.transpose()?.or(reading.format),
                delimiter: byte("delimiter", &self.delimiter, delimiter)?.or(reading.delimiter),
                quote: enclosing.transpose()?.or(reading.quote),
                escape: byte("escape", &self.escape, one_byte)?.or(reading.escape),
                header: self.header.or(reading.header),
                nulls,
                options,
            },
            files: self
                .files
                .iter()
                .map(|file| folder.join(file).to_string_lossy().into_owned())
                .collect(),
            table: self.table,
            columns: self.columns.or_else(|| common.columns.clone()),
            types: match self.types.is_empty() {
                true => common.types.clone(),
                false => self.types.into_iter().collect(),
            },
            cluster_by: match self.cluster_by.is_empty() {
                true => common.cluster_by.clone(),
                false => self.cluster_by,
            },
            partition_by: partition_by.transpose()?.or_else(|| common.partition_by.clone()),
            new_columns: new_columns.transpose()?.map_or(common.new_columns, Into::into),
        })
    }
}
