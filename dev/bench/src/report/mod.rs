//! A benchmark's report in three forms with the same figures: text for the terminal, one HTML
//! page to send on, and the model itself as JSON.

mod chart;
pub mod cold_scan;
pub(crate) mod figures;
pub mod html;
pub mod latency;
pub mod load_rate;
pub mod model;
#[cfg(test)]
mod sample;
pub mod text;
