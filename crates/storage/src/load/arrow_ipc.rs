//! Arrow IPC, the file format (also called Feather 2) and the stream format.
//!
//! Reading a record batch is little more than copying it, so it happens with the I/O; casting to
//! the table's types is left for the parse.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

use super::conform::{conform, declared_layout};
use super::decoded::{check_byte_order, with_null_keys};
use super::input::{cannot, guarded, shown};
use super::layout::{Columns, Layout};
use super::rejects::{Faults, Position};
use super::source::InputBytes;

enum Stream {
    File(FileReader<BufReader<InputBytes>>),
    Stream(StreamReader<BufReader<InputBytes>>),
}

impl Stream {
    fn schema(&self) -> SchemaRef {
        match self {
            Stream::File(reader) => reader.schema(),
            Stream::Stream(reader) => reader.schema(),
        }
    }

    fn next(&mut self) -> Option<Result<RecordBatch, ArrowError>> {
        match self {
            Stream::File(reader) => reader.next(),
            Stream::Stream(reader) => reader.next(),
        }
    }

    fn position(&mut self) -> u64 {
        let reader = match self {
            Stream::File(reader) => reader.get_mut(),
            Stream::Stream(reader) => reader.get_mut(),
        };
        reader.stream_position().unwrap_or(0)
    }
}

fn open(path: &Path) -> Result<Stream> {
    let mut file = InputBytes::open(path)?;
    let mut magic = Vec::new();
    file.by_ref().take(6).read_to_end(&mut magic).map_err(|e| cannot("read", path, e))?;
    file.seek(SeekFrom::Start(0)).map_err(|e| cannot("read", path, e))?;
    if magic.starts_with(b"FEA1") {
        return Err(Error::unsupported(format!("{} is a Feather 1 file", shown(path)))
            .hint("write it again as Feather 2, which is Arrow IPC"));
    }
    if magic != b"ARROW1" {
        check_byte_order(path, &mut file)?;
        file.seek(SeekFrom::Start(0)).map_err(|e| cannot("read", path, e))?;
    }
    let file = BufReader::with_capacity(128 * 1024, file);
    guarded(path, || match &magic[..] {
        b"ARROW1" => FileReader::try_new(file, None).map(Stream::File),
        _ => StreamReader::try_new(file, None).map(Stream::Stream),
    })
}

/// The schema an Arrow file declares.
pub(super) fn schema(path: &Path) -> Result<SchemaRef> {
    Ok(open(path)?.schema())
}

pub(super) struct ArrowSource {
    path: Arc<PathBuf>,
    stream: Stream,
    layout: Arc<Layout>,
    done: Arc<AtomicU64>,
    batches: u64,
    /// The next row.
    at: Position,
}

impl ArrowSource {
    /// `index` is the file's place among those of the input; bytes read go to `done`.
    pub(super) fn open(
        path: &Arc<PathBuf>,
        index: usize,
        columns: &Arc<Columns>,
        done: Arc<AtomicU64>,
    ) -> Result<ArrowSource> {
        let stream = open(path)?;
        let layout = Arc::new(declared_layout(path, &stream.schema(), columns)?);
        let at = Position { file: index, line: 1 };
        Ok(ArrowSource { path: Arc::clone(path), stream, layout, done, batches: 0, at })
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn position(&self) -> Position {
        self.at
    }

    pub(super) fn next_unit(&mut self, faults: &Arc<Faults>) -> Result<Option<ArrowBatches>> {
        let inputs: Vec<usize> = self.layout.targets.iter().map(|&(input, _)| input).collect();
        let next = guarded(&self.path, || {
            let batch = self.stream.next().transpose()?;
            batch.map(|batch| with_null_keys(&batch.project(&inputs)?)).transpose()
        });
        let Some(batch) =
            next.map_err(|e| e.detail(format!("in record batch {}", self.batches)))?
        else {
            return Ok(None);
        };
        self.done.store(self.stream.position(), Ordering::Relaxed);
        self.batches += 1;
        let at = self.at;
        self.at.line += batch.num_rows() as u64;
        Ok(Some(ArrowBatches {
            path: Arc::clone(&self.path),
            layout: Arc::clone(&self.layout),
            faults: Arc::clone(faults),
            batch,
            at,
            row: 0,
        }))
    }
}

/// One record batch of a file, to be handed on in slices.
pub(super) struct ArrowBatches {
    path: Arc<PathBuf>,
    layout: Arc<Layout>,
    faults: Arc<Faults>,
    batch: RecordBatch,
    at: Position,
    row: usize,
}

impl ArrowBatches {
    /// The place of the file among those of the input.
    pub(super) fn file(&self) -> usize {
        self.at.file
    }

    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let rows = BATCH_ROWS.min(self.batch.num_rows() - self.row);
        let at = Position { line: self.at.line + self.row as u64, ..self.at };
        if rows == 0 || self.faults.settled(at) {
            return Ok(None);
        }
        let slice = self.batch.slice(self.row, rows);
        self.row += rows;
        conform(&slice, &self.layout, &self.path, at, &self.faults).map(Some)
    }
}
