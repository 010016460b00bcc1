//! The execution core: pipelines over Arrow arrays.

pub mod encoding;
pub mod table;
pub mod aggregate;
