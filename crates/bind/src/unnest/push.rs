//! Carries the columns of the rows around through a subquery, from its root down.

use std::sync::Arc;

use datafusion::common::{Column, JoinType, NullEquality, ScalarValue};
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, EmptyRelation, Expr, FetchType, Filter, GroupingSet, Join,
    Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection, SkipType, Sort, SubqueryAlias,
    Union, Unnest, Window, WindowFrame, WindowFunctionDefinition, lit,
};

use super::attach::all_of;
use super::domain::{Domain, Keys, equality, shared};
use crate::failure::{Result, not_covered};
use crate::grouping_sets::lists;
use crate::rows::without_keys;
use crate::typed::binary;

/// A plan for all rows around it, and the columns that say for which.
type Pushed = (LogicalPlan, Vec<Column>);

impl Domain<'_, '_> {
    pub fn push(&self, plan: LogicalPlan) -> Result<Pushed> {
        if let LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) = plan {
            return self.instance();
        }
        if !self.concerns(&plan)? {
            // The same rows for every value of the domain.
            let (domain, keys) = self.instance()?;
            let plan = LogicalPlanBuilder::from(plan).cross_join(domain)?.build()?;
            return Ok((plan, keys));
        }
        match plan {
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::SubqueryAlias(alias) => self.alias(alias),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let (input, keys) = self.push(Arc::unwrap_or_clone(input))?;
                Ok((LogicalPlan::Distinct(Distinct::All(shared(input))), keys))
            }
            LogicalPlan::Distinct(Distinct::On(on)) => self.distinct_on(on),
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => {
                let (input, keys) = self.push(Arc::unwrap_or_clone(input))?;
                let expr = self.sorts(expr, &keys)?;
                Ok((LogicalPlan::Sort(Sort { expr, input: shared(input), fetch: None }), keys))
            }
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Unnest(Unnest { input, exec_columns, options, .. }) => {
                let (input, keys) = self.push(Arc::unwrap_or_clone(input))?;
                let rows = LogicalPlanBuilder::from(without_keys(input)?);
                Ok((rows.unnest_columns_with_options(exec_columns, options)?.build()?, keys))
            }
            _ => not_covered("this operator in a correlated subquery"),
        }
    }

    fn filter(&self, filter: Filter) -> Result<Pushed> {
        let Filter { predicate, input, .. } = filter;
        if let Keys::Equal(outer) = &self.keys
            && self.concerns_expr(&predicate)
        {
            let mut found: Vec<Option<Expr>> = vec![None; outer.len()];
            let mut rest = vec![];
            for condition in split_conjunction_owned(predicate) {
                match equality(&condition, &self.columns) {
                    Some((key, own)) => match outer.iter().position(|o| *o == key) {
                        Some(at) => found[at] = Some(own),
                        None => return not_covered("this correlation"),
                    },
                    None => rest.push(condition),
                }
            }
            let mut builder = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input));
            if let Some(rest) = conjunction(rest) {
                builder = builder.filter(rest)?;
            }
            let mut columns: Vec<Expr> =
                builder.schema().columns().into_iter().map(Expr::Column).collect();
            let mut keys = vec![];
            for own in found {
                let Some(own) = own else { return not_covered("this correlation") };
                let name = self.binder.fresh("key");
                columns.push(own.alias(&name));
                keys.push(Column::from_name(name));
            }
            return Ok((builder.project(columns)?.build()?, keys));
        }
        let (input, keys) = self.push(Arc::unwrap_or_clone(input))?;
        let predicate = self.substituted(predicate, &keys)?;
        Ok((LogicalPlanBuilder::from(input).filter(predicate)?.build()?, keys))
    }

    fn projection(&self, projection: Projection) -> Result<Pushed> {
        let (input, keys) = self.push(Arc::unwrap_or_clone(projection.input))?;
        let mut expr = self.named(projection.expr, &keys)?;
        carry(&mut expr, &keys);
        Ok((LogicalPlanBuilder::from(input).project(expr)?.build()?, keys))
    }

    fn alias(&self, alias: SubqueryAlias) -> Result<Pushed> {
        let (input, keys) = self.push(Arc::unwrap_or_clone(alias.input))?;
        let plan = LogicalPlanBuilder::from(input).alias(alias.alias.clone())?.build()?;
        let own = |key: Column| Column::new(Some(alias.alias.clone()), key.name);
        let keys = keys.into_iter().map(own).collect();
        Ok((plan, keys))
    }

    fn aggregate(&self, aggregate: Aggregate) -> Result<Pushed> {
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
        let mut is_one = group_expr.is_empty();
        let own_keys = schema.fields().len() - aggr_expr.len();
        let (input, keys) = self.push(Arc::unwrap_or_clone(input))?;
        let mut groups = self.named(group_expr, &keys)?;
        let figures = self.named(aggr_expr, &keys)?;
        match &mut groups[..] {
            [Expr::GroupingSet(set)] => {
                let mut all = lists(set.clone());
                match all.iter().filter(|list| list.is_empty()).count() {
                    0 => {}
                    // The row that there is without any rows is that of the group of all.
                    1 => is_one = true,
                    _ => return not_covered("two totals in a correlated subquery"),
                }
                for list in &mut all {
                    carry(list, &keys);
                }
                groups = vec![Expr::GroupingSet(GroupingSet::GroupingSets(all))];
            }
            _ => carry(&mut groups, &keys),
        }
        let grouped = Aggregate::try_new(shared(input), groups, figures.clone())?;
        let grouped = LogicalPlan::Aggregate(grouped);
        if !is_one || self.is_equal() {
            return Ok((grouped, keys));
        }
        // An aggregate without groups gives a row for every value of the domain, with rows or without.
        let (domain, own) = self.instance()?;
        let pairs = own.iter().zip(&keys);
        let pairs = pairs.map(|(o, k)| (Expr::Column(o.clone()), Expr::Column(k.clone())));
        let joined = LogicalPlan::Join(Join::try_new(
            shared(domain),
            shared(grouped),
            pairs.collect(),
            None,
            JoinType::Left,
            datafusion::common::JoinConstraint::On,
            NullEquality::NullEqualsNull,
            false,
        )?);
        let Some(coalesce) = self.binder.names.get_function_meta("coalesce") else {
            return not_covered("coalesce");
        };
        let mut columns: Vec<Expr> = own.iter().cloned().map(Expr::Column).collect();
        // Behind the keys of sets is the number of the set, which nobody above names.
        let named = own_keys.saturating_sub(1);
        columns.extend(schema.columns().into_iter().take(named).map(Expr::Column));
        for (at, figure) in figures.into_iter().enumerate() {
            let (relation, name) = figure.qualified_name();
            let column = Expr::Column(Column::new(relation.clone(), &name));
            let Expr::AggregateFunction(call) = figure.unalias() else {
                return not_covered("this aggregate");
            };
            let data_type = schema.field(own_keys + at).data_type();
            let default = match call.func.name() {
                // In the total no key is grouped by.
                "grouping" => ScalarValue::Int64(Some((1 << call.params.args.len()) - 1))
                    .cast_to(data_type)?,
                _ => call.func.default_value(data_type)?,
            };
            columns.push(match default.is_null() {
                true => column,
                false => coalesce.call(vec![column, lit(default)]).alias_qualified(relation, name),
            });
        }
        Ok((LogicalPlanBuilder::from(joined).project(columns)?.build()?, own))
    }

    fn distinct_on(&self, on: DistinctOn) -> Result<Pushed> {
        let (input, keys) = self.push(Arc::unwrap_or_clone(on.input))?;
        let mut on_expr = self.named(on.on_expr, &keys)?;
        let mut select_expr = self.named(on.select_expr, &keys)?;
        let sort_expr = match on.sort_expr {
            Some(sorts) => {
                let mut by: Vec<SortExpr> =
                    keys.iter().map(|k| Expr::Column(k.clone()).sort(true, false)).collect();
                by.extend(self.sorts(sorts, &keys)?);
                Some(by)
            }
            None => None,
        };
        let mut leading: Vec<Expr> = keys.iter().cloned().map(Expr::Column).collect();
        leading.append(&mut on_expr);
        carry(&mut select_expr, &keys);
        let plan = DistinctOn::try_new(leading, select_expr, sort_expr, shared(input))?;
        let plan = LogicalPlan::Distinct(Distinct::On(plan));
        // They are called as they were: beside one with a qualifier, one without would be ambiguous.
        let columns = plan.schema().columns();
        let own = |key: Column| match columns.contains(&key) {
            true => key,
            false => Column::from_name(key.name),
        };
        Ok((plan, keys.into_iter().map(own).collect()))
    }

    /// The first rows for each value: they are numbered.
    fn limit(&self, limit: Limit) -> Result<Pushed> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return not_covered("a LIMIT that is no number in a correlated subquery");
        };
        match Arc::unwrap_or_clone(limit.input) {
            // Keys that are no columns of the result are dropped above the order.
            LogicalPlan::Projection(Projection { expr, input, .. })
                if matches!(*input, LogicalPlan::Sort(_)) =>
            {
                let (plan, keys) = self.numbered(Arc::unwrap_or_clone(input), skip, fetch)?;
                let mut expr = self.named(expr, &keys)?;
                carry(&mut expr, &keys);
                Ok((LogicalPlanBuilder::from(plan).project(expr)?.build()?, keys))
            }
            other => self.numbered(other, skip, fetch),
        }
    }

    fn numbered(&self, plan: LogicalPlan, skip: usize, fetch: Option<usize>) -> Result<Pushed> {
        let (plan, by) = match plan {
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => {
                (Arc::unwrap_or_clone(input), expr)
            }
            other => (other, vec![]),
        };
        let (plan, keys) = self.push(plan)?;
        let order_by = self.sorts(by, &keys)?;
        let Some(row_number) = self.binder.names.get_window_meta("row_number") else {
            return not_covered("row_number");
        };
        let name = self.binder.fresh("number");
        let number = Expr::WindowFunction(Box::new(WindowFunction {
            fun: WindowFunctionDefinition::WindowUDF(row_number),
            params: WindowFunctionParams {
                args: vec![],
                partition_by: keys.iter().cloned().map(Expr::Column).collect(),
                window_frame: WindowFrame::new((!order_by.is_empty()).then_some(false)),
                order_by,
                filter: None,
                null_treatment: None,
                distinct: false,
            },
        }));
        let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let number = number.alias(&name);
        let numbered = LogicalPlanBuilder::from(plan).window([number])?;
        let at = || {
            let number = Expr::Column(Column::from_name(&name));
            datafusion::logical_expr::cast(number, arrow::datatypes::DataType::Int64)
        };
        let mut conditions = vec![];
        if skip > 0 {
            conditions.push(binary(at(), Operator::Gt, lit(skip as i64)));
        }
        if let Some(fetch) = fetch {
            let last = skip.saturating_add(fetch).min(i64::MAX as usize) as i64;
            conditions.push(binary(at(), Operator::LtEq, lit(last)));
        }
        let plan = numbered.filter(all_of(conditions))?.project(columns)?.build()?;
        Ok((plan, keys))
    }

    fn window(&self, window: Window) -> Result<Pushed> {
        let (input, keys) = self.push(Arc::unwrap_or_clone(window.input))?;
        let mut exprs = vec![];
        for expr in window.window_expr {
            let (relation, name) = expr.qualified_name();
            let Expr::WindowFunction(mut call) = self.substituted(expr, &keys)?.unalias() else {
                return not_covered("this window");
            };
            carry(&mut call.params.partition_by, &keys);
            exprs.push(Expr::WindowFunction(call).alias_qualified(relation, name));
        }
        let plan = LogicalPlan::Window(Window::try_new(exprs, shared(input))?);
        Ok((plan, keys))
    }

    fn join(&self, join: Join) -> Result<Pushed> {
        let Join {
            left,
            right,
            on,
            filter,
            join_type,
            join_constraint,
            null_equality,
            null_aware,
            ..
        } = join;
        let (of_left, of_right) = (self.concerns(&left)?, self.concerns(&right)?);
        let of_filter = filter.as_ref().is_some_and(|f| self.concerns_expr(f))
            || on.iter().any(|(l, r)| self.concerns_expr(l) || self.concerns_expr(r));
        use JoinType as J;
        // Which side has the rows that are kept whether they match or not.
        let (push_left, push_right) = match join_type {
            J::Inner => match (of_left, of_right) {
                (false, false) => (true, false),
                sides => sides,
            },
            J::Left | J::LeftSemi | J::LeftAnti | J::LeftMark => (true, of_right),
            J::Right | J::RightSemi | J::RightAnti | J::RightMark => (of_left, true),
            J::Full => (true, true),
        };
        if self.is_equal() && (push_left && push_right || of_filter) {
            return not_covered("this correlation of a join");
        }
        let (left, left_keys) = match push_left {
            true => self.push(Arc::unwrap_or_clone(left)).map(|(p, k)| (p, Some(k)))?,
            false => (Arc::unwrap_or_clone(left), None),
        };
        let (right, right_keys) = match push_right {
            true => self.push(Arc::unwrap_or_clone(right)).map(|(p, k)| (p, Some(k)))?,
            false => (Arc::unwrap_or_clone(right), None),
        };
        // Those of the side whose rows are kept: the other's are NULL where nothing matches.
        let keeps_right =
            matches!(join_type, J::Right | J::RightSemi | J::RightAnti | J::RightMark);
        let kept = if keeps_right { [&right_keys, &left_keys] } else { [&left_keys, &right_keys] };
        let Some(keys) = kept.into_iter().flatten().next() else {
            return not_covered("this join in a correlated subquery");
        };
        let mut conditions = vec![];
        for (l, r) in on {
            let (l, r) = (self.substituted(l, keys)?, self.substituted(r, keys)?);
            let op = match null_equality {
                NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
                NullEquality::NullEqualsNothing => Operator::Eq,
            };
            conditions.push((l, op, r));
        }
        let filter = filter.map(|f| self.substituted(f, keys)).transpose()?;
        let both = left_keys.is_some() && right_keys.is_some();
        if null_aware {
            return not_covered("NOT IN in a correlated subquery");
        }
        let (on, filter, null_equality) = match both {
            false => {
                let on = conditions.into_iter().map(|(l, _, r)| (l, r)).collect();
                (on, filter, null_equality)
            }
            true => {
                let pairs = left_keys.iter().flatten().zip(right_keys.iter().flatten());
                let pairs = pairs.map(|(l, r)| (Expr::Column(l.clone()), Expr::Column(r.clone())));
                let further = conditions.into_iter().map(|(l, op, r)| binary(l, op, r));
                let filter: Vec<Expr> =
                    filter.into_iter().flat_map(split_conjunction_owned).chain(further).collect();
                // One join has one answer to whether NULL is NULL, for all that it compares by hashes: a
                // plain `=` beside the keys decides it.
                let is_equality =
                    |e: &Expr| matches!(e, Expr::BinaryExpr(b) if b.op == Operator::Eq);
                match filter.iter().any(is_equality) {
                    true => {
                        let keys = pairs.map(|(l, r)| binary(l, Operator::IsNotDistinctFrom, r));
                        let filter = conjunction(filter.into_iter().chain(keys));
                        (vec![], filter, NullEquality::NullEqualsNothing)
                    }
                    false => (pairs.collect(), conjunction(filter), NullEquality::NullEqualsNull),
                }
            }
        };
        let columns: Vec<Expr> = match join_type {
            J::Full => {
                let kept = left.schema().columns().into_iter().chain(right.schema().columns());
                kept.map(Expr::Column).collect()
            }
            _ => vec![],
        };
        let keys = keys.clone();
        let joined = Join::try_new(
            shared(left),
            shared(right),
            on,
            filter,
            join_type,
            join_constraint,
            null_equality,
            null_aware,
        )?;
        let joined = LogicalPlan::Join(joined);
        if join_type != J::Full {
            return Ok((joined, keys));
        }
        // Of a row that is on one side alone, that side says for whom it is.
        let Some(coalesce) = self.binder.names.get_function_meta("coalesce") else {
            return not_covered("coalesce");
        };
        let mut columns = columns;
        let mut merged = vec![];
        for (l, r) in left_keys.iter().flatten().zip(right_keys.iter().flatten()) {
            let name = self.binder.fresh("outer");
            let both = vec![Expr::Column(l.clone()), Expr::Column(r.clone())];
            columns.push(coalesce.call(both).alias(&name));
            merged.push(Column::from_name(name));
        }
        Ok((LogicalPlanBuilder::from(joined).project(columns)?.build()?, merged))
    }

    fn union(&self, union: Union) -> Result<Pushed> {
        if self.is_equal() {
            return not_covered("this correlation of a union");
        }
        let names: Vec<String> = self.columns.iter().map(|_| self.binder.fresh("outer")).collect();
        let mut inputs = vec![];
        for input in union.inputs {
            let own = input.schema().columns();
            let (plan, keys) = self.push(Arc::unwrap_or_clone(input))?;
            let mut columns: Vec<Expr> = own.into_iter().map(Expr::Column).collect();
            let keys = keys.into_iter().zip(&names);
            columns.extend(keys.map(|(key, name)| Expr::Column(key).alias(name)));
            inputs.push(shared(LogicalPlanBuilder::from(plan).project(columns)?.build()?));
        }
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        // A union's columns have no qualifiers, or those of its first input.
        let all = plan.schema().columns();
        let keys = all[all.len() - names.len()..].to_vec();
        let before = union.schema.columns();
        let mut columns: Vec<Expr> = vec![];
        for (now, before) in all.iter().zip(&before) {
            let column = Expr::Column(now.clone());
            columns.push(match now == before {
                true => column,
                false => column.alias_qualified(before.relation.clone(), &before.name),
            });
        }
        columns.extend(keys.iter().cloned().map(Expr::Column));
        Ok((LogicalPlanBuilder::from(plan).project(columns)?.build()?, keys))
    }

    fn sorts(&self, sorts: Vec<SortExpr>, keys: &[Column]) -> Result<Vec<SortExpr>> {
        let sort = |mut sort: SortExpr| {
            sort.expr = self.substituted(sort.expr, keys)?;
            Ok(sort)
        };
        sorts.into_iter().map(sort).collect()
    }

    /// Expressions over the keys, under the names that they had.
    fn named(&self, exprs: Vec<Expr>, keys: &[Column]) -> Result<Vec<Expr>> {
        let named = |expr: Expr| {
            if !self.concerns_expr(&expr) {
                return Ok(expr);
            }
            let (relation, name) = expr.qualified_name();
            let expr = self.substituted(expr, keys)?;
            Ok(match expr.qualified_name() == (relation.clone(), name.clone()) {
                true => expr,
                false => expr.unalias().alias_qualified(relation, name),
            })
        };
        exprs.into_iter().map(named).collect()
    }
}

/// The keys beside what there is, each once.
fn carry(exprs: &mut Vec<Expr>, keys: &[Column]) {
    for key in keys {
        let key = Expr::Column(key.clone());
        if !exprs.contains(&key) {
            exprs.push(key);
        }
    }
}
