//! What decoders of Parquet and Arrow files leave unseen: it would give wrong values, and no error.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use arrow::array::{Array, ArrayRef, RecordBatch, make_array};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use arrow::ipc::{Endianness, root_as_message};
use thalweg_base::{Error, Result};

use super::input::{Format, cannot, damaged, guarded, shown};
use super::{arrow_ipc, parquet};

/// Bytes that a schema may have.
const SCHEMA_BYTES_MAX: u32 = 64 << 20;

/// The names of a file's columns, as it declares them.
///
/// # Errors
/// Its decoder would read it wrongly, or cannot read it.
pub fn declared_names(path: &Path, format: &Format) -> Result<Vec<String>> {
    match format {
        Format::Parquet => {
            let file = parquet::open(path)?;
            let read = || ParquetMetaDataReader::new().parse_and_finish(&file);
            let metadata = guarded(path, read)?;
            check_rows(path, &metadata)?;
            let columns = metadata.file_metadata().schema().get_fields();
            Ok(columns.iter().map(|column| column.name().to_owned()).collect())
        }
        Format::Arrow => {
            let schema = arrow_ipc::schema(path)?;
            Ok(schema.fields().iter().map(|field| field.name().clone()).collect())
        }
        Format::Csv(_) | Format::Json(_) => Ok(Vec::new()),
    }
}

/// Numbers of a stream in big-endian order would be read backwards.
pub(super) fn check_byte_order(path: &Path, file: &mut impl Read) -> Result<()> {
    let mut word = || -> std::io::Result<u32> {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes).map(|()| u32::from_le_bytes(bytes))
    };
    // What is cut short or no stream at all is told by the decoder. The mark before the length is
    // younger than the format.
    let Ok(first) = word() else { return Ok(()) };
    let length = if first == u32::MAX { word().unwrap_or(0) } else { first };
    if length == 0 || length > SCHEMA_BYTES_MAX {
        return Ok(());
    }
    let mut bytes = Vec::new();
    file.take(u64::from(length)).read_to_end(&mut bytes).map_err(|e| cannot("read", path, e))?;
    let schema = root_as_message(&bytes).ok().and_then(|message| message.header_as_schema());
    match schema.map(|schema| schema.endianness()) {
        Some(Endianness::Big) => {
            Err(Error::unsupported(format!("{} is a big-endian Arrow stream", shown(path)))
                .hint("write it again in little-endian order; pyarrow reads and writes it"))
        }
        _ => Ok(()),
    }
}

/// A footer that counts other rows than its row groups lies to one of its readers.
pub(super) fn check_rows(path: &Path, metadata: &ParquetMetaData) -> Result<()> {
    let said = metadata.file_metadata().num_rows();
    let there: i64 = metadata.row_groups().iter().map(|group| group.num_rows()).sum();
    match said == there {
        true => Ok(()),
        false => {
            Err(damaged(path, &format!("its footer says {said} rows, its row groups {there}")))
        }
    }
}

/// The batch with NULLs of dictionaries in their keys, where casts look for them.
pub fn with_null_keys(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    if !batch.schema_ref().fields().iter().any(|field| has_dictionary(field.data_type())) {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().map(null_keys).collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(batch.schema(), columns)
}

fn has_dictionary(data_type: &DataType) -> bool {
    let inner = |field: &Arc<Field>| has_dictionary(field.data_type());
    match data_type {
        DataType::Dictionary(..) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => inner(item),
        DataType::Struct(fields) => fields.iter().any(inner),
        _ => false,
    }
}

fn null_keys(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !has_dictionary(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    let data = array.to_data();
    let children = data.child_data().iter().map(|child| {
        let child = make_array(child.clone());
        null_keys(&child).map(|child| child.to_data())
    });
    let children = children.collect::<Result<Vec<_>, _>>()?;
    let nulls = match array.data_type() {
        DataType::Dictionary(..) => array.logical_nulls(),
        _ => array.nulls().cloned(),
    };
    let data =
        data.into_builder().child_data(children).null_bit_buffer(None).nulls(nulls).build()?;
    Ok(make_array(data))
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int8Array, ListArray, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::compute::cast;

    use super::*;

    #[test]
    fn a_null_in_a_dictionary_stays_one() {
        let keys = Int8Array::from(vec![Some(0), Some(1), None, Some(0), Some(1)]);
        let values = StringArray::from(vec![None, Some("a")]);
        let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(values)));
        let shown = |array: &ArrayRef| {
            let texts = cast(array, &DataType::Utf8View).unwrap();
            let texts = arrow::array::AsArray::as_string_view(&texts).clone();
            texts.iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>()
        };
        let a = || Some("a".to_owned());
        assert_eq!(shown(&null_keys(&dictionary).unwrap()), [None, a(), None, None, a()]);
        assert_eq!(shown(&null_keys(&dictionary.slice(1, 3)).unwrap()), [a(), None, None]);

        let item = Arc::new(Field::new("item", dictionary.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 3]);
        let list: ArrayRef = Arc::new(ListArray::new(item, offsets, dictionary, None));
        let list = null_keys(&list).unwrap();
        let items = &arrow::array::AsArray::as_list::<i32>(&list).value(2);
        assert_eq!(shown(items), [None, None, a()]);
    }
}
