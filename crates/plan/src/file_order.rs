//! Rows of files that go to who asked as they are, or without some of them, go in the order of the
//! files. SQL does not ask for that; everyone who looks at a file expects it, and the same rows at each
//! time. What groups, joins or sorts rows takes them in any order, from all partitions of a scan.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, Partitioning, ReplaceChildrenOptions,
};

use thalweg_exec::{self, FileScanExec};

use super::lost_constants::SecretiveExec;

/// Adds the rule behind those that decide how many partitions there are.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    rules.push(Arc::new(FileOrder));
    builder.with_physical_optimizer_rules(rules)
}

#[derive(Debug)]
struct FileOrder;

impl PhysicalOptimizerRule for FileOrder {
    fn name(&self) -> &str {
        "file_order"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(in_order(&plan)?.unwrap_or(plan))
    }
}

/// The plan whose rows come in the order of the files that they are of; `None`: they are of no file, or
/// have an order of their own.
fn in_order(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<FileScanExec>() {
        return Ok(Some(Arc::new(scan.in_order()?)));
    }
    if let Some(scan) = thalweg_exec::in_order(plan) {
        return Ok(Some(scan));
    }
    let [input] = plan.children()[..] else { return Ok(None) };
    let dealt = plan.downcast_ref::<RepartitionExec>();
    let dealt = dealt.is_some_and(|r| matches!(r.partitioning(), Partitioning::RoundRobinBatch(_)));
    let keeps = plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<SecretiveExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>();
    if !keeps && !dealt {
        return Ok(None);
    }
    match in_order(input)? {
        Some(input) if dealt => Ok(Some(input)),
        Some(input) => {
            let mode = ChildrenPropertiesMode::Recompute;
            let options = ReplaceChildrenOptions::new(mode);
            Arc::clone(plan).replace_children(vec![input], options).map(Some)
        }
        None => Ok(None),
    }
}
