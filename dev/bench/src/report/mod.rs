//! A benchmark's report in three forms with the same figures: text for the terminal, one HTML
//! page to send on, and the model itself as JSON.

pub mod cancel;
mod chart;
pub mod cold_scan;
pub mod coverage;
pub(crate) mod figures;
pub mod html;
pub mod interleaved;
pub mod latency;
pub mod load_rate;
pub mod memory;
pub mod model;
pub mod out_of_core;
pub mod replay;
#[cfg(test)]
pub(crate) mod sample;
pub mod text;
pub mod throughput;
pub mod variants;
