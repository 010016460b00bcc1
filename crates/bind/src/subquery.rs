//! Queries within expressions.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Spans;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, Subquery};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Query};

use crate::binder::{Binder, Relation};
use crate::expr::{Place, Typed};
use crate::failure::{Result, not_covered, wrong};
use crate::operator;
use crate::types::TEXT;

impl Binder<'_> {
    fn subquery(&self, query: &Query, place: Place<'_>) -> Result<Relation> {
        self.bind_query(query, Some(place.scope), place.named)
    }

    /// One that gives one column.
    fn one_column(&self, query: &Query, place: Place<'_>) -> Result<(Relation, Typed)> {
        let relation = self.subquery(query, place)?;
        let [column] = &relation.columns[..] else {
            return wrong("42601", "subquery must return only one column");
        };
        let expr = Expr::Column(column.column.clone());
        let mut typed = Typed::new(expr, column.data_type.clone(), true);
        typed.unknown = column.unknown;
        Ok((relation, typed))
    }

    pub(crate) fn exists(&self, query: &Query, negated: bool, place: Place<'_>) -> Result<Typed> {
        let relation = self.subquery(query, place)?;
        let exists = Exists::new(subquery(relation.plan), negated);
        Ok(Typed::boolean(Expr::Exists(exists), false))
    }

    pub(crate) fn scalar_subquery(&self, query: &Query, place: Place<'_>) -> Result<Typed> {
        let (relation, column) = self.one_column(query, place)?;
        let expr = Expr::ScalarSubquery(subquery(relation.plan));
        Ok(Typed { expr, nullable: true, ..column })
    }

    pub(crate) fn in_subquery(
        &self,
        expr: &ast::Expr,
        query: &Query,
        negated: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        if matches!(expr, ast::Expr::Tuple(_)) {
            return not_covered("rows in subqueries");
        }
        let value = self.expr(expr, place)?;
        let (relation, column) = self.one_column(query, place)?;
        let (value, plan) = self.matched(value, relation, column, Operator::Eq)?;
        let found = InSubquery::new(Box::new(value), subquery(plan), negated);
        Ok(Typed::boolean(Expr::InSubquery(found), true))
    }

    /// `ANY` and `ALL`.
    pub(crate) fn quantified(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        let Some(op) = operator::comparison(op) else { return not_covered("this operator with ANY") };
        let query = match right {
            ast::Expr::Subquery(query) => query,
            _ => return not_covered("ANY of a list"),
        };
        match (op, all) {
            (Operator::Eq, false) => self.in_subquery(left, query, false, place),
            (Operator::NotEq, true) => self.in_subquery(left, query, true, place),
            _ => {
                let value = self.expr(left, place)?;
                let (relation, column) = self.one_column(query, place)?;
                let (value, plan) = self.matched(value, relation, column, op)?;
                let quantifier = if all { SetQuantifier::All } else { SetQuantifier::Any };
                let found = SetComparison::new(Box::new(value), subquery(plan), op, quantifier);
                Ok(Typed::boolean(Expr::SetComparison(found), true))
            }
        }
    }

    /// A value and the column of a subquery, as the type in which they are compared.
    fn matched(
        &self,
        value: Typed,
        relation: Relation,
        column: Typed,
        op: Operator,
    ) -> Result<(Expr, LogicalPlan)> {
        let before = column.data_type.clone();
        let (value, item) = self.comparable(value, op, column)?;
        if item.data_type == before || (item.data_type == TEXT && before == DataType::Utf8View) {
            return Ok((value.expr, relation.plan));
        }
        let name = self.fresh("item");
        let plan = LogicalPlanBuilder::from(relation.plan).project([item.expr.alias(name)])?;
        Ok((value.expr, plan.build()?))
    }
}

fn subquery(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() }
}
