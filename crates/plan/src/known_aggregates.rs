//! Aggregates that statistics know are not computed, each of its own rows.
//!
//! For an aggregate in two phases DataFusion looks below the last phase for the first. It passes a first
//! phase that has a FILTER, and took that of another aggregate further down for it: `max(c) FILTER (WHERE c >
//! 1000)` of a `SELECT max(b) AS c` was the greatest `b`. Plans with such a phase are left alone.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

#[derive(Debug)]
struct KnownAggregates;

/// Puts the rule in the place of DataFusion's.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    super::in_place_of_execution(KnownAggregates, builder)
}

impl PhysicalOptimizerRule for KnownAggregates {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut filters = false;
        plan.apply(|plan| {
            filters |= plan.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
                aggregate.group_expr().is_empty()
                    && aggregate.filter_expr().iter().any(Option::is_some)
            });
            Ok(if filters { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if filters { Ok(plan) } else { AggregateStatistics::new().optimize(plan, config) }
    }

    fn name(&self) -> &str {
        "aggregate_statistics"
    }

    fn schema_check(&self) -> bool {
        false
    }
}
