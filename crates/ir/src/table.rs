//! The build side of a hash join: rows found by their keys.

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use crate::written;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spec {
    /// Logical types.
    #[serde(with = "written::data_types")]
    pub key_types: Vec<DataType>,
    /// Logical types.
    #[serde(with = "written::data_types")]
    pub payload_types: Vec<DataType>,
    /// NULL matches NULL.
    pub nulls_equal: bool,
    /// Rows with a NULL in a key are kept as rows, for left, full and anti joins, even where they
    /// match nothing.
    pub keep_null_keys: bool,
}
