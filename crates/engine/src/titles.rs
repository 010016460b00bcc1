//! What the columns of a result are called.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;

/// What the columns of a result are called, where that is not what the plan calls them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Titles(Option<Arc<[String]>>);

impl Titles {
    pub fn new(plan: &LogicalPlan, titles: Vec<String>) -> Self {
        let fields = plan.schema().fields();
        let same = fields.iter().zip(&titles).all(|(f, t)| f.name() == t);
        Titles((!same).then(|| titles.into()))
    }

    /// The titles, unless they are the names that the plan has.
    pub fn changed(&self) -> Option<&[String]> {
        self.0.as_deref()
    }

    /// A schema of the plan under these titles.
    pub fn schema(&self, schema: SchemaRef) -> SchemaRef {
        let Some(titles) = &self.0 else { return schema };
        let fields = schema.fields().iter().zip(titles.iter());
        let fields = fields.map(|(f, title)| f.as_ref().clone().with_name(title));
        let fields: Vec<_> = fields.collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }

    /// Rows of the plan under these titles.
    pub fn batch(&self, batch: RecordBatch) -> RecordBatch {
        if self.0.is_none() {
            return batch;
        }
        let schema = self.schema(batch.schema());
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(schema, batch.columns().to_vec(), &options)
            .expect("only names differ")
    }
}
