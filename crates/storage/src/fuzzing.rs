//! What is fuzzed: bytes in, and whatever they are, an error or an answer. See `docs/testing.md`.
//!
//! Checksums would refuse all that a fuzzer makes up, so frames and segments get the right ones
//! here: what is tested is the code behind them. An input of the catalog and of the extents is
//! therefore not a file as it is stored; [`catalog`] and [`extent`] say what it is.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::ser::SerializeTuple;
use serde::{Serialize, Serializer};
use thalweg_base::limits::CHUNK_ROWS_MAX;
use thalweg_base::{ExtentId, Kind, Result};

use crate::catalog::{ExtentRecord, FrameKind, frame};
use crate::database::{Database, Options};
use crate::direct_io::DirectIo;
use crate::extent::{Extent, Home, Metadata, object_name};
use crate::load::{
    Columns, CsvOptions, Format, Inference, Inferred, InferredColumn, JsonOptions, Reader, Sniff,
};
use crate::location::Location;
use crate::snapshot::Snapshot;
use crate::store::{MemoryStore, Store};

/// Delimited text: the first three bytes choose the dialect, or to have it found out; the rest is
/// the file.
///
/// Found columns must fit every row, but for the quotes and the encoding of text; and neither columns nor rows may depend on where the text is
/// cut into blocks.
pub fn csv(input: &[u8]) {
    let Some((&[dialect, quoting, declared], text)) = input.split_first_chunk() else { return };
    let options = CsvOptions {
        delimiter: [b',', b';', b'\t', b'|', b' ', b'a'][usize::from(dialect % 6)],
        quote: [Some(b'"'), Some(b'\''), None, Some(b'q')][usize::from(quoting % 4)],
        escape: [None, Some(b'\\')][usize::from(quoting / 4 % 2)],
        header: [None, Some(true), Some(false)][usize::from(dialect / 6 % 3)],
        nulls: match quoting / 8 % 3 {
            0 => vec![String::new()],
            1 => vec![String::new(), "NA".to_owned()],
            _ => vec!["NULL".to_owned()],
        },
        null_padding: dialect / 36 % 2 == 1,
        sniff: if dialect / 18 % 2 == 1 { Sniff::ALL } else { Sniff::default() },
        ..CsvOptions::default()
    };
    let file = Scratch::new(text);
    let blocks = [1 << 20, 16 + usize::from(declared / 2)];
    if declared % 2 == 1 {
        let columns = every_type();
        let read = blocks.map(|block| read(&file, &options, &columns, 50, block));
        assert_eq!(read[0].as_ref().ok(), read[1].as_ref().ok());
        return;
    }
    let found = infer(&file, &options, blocks[0]);
    // Whether a file has a header is judged by its first block alone.
    let header = found.as_ref().ok().and_then(|found| found.header).or(options.header);
    let options = CsvOptions { header, ..options };
    let cut = infer(&file, &options, blocks[1]);
    assert!(found.is_ok() == cut.is_ok() || header.is_none());
    if let Ok(found) = found {
        let mut format = Format::Csv(options);
        found.settle(&mut format);
        let Format::Csv(options) = format else { return };
        // Of several reasons why a column is text, any may be given.
        let columns = |found: &Inferred| {
            let column = |c: &InferredColumn| {
                (c.name.clone(), c.data_type.clone(), c.nulls, c.null_spellings.clone())
            };
            found.columns.iter().map(column).collect::<Vec<_>>()
        };
        assert_eq!(Some(columns(&found)), cut.as_ref().ok().map(columns));
        let read = blocks.map(|block| read(&file, &options, &found.schema(), 0, block));
        match read {
            [Ok(whole), Ok(cut)] => assert_eq!(whole, cut),
            // A column that is text anyhow is not looked into.
            [Err(e), _] | [_, Err(e)] => {
                let unseen = ["follows the closing quote", "is not UTF-8"];
                assert!(unseen.iter().any(|why| e.message().contains(why)), "{e:#}");
            }
        }
    }
}

/// JSON: in lines, as an array, or one value after the other.
///
/// Found columns must fit every row, but for the encoding of text and for keys that come twice; and
/// nothing may depend on where the text is cut into blocks.
pub fn json(input: &[u8]) {
    let Some((&[cut], text)) = input.split_first_chunk() else { return };
    let file = Scratch::new(text);
    let blocks = [1 << 20, 1 + usize::from(cut)];
    let format = Format::Json(JsonOptions::default());
    let [found, cut] = blocks.map(|block| infer_as(&file, &format, block));
    match (found, cut) {
        (Ok(found), Ok(cut)) => {
            let columns = |found: &Inferred| {
                let column = |c: &InferredColumn| (c.name.clone(), c.data_type.clone(), c.nulls);
                (found.rows, found.columns.iter().map(column).collect::<Vec<_>>())
            };
            assert_eq!(columns(&found), columns(&cut));
            match blocks.map(|block| read_as(&file, &format, &found.schema(), 0, block)) {
                [Ok(whole), Ok(cut)] => {
                    assert_eq!(whole, cut);
                    assert_eq!(Some(whole.0.num_rows() as u64), found.rows);
                }
                [Err(e), _] | [_, Err(e)] => {
                    let unseen = ["two values", "is not UTF-8", "unknown to the table"];
                    assert!(unseen.iter().any(|why| e.message().contains(why)), "{e:#}");
                }
            }
        }
        (Err(whole), Err(cut)) => assert_eq!(whole.message(), cut.message()),
        (whole, cut) => panic!("{whole:?} in one block, {cut:?} in several"),
    }
    let columns = every_type();
    let read = blocks.map(|block| read_as(&file, &format, &columns, 50, block));
    assert_eq!(read[0].as_ref().ok(), read[1].as_ref().ok());
}

/// Columns that make the readers of all kinds of values work.
fn every_type() -> SchemaRef {
    let types = [
        DataType::Int64,
        DataType::Utf8View,
        DataType::Float64,
        DataType::Decimal128(12, 2),
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Boolean,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::UInt8,
    ];
    let names = 'a'..;
    let fields = types.into_iter().zip(names).map(|(t, n)| Field::new(n.to_string(), t, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn infer(file: &Scratch, options: &CsvOptions, block_bytes: usize) -> Result<Inferred> {
    infer_as(file, &Format::Csv(options.clone()), block_bytes)
}

fn infer_as(file: &Scratch, format: &Format, block_bytes: usize) -> Result<Inferred> {
    let files = vec![file.path.clone()];
    let inference = Inference::open(files, format.clone())?.with_block_bytes(block_bytes);
    while let Some(mut piece) = inference.next() {
        while piece.step() {}
    }
    inference.finish().1
}

/// The rows that are loaded, and of those that are not, why.
fn read(
    file: &Scratch,
    options: &CsvOptions,
    columns: &SchemaRef,
    rejects_max: u64,
    block_bytes: usize,
) -> Result<(RecordBatch, Vec<String>)> {
    read_as(file, &Format::Csv(options.clone()), columns, rejects_max, block_bytes)
}

fn read_as(
    file: &Scratch,
    format: &Format,
    columns: &SchemaRef,
    rejects_max: u64,
    block_bytes: usize,
) -> Result<(RecordBatch, Vec<String>)> {
    let format = format.clone();
    let reader = Reader::open(vec![file.path.clone()], format, Columns::new(columns.clone()))?
        .with_rejects_max(rejects_max)
        .with_memory(1 << 24, block_bytes);
    let mut batches = Vec::new();
    while let Some(unit) = reader.next() {
        for batch in unit.parse() {
            batches.push(batch?);
        }
    }
    let (outcome, result) = reader.finish();
    result?;
    let rows = arrow::compute::concat_batches(columns, &batches).expect("all have one schema");
    Ok((rows, outcome.rejects.iter().map(|r| r.message()).collect()))
}

/// A file for one input, as readers take paths.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(content: &[u8]) -> Scratch {
        let thread = std::thread::current().id();
        let name = format!("thalweg-fuzz-{}-{thread:?}.csv", std::process::id());
        let path = std::env::temp_dir().join(name);
        let written = std::fs::File::create(&path).and_then(|mut f| f.write_all(content));
        written.expect("the folder for temporary files is writable");
        Scratch { path }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// An extent: whether to mend the checksums of segments (one byte), bytes of the metadata (four),
/// the record of the metadata, and the file of segments.
pub fn extent(input: &[u8]) {
    let Some((&[mend], rest)) = input.split_first_chunk() else { return };
    let Some((record, mut file)) = piece(rest).map(|(record, rest)| (record, rest.to_vec())) else {
        return;
    };
    let Ok(frame) = frame(FrameKind::Metadata, &Raw(record)) else { return };
    let at = Location {
        offset: file.len() as u64,
        bytes: frame.len() as u32,
        checksum: crc32fast::hash(&frame),
    };
    file.extend(&frame);
    let bytes = file.len() as u64;
    let mut metadata = match Metadata::decode(&frame, bytes, "the extent") {
        Ok(metadata) => metadata,
        Err(e) => return expected(e.kind()),
    };
    if mend % 2 == 1 {
        for column in &mut metadata.columns {
            for location in column.locations.iter_mut().chain(&mut column.digests) {
                let range = location.range();
                location.checksum =
                    crc32fast::hash(&file[range.start as usize..range.end as usize]);
            }
        }
    }
    let record = ExtentRecord {
        id: 1,
        rows: metadata.rows(),
        bytes,
        checksum: crc32fast::hash(&file),
        chunks: metadata.chunks() as u32,
        bucket: None,
        metadata: at,
    };
    let store = MemoryStore::default();
    store.put_new(&object_name(ExtentId(1)), &file).expect("memory");
    let home = Arc::new(Home::new(Arc::new(store), 1 << 20, DirectIo::Off, 0));
    let extent = Extent::committed(&record, &home);
    extent.verify().expect("its checksum is right");
    extent.open().expect("it was decoded before");
    let metadata = Arc::new(metadata);
    for place in 0..metadata.columns.len() {
        for chunk in 0..metadata.chunks() {
            let rows = metadata.chunk_rows(chunk);
            // What a chunk of more rows would take in memory is what its writer asked for.
            if rows > CHUNK_ROWS_MAX {
                continue;
            }
            let decoded = extent.read(&metadata, chunk, &[place]).and_then(|s| s[0].decode_plain());
            match decoded {
                Ok(array) => assert_eq!(array.len(), rows),
                Err(e) => expected(e.kind()),
            }
        }
        if let Err(e) = extent.read_digests(&metadata, place) {
            expected(e.kind());
        }
    }
}

/// A log: objects one after the other, each a kind (`C` or `K`, one byte), its number (one), its
/// bytes (four), and its record.
///
/// What opens must be the same when it is written down as a whole and opened again.
pub fn catalog(input: &[u8]) {
    let store = MemoryStore::default();
    let mut rest = input;
    while let Some((&[kind, id], after)) = rest.split_first_chunk() {
        let Some((record, after)) = piece(after) else { break };
        let (kind, name) = match kind {
            b'K' => (FrameKind::Checkpoint, format!("log/{id:020}.checkpoint")),
            _ => (FrameKind::Commit, format!("log/{id:020}.commit")),
        };
        let Ok(object) = frame(kind, &Raw(record)) else { break };
        store.put_new(&name, &object).expect("memory");
        rest = after;
    }
    let open = || {
        let options = Options {
            cache_bytes_max: 1 << 20,
            create: false,
            now_ms: Arc::new(|| 1_000_000_000_000),
            seed: 0,
            ..Options::default()
        };
        Database::on(Arc::new(store.clone()), None, options)
    };
    let db = match open() {
        Ok(db) => db,
        // That there is none is the user's error.
        Err(e) if e.kind() == Kind::User => return,
        Err(e) => return expected(e.kind()),
    };
    let before = db.snapshot();
    for table in before.tables() {
        // Its extents are nowhere.
        if let Err(e) = table.contents() {
            expected(e.kind());
        }
        let _ = (table.rows(), table.deleted_rows(), table.stored_bytes());
    }
    let _ = db.history();
    if db.vacuum().is_ok() {
        drop(db);
        let after = open().expect("what was written can be read").snapshot();
        assert_eq!(shown(&before), shown(&after));
    }
}

fn shown(snapshot: &Snapshot) -> String {
    let mut text = format!("{} {:?}", snapshot.id, snapshot.properties);
    for (name, schema) in &snapshot.schemas {
        text += &format!("\n{name} {:?} {:?}", schema.views.keys(), schema.externals.keys());
        for table in schema.tables.values() {
            text += &format!(
                "\n{} {:?} {:?} {:?} {:?}",
                table.name,
                table.id,
                table.arrow_schema,
                table.cluster_by,
                table.extents.len()
            );
            for e in &table.extents {
                let deleted = e.deleted.as_ref().map_or(0, |d| d.rows());
                text += &format!(" {:?} - {deleted}", e.extent);
            }
        }
    }
    text
}

/// Of bytes made up, nothing else can be said.
fn expected(kind: Kind) {
    assert!(matches!(kind, Kind::Corrupt | Kind::Unsupported), "an error of kind {kind:?}");
}

/// Bytes behind their number (four bytes), and the rest.
fn piece(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Is written as it is.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
        tuple.end()
    }
}

#[cfg(test)]
mod tests;
