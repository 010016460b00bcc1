//! `COPY … FROM STDIN`: lines of text or CSV, or PostgreSQL's binary form, as batches of the
//! table's types. The client is read as fast as they are written.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, StringBuilder};
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::FormatOptions;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::StreamExt;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_engine::{ClientCopy, Ingest, text_values};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use super::connection::{Connection, Stop};
use super::copy_out::SIGNATURE;
use super::encode::Format;
use super::message::{Body, Message};
use super::{parameter, types};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Csv,
    Binary,
}

/// How rows are written.
#[derive(Clone, Debug)]
pub struct Layout {
    pub form: Form,
    pub header: bool,
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: String,
}

impl Layout {
    /// PostgreSQL's options, and its defaults for each form.
    pub fn new(copy: &ClientCopy) -> Result<Layout> {
        let option = |name: &str| copy.options.iter().find(|(n, _)| n == name).map(|(_, v)| v);
        let form = match option("format").and_then(|v| v.first()).map(|v| v.to_lowercase()) {
            None => Form::Text,
            Some(form) => match form.as_str() {
                "text" => Form::Text,
                "csv" => Form::Csv,
                "binary" => Form::Binary,
                other => {
                    return Err(Error::user(format!("COPY has no format {}", quoted(other)))
                        .code("22023")
                        .hint("text, csv and binary can be sent by a client"));
                }
            },
        };
        let csv = form == Form::Csv;
        let mut layout = Layout {
            form,
            header: false,
            delimiter: if csv { b',' } else { b'\t' },
            quote: b'"',
            escape: b'"',
            null: if csv { String::new() } else { "\\N".into() },
        };
        let mut escape = None;
        for (name, values) in &copy.options {
            let value = values.first().map(String::as_str);
            let byte =
                || match value.unwrap_or_default().as_bytes() {
                    [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(*byte),
                    b"\\t" => Ok(b'\t'),
                    _ => Err(Error::user(format!("{name} of COPY is one character of ASCII"))
                        .code("22023")),
                };
            match name.as_str() {
                "format" => {}
                "header" => {
                    let value = value.unwrap_or("true").to_lowercase();
                    layout.header = !matches!(value.as_str(), "false" | "off" | "0");
                }
                "delimiter" | "delim" | "sep" => layout.delimiter = byte()?,
                "quote" if csv => layout.quote = byte()?,
                "escape" if csv => escape = Some(byte()?),
                "null" | "nullstr" => layout.null = value.unwrap_or_default().into(),
                "encoding" => {
                    let value = value.unwrap_or_default();
                    if !value.replace('-', "").eq_ignore_ascii_case("utf8") {
                        return Err(Error::unsupported(format!("encoding {value:?} is not read"))
                            .hint("send UTF-8"));
                    }
                }
                "freeze" => {}
                _ => {
                    return Err(Error::user(format!("COPY has no option {}", quoted(name)))
                        .code("42601")
                        .hint(
                            "FORMAT, HEADER, DELIMITER, NULL, QUOTE, ESCAPE and ENCODING are those \
                             of STDIN and STDOUT",
                        ));
                }
            }
        }
        layout.escape = escape.unwrap_or(layout.quote);
        Ok(layout)
    }

    /// Appends value number `i` of a line, with the delimiter before it.
    pub fn value(&self, i: usize, value: Option<&[u8]>, line: &mut BytesMut) {
        if i > 0 {
            line.put_u8(self.delimiter);
        }
        match (value, self.form) {
            (None, _) => line.put_slice(self.null.as_bytes()),
            (Some(value), Form::Csv) => self.csv_value(value, line),
            (Some(value), _) => self.text_value(value, line),
        }
    }

    fn csv_value(&self, value: &[u8], line: &mut BytesMut) {
        let special = |b: &u8| [self.delimiter, self.quote, b'\n', b'\r'].contains(b);
        // A line of `\.` would be taken for the end.
        let plain = value != self.null.as_bytes() && value != b"\\." && !value.iter().any(special);
        if plain {
            return line.put_slice(value);
        }
        line.put_u8(self.quote);
        for byte in value {
            if *byte == self.quote || *byte == self.escape {
                line.put_u8(self.escape);
            }
            line.put_u8(*byte);
        }
        line.put_u8(self.quote);
    }

    fn text_value(&self, value: &[u8], line: &mut BytesMut) {
        for byte in value {
            let escaped = match byte {
                b'\\' => b'\\',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                8 => b'b',
                11 => b'v',
                12 => b'f',
                b if *b == self.delimiter => *b,
                b => {
                    line.put_u8(*b);
                    continue;
                }
            };
            line.put_u8(b'\\');
            line.put_u8(escaped);
        }
    }
}

/// A batch on its way to the table; `None` is the proper end, without which nothing is inserted.
type Item = Option<Result<RecordBatch>>;

/// Batches that wait for their writers.
const BATCHES_MAX: usize = 2;

impl Connection {
    /// Returns the command's tag.
    pub async fn copy_in(&mut self, copy: &ClientCopy) -> Result<String, Stop> {
        let layout = Layout::new(copy)?;
        let Some((schema, table)) = &copy.table else {
            return Err(Error::user("COPY … FROM takes a table, not a query").code("42601").into());
        };
        let session = self.session.clone();
        let asked = session.ingest_columns(schema.as_deref(), table, &copy.columns);
        let columns = self.watched(asked).await??;
        let (sender, receiver) = mpsc::channel::<Item>(BATCHES_MAX);
        let ingest = Ingest::append(schema.clone(), table.clone(), Arc::clone(&columns));
        let mut inserting = JoinSet::new();
        // Ends with this function, and so does what it runs.
        inserting.spawn(async move { session.ingest(ingest, until_end(receiver)).await });
        self.output.out.copy(b'G', layout.form == Form::Binary, columns.fields().len());
        self.flush().await?;
        let zone = self.session.time_zone();
        let mut reader = Reader::new(layout, columns, table.clone(), zone);
        let rows = loop {
            let message = tokio::select! {
                biased;
                // Before its end: it has failed.
                Some(inserted) = inserting.join_next() => break inserted,
                message = self.next() => message?,
            };
            let batches = match message {
                Message::CopyData(data) => reader.push(&data)?,
                Message::CopyDone => {
                    let last = reader.finish()?;
                    // If it does not listen any more, it says why.
                    if let Some(batch) = last {
                        let _ = sender.send(Some(Ok(batch))).await;
                    }
                    let _ = sender.send(None).await;
                    drop(sender);
                    let inserted = self.watched(inserting.join_next()).await?;
                    break inserted.ok_or_else(|| Error::internal("a COPY without an end"))?;
                }
                Message::CopyFail(why) => {
                    return Err(Error::cancelled(format!("the client gave up COPY: {why}")).into());
                }
                Message::Flush | Message::Sync => vec![],
                _ => {
                    return Err(Error::user("something else than its rows is sent amid COPY")
                        .code("08P01")
                        .into());
                }
            };
            for batch in batches {
                let _ = self.watched(sender.send(Some(Ok(batch)))).await?;
            }
        };
        match rows {
            Ok(rows) => Ok(format!("COPY {}", rows?)),
            Err(e) => Err(Error::internal(format!("COPY ended badly: {e}")).into()),
        }
    }
}

fn until_end(
    receiver: mpsc::Receiver<Item>,
) -> impl futures::Stream<Item = Result<RecordBatch>> + Send + 'static {
    let cut_off = || Error::cancelled("the client left amid COPY");
    let items = ReceiverStream::new(receiver)
        .chain(futures::stream::once(async move { Some(Err(cut_off())) }));
    items.take_while(|item| std::future::ready(item.is_some())).filter_map(std::future::ready)
}

/// Bytes of a client into batches.
struct Reader {
    layout: Layout,
    columns: SchemaRef,
    table: String,
    /// Of instants that name none.
    zone: String,
    /// What is not a whole row yet.
    rest: BytesMut,
    /// Of `rest` it is known that no row ends before.
    seen: usize,
    /// Amid a value in quotes at `seen`.
    in_quotes: bool,
    rows: Values,
    /// Of text, from 1; of the first row in `rows`.
    first_line: u64,
    line: u64,
    begun: bool,
    ended: bool,
}

/// Columns of the batch that is being made.
enum Values {
    /// Spelled out: parsed all at once.
    Text(Vec<StringBuilder>),
    /// One array for each value.
    Binary(Vec<Vec<ArrayRef>>),
}

impl Reader {
    fn new(layout: Layout, columns: SchemaRef, table: String, zone: String) -> Reader {
        let count = columns.fields().len();
        let rows = match layout.form {
            Form::Binary => Values::Binary(vec![vec![]; count]),
            _ => Values::Text((0..count).map(|_| StringBuilder::new()).collect()),
        };
        Reader {
            layout,
            columns,
            table,
            zone,
            rest: BytesMut::new(),
            seen: 0,
            in_quotes: false,
            rows,
            first_line: 1,
            line: 0,
            begun: false,
            ended: false,
        }
    }

    fn push(&mut self, data: &[u8]) -> Result<Vec<RecordBatch>> {
        let mut batches = vec![];
        if self.ended {
            return Ok(batches);
        }
        self.rest.put_slice(data);
        loop {
            let more = match self.layout.form {
                Form::Binary => self.tuple()?,
                _ => self.text_row()?,
            };
            if !more {
                return Ok(batches);
            }
            if self.count() >= BATCH_ROWS {
                batches.push(self.batch()?);
            }
        }
    }

    fn finish(&mut self) -> Result<Option<RecordBatch>> {
        if !self.ended && self.layout.form != Form::Binary {
            if self.in_quotes {
                return Err(self.broken("a value in quotes has no end", self.line + 1));
            }
            // The last line may lack its end.
            if !self.rest.is_empty() {
                self.rest.put_u8(b'\n');
                self.text_row()?;
            }
        } else if self.layout.form == Form::Binary {
            // The trailer may be missing, as PostgreSQL has it: COPY's own end is one, too.
            if !self.begun {
                return Err(self.broken("it does not begin like PostgreSQL's binary form", 1));
            }
            if !self.rest.is_empty() {
                let what = if self.ended { "data follows its end" } else { "it ends amid a row" };
                return Err(self.broken(what, self.line + 1));
            }
        }
        if self.count() == 0 { Ok(None) } else { self.batch().map(Some) }
    }

    fn count(&self) -> usize {
        match &self.rows {
            Values::Text(columns) => columns.first().map_or(0, arrow::array::ArrayBuilder::len),
            Values::Binary(columns) => columns.first().map_or(0, Vec::len),
        }
    }

    fn broken(&self, what: &str, line: u64) -> Error {
        let place = if self.layout.form == Form::Binary { "row" } else { "line" };
        Error::user(format!("COPY {}, {place} {line}: {what}", quoted(&self.table))).code("22P04")
    }

    /// Takes a line off the front; false if there is no whole one.
    fn text_row(&mut self) -> Result<bool> {
        let csv = self.layout.form == Form::Csv;
        let mut end = None;
        let mut i = self.seen;
        while i < self.rest.len() {
            let byte = self.rest[i];
            match byte {
                b'\n' if !self.in_quotes => {
                    end = Some(i);
                    break;
                }
                // A doubled quote closes and opens again. Another escape hides what follows it.
                b if csv && self.in_quotes && b == self.layout.escape && b != self.layout.quote => {
                    if i + 1 == self.rest.len() {
                        break;
                    }
                    i += 1;
                }
                b if csv && b == self.layout.quote => self.in_quotes = !self.in_quotes,
                b'\\' if !csv => {
                    if i + 1 == self.rest.len() {
                        break;
                    }
                    i += 1;
                }
                _ => {}
            }
            i += 1;
        }
        let Some(end) = end else {
            self.seen = i;
            return Ok(false);
        };
        self.seen = 0;
        let line = self.rest.split_to(end + 1);
        let line = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
        self.line += 1;
        if line == b"\\." {
            self.ended = true;
            self.rest.clear();
            return Ok(false);
        }
        if !std::mem::replace(&mut self.begun, true) && self.layout.header {
            self.first_line = self.line + 1;
            return Ok(true);
        }
        let fields = if csv { self.layout.csv_fields(line) } else { self.layout.text_fields(line) };
        let fields = fields.map_err(|what| self.broken(what, self.line))?;
        let wanted = self.columns.fields().len();
        if fields.len() != wanted {
            let what = format!("it has {} values, and the table takes {wanted}", fields.len());
            return Err(self.broken(&what, self.line));
        }
        let (table, line) = (&self.table, self.line);
        if let Values::Text(columns) = &mut self.rows {
            for (column, field) in columns.iter_mut().zip(fields) {
                let text = field.map(String::from_utf8).transpose().map_err(|_| {
                    Error::user(format!("COPY {}, line {line}: it is no UTF-8", quoted(table)))
                        .code("22021")
                })?;
                column.append_option(text);
            }
        }
        Ok(true)
    }

    /// Takes a tuple off the front; false if there is no whole one.
    fn tuple(&mut self) -> Result<bool> {
        if !self.begun {
            if self.rest.len() < SIGNATURE.len() {
                return Ok(false);
            }
            if self.rest[..11] != SIGNATURE[..11] {
                return Err(self.broken("it does not begin like PostgreSQL's binary form", 1));
            }
            // Flags tell of things that are not known here, and an extension may be skipped.
            let flags = (&self.rest[11..15]).get_u32();
            let extension = (&self.rest[15..19]).get_u32() as usize;
            if flags >> 16 != 0 {
                return Err(self.broken("it has unknown flags", 1));
            }
            if self.rest.len() < SIGNATURE.len() + extension {
                return Ok(false);
            }
            self.rest.advance(SIGNATURE.len() + extension);
            self.begun = true;
        }
        if self.ended || self.rest.len() < 2 {
            return Ok(false);
        }
        let count = (&self.rest[..2]).get_i16();
        if count == -1 {
            self.ended = true;
            self.rest.advance(2);
            return Ok(false);
        }
        let wanted = self.columns.fields().len();
        if usize::try_from(count) != Ok(wanted) {
            let what = format!("it has {count} values, and the table takes {wanted}");
            return Err(self.broken(&what, self.line + 1));
        }
        let mut at = 2;
        for _ in 0..wanted {
            let Some(length) = self.rest.get(at..at + 4) else { return Ok(false) };
            let length = (&length[..]).get_i32();
            if length < -1 {
                return Err(self.broken("a length is negative", self.line + 1));
            }
            at += 4 + length.max(0) as usize;
        }
        if self.rest.len() < at {
            return Ok(false);
        }
        self.line += 1;
        let mut body = Body(self.rest.split_to(at).freeze());
        body.i16()?;
        let (table, line, zone) = (&self.table, self.line, &self.zone);
        if let Values::Binary(columns) = &mut self.rows {
            for (field, column) in self.columns.fields().iter().zip(columns) {
                let value: Option<Bytes> = body.value()?;
                let oid = types::oid(field.data_type());
                let value = parameter::read(value, Format::Binary, oid, field.data_type(), zone)
                    .and_then(|value| fitted(value, field.data_type()));
                column.push(value.map_err(|e| {
                    e.context(format!(
                        "COPY {}, row {line}, column {}",
                        quoted(table),
                        field.name()
                    ))
                })?);
            }
        }
        Ok(true)
    }

    fn batch(&mut self) -> Result<RecordBatch> {
        let mut arrays = vec![];
        let columns = Arc::clone(&self.columns);
        match &mut self.rows {
            Values::Text(builders) => {
                let texts: Vec<StringArray> = builders.iter_mut().map(|b| b.finish()).collect();
                for (field, texts) in columns.fields().iter().zip(texts) {
                    let parsed =
                        parse(&texts, field.data_type(), &self.zone).map_err(|(row, e)| {
                            let line = self.first_line + row as u64;
                            e.context(format!(
                                "COPY {}, line {line}, column {}",
                                quoted(&self.table),
                                field.name()
                            ))
                        });
                    arrays.push(parsed?);
                }
            }
            Values::Binary(values) => {
                for values in values {
                    let parts: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
                    let array = concat(&parts)
                        .map_err(|e| Error::internal(format!("values of one column: {e}")))?;
                    arrays.push(array);
                    values.clear();
                }
            }
        }
        self.first_line = self.line + 1;
        RecordBatch::try_new(nullable(&columns), arrays)
            .map_err(|e| Error::internal(format!("a batch of COPY: {e}")))
    }
}

/// NULL in a column that has none is an error that the insert knows to word.
fn nullable(columns: &SchemaRef) -> SchemaRef {
    let fields = columns.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
    Arc::new(arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()))
}

/// A value as the column has it: numerics come with the digits that they have.
fn fitted(value: ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if value.data_type() == data_type {
        return Ok(value);
    }
    let options = CastOptions { safe: false, format_options: FormatOptions::new() };
    cast_with_options(&value, data_type, &options).map_err(|_| {
        Error::user(format!("the number does not fit {}", thalweg_engine::sql_type(data_type)))
            .code("22003")
    })
}

/// All texts of a column; an error with the number of the first that is no value.
fn parse(
    texts: &StringArray,
    data_type: &DataType,
    zone: &str,
) -> Result<ArrayRef, (usize, Error)> {
    if text_values::are_read(data_type) {
        return text_values::read(texts, data_type, zone);
    }
    // What Arrow spells as PostgreSQL does is cast at once.
    if data_type.is_integer() || data_type.is_string() {
        let options = CastOptions { safe: false, format_options: FormatOptions::new() };
        if let Ok(array) = cast_with_options(texts, data_type, &options) {
            return Ok(array);
        }
    }
    let mut values = vec![];
    for (row, text) in texts.iter().enumerate() {
        values.push(match text {
            Some(text) => parameter::parse(text, data_type, zone)
                .and_then(|value| fitted(value, data_type))
                .map_err(|e| (row, e))?,
            None => arrow::array::new_null_array(data_type, 1),
        });
    }
    let parts: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
    concat(&parts).map_err(|e| (0, Error::internal(format!("values of one column: {e}"))))
}

type Fields = std::result::Result<Vec<Option<Vec<u8>>>, &'static str>;

impl Layout {
    fn text_fields(&self, line: &[u8]) -> Fields {
        let mut fields = vec![];
        let mut field = vec![];
        let (mut start, mut i) = (0, 0);
        loop {
            match line.get(i) {
                Some(b'\\') => {
                    let (byte, length) = unescaped(&line[i + 1..]);
                    field.push(byte);
                    i += 1 + length;
                }
                Some(byte) if *byte != self.delimiter => {
                    field.push(*byte);
                    i += 1;
                }
                end => {
                    let is_null = &line[start..i] == self.null.as_bytes();
                    let value = std::mem::take(&mut field);
                    fields.push((!is_null).then_some(value));
                    if end.is_none() {
                        return Ok(fields);
                    }
                    i += 1;
                    start = i;
                }
            }
        }
    }

    fn csv_fields(&self, line: &[u8]) -> Fields {
        let mut fields = vec![];
        let mut field = vec![];
        let (mut quoted, mut in_quotes) = (false, false);
        let mut i = 0;
        loop {
            let byte = line.get(i).copied();
            match byte {
                Some(b) if in_quotes => {
                    let next = line.get(i + 1).copied();
                    let escapes = next.is_some_and(|n| n == self.quote || n == self.escape);
                    if b == self.escape && escapes {
                        field.extend(next);
                        i += 1;
                    } else if b == self.quote {
                        in_quotes = false;
                    } else {
                        field.push(b);
                    }
                }
                None if in_quotes => return Err("a value in quotes has no end"),
                Some(b) if b == self.quote => (quoted, in_quotes) = (true, true),
                Some(b) if b != self.delimiter => field.push(b),
                end => {
                    let value = std::mem::take(&mut field);
                    let is_null = !quoted && value == self.null.as_bytes();
                    fields.push((!is_null).then_some(value));
                    quoted = false;
                    if end.is_none() {
                        return Ok(fields);
                    }
                }
            }
            i += 1;
        }
    }
}

/// What a backslash and these bytes mean: the byte, and how many of them it takes.
fn unescaped(rest: &[u8]) -> (u8, usize) {
    let digits = |from: usize, most: usize, radix: u32| {
        let part = rest.get(from..).unwrap_or_default();
        let count = part.iter().take(most).take_while(|b| char::from(**b).is_digit(radix)).count();
        let text = std::str::from_utf8(&part[..count]).unwrap_or_default();
        (u32::from_str_radix(text, radix).unwrap_or_default() as u8, count)
    };
    match rest.first() {
        None => (b'\\', 0),
        Some(b'b') => (8, 1),
        Some(b'f') => (12, 1),
        Some(b'n') => (b'\n', 1),
        Some(b'r') => (b'\r', 1),
        Some(b't') => (b'\t', 1),
        Some(b'v') => (11, 1),
        Some(b'0'..=b'7') => digits(0, 3, 8),
        Some(b'x') if digits(1, 2, 16).1 > 0 => {
            let (byte, count) = digits(1, 2, 16);
            (byte, 1 + count)
        }
        Some(byte) => (*byte, 1),
    }
}
