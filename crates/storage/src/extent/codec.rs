//! The only place that knows Vortex arrays: Arrow in and compressed bytes out, and back.
//!
//! Vortex checks what it decodes with assertions as well as with errors. A panic there must not
//! take the process down with it, so both directions run under `quiet::caught`; nothing of ours is
//! left half-changed, as they only read their input.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Decimal64Array, PrimitiveArray, UInt8Array};
use arrow::datatypes::{
    DataType, Field, Int8Type, Int16Type, Int32Type, Int64Type, Schema as ArrowSchema, TimeUnit,
};
use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result, quiet, text};
use vortex::VortexSessionDefault;
use vortex::array::arrays::decimal::DecimalArrayExt;
use vortex::array::arrays::dict::DictArraySlotsExt;
use vortex::array::arrays::extension::ExtensionArrayExt;
use vortex::array::arrays::masked::{MaskedArrayExt, MaskedArraySlotsExt};
use vortex::array::arrays::{
    Constant, ConstantArray, DecimalArray, Dict, Extension, ExtensionArray, Masked,
};
use vortex::array::expr::stats::Stat;
use vortex::array::serde::{SerializeOptions, SerializedArray};
use vortex::array::{ArrayContext, ArrayId, ExecutionCtx, IntoArray, VortexSessionExecute};
use vortex::arrow::{ArrowSessionExt, to_arrow_null_buffer};
use vortex::buffer::{Alignment, ByteBuffer};
use vortex::dtype::{DType, DecimalType, FieldNames, Nullability, PType, StructFields};
use vortex::error::{VortexResult, vortex_err};
use vortex::file::{Footer, SegmentSpec};
use vortex::layout::layouts::chunked::ChunkedLayout;
use vortex::layout::layouts::flat::FlatLayout;
use vortex::layout::layouts::struct_::StructLayout;
use vortex::layout::segments::SegmentId;
use vortex::layout::{LayoutRef, layout_children};
use vortex::session::VortexSession;
use vortex::session::registry::ReadContext;

use super::intervals;
use super::packed;
use super::schemes::Compressors;
use crate::encoded;
use crate::floats;
use crate::location::Location;
use crate::store::ALIGNMENT;

/// One for the process: it holds registries only, and no thread.
static SESSION: LazyLock<VortexSession> =
    LazyLock::new(<VortexSession as VortexSessionDefault>::default);
static COMPRESSORS: LazyLock<Compressors> = LazyLock::new(|| Compressors::new(&SESSION));

/// A table's columns as Vortex types.
pub(crate) struct ColumnTypes {
    columns: Vec<DType>,
    row: DType,
}

impl ColumnTypes {
    pub fn of(schema: &ArrowSchema) -> Result<Self> {
        let convert = |field: &Field| {
            SESSION.arrow().from_arrow_field(&intervals::stored_field(field)).map_err(|e| {
                Error::unsupported(format!(
                    "column {:?} of type {} cannot be stored",
                    field.name(),
                    field.data_type()
                ))
                .detail(e.to_string())
            })
        };
        let columns = schema.fields().iter().map(|f| convert(f)).collect::<Result<Vec<_>>>()?;
        let names: FieldNames = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let row =
            DType::Struct(StructFields::new(names, columns.clone()), Nullability::NonNullable);
        Ok(ColumnTypes { columns, row })
    }

    pub fn column(&self, column: usize) -> &DType {
        &self.columns[column]
    }
}

/// The encodings a file uses: its arrays name them by position in this list.
#[derive(Clone, Debug)]
pub(crate) struct EncodingIds(ReadContext);

/// As it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EncodingNames(Vec<String>);

impl EncodingIds {
    pub fn names(&self) -> EncodingNames {
        EncodingNames(self.0.ids().iter().map(|id| id.as_str().to_owned()).collect())
    }
}

impl From<&EncodingNames> for EncodingIds {
    fn from(names: &EncodingNames) -> Self {
        EncodingIds(ReadContext::new(names.0.iter().map(|n| ArrayId::new(n)).collect::<Vec<_>>()))
    }
}

/// Turns the columns of one file's chunks into bytes.
pub(super) struct Encoder {
    context: ArrayContext,
}

impl Encoder {
    pub fn new() -> Self {
        Encoder { context: ArrayContext::empty() }
    }

    /// Compresses one column of one chunk, of about so many distinct values; the buffers are to be
    /// written one after the other.
    pub fn encode(&self, array: ArrayRef, field: &Field, distinct: u64) -> Result<Vec<ByteBuffer>> {
        let (rows, data_type) = (array.len(), field.data_type());
        let (array, field) = (intervals::stored(&array), intervals::stored_field(field));
        let field = field.as_ref();
        let compressor = COMPRESSORS.of(rows as u64, distinct);
        let encode = |of_storage: bool| {
            guard(|| {
                let plain = SESSION.arrow().from_arrow_array(Arc::clone(&array), field)?;
                let execution = &mut SESSION.create_execution_ctx();
                let compressed = match plain.as_opt::<Extension>() {
                    Some(typed) if of_storage => {
                        let storage = compressor.compress(typed.storage_array(), execution)?;
                        ExtensionArray::new(typed.ext_dtype().clone(), storage).into_array()
                    }
                    _ => compressor.compress(&plain, execution)?,
                };
                forget_statistics(&compressed);
                compressed.serialize(
                    &self.context,
                    &SESSION,
                    &SerializeOptions { offset: 0, include_padding: true },
                )
            })
        };
        // Vortex makes a scalar of a chunk that is one value, and refuses to for a time after
        // 9999-12-30 or before -9999. The numbers below the times have no such bounds.
        let encoded = match is_far(&array) {
            true => encode(true),
            false => match encode(false) {
                Err(_) if data_type.is_temporal() => encode(true),
                encoded => encoded,
            },
        };
        encoded.map_err(|cause| {
            Error::internal(format!(
                "cannot compress column {:?} ({data_type}, {rows} rows)",
                field.name()
            ))
            .detail(cause)
        })
    }

    pub fn encodings(&self) -> EncodingIds {
        EncodingIds(ReadContext::new(self.context.to_ids()))
    }

    /// The end of the file, to be written at `position`, from where each column's chunks lie.
    pub fn footer(
        &self,
        types: &ColumnTypes,
        chunk_rows: &[u32],
        columns: &[&[Location]],
        position: u64,
    ) -> Result<Vec<ByteBuffer>> {
        let rows = chunk_rows.iter().map(|&n| u64::from(n)).sum();
        let encodings = self.encodings().0;
        guard(|| {
            let segment = |chunk: usize, column: usize| {
                SegmentId::from((chunk * columns.len() + column) as u32)
            };
            let column_layout = |column: usize| -> LayoutRef {
                let dtype = &types.columns[column];
                let chunks = chunk_rows.iter().enumerate().map(|(chunk, &n)| {
                    FlatLayout::new(
                        u64::from(n),
                        dtype.clone(),
                        segment(chunk, column),
                        encodings.clone(),
                    )
                    .into_layout()
                });
                ChunkedLayout::new(rows, dtype.clone(), layout_children(chunks.collect()))
                    .into_layout()
            };
            let layout = StructLayout::new(
                rows,
                types.row.clone(),
                (0..columns.len()).map(column_layout).collect(),
            );
            let specs: Arc<[SegmentSpec]> = (0..chunk_rows.len())
                .flat_map(|chunk| columns.iter().map(move |locations| locations[chunk]))
                .map(|l| SegmentSpec {
                    offset: l.offset,
                    length: l.bytes,
                    alignment: Alignment::new(ALIGNMENT),
                })
                .collect();
            let footer = Footer::new(layout.into_layout(), specs, None, encodings.clone());
            footer.into_serializer().with_offset(position).serialize()
        })
        .map_err(|cause| Error::internal("cannot write the footer of an extent").detail(cause))
    }
}

/// Decodes one column of one chunk into an [encoded form](crate::encoded) of the field's type. The
/// error is the cause alone.
pub(super) fn decode(
    bytes: ByteBuffer,
    rows: usize,
    field: &Field,
    dtype: &DType,
    encodings: &EncodingIds,
) -> Result<ArrayRef, String> {
    let array = guard(|| {
        let array =
            SerializedArray::try_from(bytes)?.decode(dtype, rows, &encodings.0, &SESSION)?;
        let execution = &mut SESSION.create_execution_ctx();
        match field.data_type() {
            DataType::Utf8View | DataType::BinaryView => strings(array, field, execution),
            DataType::Decimal128(_, scale) => match encoded::narrow_decimal(*scale) {
                Some(narrow) => decimals(array, field, narrow, execution),
                None => plain(array, field, execution),
            },
            DataType::Interval(_) => {
                let stored = plain(array, &intervals::stored_field(field), execution)?;
                Ok(intervals::read(stored, field.data_type()))
            }
            DataType::Float32 | DataType::Float64 | DataType::List(_) | DataType::Struct(_) => {
                plain(array, field, execution).map(floats::canonical)
            }
            _ => match packed::narrow(&array) {
                Some(narrow) => Ok(narrow),
                None => plain(array, field, execution).map(encoded::narrowed),
            },
        }
    })?;
    if !encoded::is_form_of(array.data_type(), field.data_type()) || array.len() != rows {
        return Err(format!(
            "decoded {} rows of {}, expected {rows} of {}",
            array.len(),
            array.data_type(),
            field.data_type()
        ));
    }
    Ok(encoded::without_empty_nulls(array))
}

/// Whether there are timestamps whose days need more than the 32 bits in which Vortex counts them, so that
/// others would be read.
fn is_far(array: &ArrayRef) -> bool {
    let a_day = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => 86_400,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 86_400_000,
        _ => return false,
    };
    let Ok(counts) = arrow::compute::cast(array, &DataType::Int64) else { return false };
    let counts = counts.as_primitive::<Int64Type>();
    let is_far = |count: Option<i64>| count.is_some_and(|n| i32::try_from(n / a_day).is_err());
    is_far(arrow::compute::min(counts)) || is_far(arrow::compute::max(counts))
}

fn plain(
    array: vortex::array::ArrayRef,
    field: &Field,
    execution: &mut ExecutionCtx,
) -> VortexResult<ArrayRef> {
    SESSION.arrow().execute_arrow(array, Some(field), execution)
}

/// A dictionary, if that is how the strings are stored; also under a mask of NULLs.
fn strings(
    array: vortex::array::ArrayRef,
    field: &Field,
    execution: &mut ExecutionCtx,
) -> VortexResult<ArrayRef> {
    let rows = array.len();
    let (inner, nulls) = match array.as_opt::<Masked>() {
        Some(masked) => {
            let nulls = to_arrow_null_buffer(masked.masked_validity(), rows, execution)?;
            (masked.child().clone(), nulls)
        }
        None => (array.clone(), None),
    };
    let (codes, values) = if let Some(dictionary) = inner.as_opt::<Dict>() {
        let code = match dictionary.codes().dtype() {
            DType::Primitive(PType::U8, _) => DataType::UInt8,
            DType::Primitive(PType::U16, _) => DataType::UInt16,
            DType::Primitive(PType::U32, _) => DataType::UInt32,
            _ => return plain(array, field, execution),
        };
        let codes = plain(dictionary.codes().clone(), &Field::new("", code, true), execution)?;
        (codes, dictionary.values().clone())
    } else if let Some(constant) = inner.as_opt::<Constant>() {
        let codes: ArrayRef = Arc::new(UInt8Array::from_value(0, rows));
        (codes, ConstantArray::new(constant.scalar().clone(), 1).into_array())
    } else {
        return plain(array, field, execution);
    };
    let values = plain(values, field, execution)?;
    encoded::dictionary(&codes, values, nulls.as_ref()).map_err(|e| vortex_err!("{e}"))
}

/// As narrow as they are, if all of them fit 64 bits.
fn decimals(
    array: vortex::array::ArrayRef,
    field: &Field,
    narrow: DataType,
    execution: &mut ExecutionCtx,
) -> VortexResult<ArrayRef> {
    let decimals = array.execute::<DecimalArray>(execution)?;
    let decimal = decimals.decimal_dtype();
    let is = DataType::Decimal128(decimal.precision(), decimal.scale());
    let array = decimals.clone().into_array();
    // To be refused.
    if is != *field.data_type() {
        return plain(array, field, execution);
    }
    let nulls = to_arrow_null_buffer(array.validity()?, array.len(), execution)?;
    macro_rules! whole {
        ($type:ty) => {{
            let values = decimals.buffer().into_arrow_scalar_buffer();
            Arc::new(PrimitiveArray::<$type>::try_new(values, nulls)?)
        }};
    }
    Ok(match decimals.values_type() {
        DecimalType::I8 => whole!(Int8Type),
        DecimalType::I16 => encoded::narrowed(whole!(Int16Type)),
        DecimalType::I32 => encoded::narrowed(whole!(Int32Type)),
        DecimalType::I64 => {
            let values = decimals.buffer().into_arrow_scalar_buffer();
            let values = Decimal64Array::try_new(values, nulls)?.with_data_type(narrow);
            encoded::narrowed(Arc::new(values))
        }
        DecimalType::I128 => {
            let wide = decimals.buffer::<i128>();
            // The writer has narrowed what it could: mostly, the first few tell.
            let values: Option<Vec<i64>> = wide.iter().map(|&v| v.try_into().ok()).collect();
            let Some(values) = values else { return plain(array, field, execution) };
            let values = Decimal64Array::try_new(values.into(), nulls)?.with_data_type(narrow);
            encoded::narrowed(Arc::new(values))
        }
        DecimalType::I256 => return plain(array, field, execution),
    })
}

/// Our own statistics are in the catalog; Vortex's would only be parsed with each chunk.
fn forget_statistics(array: &vortex::array::ArrayRef) {
    Stat::all().for_each(|stat| array.statistics().clear(stat));
    array.children_iter().for_each(forget_statistics);
}

fn guard<T>(f: impl FnOnce() -> VortexResult<T>) -> Result<T, String> {
    match quiet::caught(f) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(e.to_string()),
        Err(panic) => {
            Err(text::of_panic(panic.as_ref()).unwrap_or("the decoder panicked").to_owned())
        }
    }
}
