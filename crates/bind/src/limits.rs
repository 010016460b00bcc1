//! `LIMIT`, `OFFSET` and `FETCH FIRST`.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Sort, WindowFrame, lit, when,
};
use datafusion::sql::sqlparser::ast::{self, Fetch, LimitClause};

use crate::binder::{Binder, Ctes, Relation};
use crate::call::sorted;
use crate::failure::{Placed, Result, not_covered, wrong};
use crate::functions::row_count::{negative, row_count};
use crate::literal::count;
use crate::nested::has_subquery;
use crate::operator::whole;
use crate::place::Place;
use crate::scope::Scope;
use crate::typed::binary;
use crate::types;

impl Binder<'_> {
    pub(crate) fn limited(
        &self,
        relation: Relation,
        is_ordered: bool,
        limit: Option<&LimitClause>,
        fetch: Option<&Fetch>,
        (parent, ctes): (Option<&Scope<'_>>, &Ctes),
    ) -> Result<Relation> {
        let scope = Scope::within(parent);
        let count_of = |expr: &ast::Expr, clause: &'static str| {
            self.count_of(expr, Place::of_rows(&scope, ctes, clause), clause).at(expr)
        };
        let (limit, offset) = match limit {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
                if !limit_by.is_empty() {
                    return not_covered("LIMIT BY").at(&limit_by[0]);
                }
                (limit.as_ref(), offset.as_ref().map(|o| &o.value))
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        };
        let mut most = match limit {
            Some(limit) => count_of(limit, "LIMIT")?,
            None => None,
        };
        if let Some(fetch) = fetch {
            if fetch.percent {
                return not_covered("FETCH … PERCENT").at(fetch);
            }
            most = match &fetch.quantity {
                Some(quantity) => count_of(quantity, "FETCH")?,
                None => Some(count(1).expr),
            };
        }
        let skipped = match offset {
            Some(offset) => count_of(offset, "OFFSET")?,
            None => None,
        };
        if most.is_none() && skipped.is_none() {
            return Ok(relation);
        }
        let plan = match (fetch.is_some_and(|fetch| fetch.with_ties), most) {
            (true, Some(_)) if !is_ordered => {
                return wrong("42601", "WITH TIES cannot be specified without ORDER BY clause");
            }
            (true, Some(most)) => self.with_ties(relation.plan, skipped, most)?,
            (_, most) if most.iter().chain(&skipped).any(is_computed) => {
                self.numbered_to(relation.plan, skipped, most)?
            }
            (_, most) => {
                LogicalPlanBuilder::from(relation.plan).limit_by_expr(skipped, most)?.build()?
            }
        };
        Ok(Relation { plan, columns: relation.columns })
    }

    /// The rows between two numbers of rows that are computed. A number that is NULL is none.
    fn numbered_to(
        &self,
        plan: LogicalPlan,
        skipped: Option<Expr>,
        most: Option<Expr>,
    ) -> Result<LogicalPlan> {
        let (order, input) = match plan {
            // Keys that are no columns of the result are dropped above the order.
            LogicalPlan::Projection(Projection { expr, input, .. })
                if matches!(*input, LogicalPlan::Sort(_)) =>
            {
                let input = self.numbered_to(Arc::unwrap_or_clone(input), skipped, most)?;
                return Ok(LogicalPlanBuilder::from(input).project(expr)?.build()?);
            }
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => {
                (expr, Arc::unwrap_or_clone(input))
            }
            other => (Vec::<SortExpr>::new(), other),
        };
        let Some(row_number) = self.names.get_window_meta("row_number") else {
            return not_covered("a LIMIT that is computed");
        };
        let name = self.fresh("place");
        let mut call = WindowFunction::new(row_number, vec![]);
        call.params.order_by.clone_from(&order);
        call.params.window_frame = WindowFrame::new((!order.is_empty()).then_some(false));
        let place = Expr::WindowFunction(Box::new(call)).alias(&name);
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let columns: Vec<Expr> = columns.collect();
        let place_of = || {
            let column = Expr::Column(Column::from_name(&name));
            datafusion::logical_expr::cast(column, DataType::Int64)
        };
        let first = match skipped {
            None => None,
            Some(skipped) => {
                let is_null = skipped.clone().is_null();
                Some(when(is_null, lit(0_i64)).otherwise(skipped)?)
            }
        };
        let mut kept = vec![];
        if let Some(most) = most {
            let counted = match &first {
                Some(first) => binary(place_of(), Operator::Minus, first.clone()),
                None => place_of(),
            };
            let is_within = binary(counted, Operator::LtEq, most);
            kept.push(Expr::IsNotFalse(Box::new(is_within)));
        }
        kept.extend(first.map(|first| binary(place_of(), Operator::Gt, first)));
        let mut rows = LogicalPlanBuilder::from(input).window([place])?;
        if let Some(kept) = kept.into_iter().reduce(Expr::and) {
            rows = rows.filter(kept)?;
        }
        let rows = rows.project(columns)?;
        Ok(match order.is_empty() {
            true => rows.build()?,
            false => sorted(rows, order)?.build()?,
        })
    }

    /// A number of rows; `None` if it is NULL: all of them.
    fn count_of(
        &self,
        expr: &ast::Expr,
        place: Place<'_>,
        clause: &'static str,
    ) -> Result<Option<Expr>> {
        let value = self.expr(expr, place)?;
        if value.is_null() {
            return Ok(None);
        }
        if whole(&value.expr).is_some_and(|n| n < 0) {
            let (code, message) = negative(clause);
            return wrong(code, message);
        }
        if !value.is_open() && !types::is_number(&value.data_type) {
            return wrong(
                "42804",
                format!(
                    "argument of {clause} must be type bigint, not type {}",
                    types::name(&value.data_type)
                ),
            );
        }
        let count = value.converted(&DataType::Int64, false).expr;
        Ok(Some(match is_computed(&count) {
            true => row_count(clause).call(vec![count]),
            false => count,
        }))
    }
}

/// Whether it is a number that other rows decide.
fn is_computed(count: &Expr) -> bool {
    has_subquery(count) || count.contains_outer()
}
