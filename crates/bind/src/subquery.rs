//! Queries within expressions.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ExprSchema, ScalarValue, Span, Spans, TableReference};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, Exists, InSubquery, SetComparison, SetQuantifier,
};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, when,
};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Query, SelectItem, SetExpr, Spanned, TableAlias,
};

use crate::binder::{Binder, Relation};
use crate::failure::{Result, not_covered, wrong};
use crate::functions::quantified::quantified;
use crate::kept::is_volatile;
use crate::operator::{self, as_row};
use crate::place::Place;
use crate::scope::Scope;
use crate::typed::Typed;
use crate::types::{TEXT, TextKind, text_kind};

/// How the names of items of `FROM` begin whose rows are assigned to columns, one of these for each column
/// that the item's alias names. No statement can write it.
pub const ASSIGNED_ROW: &str = "assigned\0";

/// A row that is assigned has a value for each column, and no more.
pub(crate) fn check_assigned(alias: &TableAlias, values: usize) -> Result<()> {
    let columns = alias.columns.len();
    if columns == values || !alias.name.value.starts_with(ASSIGNED_ROW) {
        return Ok(());
    }
    wrong("42601", format!("{columns} columns are assigned {values} values"))
}

impl Binder<'_> {
    fn subquery(&self, query: &Query, place: Place<'_>) -> Result<Relation> {
        let around = Scope { without_aggregates: place.without_aggregates, ..place.scope.clone() };
        let relation = self.bind_query(query, Some(&around), place.named)?;
        let is_random = is_volatile(&relation.plan)?;
        match is_random && relation.plan.all_out_ref_exprs().is_empty() {
            true => self.not_shared(relation),
            false => Ok(relation),
        }
    }

    /// Rows with random values, under a name that no other rows have: two `(SELECT random())` are equal
    /// plans otherwise, and equal plans of subqueries are computed once.
    fn not_shared(&self, mut relation: Relation) -> Result<Relation> {
        let own = TableReference::bare(self.fresh("random"));
        let mut columns = Vec::with_capacity(relation.columns.len());
        for output in &mut relation.columns {
            let name = self.fresh("value");
            columns.push(Expr::Column(output.column.clone()).alias(&name));
            output.column = Column::new(Some(own.clone()), name);
        }
        let rows = LogicalPlanBuilder::from(relation.plan).project(columns)?;
        relation.plan = rows.alias(own)?.build()?;
        Ok(relation)
    }

    /// One that gives one column.
    fn one_column(&self, query: &Query, place: Place<'_>) -> Result<(Relation, Typed)> {
        let mut relation = self.subquery(query, place)?;
        let [column] = &mut relation.columns[..] else {
            return wrong("42601", "subquery must return only one column");
        };
        // DataFusion's rules look for the value in a projection.
        if matches!(relation.plan, LogicalPlan::Values(_)) {
            let name = self.fresh("value");
            let value = Expr::Column(column.column.clone()).alias(&name);
            relation.plan = LogicalPlanBuilder::from(relation.plan).project([value])?.build()?;
            column.column = Column::from_name(name);
        }
        let expr = Expr::Column(column.column.clone());
        let mut typed = Typed::new(expr, column.data_type.clone(), true);
        typed.unknown = column.unknown;
        if let Ok(field) = relation.plan.schema().field_from_column(&column.column) {
            typed.text = text_kind(field);
        }
        Ok((relation, typed))
    }

    pub(crate) fn exists(&self, query: &Query, negated: bool, place: Place<'_>) -> Result<Typed> {
        let relation = self.subquery(&with_a_column(query), place)?;
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
            return self.row_of_any(&row, Operator::Eq, query, (false, negated), place);
        }
        let value = self.expr(expr, place)?;
        let (relation, column) = self.one_column(query, place)?;
        let (value, plan) = self.matched(value, relation, column, Operator::Eq)?;
        let found = InSubquery::new(Box::new(value), subquery(plan, query), negated);
        Ok(Typed::boolean(Expr::InSubquery(found), true))
    }

    /// A row as a query beside it sees it, that query, and how the two compare.
    fn row_beside(
        &self,
        row: &[ast::Expr],
        op: Operator,
        query: &Query,
        place: Place<'_>,
    ) -> Result<(Relation, Typed)> {
        let values = self.exprs(row, place)?;
        let relation = self.subquery(query, place)?;
        if values.len() != relation.columns.len() {
            let few = if values.len() > relation.columns.len() { "few" } else { "many" };
            return wrong("42601", format!("subquery has too {few} columns"));
        }
        let values = values.into_iter().map(|value| outer(value, place));
        let columns = relation.columns.iter().map(|output| {
            let column = Expr::Column(output.column.clone());
            let mut column = Typed::new(column, output.data_type.clone(), output.nullable);
            if let Ok(field) = relation.plan.schema().field_from_column(&output.column) {
                column.text = text_kind(field);
            }
            Typed { unknown: output.unknown, ..column }
        });
        let columns = columns.collect();
        let compared = self.compare_rows(values.collect::<Result<_>>()?, op, columns)?;
        Ok((relation, compared))
    }

    /// `(a, b) = (SELECT c, d …)`: NULL if there is no row.
    pub(crate) fn row_and_subquery(
        &self,
        row: &[ast::Expr],
        op: Operator,
        query: &Query,
        place: Place<'_>,
    ) -> Result<Typed> {
        let (relation, compared) = self.row_beside(row, op, query, place)?;
        let named = compared.expr.alias(self.fresh("compared"));
        let plan = LogicalPlanBuilder::from(relation.plan).project([named])?.build()?;
        Ok(Typed::boolean(Expr::ScalarSubquery(subquery(plan, query)), true))
    }

    /// `(a, b) < ANY (SELECT c, d …)`: whether there is a row of which it is true, or else one of which that
    /// is not known. `negated` says whether it is the opposite that is asked of each row, and whether the
    /// answer is turned round: ALL is both.
    fn row_of_any(
        &self,
        row: &[ast::Expr],
        op: Operator,
        query: &Query,
        negated: (bool, bool),
        place: Place<'_>,
    ) -> Result<Typed> {
        let (relation, compared) = self.row_beside(row, op, query, place)?;
        let nullable = compared.nullable;
        let holds = match negated.0 {
            true => Expr::Not(Box::new(compared.expr)),
            false => compared.expr,
        };
        let rows = |condition: Expr| -> Result<Expr> {
            let plan =
                LogicalPlanBuilder::from(relation.plan.clone()).filter(condition)?.build()?;
            Ok(Expr::Exists(Exists::new(subquery(plan, query), false)))
        };
        let found = rows(holds.clone())?;
        let found = match nullable {
            false => found,
            true => when(found, lit(true))
                .when(rows(holds.is_null())?, lit(ScalarValue::Boolean(None)))
                .otherwise(lit(false))?,
        };
        let expr = if negated.1 { Expr::Not(Box::new(found)) } else { found };
        Ok(Typed::boolean(expr, nullable))
    }

    /// `ARRAY(SELECT …)`: the rows of a query as a list, in the order that it gives them.
    pub(crate) fn array_subquery(&self, query: &Query, place: Place<'_>) -> Result<Typed> {
        let (relation, column) = self.one_column(query, place)?;
        let Some(array_agg) = self.names.get_aggregate_meta("array_agg") else {
            return not_covered("ARRAY of a query");
        };
        let (plan, order_by) = self.in_order(relation.plan)?;
        let list = DataType::new_list(column.data_type.clone(), true);
        let params = AggregateFunctionParams {
            args: vec![column.expr],
            distinct: false,
            filter: None,
            order_by,
            null_treatment: None,
        };
        let items = Expr::AggregateFunction(AggregateFunction { func: array_agg, params });
        let name = self.fresh("items");
        let items = items.alias(&name);
        let rows = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), [items])?;
        // Without rows it is an empty list.
        let empty = ScalarValue::List(ScalarValue::new_list_nullable(&[], &column.data_type));
        let empty = Typed::new(lit(empty), list.clone(), false);
        let items = Typed::new(Expr::Column(Column::from_name(name)), list.clone(), true);
        let value = self.scalar("coalesce", vec![items, empty])?;
        let plan = rows.project([value.expr.alias(self.fresh("list"))])?.build()?;
        Ok(Typed::new(Expr::ScalarSubquery(subquery(plan, query)), list, false))
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
        if let Some(row) = as_row(left) {
            return self.row_of_any(&row, op, query, (all, all), place);
        }
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
        // Of what is compared with blanks at its end, these are cut: the type alone does not tell.
        let is_cut = value.is_padded() && column.text == TextKind::Varying;
        let (value, item) = self.comparable(value, op, column)?;
        let is_same =
            item.data_type == before || (item.data_type == TEXT && before == DataType::Utf8View);
        if is_same && !is_cut {
            return Ok((value.expr, relation.plan));
        }
        let name = self.fresh("item");
        let plan = LogicalPlanBuilder::from(relation.plan).project([item.expr.alias(name)])?;
        Ok((value.expr, plan.build()?))
    }
}

/// `EXISTS (SELECT FROM t)`: rows without columns are rows all the same.
fn with_a_column(query: &Query) -> Cow<'_, Query> {
    let is_empty = |body: &SetExpr| matches!(body, SetExpr::Select(s) if s.projection.is_empty());
    if !is_empty(&query.body) {
        return Cow::Borrowed(query);
    }
    let mut query = query.clone();
    if let SetExpr::Select(select) = query.body.as_mut() {
        let null = ast::Expr::Value(ast::Value::Null.into());
        select.projection.push(SelectItem::UnnamedExpr(null));
    }
    Cow::Owned(query)
}

/// An expression of a query, as a query within it sees it.
fn outer(value: Typed, place: Place<'_>) -> Result<Typed> {
    let mut is_of_rows = true;
    let expr = value.expr.transform_up(|e| {
        Ok(match e {
            Expr::Column(column) => {
                let entry = place.scope.entries.iter().find(|entry| entry.column == column);
                match entry {
                    Some(entry) => Transformed::yes(entry.outer().expr),
                    None => {
                        is_of_rows = false;
                        Transformed::no(Expr::Column(column))
                    }
                }
            }
            e => {
                let is_apart = matches!(
                    e,
                    Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::Unnest(_)
                );
                is_of_rows &= !is_apart && !e.is_volatile_node();
                Transformed::no(e)
            }
        })
    })?;
    if !is_of_rows {
        return not_covered(
            "a row of aggregates, windows or random values beside a subquery (compute them in a query within FROM)",
        );
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
