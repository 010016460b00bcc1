//! What the session's own planners make of operators and calls: arithmetic of dates and times, and parts
//! of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::logical_expr::planner::{PlannerResult, RawAggregateExpr, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::binder::Binder;
use crate::failure::{Result, wrong};
use crate::place::Place;
use crate::typed::Typed;
use crate::types;

impl Binder<'_> {
    /// An operator where one side is no number.
    pub(crate) fn of_times(
        &self,
        l: &Typed,
        op: Operator,
        r: &Typed,
        place: Place<'_>,
    ) -> Result<Option<Typed>> {
        let op = match op {
            Operator::Plus => BinaryOperator::Plus,
            Operator::Minus => BinaryOperator::Minus,
            Operator::Multiply => BinaryOperator::Multiply,
            Operator::Divide => BinaryOperator::Divide,
            _ => return Ok(None),
        };
        let schema = schema(place)?;
        let mut raw = RawBinaryExpr { op, left: l.expr.clone(), right: r.expr.clone() };
        for planner in self.names.get_expr_planners() {
            match planner.plan_binary_op(raw, &schema)? {
                PlannerResult::Planned(expr) => return typed(expr, &schema).map(Some),
                PlannerResult::Original(same) => raw = same,
            }
        }
        Ok(None)
    }

    pub(crate) fn extract(&self, field: Typed, value: Typed, place: Place<'_>) -> Result<Typed> {
        check_field(&field.expr, &value.data_type)?;
        let schema = schema(place)?;
        let mut args = vec![field.expr.clone(), value.expr.clone()];
        for planner in self.names.get_expr_planners() {
            match planner.plan_extract(args)? {
                PlannerResult::Planned(expr) => return typed(expr, &schema),
                PlannerResult::Original(same) => args = same,
            }
        }
        self.scalar("date_part", vec![field, value])
    }

    /// An aggregate that a planner has another plan for.
    pub(crate) fn planned_aggregate(
        &self,
        mut raw: RawAggregateExpr,
        place: Place<'_>,
    ) -> Result<Option<Typed>> {
        for planner in self.names.get_expr_planners() {
            match planner.plan_aggregate(raw)? {
                PlannerResult::Planned(expr) => return typed(expr, &schema(place)?).map(Some),
                PlannerResult::Original(same) => raw = same,
            }
        }
        Ok(None)
    }
}

/// A date has no hours, and a time of day no days.
fn check_field(field: &Expr, of: &DataType) -> Result<()> {
    let Expr::Literal(name, _) = field else { return Ok(()) };
    let Some(Some(name)) = name.try_as_str() else { return Ok(()) };
    let name = name.trim_matches(['\'', '"']).to_lowercase();
    let is_of_clock = matches!(
        name.trim_end_matches('s'),
        "hour" | "minute" | "second" | "millisecond" | "microsecond" | "nanosecond"
    );
    let is_known = match of {
        DataType::Date32 | DataType::Date64 => !is_of_clock,
        DataType::Time32(_) | DataType::Time64(_) => {
            let is_of_date = matches!(
                name.trim_end_matches('s'),
                "year"
                    | "month"
                    | "day"
                    | "week"
                    | "quarter"
                    | "decade"
                    | "century"
                    | "millennium"
                    | "dow"
                    | "isodow"
                    | "doy"
                    | "isoyear"
                    | "julian"
            );
            !is_of_date
        }
        _ => true,
    };
    match is_known {
        true => Ok(()),
        false => {
            let message = format!("unit \"{name}\" not supported for type {}", types::name(of));
            wrong("0A000", message)
        }
    }
}

fn typed(expr: Expr, schema: &DFSchema) -> Result<Typed> {
    let (_, field) = expr.to_field(schema)?;
    // A name is given at the end.
    let expr = expr.unalias();
    Ok(Typed::new(expr, field.data_type().clone(), field.is_nullable()))
}

/// The columns that an expression may name, for those who ask for its type.
fn schema(place: Place<'_>) -> Result<DFSchema> {
    let mut seen = HashSet::new();
    let fields = place.scope.entries.iter().filter(|e| seen.insert(&e.column)).map(|entry| {
        let field = Field::new(&entry.column.name, entry.data_type.clone(), entry.nullable);
        (entry.column.relation.clone(), Arc::new(field))
    });
    Ok(DFSchema::new_with_metadata(fields.collect(), HashMap::new())?)
}
