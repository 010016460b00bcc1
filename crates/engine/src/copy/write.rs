//! What `COPY … TO` writes, and where.
//!
//! A file or folder is written beside its name, and gets it when it is whole; after an error, or when the
//! statement is stopped, nothing is left.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast};
use datafusion::sql::sqlparser::ast::Value;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::load::{self, CsvOptions};

use super::{Setting, unknown_format};
use crate::json_file::BEFORE_ITEM;
use thalweg_errors::from_datafusion;

pub struct WriteOptions {
    pub format: String,
    pub partition_by: Vec<String>,
    /// By DataFusion's names.
    pub datafusion: Vec<(String, Value)>,
    /// The rows of JSON are the items of one array.
    array: bool,
    into: Existing,
    /// How files of a folder are called; `{i}` is their number.
    pattern: String,
}

/// What becomes of a folder in which there is something.
#[derive(Clone, Copy, PartialEq)]
enum Existing {
    Refuse,
    /// It is exchanged for the new one.
    Overwrite,
    /// Files of the same names are exchanged, others stay.
    Add,
}

const OF_FOLDERS: &str =
    "PARTITION_BY, WRITE_PARTITION_COLUMNS, OVERWRITE, OVERWRITE_OR_IGNORE and FILENAME_PATTERN";
const PATTERN: &str = "data_{i}";
/// Without arguments, as they are known to compress well for the time that they take.
const ZSTD_LEVEL: u64 = 3;
const GZIP_LEVEL: u64 = 6;
const BROTLI_LEVEL: u64 = 4;

/// The options of a format, as an error lists them.
fn options_of(format: &str) -> &'static str {
    match format {
        "csv" => {
            "FORMAT, HEADER, DELIMITER, QUOTE, ESCAPE, NULL, DATEFORMAT, TIMESTAMPFORMAT, \
             COMPRESSION, COMPRESSION_LEVEL"
        }
        "json" => "FORMAT, ARRAY, COMPRESSION, COMPRESSION_LEVEL",
        "parquet" => "FORMAT, COMPRESSION, COMPRESSION_LEVEL, ROW_GROUP_SIZE",
        _ => "FORMAT",
    }
}

impl WriteOptions {
    pub fn new(target: &str, options: &[Setting]) -> Result<WriteOptions> {
        let path = Path::new(target.trim_end_matches('/'));
        let suffix = |p: &Path| p.extension().map(|e| e.to_string_lossy().to_lowercase());
        let (mut extension, mut by_name) = (suffix(path), None);
        if let Some(known) = extension.as_deref().and_then(compression_of) {
            by_name = Some(known);
            extension = path.file_stem().and_then(|stem| suffix(Path::new(stem)));
        }
        let said = options.iter().rfind(|option| option.name == "format");
        let format = match (said, extension) {
            (Some(said), _) => known_format(said.text()?)?,
            (None, Some(extension)) => known_format(&extension)?,
            (None, None) => {
                return Err(Error::user(format!("the format of {} is not known", quoted(target)))
                    .hint("say it: COPY … TO '…' (FORMAT parquet)"));
            }
        };
        let mut made = WriteOptions {
            format,
            partition_by: vec![],
            datafusion: vec![],
            array: false,
            into: Existing::Refuse,
            pattern: PATTERN.into(),
        };
        let (mut compression, mut level) = (None, None);
        let mut csv = CsvOptions::default();
        for option in options {
            match option.name.as_str() {
                "format" => {}
                "compression" | "codec" => compression = Some(option),
                "compression_level" => level = Some(option.number()?),
                _ if made.of_folder(option)? => {}
                _ => made.of_format(option, &mut csv)?,
            }
        }
        csv.check()?;
        let compression = match compression {
            Some(option) => Some(option.text()?.to_lowercase()),
            None if matches!(made.format.as_str(), "csv" | "json") => by_name.map(str::to_owned),
            None => None,
        };
        made.compress(compression, level)?;
        if made.format == "parquet" {
            // Readers go by the types of Parquet; those of Arrow would be views to some of them.
            made.tell("format.skip_arrow_metadata", "true".into());
        }
        made.check(target)?;
        Ok(made)
    }

    fn tell(&mut self, name: &str, text: String) {
        self.datafusion.push((name.into(), Value::SingleQuotedString(text)));
    }

    /// Takes an option of files of any format.
    fn of_folder(&mut self, option: &Setting) -> Result<bool> {
        match option.name.as_str() {
            "partition_by" | "partitioned_by" => self.partition_by.clone_from(&option.values),
            "write_partition_columns" => {
                let keep = option.flag()?.to_string();
                self.tell("execution.keep_partition_by_columns", keep);
            }
            "overwrite" if option.flag()? => self.into = Existing::Overwrite,
            "overwrite_or_ignore" if option.flag()? => self.into = Existing::Add,
            "overwrite" | "overwrite_or_ignore" => {}
            "filename_pattern" => {
                let pattern = option.text()?;
                let braces = pattern.replace("{i}", "");
                if pattern.is_empty() || braces.contains(['/', '\\', '{', '}']) {
                    return Err(Error::user(format!(
                        "COPY: FILENAME_PATTERN is a name with {{i}} for the number of the file, \
                         not {}",
                        quoted(pattern)
                    ))
                    .hint("FILENAME_PATTERN 'part-{i}'"));
                }
                let number = if pattern.contains("{i}") { "" } else { "{i}" };
                self.pattern = format!("{pattern}{number}");
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes an option of the format that is written.
    fn of_format(&mut self, option: &Setting, csv: &mut CsvOptions) -> Result<()> {
        let name = option.name.as_str();
        match (self.format.as_str(), name) {
            ("csv", "header") => self.tell("format.has_header", option.flag()?.to_string()),
            ("csv", "delimiter" | "delim" | "sep") => {
                csv.delimiter = option.byte()?;
                self.tell("format.delimiter", char::from(csv.delimiter).to_string());
            }
            ("csv", "quote") => {
                csv.quote = Some(option.byte()?);
                self.tell("format.quote", option.text()?.into());
            }
            ("csv", "escape") => {
                csv.escape = Some(option.byte()?);
                self.tell("format.escape", option.text()?.into());
            }
            ("csv", "null" | "nullstr") => {
                csv.nulls = vec![option.text()?.to_string()];
                self.tell("format.null_value", option.text()?.into());
            }
            ("csv", "dateformat" | "date_format") => {
                self.tell("format.date_format", option.text()?.into());
            }
            ("csv", "timestampformat" | "timestamp_format") => {
                self.tell("format.timestamp_format", option.text()?.into());
                self.tell("format.timestamp_tz_format", option.text()?.into());
            }
            ("json", "array") => self.array = option.flag()?,
            ("parquet", "row_group_size") => {
                let rows = option.number()?.max(1);
                self.tell("format.max_row_group_size", rows.to_string());
            }
            (_, other) if other.contains('.') => self.tell(other, option.text()?.into()),
            (format, _) => {
                return Err(option.unknown(&format!(
                    "{} are the options of COPY … TO for {}; {OF_FOLDERS} are those for folders",
                    options_of(format),
                    format.to_uppercase()
                )));
            }
        }
        Ok(())
    }

    fn compress(&mut self, compression: Option<String>, level: Option<u64>) -> Result<()> {
        let is_parquet = self.format == "parquet";
        let known = match is_parquet {
            true => "zstd, snappy, gzip, brotli, lz4 and none",
            false => "gzip, zstd, bzip2, xz and none",
        };
        let Some(name) = compression else {
            return match level {
                None => Ok(()),
                Some(_) => Err(Error::user("COPY: COMPRESSION_LEVEL needs a COMPRESSION")
                    .hint("COMPRESSION zstd, COMPRESSION_LEVEL 9")),
            };
        };
        if self.format == "arrow" {
            return Err(Error::unsupported("COPY … TO compresses no Arrow files")
                .hint("write Parquet, which is compressed"));
        }
        let leveled = |name: &str, usual: u64| format!("{name}({})", level.unwrap_or(usual));
        let (text, takes_level) = match (is_parquet, name.as_str()) {
            (_, "none" | "uncompressed") => ("uncompressed".into(), false),
            (true, "snappy") => (name, false),
            (true, "lz4" | "lz4_raw") => ("lz4_raw".into(), false),
            (true, "zstd") => (leveled("zstd", ZSTD_LEVEL), true),
            (true, "gzip") => (leveled("gzip", GZIP_LEVEL), true),
            (true, "brotli") => (leveled("brotli", BROTLI_LEVEL), true),
            (true, other) if other.ends_with(')') => (name, false),
            (false, "gzip" | "gz") => ("gzip".into(), true),
            (false, "zstd" | "zst") => ("zstd".into(), true),
            (false, "bzip2" | "bz2") => ("bzip2".into(), true),
            (false, "xz") => ("xz".into(), true),
            (_, other) => {
                return Err(Error::user(format!(
                    "{} is no compression of {} files",
                    quoted(other),
                    self.format.to_uppercase()
                ))
                .hint(format!("{known} are")));
            }
        };
        if let (Some(level), false) = (level, takes_level) {
            return Err(Error::user(format!("COPY: COMPRESSION {text} has no level {level}"))
                .hint("leave COMPRESSION_LEVEL out"));
        }
        self.tell("format.compression", text);
        if let (Some(level), false) = (level, is_parquet) {
            self.tell("format.compression_level", level.to_string());
        }
        Ok(())
    }

    /// Options that do not go together.
    fn check(&mut self, target: &str) -> Result<()> {
        let is_compressed = self.datafusion.iter().any(|(name, value)| {
            name == "format.compression"
                && *value != Value::SingleQuotedString("uncompressed".into())
        });
        if self.array && (self.is_folder(target) || target.contains("://") || is_compressed) {
            return Err(Error::unsupported(
                "COPY: ARRAY is for one file of this machine that is not compressed",
            )
            .hint("without ARRAY each row is an object on a line of its own"));
        }
        if self.array {
            self.tell("format.newline_delimited", "false".into());
        }
        let is_of_folder = self.into != Existing::Refuse || self.pattern != PATTERN;
        if is_of_folder && target.contains("://") {
            return Err(Error::unsupported(
                "COPY: OVERWRITE, OVERWRITE_OR_IGNORE and FILENAME_PATTERN are for folders of \
                 this machine",
            )
            .hint("name a prefix under which there is nothing yet"));
        }
        Ok(())
    }

    pub fn is_folder(&self, target: &str) -> bool {
        !self.partition_by.is_empty() || is_folder(target)
    }

    pub fn place(&self, target: &str) -> Result<Place> {
        Place::new(target, self)
    }
}

/// Whether a name without further word means a folder.
fn is_folder(target: &str) -> bool {
    target.ends_with('/') || (!target.contains("://") && Path::new(target).is_dir())
}

fn compression_of(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "gz" => "gzip",
        "zst" => "zstd",
        "bz2" => "bzip2",
        "xz" => "xz",
        _ => return None,
    })
}

fn known_format(name: &str) -> Result<String> {
    Ok(match name.to_lowercase().as_str() {
        "csv" => "csv",
        "json" | "jsonl" | "ndjson" => "json",
        "parquet" => "parquet",
        "arrow" | "feather" | "ipc" => "arrow",
        other => return Err(unknown_format(other)),
    }
    .into())
}

/// Gives the columns types that the format has, and those that they are partitioned by their names.
///
/// # Errors
/// A column is of a type that the format cannot have: writers of some panic then. Or there is no such
/// column to partition by.
pub fn suit(copy: &mut CopyTo, format: &str) -> Result<()> {
    let schema = Arc::clone(copy.input.schema());
    let fields = schema.fields();
    for name in &mut copy.partition_by {
        let lower = name.to_lowercase();
        let found = fields
            .iter()
            .find(|f| f.name() == name)
            .or_else(|| fields.iter().find(|f| f.name().to_lowercase() == lower));
        let Some(found) = found else {
            let all: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
            return Err(Error::user(format!(
                "PARTITION_BY names {}, which is no column",
                quoted(name)
            ))
            .code("42703")
            .hint(format!("the columns are {}", all.join(", "))));
        };
        name.clone_from(found.name());
    }
    if format == "arrow" {
        return Ok(());
    }
    let mut types = vec![];
    for field in fields {
        let written = written_type(field.data_type(), format).map_err(|what| {
            let error = Error::unsupported(format!(
                "column {} is {what}, which {} does not have",
                quoted(field.name()),
                format.to_uppercase()
            ));
            error.hint(match what {
                UNION => {
                    "take out its members with union_extract(column, 'member'), or write Arrow"
                }
                _ => "write column::text, or the seconds of it: extract(epoch FROM column)",
            })
        })?;
        types.push(written);
    }
    if fields.iter().any(|field| has_duration(field.data_type())) {
        // Parquet knows of them by Arrow's types alone.
        copy.options.remove("format.skip_arrow_metadata");
    }
    if fields.iter().zip(&types).all(|(field, written)| field.data_type() == written) {
        return Ok(());
    }
    let columns = schema.columns().into_iter().zip(types).map(|(column, written)| {
        let name = column.name.clone();
        cast(Expr::Column(column), written).alias(name)
    });
    let columns: Vec<Expr> = columns.collect();
    let input = (|| -> DfResult<_> {
        LogicalPlanBuilder::from(copy.input.as_ref().clone()).project(columns)?.build()
    })();
    copy.input = Arc::new(input.map_err(from_datafusion)?);
    Ok(())
}

const UNION: &str = "a union";

/// The type as a file of the format has it. Parquet has no seconds and no days in milliseconds: as numbers
/// they would be nothing but that.
fn written_type(data_type: &DataType, format: &str) -> Result<DataType, &'static str> {
    use DataType as T;
    let item = |field: &FieldRef| -> Result<FieldRef, &'static str> {
        let written = written_type(field.data_type(), format)?;
        Ok(Arc::new(Field::clone(field).with_data_type(written)))
    };
    let is_parquet = format == "parquet";
    Ok(match data_type {
        T::Union(..) => return Err(UNION),
        T::Interval(_) if is_parquet => return Err("an interval of months, days and time"),
        T::Date64 if is_parquet => T::Date32,
        T::Timestamp(TimeUnit::Second, zone) if is_parquet => {
            T::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        T::Time32(TimeUnit::Second) if is_parquet => T::Time32(TimeUnit::Millisecond),
        T::Dictionary(key, value) => {
            let written = written_type(value, format)?;
            match written == **value {
                true => T::Dictionary(key.clone(), value.clone()),
                false => written,
            }
        }
        T::List(field) => T::List(item(field)?),
        T::LargeList(field) => T::LargeList(item(field)?),
        T::FixedSizeList(field, length) => T::FixedSizeList(item(field)?, *length),
        T::ListView(field) => T::ListView(item(field)?),
        T::LargeListView(field) => T::LargeListView(item(field)?),
        T::Map(field, sorted) => T::Map(item(field)?, *sorted),
        T::Struct(fields) => {
            let fields = fields.iter().map(item).collect::<Result<Vec<FieldRef>, _>>()?;
            T::Struct(Fields::from(fields))
        }
        other => other.clone(),
    })
}

fn has_duration(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Duration(_) => true,
        T::Dictionary(_, value) => has_duration(value),
        T::List(field)
        | T::LargeList(field)
        | T::FixedSizeList(field, _)
        | T::ListView(field)
        | T::LargeListView(field)
        | T::Map(field, _) => has_duration(field.data_type()),
        T::Struct(fields) => fields.iter().any(|f| has_duration(f.data_type())),
        _ => false,
    }
}

/// Where the output goes, and where it is written first.
pub enum Place {
    /// A local file or folder: written beside its name, and renamed.
    Local(Local),
    /// Stores make objects at once, whole.
    Remote(String),
}

pub struct Local {
    target: PathBuf,
    scratch: Scratch,
    folder: bool,
    array: bool,
    into: Existing,
    pattern: String,
}

/// Removed unless it has been renamed.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is not there need not be removed; what cannot be has a name that says so.
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}

impl Place {
    fn new(target: &str, options: &WriteOptions) -> Result<Place> {
        if load::address(Path::new(target)).is_some() {
            return Err(Error::unsupported(format!(
                "COPY TO {}: files are not written at addresses",
                load::shown(Path::new(target))
            ))
            .hint("write it on this machine, and bring it there"));
        }
        if target.contains("://") {
            return Ok(Place::Remote(target.to_string()));
        }
        let folder = options.is_folder(target);
        let cannot = |e| Error::io(format!("cannot write {}", quoted(target)), e);
        let path = std::path::absolute(target.trim_end_matches('/')).map_err(cannot)?;
        let (Some(parent), Some(_)) = (path.parent(), path.file_name()) else {
            return Err(Error::user(format!("{} is not the name of a file", quoted(target))));
        };
        if folder && path.exists() && !path.is_dir() {
            return Err(Error::user(format!("{} is a file, not a folder", quoted(target)))
                .hint("name another, or remove it"));
        }
        if folder && options.into == Existing::Refuse {
            let used = std::fs::read_dir(&path).map(|mut entries| entries.next().is_some());
            if used.unwrap_or(false) {
                return Err(Error::user(format!("folder {} is not empty", quoted(target))).hint(
                    "name a new one, or say OVERWRITE, which removes what is in it, or \
                     OVERWRITE_OR_IGNORE, which keeps other files",
                ));
            }
        }
        std::fs::create_dir_all(parent).map_err(cannot)?;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // A name with an extension is a file to DataFusion, one with a slash at the end a folder.
        let format = &options.format;
        let scratch = parent.join(format!(".copy-{}-{number}.{format}", std::process::id()));
        Ok(Place::Local(Local {
            scratch: Scratch(scratch),
            folder,
            target: path,
            array: options.array,
            into: options.into,
            pattern: options.pattern.clone(),
        }))
    }

    pub fn written(&self) -> String {
        match self {
            Place::Remote(url) => url.clone(),
            Place::Local(local) => {
                let text = local.scratch.0.to_string_lossy().into_owned();
                if local.folder { text + "/" } else { text }
            }
        }
    }

    pub fn publish(self) -> Result<()> {
        let Place::Local(local) = self else { return Ok(()) };
        let name = quoted(&local.target.to_string_lossy());
        local.publish().map_err(|e| Error::io(format!("cannot write {name}"), e))
    }
}

impl Local {
    fn publish(self) -> std::io::Result<()> {
        let (scratch, target) = (&self.scratch.0, &self.target);
        if !self.folder {
            if self.array {
                close_array(scratch)?;
            }
            return std::fs::rename(scratch, target);
        }
        // Without rows, not even a folder is written.
        std::fs::create_dir_all(scratch)?;
        name_files(scratch, &self.pattern)?;
        match self.into {
            Existing::Add => add_files(scratch, target),
            Existing::Refuse => {
                // It is empty, as was looked at in the beginning.
                let _ = std::fs::remove_dir(target);
                std::fs::rename(scratch, target)
            }
            Existing::Overwrite => {
                let old = Scratch(scratch.with_extension("old"));
                let was_there = target.exists();
                if was_there {
                    std::fs::rename(target, &old.0)?;
                }
                let renamed = std::fs::rename(scratch, target);
                if renamed.is_err() && was_there {
                    std::fs::rename(&old.0, target)?;
                }
                renamed
            }
        }
    }
}

/// Makes an array of the items that a file has, each after a comma.
fn close_array(path: &Path) -> std::io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    let has_items = file.metadata()?.len() >= BEFORE_ITEM.len() as u64;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(b"[")?;
    file.seek(SeekFrom::End(0))?;
    file.write_all(if has_items { b"\n]\n" } else { b"]\n" })
}

/// Names the files of a folder, and those of the folders in it, by their number.
fn name_files(folder: &Path, pattern: &str) -> std::io::Result<()> {
    let mut files = vec![];
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            name_files(&entry.path(), pattern)?;
        } else {
            files.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    // They are numbered by their writer: the tenth comes after the second.
    files.sort_by_key(|name| (name.len(), name.clone()));
    for (number, name) in files.iter().enumerate() {
        let extension = name.split_once('.').map_or("", |(_, extension)| extension);
        let called = pattern.replace("{i}", &number.to_string());
        std::fs::rename(folder.join(name), folder.join(format!("{called}.{extension}")))?;
    }
    Ok(())
}

/// Moves files into a folder, each in the place of the one of its name.
fn add_files(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            add_files(&entry.path(), &target)?;
        } else {
            std::fs::rename(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_from_the_name() {
        let check = |target: &str, format: &str, compression: Option<&str>| {
            let options = WriteOptions::new(target, &[]).unwrap();
            assert_eq!(options.format, format, "{target}");
            let found = options.datafusion.iter().find(|(n, _)| n == "format.compression");
            let found = found.map(|(_, v)| v.clone());
            assert_eq!(found, compression.map(|c| Value::SingleQuotedString(c.into())), "{target}");
        };
        check("/tmp/a.csv", "csv", None);
        check("a.CSV.gz", "csv", Some("gzip"));
        check("a.jsonl.zst", "json", Some("zstd"));
        check("out.parquet/", "parquet", None);
        check("x.arrow", "arrow", None);
        assert!(WriteOptions::new("a.xls", &[]).is_err());
        assert!(WriteOptions::new("a", &[]).is_err());
    }

    #[test]
    fn types_that_parquet_lacks_are_others() {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let list = |item: DataType| DataType::new_list(item, true);
        let check = |from: DataType, to: Result<DataType, &'static str>| {
            assert_eq!(written_type(&from, "parquet"), to, "{from}");
        };
        let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
        check(list(list(seconds)), Ok(list(list(milliseconds))));
        check(DataType::Date64, Ok(DataType::Date32));
        check(DataType::Utf8View, Ok(DataType::Utf8View));
        let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
        assert!(written_type(&list(interval.clone()), "parquet").is_err());
        assert_eq!(written_type(&interval, "csv"), Ok(interval));
    }
}
