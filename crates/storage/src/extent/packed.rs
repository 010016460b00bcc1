//! Whole numbers in packed bits, unpacked into the width that holds them and not into their column's:
//! that would be written to memory, and read again to be made narrower.

use std::mem::MaybeUninit;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use vortex::array::ArrayView;
use vortex::array::arrays::Extension;
use vortex::array::arrays::extension::ExtensionArrayExt;
use vortex::array::validity::Validity;
use vortex::dtype::PType;
use vortex::encodings::fastlanes::unpack_iter::{
    BitPacked as Packable, BitPackingStrategy, UnpackedChunks,
};
use vortex::encodings::fastlanes::{
    BitPacked, BitPackedArrayExt, BitWidthsView, FL_CHUNK_SIZE, FoR, FoRArrayExt, FoRArraySlotsExt,
    FoRReferences,
};

use crate::encoded::{Narrow, narrow_column};

/// `None`: it is encoded in some other way, has NULLs or exceptions, or needs its own width; or it may
/// need less than is known before it is unpacked.
pub(super) fn narrow(array: &vortex::array::ArrayRef) -> Option<ArrayRef> {
    if let Some(extension) = array.as_opt::<Extension>() {
        return narrow(extension.storage_array());
    }
    let Some(shifted) = array.as_opt::<FoR>() else {
        return unpack(array.as_opt::<BitPacked>()?, 0);
    };
    let FoRReferences::Global(reference) = shifted.references() else { return None };
    unpack(shifted.encoded().as_opt::<BitPacked>()?, reference.as_primitive().as_::<i64>()?)
}

/// With `least` added to each, which is the least of them.
fn unpack(packed: ArrayView<'_, BitPacked>, least: i64) -> Option<ArrayRef> {
    let BitWidthsView::Global(width) = packed.bit_widths() else { return None };
    let plain = matches!(packed.validity(), Ok(Validity::NonNullable | Validity::AllValid))
        && packed.patches().is_none()
        && packed.offset() == 0;
    let type_ = packed.dtype().as_ptype();
    if !plain || !(1..63).contains(&width) || !type_.is_signed_int() {
        return None;
    }
    // The greatest has the highest bit.
    let at_least = least.checked_add(1 << (width - 1))?;
    let at_most = least.checked_add((1 << width) - 1)?;
    let narrow = Narrow::of(least, at_most)?;
    if narrow.bytes() >= type_.byte_width() || Narrow::of(least, at_least) != Some(narrow) {
        return None;
    }
    macro_rules! values {
        ($type:ty) => {
            match narrow {
                Narrow::Int8 => to::<$type, i8>(packed, width, |v| (v as i64 + least) as i8)?,
                Narrow::Int16 => to::<$type, i16>(packed, width, |v| (v as i64 + least) as i16)?,
                Narrow::Int32 => to::<$type, i32>(packed, width, |v| (v as i64 + least) as i32)?,
            }
        };
    }
    let values = match type_ {
        PType::I16 => values!(i16),
        PType::I32 => values!(i32),
        PType::I64 => values!(i64),
        _ => return None,
    };
    Some(narrow_column(narrow, packed.len(), values))
}

fn to<T: Packable, N>(
    packed: ArrayView<'_, BitPacked>,
    width: u8,
    narrow: impl Fn(T) -> N,
) -> Option<Buffer>
where
    Buffer: From<Vec<N>>,
{
    let mut scratch = [const { MaybeUninit::uninit() }; FL_CHUNK_SIZE];
    let block = FL_CHUNK_SIZE / 8 * usize::from(width) / size_of::<T>();
    let mut values = Vec::with_capacity(packed.len());
    for words in packed.packed_slice::<T::Physical>().chunks_exact(block) {
        let rows = FL_CHUNK_SIZE.min(packed.len() - values.len());
        let width = usize::from(width);
        let (how, scratch) = (BitPackingStrategy, &mut scratch);
        let block =
            UnpackedChunks::<T, _>::try_new_with_strategy(how, words, width, 0, rows, scratch);
        values.extend(block.ok()?.initial()?.iter().map(|v| narrow(*v)));
    }
    (values.len() == packed.len()).then(|| values.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, Int16Array, Int32Array, Int64Array};
    use thalweg_base::Prng;
    use vortex::VortexSessionDefault;
    use vortex::array::arrays::PrimitiveArray;
    use vortex::array::{IntoArray, VortexSessionExecute};
    use vortex::encodings::fastlanes::BitPackedData;
    use vortex::session::VortexSession;

    use super::*;
    use crate::encoded::narrowed;

    /// As they are stored: the least of them taken off, and so many bits of each.
    fn stored(values: PrimitiveArray, least: i64, width: u8) -> vortex::array::ArrayRef {
        let mut execution =
            <VortexSession as VortexSessionDefault>::default().create_execution_ctx();
        let packed = BitPackedData::encode(&values.into_array(), width, &mut execution).unwrap();
        let packed = packed.into_array();
        let shifted = |reference| FoR::try_new(packed.clone(), reference).unwrap().into_array();
        match (least, packed.dtype().as_ptype()) {
            (0, _) => packed,
            (_, PType::I16) => shifted((least as i16).into()),
            (_, PType::I32) => shifted((least as i32).into()),
            _ => shifted(least.into()),
        }
    }

    #[test]
    fn what_fits_fewer_bytes_is_what_narrowing_makes_of_the_whole() {
        let mut random = Prng::new(5);
        let mut narrow_ones = [0; 3];
        for round in 0..600 {
            let rows = [2, 3, 1023, 1024, 1025, 5000][round % 6];
            let bytes = [2, 4, 8][round / 6 % 3];
            let width = 1 + random.below([14, 30, 40][round / 6 % 3]) as u8;
            let reach = 1 << random.below(8 * bytes - 2);
            let least = random.range(-reach, reach);
            let mut offsets: Vec<i64> =
                (0..rows).map(|_| random.below(1 << width) as i64).collect();
            (offsets[0], offsets[1]) = ((1 << width) - 1, 0);
            let sums = offsets.iter().map(|offset| offset + least);
            let (plain, packed): (ArrayRef, _) = match bytes {
                2 if least + (1 << width) > i64::from(i16::MAX) => continue,
                4 if least + (1 << width) > i64::from(i32::MAX) => continue,
                2 => (
                    Arc::new(Int16Array::from_iter_values(sums.map(|v| v as i16))),
                    PrimitiveArray::from_iter(offsets.iter().map(|&v| v as i16)),
                ),
                4 => (
                    Arc::new(Int32Array::from_iter_values(sums.map(|v| v as i32))),
                    PrimitiveArray::from_iter(offsets.iter().map(|&v| v as i32)),
                ),
                _ => (
                    Arc::new(Int64Array::from_iter_values(sums)),
                    PrimitiveArray::from_iter(offsets.iter().copied()),
                ),
            };
            let expected = narrowed(plain);
            match narrow(&stored(packed, least, width)) {
                Some(found) => {
                    assert_eq!(found.to_data(), expected.to_data(), "{least} {width}");
                    narrow_ones[expected.data_type().primitive_width().unwrap() / 2] += 1;
                }
                None => {
                    // It is as wide as before, or what is between the least and the least greatest.
                    let middle = least + (1 << (width - 1));
                    let close =
                        Narrow::of(least, middle) != Narrow::of(least, least + (1 << width) - 1);
                    let wide = expected.data_type().primitive_width() == Some(bytes as usize);
                    assert!(close || wide, "{least} {width} {bytes}");
                }
            }
        }
        assert!(narrow_ones.iter().all(|n| *n > 20), "{narrow_ones:?}");
    }

    #[test]
    fn what_has_exceptions_is_left_to_its_own_decoder() {
        let values = PrimitiveArray::from_iter((0..3000).map(|v| if v == 7 { 1 << 20 } else { v }));
        assert_eq!(values.ptype(), PType::I32);
        let array = stored(values, 0, 12);
        assert!(array.as_opt::<BitPacked>().unwrap().patches().is_some());
        assert!(narrow(&array).is_none());
    }
}
