//! Groups that memory was refused for, in files.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use futures::StreamExt;
use parking_lot::Mutex;
use thalweg_pipeline::aggregate::spill::{PARTS, Sealed, schema};
use thalweg_pipeline::aggregate::{Groups, Merging, Spec};

use super::work_off;
use crate::spill_file::{Part, PartFiles, manager, read};
use thalweg_errors::into_datafusion;
use thalweg_runtime::checkpoint;

/// An aggregation of which workers have given groups away; others may still do so.
pub struct Spilling {
    spec: Arc<Spec>,
    manager: SpillManager,
    files: PartFiles,
}

impl Spilling {
    pub fn new(
        spec: &Arc<Spec>,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Self> {
        let schema = schema(spec).map_err(into_datafusion)?;
        let manager = manager(schema, context, SpillMetrics::new(metrics, 0));
        let files = PartFiles::new(&manager, PARTS, "groups")?;
        Ok(Spilling { spec: Arc::clone(spec), manager, files })
    }

    pub async fn write(&self, sealed: Vec<Sealed>) -> Result<()> {
        for sealed in sealed {
            for (part, piece) in sealed.pieces().map_err(into_datafusion)? {
                self.files.append(part, &piece)?;
                checkpoint().await;
            }
        }
        Ok(())
    }

    /// When all groups are written. `again`: they are read more than once.
    pub fn finish(self, again: bool) -> Result<Spilled> {
        let parts = self.files.finish()?.into_iter().map(Mutex::new).collect();
        Ok(Spilled { spec: self.spec, manager: self.manager, parts, again })
    }
}

/// All groups of an aggregation, in files.
pub struct Spilled {
    spec: Arc<Spec>,
    manager: SpillManager,
    parts: Vec<Mutex<Part>>,
    again: bool,
}

impl Spilled {
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Brings a part back into memory; its file goes, unless it is read again.
    pub async fn load(&self, part: usize, context: &TaskContext) -> Result<Loaded> {
        let memory = MemoryConsumer::new("PipelineExec").with_can_spill(true);
        let memory = memory.register(context.memory_pool());
        let part = match self.again {
            true => self.parts[part].lock().clone(),
            false => self.parts[part].lock().take(),
        };
        let mut pieces = vec![];
        let mut batches = read(&self.manager, part)?;
        while let Some(piece) = batches.next().await {
            let piece = piece?;
            // It cannot be had in a smaller piece.
            memory.grow(get_record_batch_memory_size(&piece));
            pieces.push(piece);
        }
        let merging = Merging::of_pieces(Arc::clone(&self.spec), &pieces);
        let merging = merging.map_err(into_datafusion)?;
        drop(pieces);
        work_off(&merging).await?;
        Ok(Loaded { merging, next: 0, _memory: memory })
    }
}

/// One part in memory, to be merged as it is read.
pub struct Loaded {
    merging: Merging,
    next: usize,
    _memory: MemoryReservation,
}

impl Loaded {
    pub fn next(&mut self) -> Result<Option<Vec<Groups>>> {
        if self.next == self.merging.parts() {
            return Ok(None);
        }
        self.next += 1;
        self.merging.groups(self.next - 1).map(Some).map_err(into_datafusion)
    }
}
