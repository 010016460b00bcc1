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
use datafusion::common::{Column, DFSchemaRef, DataFusionError, Result as DfResult, internal_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, Extension, LogicalPlan, TableType, UserDefinedLogicalNodeCore,
    WindowFrame, WindowFrameUnits, WindowFunctionDefinition,
};

use crate::failure::Result;
use crate::nested::subquery;

/// Rows that are computed once, however often they stand in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct Kept {
    /// Of these rows, in this process.
    pub number: u64,
    pub input: LogicalPlan,
    /// Whether rows that no place asks for have been left out already.
    pub narrowed: bool,
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
            Some(input) => Ok(Kept { input, ..self.clone() }),
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
/// each. Rows that depend on a query around them, or on the rows of a recursive one, are others for each row
/// of the one and in each round of the other: they stay as they are.
pub(crate) fn kept(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !varies(&plan)? || reads_rounds(&plan)? || !names_outside(&plan)?.is_empty() {
        return Ok(plan);
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(Kept { number, input: plan, narrowed: false }),
    }))
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

/// The columns of queries around a plan that it names, also in its subqueries.
fn names_outside(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut outside = vec![];
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Expr::OuterReferenceColumn(_, column) = e {
                    outside.push(column.clone());
                }
                if let Some(query) = subquery(e) {
                    let is_here = |column: &Column| {
                        let mut inputs = node.inputs().into_iter();
                        inputs.any(|i| i.schema().maybe_index_of_column(column).is_some())
                    };
                    let named = names_outside(&query.subquery).map_err(DataFusionError::from)?;
                    outside.extend(named.into_iter().filter(|column| !is_here(column)));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(outside)
}

/// The same plan, with the rows that stand in it once as they are.
pub(crate) fn needed(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let Some(kept) = as_kept(node) {
            *times.entry(kept.number).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
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

/// Whether a plan may have other rows when it is computed again. Rows that are kept have not.
pub(crate) fn varies(plan: &LogicalPlan) -> Result<bool> {
    let by_order = |e: &Expr, node: &LogicalPlan| e.exists(|e| Ok(is_by_order(e, node)));
    any(plan, |node| {
        let mut varies = chooses(node);
        node.apply_expressions(|expr| {
            varies |= expr.is_volatile() || by_order(expr, node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(varies)
    })
}

/// Whether a plan has random values that are not kept.
pub(crate) fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    any(plan, |node| {
        let mut volatile = false;
        node.apply_expressions(|expr| {
            volatile |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(volatile)
    })
}

/// Whether it is so of any operator whose rows are not kept.
fn any(plan: &LogicalPlan, is: impl Fn(&LogicalPlan) -> DfResult<bool>) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if as_kept(node).is_some() {
            return Ok(TreeNodeRecursion::Jump);
        }
        found |= is(node)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
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
pub(crate) const OF_PLACES: [&str; 7] =
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
