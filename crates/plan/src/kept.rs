//! Plans whose rows that [stand in it more than once](thalweg_bind::kept) are computed once.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Result, internal_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use parking_lot::Mutex;
use thalweg_bind::kept::Kept;
use thalweg_exec::{Keeping, KeptExec};

/// Plans as DataFusion does, and such rows as well.
#[derive(Debug)]
struct Planner;

pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    builder.with_query_planner(Arc::new(Planner))
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let places = Arc::new(Places::default());
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![places]);
        planner.create_physical_plan(plan, session).await
    }
}

/// The places of one plan, by the numbers of their rows.
#[derive(Default)]
struct Places(Mutex<HashMap<u64, Arc<Keeping>>>);

#[async_trait]
impl ExtensionPlanner for Places {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(kept) = node.as_any().downcast_ref::<Kept>() else { return Ok(None) };
        let [input] = inputs else { return internal_err!("rows that are kept have an input") };
        let keeping = Arc::clone(self.0.lock().entry(kept.number).or_default());
        let partitions = session.config().target_partitions();
        let rows = KeptExec::new(kept.number, Arc::clone(input), keeping, partitions);
        Ok(Some(Arc::new(rows)))
    }
}
