//! Values into columns of Arrow.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder,
    Float64Builder, Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder,
    ListArray, RecordBatch, RecordBatchOptions, StringViewBuilder, Time64NanosecondBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, IntervalUnit, SchemaRef, TimeUnit};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

/// Bytes of values after which a batch is given, however few rows it has.
const BATCH_BYTES: usize = 4 << 20;

/// How a column is read, and what its values are here.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    Boolean,
    SmallInt,
    Int,
    BigInt,
    Real,
    Double,
    /// Digits, and those behind the point.
    Numeric(u8, i8),
    Text,
    /// What the other database writes the value as.
    AsText,
    Bytes,
    Date,
    Time,
    Timestamp,
    Instant,
    Interval,
    List(Box<Read>),
}

impl Read {
    pub fn data_type(&self) -> DataType {
        match self {
            Read::Boolean => DataType::Boolean,
            Read::SmallInt => DataType::Int16,
            Read::Int => DataType::Int32,
            Read::BigInt => DataType::Int64,
            Read::Real => DataType::Float32,
            Read::Double => DataType::Float64,
            Read::Numeric(digits, scale) => DataType::Decimal128(*digits, *scale),
            Read::Text | Read::AsText => DataType::Utf8View,
            Read::Bytes => DataType::Binary,
            Read::Date => DataType::Date32,
            Read::Time => DataType::Time64(TimeUnit::Nanosecond),
            Read::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Read::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Read::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Read::List(item) => {
                DataType::List(Arc::new(Field::new_list_field(item.data_type(), true)))
            }
        }
    }
}

/// The values of one column of a batch that is being filled.
pub enum Cells {
    Boolean(BooleanBuilder),
    SmallInt(Int16Builder),
    Int(Int32Builder),
    BigInt(Int64Builder),
    Real(Float32Builder),
    Double(Float64Builder),
    Numeric(Decimal128Builder),
    Text(StringViewBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64NanosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    List(Lists),
}

/// Lists: their items, how many each has, and which of them are there.
pub struct Lists {
    pub items: Box<Cells>,
    lengths: Vec<usize>,
    present: Vec<bool>,
}

impl Lists {
    /// After the items of one more.
    pub fn end(&mut self, items: usize) {
        self.lengths.push(items);
        self.present.push(true);
    }
}

/// One value; the variants are those of [`Cells`].
#[derive(Debug)]
pub enum Cell<'a> {
    Null,
    Boolean(bool),
    SmallInt(i16),
    Int(i32),
    BigInt(i64),
    Real(f32),
    Double(f64),
    Numeric(i128),
    Text(&'a str),
    Bytes(&'a [u8]),
    Date(i32),
    Time(i64),
    Timestamp(i64),
    Interval(IntervalMonthDayNano),
}

impl Cells {
    pub fn new(read: &Read) -> Cells {
        match read {
            Read::Boolean => Cells::Boolean(BooleanBuilder::new()),
            Read::SmallInt => Cells::SmallInt(Int16Builder::new()),
            Read::Int => Cells::Int(Int32Builder::new()),
            Read::BigInt => Cells::BigInt(Int64Builder::new()),
            Read::Real => Cells::Real(Float32Builder::new()),
            Read::Double => Cells::Double(Float64Builder::new()),
            Read::Numeric(..) => {
                Cells::Numeric(Decimal128Builder::new().with_data_type(read.data_type()))
            }
            Read::Text | Read::AsText => Cells::Text(StringViewBuilder::new()),
            Read::Bytes => Cells::Bytes(BinaryBuilder::new()),
            Read::Date => Cells::Date(Date32Builder::new()),
            Read::Time => Cells::Time(Time64NanosecondBuilder::new()),
            Read::Timestamp => Cells::Timestamp(TimestampMicrosecondBuilder::new()),
            Read::Instant => Cells::Timestamp(
                TimestampMicrosecondBuilder::new().with_data_type(read.data_type()),
            ),
            Read::Interval => Cells::Interval(IntervalMonthDayNanoBuilder::new()),
            Read::List(item) => Cells::List(Lists {
                items: Box::new(Cells::new(item)),
                lengths: vec![],
                present: vec![],
            }),
        }
    }

    /// # Errors
    /// The value is of another type than the column, which is a mistake of ours.
    pub fn push(&mut self, cell: Cell<'_>) -> Result<()> {
        match (self, cell) {
            (Cells::Boolean(b), Cell::Boolean(v)) => b.append_value(v),
            (Cells::Boolean(b), Cell::Null) => b.append_null(),
            (Cells::SmallInt(b), Cell::SmallInt(v)) => b.append_value(v),
            (Cells::SmallInt(b), Cell::Null) => b.append_null(),
            (Cells::Int(b), Cell::Int(v)) => b.append_value(v),
            (Cells::Int(b), Cell::Null) => b.append_null(),
            (Cells::BigInt(b), Cell::BigInt(v)) => b.append_value(v),
            (Cells::BigInt(b), Cell::Null) => b.append_null(),
            (Cells::Real(b), Cell::Real(v)) => b.append_value(v),
            (Cells::Real(b), Cell::Null) => b.append_null(),
            (Cells::Double(b), Cell::Double(v)) => b.append_value(v),
            (Cells::Double(b), Cell::Null) => b.append_null(),
            (Cells::Numeric(b), Cell::Numeric(v)) => b.append_value(v),
            (Cells::Numeric(b), Cell::Null) => b.append_null(),
            (Cells::Text(b), Cell::Text(v)) => b.append_value(v),
            (Cells::Text(b), Cell::Null) => b.append_null(),
            (Cells::Bytes(b), Cell::Bytes(v)) => b.append_value(v),
            (Cells::Bytes(b), Cell::Null) => b.append_null(),
            (Cells::Date(b), Cell::Date(v)) => b.append_value(v),
            (Cells::Date(b), Cell::Null) => b.append_null(),
            (Cells::Time(b), Cell::Time(v)) => b.append_value(v),
            (Cells::Time(b), Cell::Null) => b.append_null(),
            (Cells::Timestamp(b), Cell::Timestamp(v)) => b.append_value(v),
            (Cells::Timestamp(b), Cell::Null) => b.append_null(),
            (Cells::Interval(b), Cell::Interval(v)) => b.append_value(v),
            (Cells::Interval(b), Cell::Null) => b.append_null(),
            (Cells::List(lists), Cell::Null) => {
                lists.lengths.push(0);
                lists.present.push(false);
            }
            (_, cell) => {
                let message = format!("a column is filled with {cell:?}, which is of another type");
                return Err(Error::internal(message));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        Ok(match self {
            Cells::Boolean(b) => Arc::new(b.finish()),
            Cells::SmallInt(b) => Arc::new(b.finish()),
            Cells::Int(b) => Arc::new(b.finish()),
            Cells::BigInt(b) => Arc::new(b.finish()),
            Cells::Real(b) => Arc::new(b.finish()),
            Cells::Double(b) => Arc::new(b.finish()),
            Cells::Numeric(b) => Arc::new(b.finish()),
            Cells::Text(b) => Arc::new(b.finish()),
            Cells::Bytes(b) => Arc::new(b.finish()),
            Cells::Date(b) => Arc::new(b.finish()),
            Cells::Time(b) => Arc::new(b.finish()),
            Cells::Timestamp(b) => Arc::new(b.finish()),
            Cells::Interval(b) => Arc::new(b.finish()),
            Cells::List(lists) => {
                let items = lists.items.finish()?;
                let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut lists.lengths));
                let present = NullBuffer::from(std::mem::take(&mut lists.present));
                let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
                let lists = ListArray::try_new(field, offsets, items, Some(present));
                Arc::new(lists.map_err(|e| Error::internal(e.to_string()))?)
            }
        })
    }
}

/// Rows on their way into batches.
pub struct Rows {
    schema: SchemaRef,
    pub columns: Vec<Cells>,
    rows: usize,
    bytes: usize,
}

impl Rows {
    /// `schema` has the columns that `reads` are of.
    pub fn new<'r>(schema: SchemaRef, reads: impl Iterator<Item = &'r Read>) -> Self {
        Rows { schema, columns: reads.map(Cells::new).collect(), rows: 0, bytes: 0 }
    }

    /// After the values of one more row, which have about so many bytes. Whether the batch is full.
    pub fn end_row(&mut self, bytes: usize) -> bool {
        self.rows += 1;
        self.bytes += bytes;
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// # Errors
    /// The columns do not fit together, which is a mistake of ours.
    pub fn batch(&mut self) -> Result<RecordBatch> {
        let columns = self.columns.iter_mut().map(Cells::finish).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| Error::internal(format!("a batch of another database: {e}")))
    }
}
