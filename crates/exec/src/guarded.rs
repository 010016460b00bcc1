//! Scans of files by decoders of other crates, which do not check every length in a damaged file before
//! they slice by it: their panic is an error of the file here, and prints nothing.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};
use thalweg_base::text::quoted;
use thalweg_base::{Error, quiet};
use thalweg_storage::load::with_null_keys;

use thalweg_errors::into_datafusion;

/// Puts a [`GuardedExec`] over every scan of files.
pub fn guard(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        let source = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
        let Some(config) = source.and_then(|s| s.downcast_ref::<FileScanConfig>()) else {
            return Ok(Transformed::no(plan));
        };
        let files = config.file_groups.iter().flat_map(|group| group.iter());
        let files: Vec<String> =
            files.map(|file| format!("/{}", file.object_meta.location)).collect();
        let name = match &files[..] {
            [first, others @ ..] if others.iter().all(|other| other == first) => first.clone(),
            [first, ..] => format!("{first}, …"),
            [] => String::new(),
        };
        Ok(Transformed::yes(Arc::new(GuardedExec { input: plan, name: name.into() }) as _))
    })
    .map(|guarded| guarded.data)
}

/// What becomes of a future over a file.
pub async fn guarded<T>(path: &Path, future: impl Future<Output = Result<T>>) -> Result<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match quiet::caught(|| future.as_mut().poll(cx)) {
        Ok(polled) => polled,
        Err(_) => Poll::Ready(Err(damaged(&path.to_string_lossy()))),
    })
    .await
}

fn damaged(name: &str) -> datafusion::common::DataFusionError {
    let error = Error::user(format!(
        "file {} is damaged: its lengths and offsets contradict each other",
        quoted(name)
    ));
    into_datafusion(error.hint("check that it was copied completely, or write it again"))
}

#[derive(Debug)]
struct GuardedExec {
    input: Arc<dyn ExecutionPlan>,
    /// The files, for people.
    name: Arc<str>,
}

impl DisplayAs for GuardedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuardedExec")
    }
}

impl ExecutionPlan for GuardedExec {
    fn name(&self) -> &str {
        "GuardedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let name = Arc::clone(&self.name);
        Ok(Arc::new(GuardedExec { input: children.swap_remove(0), name }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let inner = self.input.execute(partition, context)?;
        let schema = inner.schema();
        Ok(Box::pin(Guarded { inner: Some(inner), schema, name: Arc::clone(&self.name) }))
    }
}

struct Guarded {
    /// `None` once it has panicked: it is in an unknown state then.
    inner: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    name: Arc<str>,
}

impl Stream for Guarded {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        match quiet::caught(|| inner.poll_next_unpin(cx)) {
            Ok(Poll::Ready(Some(Ok(batch)))) => {
                Poll::Ready(Some(with_null_keys(&batch).map_err(Into::into)))
            }
            Ok(polled) => polled,
            Err(_) => {
                self.inner = None;
                Poll::Ready(Some(Err(damaged(&self.name))))
            }
        }
    }
}

impl RecordBatchStream for Guarded {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
