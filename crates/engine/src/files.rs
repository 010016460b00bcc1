//! Tables that are files outside the database: `FROM 'data.parquet'` and `CREATE EXTERNAL TABLE`.

mod parquet;
mod paths;
mod text;
mod told;
mod typed;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::datasource::listing::{ListingTable, ListingTableConfig};
use datafusion::execution::SessionState;
use datafusion::logical_expr::CreateExternalTable;
use thalweg_base::{Error, text::quoted};
use thalweg_storage::load::{self, CsvOptions, Format, JsonOptions};

pub(crate) use self::paths::{OfPath, columns as columns_of_paths};
pub(crate) use self::text::look_at_all;
use self::text::told_in_statement;
pub use self::text::{Known, TextTable};
use self::told::Kind;
pub use self::told::Reading;
pub(crate) use self::told::{Told, same_name};
pub use self::typed::TypedTable;

use crate::sql_type::sql_type;
use thalweg_errors::into_datafusion;
use thalweg_runtime::blocking;

/// What a name must end in to be taken for a file, with or without a compression suffix.
const EXTENSIONS: [&str; 20] = [
    "parquet", "pq", "csv", "tsv", "tab", "txt", "dat", "json", "jsonl", "ndjson", "geojson",
    "arrow", "feather", "ipc", "avro", "xlsx", "xlsm", "xls", "xlsb", "ods",
];
const COMPRESSIONS: [&str; 5] = ["gz", "zst", "bz2", "xz", "zip"];

/// In lower case.
fn extension(path: &Path) -> Option<String> {
    path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase())
}

/// Whether `name` can only be meant as a path.
pub fn is_path(name: &str) -> bool {
    let path = Path::new(name);
    let known = |p: &Path| extension(p).is_some_and(|e| EXTENSIONS.contains(&e.as_str()));
    name.contains('/')
        || known(path)
        || extension(path).is_some_and(|e| COMPRESSIONS.contains(&e.as_str()))
            && path.file_stem().is_some_and(|stem| known(Path::new(stem)))
}

/// The file, folder or glob called `name` as a table; `None` if the name is no path.
pub async fn table(
    name: &str,
    state: &SessionState,
    known: &Known,
) -> Result<Option<Arc<dyn TableProvider>>> {
    if !is_path(name) {
        return Ok(None);
    }
    read(&Reading::of_name(name), state, known).await.map(Some)
}

/// Files as a table.
///
/// # Errors
/// There are none, or they cannot be read as is told.
pub async fn read(
    reading: &Reading,
    state: &SessionState,
    known: &Known,
) -> Result<Arc<dyn TableProvider>> {
    let (paths, format) = found(reading).await?;
    let is_here = paths.iter().all(|path| load::address(path).is_none());
    let name = &reading.name;
    let is_typed = matches!(format, Format::Parquet | Format::Arrow);
    if is_typed && is_here {
        let is_parquet = format == Format::Parquet;
        let table = TypedTable::new(name, &paths, is_parquet, &reading.told, state).await?;
        if let Some(table) = table {
            return Ok(Arc::new(table));
        }
    }
    // The reader of loads knows columns by their places, and asks other machines for ranges.
    Ok(Arc::new(TextTable::new(name, paths, format, &reading.told, state, known).await?))
}

/// The files that are meant, and the one format that they all have.
async fn found(reading: &Reading) -> Result<(Vec<PathBuf>, Format)> {
    let reading = reading.clone();
    blocking(move || {
        let told = &reading.told;
        let paths = paths::find(&reading.paths)?;
        let mut format: Option<(Format, &PathBuf)> = None;
        let mut is_stream = None;
        for path in &paths {
            let named = || load::shown(path);
            if path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
                return Err(Error::user(format!("file {} is empty", named()))
                    .hint("a table needs at least a header or a schema"));
            }
            if let Some(compression) = told.compression
                && load::compression_of(path)? != compression
            {
                return Err(Error::user(format!("{} is not packed as compression says", named()))
                    .hint("leave compression out: it is found out"));
            }
            let own = match told.kind {
                Some(Kind::Csv) => Format::Csv(delimited(path, told)),
                Some(Kind::Json | Kind::Xlsx) => match &told.text {
                    Some(format @ Format::Json(_)) => format.clone(),
                    _ => Format::Json(JsonOptions::default()),
                },
                Some(Kind::Parquet) => Format::Parquet,
                Some(Kind::Arrow) => Format::Arrow,
                None => load::format_of(path)?.0,
            };
            if own == Format::Arrow {
                is_stream = check_arrow(path, is_stream)?;
            }
            match &format {
                None => format = Some((own, path)),
                Some((first, at)) if mem::discriminant(first) != mem::discriminant(&own) => {
                    let first = load::shown(at);
                    return Err(Error::user(format!(
                        "{first} and {} are not of one format",
                        named()
                    ))
                    .hint("name files of one format: 'data/*.csv'"));
                }
                Some(_) => {}
            }
        }
        match format {
            Some((format, _)) => Ok((paths, format)),
            None => Err(Error::user("no file is given")),
        }
    })
    .await
}

/// How a delimited file is read: with what is told, and where it is not, as its name says.
fn delimited(path: &Path, told: &Told) -> CsvOptions {
    let mut options = match &told.text {
        Some(Format::Csv(options)) => options.clone(),
        _ => CsvOptions::sniffed(),
    };
    if options.sniff.delimiter
        && let Ok((Format::Csv(of_name), _)) = load::format_of(path)
    {
        options.delimiter = of_name.delimiter;
    }
    options
}

/// Whether an Arrow file is a stream, which all of them must be if one is. A file that begins as one with a
/// footer and has none is cut short: DataFusion takes it for a stream then, and waits for the rest.
fn check_arrow(path: &Path, others: Option<bool>) -> thalweg_base::Result<Option<bool>> {
    const MAGIC: &[u8; 6] = b"ARROW1";
    let ends = || -> std::io::Result<([u8; 6], [u8; 6])> {
        let mut file = File::open(path)?;
        let (mut first, mut last) = ([0; 6], [0; 6]);
        file.read_exact(&mut first)?;
        file.seek(SeekFrom::End(-(last.len() as i64)))?;
        file.read_exact(&mut last)?;
        Ok((first, last))
    };
    let Ok((first, last)) = ends() else { return Ok(others) };
    let named = quoted(&path.to_string_lossy());
    if first == *MAGIC && last != *MAGIC {
        return Err(Error::user(format!(
            "file {named} is damaged or cut short: its end is missing"
        ))
        .hint("check that it was copied completely, or write it again"));
    }
    let is_stream = first != *MAGIC;
    if others.is_some_and(|others| others != is_stream) {
        return Err(Error::unsupported(format!(
            "{named} is an Arrow stream and others are Arrow files, or the other way round"
        ))
        .hint("read the two kinds by two calls"));
    }
    Ok(Some(is_stream))
}

/// What a `CREATE EXTERNAL TABLE` describes.
pub async fn external(
    command: &CreateExternalTable,
    state: &SessionState,
    known: &Known,
) -> Result<Arc<dyn TableProvider>> {
    let file_type = command.file_type.to_uppercase();
    if let ("CSV" | "JSON" | "XLSX", [location], [], []) = (
        &*file_type,
        &command.locations[..],
        &command.table_partition_cols[..],
        &command.order_exprs[..],
    ) {
        let mut reading = Reading::of_name(location);
        let format = match &*file_type {
            "CSV" => Format::Csv(CsvOptions::sniffed()),
            "XLSX" => Format::Json(JsonOptions::of_book()),
            _ => Format::Json(JsonOptions::default()),
        };
        reading.told.kind = Some(match &*file_type {
            "CSV" => Kind::Csv,
            "XLSX" => Kind::Xlsx,
            _ => Kind::Json,
        });
        reading.told.text = Some(told_in_statement(format, &command.options)?);
        let declared = Some(Arc::clone(command.schema.inner()));
        reading.told.columns = declared.filter(|columns| !columns.fields().is_empty());
        let (paths, format) = found(&reading).await?;
        let told = &reading.told;
        let table = TextTable::new(location, paths, format, told, state, known).await?;
        return Ok(Arc::new(table));
    }
    if command.locations.iter().any(|location| load::address(Path::new(location)).is_some()) {
        return external_there(command, &file_type, state, known).await;
    }
    let factory = state.table_factories().get(&file_type).ok_or_else(|| {
        into_datafusion(
            Error::unsupported(format!("external tables cannot be STORED AS {file_type}"))
                .hint("PARQUET, CSV, JSON and ARROW can"),
        )
    })?;
    let table = factory.create(state, command).await?;
    let Some(listed) = table.downcast_ref::<ListingTable>() else { return Ok(table) };
    check_declared(command, listed, state).await?;
    if !command.table_partition_cols.is_empty() {
        return Ok(table);
    }
    let config = ListingTableConfig::new_with_multi_paths(listed.table_paths().clone())
        .with_listing_options(listed.options().clone())
        .with_schema(table.schema());
    parquet::without_bounds(listed.clone(), config)
}

/// Refuses declared types that do not hold every value of the type that a file says of itself: reading would
/// round or cut without a word.
async fn check_declared(
    command: &CreateExternalTable,
    listed: &ListingTable,
    state: &SessionState,
) -> Result<()> {
    let declared = command.schema.fields();
    if declared.is_empty() {
        return Ok(());
    }
    for path in listed.table_paths() {
        let found = listed.options().infer_schema(state, path).await?;
        for field in declared {
            let Ok(own) = found.field_with_name(field.name()) else { continue };
            if typed::holds(field.data_type(), own.data_type()) {
                continue;
            }
            return Err(into_datafusion(
                Error::user(format!(
                    "column {} is {} in {path}, and {} does not hold every value of that",
                    quoted(field.name()),
                    sql_type(own.data_type()),
                    sql_type(field.data_type())
                ))
                .code("42804")
                .hint("declare it with the type of the file, and cast it in a view or a query"),
            ));
        }
    }
    Ok(())
}

/// The same of files on other machines, which describe themselves.
async fn external_there(
    command: &CreateExternalTable,
    file_type: &str,
    state: &SessionState,
    known: &Known,
) -> Result<Arc<dyn TableProvider>> {
    let kind = match file_type {
        "PARQUET" => Kind::Parquet,
        "ARROW" => Kind::Arrow,
        _ => {
            return Err(into_datafusion(
                Error::unsupported(format!(
                    "external tables STORED AS {file_type} with these clauses, on another machine"
                ))
                .hint("name one file, without PARTITIONED BY and WITH ORDER"),
            ));
        }
    };
    let is_plain = command.table_partition_cols.is_empty()
        && command.order_exprs.is_empty()
        && command.options.is_empty()
        && command.schema.fields().is_empty();
    let [location] = &command.locations[..] else {
        return Err(into_datafusion(Error::unsupported("an external table of several locations")));
    };
    if !is_plain {
        return Err(into_datafusion(
            Error::unsupported(format!(
                "columns and clauses of {}, on another machine",
                load::shown(Path::new(location))
            ))
            .hint("leave them out: the file says what its columns are"),
        ));
    }
    let mut reading = Reading::of_name(location);
    reading.told.kind = Some(kind);
    read(&reading, state, known).await
}

#[cfg(test)]
mod tests {
    use thalweg_errors::in_sql_text;

    use super::is_path;

    #[test]
    fn hints_name_options_of_sql() {
        let check = |text: &str, expected: &str| assert_eq!(in_sql_text(text), expected);
        check("say so with `--no-header`", "say so with read_csv('…', header = false)");
        check(
            "declare column \"a\" as VARCHAR (of a new table: `--type a=varchar`), or if \"NA\" means NULL, say so with `--null \"NA\"`",
            "declare column \"a\" as VARCHAR (types = {'a': 'VARCHAR'}), or if \"NA\" means NULL, say so with read_csv('…', nullstr = ['', 'NA'])",
        );
        check("; if it means NULL: --null \"-\"", "; if it means NULL: nullstr = ['', '-']");
    }

    #[test]
    fn paths_are_told_from_names() {
        for path in ["a.parquet", "A.CSV", "x/y", "/tmp/z", "s3://b/k", "a.csv.gz", "l.jsonl.zst"] {
            assert!(is_path(path), "{path}");
        }
        for path in ["a.txt", "a.TAB", "a.dat.xz", "a.geojson", "a.ipc", "~/a", "a*.pq"] {
            assert!(is_path(path), "{path}");
        }
        for name in ["lineorder", "my.table", "gz", "a.gz", "parquet"] {
            assert!(!is_path(name), "{name}");
        }
    }
}
