//! The reader of JSON.
#![no_main]

use thalweg_base::fuzzing::watched;
use thalweg_storage::fuzzing::json;

libfuzzer_sys::fuzz_target!(|input: &[u8]| watched(|| json(input)));
