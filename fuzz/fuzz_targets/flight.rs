//! Clients of Arrow Flight SQL.
#![no_main]

use thalweg_base::fuzzing::watched;
use thalweg_server::fuzzing::flight;

libfuzzer_sys::fuzz_target!(|input: &[u8]| watched(|| flight(input)));
