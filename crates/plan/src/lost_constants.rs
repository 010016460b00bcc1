//! What is one value below an outer join or in a set of groups is not above.
//!
//! ```text
//! SortExec: c, v                   all rows of x have c = 1, others have a NULL
//!   HashJoinExec: Right
//!     ProjectionExec: 1 as c
//!     …
//! ```
//!
//! DataFusion takes a column that is constant below for constant above, and columns that are equal for
//! equal, and drops sort keys that are so. But an outer join adds rows with NULLs to a side, and the
//! groups of a ROLLUP have NULLs in the columns that they are not grouped by. And of the parts of a UNION
//! each has a constant of its own: without that sort key, the filter that a top-k learns from one part
//! drops rows of another. While the rule runs that
//! places sorts, such inputs stand below an operator that keeps to itself what it knows of its rows.
//!
//! There is more that DataFusion concludes and that is not so:
//!
//! * **Filters**: `g / 10 = 3` and `ts::date = DATE '…'` leave many values of a column, and not one.
//! * **Computed columns**: `ts::time` has not the order of `ts`, and `a > b` and `a OR NULL` not that of their
//!   NULLs. So nothing is said of the order of a computed column, and an operator that wants rows in the order
//!   of something computed is told nothing of the order that they have.
//! * **Joins** of two sides in order: rows of one are followed by their matches in order, but several rows of
//!   one key each begin anew.
//! * **Groups**: what they are grouped by is unique, but DataFusion keeps that at the place of the first
//!   columns, which a projection may have given to others: rows in the order of `n`, taken for unique, needed
//!   no sort by `n, d`. The uniqueness of groups is of use where rows are ordered twice, and there it is hidden.
//! * **Totals over windows**: `max(a) OVER (ORDER BY a …)` grows with its rows, but frames without rows give
//!   NULL, which stands first among them and last in the order that is asked for.
//!
//! The operator stays where the plan would be wrong without it, because DataFusion's operators ask their
//! inputs again whenever a later rule changes them: an aggregate by a column that is no constant would end a
//! group wherever its values change. Pipelines rely on none of this, and leave the operator out.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Constraints, JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions, Statistics, StatisticsArgs,
};

/// Adds the two rules to those of a session, around DataFusion's for sorts.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    if let Some(place) = rules.iter().position(|r| r.name() == "EnsureRequirements") {
        rules.insert(place + 1, Arc::new(LostConstants::Unfence));
        rules.insert(place, Arc::new(LostConstants::Fence));
    }
    builder.with_physical_optimizer_rules(rules)
}

#[derive(Debug)]
enum LostConstants {
    Fence,
    Unfence,
}

impl PhysicalOptimizerRule for LostConstants {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            LostConstants::Fence => keyless(&plan, 0)?.transform_up(fenced),
            LostConstants::Unfence => {
                plan.transform_up(|plan| match plan.downcast_ref::<SecretiveExec>() {
                    Some(fence) if !fence.is_needed() => {
                        Ok(Transformed::yes(Arc::clone(&fence.input)))
                    }
                    _ => Ok(Transformed::no(plan)),
                })
            }
        }
        .data()
    }

    fn name(&self) -> &str {
        match self {
            LostConstants::Fence => "fence_constants",
            LostConstants::Unfence => "unfence_constants",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// With fences above the groups that two operators above want to be ordered. `orders` is how many have been
/// met on the way from the root.
fn keyless(plan: &Arc<dyn ExecutionPlan>, orders: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let is_order = plan.is::<SortExec>()
        || !plan.is::<OutputRequirementExec>()
            && !plan.is::<GlobalLimitExec>()
            && plan.required_input_ordering().iter().any(Option::is_some);
    let orders = orders + usize::from(is_order);
    let mut children = vec![];
    let mut changed = false;
    for child in plan.children() {
        let made = keyless(child, orders)?;
        changed |= !Arc::ptr_eq(&made, child);
        children.push(made);
    }
    let plan = if changed { with_children(Arc::clone(plan), children)? } else { Arc::clone(plan) };
    let is_groups =
        plan.downcast_ref::<AggregateExec>().is_some_and(|a| *a.mode() != AggregateMode::Partial);
    let has_keys = !plan.equivalence_properties().constraints().is_empty();
    Ok(match orders > 1 && is_groups && has_keys {
        true => SecretiveExec::around(plan, Hides::Keys),
        false => plan,
    })
}

/// With fences above operators of which DataFusion says what is not so, and below those that would believe it.
fn fenced(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if plan.is::<FilterExec>() || computes_over_order(&plan) {
        return Ok(Transformed::yes(SecretiveExec::around(plan, Hides::Derived)));
    }
    if wants_computed_order(&plan) && plan.children().into_iter().any(may_be_ordered) {
        let children = plan.children().into_iter().map(Arc::clone);
        let children = children.map(|child| SecretiveExec::around(child, Hides::Order)).collect();
        return joins_fenced(with_children(plan, children)?).map(Transformed::yes);
    }
    let is_join = is_equality_join(&plan);
    let fenced = joins_fenced(plan)?;
    Ok(Transformed::yes(match is_join && fenced.children().into_iter().all(may_be_ordered) {
        true => SecretiveExec::around(fenced, Hides::Order),
        false => fenced,
    }))
}

fn is_equality_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>() || plan.is::<SortMergeJoinExec>()
}

/// Whether rows may come in an order, now or when sorts have been placed.
fn may_be_ordered(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<SortExec>()
        || plan.output_ordering().is_some()
        || plan.required_input_ordering().iter().any(Option::is_some)
        || plan.children().into_iter().any(may_be_ordered)
}

fn computes_over_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<ProjectionExec>().is_some_and(|projection| {
        !projection.expr().iter().all(|made| is_plain(&made.expr))
            && may_be_ordered(projection.input())
    })
}

/// Whether an operator looks for rows in the order of what has yet to be computed.
fn wants_computed_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        return sort.expr().iter().any(|key| !is_plain(&key.expr));
    }
    if let Some(groups) = plan.downcast_ref::<AggregateExec>() {
        let mut keys = groups.group_expr().expr().iter().map(|(key, _)| key);
        let functions = groups.aggr_expr().iter();
        let mut orders = functions.flat_map(|f| f.order_bys().iter().map(|key| &key.expr));
        return keys.any(|key| !is_plain(key)) || orders.any(|key| !is_plain(key));
    }
    windows(plan).is_some_and(|windows| {
        windows.iter().any(|window| {
            let mut keys = window.partition_by().iter();
            let mut orders = window.order_by().iter().map(|key| &key.expr);
            keys.any(|key| !is_plain(key)) || orders.any(|key| !is_plain(key))
        })
    })
}

fn is_plain(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.is::<Column>() || expr.is::<Literal>()
}

fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// With fences above the inputs whose columns are NULL in more rows above.
fn joins_fenced(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let join = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        Some(*join.join_type())
    } else {
        plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type())
    };
    let groups = plan.downcast_ref::<AggregateExec>();
    let groups_of_sets = groups.is_some_and(|groups| groups.group_expr().has_grouping_set());
    if let Some(windows) = windows(&plan)
        && windows.iter().any(|window| !window.as_any().is::<StandardWindowExpr>())
    {
        return Ok(SecretiveExec::around(plan, Hides::OwnColumns));
    }
    use Hides::{Constants, ConstantsForNow};
    let fences: &[Hides] = match (join, groups) {
        // What is constant on the side that keeps its rows may be forgotten by a later rule.
        (Some(JoinType::Left), _) => &[ConstantsForNow, Constants],
        (Some(JoinType::Right), _) => &[Constants, ConstantsForNow],
        (Some(JoinType::Full), _) => &[Constants, Constants],
        _ if groups_of_sets => &[ConstantsForNow],
        _ if plan.is::<UnionExec>() => &vec![ConstantsForNow; plan.children().len()],
        _ => return Ok(plan),
    };
    let children = plan.children().into_iter().zip(fences);
    let children = children.map(|(child, hides)| SecretiveExec::around(Arc::clone(child), *hides));
    let fenced = with_children(Arc::clone(&plan), children.collect())?;
    Ok(match groups_of_sets {
        true => SecretiveExec::around(fenced, Hides::Order),
        false => fenced,
    })
}

fn windows(plan: &Arc<dyn ExecutionPlan>) -> Option<&[Arc<dyn WindowExpr>]> {
    if let Some(windows) = plan.downcast_ref::<BoundedWindowAggExec>() {
        return Some(windows.window_expr());
    }
    plan.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr)
}

/// What a [`SecretiveExec`] does not say of its input's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Hides {
    /// Which columns are constant or equal, only while sorts are placed.
    ConstantsForNow,
    /// Which columns are constant or equal.
    Constants,
    /// All that is said of its rows, their order too.
    Order,
    /// What a filter or a projection concludes.
    Derived,
    /// Which columns are unique.
    Keys,
    /// What is said of the columns that the operator itself adds, only while sorts are placed.
    OwnColumns,
}

/// Its input, of which it says no more than the order, or nothing.
#[derive(Debug)]
pub struct SecretiveExec {
    input: Arc<dyn ExecutionPlan>,
    hides: Hides,
    properties: Arc<PlanProperties>,
}

impl SecretiveExec {
    fn around(input: Arc<dyn ExecutionPlan>, hides: Hides) -> Arc<dyn ExecutionPlan> {
        let orders = input.equivalence_properties().oeq_class().iter().cloned();
        let told = match hides {
            Hides::Order => EquivalenceProperties::new(input.schema()),
            Hides::OwnColumns => of_inputs(&input),
            Hides::Derived => of_columns(&input),
            Hides::Keys => {
                let said = input.equivalence_properties().clone();
                said.with_constraints(Constraints::default())
            }
            _ => EquivalenceProperties::new_with_orderings(input.schema(), orders),
        };
        let properties = input.properties().as_ref().clone().with_eq_properties(told);
        Arc::new(SecretiveExec { input, hides, properties: Arc::new(properties) })
    }

    /// The operator whose rows it gives, unchanged.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// Whether the plan would be wrong without it, also when all sorts have their place.
    fn is_needed(&self) -> bool {
        let said = self.input.equivalence_properties();
        match self.hides {
            Hides::ConstantsForNow | Hides::OwnColumns => false,
            Hides::Constants => !said.constants().is_empty(),
            Hides::Order => !said.oeq_class().is_empty() || !said.constants().is_empty(),
            Hides::Keys => !said.constraints().is_empty(),
            Hides::Derived => {
                let told = self.properties.equivalence_properties();
                !said.constants().is_empty()
                    || said.oeq_class().iter().any(|order| !told.oeq_class().contains(order))
            }
        }
    }
}

/// What a filter or a projection says of the order of columns that it does not compute.
fn of_columns(plan: &Arc<dyn ExecutionPlan>) -> EquivalenceProperties {
    let schema = plan.schema();
    let Some(input) = plan.children().first().map(|input| input.equivalence_properties()) else {
        return EquivalenceProperties::new(schema);
    };
    // A sort may have been put below the fence.
    let input = match plan.is::<ProjectionExec>() || plan.is::<FilterExec>() {
        true => input,
        false => plan.equivalence_properties(),
    };
    let place = |column: &Column| match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => projection.expr().iter().position(|made| {
            made.expr.downcast_ref::<Column>().is_some_and(|from| from.index() == column.index())
        }),
        None => Some(column.index()).filter(|_| input.schema().fields() == schema.fields()),
    };
    let orders = input.oeq_class().iter().filter_map(|order| {
        let keys = order.iter().map_while(|key| {
            let place = place(key.expr.downcast_ref::<Column>()?)?;
            let column = Column::new(schema.field(place).name(), place);
            Some(PhysicalSortExpr::new(Arc::new(column), key.options))
        });
        LexOrdering::new(keys)
    });
    EquivalenceProperties::new_with_orderings(Arc::clone(&schema), orders.collect::<Vec<_>>())
}

/// What an operator that adds columns to those of its input says of the latter.
fn of_inputs(plan: &Arc<dyn ExecutionPlan>) -> EquivalenceProperties {
    let columns = plan.children().first().map_or(0, |input| input.schema().fields().len());
    let is_inputs = |expr: &Arc<dyn PhysicalExpr>| {
        collect_columns(expr).iter().all(|column| column.index() < columns)
    };
    let said = plan.equivalence_properties();
    let orders =
        said.oeq_class().iter().filter(|order| order.iter().all(|key| is_inputs(&key.expr)));
    let mut told = EquivalenceProperties::new_with_orderings(plan.schema(), orders.cloned());
    let constants = said.constants().into_iter().filter(|constant| is_inputs(&constant.expr));
    // They were constants of the same rows before.
    let _ = told.add_constants(constants);
    told
}

impl DisplayAs for SecretiveExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretiveExec")
    }
}

impl ExecutionPlan for SecretiveExec {
    fn name(&self) -> &str {
        "SecretiveExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // A sort by columns of its own that wanders below would find them sorted there.
        vec![!matches!(self.hides, Hides::Order | Hides::OwnColumns)]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
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
        Ok(SecretiveExec::around(children.swap_remove(0), self.hides))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn execute(&self, n: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(n, context)
    }
}
