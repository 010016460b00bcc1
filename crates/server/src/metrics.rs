//! What is counted, by the names that `/metrics` shows.

#[derive(Default)]
pub struct Metrics {}
