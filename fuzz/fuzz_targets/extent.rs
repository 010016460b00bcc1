//! The reader of extents.
#![no_main]

use thalweg_storage::fuzzing::{extent, watched};

libfuzzer_sys::fuzz_target!(|input: &[u8]| watched(|| extent(input)));
