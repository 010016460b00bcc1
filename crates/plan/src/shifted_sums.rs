//! Sums of one value that is shifted by constants are computed from one sum.
//!
//! ```text
//! sum(x + 1), sum(x + 2)  =>  sum(x) + 1 * count(x), sum(x) + 2 * count(x)
//! ```
//! Only where `x + 1` is never out of range, as a `smallint` that became an `integer` is: otherwise the
//! addition has an error to give. DataFusion has such a rule for its own operators, which wrap around.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::logical_plan::{Aggregate, Projection};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use thalweg_bind::{calculates, calculation};

#[derive(Debug)]
struct ShiftedSums;

/// Adds the rule before equal expressions get names.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::add_before("common_sub_expression_eliminate", ShiftedSums, builder)
}

impl OptimizerRule for ShiftedSums {
    fn name(&self) -> &str {
        "shifted_sums"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
        let input = aggregate.input.schema();
        let sums: Vec<Option<Shifted>> =
            aggregate.aggr_expr.iter().map(|expr| shifted(expr, input)).collect();
        let has_other = |n: usize, sum: &Shifted| {
            let same = |m: usize, other: &Shifted| m != n && other.of_same(sum);
            sums.iter().enumerate().any(|(m, other)| other.as_ref().is_some_and(|o| same(m, o)))
        };
        let is_shared: Vec<bool> = sums
            .iter()
            .enumerate()
            .map(|(n, sum)| sum.as_ref().is_some_and(|sum| has_other(n, sum)))
            .collect();
        if !is_shared.contains(&true) {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let shared = sums.into_iter().zip(is_shared).map(|(sum, shared)| sum.filter(|_| shared));
        from_one_sum(aggregate, &shared.collect::<Vec<_>>())
    }
}

/// A sum of a value and a constant.
struct Shifted {
    call: AggregateFunction,
    value: Expr,
    by: i64,
}

impl Shifted {
    fn of_same(&self, other: &Self) -> bool {
        self.value == other.value && self.call.params.filter == other.call.params.filter
    }

    /// The sum of the value alone, and how many there are.
    fn parts(&self) -> [Expr; 2] {
        let params =
            AggregateFunctionParams { args: vec![self.value.clone()], ..self.call.params.clone() };
        let of = |func| Expr::AggregateFunction(AggregateFunction { func, params: params.clone() });
        [of(Arc::clone(&self.call.func)), of(count_udaf())]
    }
}

/// The sum that an aggregate is, if it is one of a value and a constant that is in range for all values.
fn shifted(expr: &Expr, input: &DFSchema) -> Option<Shifted> {
    let Expr::AggregateFunction(call) = expr.clone().unalias() else { return None };
    let is_plain = !call.params.distinct && call.params.order_by.is_empty();
    if call.func.name() != "sum" || !is_plain || expr.get_type(input).ok()? != DataType::Int64 {
        return None;
    }
    let [Expr::ScalarFunction(sum)] = &call.params.args[..] else { return None };
    let [left, right] = &sum.args[..] else { return None };
    let (value, by) = match (calculates(&sum.func)?, left, right) {
        (Operator::Plus, Expr::Literal(by, _), value) if !is_literal(value) => (value, whole(by)?),
        (Operator::Plus, value, Expr::Literal(by, _)) if !is_literal(value) => (value, whole(by)?),
        (Operator::Minus, value, Expr::Literal(by, _)) if !is_literal(value) => {
            (value, whole(by)?.checked_neg()?)
        }
        _ => return None,
    };
    let (least, greatest) = range(value, input)?;
    let in_range = |of: i64| i32::try_from(of.checked_add(by)?).ok();
    in_range(least)?;
    in_range(greatest)?;
    let value = value.clone();
    (!value.is_volatile()).then_some(Shifted { call, value, by })
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

fn whole(value: &ScalarValue) -> Option<i64> {
    match *value {
        ScalarValue::Int32(Some(value)) => Some(value.into()),
        _ => None,
    }
}

/// The least and the greatest value that a number may have which was cast to an integer.
fn range(value: &Expr, input: &DFSchema) -> Option<(i64, i64)> {
    let Expr::Cast(cast) = value else { return None };
    if cast.field.data_type() != &DataType::Int32 {
        return None;
    }
    match cast.expr.get_type(input).ok()? {
        DataType::Int8 => Some((i8::MIN.into(), i8::MAX.into())),
        DataType::Int16 => Some((i16::MIN.into(), i16::MAX.into())),
        _ => None,
    }
}

/// The same groups, with the sums named computed from sums of values.
fn from_one_sum(
    aggregate: Aggregate,
    sums: &[Option<Shifted>],
) -> Result<Transformed<LogicalPlan>> {
    let shown = aggregate.schema.columns();
    let keys = shown.len() - sums.len();
    let mut computed: Vec<Expr> = vec![];
    let mut place = |expr: Expr| match computed.iter().position(|known| *known == expr) {
        Some(place) => place,
        None => {
            computed.push(expr);
            computed.len() - 1
        }
    };
    let places: Vec<Vec<usize>> = aggregate
        .aggr_expr
        .iter()
        .zip(sums)
        .map(|(expr, sum)| match sum {
            Some(sum) => sum.parts().map(&mut place).to_vec(),
            None => vec![place(expr.clone())],
        })
        .collect();
    let plan = Aggregate::try_new(aggregate.input, aggregate.group_expr, computed)?;
    let columns: Vec<Column> = plan.schema.columns();
    let mut exprs: Vec<Expr> = columns[..keys].iter().cloned().map(Expr::Column).collect();
    for ((sum, places), column) in sums.iter().zip(&places).zip(&shown[keys..]) {
        let part = |n: usize| Expr::Column(columns[keys + places[n]].clone());
        let checked = |op, left, right| calculation(op, left, right, &DataType::Int64);
        let value = sum.as_ref().and_then(|sum| {
            let shifts = checked(Operator::Multiply, lit(sum.by), part(1))?;
            checked(Operator::Plus, part(0), shifts)
        });
        let value = value.unwrap_or_else(|| part(0));
        exprs.push(value.alias_qualified(column.relation.clone(), &column.name));
    }
    let plan = Arc::new(LogicalPlan::Aggregate(plan));
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, plan)?)))
}
