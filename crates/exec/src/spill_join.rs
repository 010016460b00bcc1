//! Hash joins that go on when memory does not suffice.
//!
//! DataFusion's hash join reads its build side (the left input) into memory and fails if that is
//! refused. Here the build side is collected first. If there is memory for it, the join gets it and
//! runs as ever. If not, both inputs are split by a hash of the join keys into files, and the files
//! are joined pair by pair, each pair like a small join of its own (a Grace hash join, after
//! Kitsuregawa, Tanaka and Moto-oka, 1983):
//!
//! ```text
//!   left  ─ hash of keys ─┬─ part 0 ─┐             each pair: left part in memory, right
//!                         ├─ part 1 ─┼─┐           part streams past it; a left part too
//!                         └─ …       │ │           large is split again, by another hash
//!   right ─ hash of keys ─┬─ part 0 ─┘ │
//!                         ├─ part 1 ───┘
//!                         └─ …
//! ```
//!
//! A row and its matches have the same keys, so they are in one pair; that holds for every type of
//! join and any filter. Who joins which pairs:
//!
//! | the join | its outputs |
//! |---|---|
//! | both inputs partitioned | each decides, splits and joins for itself |
//! | one build side for all outputs | take pairs from one list; rows of no output are in a fixed place |
//! | the same, but the outputs keep the partitions of the probe side | each splits its own probe rows and joins them with every left part |
//!
//! A dynamic filter gets nothing from a build side on disk and lets the rows of its partition pass.
//!
//! * [`build`]: collects a build side, and accounts for its memory.
//! * [`sides`]: the rows of each side to files.
//! * [`execution`]: the outputs.
//! * [`handover`]: what takes the place of a running join's inputs.

mod build;
mod execution;
mod handover;
mod sides;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet, SpillMetrics};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use thalweg_base::limits::{JOIN_PARTS, JOIN_SPILL_BUFFER_BYTES, JOIN_SPLITS_MAX};

use execution::Execution;

/// Puts a [`SpillJoinExec`] in the place of every hash join that can spill. Pairs lose the order of
/// rows: those of a join that has its probe side sorted for that of its own are sorted after it
/// instead, and any other join that gives its rows in an order cannot spill. Nor can `NOT IN`, which
/// asks whether there is a NULL anywhere.
pub fn spill_joins(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
            return Ok(Transformed::no(plan));
        };
        let sorted = join.right().downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_none());
        let order = join.properties().output_ordering();
        if order.is_some() && sorted.is_none()
            || join.null_aware
            || *join.partition_mode() == PartitionMode::Auto
        {
            return Ok(Transformed::no(plan));
        }
        let spilling = |join| Arc::new(SpillJoinExec::new(join, Bounds::default()));
        Ok(Transformed::yes(match (order, sorted) {
            (Some(order), Some(sorted)) => {
                let inputs = vec![Arc::clone(join.left()), Arc::clone(sorted.input())];
                let unsorted = join.builder().with_new_children(inputs)?.recompute_properties();
                let sort = SortExec::new(order.clone(), spilling(unsorted.build()?));
                Arc::new(sort.with_preserve_partitioning(true))
            }
            _ => spilling(join.builder().build()?),
        }))
    })
    .data()
}

/// Of the files; smaller in tests.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    parts: usize,
    splits: usize,
    buffer_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { parts: JOIN_PARTS, splits: JOIN_SPLITS_MAX, buffer_bytes: JOIN_SPILL_BUFFER_BYTES }
    }
}

/// A [`HashJoinExec`] that can spill, displayed as that.
pub struct SpillJoinExec {
    /// Never executed itself.
    join: HashJoinExec,
    bounds: Bounds,
    state: Arc<Mutex<State>>,
    metrics: ExecutionPlanMetricsSet,
}

#[derive(Default)]
struct State {
    execution: Option<Arc<Execution>>,
    /// Of executions that are over.
    metrics: MetricsSet,
}

impl SpillJoinExec {
    fn new(join: HashJoinExec, bounds: Bounds) -> Self {
        SpillJoinExec {
            join,
            bounds,
            state: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn rebuilt(&self, builder: HashJoinExecBuilder) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(SpillJoinExec::new(builder.build()?, self.bounds)))
    }
}

impl fmt::Debug for SpillJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillJoinExec").field("join", &self.join).finish_non_exhaustive()
    }
}

impl DisplayAs for SpillJoinExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.join.fmt_as(t, f)
    }
}

impl ExecutionPlan for SpillJoinExec {
    fn name(&self) -> &str {
        "SpillJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.join.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.join.apply_expressions(f)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.join.dynamic_expressions_produced()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut builder = self.join.builder();
        if matches!(options.children_properties, ChildrenPropertiesMode::Recompute) {
            builder = builder.recompute_properties();
        }
        self.rebuilt(builder.with_new_children(children)?)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.rebuilt(self.join.builder().reset_state())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut state = self.state.lock();
        let execution = match &state.execution {
            Some(execution) => Arc::clone(execution),
            None => {
                let spills = SpillMetrics::new(&self.metrics, 0);
                let new = Execution::new(&self.join, &context, spills, self.bounds)?;
                Arc::clone(state.execution.insert(new))
            }
        };
        drop(state);
        let rows = execution.output(partition)?;
        let finish = Finish { state: Arc::clone(&self.state), execution, partition };
        // Dropped as soon as there are no more rows, or with the stream.
        let finish = stream::once(async move { drop(finish) }).filter_map(async |()| None);
        let stream = rows.chain(finish);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let state = self.state.lock();
        let running = state.execution.as_ref().map(|e| e.metrics()).unwrap_or_default();
        let mut metrics = self.metrics.clone_inner();
        for metric in state.metrics.iter().chain(running.iter()) {
            metrics.push(Arc::clone(metric));
        }
        Some(metrics)
    }
}

/// One output of an execution. The last to end drops what they shared: DataFusion keeps the table
/// of a join until its plan is dropped, with the whole query.
struct Finish {
    state: Arc<Mutex<State>>,
    execution: Arc<Execution>,
    partition: usize,
}

impl Drop for Finish {
    fn drop(&mut self) {
        if !self.execution.finish(self.partition) {
            return;
        }
        let mut state = self.state.lock();
        let ended = state.execution.take_if(|e| Arc::ptr_eq(e, &self.execution));
        if let Some(execution) = &ended {
            for metric in execution.metrics().iter() {
                state.metrics.push(Arc::clone(metric));
            }
        }
        drop(state);
    }
}
