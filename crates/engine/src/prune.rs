//! Which chunks of a table can hold a row that passes a predicate, from the catalog alone.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use thalweg_storage::Table;

/// One flag per chunk of `table`: false where the statistics prove that no row passes.
/// `predicate` refers to columns by the table's own schema. A predicate that statistics say
/// nothing about keeps everything.
pub fn chunks_kept(table: &Table, predicate: &Arc<dyn PhysicalExpr>) -> Vec<bool> {
    let all = || vec![true; table.chunks()];
    let built = PruningPredicateBuilder::new()
        .with_file_schema(Arc::clone(&table.arrow_schema))
        .try_build(Arc::clone(predicate));
    match built {
        // An expression the analysis cannot rewrite is no reason to fail a query that can run.
        Ok(pruning) if !pruning.always_true() => {
            pruning.prune(&Chunks { table }).unwrap_or_else(|_| all())
        }
        _ => all(),
    }
}

/// The chunks of a table as DataFusion's "containers".
struct Chunks<'a> {
    table: &'a Table,
}

impl Chunks<'_> {
    fn column(&self, column: &Column) -> Option<usize> {
        self.table.arrow_schema.index_of(&column.name).ok()
    }
}

impl PruningStatistics for Chunks<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::clone(&self.table.chunk_statistics(self.column(column)?).mins))
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::clone(&self.table.chunk_statistics(self.column(column)?).maxs))
    }

    fn num_containers(&self) -> usize {
        self.table.chunks()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::new(self.table.chunk_statistics(self.column(column)?).nulls.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        // Every column has the same rows; a table without columns does not exist.
        Some(Arc::new(self.table.chunk_statistics(0).rows.clone()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// `lit` for tests and estimates: the single value of a one-row array.
pub fn scalar(array: &dyn Array) -> Result<ScalarValue> {
    ScalarValue::try_from_array(array, 0)
}
