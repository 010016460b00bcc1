//! Rows of files that other crates decode, in the order of the files, by more than one thread.
//!
//! The files are cut into pieces, one partition for each. Some pieces ahead of the one that is handed
//! out are read beside it, as far as their rows fit into [`AHEAD_BYTES`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use thalweg_runtime::{Beside, checkpoint};

/// Bytes of a file that are read as one piece: at least a row group, or a batch.
const PIECE_BYTES: i64 = 8 << 20;

/// Bytes of rows that wait for their turn, of all pieces together.
const AHEAD_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub struct InOrderExec {
    input: Arc<dyn ExecutionPlan>,
    /// Pieces that are read at once.
    width: usize,
    properties: Arc<PlanProperties>,
}

/// The scan with its rows in the order of its files; `None`: it is none of files.
pub fn in_order(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let scan = plan.downcast_ref::<DataSourceExec>()?;
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    let width = config.file_groups.len();
    if width < 2 {
        return Some(Arc::clone(plan));
    }
    // Row groups are of the piece that they begin in.
    let cut = config.file_source().file_type() == "parquet";
    let files = config.file_groups.iter().flat_map(FileGroup::iter);
    let pieces = files.flat_map(|file| match cut {
        true => pieces(file),
        false => vec![file.clone()],
    });
    let groups: Vec<FileGroup> = pieces.map(|piece| FileGroup::new(vec![piece])).collect();
    let config = FileScanConfigBuilder::from(config.clone())
        .with_file_groups(groups)
        .with_preserve_order(true)
        .with_output_partitioning(None)
        .build();
    let input = DataSourceExec::from_data_source(config);
    Some(Arc::new(InOrderExec::new(input, width)))
}

fn pieces(file: &PartitionedFile) -> Vec<PartitionedFile> {
    let (start, end) = match &file.range {
        Some(range) => (range.start, range.end),
        None => (0, file.object_meta.size as i64),
    };
    let starts = (start..end.max(start + 1)).step_by(PIECE_BYTES as usize);
    let piece = |start: i64| {
        let mut piece = file.clone();
        piece.range = Some(FileRange { start, end: end.min(start + PIECE_BYTES) });
        piece
    };
    starts.map(piece).collect()
}

impl InOrderExec {
    fn new(input: Arc<dyn ExecutionPlan>, width: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        InOrderExec { input, width, properties: Arc::new(properties) }
    }
}

impl DisplayAs for InOrderExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InOrderExec: pieces at once={}", self.width)
    }
}

impl ExecutionPlan for InOrderExec {
    fn name(&self) -> &str {
        "InOrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
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
        Ok(Arc::new(InOrderExec::new(children.swap_remove(0), self.width)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema: SchemaRef = self.schema();
        let rows = Rows {
            input: Arc::clone(&self.input),
            context,
            width: self.width,
            opened: 0,
            pieces: VecDeque::new(),
        };
        let batches = stream::try_unfold(rows, |mut rows| async move {
            let batch = rows.next().await?;
            Ok(batch.map(|batch| (batch, rows)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// A batch, and the room that it takes until it is handed out.
type Waiting = (RecordBatch, OwnedSemaphorePermit);

struct Piece {
    rows: mpsc::UnboundedReceiver<Waiting>,
    task: Beside<Result<()>>,
}

struct Rows {
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    width: usize,
    /// Pieces that were opened so far.
    opened: usize,
    /// Those that have not been handed out, in order.
    pieces: VecDeque<Piece>,
}

impl Rows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let count = self.input.properties().partitioning.partition_count();
            while self.pieces.len() < self.width && self.opened < count {
                self.open();
            }
            let Some(first) = self.pieces.front_mut() else { return Ok(None) };
            if let Some((batch, _)) = first.rows.recv().await {
                return Ok(Some(batch));
            }
            if let Some(first) = self.pieces.pop_front() {
                first.task.join().await??;
            }
        }
    }

    fn open(&mut self) {
        let (input, context, piece) =
            (Arc::clone(&self.input), Arc::clone(&self.context), self.opened);
        // Each has room of its own, so that the first never waits for the others.
        let room = AHEAD_BYTES / self.width;
        let free = Arc::new(Semaphore::new(room));
        let (sender, rows) = mpsc::unbounded_channel();
        let task = Beside::spawn(async move {
            let mut batches = input.execute(piece, context)?;
            while let Some(batch) = batches.next().await {
                let batch = batch?;
                let bytes = batch.get_array_memory_size().min(room);
                let Ok(taken) = Arc::clone(&free).acquire_many_owned(bytes as u32).await else {
                    break;
                };
                // Nobody listens any more once the statement has ended.
                if sender.send((batch, taken)).is_err() {
                    break;
                }
                checkpoint().await;
            }
            Ok(())
        });
        self.pieces.push_back(Piece { rows, task });
        self.opened += 1;
    }
}
