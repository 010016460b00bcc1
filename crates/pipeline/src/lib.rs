//! The execution core: pipelines over Arrow arrays.

pub mod aggregate;
pub mod encoding;
pub mod table;
