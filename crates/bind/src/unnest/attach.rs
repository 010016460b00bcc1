//! Joins the rows of a subquery to those around it.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{
    Column, JoinConstraint, JoinType, NullEquality, ScalarValue, TableReference,
};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetQuantifier};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, Join, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, when,
};

use super::decided::decided;
use super::domain::{Domain, Keys, outer_columns};
use super::fails::fails;
use super::once::{always_has_rows, is_always_one_row, is_one_row, nullable, one_row};
use super::simple::{is_aggregated, is_filtered, is_of_one_row, stays_nullable};
use super::{Standing, has_subquery};
use crate::binder::Binder;
use crate::failure::{Failure, Result, not_covered};
use crate::guard::guarded;
use crate::kept::{kept, varies};
use crate::typed::binary;

/// Rows of an operator's input, to which subqueries are joined.
pub(super) struct Below<'b, 'a> {
    binder: &'b Binder<'a>,
    plan: LogicalPlan,
    /// What the last domain was taken from: the rows as they were then.
    base: Option<LogicalPlan>,
    /// What is true of the rows for which the subquery in turn is asked.
    guards: Vec<Expr>,
}

/// A subquery for all rows around it at once.
struct Joined {
    plan: LogicalPlan,
    /// By which its rows are found: an expression of the rows around, and a column.
    on: Vec<(Expr, Column)>,
    /// Whether a NULL on one side is that on the other.
    null_equality: NullEquality,
}

impl<'b, 'a> Below<'b, 'a> {
    pub fn new(binder: &'b Binder<'a>, plan: LogicalPlan) -> Self {
        Below { binder, plan, base: None, guards: vec![] }
    }

    /// How many guards there are, for [`Below::unguard`].
    pub fn guards(&self) -> usize {
        self.guards.len()
    }

    /// From here on subqueries are asked only of the rows where this is true.
    pub fn guard(&mut self, condition: Expr) {
        if !condition.is_volatile() && !has_subquery(&condition) {
            self.guards.push(condition);
        }
    }

    /// Takes back the guards after the first so many.
    pub fn unguard(&mut self, length: usize) {
        self.guards.truncate(length);
    }

    /// Whether the subquery must be asked of no other rows than those that the guards let pass.
    fn is_guarded(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(!self.guards.is_empty() && fails(plan)?)
    }

    /// The rows that the guards let pass, each of which guards those behind it.
    fn guarded_rows(&self) -> Result<LogicalPlan> {
        let schema = self.plan.schema();
        let types = |column: &Column| {
            let at = schema.maybe_index_of_column(column)?;
            Some(schema.field(at).data_type().clone())
        };
        let mut before: Vec<Expr> = vec![];
        for guard in &self.guards {
            before.push(guarded(guard.clone(), Operator::And, &before, &types)?);
        }
        Ok(LogicalPlanBuilder::from(self.plan.clone()).filter(all_of(before))?.build()?)
    }

    pub fn columns(&self) -> Vec<Column> {
        self.plan.schema().columns()
    }

    pub fn finish(self) -> LogicalPlan {
        self.plan
    }

    fn outer(&self, plan: &LogicalPlan) -> Result<Vec<Column>> {
        outer_columns(plan, self.plan.schema())
    }

    /// All rows of a subquery.
    pub fn rows(
        &mut self,
        plan: LogicalPlan,
        columns: Vec<Column>,
        kind: JoinType,
    ) -> Result<Vec<Column>> {
        let outer = self.outer(&plan)?;
        if kind == JoinType::Inner && !outer.is_empty() && is_of_one_row(&plan) {
            return self.rows_of_each(plan, columns);
        }
        let names: Vec<String> = columns.iter().map(|c| self.binder.fresh(&c.name)).collect();
        let one_row = has_one_row(&plan, &outer)?;
        let mut joined = self.pushed(plan, outer, one_row)?;
        let shown = columns.into_iter().zip(&names);
        let shown = shown.map(|(column, name)| Expr::Column(column).alias(name));
        let keys = joined.on.iter().map(|(_, c)| Expr::Column(c.clone()));
        let all: Vec<Expr> = keys.chain(shown).collect();
        joined.plan = LogicalPlanBuilder::from(joined.plan).project(all)?.build()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.join(joined, kind, &names, vec![])
    }

    /// The rows of a subquery that looks at no table: they are computed beside each row around it.
    fn rows_of_each(&mut self, plan: LogicalPlan, columns: Vec<Column>) -> Result<Vec<Column>> {
        let domain = Domain::of_rows(self.binder, std::mem::take(&mut self.plan))?;
        let (plan, keys) = domain.push(plan)?;
        let around = domain.columns.iter().zip(keys).map(|(column, key)| {
            Expr::Column(key).alias_qualified(column.relation.clone(), &column.name)
        });
        let names: Vec<String> = columns.iter().map(|c| self.binder.fresh(&c.name)).collect();
        let shown = columns.into_iter().zip(&names);
        let shown = shown.map(|(column, name)| Expr::Column(column).alias(name));
        let all: Vec<Expr> = around.chain(shown).collect();
        self.plan = LogicalPlanBuilder::from(plan).project(all)?.build()?;
        Ok(names.into_iter().map(Column::from_name).collect())
    }

    /// The value of a subquery.
    pub fn scalar(&mut self, plan: LogicalPlan, standing: Standing) -> Result<Expr> {
        let columns = self.outer(&plan)?;
        let is_guarded = self.is_guarded(&plan)?;
        if self.sees_all(&plan)? {
            if columns.is_empty() {
                return Ok(Expr::ScalarSubquery(subquery(self.maybe_none(plan)?)));
            }
            if !is_guarded && standing != Standing::Elsewhere && is_aggregated(&plan, &columns) {
                return Ok(Expr::ScalarSubquery(subquery(self.apart(plan)?)));
            }
        }
        let Some(value) = plan.schema().columns().first().cloned() else {
            return not_covered("a subquery without columns");
        };
        let default = empty_value(&plan, &value, &columns)?;
        let is_one = is_one_row(&plan);
        let mut joined = self.pushed(plan, columns, default.is_none() || is_guarded)?;
        let name = self.binder.fresh("value");
        let keys: Vec<Expr> = joined.on.iter().map(|(_, c)| Expr::Column(c.clone())).collect();
        let builder = LogicalPlanBuilder::from(joined.plan);
        let builder = match is_one {
            true => {
                let value = Expr::Column(value).alias(&name);
                builder.project(keys.into_iter().chain([value]).collect::<Vec<_>>())?
            }
            false => {
                let first = self.aggregate("first_value", vec![Expr::Column(value)])?;
                let rows = self.aggregate("count", vec![lit(1_i64)])?;
                let [first_name, rows_name] =
                    [self.binder.fresh("first"), self.binder.fresh("rows")];
                let figures = [first.alias(&first_name), rows.alias(&rows_name)];
                joined.plan = builder.aggregate(keys, figures)?.build()?;
                let names = [first_name.as_str(), rows_name.as_str()];
                let columns = self.join(joined, JoinType::Left, &names, vec![])?;
                // Asked only of the rows that want the value: others may have as many as they like.
                return Ok(one_row().call(columns.into_iter().map(Expr::Column).collect()));
            }
        };
        joined.plan = builder.build()?;
        // Where the subquery has no row at all, its value is that of an aggregate of nothing.
        match default.flatten() {
            None => {
                let columns = self.join(joined, JoinType::Left, &[&name], vec![])?;
                Ok(Expr::Column(columns[0].clone()))
            }
            Some(default) => {
                let found = self.binder.fresh("found");
                let all = joined.plan.schema().columns().into_iter().map(Expr::Column);
                let all: Vec<Expr> = all.chain([lit(true).alias(&found)]).collect();
                joined.plan = LogicalPlanBuilder::from(joined.plan).project(all)?.build()?;
                let columns = self.join(joined, JoinType::Left, &[&name, &found], vec![])?;
                let is_missing = Expr::Column(columns[1].clone()).is_null();
                Ok(when(is_missing, default).otherwise(Expr::Column(columns[0].clone()))?)
            }
        }
    }

    /// A subquery that DataFusion joins to these rows: its column has a name that they do not have, and
    /// may be NULL.
    fn apart(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let value = plan.schema().columns().swap_remove(0);
        let is_taken = self.plan.schema().fields().iter().any(|f| *f.name() == value.name);
        let name = if is_taken { self.binder.fresh("value") } else { value.name.clone() };
        let is_nullable = plan.schema().field(0).is_nullable();
        if is_nullable && !is_taken {
            return Ok(plan);
        }
        let value = Expr::Column(value);
        let value = if is_nullable { value } else { nullable().call(vec![value]) };
        Ok(LogicalPlanBuilder::from(plan).project([value.alias(name)])?.build()?)
    }

    /// A subquery that may have no row has a value that may be NULL. Where its column never is, or may
    /// become a constant, it is aggregated to one row: a rule that knows the column's value would take it
    /// for the subquery's.
    fn maybe_none(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if is_always_one_row(&plan) || stays_nullable(&plan, 0) {
            return Ok(plan);
        }
        let value = plan.schema().columns().swap_remove(0);
        let figures = [
            self.aggregate("first_value", vec![Expr::Column(value)])?,
            self.aggregate("count", vec![lit(1_i64)])?,
        ];
        let rows = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), figures)?;
        let figures = rows.schema().columns().into_iter().map(Expr::Column).collect();
        let value = one_row().call(figures).alias(self.binder.fresh("value"));
        Ok(rows.project([value])?.build()?)
    }

    /// Whether a subquery has rows; `None` if only the rows where it is so are left.
    pub fn exists(
        &mut self,
        plan: LogicalPlan,
        negated: bool,
        standing: Standing,
    ) -> Result<Option<Expr>> {
        if always_has_rows(&plan) {
            return Ok(Some(lit(!negated)));
        }
        let columns = self.outer(&plan)?;
        if columns.is_empty() && self.sees_all(&plan)? {
            // One row is enough to know.
            let rows = LogicalPlanBuilder::from(plan).limit(0, Some(1))?;
            let count = self.aggregate("count", vec![lit(1_i64)])?;
            let count = rows.aggregate(Vec::<Expr>::new(), [count])?.build()?;
            let rows = Expr::ScalarSubquery(subquery(count));
            let op = if negated { Operator::Eq } else { Operator::Gt };
            return Ok(Some(binary(rows, op, lit(0_i64))));
        }
        let is_guarded = self.is_guarded(&plan)?;
        let in_condition = matches!(standing, Standing::Condition | Standing::WithinCondition);
        if in_condition && !is_guarded && self.sees_all(&plan)? && is_filtered(&plan, &columns) {
            return Ok(Some(Expr::Exists(Exists::new(subquery(plan), negated))));
        }
        let one_row = has_one_row(&plan, &columns)? || is_guarded;
        let joined = self.pushed(plan, columns, one_row)?;
        if standing == Standing::Condition {
            let kind = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
            self.join(joined, kind, &[], vec![])?;
            return Ok(None);
        }
        let mark = self.mark(joined, vec![])?;
        Ok(Some(if negated { Expr::Not(Box::new(mark)) } else { mark }))
    }

    /// `value IN (subquery)`; `None` if only the rows where it is so are left.
    pub fn found(
        &mut self,
        value: Expr,
        plan: LogicalPlan,
        negated: bool,
        standing: Standing,
    ) -> Result<Option<Expr>> {
        let columns = self.outer(&plan)?;
        let item = plan.schema().columns()[0].clone();
        let item_is_nullable = plan.schema().field(0).is_nullable();
        let is_plain = matches!(value, Expr::Column(_));
        let is_guarded = self.is_guarded(&plan)?;
        let is_simple = standing == Standing::Condition
            && (!is_guarded || columns.is_empty())
            && self.sees_all(&plan)?
            && match (negated, columns.is_empty()) {
                (_, true) => is_plain || !negated,
                (false, false) => is_filtered(&plan, &columns),
                (true, false) => false,
            };
        if is_simple {
            let found = InSubquery::new(Box::new(value), subquery(plan), negated);
            return Ok(Some(Expr::InSubquery(found)));
        }
        let (value, value_is_nullable) = self.computed(value)?;
        let one_row = has_one_row(&plan, &columns)? || is_guarded;
        let mut rows = self.pushed(plan, columns, one_row)?;
        // Where NULLs may be, they are looked at twice.
        rows.plan = kept(rows.plan)?;
        let knows_all = !value_is_nullable && !item_is_nullable;
        // A NULL in the subquery matches nothing, and is asked for apart.
        let matching = Joined {
            plan: match item_is_nullable {
                true => {
                    let is_known = Expr::Column(item.clone()).is_not_null();
                    LogicalPlanBuilder::from(rows.plan.clone()).filter(is_known)?.build()?
                }
                false => rows.plan.clone(),
            },
            on: rows.on.clone(),
            null_equality: rows.null_equality,
        };
        let pair = vec![(value.clone(), item.clone())];
        if standing == Standing::Condition && (!negated || knows_all) {
            let kind = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
            self.join(matching, kind, &[], pair)?;
            return Ok(None);
        }
        let mark = self.mark(matching, pair)?;
        let found = match knows_all {
            true => mark,
            false => {
                let [all, known] = self.counts(rows, &item)?;
                let zero = || lit(0_i64);
                let is_empty = binary(all.clone(), Operator::Eq, zero()).or(all.clone().is_null());
                let is_unknown = value.is_null().or(binary(known, Operator::Lt, all));
                when(mark, lit(true))
                    .when(is_empty, lit(false))
                    .when(is_unknown, lit(ScalarValue::Boolean(None)))
                    .otherwise(lit(false))?
            }
        };
        Ok(Some(if negated { Expr::Not(Box::new(found)) } else { found }))
    }

    /// `value < ANY (subquery)`, `value >= ALL (subquery)` and their like, by the least and the greatest
    /// value of the subquery.
    pub fn compared(
        &mut self,
        value: Expr,
        op: Operator,
        quantifier: SetQuantifier,
        plan: LogicalPlan,
    ) -> Result<Expr> {
        let columns = self.outer(&plan)?;
        let item = Expr::Column(plan.schema().columns()[0].clone());
        let (value, _) = self.computed(value)?;
        let one_row = has_one_row(&plan, &columns)? || self.is_guarded(&plan)?;
        let mut joined = self.pushed(plan, columns, one_row)?;
        let names = ["all", "known", "least", "greatest"].map(|name| self.binder.fresh(name));
        let figures = [
            self.aggregate("count", vec![lit(1_i64)])?.alias(&names[0]),
            self.aggregate("count", vec![item.clone()])?.alias(&names[1]),
            self.aggregate("min", vec![item.clone()])?.alias(&names[2]),
            self.aggregate("max", vec![item])?.alias(&names[3]),
        ];
        let keys: Vec<Expr> = joined.on.iter().map(|(_, c)| Expr::Column(c.clone())).collect();
        joined.plan = LogicalPlanBuilder::from(joined.plan).aggregate(keys, figures)?.build()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let columns = self.join(joined, JoinType::Left, &names, vec![])?;
        let [all, known, least, greatest] = &columns[..] else {
            return not_covered("a comparison with a subquery");
        };
        let column = |c: &Column| Expr::Column(c.clone());
        let is_all = quantifier == SetQuantifier::All;
        // `x op ALL` fails where the opposite holds for any.
        let op = match (is_all, op.negate()) {
            (false, _) => op,
            (true, Some(opposite)) => opposite,
            (true, None) => return not_covered("this operator with ALL"),
        };
        let compare = |other: &Column| binary(value.clone(), op, column(other));
        let holds = match op {
            Operator::Lt | Operator::LtEq => compare(greatest),
            Operator::Gt | Operator::GtEq => compare(least),
            Operator::NotEq => compare(least).or(compare(greatest)),
            _ => return not_covered("this operator with ALL"),
        };
        let is_empty = column(all).is_null().or(binary(column(all), Operator::Eq, lit(0_i64)));
        let is_unknown =
            value.clone().is_null().or(binary(column(known), Operator::Lt, column(all)));
        let any = when(is_empty, lit(false))
            .when(Expr::IsTrue(Box::new(holds)), lit(true))
            .when(is_unknown, lit(ScalarValue::Boolean(None)))
            .otherwise(lit(false))?;
        Ok(if is_all { Expr::Not(Box::new(any)) } else { any })
    }

    /// How many rows there are for each row around, and how many of them are not NULL.
    fn counts(&mut self, rows: Joined, item: &Column) -> Result<[Expr; 2]> {
        let names = [self.binder.fresh("all"), self.binder.fresh("known")];
        let figures = [
            self.aggregate("count", vec![lit(1_i64)])?.alias(&names[0]),
            self.aggregate("count", vec![Expr::Column(item.clone())])?.alias(&names[1]),
        ];
        let keys: Vec<Expr> = rows.on.iter().map(|(_, c)| Expr::Column(c.clone())).collect();
        let plan = LogicalPlanBuilder::from(rows.plan).aggregate(keys, figures)?.build()?;
        let columns =
            self.join(Joined { plan, ..rows }, JoinType::Left, &[&names[0], &names[1]], vec![])?;
        Ok([Expr::Column(columns[0].clone()), Expr::Column(columns[1].clone())])
    }

    /// A value as a column of the rows around, so that it is computed once, and whether it may be NULL.
    fn computed(&mut self, value: Expr) -> Result<(Expr, bool)> {
        let schema = self.plan.schema();
        if let Expr::Column(column) = &value
            && let Some(at) = schema.maybe_index_of_column(column)
        {
            return Ok((value, schema.field(at).is_nullable()));
        }
        let name = self.binder.fresh("value");
        let columns = schema.columns().into_iter().map(Expr::Column);
        let columns: Vec<Expr> = columns.chain([value.alias(&name)]).collect();
        let plan = std::mem::take(&mut self.plan);
        self.plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
        Ok((Expr::Column(Column::from_name(name)), true))
    }

    /// Whether all that a subquery names of queries around it are columns of these rows.
    fn sees_all(&self, plan: &LogicalPlan) -> Result<bool> {
        let schema = self.plan.schema();
        let is_here = |e: &Expr| match e {
            Expr::OuterReferenceColumn(_, column) => schema.maybe_index_of_column(column).is_some(),
            _ => true,
        };
        Ok(plan.all_out_ref_exprs().iter().all(is_here))
    }

    /// The subquery for all rows around it.
    fn pushed(&mut self, plan: LogicalPlan, columns: Vec<Column>, one_row: bool) -> Result<Joined> {
        if columns.is_empty() {
            return Ok(Joined { plan, on: vec![], null_equality: NullEquality::NullEqualsNothing });
        }
        let equal = Domain::of_equal(self.binder, &plan, &columns)?.filter(|_| !one_row);
        let pushed = match equal {
            Some(domain) => match domain.push(plan.clone()) {
                Err(Failure::NotCovered(..)) => None,
                pushed => Some((domain, pushed?)),
            },
            None => None,
        };
        let (domain, (plan, keys)) = match pushed {
            Some(pushed) => pushed,
            None => {
                let domain = match self.is_guarded(&plan)? {
                    true => {
                        self.keep_rows()?;
                        Domain::of_values(self.binder, &self.guarded_rows()?, columns)?
                    }
                    false => Domain::of_values(self.binder, &self.rows_with(&columns)?, columns)?,
                };
                let pushed = domain.push(plan)?;
                (domain, pushed)
            }
        };
        let (outer, null_equality) = match &domain.keys {
            Keys::Equal(outer) => (outer.clone(), NullEquality::NullEqualsNothing),
            Keys::Domain(_) => {
                let outer = domain.columns.iter().cloned().map(Expr::Column).collect();
                (outer, NullEquality::NullEqualsNull)
            }
        };
        Ok(Joined { plan, on: outer.into_iter().zip(keys).collect(), null_equality })
    }

    /// The rows from here on are the same in all places that they are put into.
    fn keep_rows(&mut self) -> Result<()> {
        let rows = kept(std::mem::take(&mut self.plan))?;
        self.plan = if varies(&rows)? { decided(rows)? } else { rows };
        Ok(())
    }

    /// Rows that have these columns, and all values of them that there are here. A domain is of the rows as
    /// they were before the subqueries that were joined to them, if these have the columns: those subqueries
    /// have domains of their own, and the plan would double with each.
    fn rows_with(&mut self, columns: &[Column]) -> Result<LogicalPlan> {
        let has_all = |rows: &&LogicalPlan| {
            columns.iter().all(|c| rows.schema().maybe_index_of_column(c).is_some())
        };
        if let Some(base) = self.base.as_ref().filter(has_all) {
            return Ok(base.clone());
        }
        self.keep_rows()?;
        self.base = Some(self.plan.clone());
        Ok(self.plan.clone())
    }

    /// Joins a subquery, and gives the columns of these names.
    fn join(
        &mut self,
        joined: Joined,
        kind: JoinType,
        names: &[&str],
        further: Vec<(Expr, Column)>,
    ) -> Result<Vec<Column>> {
        let own = TableReference::bare(self.binder.fresh("subquery"));
        // Only what is asked for, under names that nothing else has.
        let on: Vec<(Expr, Column)> = joined.on.into_iter().chain(further).collect();
        let keys: Vec<String> = on.iter().map(|_| self.binder.fresh("key")).collect();
        let mut columns: Vec<Expr> = on
            .iter()
            .zip(&keys)
            .map(|((_, column), name)| Expr::Column(column.clone()).alias(name))
            .collect();
        columns.extend(names.iter().map(|name| Expr::Column(Column::from_name(*name))));
        if columns.is_empty() {
            columns.push(lit(true).alias(self.binder.fresh("row")));
        }
        let right = LogicalPlanBuilder::from(joined.plan).project(columns)?.alias(own.clone())?;
        let pairs = on.into_iter().zip(&keys);
        let pairs = pairs
            .map(|((outer, _), name)| (outer, Expr::Column(Column::new(Some(own.clone()), name))));
        let left = std::mem::take(&mut self.plan);
        let pairs: Vec<(Expr, Expr)> = pairs.collect();
        let always = pairs.is_empty().then(|| lit(true));
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right.build()?),
            pairs,
            always,
            kind,
            JoinConstraint::On,
            joined.null_equality,
            false,
        )?;
        self.plan = LogicalPlan::Join(join);
        Ok(names.iter().map(|name| Column::new(Some(own.clone()), *name)).collect())
    }

    /// Joins a subquery for whether it has a row.
    fn mark(&mut self, joined: Joined, further: Vec<(Expr, Column)>) -> Result<Expr> {
        let columns = self.columns();
        self.join(joined, JoinType::LeftMark, &[], further)?;
        let all = self.plan.schema().columns();
        let Some(mark) = all.last().filter(|_| all.len() == columns.len() + 1) else {
            return Err(Failure::Wrong(thalweg_base::Error::internal("a join has no mark")));
        };
        // Every such column has one name.
        let name = self.binder.fresh("mark");
        let kept = columns.into_iter().map(Expr::Column);
        let kept: Vec<Expr> = kept.chain([Expr::Column(mark.clone()).alias(&name)]).collect();
        let plan = std::mem::take(&mut self.plan);
        self.plan = LogicalPlanBuilder::from(plan).project(kept)?.build()?;
        Ok(Expr::Column(Column::from_name(name)))
    }

    fn aggregate(&self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        match self.binder.names.get_aggregate_meta(name) {
            Some(function) => Ok(function.call(args)),
            None => Err(Failure::Wrong(thalweg_base::Error::internal(format!(
                "there is no aggregate {name}"
            )))),
        }
    }
}

fn subquery(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Default::default() }
}

/// The aggregates without groups of a plan that depend on the rows around.
fn has_one_row(plan: &LogicalPlan, columns: &[Column]) -> Result<bool> {
    if columns.is_empty() {
        return Ok(false);
    }
    Ok(plan.exists_node(has_group_of_all))
}

/// Of grouping sets the empty one is a group of all rows as well.
fn has_group_of_all(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Aggregate(a) => {
            a.group_expr.is_empty() || matches!(&a.group_expr[..], [Expr::GroupingSet(_)])
        }
        _ => false,
    }
}

trait ExistsNode {
    fn exists_node(&self, f: impl Fn(&LogicalPlan) -> bool) -> bool;
}

impl ExistsNode for LogicalPlan {
    fn exists_node(&self, f: impl Fn(&LogicalPlan) -> bool) -> bool {
        use datafusion::common::tree_node::TreeNode;
        self.exists(|node| Ok(f(node))).unwrap_or(true)
    }
}

/// The value of a subquery that has no rows to look at: `None` if it cannot be told without looking,
/// `Some(None)` if it is NULL.
fn empty_value(
    plan: &LogicalPlan,
    value: &Column,
    columns: &[Column],
) -> Result<Option<Option<Expr>>> {
    if !has_one_row(plan, columns)? {
        return Ok(Some(None));
    }
    let Some(expr) = over_nothing(plan, value)? else { return Ok(None) };
    let is_null = matches!(&expr, Expr::Literal(value, _) if value.is_null());
    Ok(Some((!is_null).then_some(expr)))
}

/// A column of projections over one aggregate without groups, if this has no rows.
fn over_nothing(plan: &LogicalPlan, column: &Column) -> Result<Option<Expr>> {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let Some(at) = plan.schema().maybe_index_of_column(column) else { return Ok(None) };
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            over_nothing(&alias.input, &alias.input.schema().columns()[at])
        }
        LogicalPlan::Projection(projection) => {
            // What a filter above the aggregate leaves is not known.
            let mut all = is_one_group(&projection.input);
            let expr = projection.expr[at].clone().unalias_nested().data;
            let expr = expr.transform_up(|e| {
                let Expr::Column(inner) = &e else {
                    all &= !matches!(e, Expr::OuterReferenceColumn(..)) && !e.is_volatile_node();
                    return Ok(Transformed::no(e));
                };
                match over_nothing(&projection.input, inner)? {
                    Some(expr) => Ok(Transformed::yes(expr)),
                    None => {
                        all = false;
                        Ok(Transformed::no(e))
                    }
                }
            })?;
            Ok(all.then_some(expr.data))
        }
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            let below_is_plain = !aggregate.input.exists_node(has_group_of_all);
            let Expr::AggregateFunction(call) = aggregate.aggr_expr[at].clone().unalias() else {
                return Ok(None);
            };
            let data_type: &DataType = aggregate.schema.field(at).data_type();
            let default = call.func.default_value(data_type)?;
            Ok(below_is_plain.then(|| Expr::Literal(default, None)))
        }
        _ => Ok(None),
    }
}
/// Whether a plan is an aggregate without groups, and nothing above it that drops its row.
pub(super) fn is_one_group(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => is_one_group(&alias.input),
        LogicalPlan::Projection(projection) => is_one_group(&projection.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// All of some conditions.
pub(super) fn all_of(conditions: Vec<Expr>) -> Expr {
    conjunction(conditions).unwrap_or_else(|| lit(true))
}
