//! Aggregates that statistics know are not computed, each of its own rows.
//!
//! DataFusion takes more for known than is. It passes a first phase of an aggregate that has a FILTER, and took
//! that of another aggregate further down for it. It keeps the sum of a constant below a join for the sum
//! above, casts the least and the greatest value of a column whether or not the cast keeps their order, and
//! takes a constant for a value that is there once, also where there are no rows. So it is asked only about
//! aggregates without filters over columns as a table, or a union of tables, has them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;

#[derive(Debug)]
struct KnownAggregates;

/// Puts the rule in the place of DataFusion's.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::in_place_of_execution(KnownAggregates, builder)
}

impl PhysicalOptimizerRule for KnownAggregates {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            if !is_aggregate(&plan) || !plan.children().into_iter().all(is_of_tables) {
                return Ok(Transformed::no(plan));
            }
            let known = AggregateStatistics::new().optimize(plan, config)?;
            Ok(Transformed::new(known, true, TreeNodeRecursion::Jump))
        })
        .data()
    }

    fn name(&self) -> &str {
        "aggregate_statistics"
    }

    fn schema_check(&self) -> bool {
        false
    }
}

fn is_aggregate(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        aggregate.group_expr().is_empty() && aggregate.filter_expr().iter().all(Option::is_none)
    })
}

fn is_first_phase(aggregate: &AggregateExec) -> bool {
    *aggregate.mode() == AggregateMode::Partial
        && aggregate.filter_expr().iter().all(Option::is_none)
}

/// Whether the rows are those of tables, in columns as they are there.
fn is_of_tables(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let columns = plan
        .downcast_ref::<ProjectionExec>()
        .is_some_and(|p| p.expr().iter().all(|column| column.expr.is::<Column>()));
    let passes = columns
        || plan.downcast_ref::<AggregateExec>().is_some_and(is_first_phase)
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<UnionExec>();
    plan.children().is_empty() || passes && plan.children().into_iter().all(is_of_tables)
}
