//! Types that clients read: not all of them know Arrow's views, and what they would be sent of one
//! is all the buffers that it shares with others. Dictionaries and the like become their values.
//! Columns of other types are sent as they are, without a copy.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, Schema, SchemaRef};
use thalweg_base::Result;

use super::status::from_arrow;

/// Bytes of one column of strings in one batch: their offsets have 32 bits.
const TEXT_BYTES_MAX: u64 = 1 << 30;

/// Bytes of one message, unless it is one row: gRPC's clients take 4 MiB by default.
const MESSAGE_BYTES_MAX: usize = 3 << 20;

/// How batches of one schema are sent.
#[derive(Clone)]
pub struct Plain {
    schema: SchemaRef,
    changes: bool,
}

impl Plain {
    pub fn new(schema: &SchemaRef) -> Self {
        let fields: Vec<FieldRef> = schema.fields().iter().map(plain_field).collect();
        let changes = schema.fields().iter().zip(&fields).any(|(a, b)| a != b);
        let schema = match changes {
            true => Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())),
            false => Arc::clone(schema),
        };
        Plain { schema, changes }
    }

    /// Of what is sent.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// More than one if it is too large for one message.
    pub fn batches(&self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let mut parts = vec![];
        for batch in self.converted(batch)? {
            cut(batch, &mut parts)?;
        }
        Ok(parts)
    }

    /// More than one if its strings are too long for one.
    fn converted(&self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        if !self.changes {
            return Ok(vec![batch]);
        }
        let rows = batch.num_rows();
        if rows > 1 && batch.columns().iter().any(|c| text_bytes(c) > TEXT_BYTES_MAX) {
            let mut parts = self.converted(batch.slice(0, rows / 2))?;
            parts.extend(self.converted(batch.slice(rows / 2, rows - rows / 2))?);
            return Ok(parts);
        }
        let columns = batch.columns().iter().zip(self.schema.fields()).map(|(column, field)| {
            if column.data_type() == field.data_type() {
                return Ok(Arc::clone(column));
            }
            cast(column, field.data_type()).map_err(from_arrow)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        Ok(vec![batch.map_err(from_arrow)?])
    }
}

/// By what is really sent: a batch may be a slice of a much larger one.
fn cut(batch: RecordBatch, parts: &mut Vec<RecordBatch>) -> Result<()> {
    let rows = batch.num_rows();
    let bytes = batch.columns().iter().map(|c| c.to_data().get_slice_memory_size());
    let bytes = bytes.sum::<std::result::Result<usize, _>>().map_err(from_arrow)?;
    if bytes <= MESSAGE_BYTES_MAX || rows < 2 {
        parts.push(batch);
        return Ok(());
    }
    cut(batch.slice(0, rows / 2), parts)?;
    cut(batch.slice(rows / 2, rows - rows / 2), parts)
}

fn text_bytes(column: &ArrayRef) -> u64 {
    // The length of a view is in its lowest bits.
    let sum = |views: &[u128]| views.iter().map(|v| u64::from(*v as u32)).sum();
    match column.data_type() {
        DataType::Utf8View => sum(column.as_string_view().views()),
        DataType::BinaryView => sum(column.as_binary_view().views()),
        _ => 0,
    }
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let data_type = plain_type(field.data_type());
    if data_type == *field.data_type() {
        return Arc::clone(field);
    }
    let plain = Field::new(field.name(), data_type, field.is_nullable());
    Arc::new(plain.with_metadata(field.metadata().clone()))
}

/// What is sent for a type.
pub fn plain_type(data_type: &DataType) -> DataType {
    use DataType as T;
    match data_type {
        T::Utf8View => T::Utf8,
        T::BinaryView => T::Binary,
        T::Dictionary(_, values) => plain_type(values),
        T::RunEndEncoded(_, values) => plain_type(values.data_type()),
        T::Decimal32(precision, scale) | T::Decimal64(precision, scale) => {
            T::Decimal128(*precision, *scale)
        }
        T::Interval(IntervalUnit::DayTime | IntervalUnit::YearMonth) => {
            T::Interval(IntervalUnit::MonthDayNano)
        }
        T::List(item) | T::ListView(item) => T::List(plain_field(item)),
        T::LargeList(item) | T::LargeListView(item) => T::LargeList(plain_field(item)),
        T::FixedSizeList(item, n) => T::FixedSizeList(plain_field(item), *n),
        T::Struct(fields) => T::Struct(fields.iter().map(plain_field).collect()),
        T::Map(entries, sorted) => T::Map(plain_field(entries), *sorted),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        DictionaryArray, Int64Array, ListBuilder, StringArray, StringViewArray, StringViewBuilder,
        StructArray,
    };
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn numbers_are_sent_as_they_are() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None, Some("c")]));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        let sent = Plain::new(&batch.schema()).batches(batch.clone()).unwrap();
        assert_eq!(sent.len(), 1);
        assert!(Arc::ptr_eq(sent[0].column(0), batch.column(0)));
        let expected = StringArray::from(vec![Some("a"), None, Some("c")]);
        assert_eq!(sent[0].column(1).as_string::<i32>(), &expected);
    }

    #[test]
    fn what_is_nested_becomes_plain_too() {
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        lists.append_value([Some("a string that is not inlined"), None]);
        lists.append_null();
        let lists: ArrayRef = Arc::new(lists.finish());
        let codes: DictionaryArray<Int32Type> = vec!["x", "y"].into_iter().collect();
        let codes: ArrayRef = Arc::new(codes);
        let fields = vec![
            Field::new("l", lists.data_type().clone(), true),
            Field::new("d", codes.data_type().clone(), true),
        ];
        let nested: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![lists, codes], None));
        let batch = RecordBatch::try_from_iter([("s", nested)]).unwrap();
        let sent = Plain::new(&batch.schema()).batches(batch).unwrap();
        let sent = sent[0].column(0).as_struct();
        let list = sent.column(0).as_list::<i32>().value(0);
        let expected = StringArray::from(vec![Some("a string that is not inlined"), None]);
        assert_eq!(list.as_string::<i32>(), &expected);
        assert_eq!(sent.column(1).as_string::<i32>(), &StringArray::from(vec!["x", "y"]));
    }

    #[test]
    fn messages_are_no_larger_than_clients_take() {
        let rows = MESSAGE_BYTES_MAX as i64 / 8 * 5 / 2;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let sent = Plain::new(&batch.schema()).batches(batch.clone()).unwrap();
        assert_eq!(sent.len(), 4);
        assert_eq!(sent.iter().map(RecordBatch::num_rows).sum::<usize>() as i64, rows);
        // A small slice of it is one message.
        let slice = batch.slice(1000, 1000);
        assert_eq!(Plain::new(&batch.schema()).batches(slice).unwrap().len(), 1);
    }

    #[test]
    fn batches_without_columns_keep_their_rows() {
        let options = RecordBatchOptions::new().with_row_count(Some(7));
        let schema = Arc::new(Schema::empty());
        let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
        let sent = Plain::new(&batch.schema()).batches(batch).unwrap();
        assert_eq!(sent[0].num_rows(), 7);
    }
}
