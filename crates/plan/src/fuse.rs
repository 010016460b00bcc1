//! Puts pipelines in the place of subtrees of DataFusion's operators.
//!
//! A scan, its filters and projections, the joins it probes and the aggregate at its end become one
//! [pipeline](thalweg_ir): rows go through all of it in batches, and nothing is made of
//! them in between. What the pipelines do not cover stays DataFusion's, above a
//! [`PipelineExec`] or as an input of one.
//!
//! The rule runs last, over the physical plan: its types are resolved, its joins have their sides.
//! What DataFusion adds to run its operators in parallel goes: a pipeline's workers share one queue.
//!
//! * [`compile`]: a subtree to pipelines.
//! * [`expr`]: its expressions.
//! * [`function`]: what the pipelines have no kernel for, as functions they call.
//! * [`windows`]: window functions.
//! * [`grouping`]: which grouping set is computed from which.
//! * [`same`]: which subtrees need not be computed twice.

mod compile;
mod expr;
mod function;
mod grouping;
mod same;
mod windows;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_expr::{Distribution, Partitioning};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::InterleaveExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use thalweg_exec::{Input, PipelineExec, ScanExec};

#[derive(Debug)]
struct Fuse {
    is_wanted: IsWanted,
}

/// Whether a session wants its queries to run on pipelines.
pub type IsWanted = fn(&ConfigOptions) -> bool;

/// Adds the rule to those of a session, after DataFusion's.
pub fn install(builder: SessionStateBuilder, is_wanted: IsWanted) -> SessionStateBuilder {
    builder.with_physical_optimizer_rule(Arc::new(Fuse { is_wanted }))
}

impl PhysicalOptimizerRule for Fuse {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if (self.is_wanted)(config) { fuse(plan, false) } else { Ok(plan) }
    }

    fn name(&self) -> &str {
        "fuse"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `hashed`: somebody above relies on equal keys being in one partition.
fn fuse(plan: Arc<dyn ExecutionPlan>, hashed: bool) -> Result<Arc<dyn ExecutionPlan>> {
    // A projection may have dropped the columns by which rows are partitioned.
    let lost = hashed && partitioned_by_lost_columns(&plan);
    if !lost && let Some(mut compiled) = compile::compile(&plan)? {
        for input in &mut compiled.inputs {
            if let Input::Plan(inner) = input {
                *inner = fuse(Arc::clone(inner), false)?;
            }
        }
        let partitioning = plan.output_partitioning().clone();
        let fused: Arc<dyn ExecutionPlan> = Arc::new(PipelineExec::new(compiled, plan)?);
        return Ok(match partitioning {
            Partitioning::Hash(..) if hashed && partitioning.partition_count() > 1 => {
                Arc::new(RepartitionExec::try_new(fused, partitioning)?)
            }
            _ => fused,
        });
    }
    let wanted = plan.input_distribution_requirements().into_per_child();
    let children: Vec<_> = plan.children().into_iter().cloned().collect();
    if children.is_empty() {
        let scan = plan.downcast_ref::<ScanExec>().map(expr::translated).transpose()?;
        return Ok(scan.flatten().map_or(plan, |scan| Arc::new(scan) as _));
    }
    // Which takes equal keys from the same partition of each child.
    let hashed = (hashed || plan.is::<InterleaveExec>()) && !plan.is::<RepartitionExec>();
    let fused = children.iter().zip(wanted).map(|(child, wanted)| {
        let hashed = hashed || matches!(wanted, Distribution::KeyPartitioned(_));
        fuse(Arc::clone(child), hashed)
    });
    let fused = fused.collect::<Result<Vec<_>>>()?;
    let changed = fused.iter().zip(&children).any(|(a, b)| !Arc::ptr_eq(a, b));
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    if changed { plan.replace_children(fused, options) } else { Ok(plan) }
}

fn partitioned_by_lost_columns(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.output_partitioning() {
        Partitioning::Hash(exprs, count) => {
            *count > 1 && exprs.iter().any(|e| e.is::<UnKnownColumn>())
        }
        _ => false,
    }
}
