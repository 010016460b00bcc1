//! Rows in order.

use arrow_schema::{DataType, SortOptions};
use serde::{Deserialize, Serialize};

use crate::written;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spec {
    /// Logical types of the keys, and their order.
    #[serde(with = "written::sort_keys")]
    pub keys: Vec<(DataType, SortOptions)>,
    /// Logical types of what is sorted.
    #[serde(with = "written::data_types")]
    pub payload_types: Vec<DataType>,
    /// How many rows are asked for; `None`: all.
    pub fetch: Option<usize>,
    /// Rows with equal values of so many leading keys come in one batch, unless they are more than
    /// one should have.
    pub together: usize,
}
