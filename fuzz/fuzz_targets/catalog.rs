//! Opening a log.
#![no_main]

use thalweg_base::fuzzing::watched;
use thalweg_storage::fuzzing::catalog;

libfuzzer_sys::fuzz_target!(|input: &[u8]| watched(|| catalog(input)));
