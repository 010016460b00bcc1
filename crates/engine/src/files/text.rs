//! Files of text as tables, delimited or JSON: their columns are found as `thalweg load` finds them, from
//! all of their rows, and their rows are read by the same reader.

use std::collections::{HashMap, VecDeque};
use std::mem::discriminant;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::datasource::TableType;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use thalweg_base::{Error, text::quoted};
use thalweg_storage::LoadedFile;
use thalweg_storage::load::{self, Format, Inference, Inferred};

use crate::error::into_datafusion;
use crate::exec::{FileScanExec, Files};
use crate::load::{look_at_all, version};
use crate::runtime::blocking;
use crate::zoned;

/// Inputs of which the columns are remembered.
const KNOWN_MAX: usize = 64;

/// Bytes of a row of files of which nobody has counted the rows.
const ROW_BYTES: u64 = 100;

/// What was found out of files that were looked at last, so that asking for the same files again does
/// not read them twice.
#[derive(Default)]
pub struct Known(Mutex<VecDeque<(Input, Arc<Inferred>)>>);

/// Files in their versions, and how they are to be read.
#[derive(Clone, PartialEq, Eq)]
struct Input {
    files: Vec<LoadedFile>,
    format: Format,
}

impl Known {
    fn find(&self, input: &Input) -> Option<Arc<Inferred>> {
        let mut known = self.0.lock();
        let at = known.iter().position(|(other, _)| other == input)?;
        // The one that was asked for last is the last to be forgotten.
        let found = known.remove(at)?;
        let columns = Arc::clone(&found.1);
        known.push_back(found);
        Some(columns)
    }

    fn add(&self, input: Input, found: &Arc<Inferred>) {
        let mut known = self.0.lock();
        known.retain(|(other, _)| *other != input);
        known.push_back((input, Arc::clone(found)));
        if known.len() > KNOWN_MAX {
            known.pop_front();
        }
    }
}

pub struct TextTable {
    files: Arc<Files>,
    /// The columns, instants in the session's zone.
    shown: SchemaRef,
    rows: u64,
}

impl std::fmt::Debug for TextTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TextTable({})", self.files.name)
    }
}

impl TextTable {
    /// The files called `name`. `declared`: their columns, in their order; else they are found.
    ///
    /// # Errors
    /// A file cannot be read, or has rows that are none.
    pub async fn new(
        name: &str,
        paths: Vec<PathBuf>,
        mut format: Format,
        declared: Option<SchemaRef>,
        state: &dyn Session,
        known: &Known,
    ) -> Result<Self> {
        let stamped = paths.clone();
        let stamps = blocking(move || stamped.iter().map(|path| version(path)).collect());
        let stamps: Vec<LoadedFile> = stamps.await?;
        let bytes: u64 = stamps.iter().map(|stamp| stamp.bytes).sum();
        let (columns, rows, names) = match declared {
            Some(columns) => {
                let names = columns.fields().iter().map(|f| f.name().clone()).collect();
                (columns, bytes / ROW_BYTES, Some(names))
            }
            None => {
                let input = Input { files: stamps.clone(), format: format.clone() };
                let found = match known.find(&input) {
                    Some(found) => found,
                    None => {
                        let workers = state.config().target_partitions();
                        let found = Arc::new(infer(&paths, &format, bytes, workers).await?);
                        known.add(input, &found);
                        found
                    }
                };
                found.settle(&mut format);
                (found.schema(), found.rows.unwrap_or(bytes / ROW_BYTES), None)
            }
        };
        let zone = state.config_options().execution.time_zone.as_deref();
        let shown = zoned::shown(&columns, zone).unwrap_or_else(|| Arc::clone(&columns));
        let name = name.to_owned();
        let files = Arc::new(Files { name, paths, stamps, format, columns, names });
        Ok(TextTable { files, shown, rows })
    }
}

/// The columns that all rows have.
async fn infer(paths: &[PathBuf], format: &Format, bytes: u64, workers: usize) -> Result<Inferred> {
    let (paths, format) = (paths.to_vec(), format.clone());
    let inference = Arc::new(blocking(move || Inference::open(paths, format)).await?);
    let blocks = bytes as usize / thalweg_base::limits::LOAD_BLOCK_BYTES + 1;
    look_at_all(&inference, workers.min(blocks), || {}).await.map_err(into_datafusion)?;
    let (_, found) = inference.finish();
    found.map_err(into_datafusion)
}

#[async_trait]
impl TableProvider for TextTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shown)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.shown);
        // The file may have other rows by the time it is read.
        statistics.num_rows = Precision::Inexact(self.rows as usize);
        statistics.total_byte_size = Precision::Inexact(self.files.bytes() as usize);
        Some(statistics)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.shown.fields().len()).collect(),
        };
        let mut statistics = self.statistics().unwrap_or_default().project(Some(&projection));
        if let Some(limit) = limit {
            statistics = statistics.with_fetch(Some(limit), 0, 1)?;
        }
        let partitions = state.config().target_partitions();
        let files = Arc::clone(&self.files);
        let scan =
            Arc::new(FileScanExec::new(files, projection.clone(), limit, partitions, statistics)?);
        match Arc::ptr_eq(&self.shown, &self.files.columns) {
            true => Ok(scan),
            false => zoned::relabelled(scan, &self.shown, &projection),
        }
    }
}

/// The files called `name` if they are on this machine, all of them text of one kind, and nothing in their
/// paths is a column; and how they are read. With `told`, their format does not go by their names.
pub async fn text_files(
    name: &str,
    told: Option<Format>,
) -> Result<Option<(Vec<PathBuf>, Format)>> {
    let name = name.to_owned();
    blocking(move || {
        let paths = load::expand(&[name])?;
        // `k=v` in a path is a column.
        let is_column = |path: &PathBuf| {
            let mut folders = path.parent().into_iter().flat_map(|p| p.components());
            folders.any(|folder| folder.as_os_str().to_string_lossy().contains('='))
        };
        if paths.iter().any(is_column) {
            return Ok(None);
        }
        if let Some(told) = told {
            return Ok(Some((paths, told)));
        }
        let mut format = None;
        for path in &paths {
            let found = load::format_of(path)?.0;
            let alike = |format: &Format| discriminant(format) == discriminant(&found);
            match found {
                Format::Csv(_) | Format::Json(_) if format.as_ref().is_none_or(alike) => {
                    format = format.or(Some(found));
                }
                _ => return Ok(None),
            }
        }
        Ok(format.map(|format| (paths, format)))
    })
    .await
}

/// A format with the options of `CREATE EXTERNAL TABLE`, by DuckDB's names or with `format.` before them.
pub fn told(mut format: Format, options: &HashMap<String, String>) -> Result<Format> {
    let mut options: Vec<(&String, &String)> = options.iter().collect();
    options.sort();
    for (option, value) in options {
        let name = option.strip_prefix("format.").unwrap_or(option);
        let name = match name {
            "has_header" => "header",
            // Decided by the file's first bytes, by all rows, and by quotes.
            "compression" | "schema_infer_max_rec" | "newlines_in_values" => continue,
            other => other,
        };
        let known = format.tell(name, std::slice::from_ref(value)).map_err(into_datafusion)?;
        if !known {
            let (called, known) = format.known_options();
            return Err(into_datafusion(
                Error::user(format!(
                    "external tables of {called} files have no option {}",
                    quoted(name)
                ))
                .hint(format!("known are {known}")),
            ));
        }
    }
    format.check().map_err(into_datafusion)?;
    Ok(format)
}
