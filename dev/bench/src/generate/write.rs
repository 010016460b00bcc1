//! Makes the parts of all tables in parallel, and writes each table's parts in their order.
//!
//! ```text
//! jobs   region.0 nation.0 … lineitem.0 lineitem.1 lineitem.2 …     handed out in this order
//!           │                    │          │          │
//! threads   make, encode         make, encode …                     any number at once
//!           │                    │          │          │
//! files     region.csv           lineitem.csv  ← 0, 1, 2 …          a part waits for its turn
//! ```
//!
//! Invariant: the part a file waits for is in the hands of a thread that waits for nobody,
//! because parts are handed out in order. So nothing deadlocks, and at most
//! `threads` parts wait.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use arrow::array::{Array, AsArray, RecordBatch, StringViewArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit,
    TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use parking_lot::{Condvar, Mutex};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use thalweg_base::{Error, Result, text};

use super::{Batches, FileFormat, Progress, Source, TableEntry};

pub(super) fn write(
    sources: &[Source],
    format: FileFormat,
    folder: &Path,
    threads: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<TableEntry>> {
    let outputs =
        sources.iter().map(|s| Output::create(s, format, folder)).collect::<Result<Vec<_>>>()?;
    let jobs: Vec<(&Output, usize)> =
        outputs.iter().flat_map(|o| (0..o.source.parts).map(move |part| (o, part))).collect();
    let run = Run {
        outputs: &outputs,
        threads,
        progress,
        rows_expected: sources.iter().map(|s| s.rows_expected).sum(),
        rows: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        error: Mutex::new(None),
    };
    let next_job = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while !run.failed.load(Relaxed)
                    && let Some((output, part)) = jobs.get(next_job.fetch_add(1, Relaxed))
                {
                    run.work(output, *part);
                }
            });
        }
    });
    match run.error.into_inner() {
        Some(error) => Err(error),
        None => outputs.into_iter().map(Output::finish).collect(),
    }
}

struct Run<'a> {
    outputs: &'a [Output<'a>],
    threads: usize,
    progress: &'a (dyn Fn(Progress) + Sync),
    rows_expected: u64,
    rows: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicBool,
    /// The first; those after it are mostly its echoes.
    error: Mutex<Option<Error>>,
}

impl Run<'_> {
    fn work(&self, output: &Output, part: usize) {
        // The TPC generators assert what they assume. A broken assumption must not take the
        // process with it.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let encoded = output.encode(part)?;
            self.hand_in(output, part, encoded)
        }));
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => Error::internal(format!(
                "generating table {} failed: {}",
                output.source.name,
                text::of_panic(panic.as_ref()).unwrap_or("it panicked")
            )),
        };
        self.error.lock().get_or_insert(error);
        self.failed.store(true, Relaxed);
        for output in self.outputs {
            // Under the lock, or a thread between its look at `failed` and its wait sleeps on.
            let _turn = output.turn.lock();
            output.moved.notify_all();
        }
    }

    /// Writes the part, and those that waited for it, when its turn has come; else leaves it
    /// for the thread that brings the missing one.
    fn hand_in(&self, output: &Output, part: usize, encoded: Encoded) -> Result<()> {
        let mut turn = output.turn.lock();
        while part >= turn.next + self.threads {
            if self.failed.load(Relaxed) {
                return Ok(());
            }
            output.moved.wait(&mut turn);
        }
        turn.waiting.insert(part, encoded);
        let mut rows = 0;
        let mut bytes = 0;
        loop {
            let next = turn.next;
            let Some(encoded) = turn.waiting.remove(&next) else { break };
            rows += encoded.rows;
            bytes += turn.sink.write(encoded).map_err(|e| refused(&output.path, e))?;
            turn.next += 1;
        }
        turn.rows += rows;
        drop(turn);
        output.moved.notify_all();
        (self.progress)(Progress {
            table: output.source.name,
            rows: self.rows.fetch_add(rows, Relaxed) + rows,
            rows_expected: self.rows_expected,
            bytes: self.bytes.fetch_add(bytes, Relaxed) + bytes,
        });
        Ok(())
    }
}

/// A table's file, and who may write to it next.
struct Output<'a> {
    source: &'a Source,
    path: PathBuf,
    encoder: Encoder,
    turn: Mutex<Turn>,
    moved: Condvar,
}

struct Turn {
    /// The part the file ends before.
    next: usize,
    waiting: BTreeMap<usize, Encoded>,
    sink: Sink,
    rows: u64,
}

enum Encoder {
    Csv,
    Parquet(ArrowRowGroupWriterFactory),
}

struct Encoded {
    rows: u64,
    content: Content,
}

enum Content {
    Csv(Vec<u8>),
    RowGroup(Vec<ArrowColumnChunk>),
}

enum Sink {
    Csv(File),
    Parquet(SerializedFileWriter<File>),
}

impl<'a> Output<'a> {
    fn create(source: &'a Source, format: FileFormat, folder: &Path) -> Result<Output<'a>> {
        let path = folder.join(format!("{}.{}", source.name, format.extension()));
        let mut file = File::create(&path).map_err(|e| refused(&path, e))?;
        let (encoder, sink) = match format {
            FileFormat::Csv => {
                file.write_all(&header(&source.schema)).map_err(|e| refused(&path, e))?;
                (Encoder::Csv, Sink::Csv(file))
            }
            FileFormat::Parquet => {
                let properties =
                    WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let (writer, factory) =
                    ArrowWriter::try_new(file, source.schema.clone(), Some(properties))
                        .and_then(ArrowWriter::into_serialized_writer)
                        .map_err(|e| refused(&path, io_error(e)))?;
                (Encoder::Parquet(factory), Sink::Parquet(writer))
            }
        };
        let turn = Turn { next: 0, waiting: BTreeMap::new(), sink, rows: 0 };
        Ok(Output { source, path, encoder, turn: Mutex::new(turn), moved: Condvar::new() })
    }

    fn encode(&self, part: usize) -> Result<Encoded> {
        let batches = (self.source.part)(part);
        let failed = |e: String| {
            Error::internal(format!("generating table {} failed: {e}", self.source.name))
        };
        match &self.encoder {
            Encoder::Csv => encode_csv(batches).map_err(|e| failed(e.to_string())),
            Encoder::Parquet(factory) => encode_row_group(batches, factory, part, self.source)
                .map_err(|e| failed(e.to_string())),
        }
    }

    fn finish(self) -> Result<TableEntry> {
        let turn = self.turn.into_inner();
        let file = match turn.sink {
            Sink::Csv(file) => file,
            Sink::Parquet(writer) => {
                writer.into_inner().map_err(|e| refused(&self.path, io_error(e)))?
            }
        };
        let bytes = file.metadata().map_err(|e| refused(&self.path, e))?.len();
        let name = self.source.name;
        let file = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(TableEntry { name: name.into(), file, rows: turn.rows, bytes })
    }
}

impl Sink {
    fn write(&mut self, encoded: Encoded) -> io::Result<u64> {
        match (self, encoded.content) {
            (Sink::Csv(file), Content::Csv(text)) => {
                file.write_all(&text)?;
                Ok(text.len() as u64)
            }
            (Sink::Parquet(writer), Content::RowGroup(chunks)) => {
                let before = writer.bytes_written();
                let append = || {
                    let mut row_group = writer.next_row_group()?;
                    for chunk in chunks {
                        chunk.append_to_row_group(&mut row_group)?;
                    }
                    row_group.close().map(drop)
                };
                append().map_err(io_error)?;
                Ok((writer.bytes_written() - before) as u64)
            }
            _ => unreachable!("a file's encoder and sink are made together"),
        }
    }
}

fn encode_row_group(
    batches: Batches,
    factory: &ArrowRowGroupWriterFactory,
    part: usize,
    source: &Source,
) -> Result<Encoded, ParquetError> {
    let mut writers = factory.create_column_writers(part)?;
    let mut rows = 0;
    for batch in batches {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        // Without nested types a column has exactly one leaf, hence one writer.
        for ((field, column), writer) in
            source.schema.fields().iter().zip(batch.columns()).zip(&mut writers)
        {
            for leaf in compute_leaves(field, column)? {
                writer.write(&leaf)?;
            }
        }
    }
    let chunks = writers.into_iter().map(|w| w.close()).collect::<Result<Vec<_>, _>>()?;
    Ok(Encoded { rows, content: Content::RowGroup(chunks) })
}

fn header(schema: &Schema) -> Vec<u8> {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let mut line = names.join(",").into_bytes();
    line.push(b'\n');
    line
}

fn encode_csv(batches: Batches) -> Result<Encoded, ArrowError> {
    let mut text = Vec::new();
    let mut rows = 0;
    for batch in batches {
        let batch = batch?;
        put_batch(&mut text, &batch)?;
        rows += batch.num_rows() as u64;
    }
    Ok(Encoded { rows, content: Content::Csv(text) })
}

/// A column of a batch, downcast once per batch instead of once per value.
struct Column<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

enum Values<'a> {
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    /// Days since 1970-01-01.
    Date(&'a [i32]),
    /// Microseconds since 1970-01-01 00:00:00.
    Timestamp(&'a [i64]),
    Decimal {
        unscaled: &'a [i128],
        scale: u32,
    },
    Text(&'a StringViewArray),
}

impl<'a> Column<'a> {
    fn of(array: &'a dyn Array) -> Result<Column<'a>, ArrowError> {
        let values = match array.data_type() {
            DataType::Int16 => Values::Int16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => Values::Int32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>().values()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                Values::Timestamp(array.as_primitive::<TimestampMicrosecondType>().values())
            }
            DataType::Decimal128(_, scale @ 0..) => Values::Decimal {
                unscaled: array.as_primitive::<Decimal128Type>().values(),
                scale: *scale as u32,
            },
            DataType::Utf8View => Values::Text(array.as_string_view()),
            other => {
                return Err(ArrowError::NotYetImplemented(format!("{other} as generated CSV")));
            }
        };
        Ok(Column { nulls: array.nulls().filter(|n| n.null_count() > 0), values })
    }

    fn put(&self, out: &mut Vec<u8>, row: usize) {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return;
        }
        match &self.values {
            Values::Int16(values) => put_int(out, i64::from(values[row])),
            Values::Int32(values) => put_int(out, i64::from(values[row])),
            Values::Int64(values) => put_int(out, values[row]),
            Values::Date(values) => put_date(out, values[row]),
            Values::Timestamp(values) => put_timestamp(out, values[row]),
            Values::Decimal { unscaled, scale } => put_decimal(out, unscaled[row], *scale),
            Values::Text(values) => put_text(out, values.value(row)),
        }
    }
}

fn put_batch(out: &mut Vec<u8>, batch: &RecordBatch) -> Result<(), ArrowError> {
    let columns =
        batch.columns().iter().map(|c| Column::of(c.as_ref())).collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        for column in &columns {
            column.put(out, row);
            out.push(b',');
        }
        // Every table has a column, so the last byte is the comma after the last of them.
        if let Some(last) = out.last_mut() {
            *last = b'\n';
        }
    }
    Ok(())
}

fn put_int(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    put_digits(out, value.unsigned_abs(), 1);
}

/// Decimal digits, padded with zeros to `width` (at most 20).
fn put_digits(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    while value > 0 {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits[start.min(digits.len() - width)..]);
}

fn put_decimal(out: &mut Vec<u8>, unscaled: i128, scale: u32) {
    if unscaled < 0 {
        out.push(b'-');
    }
    // The widest decimal of the benchmarks has 15 digits.
    let magnitude = unscaled.unsigned_abs() as u64;
    let unit = 10u64.pow(scale);
    put_digits(out, magnitude / unit, 1);
    if scale > 0 {
        out.push(b'.');
        put_digits(out, magnitude % unit, scale as usize);
    }
}

fn put_date(out: &mut Vec<u8>, days: i32) {
    let (year, month, day) = civil(days);
    put_digits(out, u64::from(year.unsigned_abs()), 4);
    out.push(b'-');
    put_digits(out, u64::from(month), 2);
    out.push(b'-');
    put_digits(out, u64::from(day), 2);
}

/// As 2013-07-01 23:59:59: no benchmark has fractions of a second.
fn put_timestamp(out: &mut Vec<u8>, microseconds: i64) {
    const DAY_SECONDS: i64 = 86_400;
    let seconds = microseconds.div_euclid(1_000_000);
    put_date(out, seconds.div_euclid(DAY_SECONDS) as i32);
    let second = seconds.rem_euclid(DAY_SECONDS).unsigned_abs();
    for (separator, part) in [(b' ', second / 3600), (b':', second / 60 % 60), (b':', second % 60)]
    {
        out.push(separator);
        put_digits(out, part, 2);
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar (Hinnant,
/// "chrono-compatible low-level date algorithms": the year begins in March, so that the leap
/// day comes last).
pub(super) fn civil(days: i32) -> (i32, u32, u32) {
    const DAYS_PER_ERA: i32 = 146_097;
    const DAYS_TO_0000_03_01: i32 = 719_468;
    let shifted = days + DAYS_TO_0000_03_01;
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i32::from(month <= 2), month as u32, day as u32)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let special = |byte: u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !text.is_empty() && !text.bytes().any(special) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// The error for a file or folder that the operating system refuses to write.
pub(super) fn refused(path: &Path, e: io::Error) -> Error {
    let hint = match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(
            "nothing was kept; free some space, choose a folder on a larger disk, or a smaller \
             scale factor (1 is about 1 GB as CSV)",
        ),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some("choose a folder that you may write to")
        }
        _ => None,
    };
    let error = Error::io(format!("cannot write {}", path.display()), e);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The operating system's error inside one of Parquet's, so that a full disk is told as one.
fn io_error(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(put: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_plain() {
        assert_eq!(text(|o| put_int(o, 0)), "0");
        assert_eq!(text(|o| put_int(o, -120)), "-120");
        assert_eq!(text(|o| put_int(o, i64::MIN)), i64::MIN.to_string());
        assert_eq!(text(|o| put_int(o, i64::MAX)), i64::MAX.to_string());
        assert_eq!(text(|o| put_decimal(o, 0, 2)), "0.00");
        assert_eq!(text(|o| put_decimal(o, -5, 2)), "-0.05");
        assert_eq!(text(|o| put_decimal(o, 123_456, 2)), "1234.56");
        assert_eq!(text(|o| put_decimal(o, 7, 0)), "7");
    }

    #[test]
    fn dates_follow_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (8035, "1992-01-01"),
            (8094, "1992-02-29"),
            (8095, "1992-03-01"),
            (10_591, "1998-12-31"),
            (-25_508, "1900-03-01"),
            (-25_509, "1900-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(text(|o| put_date(o, days)), expected, "day {days}");
        }
    }

    #[test]
    fn timestamps_have_whole_seconds() {
        assert_eq!(text(|o| put_timestamp(o, 0)), "1970-01-01 00:00:00");
        assert_eq!(text(|o| put_timestamp(o, 1_372_723_199_000_000)), "2013-07-01 23:59:59");
        assert_eq!(text(|o| put_timestamp(o, -1_000_000)), "1969-12-31 23:59:59");
    }

    #[test]
    fn text_is_quoted_only_where_needed() {
        assert_eq!(text(|o| put_text(o, "MFGR#1 ")), "MFGR#1 ");
        assert_eq!(text(|o| put_text(o, "")), "\"\"");
        assert_eq!(text(|o| put_text(o, "a,b")), "\"a,b\"");
        assert_eq!(text(|o| put_text(o, "5\" x")), "\"5\"\" x\"");
        assert_eq!(text(|o| put_text(o, "a\nb")), "\"a\nb\"");
    }
}
