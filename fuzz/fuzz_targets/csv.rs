//! The reader of delimited text.
#![no_main]

use thalweg_base::fuzzing::watched;
use thalweg_storage::fuzzing::csv;

libfuzzer_sys::fuzz_target!(|input: &[u8]| watched(|| csv(input)));
