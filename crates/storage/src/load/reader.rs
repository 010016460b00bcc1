//! Work units for any number of load workers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use thalweg_base::Result;
use thalweg_base::limits::{LOAD_BLOCK_BYTES, LOAD_MEMORY_BYTES};

use super::arrow_ipc::{ArrowBatches, ArrowSource};
use super::block::{Block, TextSource};
use super::columns::Column;
use super::csv::{CsvBatches, CsvLayout, no_records};
use super::gate::{Gate, Permit};
use super::input::Format;
use super::json::{JsonBatches, JsonLayout};
use super::json_columns::JsonColumn;
use super::json_text::JsonSource;
use super::layout::{Columns, Matched};
use super::parquet::{ParquetBatches, ParquetSource};
use super::rejects::{Faults, Position, Reject};
use super::text::open_csv;
use super::turns::{InputFile, Turns};

/// Hands out the work of loading some files; shared by all workers.
///
/// Workers take units until there are none, and parse them; then [`Reader::finish`] says what
/// was wrong with the input. What it says does not depend on the number of workers.
pub struct Reader {
    turns: Turns<Source>,
    format: Format,
    columns: Arc<Columns>,
    faults: Arc<Faults>,
    matched: Arc<Mutex<Matched>>,
    gate: Arc<Gate>,
    block_bytes: usize,
}

/// An open file.
enum Source {
    Csv(TextSource, Arc<CsvLayout>),
    Json(JsonSource, Arc<JsonLayout>),
    Parquet(Arc<ParquetSource>, usize),
    Arrow(Box<ArrowSource>),
}

impl Source {
    /// Where its next unit begins.
    fn position(&self) -> Position {
        match self {
            Source::Csv(text, _) => text.position(),
            Source::Json(text, _) => text.position(),
            Source::Parquet(parquet, row_group) => parquet.position(*row_group),
            Source::Arrow(arrow) => arrow.position(),
        }
    }
}

/// What a worker takes away from under a file's lock.
enum Taken {
    Unit(Box<Unit>),
    /// Row groups have known places, so their bytes are read without the lock.
    RowGroup(Arc<ParquetSource>, usize),
}

/// What became of the input, but for the rows.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Rows put aside, in the order of the input. Of a load that failed, those up to the one that
    /// was too many.
    pub rejects: Vec<Arc<Reject>>,
    pub matched: Matched,
}

impl Reader {
    /// Prepares to read `files` into batches of the table's `columns`: where the input names its
    /// columns they are matched by name, else by position. Files are opened as their turn comes;
    /// here they only have to exist.
    pub fn open(files: Vec<PathBuf>, format: Format, columns: Columns) -> Result<Reader> {
        format.check()?;
        for field in columns.schema.fields() {
            let (name, data_type) = (field.name(), field.data_type());
            match &format {
                // A table may have lists and structs as long as no file has columns for them.
                Format::Csv(_) if data_type.is_nested() => {}
                Format::Csv(_) => drop(Column::new(name, data_type, 0)?),
                Format::Json(options) => drop(JsonColumn::new(name, data_type, options, 0)?),
                Format::Parquet | Format::Arrow => {}
            }
        }
        let faults = Faults::new(0).ignoring(format.ignores_errors());
        Ok(Reader {
            turns: Turns::new(files)?,
            format,
            columns: Arc::new(columns),
            faults: Arc::new(faults),
            matched: Arc::default(),
            gate: Gate::new(LOAD_MEMORY_BYTES),
            block_bytes: LOAD_BLOCK_BYTES,
        })
    }

    /// Bad rows that are put aside before the load fails; at first, none.
    pub fn with_rejects_max(mut self, rows: u64) -> Reader {
        self.faults = Arc::new(Faults::new(rows).ignoring(self.format.ignores_errors()));
        self
    }

    /// Bytes of input in memory: of all units together, and of one block of text.
    pub fn with_memory(mut self, units_bytes: usize, block_bytes: usize) -> Reader {
        self.gate = Gate::new(units_bytes);
        self.block_bytes = block_bytes;
        self
    }

    #[cfg(test)]
    pub(super) fn with_block_bytes(mut self, bytes: usize) -> Reader {
        self.block_bytes = bytes;
        self
    }

    /// The next piece of work, or `None` when there is none left, or none that matters: see
    /// [`Reader::finish`]. Blocking I/O and decompression; it waits, too, until there is room for
    /// the piece. Safe to call from many threads, but not with another unit in hand. Units come
    /// in no particular order.
    pub fn next(&self) -> Option<Unit> {
        loop {
            match self.turns.next(|file, source| self.advance(file, source))? {
                Taken::Unit(unit) => return Some(*unit),
                Taken::RowGroup(parquet, row_group) => {
                    if let Some(unit) = self.fetch(parquet, row_group) {
                        return Some(unit);
                    }
                }
            }
        }
    }

    /// Advances one file under its lock; `None`: there is nothing (more) to read in it.
    fn advance(&self, file: &InputFile<Source>, open: &mut Option<Source>) -> Option<Taken> {
        let mut at = Position { file: file.index, line: 0 };
        if self.faults.settled(at) {
            return None;
        }
        let source = match open {
            Some(source) => source,
            None => match self.first(file) {
                Ok((source, first)) => {
                    let source = open.insert(source);
                    if let Some(unit) = first {
                        return Some(Taken::Unit(Box::new(unit)));
                    }
                    source
                }
                Err(error) => {
                    self.faults.fatal(at, error);
                    return None;
                }
            },
        };
        at = source.position();
        if self.faults.settled(at) {
            return None;
        }
        self.more(source).unwrap_or_else(|error| {
            self.faults.fatal(at, error);
            None
        })
    }

    fn more(&self, source: &mut Source) -> Result<Option<Taken>> {
        Ok(match source {
            Source::Csv(text, layout) => {
                text.next_block()?.map(|block| Taken::Unit(Box::new(self.csv(block, layout))))
            }
            Source::Json(text, layout) => text.next_block()?.map(|block| {
                let (layout, faults) = (Arc::clone(layout), Arc::clone(&self.faults));
                let matched = Arc::clone(&self.matched);
                let batches = JsonBatches::new(block, layout, faults, matched);
                Taken::Unit(Box::new(Unit(Work::Json(batches))))
            }),
            Source::Parquet(parquet, next) => (*next < parquet.row_groups()).then(|| {
                *next += 1;
                Taken::RowGroup(Arc::clone(parquet), *next - 1)
            }),
            Source::Arrow(arrow) => arrow
                .next_unit(&self.faults)?
                .map(|unit| Taken::Unit(Box::new(Unit(Work::Arrow(unit))))),
        })
    }

    fn csv(&self, block: Block, layout: &Arc<CsvLayout>) -> Unit {
        Unit(Work::Csv(CsvBatches::new(block, Arc::clone(layout), Arc::clone(&self.faults))))
    }

    /// Opens a file; for CSV this reads the first block, which holds the header.
    fn first(&self, file: &InputFile<Source>) -> Result<(Source, Option<Unit>)> {
        let (path, index, columns) = (&file.path, file.index, &self.columns);
        let done = Arc::clone(&file.done);
        let opened = match &self.format {
            Format::Csv(options) => {
                let text = open_csv(path, index, options, self.block_bytes, done)?;
                let (mut text, found) = (text.source, text.found);
                // The first holds nothing but blank lines if the file does.
                loop {
                    let Some(mut block) = text.next_block()? else {
                        return Err(no_records(path, options.header == Some(true)));
                    };
                    if let Some(layout) = CsvLayout::detect(&mut block, options, &found, columns)? {
                        let layout = Arc::new(layout);
                        let unit = self.csv(block, &layout);
                        break (Source::Csv(text, layout), Some(unit));
                    }
                }
            }
            Format::Json(options) => {
                let layout = Arc::new(JsonLayout::new(columns, options));
                let text = JsonSource::open(path, index, options, self.block_bytes, done)?;
                (Source::Json(text, layout), None)
            }
            Format::Parquet => {
                let parquet = ParquetSource::open(path, index, columns)?;
                (Source::Parquet(Arc::new(parquet), 0), None)
            }
            Format::Arrow => {
                let arrow = ArrowSource::open(path, index, columns, done)?;
                (Source::Arrow(Box::new(arrow)), None)
            }
        };
        let mut matched = self.matched.lock();
        match &opened.0 {
            Source::Csv(_, csv) => matched.add(index, &csv.layout),
            Source::Parquet(parquet, _) => matched.add(index, parquet.layout()),
            Source::Arrow(arrow) => matched.add(index, arrow.layout()),
            Source::Json(..) => {}
        }
        drop(matched);
        Ok(opened)
    }

    fn fetch(&self, parquet: Arc<ParquetSource>, row_group: usize) -> Option<Unit> {
        let at = parquet.position(row_group);
        let permit: Permit = self.gate.enter(parquet.bytes(row_group));
        let done = Arc::clone(&self.turns.files()[at.file].done);
        match ParquetSource::fetch(parquet, row_group, Arc::clone(&self.faults), permit) {
            Ok(batches) => {
                done.fetch_add(batches.bytes(), Ordering::Relaxed);
                Some(Unit(Work::Parquet(batches)))
            }
            Err(error) => {
                self.faults.fatal(at, error);
                None
            }
        }
    }

    /// Once all workers are done: whether all input is read, and what was put aside.
    ///
    /// # Errors
    /// That of the first row, in the order of the input, that was one bad row too many; or of the
    /// first file that could not be read on, if that comes before.
    pub fn finish(&self) -> (Outcome, Result<()>) {
        let (rejects, result) = self.faults.outcome();
        (Outcome { rejects, matched: std::mem::take(&mut self.matched.lock()) }, result)
    }

    /// Whether the load has failed, so that [`Reader::finish`] will return an error.
    pub fn failed(&self) -> bool {
        self.faults.failed()
    }

    /// Rows put aside so far.
    pub fn rejected(&self) -> u64 {
        self.faults.rejected()
    }

    /// Bytes of the files read so far, as they lie on disk.
    pub fn bytes_done(&self) -> u64 {
        self.turns.bytes_done()
    }

    /// Bytes of all files together, as they lie on disk.
    pub fn bytes_total(&self) -> u64 {
        self.turns.bytes_total()
    }
}

/// A piece of input in memory: a block of text, a Parquet row group, or an Arrow record batch.
pub struct Unit(Work);

impl Unit {
    /// The place of its file among those that the reader was opened with.
    pub fn file(&self) -> usize {
        match &self.0 {
            Work::Csv(batches) => batches.file(),
            Work::Json(batches) => batches.file(),
            Work::Parquet(batches) => batches.file(),
            Work::Arrow(batches) => batches.file(),
            Work::Ended => 0,
        }
    }

    /// Parses without I/O; each item takes a bounded time.
    pub fn parse(self) -> Batches {
        Batches(self.0)
    }
}

/// The batches of a [`Unit`], of at most `BATCH_ROWS` rows and the table's schema. Bad rows are
/// not among them; an error here is a mistake of ours.
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
