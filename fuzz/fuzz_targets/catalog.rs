//! Opening a log.
#![no_main]

use thalweg_storage::fuzzing::{catalog, watched};

libfuzzer_sys::fuzz_target!(|input: &[u8]| watched(|| catalog(input)));
