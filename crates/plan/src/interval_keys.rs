//! Intervals are compared by their whole length: `interval '1 month' = interval '30 days'`.
//!
//! Arrow compares them part by part. So wherever a plan compares intervals, orders by them, groups by
//! them, joins on them or makes them distinct, their key takes their place (`thalweg_functions`, `interval_key.rs`).
//! What is shown stays the interval itself: of a group of equal ones, the first. The rule stands behind
//! all others of the analyzer, and so sees what every planner and every rule has made.
//!
//! Lists have keys where they are joined on, grouped by and ordered by (`thalweg_functions`, `list_key.rs`).

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema, Result, ScalarValue, TableReference};
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, Case, InList, InSubquery, ScalarFunction, SetComparison, Sort,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Aggregate, Distinct, DistinctOn, Projection};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, GroupingSet, LogicalPlan, LogicalPlanBuilder, ScalarUDF,
    Subquery, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, binary_expr, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use thalweg_base::Error;
use thalweg_errors::into_datafusion;
use thalweg_functions::interval_key::{INTERVAL_KEY, IntervalExtreme};
use thalweg_functions::interval_max::{INTERVAL_MAX, INTERVAL_MIN};
use thalweg_functions::list_key::{LIST_KEY, ListExtreme, SPAN_LENGTHS, is_list};

#[derive(Debug)]
struct IntervalKeys {
    /// Before types are coerced, which refuses an order of a window by intervals: windows alone.
    first: bool,
}

/// Puts the rule behind all others; for windows, before them.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.analyzer().take().unwrap_or_default().rules;
    rules.insert(0, Arc::new(IntervalKeys { first: true }));
    rules.push(Arc::new(IntervalKeys { first: false }));
    builder.with_analyzer_rules(rules)
}

impl AnalyzerRule for IntervalKeys {
    fn name(&self) -> &str {
        if self.first { "interval_keys_of_windows" } else { "interval_keys" }
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let keyed = plan.transform_up_with_subqueries(|node| {
            if self.first && !matches!(node, LogicalPlan::Window(_)) {
                return Ok(Transformed::no(node));
            }
            if !crate::nodes::may_have(&node, is_keyed)? {
                return Ok(Transformed::no(node));
            }
            let schema = crate::nodes::input_schema(&node)?;
            keyed(node, &schema)
        })?;
        if !keyed.transformed {
            return Ok(keyed.data);
        }
        // What is NULL may have changed below.
        let plan = keyed
            .data
            .transform_up_with_subqueries(|node| Ok(Transformed::yes(node.recompute_schema()?)))?;
        Ok(plan.data)
    }
}

/// Duration has one part alone, and Arrow compares it as it is.
fn is_span(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(IntervalUnit::MonthDayNano | IntervalUnit::DayTime))
}

fn is_list_of_spans(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(item) if holds_spans(item.data_type()))
}

/// An interval, or a list of them.
fn holds_spans(data_type: &DataType) -> bool {
    is_span(data_type) || is_list_of_spans(data_type)
}

/// Functions that say where in a list something is, or whether it is there.
const SEARCHES: [&str; 5] =
    ["array_has", "array_has_all", "array_has_any", "array_position", "array_positions"];

/// Functions that compare the items of a list, and give some of them.
const PICKS: [&str; 10] = [
    "array_distinct",
    "array_except",
    "array_intersect",
    "array_max",
    "array_min",
    "array_remove",
    "array_remove_all",
    "array_replace_all",
    "array_sort",
    "array_union",
];

/// What is joined on and grouped by a key.
fn is_keyed(data_type: &DataType) -> bool {
    is_span(data_type) || is_list(data_type)
}

fn gives_span(expr: &Expr, schema: &DFSchema) -> bool {
    gives(expr, schema, is_span)
}

fn gives(expr: &Expr, schema: &DFSchema, is: fn(&DataType) -> bool) -> bool {
    match expr {
        Expr::Literal(value, _) => is(&value.data_type()),
        Expr::Column(column) => schema.data_type(column).is_ok_and(is),
        // What cannot be told here is none: the columns of a plan that is wrong.
        other => other.get_type(schema).is_ok_and(|t| is(&t)),
    }
}

fn key(expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&INTERVAL_KEY), vec![expr]))
}

/// The lengths of an interval, or of the intervals of a list.
fn lengths(expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&SPAN_LENGTHS), vec![expr]))
}

/// The key of an interval or a list.
fn key_of(expr: Expr, schema: &DFSchema) -> Expr {
    match gives_span(&expr, schema) {
        true => key(expr),
        false => Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&LIST_KEY), vec![expr])),
    }
}

fn keyed(node: LogicalPlan, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Sort(mut sort) => {
            let mut any = false;
            for by in &mut sort.expr {
                any |= key_sort(by, schema)?;
                // Not so in windows, whose frames know no order of keys.
                if gives(&by.expr, schema, is_list) {
                    by.expr = key_of(std::mem::take(&mut by.expr), schema);
                    any = true;
                }
            }
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), any))
        }
        LogicalPlan::Join(mut join) => {
            let mut any = false;
            for (left, right) in &mut join.on {
                let (l, r) = (join.left.schema(), join.right.schema());
                any |= key_expr(left, l)? | key_expr(right, r)?;
                if gives(left, l, is_keyed) && gives(right, r, is_keyed) {
                    *left = key_of(std::mem::take(left), l);
                    *right = key_of(std::mem::take(right), r);
                    any = true;
                }
            }
            if let Some(filter) = &mut join.filter {
                any |= key_expr(filter, schema)?;
            }
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), any))
        }
        LogicalPlan::Aggregate(aggregate) => aggregated(aggregate, schema),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            if !input.schema().fields().iter().any(|f| is_keyed(f.data_type())) {
                return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
            }
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            aggregated(Aggregate::try_new(input, columns, vec![])?, schema)
        }
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct_on(distinct, schema),
        other => {
            let names = NamePreserver::new(&other);
            other.map_expressions(|mut expr| {
                let name = names.save(&expr);
                Ok(match key_expr(&mut expr, schema)? {
                    true => Transformed::yes(name.restore(expr)),
                    false => Transformed::no(expr),
                })
            })
        }
    }
}

/// Brings in keys below an expression; whether there were any to bring.
fn key_expr(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let keyed = std::mem::take(expr).transform_up(|e| compared(e, schema))?;
    *expr = keyed.data;
    Ok(keyed.transformed)
}

/// The same of an order, which is by the key of an interval.
fn key_sort(sort: &mut Sort, schema: &DFSchema) -> Result<bool> {
    let mut any = key_expr(&mut sort.expr, schema)?;
    if gives_span(&sort.expr, schema) {
        sort.expr = key(std::mem::take(&mut sort.expr));
        any = true;
    }
    Ok(any)
}

/// What compares intervals, or lists, within an expression.
fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is = |e: &Expr| gives_span(e, schema);
    let is_keyed = |e: &Expr| gives(e, schema, is_keyed);
    let key = |e: Expr| key_of(e, schema);
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if op.supports_propagation() && is_keyed(&left) && is_keyed(&right) =>
        {
            Transformed::yes(binary_expr(key(*left), op, key(*right)))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_keyed(&expr) => {
            let key = |e: Box<Expr>| Box::new(key(*e));
            let (expr, low, high) = (key(expr), key(low), key(high));
            Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
        }
        Expr::InList(InList { expr, list, negated }) if is_keyed(&expr) => {
            let list = list.into_iter().map(key).collect();
            Transformed::yes(Expr::InList(InList { expr: Box::new(key(*expr)), list, negated }))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) if is_keyed(&expr) => {
            let subquery = key_column(subquery)?;
            let found = InSubquery { expr: Box::new(key(*expr)), subquery, negated };
            Transformed::yes(Expr::InSubquery(found))
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
            if is_keyed(&expr) =>
        {
            let subquery = key_column(subquery)?;
            let expr = Box::new(key(*expr));
            Transformed::yes(Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }))
        }
        Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr })
            if is_keyed(&operand) =>
        {
            let when_then_expr =
                when_then_expr.into_iter().map(|(w, t)| (Box::new(key(*w)), t)).collect();
            let expr = Some(Box::new(key(*operand)));
            Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr }))
        }
        Expr::ScalarFunction(ScalarFunction { func, args })
            if matches!(func.name(), "greatest" | "least")
                && args.iter().all(|e| gives(e, schema, is_list)) =>
        {
            let extreme = ListExtreme::new(func.name() == "greatest");
            let func = Arc::new(ScalarUDF::new_from_impl(extreme));
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        // Lists are searched for intervals by their lengths. What gives intervals out again cannot be.
        Expr::ScalarFunction(ScalarFunction { func, args })
            if SEARCHES.contains(&func.name())
                && args.iter().any(|e| gives(e, schema, is_list_of_spans)) =>
        {
            let length = |arg: Expr| match gives(&arg, schema, holds_spans) {
                true => lengths(arg),
                false => arg,
            };
            let args = args.into_iter().map(length).collect();
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        Expr::ScalarFunction(ScalarFunction { func, args })
            if PICKS.contains(&func.name())
                && args.iter().any(|e| gives(e, schema, is_list_of_spans)) =>
        {
            return refused(&format!("{} of intervals", func.name()));
        }
        Expr::ScalarFunction(ScalarFunction { func, args })
            if args.iter().any(|e| gives(e, schema, holds_spans)) =>
        {
            match (func.name(), &args[..]) {
                ("nullif", [a, b]) => {
                    let null = lit(ScalarValue::try_from(a.get_type(schema)?)?);
                    let equal = key(a.clone()).eq(key(b.clone()));
                    Transformed::yes(when(equal, null).otherwise(a.clone())?)
                }
                (name @ ("greatest" | "least"), _) => {
                    let extreme = IntervalExtreme::new(name == "greatest");
                    let func = Arc::new(ScalarUDF::new_from_impl(extreme));
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
                }
                _ => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        Expr::AggregateFunction(mut call) => {
            let mut any = false;
            for by in &mut call.params.order_by {
                any |= key_sort(by, schema)?;
            }
            if let Some(extreme) = extreme(call.func.name())
                && call.params.args.first().is_some_and(is)
            {
                call.func = Arc::clone(extreme);
                any = true;
            } else if call.params.distinct {
                any |= key_distinct(call.func.name(), &mut call.params.args, schema)?;
            }
            Transformed::new_transformed(Expr::AggregateFunction(call), any)
        }
        Expr::WindowFunction(mut call) => {
            let mut any = false;
            let holds = |e: &Expr| gives(e, schema, holds_spans);
            for part in call.params.partition_by.iter_mut().filter(|part| holds(part)) {
                *part = key(std::mem::take(part));
                any = true;
            }
            let frame = &call.params.window_frame;
            let has_distance =
                [&frame.start_bound, &frame.end_bound].into_iter().any(|b| match b {
                    WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => {
                        !by.is_null()
                    }
                    WindowFrameBound::CurrentRow => false,
                });
            // A distance is added to the interval itself.
            if !(has_distance && frame.units == WindowFrameUnits::Range) {
                for by in &mut call.params.order_by {
                    any |= key_sort(by, schema)?;
                    if gives(&by.expr, schema, is_list_of_spans) {
                        by.expr = lengths(std::mem::take(&mut by.expr));
                        any = true;
                    }
                }
            }
            if let WindowFunctionDefinition::AggregateUDF(func) = &mut call.fun {
                if let Some(extreme) = extreme(func.name())
                    && call.params.args.first().is_some_and(is)
                {
                    *func = Arc::clone(extreme);
                    any = true;
                } else if call.params.distinct {
                    any |= key_distinct(func.name(), &mut call.params.args, schema)?;
                }
            }
            Transformed::new_transformed(Expr::WindowFunction(call), any)
        }
        other => Transformed::no(other),
    })
}

/// What is counted of each length once. A total of different ones would have to choose between those of
/// one length.
fn key_distinct(aggregate: &str, args: &mut [Expr], schema: &DFSchema) -> Result<bool> {
    let mut any = false;
    for arg in args.iter_mut().filter(|arg| gives(arg, schema, holds_spans)) {
        if aggregate != "count" {
            return refused(&format!("{aggregate}(DISTINCT …) of intervals"));
        }
        *arg = key_of(std::mem::take(arg), schema);
        any = true;
    }
    Ok(any)
}

/// Of intervals that are equal and not the same, it would be chance which one is taken.
fn refused<T>(what: &str) -> Result<T> {
    let error = Error::unsupported(format!("{what} is not supported"));
    let error = error.hint("intervals of one length are equal: 1 month is 30 days. Take numbers, such as extract(epoch FROM …), or group by them");
    Err(into_datafusion(error))
}

fn extreme(name: &str) -> Option<&'static Arc<datafusion::logical_expr::AggregateUDF>> {
    match name {
        "max" => Some(&INTERVAL_MAX),
        "min" => Some(&INTERVAL_MIN),
        _ => None,
    }
}

/// A subquery of one column, which becomes the key of that.
fn key_column(subquery: Subquery) -> Result<Subquery> {
    let column = subquery.subquery.schema().columns().into_iter().next();
    let Some(column) = column else { return Ok(subquery) };
    let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
    let value = Expr::Column(column);
    let value = key_of(value, subquery.subquery.schema());
    let plan = plan.project([value])?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

/// Groups by keys; the interval or list that is shown of a group is its first.
fn aggregated(mut aggregate: Aggregate, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let mut any = false;
    let groups = aggregate.group_expr.iter_mut().flat_map(|group| match group {
        Expr::GroupingSet(GroupingSet::Rollup(keys) | GroupingSet::Cube(keys)) => {
            keys.iter_mut().collect::<Vec<_>>()
        }
        Expr::GroupingSet(GroupingSet::GroupingSets(lists)) => lists.iter_mut().flatten().collect(),
        key => vec![key],
    });
    for expr in groups.chain(&mut aggregate.aggr_expr) {
        let (relation, name) = expr.qualified_name();
        if key_expr(expr, schema)? {
            any = true;
            if expr.qualified_name() != (relation.clone(), name.clone()) {
                *expr = std::mem::take(expr).alias_qualified(relation, name);
            }
        }
    }
    let is_set = matches!(&aggregate.group_expr[..], [Expr::GroupingSet(_)]);
    let groups: Vec<Expr> = match &aggregate.group_expr[..] {
        [Expr::GroupingSet(set)] => set.distinct_expr().into_iter().cloned().collect(),
        groups => groups.to_vec(),
    };
    let is_keyed = |e: &Expr| gives(e, schema, is_keyed);
    if !groups.iter().any(is_keyed) {
        if !any {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
        let aggregate = Aggregate::try_new(input, group_expr, aggr_expr)?;
        return Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)));
    }
    let names: Vec<(Option<TableReference>, String)> = aggregate
        .schema
        .iter()
        .map(|(relation, field)| (relation.cloned(), field.name().clone()))
        .collect();
    let Aggregate { input, group_expr, mut aggr_expr, .. } = aggregate;
    let by_key = |e: Expr| match is_keyed(&e) {
        true => key_of(e.unalias(), schema),
        false => e,
    };
    let all = |keys: Vec<Expr>| keys.into_iter().map(by_key).collect::<Vec<_>>();
    let group_expr = match group_expr.into_iter().next() {
        Some(Expr::GroupingSet(set)) if is_set => vec![Expr::GroupingSet(match set {
            GroupingSet::Rollup(keys) => GroupingSet::Rollup(all(keys)),
            GroupingSet::Cube(keys) => GroupingSet::Cube(all(keys)),
            GroupingSet::GroupingSets(lists) => {
                GroupingSet::GroupingSets(lists.into_iter().map(all).collect())
            }
        })],
        _ => {
            let named = |(at, e): (usize, Expr)| match is_keyed(&e) {
                true => key_of(e.unalias(), schema).alias(format!("__interval_key_{at}")),
                false => e,
            };
            groups.iter().cloned().enumerate().map(named).collect()
        }
    };
    // Where the first intervals of the groups will be.
    let mut shown = vec![None; groups.len()];
    let before = names.len();
    for (at, group) in groups.iter().enumerate() {
        if is_keyed(group) {
            let first = AggregateFunction::new_udf(
                first_value_udaf(),
                vec![group.clone().unalias()],
                false,
                None,
                vec![],
                None,
            );
            let first = Expr::AggregateFunction(first).alias(format!("__interval_{at}"));
            shown[at] = Some(before + shown.iter().flatten().count());
            aggr_expr.push(first);
        }
    }
    let plan = LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, aggr_expr)?);
    let columns = plan.schema().columns();
    let mut exprs = Vec::with_capacity(names.len());
    for (at, (relation, name)) in names.into_iter().enumerate() {
        let column = Expr::Column(columns[at].clone());
        let expr = match shown.get(at).copied().flatten() {
            // In the sets without it, the value is NULL.
            Some(first) if is_set => {
                let null = lit(ScalarValue::try_from(groups[at].get_type(schema)?)?);
                when(column.is_null(), null).otherwise(Expr::Column(columns[first].clone()))?
            }
            Some(first) => Expr::Column(columns[first].clone()),
            None => column,
        };
        exprs.push(match expr.qualified_name() == (relation.clone(), name.clone()) {
            true => expr,
            false => expr.alias_qualified(relation, name),
        });
    }
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?)))
}

fn distinct_on(distinct: DistinctOn, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let DistinctOn { mut on_expr, mut select_expr, mut sort_expr, input, schema: own } = distinct;
    let mut any = false;
    for on in &mut on_expr {
        any |= key_expr(on, schema)?;
        if gives_span(on, schema) {
            *on = key(std::mem::take(on));
            any = true;
        }
    }
    for by in sort_expr.iter_mut().flatten() {
        any |= key_sort(by, schema)?;
    }
    for expr in &mut select_expr {
        let (relation, name) = expr.qualified_name();
        if key_expr(expr, schema)? {
            any = true;
            if expr.qualified_name() != (relation.clone(), name.clone()) {
                *expr = std::mem::take(expr).alias_qualified(relation, name);
            }
        }
    }
    let distinct = match any {
        true => DistinctOn::try_new(on_expr, select_expr, sort_expr, input)?,
        false => DistinctOn { on_expr, select_expr, sort_expr, input, schema: own },
    };
    Ok(Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(distinct)), any))
}
