//! Queries within expressions.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ScalarValue, Span, Spans};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, when,
};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Query, Spanned};

use crate::binder::{Binder, Relation};
use crate::expr::{Place, Typed};
use crate::failure::{Result, not_covered, wrong};
use crate::functions::quantified::quantified;
use crate::operator::{self, as_row};
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
        let exists = Exists::new(subquery(relation.plan, query), negated);
        Ok(Typed::boolean(Expr::Exists(exists), false))
    }

    pub(crate) fn scalar_subquery(&self, query: &Query, place: Place<'_>) -> Result<Typed> {
        let (relation, column) = self.one_column(query, place)?;
        let expr = Expr::ScalarSubquery(subquery(relation.plan, query));
        Ok(Typed { expr, nullable: true, ..column })
    }

    pub(crate) fn in_subquery(
        &self,
        expr: &ast::Expr,
        query: &Query,
        negated: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        if let Some(row) = as_row(expr) {
            return self.row_in_subquery(&row, query, negated, place);
        }
        let value = self.expr(expr, place)?;
        let (relation, column) = self.one_column(query, place)?;
        let (value, plan) = self.matched(value, relation, column, Operator::Eq)?;
        let found = InSubquery::new(Box::new(value), subquery(plan, query), negated);
        Ok(Typed::boolean(Expr::InSubquery(found), true))
    }

    /// `(a, b) IN (SELECT c, d …)`: whether there is a row of which it is true that it equals, or else one
    /// of which that is not known.
    fn row_in_subquery(
        &self,
        row: &[ast::Expr],
        query: &Query,
        negated: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        let values = self.exprs(row, place)?;
        let relation = self.subquery(query, place)?;
        if values.len() != relation.columns.len() {
            let few = if values.len() > relation.columns.len() { "few" } else { "many" };
            return wrong("42601", format!("subquery has too {few} columns"));
        }
        let mut equal: Option<Expr> = None;
        let mut nullable = false;
        for (value, output) in values.into_iter().zip(&relation.columns) {
            let outer = outer(value)?;
            let column = Expr::Column(output.column.clone());
            let mut column = Typed::new(column, output.data_type.clone(), output.nullable);
            column.unknown = output.unknown;
            let one = self.compare(outer, Operator::Eq, column)?;
            nullable |= one.nullable;
            equal = Some(match equal {
                None => one.expr,
                Some(so_far) => so_far.and(one.expr),
            });
        }
        let Some(equal) = equal else { return not_covered("a row without columns") };
        let rows = |condition: Expr| -> Result<Expr> {
            let plan =
                LogicalPlanBuilder::from(relation.plan.clone()).filter(condition)?.build()?;
            Ok(Expr::Exists(Exists::new(subquery(plan, query), false)))
        };
        let found = rows(equal.clone())?;
        let found = match nullable {
            false => found,
            true => when(found, lit(true))
                .when(rows(equal.is_null())?, lit(ScalarValue::Boolean(None)))
                .otherwise(lit(false))?,
        };
        let expr = if negated { Expr::Not(Box::new(found)) } else { found };
        Ok(Typed::boolean(expr, nullable))
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
        let Some(op) = operator::comparison(op) else {
            return not_covered("this operator with ANY");
        };
        let query = match right {
            ast::Expr::Subquery(query) => query,
            list => return self.of_list(left, op, list, all, place),
        };
        match (op, all) {
            (Operator::Eq, false) => self.in_subquery(left, query, false, place),
            (Operator::NotEq, true) => self.in_subquery(left, query, true, place),
            _ => {
                let value = self.expr(left, place)?;
                let (relation, column) = self.one_column(query, place)?;
                let (value, plan) = self.matched(value, relation, column, op)?;
                let quantifier = if all { SetQuantifier::All } else { SetQuantifier::Any };
                let found =
                    SetComparison::new(Box::new(value), subquery(plan, query), op, quantifier);
                Ok(Typed::boolean(Expr::SetComparison(found), true))
            }
        }
    }

    /// `x < ANY (list)`
    fn of_list(
        &self,
        left: &ast::Expr,
        op: Operator,
        list: &ast::Expr,
        all: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        let (value, list) = (self.expr(left, place)?, self.expr(list, place)?);
        if list.is_null() {
            return Ok(Typed::boolean(lit(ScalarValue::Boolean(None)), true));
        }
        let item = match &list.data_type {
            DataType::List(item) | DataType::LargeList(item) => item.data_type().clone(),
            DataType::FixedSizeList(item, _) => item.data_type().clone(),
            _ => return wrong("42809", "op ANY/ALL (array) requires array on right side"),
        };
        let item = Typed::new(lit(ScalarValue::Null), item, true);
        let items = self.same_type(vec![value, item], if all { "ALL" } else { "ANY" })?;
        let (value, item) = (&items[0], &items[1].data_type);
        let item = DataType::new_list(item.clone(), true);
        let call = quantified(op, all).call(vec![value.expr.clone(), list.cast(&item).expr]);
        Ok(Typed::boolean(call, true))
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

/// An expression of a query, as a query within it sees it.
fn outer(value: Typed) -> Result<Typed> {
    let mut is_plain = true;
    let expr = value.expr.transform_up(|e| {
        Ok(match e {
            Expr::Column(column) => {
                let field = Field::new(&column.name, value.data_type.clone(), true);
                Transformed::yes(Expr::OuterReferenceColumn(Arc::new(field), column))
            }
            e => {
                is_plain &= matches!(e, Expr::Literal(..) | Expr::OuterReferenceColumn(..));
                Transformed::no(e)
            }
        })
    })?;
    // The types of columns within an expression are not known here.
    if !is_plain {
        return not_covered("expressions in a row before IN");
    }
    Ok(Typed { expr: expr.data, ..value })
}

/// A query within an expression, with its place in the text for the errors of what makes a join of it.
fn subquery(plan: LogicalPlan, written: &Query) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    let spans = Span::try_from_sqlparser_span(written.span());
    Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns,
        spans: Spans(spans.into_iter().collect()),
    }
}
