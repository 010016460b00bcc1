//! Runs pipelines in the place of a subtree of DataFusion's operators.
//!
//! The pipelines run one after the other, or some that build tables at the same time, each by as many
//! tasks as there are slots and morsels.
//! What they hold is reserved; if that is refused, groups, tables and rows to be sorted go to files. For
//! windows the pipelines are given up for the subtree they stand for, whose operators spill. That is
//! possible as long as no row has been handed out, and until then memory is all that is asked for: a
//! pipeline that hands rows out holds nothing but the tables it probes.
//!
//! * [`execution`]: the tasks.
//! * [`source`]: where their morsels come from; [`found`]: what lets them skip chunks.
//! * [`output`]: where rows go that no sink keeps.
//! * [`spill`]: groups and tables in files.
//! * [`figures`]: what `EXPLAIN ANALYZE` shows of each.

mod execution;
mod figures;
mod found;
mod output;
mod source;
mod spill;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions, StatisticsArgs, StatisticsContext,
};
use parking_lot::Mutex;
use thalweg_ir::Source;
use thalweg_pipeline::prepared::{Plan, prepare};

use crate::ScanExec;
use crate::again::again;
use crate::compiled::{Compiled, Input, SubqueryValue};
use execution::Execution;
pub use figures::MemoryBandwidth;
use thalweg_errors::into_datafusion;

pub struct PipelineExec {
    /// What the pipelines compute.
    ir: Arc<thalweg_ir::Plan>,
    /// The same, ready to be run.
    plan: Arc<Plan>,
    inputs: Vec<Input>,
    /// Of scalar subqueries: in containers that the expressions of every copy hold.
    values: Arc<[SubqueryValue]>,
    /// What the pipelines stand for.
    original: Arc<dyn ExecutionPlan>,
    /// One [`StageExec`] per pipeline, to be shown.
    stages: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    /// Common to all partitions; made by the first to be executed.
    execution: Mutex<Option<Arc<Execution>>>,
    /// For partitions that are executed a second time.
    anew: Mutex<Option<Box<PipelineExec>>>,
    metrics: ExecutionPlanMetricsSet,
}

impl PipelineExec {
    /// `original` is what was compiled.
    pub fn new(compiled: Compiled, original: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let Compiled { plan: ir, mut callees, inputs, values } = compiled;
        for value in &values {
            callees.subqueries.insert(value.sink, Arc::new(value.clone()));
        }
        let plan = prepare(&ir, &callees).map_err(into_datafusion)?;
        let properties = PlanProperties::new(
            original.equivalence_properties().clone(),
            Partitioning::UnknownPartitioning(original.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let plan = Arc::new(plan);
        let stages = (0..plan.pipelines.len()).map(|n| StageExec::new(&plan, n, &inputs, &values));
        Ok(PipelineExec {
            stages: stages.map(|s| Arc::new(s) as _).collect(),
            ir: Arc::new(ir),
            plan,
            inputs,
            values: values.into(),
            original,
            properties: Arc::new(properties),
            execution: Mutex::default(),
            anew: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// What `EXPLAIN ANALYZE` shows of each pipeline.
    fn stage_metrics(&self) -> Vec<ExecutionPlanMetricsSet> {
        let stages = self.stages.iter().filter_map(|s| s.downcast_ref::<StageExec>());
        stages.map(|s| s.metrics.clone()).collect()
    }

    /// What the pipelines compute.
    pub fn ir(&self) -> &thalweg_ir::Plan {
        &self.ir
    }

    /// The operators that the pipelines stand for.
    pub fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.original
    }

    pub fn has_subqueries(&self) -> bool {
        !self.values.is_empty()
    }

    fn with_stages(&self, stages: Vec<Arc<dyn ExecutionPlan>>) -> Result<Self> {
        let mut inputs = self.inputs.clone();
        for stage in &stages {
            let Some(stage) = stage.downcast_ref::<StageExec>() else {
                return internal_err!("a pipeline's place was taken by {}", stage.name());
            };
            if let (Some(input), Some(number)) = (&stage.input, stage.number) {
                inputs[number] = match ScanExec::of_chunks(input) {
                    // With the same figures.
                    Some(scan) => Input::Scan(Arc::new(scan.hinted(&[])?)),
                    None => Input::Plan(Arc::clone(input)),
                };
            }
        }
        Ok(PipelineExec {
            ir: Arc::clone(&self.ir),
            plan: Arc::clone(&self.plan),
            inputs,
            values: Arc::clone(&self.values),
            original: Arc::clone(&self.original),
            stages,
            properties: Arc::clone(&self.properties),
            execution: Mutex::default(),
            anew: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl fmt::Debug for PipelineExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipelineExec({:?})", self.ir)
    }
}

impl DisplayAs for PipelineExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::TreeRender => Ok(()),
            DisplayFormatType::Verbose => {
                let (pipelines, opaque) = (self.stages.len(), self.ir.opaque());
                write!(f, "PipelineExec: pipelines={pipelines}, opaque={opaque}")
            }
            DisplayFormatType::Default => {
                write!(f, "PipelineExec: pipelines={}", self.stages.len())
            }
        }
    }
}

impl ExecutionPlan for PipelineExec {
    fn name(&self) -> &str {
        "PipelineExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.stages.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        stages: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_stages(stages)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        stages: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_stages(stages)?))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.values.iter().for_each(SubqueryValue::clear);
        Ok(Arc::new(self.with_stages(self.stages.clone())?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let execution = {
            let mut execution = self.execution.lock();
            match &*execution {
                Some(execution) => Arc::clone(execution),
                None => Arc::clone(execution.insert(Execution::new(self, Arc::clone(&context))?)),
            }
        };
        match execution.output(partition) {
            Some(rows) => Ok(rows),
            // An operator that was refused memory reads its input once more from the beginning.
            None => {
                let mut anew = self.anew.lock();
                let anew = match &*anew {
                    Some(anew) => anew,
                    None => {
                        let stages = self.stages.iter().map(again).collect::<Result<_>>()?;
                        anew.insert(Box::new(self.with_stages(stages)?))
                    }
                };
                anew.execute(partition, context)
            }
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        StatisticsContext::new().compute(self.original.as_ref(), args)
    }
}

/// One pipeline, to be shown: it is run by the [`PipelineExec`] above it.
pub struct StageExec {
    text: String,
    /// Of the plan's sources, if it is none of ours.
    number: Option<usize>,
    input: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl StageExec {
    fn new(plan: &Plan, n: usize, inputs: &[Input], values: &[SubqueryValue]) -> Self {
        let pipeline = &plan.pipelines[n];
        let number = match pipeline.source {
            Source::External(number) => Some(number),
            _ => None,
        };
        let input = number.map(|number| inputs[number].plan());
        let mut text = String::new();
        if number.is_none() {
            text += &format!("{} → ", pipeline.source);
        }
        for step in &pipeline.steps {
            text += &format!("{} → ", step.describe(&pipeline.names));
        }
        text += &match values.iter().any(|value| value.sink == pipeline.sink) {
            true => format!("scalar subquery #{}", pipeline.sink),
            false => format!("{} #{}", plan.sinks[pipeline.sink], pipeline.sink),
        };
        let schema: SchemaRef = match &input {
            Some(input) => input.schema(),
            None => Arc::new(arrow::datatypes::Schema::empty()),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        StageExec {
            text,
            number,
            input,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn with_input(&self, input: Option<Arc<dyn ExecutionPlan>>) -> Self {
        StageExec {
            text: self.text.clone(),
            number: self.number,
            input,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl fmt::Debug for StageExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StageExec({})", self.text)
    }
}

impl DisplayAs for StageExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipeline: {}", self.text)
    }
}

impl ExecutionPlan for StageExec {
    fn name(&self) -> &str {
        "Pipeline"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.input.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_input(inputs.pop())))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_input(inputs.pop())))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_input(self.input.clone())))
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("a pipeline runs only within its plan")
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }
}
