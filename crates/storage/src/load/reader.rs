//! Work units for any number of load workers.
//!
//! Each file has a lock, held while its next block is read, decompressed and cut. A worker that
//! finds a file's lock taken goes on to the next file, so that one slow decompression keeps only
//! itself waiting; with a single file the workers take turns reading and parse in parallel.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use thalweg_base::limits::LOAD_BLOCK_BYTES;
use thalweg_base::{Error, Result};

use super::arrow_ipc::{ArrowBatches, ArrowSource};
use super::block::{Dialect, TextSource};
use super::columns::Column;
use super::csv::{CsvBatches, CsvLayout, no_records};
use super::input::{Format, cannot, empty, shown};
use super::json::JsonBatches;
use super::layout::Layout;
use super::parquet::{ParquetBatches, ParquetSource};

/// Hands out the work of loading some files; shared by all workers.
pub struct Reader {
    files: Vec<InputFile>,
    format: Format,
    schema: SchemaRef,
    inferred_rows: Option<u64>,
    block_bytes: usize,
}

struct InputFile {
    path: PathBuf,
    bytes: u64,
    done: Arc<AtomicU64>,
    exhausted: AtomicBool,
    source: Mutex<Source>,
}

enum Source {
    Unopened,
    Csv(TextSource, Arc<CsvLayout>),
    Json(TextSource, Arc<Layout>),
    Parquet(Arc<ParquetSource>, usize),
    Arrow(Box<ArrowSource>),
    Exhausted,
}

/// What a worker takes away from under a file's lock.
enum Taken {
    Unit(Unit),
    /// Row groups have known places, so their bytes are read without the lock.
    RowGroup(Arc<ParquetSource>, usize),
}

impl Reader {
    /// Prepares to read `files` into batches of `schema`, which is the table's: where the input
    /// names its columns they are matched by name, else by position. Files are opened as their
    /// turn comes; here they only have to exist.
    pub fn open(files: Vec<PathBuf>, format: Format, schema: SchemaRef) -> Result<Reader> {
        if let Format::Csv(options) = &format {
            options.check()?;
        }
        if matches!(format, Format::Csv(_) | Format::JsonLines) {
            for field in schema.fields() {
                Column::new(field.name(), field.data_type())?;
            }
        }
        let files = files
            .into_iter()
            .map(|path| {
                let meta = fs::metadata(&path).map_err(|e| cannot("open", &path, e))?;
                if meta.is_dir() {
                    return Err(Error::user(format!("{} is a folder, not a file", shown(&path))));
                }
                if meta.is_file() && meta.len() == 0 {
                    return Err(empty(&path));
                }
                Ok(InputFile {
                    path,
                    bytes: meta.len(),
                    done: Arc::default(),
                    exhausted: AtomicBool::new(false),
                    source: Mutex::new(Source::Unopened),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Reader { files, format, schema, inferred_rows: None, block_bytes: LOAD_BLOCK_BYTES })
    }

    /// Says that the schema comes from [`infer`](super::infer) over so many rows, so that an error
    /// in a later row can.
    pub fn with_inferred_rows(mut self, rows: u64) -> Reader {
        self.inferred_rows = Some(rows);
        self
    }

    #[cfg(test)]
    pub(super) fn with_block_bytes(mut self, bytes: usize) -> Reader {
        self.block_bytes = bytes;
        self
    }

    /// The next piece of work, or `None` when all files are used up. Blocking I/O and
    /// decompression; safe to call from many threads. Units come in no particular order.
    pub fn next(&self) -> Result<Option<Unit>> {
        loop {
            let mut busy = None;
            for file in self.files.iter().filter(|f| !f.exhausted.load(Ordering::Acquire)) {
                match file.source.try_lock() {
                    Some(mut source) => {
                        if let Some(taken) = self.take(file, &mut source)? {
                            drop(source);
                            return self.finish(file, taken).map(Some);
                        }
                    }
                    None => busy = busy.or(Some(file)),
                }
            }
            let Some(file) = busy else { return Ok(None) };
            let mut source = file.source.lock();
            if let Some(taken) = self.take(file, &mut source)? {
                drop(source);
                return self.finish(file, taken).map(Some);
            }
        }
    }

    /// Advances one file under its lock. A file that fails is not tried again.
    fn take(&self, file: &InputFile, source: &mut Source) -> Result<Option<Taken>> {
        let result = self.advance(file, source);
        if !matches!(result, Ok(Some(_))) {
            *source = Source::Exhausted;
            file.exhausted.store(true, Ordering::Release);
            file.done.store(file.bytes, Ordering::Relaxed);
        }
        result
    }

    fn advance(&self, file: &InputFile, source: &mut Source) -> Result<Option<Taken>> {
        if let Source::Unopened = source {
            let (opened, first) = self.first(file)?;
            *source = opened;
            if let Some(unit) = first {
                return Ok(Some(Taken::Unit(unit)));
            }
        }
        Ok(match source {
            Source::Unopened | Source::Exhausted => None,
            Source::Csv(text, layout) => text.next_block()?.map(|block| {
                Taken::Unit(Unit(Work::Csv(CsvBatches::new(block, Arc::clone(layout)))))
            }),
            Source::Json(text, layout) => text.next_block()?.map(|block| {
                Taken::Unit(Unit(Work::Json(JsonBatches::new(block, Arc::clone(layout)))))
            }),
            Source::Parquet(parquet, next) => (*next < parquet.row_groups()).then(|| {
                *next += 1;
                Taken::RowGroup(Arc::clone(parquet), *next - 1)
            }),
            Source::Arrow(arrow) => {
                arrow.next_unit()?.map(|unit| Taken::Unit(Unit(Work::Arrow(unit))))
            }
        })
    }

    /// Opens a file; for text this reads the first block, which holds the header.
    fn first(&self, file: &InputFile) -> Result<(Source, Option<Unit>)> {
        let path = &file.path;
        let done = || Arc::clone(&file.done);
        Ok(match &self.format {
            Format::Csv(options) => {
                let mut text = TextSource::open(path, options.dialect(), self.block_bytes, done())?;
                // With tiny blocks the first may hold nothing but blank lines.
                loop {
                    let Some(mut block) = text.next_block()? else {
                        return Err(no_records(path, options.header == Some(true)));
                    };
                    if let Some(layout) =
                        CsvLayout::detect(&mut block, options, &self.schema, self.inferred_rows)?
                    {
                        let layout = Arc::new(layout);
                        let unit = Unit(Work::Csv(CsvBatches::new(block, Arc::clone(&layout))));
                        break (Source::Csv(text, layout), Some(unit));
                    }
                }
            }
            Format::JsonLines => {
                let text = TextSource::open(path, Dialect::LINES, self.block_bytes, done())?;
                let layout = Layout::by_position(
                    path,
                    self.schema.fields().len(),
                    &self.schema,
                    self.inferred_rows,
                )?;
                (Source::Json(text, Arc::new(layout)), None)
            }
            Format::Parquet => {
                (Source::Parquet(Arc::new(ParquetSource::open(path, &self.schema)?), 0), None)
            }
            Format::Arrow => {
                (Source::Arrow(Box::new(ArrowSource::open(path, &self.schema, done())?)), None)
            }
        })
    }

    fn finish(&self, file: &InputFile, taken: Taken) -> Result<Unit> {
        match taken {
            Taken::Unit(unit) => Ok(unit),
            Taken::RowGroup(parquet, row_group) => {
                let batches = ParquetSource::fetch(parquet, row_group)?;
                file.done.fetch_add(batches.bytes(), Ordering::Relaxed);
                Ok(Unit(Work::Parquet(batches)))
            }
        }
    }

    /// Bytes of the files read so far, as they lie on disk.
    pub fn bytes_done(&self) -> u64 {
        self.files.iter().map(|f| f.done.load(Ordering::Relaxed).min(f.bytes)).sum()
    }

    /// Bytes of all files together, as they lie on disk.
    pub fn bytes_total(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }
}

/// A piece of input in memory: about `LOAD_BLOCK_BYTES` of text, or one Parquet row group, or one
/// Arrow record batch.
pub struct Unit(Work);

impl Unit {
    /// Parses without I/O; each item takes a bounded time.
    pub fn parse(self) -> Batches {
        Batches(self.0)
    }
}

/// The batches of a [`Unit`], of at most `BATCH_ROWS` rows and the table's schema. After an error
/// there are no more.
pub struct Batches(Work);

enum Work {
    Csv(CsvBatches),
    Json(JsonBatches),
    Parquet(ParquetBatches),
    Arrow(ArrowBatches),
    Ended,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = match &mut self.0 {
            Work::Csv(batches) => batches.next_batch(),
            Work::Json(batches) => batches.next_batch(),
            Work::Parquet(batches) => batches.next_batch(),
            Work::Arrow(batches) => batches.next_batch(),
            Work::Ended => Ok(None),
        };
        if !matches!(result, Ok(Some(_))) {
            self.0 = Work::Ended;
        }
        result.transpose()
    }
}
