//! Group keys behind guards: an operand of AND or OR [carries those before it along](crate::guard), so that a
//! key that may fail is no longer written in it as in GROUP BY.
//!
//! ```text
//! GROUP BY 100 / k + 1 HAVING 100 / k + 1 < 9 AND 100 / k + 1 > 4
//!
//! 100 / k + 1 < 9 AND CASE WHEN 100 / k + 1 < 9 IS NOT FALSE THEN 100 / k END + 1 > 4
//! ```
//!
//! What is grouped by was computed for all rows, and needs no guard above the groups. So a key is looked for
//! without the guards that hold where it stands: of conditions that decide without it where they do not hold.

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::utils::split_binary;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use crate::computed::Computed;
use crate::failure::Result;
use crate::typed::binary;

/// A condition that holds where an expression stands, or else the value of the expression decides nothing. It
/// is not false behind AND, and not true behind OR.
#[derive(Clone)]
struct Holds<'e> {
    op: Operator,
    condition: &'e Expr,
    /// The same without the guards that hold where it stands itself: where it is a guard, it has others.
    bare: Expr,
}

/// Writes columns in the place of what they hold, which may be behind guards.
///
/// # Errors
/// An expression cannot be taken apart.
pub(crate) fn rebase_guarded(expr: &Expr, computed: &Computed) -> Result<Expr> {
    let mut bare = Computed::with_capacity(computed.len());
    for (key, column) in computed {
        bare.insert(without_guards(key, &[])?, column.clone());
    }
    within(expr, &[], &|expr, held| {
        let held_by = |column: &Column| Expr::Column(column.clone());
        if let Some(column) = computed.get(expr) {
            return Ok(Some(held_by(column)));
        }
        Ok(bare.get(&without_guards(expr, held)?).map(held_by))
    })
}

/// Whether an expression has something that may be a guard.
pub(crate) fn has_guards(expr: &Expr) -> bool {
    expr.exists(|e| Ok(as_guard(e).is_some())).unwrap_or(false)
}

/// A condition with its operator, and what is evaluated only where that is not false, or not true.
fn as_guard(expr: &Expr) -> Option<(Operator, &Expr, &Expr)> {
    let Expr::Case(Case { expr: None, when_then_expr, else_expr: None }) = expr else {
        return None;
    };
    let [(when, then)] = &when_then_expr[..] else { return None };
    match when.as_ref() {
        Expr::IsNotFalse(guard) => Some((Operator::And, guard, then)),
        Expr::IsNotTrue(guard) => Some((Operator::Or, guard, then)),
        _ => None,
    }
}

/// The same expression without the guards that hold where it stands.
fn without_guards(expr: &Expr, held: &[Holds<'_>]) -> Result<Expr> {
    within(expr, held, &|expr, held| {
        let mut inner = expr;
        while let Some((op, guard, then)) = as_guard(inner)
            && are_held(guard, op, held)?
        {
            inner = then;
        }
        Ok(if std::ptr::eq(inner, expr) { None } else { Some(without_guards(inner, held)?) })
    })
}

/// Whether all conditions of a guard hold.
fn are_held(guard: &Expr, op: Operator, held: &[Holds<'_>]) -> Result<bool> {
    for one in split_binary(guard, op) {
        let mut alike = held.iter().filter(|holds| holds.op == op);
        if alike.clone().any(|holds| holds.condition == one) {
            continue;
        }
        let bare = without_guards(one, held)?;
        if !alike.any(|holds| holds.bare == bare) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is written in the place of an expression, if anything is.
type Replaced<'r> = &'r dyn Fn(&Expr, &[Holds<'_>]) -> Result<Option<Expr>>;

/// An expression with its outermost parts replaced that are, each by what holds where it stands.
fn within(expr: &Expr, held: &[Holds<'_>], replaced: Replaced<'_>) -> Result<Expr> {
    if let Some(expr) = replaced(expr, held)? {
        return Ok(expr);
    }
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
            let mut held = held.to_vec();
            let mut all: Option<Expr> = None;
            for operand in operands(expr, *op) {
                let one = within(operand, &held, replaced)?;
                hold(&mut held, operand, *op)?;
                all = Some(match all {
                    None => one,
                    Some(all) => binary(all, *op, one),
                });
            }
            Ok(all.unwrap_or_default())
        }
        Expr::Case(case @ Case { expr: None, .. }) => {
            let mut before = held.to_vec();
            let mut when_then_expr = Vec::with_capacity(case.when_then_expr.len());
            for (when, then) in &case.when_then_expr {
                let condition = within(when, &before, replaced)?;
                let mut own = before.clone();
                hold(&mut own, when, Operator::And)?;
                let value = within(then, &own, replaced)?;
                when_then_expr.push((Box::new(condition), Box::new(value)));
                hold(&mut before, when, Operator::Or)?;
            }
            let otherwise = case.else_expr.as_ref();
            let otherwise = otherwise.map(|e| within(e, &before, replaced)).transpose()?;
            let else_expr = otherwise.map(Box::new);
            Ok(Expr::Case(Case { expr: None, when_then_expr, else_expr }))
        }
        // Other rows than this one; those that FILTER leaves out are not looked at.
        Expr::WindowFunction(window) => {
            let mut window = window.clone();
            let filter = window.params.filter.take();
            let mut args = std::mem::take(&mut window.params.args);
            let mut filtered = vec![];
            if let Some(filter) = &filter {
                hold(&mut filtered, filter, Operator::And)?;
            }
            for arg in &mut args {
                *arg = within(arg, &filtered, replaced)?;
            }
            let mut window = match each(&Expr::WindowFunction(window), &[], replaced)? {
                Expr::WindowFunction(window) => window,
                other => return Ok(other),
            };
            window.params.args = args;
            let filter = filter.map(|filter| within(&filter, &[], replaced)).transpose()?;
            window.params.filter = filter.map(Box::new);
            Ok(Expr::WindowFunction(window))
        }
        Expr::AggregateFunction(_) => each(expr, &[], replaced),
        _ => each(expr, held, replaced),
    }
}

/// An expression with its parts replaced.
fn each(expr: &Expr, held: &[Holds<'_>], replaced: Replaced<'_>) -> Result<Expr> {
    let mut failure = None;
    let mapped = expr.clone().map_children(|part| {
        if failure.is_some() {
            return Ok(Transformed::no(part));
        }
        Ok(match within(&part, held, replaced) {
            Ok(part) => Transformed::new(part, true, TreeNodeRecursion::Continue),
            Err(error) => {
                failure = Some(error);
                Transformed::no(part)
            }
        })
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(mapped.data),
    }
}

/// The operands of a chain, which is deep on its left.
fn operands(expr: &Expr, op: Operator) -> Vec<&Expr> {
    let mut operands = vec![];
    let mut now = expr;
    while let Expr::BinaryExpr(BinaryExpr { left, op: other, right }) = now
        && *other == op
    {
        operands.push(right.as_ref());
        now = left;
    }
    operands.push(now);
    operands.reverse();
    operands
}

/// What is known of a condition behind AND, or behind OR.
fn hold<'e>(held: &mut Vec<Holds<'e>>, condition: &'e Expr, op: Operator) -> Result<()> {
    for condition in split_binary(condition, op) {
        let bare = without_guards(condition, held)?;
        held.push(Holds { op, condition, bare });
    }
    Ok(())
}
