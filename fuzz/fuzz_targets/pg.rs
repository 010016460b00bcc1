//! Clients of the PostgreSQL protocol.
#![no_main]

use thalweg_base::fuzzing::watched;
use thalweg_server::fuzzing::pg;

libfuzzer_sys::fuzz_target!(|input: &[u8]| watched(|| pg(input)));
