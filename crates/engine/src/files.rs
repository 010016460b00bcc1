//! Tables that are files outside the database: `FROM 'data.parquet'` and `CREATE EXTERNAL TABLE`.

mod parquet;
mod text;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableConfigExt, ListingTableUrl,
};
use datafusion::execution::SessionState;
use datafusion::logical_expr::CreateExternalTable;
use thalweg_base::{Error, text::quoted};
use thalweg_storage::load::{CsvOptions, Format, JsonOptions};

pub use self::text::Known;
use self::text::{TextTable, text_files, told};

use crate::error::{from_datafusion, into_datafusion};

/// What a name must end in to be taken for a file, with or without a compression suffix.
const EXTENSIONS: [&str; 9] =
    ["parquet", "csv", "tsv", "json", "jsonl", "ndjson", "arrow", "feather", "avro"];
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
    let local = !name.contains("://");
    let glob = name.contains(['*', '?', '[']);
    if local && !glob {
        let meta = std::fs::metadata(name)
            .map_err(|e| into_datafusion(Error::io(format!("cannot read {}", quoted(name)), e)))?;
        if meta.is_file() && meta.len() == 0 {
            return Err(into_datafusion(
                Error::user(format!("file {} is empty", quoted(name)))
                    .hint("a table needs at least a header or a schema"),
            ));
        }
    }
    if local && !glob && is_cut_short(name) {
        return Err(into_datafusion(
            Error::user(format!(
                "file {} is damaged or cut short: its end is missing",
                quoted(name)
            ))
            .hint("check that it was copied completely, or write it again"),
        ));
    }
    if local && let Some((paths, format)) = text_files(name, None).await? {
        let table = TextTable::new(name, paths, format, None, state, known).await?;
        return Ok(Some(Arc::new(table)));
    }
    let url = ListingTableUrl::parse(name)?;
    let config = ListingTableConfig::new(url);
    let config = match alias(Path::new(name)) {
        Some(options) => Ok(config.with_listing_options(options)),
        None => config.infer_options(state).await,
    };
    let config = config.map_err(|e| {
        let cause = from_datafusion(e);
        into_datafusion(
            Error::user(format!("cannot tell the format of {}: {cause}", quoted(name)))
                .hint("files are recognised by extension: .parquet, .csv, .json, .arrow, also with .gz or .zst"),
        )
    })?;
    let named = |e| into_datafusion(from_datafusion(e).context(format!("file {}", quoted(name))));
    let config = config.infer_partitions_from_path(state).await.map_err(named)?;
    let config = all_looked_at(config);
    let config = config.infer_schema(state).await.map_err(named)?;
    parquet::without_bounds(ListingTable::try_new(config.clone())?, config).map(Some)
}

/// All rows decide the types of text, and a quoted line end never ends a record: a value beyond the first
/// thousand rows that the type does not hold would be NULL, or cut.
fn all_looked_at(mut config: ListingTableConfig) -> ListingTableConfig {
    let Some(options) = &mut config.options else { return config };
    if let Some(json) = options.format.downcast_ref::<JsonFormat>() {
        let json = JsonFormat::default()
            .with_options(json.options().clone())
            .with_schema_infer_max_rec(usize::MAX);
        options.format = Arc::new(json);
    } else if let Some(csv) = options.format.downcast_ref::<CsvFormat>() {
        let csv = CsvFormat::default()
            .with_options(csv.options().clone())
            .with_newlines_in_values(true)
            .with_schema_infer_max_rec(usize::MAX);
        options.format = Arc::new(csv);
    }
    config
}

/// Whether an Arrow file begins as one with a footer and has none. DataFusion takes it for a stream of
/// batches then, and waits for their rest.
fn is_cut_short(name: &str) -> bool {
    const MAGIC: &[u8; 6] = b"ARROW1";
    let is_arrow = extension(Path::new(name)).is_some_and(|e| e == "arrow" || e == "feather");
    let ends = || -> std::io::Result<([u8; 6], [u8; 6])> {
        let mut file = File::open(name)?;
        let (mut first, mut last) = ([0; 6], [0; 6]);
        file.read_exact(&mut first)?;
        file.seek(SeekFrom::End(-(last.len() as i64)))?;
        file.read_exact(&mut last)?;
        Ok((first, last))
    };
    is_arrow && ends().is_ok_and(|(first, last)| first == *MAGIC && last != *MAGIC)
}

/// The format of a file whose extension DataFusion does not know though it knows the format.
fn alias(path: &Path) -> Option<ListingOptions> {
    let last = extension(path)?;
    let (name, compression) = match last.parse::<FileCompressionType>() {
        Ok(compression) if COMPRESSIONS.contains(&last.as_str()) => {
            (extension(Path::new(path.file_stem()?))?, compression)
        }
        _ => (last.clone(), FileCompressionType::UNCOMPRESSED),
    };
    let format: Arc<dyn FileFormat> = match name.as_str() {
        "jsonl" | "ndjson" => {
            Arc::new(JsonFormat::default().with_file_compression_type(compression))
        }
        "tsv" => Arc::new(
            CsvFormat::default()
                .with_delimiter(b'\t')
                .with_has_header(true)
                .with_file_compression_type(compression),
        ),
        _ => return None,
    };
    let suffix = if name == last { name } else { format!("{name}.{last}") };
    Some(ListingOptions::new(format).with_file_extension(suffix))
}

/// What a `CREATE EXTERNAL TABLE` describes.
pub async fn external(
    command: &CreateExternalTable,
    state: &SessionState,
    known: &Known,
) -> Result<Arc<dyn TableProvider>> {
    let file_type = command.file_type.to_uppercase();
    let json = (file_type == "JSON").then(|| Format::Json(JsonOptions::default()));
    if let ("CSV" | "JSON", [location], [], []) = (
        &*file_type,
        &command.locations[..],
        &command.table_partition_cols[..],
        &command.order_exprs[..],
    ) && !location.contains("://")
        && let Some((paths, format)) = text_files(location, json).await?
    {
        let format = match format {
            Format::Json(_) if file_type == "CSV" => Format::Csv(CsvOptions::sniffed()),
            format => format,
        };
        let format = told(format, &command.options)?;
        let declared = Some(Arc::clone(command.schema.inner()));
        let declared = declared.filter(|columns| !columns.fields().is_empty());
        let table = TextTable::new(location, paths, format, declared, state, known).await?;
        return Ok(Arc::new(table));
    }
    let factory = state.table_factories().get(&file_type).ok_or_else(|| {
        into_datafusion(
            Error::unsupported(format!("external tables cannot be STORED AS {file_type}"))
                .hint("PARQUET, CSV, JSON and ARROW can"),
        )
    })?;
    let table = factory.create(state, command).await?;
    let Some(listed) = table.downcast_ref::<ListingTable>() else { return Ok(table) };
    if !command.table_partition_cols.is_empty() {
        return Ok(table);
    }
    let config = ListingTableConfig::new_with_multi_paths(listed.table_paths().clone())
        .with_listing_options(listed.options().clone())
        .with_schema(table.schema());
    parquet::without_bounds(listed.clone(), config)
}

#[cfg(test)]
mod tests {
    use super::is_path;

    #[test]
    fn paths_are_told_from_names() {
        for path in ["a.parquet", "A.CSV", "x/y", "/tmp/z", "s3://b/k", "a.csv.gz", "l.jsonl.zst"] {
            assert!(is_path(path), "{path}");
        }
        for name in ["lineorder", "my.table", "gz", "a.gz", "parquet"] {
            assert!(!is_path(name), "{name}");
        }
    }
}
