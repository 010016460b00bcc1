//! Plans whose rows that [stand in it more than once](thalweg_bind::kept) are computed once.
//!
//! Each place asks for some of these rows in a filter of its own above them. A row that no place asks for
//! need not be computed: where one place asks for `month = 1` and the other for `month = 2`, it is `month = 1
//! OR month = 2` that goes below. It goes there as a filter, and as far down as any filter does. As all places
//! have the same filter then, each still sees the same rows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result, internal_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::{conjunction, disjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Extension, Filter, LogicalPlan, UserDefinedLogicalNode};
use datafusion::optimizer::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use parking_lot::Mutex;
use thalweg_bind::kept::{Kept, as_kept};
use thalweg_exec::{Keeping, KeptExec};

use super::push_down::is_plain;

/// Plans as DataFusion does, and such rows as well.
#[derive(Debug)]
struct Planner;

pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    // Right behind the rule that puts filters above the rows.
    let builder =
        crate::rules::add_before("single_distinct_aggregation_to_group_by", Narrow, builder);
    builder.with_query_planner(Arc::new(Planner))
}

/// Leaves out rows that no place asks for.
#[derive(Debug)]
struct Narrow;

impl OptimizerRule for Narrow {
    fn name(&self) -> &str {
        "narrow_kept_rows"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let wanted = wanted(&plan)?;
        if wanted.is_empty() {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up_with_subqueries(|node| {
            let Some(kept) = as_kept(&node) else { return Ok(Transformed::no(node)) };
            let Some(condition) = wanted.get(&kept.number) else {
                return Ok(Transformed::no(node));
            };
            let filter = Filter::try_new(condition.clone(), Arc::new(kept.input.clone()))?;
            let input = LogicalPlan::Filter(filter);
            let kept = Kept { number: kept.number, input, narrowed: true };
            Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(kept) })))
        })
    }
}

/// Of the rows of each number what some place asks of them, where every place asks for some.
fn wanted(plan: &LogicalPlan) -> Result<BTreeMap<u64, Expr>> {
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    let mut filters: BTreeMap<u64, Vec<Vec<Expr>>> = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let Some(kept) = as_kept(node).filter(|kept| !kept.narrowed) {
            *places.entry(kept.number).or_default() += 1;
        }
        if let LogicalPlan::Filter(filter) = node
            && let Some(kept) = as_kept(&filter.input)
        {
            let conditions = split_conjunction(&filter.predicate).into_iter();
            let plain = conditions.filter(|c| is_plain(c)).cloned().collect();
            filters.entry(kept.number).or_default().push(plain);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let wanted = places.into_iter().filter_map(|(number, places)| {
        let filters = filters.remove(&number).filter(|filters| filters.len() == places)?;
        Some((number, any_of(&filters)?))
    });
    Ok(wanted.collect())
}

/// What holds of a row for which the conditions of one place, or of another, hold; `None`: nothing need. What
/// names one column only is also asked by itself: it may go further down than what names others as well.
fn any_of(places: &[Vec<Expr>]) -> Option<Expr> {
    let of_column = |conditions: &[Expr], column: &Column| {
        let own = conditions.iter().filter(|c| {
            let columns = c.column_refs();
            columns.len() == 1 && columns.contains(column)
        });
        own.cloned().collect::<Vec<_>>()
    };
    let mut columns: Vec<&Column> = places.first()?.iter().flat_map(Expr::column_refs).collect();
    columns.sort_unstable();
    columns.dedup();
    let by_column = columns.into_iter().map(|column| {
        places.iter().map(|conditions| of_column(conditions, column)).collect::<Vec<_>>()
    });
    let mut parts: Vec<Expr> = by_column.filter_map(|places| either(&places)).collect();
    let all_of_one = |conditions: &Vec<Expr>| {
        let mut columns = conditions.iter().map(Expr::column_refs);
        let first = columns.next();
        first.is_some_and(|first| first.len() == 1 && columns.all(|other| other == first))
    };
    if parts.len() != 1 || !places.iter().all(all_of_one) {
        parts.extend(either(places));
    }
    conjunction(parts)
}

/// The conditions of one place or of another; `None`: some place has none.
fn either(places: &[Vec<Expr>]) -> Option<Expr> {
    let mut alternatives: Vec<Expr> = vec![];
    for conditions in places {
        let alternative = conjunction(conditions.iter().cloned())?;
        if !alternatives.contains(&alternative) {
            alternatives.push(alternative);
        }
    }
    disjunction(alternatives)
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

/// What the places of one plan have in common, by the numbers of their rows, and the numbers by which they
/// are shown: these begin anew in each plan.
#[derive(Default)]
struct Places(Mutex<HashMap<u64, (usize, Arc<Keeping>)>>);

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
        let (number, keeping) = {
            let mut places = self.0.lock();
            let before = places.len();
            places.entry(kept.number).or_insert_with(|| (before, Arc::default())).clone()
        };
        let partitions = session.config().target_partitions();
        let rows = KeptExec::new(number, Arc::clone(input), keeping, partitions);
        Ok(Some(Arc::new(rows)))
    }
}
