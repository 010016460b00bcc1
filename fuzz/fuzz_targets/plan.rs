//! A plan of pipelines from another process.
#![no_main]

use thalweg_ir::Plan;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(plan) = Plan::from_bytes(input) {
        let bytes = plan.to_bytes().expect("what was read can be written");
        assert_eq!(Plan::from_bytes(&bytes).expect("and read again"), plan);
    }
});
