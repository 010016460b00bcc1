//! What stands before an operand of AND or OR guards it: `y <> 0 AND x / y = 1` divides by no zero.
//!
//! Conditions are split at their ANDs, reordered and moved on their way to where they are evaluated, and
//! an operand may be evaluated for whole batches. So an expression that can fail for some of its values
//! carries its guards along:
//!
//! ```text
//! y <> 0 AND x / y = 1     =>     y <> 0 AND CASE WHEN y <> 0 IS NOT FALSE THEN x / y END = 1
//! ```

use std::collections::HashSet;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Operator};

use crate::functions::EachItem;
use crate::nested::has_subquery;
use crate::typed::binary;
use crate::types::is_text;

/// Parts that a condition may have to be a guard.
const GUARD_PARTS_MAX: usize = 100;
/// Parts that an operand may have to be given guards.
const GUARDED_PARTS_MAX: usize = 1000;

/// The types of the columns that an expression names.
pub type Types<'t> = &'t dyn Fn(&Column) -> Option<DataType>;

/// An operand of AND or OR behind those before it.
///
/// # Errors
/// An expression cannot be taken apart.
pub fn guarded(operand: Expr, op: Operator, before: &[Expr], types: Types<'_>) -> Result<Expr> {
    let may_fail = |e: &Expr| may_fail(e, types);
    // What is computed over other rows than this one is not guarded by what is true of this one.
    let is_of_rows = |e: &Expr| matches!(e, Expr::AggregateFunction(_) | Expr::WindowFunction(_));
    // Guards are copied to where they are needed, at each level of conditions within conditions: what has
    // become large by that gets no more.
    if !operand.exists(|e| Ok(may_fail(e)))? || !has_at_most(&operand, GUARDED_PARTS_MAX) {
        return Ok(operand);
    }
    let guarded = operand.transform_down(|e| {
        if is_of_rows(&e) {
            return Ok(Transformed::new(e, false, TreeNodeRecursion::Jump));
        }
        // Below the guards that it has already, as a condition that is pushed down again.
        if op == Operator::And
            && let Some((guards, inner)) = as_guarded(&e)
            && guards_for(inner, before, types).all(|guard| guards.contains(&guard))
        {
            return Ok(Transformed::new(e, false, TreeNodeRecursion::Jump));
        }
        if !may_fail(&e) {
            return Ok(Transformed::no(e));
        }
        let guards = guards_for(&e, before, types).cloned();
        let Some(guard) = guards.reduce(|all, one| binary(all, op, one)) else {
            return Ok(Transformed::no(e));
        };
        // AND looks at its right side unless the left is false, OR unless it is true.
        let looks = match op {
            Operator::And => Expr::IsNotFalse(Box::new(guard)),
            _ => Expr::IsNotTrue(Box::new(guard)),
        };
        let when_then_expr = vec![(Box::new(looks), Box::new(e))];
        let case = Expr::Case(Case { expr: None, when_then_expr, else_expr: None });
        Ok(Transformed::new(case, true, TreeNodeRecursion::Jump))
    });
    Ok(guarded?.data)
}

/// The conditions that say something about the columns of an expression; and those that cannot fail and are of
/// the same rows. One that is of other rows as well would keep the expression from being asked where its own
/// rows come from. One that can fail has guards of its own, so that conditions would double with each: a large
/// one is no guard.
fn guards_for<'g>(
    expr: &Expr,
    before: &'g [Expr],
    types: Types<'_>,
) -> impl Iterator<Item = &'g Expr> {
    let named: HashSet<Column> = expr.column_refs().into_iter().cloned().collect();
    let rows: HashSet<Option<TableReference>> = named.iter().map(|c| c.relation.clone()).collect();
    before.iter().filter(move |guard| {
        let columns = guard.column_refs();
        let is_of_rows = |column: &&Column| rows.contains(&column.relation);
        let cannot_fail = || !guard.exists(|e| Ok(may_fail(e, types))).unwrap_or(true);
        let concerns = columns.iter().any(|column| named.contains(*column))
            || !columns.is_empty() && columns.iter().all(is_of_rows) && cannot_fail();
        let is_small = has_at_most(guard, GUARD_PARTS_MAX);
        concerns && !guard.is_volatile() && !has_subquery(guard) && is_small
    })
}

/// Whether an expression has no more parts than that.
fn has_at_most(expr: &Expr, parts_max: usize) -> bool {
    let mut parts = 0;
    let counted = expr.apply(|_| {
        parts += 1;
        let goes_on = parts <= parts_max;
        Ok(if goes_on { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    counted.is_ok() && parts <= parts_max
}

/// The guards of an expression, and the expression itself, if it is one that has guards.
fn as_guarded(expr: &Expr) -> Option<(Vec<&Expr>, &Expr)> {
    let Expr::Case(Case { expr: None, when_then_expr, else_expr: None }) = expr else {
        return None;
    };
    let [(when, then)] = &when_then_expr[..] else { return None };
    let guard = match when.as_ref() {
        Expr::IsNotFalse(guard) => guard,
        other => other,
    };
    Some((split_conjunction(guard), then))
}

/// Conditions that are all asked of the same rows, each with those that cannot fail, and those before it, as
/// its guards; `None` if none can fail.
///
/// # Errors
/// An expression cannot be taken apart.
pub fn guard_each_other(conditions: &[&Expr], types: Types<'_>) -> Result<Option<Vec<Expr>>> {
    let fails = |e: &Expr| e.exists(|e| Ok(may_fail(e, types)));
    let is_safe = conditions.iter().map(|c| Ok(!fails(c)?)).collect::<Result<Vec<bool>>>()?;
    if is_safe.iter().all(|safe| *safe) {
        return Ok(None);
    }
    let guards = conditions.iter().zip(&is_safe).filter(|(_, safe)| **safe);
    let mut guards: Vec<Expr> = guards.map(|(condition, _)| (*condition).clone()).collect();
    let mut all = Vec::with_capacity(conditions.len());
    for (condition, safe) in conditions.iter().zip(is_safe) {
        let mut condition = (*condition).clone();
        if !safe {
            condition = guarded(condition, Operator::And, &guards, types)?;
            // Where it stands behind its guards, it is one for what comes after it.
            guards.push(condition.clone());
        }
        all.push(condition);
    }
    Ok(Some(all))
}

/// Whether a number that is cast to an integer may be none of these: it is computed of columns, or of casts,
/// whose types have more room.
fn may_be_beyond(expr: &Expr, to: &DataType, types: Types<'_>) -> bool {
    let has_more = |e: &Expr| match e {
        Expr::Column(column) => types(column).is_some_and(|from| is_narrowed(&from, to)),
        Expr::OuterReferenceColumn(field, _) => is_narrowed(field.data_type(), to),
        Expr::Cast(cast) => {
            !matches!(*cast.expr, Expr::Literal(..)) && is_narrowed(cast.field.data_type(), to)
        }
        _ => false,
    };
    to.is_integer() && expr.exists(|e| Ok(has_more(e))).unwrap_or(true)
}

/// Whether a cast to an integer leaves less room than there is.
fn is_narrowed(from: &DataType, to: &DataType) -> bool {
    to.is_integer()
        && (from.is_floating()
            || from.is_decimal()
            || from.is_integer() && from.primitive_width() > to.primitive_width())
}

/// Functions that have no value for some of their last argument, such as a divisor.
const PARTIAL: [&str; 19] = [
    "divide", "modulo", "quotient", "div", "mod", "sqrt", "ln", "log10", "log2", "acos", "asin",
    "acosh", "atanh", "sin", "cos", "tan", "cot", "degrees", "exp",
];

/// Functions that have no value for some of their arguments together.
const CHOOSY: [&str; 14] = [
    "power",
    "pow",
    "log",
    "make_date",
    "make_time",
    "make_timestamp",
    "to_number",
    "to_date",
    "to_timestamp",
    "chr",
    "repeat",
    "lpad",
    "rpad",
    "decode",
];

/// Whether the expression itself (not what is in it) is an error for some values.
pub(crate) fn may_fail(expr: &Expr, types: Types<'_>) -> bool {
    let is_constant = |e: &Expr| matches!(e, Expr::Literal(..));
    match expr {
        Expr::BinaryExpr(b) => {
            matches!(b.op, Operator::Divide | Operator::Modulo) && !is_constant(&b.right)
        }
        Expr::ScalarFunction(call) => {
            if let Some(function) = EachItem::of(call) {
                let of_item = |_: &Column| Some(function.item().data_type().clone());
                return function.body().exists(|e| Ok(may_fail(e, &of_item))).unwrap_or(true);
            }
            match call.func.name() {
                name if CHOOSY.contains(&name) => !call.args.iter().all(is_constant),
                // A constant divisor, which is not zero: there would be no plan.
                name => PARTIAL.contains(&name) && !call.args.last().is_none_or(is_constant),
            }
        }
        // Not every text spells a number or a time.
        Expr::Cast(cast) => {
            // Not every number is one of a smaller type.
            if may_be_beyond(&cast.expr, cast.field.data_type(), types) {
                return true;
            }
            let is_text_column = |e: &Expr| match e {
                Expr::Column(column) => types(column).is_some_and(|t| is_text(&t)),
                Expr::OuterReferenceColumn(field, _) => is_text(field.data_type()),
                _ => false,
            };
            !is_text(cast.field.data_type())
                && cast.expr.exists(|e| Ok(is_text_column(e))).unwrap_or(true)
        }
        _ => false,
    }
}
