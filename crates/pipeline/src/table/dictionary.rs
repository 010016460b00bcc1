//! Dictionaries of many batches made one, with distinct values.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};

use super::bytes::{hash_bytes, slice_of};
use crate::encoding::{self, internal};

/// With more values a dictionary is no help: neither do later operators keep an array by code,
/// nor do codes fit a cache.
const VALUES_MAX: usize = 64 * 1024;

/// The code of a value that no row has.
const UNUSED: u32 = u32::MAX;

pub struct Unify {
    /// The values of each dictionary, which several batches often share.
    dictionaries: Vec<ArrayRef>,
    of_piece: Vec<usize>,
    /// The rows of each dictionary's batches.
    rows: Vec<usize>,
    /// From the codes of each to the common ones.
    translations: Vec<OnceLock<Vec<u32>>>,
    common: Mutex<Common>,
}

#[derive(Default)]
struct Common {
    codes: HashMap<Box<[u8]>, u32, BuildHasherDefault<Folding>>,
    /// The dictionary and the index in it of each value.
    sources: Vec<(usize, usize)>,
    too_many: bool,
}

/// [`hash_bytes`] for a map.
#[derive(Default)]
struct Folding(u64);

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= hash_bytes(bytes);
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Unify {
    pub fn new<'a>(arrays: impl Iterator<Item = &'a ArrayRef>) -> Self {
        let mut known = HashMap::new();
        let mut dictionaries = Vec::new();
        let mut rows = Vec::new();
        let mut of_piece = Vec::new();
        for array in arrays {
            let values = array.as_any_dictionary().values();
            let dictionary = *known.entry(Arc::as_ptr(values).cast::<u8>()).or_insert_with(|| {
                dictionaries.push(Arc::clone(values));
                rows.push(0);
                dictionaries.len() - 1
            });
            rows[dictionary] += array.len();
            of_piece.push(dictionary);
        }
        let translations = dictionaries.iter().map(|_| OnceLock::new()).collect();
        Self { dictionaries, of_piece, rows, translations, common: Mutex::default() }
    }

    pub fn memory_bytes_needed(&self) -> usize {
        let values = self.dictionaries.iter().map(|d| d.len()).sum::<usize>();
        values * 4 + values.min(VALUES_MAX) * 64
    }

    pub fn tasks(&self) -> usize {
        self.dictionaries.len()
    }

    /// Adds the values of one dictionary to the common one.
    pub fn run<'a>(&self, task: usize, arrays: impl Iterator<Item = &'a ArrayRef>) -> Result<()> {
        let values = self.dictionaries[task].as_ref();
        let mut translation = vec![UNUSED; values.len()];
        if values.len() > self.rows[task] / 4 {
            // Few rows of many values: only those they have are taken, marked here by a 0.
            for (array, &dictionary) in arrays.zip(&self.of_piece) {
                if dictionary == task {
                    let codes = encoding::codes(array.as_ref()).ok_or_else(no_dictionary)?;
                    for &code in codes.iter() {
                        if let Some(code) = translation.get_mut(code as usize) {
                            *code = 0;
                        }
                    }
                }
            }
        } else {
            translation.fill(0);
        }
        let value = slice_of(values).ok_or_else(no_dictionary)?;
        let mut common = self.common.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, code) in translation.iter_mut().enumerate() {
            if *code == UNUSED || common.too_many {
                continue;
            }
            let bytes = value(i);
            *code = match common.codes.get(bytes) {
                Some(&known) => known,
                None => {
                    let new = common.sources.len();
                    common.codes.insert(bytes.into(), new as u32);
                    common.sources.push((task, i));
                    common.too_many = new >= VALUES_MAX;
                    new as u32
                }
            };
        }
        drop(common);
        self.translations[task].get_or_init(|| translation);
        Ok(())
    }

    /// Whether there is a common dictionary, once all tasks are done.
    pub fn succeeded(&self) -> bool {
        !self.common.lock().unwrap_or_else(PoisonError::into_inner).too_many
    }

    /// Common codes of a range of a batch; 0 of a NULL.
    pub fn translate(
        &self,
        piece: usize,
        array: &ArrayRef,
        of: Range<usize>,
        out: &mut [u32],
    ) -> Result<()> {
        let codes = encoding::codes(array.as_ref()).ok_or_else(no_dictionary)?;
        let translation = self.translations[self.of_piece[piece]]
            .get()
            .ok_or_else(|| Error::internal("a join's dictionaries are not unified"))?;
        let codes = &codes[of.clone()];
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = translation.get(code as usize).copied().unwrap_or(0);
        }
        if let Some(nulls) = array.nulls() {
            for (i, out) in out.iter_mut().enumerate() {
                if nulls.is_null(of.start + i) {
                    *out = 0;
                }
            }
        }
        Ok(())
    }

    pub fn values(self, logical: &DataType) -> Result<ArrayRef> {
        let common = self.common.into_inner().unwrap_or_else(PoisonError::into_inner);
        if common.sources.is_empty() {
            return Ok(new_empty_array(logical));
        }
        let dictionaries = self.dictionaries.iter().map(|d| d.as_ref()).collect::<Vec<_>>();
        interleave(&dictionaries, &common.sources).map_err(internal)
    }
}

fn no_dictionary() -> Error {
    Error::internal("a join's dictionary is of a type that it cannot have")
}
