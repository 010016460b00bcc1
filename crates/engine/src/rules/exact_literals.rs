//! `WHERE amount = 12345678.9` on a DECIMAL means that number, not the nearest double.
//!
//! DataFusion reads a literal with a point as a double, and compares it with a decimal by
//! casting it to `DECIMAL(30, 15)`, digits of the double's error included: 12345678.9 becomes
//! 12345678.900000000372529 and equals nothing. Before types are coerced, this rule turns such a
//! literal into the decimal that was written: the shortest text that reads back as the double.
//!
//! For the same reason a decimal that is compared with what is a double for other reasons than a
//! literal becomes a double, as in PostgreSQL: digits of a double beyond the seventeenth are noise,
//! and NaN and 1e300 are no decimals at all.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{
    Between, BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, cast,
};
use datafusion::optimizer::AnalyzerRule;

#[derive(Debug, Default)]
pub struct ExactLiterals;

/// Puts the rule before all others: type coercion must not see the doubles.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.analyzer().take().unwrap_or_default().rules;
    rules.insert(0, Arc::new(ExactLiterals));
    builder.with_analyzer_rules(rules)
}

impl AnalyzerRule for ExactLiterals {
    fn name(&self) -> &str {
        "exact_literals"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let schema = super::input_schema(&node)?;
            node.map_expressions(|e| e.transform_up(|e| Ok(exact(e, &schema))))
        })?;
        Ok(rewritten.data)
    }
}

fn exact(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    // A type that cannot be told here (an outer column, a parameter) changes nothing.
    let is_decimal = |e: &Expr| {
        matches!(e.get_type(schema), Ok(DataType::Decimal128(..) | DataType::Decimal256(..)))
    };
    let is_float = |e: &Expr| is_double(e, schema);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if compares(op) && is_decimal(&left) && is_float(&right) =>
        {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: double(*left), op, right }))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if compares(op) && is_float(&left) && is_decimal(&right) =>
        {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right: double(*right) }))
        }
        Expr::Between(Between { expr, negated, low, high })
            if is_decimal(&expr) && (is_float(&low) || is_float(&high)) =>
        {
            Transformed::yes(Expr::Between(Between::new(double(*expr), negated, low, high)))
        }
        Expr::InList(InList { expr, list, negated })
            if is_decimal(&expr) && list.iter().any(is_float) =>
        {
            Transformed::yes(Expr::InList(InList { expr: double(*expr), list, negated }))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
            let (l, r) = match (decimal(&left), decimal(&right)) {
                (Some(l), None) if is_decimal(&right) => (Some(l), None),
                (None, Some(r)) if is_decimal(&left) => (None, Some(r)),
                _ => (None, None),
            };
            let changed = l.is_some() || r.is_some();
            let left = l.map_or(left, Box::new);
            let right = r.map_or(right, Box::new);
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(mut between) if is_decimal(&between.expr) => {
            let low = replace(&mut between.low);
            let high = replace(&mut between.high);
            let Between { expr, negated, low: l, high: h } = between;
            Transformed::new_transformed(
                Expr::Between(Between::new(expr, negated, l, h)),
                low || high,
            )
        }
        Expr::InList(InList { expr, mut list, negated }) if is_decimal(&expr) => {
            let mut changed = false;
            for item in &mut list {
                changed |= replace(item);
            }
            Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), changed)
        }
        other => Transformed::no(other),
    }
}

/// Whether an expression is a double because of what it is made of, and not of a literal with a point
/// beside decimals, or of literals alone: `0.2 * amount` and `0.06 + 0.01` are meant exactly.
fn is_double(expr: &Expr, schema: &DFSchema) -> bool {
    let float = |t: &DataType| matches!(t, DataType::Float32 | DataType::Float64);
    if !expr.get_type(schema).is_ok_and(|t| float(&t)) {
        return false;
    }
    let (mut floats, mut decimals, mut varies) = (false, false, false);
    let _ = expr.apply(|e| {
        let made_of = matches!(
            e,
            Expr::Column(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::ScalarSubquery(_)
                | Expr::Cast(_)
                | Expr::ScalarFunction(_)
        );
        if made_of && let Ok(data_type) = e.get_type(schema) {
            varies = true;
            floats |= float(&data_type);
            decimals |= data_type.is_decimal();
        }
        Ok(TreeNodeRecursion::Continue)
    });
    floats || (varies && !decimals)
}

fn double(expr: Expr) -> Box<Expr> {
    Box::new(cast(expr, DataType::Float64))
}

fn compares(op: Operator) -> bool {
    use Operator::*;
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn replace(expr: &mut Expr) -> bool {
    match decimal(expr) {
        Some(exact) => {
            *expr = exact;
            true
        }
        None => false,
    }
}

/// The decimal that a double literal was written as; `None` for other expressions, and for
/// numbers that no decimal of 38 digits holds.
fn decimal(expr: &Expr) -> Option<Expr> {
    let (value, metadata, negative) = match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), metadata) => {
            (*value, metadata.clone(), false)
        }
        Expr::Negative(inner) => match inner.as_ref() {
            Expr::Literal(ScalarValue::Float64(Some(value)), metadata) => {
                (*value, metadata.clone(), true)
            }
            _ => return None,
        },
        _ => return None,
    };
    if !value.is_finite() {
        return None;
    }
    let value = if negative { -value } else { value };
    // Rust prints the shortest digits that read back as the same double, without an exponent.
    let text = format!("{value}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = whole.trim_start_matches('-').len() + fraction.len();
    if digits > 38 {
        return None;
    }
    let unscaled = format!("{whole}{fraction}").parse::<i128>().ok()?;
    let precision = (digits as u8).max(1);
    let scalar = ScalarValue::Decimal128(Some(unscaled), precision, fraction.len() as i8);
    Some(Expr::Literal(scalar, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::lit;

    #[test]
    fn a_literal_becomes_the_number_that_was_written() {
        let check = |value: f64, expected: Option<(i128, u8, i8)>| {
            let found = match decimal(&lit(value)) {
                Some(Expr::Literal(ScalarValue::Decimal128(Some(v), p, s), _)) => Some((v, p, s)),
                _ => None,
            };
            assert_eq!(found, expected, "{value}");
        };
        check(12_345_678.9, Some((123_456_789, 9, 1)));
        check(0.1, Some((1, 2, 1)));
        check(-0.05, Some((-5, 3, 2)));
        check(5.0, Some((5, 1, 0)));
        check(1e40, None);
        check(f64::NAN, None);
    }
}
