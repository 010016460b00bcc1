//! How much memory arrays hold.
//!
//! Arrays have memory in common: batches are slices of one allocation, and the texts of all rows of a
//! join are views into the buffers of its build side. To count it for each of them would be to refuse
//! memory that nobody needs.

use std::collections::HashSet;

use arrow::array::{Array, ArrayData, ArrayRef};
use arrow::buffer::{Buffer, NullBuffer};

/// The allocations of some arrays, each counted once. Another worker may count some of them, too.
#[derive(Default)]
pub struct Allocations {
    counted: HashSet<usize>,
    bytes: usize,
}

impl Allocations {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn of(buffers: &[Buffer]) -> Self {
        let mut allocations = Self::default();
        buffers.iter().for_each(|buffer| allocations.add_buffer(buffer));
        allocations
    }

    pub fn add(&mut self, array: &ArrayRef) {
        each_buffer(&array.to_data(), &mut |buffer| self.add_buffer(buffer));
    }

    fn add_buffer(&mut self, buffer: &Buffer) {
        if self.counted.insert(start(buffer)) {
            self.bytes += buffer.capacity();
        }
    }

    /// Of an array that was added: also what others have in common with it.
    pub fn forget(&mut self, array: &ArrayRef) {
        each_buffer(&array.to_data(), &mut |buffer| {
            if self.counted.remove(&start(buffer)) {
                self.bytes -= buffer.capacity();
            }
        });
    }

    pub fn clear(&mut self) {
        self.counted.clear();
        self.bytes = 0;
    }
}

/// Of the allocation that a buffer is in.
fn start(buffer: &Buffer) -> usize {
    buffer.data_ptr().as_ptr() as usize
}

fn each_buffer(data: &ArrayData, visit: &mut impl FnMut(&Buffer)) {
    data.buffers().iter().chain(data.nulls().map(NullBuffer::buffer)).for_each(&mut *visit);
    data.child_data().iter().for_each(|child| each_buffer(child, visit));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringViewArray};
    use arrow::compute::concat;

    use super::*;

    #[test]
    fn what_arrays_have_in_common_counts_once() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1; 4096]));
        let mut held = Allocations::default();
        for n in 0..4 {
            held.add(&numbers.slice(n * 1024, 1024));
        }
        assert_eq!(held.bytes(), 4096 * 8);

        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["longer than a view is"; 1000]));
        let text_bytes = texts.to_data().get_buffer_memory_size() - 16 * 1000;
        held.add(&texts.slice(0, 500));
        held.add(&texts.slice(500, 500));
        assert_eq!(held.bytes(), 4096 * 8 + 16 * 1000 + text_bytes);

        // Put together, they have other views of the same texts.
        let all = concat(&[&texts.slice(0, 500), &texts.slice(500, 500)]).expect("of one type");
        held.forget(&texts.slice(0, 500));
        held.forget(&texts.slice(500, 500));
        held.add(&all);
        assert_eq!(held.bytes(), 4096 * 8 + 16 * 1000 + text_bytes);
        held.clear();
        assert_eq!(held.bytes(), 0);
    }
}
