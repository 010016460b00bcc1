//! Rows that stand in a plan more than once, and are computed once.
//!
//! A `WITH` query that is named twice, and the rows around a subquery, stand in the plan as often as they are
//! read. Mostly each place may compute them for itself, and better so: what is asked of them differs. But some
//! rows are others each time: `LIMIT 10` without an order takes any ten, `row_number()` numbers equal rows by
//! chance, a sum of doubles depends on the order of its rows, and `random()` on nothing. A [`Kept`] stands
//! above such rows: whoever runs the plan computes the rows of one number once, for all places.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result as DfResult, internal_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, Extension, LogicalPlan, TableType, UserDefinedLogicalNodeCore,
    WindowFrame, WindowFrameUnits, WindowFunctionDefinition,
};

use crate::failure::{Result, not_covered};

/// Rows that are computed once, however often they stand in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct Kept {
    /// Of these rows, in this process.
    pub number: u64,
    /// They depend on the rows of a recursive query, which are others in each of its rounds.
    pub in_rounds: bool,
    pub input: LogicalPlan,
}

impl UserDefinedLogicalNodeCore for Kept {
    fn name(&self) -> &str {
        "Kept"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept: #{}", self.number)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> DfResult<Self> {
        match inputs.pop() {
            Some(input) => Ok(Kept { input, ..*self }),
            None => internal_err!("rows that are kept have an input"),
        }
    }
}

/// The node that a plan is, if it is one.
pub fn as_kept(plan: &LogicalPlan) -> Option<&Kept> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}

/// The rows of a plan, to be computed once for all places that they are put into, if they might be others in
/// each. Rows that depend on a query around them stay as they are.
pub(crate) fn kept(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !varies(&plan)? || !plan.all_out_ref_exprs().is_empty() {
        return Ok(plan);
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let node = Kept { number, in_rounds: reads_rounds(&plan)?, input: plan };
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// Whether a plan reads the rows of a recursive query that it is a part of.
fn reads_rounds(plan: &LogicalPlan) -> Result<bool> {
    let mut reads = false;
    plan.apply_with_subqueries(|node| {
        reads |= match node {
            // What a recursive query within the plan reads of itself is its own affair.
            LogicalPlan::RecursiveQuery(_) => return Ok(TreeNodeRecursion::Jump),
            LogicalPlan::TableScan(scan) => scan.source.table_type() == TableType::Temporary,
            _ => false,
        };
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(reads)
}

/// The same plan, with the rows that stand in it once as they are.
pub(crate) fn needed(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    let mut in_rounds = false;
    plan.apply_with_subqueries(|node| {
        if let Some(kept) = as_kept(node) {
            let times = times.entry(kept.number).or_default();
            *times += 1;
            in_rounds |= kept.in_rounds && *times > 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if in_rounds {
        return not_covered(
            "rows of a recursive query that are read twice and may differ each time",
        );
    }
    if times.values().all(|times| *times > 1) {
        return Ok(plan);
    }
    let bare = plan.transform_up_with_subqueries(|node| match as_kept(&node) {
        Some(kept) if times.get(&kept.number) == Some(&1) => {
            Ok(Transformed::yes(kept.input.clone()))
        }
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(bare.data)
}

/// Whether a plan may have other rows when it is computed again.
fn varies(plan: &LogicalPlan) -> Result<bool> {
    let mut varies = false;
    plan.apply_with_subqueries(|node| {
        if as_kept(node).is_some() {
            return Ok(TreeNodeRecursion::Jump);
        }
        varies |= chooses(node);
        node.apply_expressions(|expr| {
            varies |= expr.is_volatile() || expr.exists(|e| Ok(is_by_order(e, node)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if varies { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(varies)
}

/// Whether an operator takes some rows of those that are alike in its order.
fn chooses(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Limit(_) | LogicalPlan::Distinct(Distinct::On(_)) => true,
        LogicalPlan::Sort(sort) => sort.fetch.is_some(),
        _ => false,
    }
}

/// Windows for which rows that are equal in the order are not alike.
const OF_PLACES: [&str; 7] =
    ["row_number", "ntile", "lag", "lead", "first_value", "last_value", "nth_value"];

/// Aggregates that give a value, or all values, in the order of their rows.
const OF_ORDER: [&str; 6] =
    ["first_value", "last_value", "nth_value", "array_agg", "string_agg", "mode"];

/// Aggregates that add up doubles whatever they are given; the last bits of a sum depend on the order.
const OF_DOUBLES: [&str; 6] = ["stddev", "var", "covar", "corr", "regr_", "approx_"];

/// Aggregates that add up whole numbers and numerics exactly.
const EXACT: [&str; 2] = ["sum", "avg"];

/// Whether rows that are equal in the order have frames of their own.
fn counts_rows(frame: &WindowFrame) -> bool {
    frame.units == WindowFrameUnits::Rows
        && !(frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded())
}

/// Whether a call gives another value when its rows come in another order.
fn is_by_order(expr: &Expr, node: &LogicalPlan) -> bool {
    // What cannot be told is taken for a double.
    let is_double = |arg: &Expr| match node.inputs().first() {
        Some(input) => arg.get_type(input.schema()).map_or(true, |t| t.is_floating()),
        None => true,
    };
    let is_aggregate = |name: &str, args: &[Expr]| {
        OF_ORDER.contains(&name)
            || OF_DOUBLES.iter().any(|start| name.starts_with(start))
            || EXACT.contains(&name) && args.iter().any(is_double)
    };
    match expr {
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            is_aggregate(func.name(), &params.args)
        }
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::WindowUDF(f) => OF_PLACES.contains(&f.name()),
            WindowFunctionDefinition::AggregateUDF(f) => {
                counts_rows(&call.params.window_frame) || is_aggregate(f.name(), &call.params.args)
            }
        },
        _ => false,
    }
}
