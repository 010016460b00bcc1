//! The reader of extents.
#![no_main]

use thalweg_base::fuzzing::watched;
use thalweg_storage::fuzzing::extent;

libfuzzer_sys::fuzz_target!(|input: &[u8]| watched(|| extent(input)));
