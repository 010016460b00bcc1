//! Floats that are equal have the same bits: there is one zero and one NaN.
//!
//! SQL's 0.0 equals -0.0, and NaN equals NaN and is greater than everything else. Arrow compares by the
//! total order of IEEE 754, in which -0.0 comes before 0.0, and a NaN with a sign before all numbers; and
//! whoever hashes looks at bits. So what enters a table is made canonical once, and what older programs
//! have stored is when it is decoded: then every comparison, sort and hash is right as it is, and none of
//! them is slower.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};

/// The value that stands for all that equal it.
#[inline]
pub fn canonical_f64(value: f64) -> f64 {
    // -0.0 + 0.0 is 0.0.
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// The value that stands for all that equal it.
#[inline]
pub fn canonical_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

/// The same column with one zero and one NaN: mostly, that is the column itself.
pub fn canonical(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float64 => {
            let floats = array.as_primitive::<Float64Type>();
            // Without a branch, so that the loop is vectorised.
            let is_odd = |odd: bool, v: &f64| odd | (canonical_f64(*v).to_bits() != v.to_bits());
            match floats.values().iter().fold(false, is_odd) {
                false => array,
                true => Arc::new(floats.unary::<_, Float64Type>(canonical_f64)),
            }
        }
        DataType::Float32 => {
            let floats = array.as_primitive::<Float32Type>();
            let is_odd = |odd: bool, v: &f32| odd | (canonical_f32(*v).to_bits() != v.to_bits());
            match floats.values().iter().fold(false, is_odd) {
                false => array,
                true => Arc::new(floats.unary::<_, Float32Type>(canonical_f32)),
            }
        }
        DataType::List(item) if has_floats(item.data_type()) => {
            let (field, offsets, values, nulls) = array.as_list::<i32>().clone().into_parts();
            Arc::new(ListArray::new(field, offsets, canonical(values), nulls))
        }
        DataType::Struct(fields) if fields.iter().any(|f| has_floats(f.data_type())) => {
            let rows = array.len();
            let (fields, columns, nulls) = array.as_struct().clone().into_parts();
            let columns = columns.into_iter().map(canonical).collect();
            Arc::new(
                StructArray::try_new_with_length(fields, columns, nulls, rows)
                    .expect("its columns have the types they had"),
            )
        }
        _ => array,
    }
}

fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float32 | DataType::Float64 => true,
        DataType::List(item) => has_floats(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|f| has_floats(f.data_type())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array};

    use super::*;

    #[test]
    fn equal_floats_have_equal_bits() {
        let odd = f64::from_bits(f64::NAN.to_bits() | 1 << 63);
        let array: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(-0.0), Some(odd), Some(-1.5), None]));
        let made = canonical(array);
        let bits: Vec<u64> =
            made.as_primitive::<Float64Type>().iter().flatten().map(f64::to_bits).collect();
        assert_eq!(bits, [0, f64::NAN.to_bits(), (-1.5_f64).to_bits()]);
        assert_eq!(made.null_count(), 1);
        let small: ArrayRef = Arc::new(Float32Array::from(vec![-0.0_f32]));
        assert_eq!(canonical(small).as_primitive::<Float32Type>().value(0).to_bits(), 0);
        let plain: ArrayRef = Arc::new(Float64Array::from(vec![0.0, 2.0]));
        assert!(Arc::ptr_eq(&canonical(Arc::clone(&plain)), &plain));
    }
}
