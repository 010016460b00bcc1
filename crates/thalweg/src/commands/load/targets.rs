//! Which files go into which table, and how they are to be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thalweg_base::{Error, Result, text};
use thalweg_storage::load;

use super::{Args, CsvOptions, Format, InputFormat, LoadRequest, NewColumns, manifest};

/// A table and what is loaded into it.
#[derive(Clone, Debug, Default)]
pub struct Target {
    pub table: String,
    /// Files, folders and patterns.
    pub files: Vec<String>,
    pub reading: Reading,
    pub columns: Option<String>,
    pub types: Vec<(String, String)>,
    pub cluster_by: Vec<String>,
    pub partition_by: Option<(String, u32)>,
    pub new_columns: NewColumns,
}

/// How files are to be read, where it is not to be found out.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub format: Option<InputFormat>,
    pub delimiter: Option<u8>,
    /// `Some(None)`: without quotes.
    pub quote: Option<Option<u8>>,
    pub escape: Option<u8>,
    pub header: Option<bool>,
    pub nulls: Vec<String>,
    /// Other options of delimited text and of workbooks, by the names that they have in SQL.
    pub options: Vec<(String, String)>,
}

pub fn targets(args: &Args) -> Result<Vec<Target>> {
    let common = Target {
        reading: Reading {
            format: args.format,
            delimiter: args.delimiter,
            quote: args.quote.map(|q| q.0),
            escape: args.escape,
            header: match (args.header, args.no_header) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            nulls: args.null.clone(),
            options: args.dialect.told(),
        },
        columns: args.columns.clone(),
        types: args.r#type.clone(),
        cluster_by: args.cluster_by.clone(),
        partition_by: args.partition_by.clone(),
        new_columns: args.new_columns.into(),
        ..Target::default()
    };
    let targets = match &args.manifest {
        Some(manifest) => manifest::read(manifest, &common)?,
        None => {
            let files = if args.each { each(&args.what)? } else { named(&args.what)? };
            let target = |(table, files)| Target { table, files, ..common.clone() };
            files.into_iter().map(target).collect()
        }
    };
    one_table_only(args, &targets)?;
    Ok(targets)
}

/// `TABLE FILE…`, or `TABLE=FILE[,FILE…]…`
fn named(what: &[String]) -> Result<BTreeMap<String, Vec<String>>> {
    let (table, files) = (&what[0], &what[1..]);
    if table.contains('=') {
        return what.iter().try_fold(BTreeMap::new(), |mut targets, what| {
            let Some((table, files)) =
                what.split_once('=').filter(|(t, f)| !t.is_empty() && !f.is_empty())
            else {
                return Err(Error::user(format!("{} is not TABLE=FILE", text::quoted(what))).hint(
                    "after one TABLE=FILE all must be; without `=` only one table is loaded",
                ));
            };
            // A comma may be part of a name.
            let files: Vec<_> = match Path::new(files).exists() {
                true => vec![files.to_string()],
                false => files.split(',').map(String::from).collect(),
            };
            targets.entry(table.to_string()).or_insert_with(Vec::new).extend(files);
            Ok(targets)
        });
    }
    if files.is_empty() {
        return Err(Error::user(format!(
            "there are no files to load into {}",
            text::quoted(table)
        ))
        .hint("thalweg load DB TABLE FILE…, or thalweg load DB --each FILE…"));
    }
    Ok(BTreeMap::from([(table.clone(), files.to_vec())]))
}

fn each(what: &[String]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut targets = BTreeMap::new();
    for path in load::expand(what)? {
        let file = path.to_string_lossy().into_owned();
        let table = stem(&path);
        if table.is_empty() {
            return Err(Error::user(format!(
                "the name of {} gives no table name",
                text::quoted(&file)
            ))
            .hint("use TABLE=FILE"));
        }
        if let Some(other) = targets.insert(table.clone(), vec![file.clone()]) {
            return Err(Error::user(format!(
                "two files are named like the table {}",
                text::quoted(&table)
            ))
            .detail(format!("{} and {file}", other.concat()))
            .hint(format!("to load both into it: {table}=FILE,FILE")));
        }
    }
    Ok(targets)
}

/// `data/orders.csv.gz` → `orders`.
fn stem(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_string()
}

fn one_table_only(args: &Args, targets: &[Target]) -> Result<()> {
    let told = [
        ("--columns", args.columns.is_some()),
        ("--type", !args.r#type.is_empty()),
        ("--cluster-by", !args.cluster_by.is_empty()),
        ("--partition-by", args.partition_by.is_some()),
    ];
    let Some((option, _)) = told.iter().find(|(_, told)| *told) else { return Ok(()) };
    if targets.len() == 1 {
        return Ok(());
    }
    Err(Error::user(format!("{option} describes one table, but {} are loaded", targets.len()))
        .hint("load this table with a command of its own, or say it in a --manifest"))
}

impl Target {
    /// A request to load `files`, which are those of the target or some of them.
    pub fn request(&self, files: &[String]) -> Result<LoadRequest> {
        let found = load::expand(files)?;
        let of_book = self.reading.of_book(&found)?;
        let csv = match of_book {
            Some(_) => None,
            None => self.reading.csv(&found)?,
        };
        let format = self.reading.format.map(|format| match format {
            InputFormat::Csv => Format::Csv(csv.clone().unwrap_or_default()),
            InputFormat::Jsonl => Format::Json(load::JsonOptions::default()),
            InputFormat::Xlsx => Format::Json(load::JsonOptions::of_book()),
            InputFormat::Parquet => Format::Parquet,
            InputFormat::Arrow => Format::Arrow,
        });
        Ok(LoadRequest {
            table: self.table.clone(),
            files: files.to_vec(),
            format,
            csv,
            options: of_book.unwrap_or_default(),
            columns: self.columns.clone(),
            types: self.types.clone(),
            input_columns: None,
            cluster_by: self.cluster_by.clone(),
            partition_by: self.partition_by.clone(),
            new_columns: self.new_columns,
        })
    }
}

/// Options of a format by their names in SQL, with their values.
type Told = Vec<(String, Vec<String>)>;

impl Reading {
    /// What was said of workbooks, by its names in SQL; `None` if the files are none, or nothing was said.
    fn of_book(&self, files: &[PathBuf]) -> Result<Option<Told>> {
        let is_told = self.is_told();
        let is_book = match (self.format, files.first()) {
            (Some(format), _) => format == InputFormat::Xlsx,
            (None, Some(file)) if is_told => {
                matches!(load::format_of(file)?, (Format::Json(json), _) if json.book.is_some())
            }
            _ => false,
        };
        if !is_book || !is_told {
            return Ok(None);
        }
        if self.delimiter.is_some()
            || self.quote.is_some()
            || self.escape.is_some()
            || !self.nulls.is_empty()
        {
            return Err(Error::user("Excel has no delimiter, quote, escape and spelling of NULL")
                .hint("leave --delimiter, --quote, --escape and --null out"));
        }
        let header = self.header.map(|header| ("header".to_owned(), vec![header.to_string()]));
        let others = self.options.iter().map(|(name, value)| (name.clone(), vec![value.clone()]));
        Ok(Some(header.into_iter().chain(others).collect()))
    }

    /// Whether anything was said of how text or sheets are read.
    fn is_told(&self) -> bool {
        self.delimiter.is_some()
            || self.quote.is_some()
            || self.escape.is_some()
            || self.header.is_some()
            || !self.nulls.is_empty()
            || !self.options.is_empty()
    }

    /// What the files look like, overridden by what was said; `None` if nothing was.
    fn csv(&self, files: &[PathBuf]) -> Result<Option<CsvOptions>> {
        if !self.is_told() && self.format != Some(InputFormat::Csv) {
            return Ok(None);
        }
        let mut csv = match files.first().map(|file| load::format_of(file)) {
            Some(Ok((Format::Csv(found), _))) => found,
            Some(Err(error)) if self.format.is_none() => return Err(error),
            _ => CsvOptions::sniffed(),
        };
        if let Some(delimiter) = self.delimiter {
            csv.tell_delimiter(delimiter);
        }
        if let Some(quote) = self.quote {
            csv.tell_quote(quote);
        }
        if self.escape.is_some() {
            csv.tell_escape(self.escape);
        }
        csv.header = self.header;
        csv.nulls.extend(self.nulls.iter().cloned());
        for (name, value) in &self.options {
            if !csv.tell(name, std::slice::from_ref(value))? {
                return Err(Error::user(format!("CSV has no option {}", text::quoted(name)))
                    .hint(format!("it has {}", CsvOptions::NAMES.join(", "))));
            }
        }
        csv.check()?;
        Ok(Some(csv))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_its_table() {
        assert_eq!(stem(Path::new("data/orders.csv.gz")), "orders");
        assert_eq!(stem(Path::new("orders")), "orders");
        assert_eq!(stem(Path::new(".csv")), "");
    }
}
