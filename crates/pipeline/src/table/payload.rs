//! The payload: each column's batches become one array, pieces of it in any order.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryViewArray, BooleanBufferBuilder, DictionaryArray,
    NullArray, StringViewArray, UInt32Array, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::concat;
use arrow::datatypes::{BinaryViewType, DataType, Decimal64Type, StringViewType, UInt32Type};
use thalweg_base::{Error, Result};

use super::collect::{Piece, pieces_in};
use super::dictionary::Unify;
use super::shared::Shared;
use crate::encoding::{self, NARROW_DIGITS, internal};

/// The rows of a task. A multiple of 8, so that no two tasks write one byte of a bitmap.
pub const CHUNK_ROWS: usize = 16 * 1024;

/// A column on its way to one array.
pub struct Column {
    /// Its index among the payload's.
    index: usize,
    logical: DataType,
    form: Form,
    nulls: bool,
    rows: usize,
    unify: Option<Unify>,
    output: OnceLock<Output>,
}

/// How the array is put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Values of that many bytes, copied.
    Fixed(usize),
    /// Decimals of which some came narrow and others did not.
    Widen,
    Bits,
    /// Text or binary views, of which some may be dictionaries.
    Views,
    Nulls,
    /// Arrow's `concat` in a single task.
    Rare,
}

struct Output {
    values: Values,
    validity: Option<Shared<u8>>,
}

enum Values {
    Bytes(Shared<u8>),
    Codes(Shared<u32>),
    Views { views: Shared<u128>, sources: Sources },
    Array(OnceLock<ArrayRef>),
}

/// The buffers of all views, and for each piece which of them are its own.
struct Sources {
    buffers: Vec<Buffer>,
    of_piece: Vec<Vec<u32>>,
}

impl Column {
    pub fn new(index: usize, logical: &DataType, pieces: &[Piece], rows: usize) -> Self {
        let arrays = || pieces.iter().map(|piece| &piece.payload[index]);
        let all_dictionaries = !pieces.is_empty()
            && arrays().all(|a| matches!(a.data_type(), DataType::Dictionary(..)));
        let form = match logical {
            DataType::Null => Form::Nulls,
            DataType::Boolean => Form::Bits,
            DataType::Utf8View | DataType::BinaryView => Form::Views,
            DataType::Decimal128(..) => {
                let narrow = |a: &ArrayRef| matches!(a.data_type(), DataType::Decimal64(..));
                match (arrays().any(narrow), arrays().all(narrow)) {
                    (true, true) => Form::Fixed(8),
                    (true, false) => Form::Widen,
                    (false, _) => Form::Fixed(16),
                }
            }
            other => other.primitive_width().map_or(Form::Rare, Form::Fixed),
        };
        Self {
            index,
            logical: logical.clone(),
            form,
            nulls: form != Form::Nulls && arrays().any(|a| a.null_count() > 0),
            rows,
            unify: all_dictionaries.then(|| Unify::new(arrays())),
            output: OnceLock::new(),
        }
    }

    pub fn memory_bytes_needed(&self, pieces: &[Piece]) -> usize {
        let row = match self.form {
            _ if self.unify.is_some() => 16,
            Form::Fixed(width) => width,
            Form::Widen | Form::Views => 16,
            Form::Bits | Form::Nulls => 0,
            Form::Rare => {
                let bytes = |p: &Piece| {
                    let data = p.payload[self.index].to_data();
                    data.get_slice_memory_size().unwrap_or(data.get_buffer_memory_size())
                };
                return pieces.iter().map(bytes).sum();
            }
        };
        self.rows * row + self.rows / 4 + self.unify.as_ref().map_or(0, Unify::memory_bytes_needed)
    }

    /// Tasks to be done before those of [`Self::run`].
    pub fn unify_tasks(&self) -> usize {
        self.unify.as_ref().map_or(0, Unify::tasks)
    }

    pub fn unify(&self, task: usize, pieces: &[Piece]) -> Result<()> {
        match &self.unify {
            Some(unify) => unify.run(task, pieces.iter().map(|p| &p.payload[self.index])),
            None => Ok(()),
        }
    }

    pub fn tasks(&self) -> usize {
        match self.form {
            // A column of dictionaries that turn out to be too large is one of these, too.
            Form::Rare if self.unify.is_none() => self.rows.min(1),
            _ => self.rows.div_ceil(CHUNK_ROWS),
        }
    }

    /// The dictionaries, if they are one by now.
    fn unified(&self) -> Option<&Unify> {
        self.unify.as_ref().filter(|unify| unify.succeeded())
    }

    fn output(&self, pieces: &[Piece]) -> &Output {
        self.output.get_or_init(|| {
            let rows = self.rows;
            let values = match self.form {
                _ if self.unified().is_some() => Values::Codes(Shared::new(rows)),
                Form::Fixed(width) => Values::Bytes(Shared::new(rows * width)),
                Form::Widen => Values::Bytes(Shared::new(rows * 16)),
                Form::Bits => Values::Bytes(Shared::new(rows.div_ceil(8))),
                Form::Views => Values::Views {
                    views: Shared::new(rows),
                    sources: Sources::new(pieces.iter().map(|p| &p.payload[self.index])),
                },
                Form::Nulls | Form::Rare => Values::Array(OnceLock::new()),
            };
            let bitmap = self.nulls && !matches!(values, Values::Array(_));
            Output { values, validity: bitmap.then(|| Shared::new(rows.div_ceil(8))) }
        })
    }

    /// # Safety
    /// Nobody else may run the same task, ever.
    pub unsafe fn run(&self, task: usize, pieces: &[Piece], starts: &[usize]) -> Result<()> {
        let output = self.output(pieces);
        let range = task * CHUNK_ROWS..self.rows.min((task + 1) * CHUNK_ROWS);
        let parts = || {
            pieces_in(starts, range.clone())
                .map(|(piece, of, at)| (piece, &pieces[piece].payload[self.index], of, at))
        };
        let bytes = range.start / 8..range.end.div_ceil(8);
        if let Some(validity) = &output.validity {
            let mut bits = BooleanBufferBuilder::new(range.len());
            for (_, array, of, _) in parts() {
                match array.nulls() {
                    Some(nulls) => {
                        bits.append_buffer(&nulls.inner().slice(of.start, of.len()));
                    }
                    None => bits.append_n(of.len(), true),
                }
            }
            // SAFETY: the task's own bytes, as CHUNK_ROWS is a multiple of 8.
            unsafe { validity.zeroed(bytes.clone()) }.copy_from_slice(bits.as_slice());
        }
        match (&output.values, self.form) {
            (Values::Codes(codes), _) => {
                let unify = self.unify.as_ref().expect("codes come of unification");
                // SAFETY: the task's own rows.
                let out = unsafe { codes.zeroed(range.clone()) };
                for (piece, array, of, at) in parts() {
                    unify.translate(piece, array, of.clone(), &mut out[at..at + of.len()])?;
                }
            }
            (Values::Bytes(out), Form::Bits) => {
                let mut bits = BooleanBufferBuilder::new(range.len());
                for (_, array, of, _) in parts() {
                    bits.append_buffer(&array.as_boolean().values().slice(of.start, of.len()));
                }
                // SAFETY: the task's own bytes, as CHUNK_ROWS is a multiple of 8.
                unsafe { out.zeroed(bytes) }.copy_from_slice(bits.as_slice());
            }
            (Values::Bytes(out), form) => {
                let width = if let Form::Fixed(width) = form { width } else { 16 };
                // SAFETY: the task's own rows.
                let out = unsafe { out.zeroed(range.start * width..range.end * width) };
                for (_, array, of, at) in parts() {
                    copy_fixed(
                        array,
                        width,
                        of.clone(),
                        &mut out[at * width..][..of.len() * width],
                    )?;
                }
            }
            (Values::Views { views, sources }, _) => {
                // SAFETY: the task's own rows.
                let out = unsafe { views.zeroed(range.clone()) };
                for (piece, array, of, at) in parts() {
                    let buffers = &sources.of_piece[piece];
                    copy_views(array, buffers, of.clone(), &mut out[at..at + of.len()])?;
                }
            }
            (Values::Array(array), Form::Nulls) => {
                array.get_or_init(|| Arc::new(NullArray::new(self.rows)));
            }
            (Values::Array(array), _) => {
                if task == 0 {
                    let arrays = pieces
                        .iter()
                        .map(|p| encoding::expand(&p.payload[self.index], &self.logical))
                        .collect::<Result<Vec<_>>>()?;
                    let arrays = arrays.iter().map(|a| a.as_ref()).collect::<Vec<_>>();
                    let whole = concat(&arrays).map_err(internal)?;
                    array.get_or_init(|| whole);
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// All tasks must have been run.
    pub unsafe fn finish(self, pieces: &[Piece]) -> Result<ArrayRef> {
        if self.rows == 0 {
            return Ok(arrow::array::new_empty_array(&self.logical));
        }
        self.output(pieces);
        let Some(Output { values, validity }) = self.output.into_inner() else {
            return Err(Error::internal("a join's payload was not put together"));
        };
        let nulls = validity.map(|bits| {
            // SAFETY: all tasks were run, and together they wrote all of it.
            let bits = unsafe { bits.into_buffer() };
            NullBuffer::new(BooleanBuffer::new(bits, 0, self.rows))
        });
        Ok(match values {
            Values::Codes(codes) => {
                let unify = self.unify.expect("codes come of unification");
                // SAFETY: as above.
                let codes = unsafe { codes.into_buffer() };
                let codes = ScalarBuffer::new(codes, 0, self.rows);
                let codes = UInt32Array::new(codes, nulls);
                let values = unify.values(&self.logical)?;
                // SAFETY: the codes are what `translate` gave: below the number of values, or of
                // NULL, 0.
                Arc::new(unsafe { DictionaryArray::<UInt32Type>::new_unchecked(codes, values) })
            }
            Values::Bytes(bytes) => {
                let data_type = match (&self.logical, self.form) {
                    (DataType::Decimal128(_, scale), Form::Fixed(8)) => {
                        DataType::Decimal64(NARROW_DIGITS, *scale)
                    }
                    (other, _) => other.clone(),
                };
                // SAFETY: as above.
                let bytes = unsafe { bytes.into_buffer() };
                let data = ArrayData::builder(data_type)
                    .len(self.rows)
                    .add_buffer(bytes)
                    .nulls(nulls)
                    .align_buffers(true);
                make_array(data.build().map_err(internal)?)
            }
            Values::Views { views, sources } => {
                // SAFETY: as above.
                let views = unsafe { views.into_buffer() };
                let views = ScalarBuffer::new(views, 0, self.rows);
                let buffers = sources.buffers;
                // SAFETY: the views are those of valid arrays, but for the buffers' indices, which
                // are those of the same buffers in the new order.
                unsafe {
                    if self.logical == DataType::Utf8View {
                        Arc::new(StringViewArray::new_unchecked(views, buffers, nulls))
                    } else {
                        Arc::new(BinaryViewArray::new_unchecked(views, buffers, nulls))
                    }
                }
            }
            Values::Array(array) => array
                .into_inner()
                .ok_or_else(|| Error::internal("a join's payload was not put together"))?,
        })
    }
}

/// Copies values of `width` bytes, widening narrow decimals where wide ones are wanted.
fn copy_fixed(array: &ArrayRef, width: usize, of: Range<usize>, out: &mut [u8]) -> Result<()> {
    if width == 16 && matches!(array.data_type(), DataType::Decimal64(..)) {
        let values = &array.as_primitive::<Decimal64Type>().values()[of];
        for (out, &value) in out.chunks_exact_mut(16).zip(values) {
            out.copy_from_slice(&i128::from(value).to_ne_bytes());
        }
        return Ok(());
    }
    let data = array.to_data();
    let from = (data.offset() + of.start) * width;
    out.copy_from_slice(&data.buffers()[0].as_slice()[from..][..out.len()]);
    Ok(())
}

fn views_of(array: &dyn Array) -> Result<(&[u128], &[Buffer])> {
    Ok(match array.data_type() {
        DataType::Utf8View => {
            let array = array.as_byte_view::<StringViewType>();
            (array.views(), array.data_buffers())
        }
        DataType::BinaryView => {
            let array = array.as_byte_view::<BinaryViewType>();
            (array.views(), array.data_buffers())
        }
        other => return Err(Error::internal(format!("views of text came as {other}"))),
    })
}

fn copy_views(array: &ArrayRef, buffers: &[u32], of: Range<usize>, out: &mut [u128]) -> Result<()> {
    /// Up to that many bytes a view holds them itself.
    const INLINE: u32 = 12;
    let moved = |view: u128| {
        if view as u32 <= INLINE {
            return view;
        }
        // What stands in the place of a NULL may be anything: it becomes empty.
        match buffers.get((view >> 64) as u32 as usize) {
            Some(&index) => view & !(u128::from(u32::MAX) << 64) | u128::from(index) << 64,
            None => 0,
        }
    };
    if let Some(codes) = encoding::codes(array.as_ref()) {
        let (views, _) = views_of(array.as_any_dictionary().values().as_ref())?;
        for (out, &code) in out.iter_mut().zip(&codes[of]) {
            *out = views.get(code as usize).map_or(0, |&view| moved(view));
        }
    } else {
        let (views, _) = views_of(array.as_ref())?;
        for (out, &view) in out.iter_mut().zip(&views[of]) {
            *out = moved(view);
        }
    }
    Ok(())
}

impl Sources {
    fn new<'a>(arrays: impl Iterator<Item = &'a ArrayRef>) -> Self {
        let mut known = HashMap::new();
        let mut buffers = Vec::new();
        let of_piece = arrays
            .map(|array| {
                let plain = match array.as_any_dictionary_opt() {
                    Some(dictionary) => dictionary.values(),
                    None => array,
                };
                let Ok((_, own)) = views_of(plain.as_ref()) else { return Vec::new() };
                own.iter()
                    .map(|buffer| {
                        *known.entry((buffer.as_ptr(), buffer.len())).or_insert_with(|| {
                            buffers.push(buffer.clone());
                            (buffers.len() - 1) as u32
                        })
                    })
                    .collect()
            })
            .collect();
        Self { buffers, of_piece }
    }
}
