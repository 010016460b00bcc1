//! Whether a key is in the table of a join, as an expression: what skips chunks asks it of the
//! values that a chunk may have.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use thalweg_pipeline::table::{NONE, Scratch};
use thalweg_pipeline::worker::BuiltTable;

use thalweg_errors::into_datafusion;

#[derive(Clone)]
pub struct Found {
    pub key: Arc<dyn PhysicalExpr>,
    /// Of one key.
    pub table: Arc<BuiltTable>,
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.key.eq(&other.key) && Arc::ptr_eq(&self.table, &other.table)
    }
}

impl Eq for Found {}

impl Hash for Found {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is in a table of {} rows", self.key, self.table.table.rows())
    }
}

impl PhysicalExpr for Found {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let rows = batch.num_rows();
        let keys = self.key.evaluate(batch)?.into_array(rows)?;
        let mut found = Vec::new();
        let table = &self.table.table;
        let looked_up = table.lookup(&[keys], rows, &mut Scratch::default(), &mut found);
        looked_up.map_err(into_datafusion)?;
        let found = BooleanBuffer::collect_bool(rows, |i| found[i] != NONE);
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(found))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.key]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Found { key: children.swap_remove(0), table: Arc::clone(&self.table) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
