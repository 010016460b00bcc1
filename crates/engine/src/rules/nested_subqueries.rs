//! `IN (SELECT …)` and `EXISTS` within other expressions.
//!
//! DataFusion joins them where they are conditions of their own: `WHERE a NOT IN (SELECT …) AND …`.
//! Within another expression it knows only whether there is a match, and takes "not known" for "no":
//! `WHERE c OR a NOT IN (SELECT …)` would keep rows although the subquery has a NULL. In lists of
//! results and in arguments of aggregates it takes none at all. Before types are coerced, this rule
//! writes them with what it does take: `a IN (SELECT b …)` becomes
//!
//! ```text
//! CASE WHEN EXISTS (SELECT … WHERE b = a) THEN true
//!      WHEN (SELECT count(*) …) > CASE WHEN a IS NULL THEN 0 ELSE (SELECT count(b) …) END THEN NULL
//!      ELSE false END
//! ```
//!
//! and outside of conditions `EXISTS (…)` becomes `(SELECT count(*) …) > 0`. What an aggregate or a
//! sort takes of subqueries is computed below it; the condition of an inner join is tested above it.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, JoinType, Result, ScalarValue};
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator,
    Projection, Sort, SortExpr, Subquery, lit, not, when,
};
use datafusion::optimizer::AnalyzerRule;

#[derive(Debug, Default)]
pub struct NestedSubqueries;

/// Puts the rule before all others: types of what it writes are yet to be coerced.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.analyzer().take().unwrap_or_default().rules;
    rules.insert(0, Arc::new(NestedSubqueries));
    builder.with_analyzer_rules(rules)
}

impl AnalyzerRule for NestedSubqueries {
    fn name(&self) -> &str {
        "nested_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(rewrite).map(|rewritten| rewritten.data)
    }
}

fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(Filter { predicate, input, .. }) if has_predicate(&predicate) => {
            let predicate = condition(predicate, Place::Conjunct, input.schema())?;
            Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
        }
        LogicalPlan::Projection(projection) if projection.expr.iter().any(has_predicate) => {
            let names = NamePreserver::new_for_projection();
            let schema = Arc::clone(projection.input.schema());
            let exprs = projection.expr.into_iter().map(|expr| {
                let name = names.save(&expr);
                Ok(name.restore(value(expr, &schema)?))
            });
            let exprs = exprs.collect::<Result<Vec<_>>>()?;
            let projection = Projection::try_new(exprs, projection.input)?;
            Ok(Transformed::yes(LogicalPlan::Projection(projection)))
        }
        LogicalPlan::Aggregate(aggregate)
            if aggregate.group_expr.iter().chain(&aggregate.aggr_expr).any(has_predicate) =>
        {
            aggregated(aggregate).map(Transformed::yes)
        }
        LogicalPlan::Sort(sort) if sort.expr.iter().any(|by| has_predicate(&by.expr)) => {
            sorted(sort).map(Transformed::yes)
        }
        LogicalPlan::Join(mut join)
            if join.join_type == JoinType::Inner
                && join.filter.as_ref().is_some_and(has_predicate) =>
        {
            let filter = join.filter.take();
            let joined = LogicalPlan::Join(join);
            let predicate = filter.map(|f| condition(f, Place::Conjunct, joined.schema()));
            let Some(predicate) = predicate.transpose()? else {
                return Ok(Transformed::no(joined));
            };
            let filter = Filter::try_new(predicate, Arc::new(joined))?;
            Ok(Transformed::yes(LogicalPlan::Filter(filter)))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn is_predicate(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))
}

fn has_predicate(expr: &Expr) -> bool {
    expr.exists(|e| Ok(is_predicate(e))).unwrap_or(false)
}

/// Where an expression of a condition stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// It has to be true.
    Conjunct,
    /// Below AND and OR alone: NULL is as good as false.
    Alternative,
    Anywhere,
}

/// Of a filter.
fn condition(expr: Expr, place: Place, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let place = match (op, place) {
                (Operator::Or, Place::Conjunct) => Place::Alternative,
                _ => place,
            };
            let left = condition(*left, place, schema)?;
            let right = condition(*right, place, schema)?;
            Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
        }
        Expr::Not(inner) if place == Place::Conjunct && is_predicate(&inner) => {
            Ok(Expr::Not(inner))
        }
        Expr::InSubquery(found) => match place {
            Place::Conjunct => Ok(Expr::InSubquery(found)),
            Place::Alternative if !found.negated => Ok(Expr::InSubquery(found)),
            _ => exact(found, schema, |subquery| Ok(Expr::Exists(Exists::new(subquery, false)))),
        },
        other => {
            let mapped = other.map_children(|child| {
                condition(child, Place::Anywhere, schema).map(Transformed::yes)
            });
            mapped.map(|mapped| mapped.data)
        }
    }
}

/// Of an expression that is no condition.
fn value(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewritten = expr.transform_up(|expr| match expr {
        Expr::InSubquery(found) => exact(found, schema, some).map(Transformed::yes),
        Expr::Exists(Exists { subquery, negated }) => {
            let found = some(subquery)?;
            Ok(Transformed::yes(if negated { not(found) } else { found }))
        }
        other => Ok(Transformed::no(other)),
    });
    rewritten.map(|rewritten| rewritten.data)
}

/// Whether the subquery has rows.
fn some(subquery: Subquery) -> Result<Expr> {
    let rows = scalar(&subquery, count(lit(1_i64)))?;
    Ok(rows.gt(lit(0_i64)))
}

/// `IN` as SQL has it. `exists` says whether a subquery has rows.
fn exact(
    found: InSubquery,
    schema: &DFSchema,
    exists: impl Fn(Subquery) -> Result<Expr>,
) -> Result<Expr> {
    let InSubquery { expr, subquery, negated } = found;
    let (item, of_subquery) = item(&subquery)?;
    let (outer, columns) = outer(*expr.clone(), schema)?;
    let matching = LogicalPlanBuilder::from(of_subquery.clone()).filter(item.clone().eq(outer))?;
    let mut outer_ref_columns = subquery.outer_ref_columns.clone();
    outer_ref_columns.extend(columns);
    let matching = Subquery {
        subquery: Arc::new(matching.build()?),
        outer_ref_columns,
        spans: subquery.spans.clone(),
    };
    let knows_all =
        !expr.nullable(schema)? && !of_subquery.schema().fields().iter().any(|f| f.is_nullable());
    let matches = exists(matching)?;
    if knows_all {
        return Ok(if negated { not(matches) } else { matches });
    }
    let items = Subquery { subquery: Arc::new(of_subquery), ..subquery };
    let known = scalar(&items, count(item))?;
    let known = when(expr.is_null(), lit(0_i64)).otherwise(known)?;
    let rows = scalar(&items, count(lit(1_i64)))?;
    let found = when(matches, lit(true))
        .when(rows.gt(known), lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))?;
    Ok(if negated { not(found) } else { found })
}

/// The only column of a subquery, by a name that nothing else has, and the plan that gives it.
fn item(subquery: &Subquery) -> Result<(Expr, LogicalPlan)> {
    const ITEM: &str = "__item";
    let plan = Arc::unwrap_or_clone(Arc::clone(&subquery.subquery));
    let columns = plan.schema().columns();
    let [column] = &columns[..] else {
        return Err(DataFusionError::Plan(format!(
            "a subquery of IN gives one column, and this one has {}",
            columns.len()
        )));
    };
    let expr = Expr::Column(column.clone()).alias(ITEM);
    let plan = LogicalPlanBuilder::from(plan).project([expr])?.build()?;
    Ok((Expr::Column(Column::from_name(ITEM)), plan))
}

/// An expression of the outer query, as the subquery sees it, and the columns that it has.
fn outer(expr: Expr, schema: &DFSchema) -> Result<(Expr, Vec<Expr>)> {
    let mut columns = vec![];
    let mut nested = false;
    expr.apply(|e| {
        nested |= matches!(
            e,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::OuterReferenceColumn(..)
        );
        Ok(TreeNodeRecursion::Continue)
    })?;
    if nested {
        return Err(DataFusionError::NotImplemented(
            "IN with a subquery on both sides is not supported within another expression".into(),
        ));
    }
    let outer = expr.transform_up(|e| match e {
        Expr::Column(column) => {
            let (_, field) = Expr::Column(column.clone()).to_field(schema)?;
            let column = Expr::OuterReferenceColumn(field, column);
            columns.push(column.clone());
            Ok(Transformed::yes(column))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok((outer.data, columns))
}

/// One figure of the subquery's rows.
fn scalar(subquery: &Subquery, figure: Expr) -> Result<Expr> {
    let plan = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
    let plan = plan.aggregate(Vec::<Expr>::new(), [figure])?.build()?;
    Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery.clone() }))
}

/// Subqueries that are computed below the node that takes them.
#[derive(Default)]
struct Below(Vec<Expr>);

impl Below {
    /// The expression over what is computed.
    fn replace(&mut self, expr: Expr) -> Result<Expr> {
        let replaced = expr.transform_down(|expr| {
            if !is_predicate(&expr) {
                return Ok(Transformed::no(expr));
            }
            let at = self.0.iter().position(|other| *other == expr).unwrap_or_else(|| {
                self.0.push(expr);
                self.0.len() - 1
            });
            let column = Expr::Column(Column::from_name(Below::name(at)));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        });
        replaced.map(|replaced| replaced.data)
    }

    fn name(at: usize) -> String {
        format!("__subquery_{at}")
    }

    /// What there is, and the subqueries.
    fn computed(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let schema = Arc::clone(input.schema());
        let mut columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        for (at, expr) in self.0.into_iter().enumerate() {
            columns.push(value(expr, &schema)?.alias(Below::name(at)));
        }
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
    }
}

fn aggregated(aggregate: Aggregate) -> Result<LogicalPlan> {
    let names = NamePreserver::new_for_projection();
    let mut below = Below::default();
    let mut replace = |expr: Expr| {
        let name = names.save(&expr);
        below.replace(expr).map(|expr| name.restore(expr))
    };
    let groups = aggregate.group_expr.into_iter().map(&mut replace).collect::<Result<Vec<_>>>()?;
    let figures = aggregate.aggr_expr.into_iter().map(&mut replace).collect::<Result<Vec<_>>>()?;
    let input = below.computed(aggregate.input)?;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, groups, figures)?))
}

fn sorted(sort: Sort) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = sort.input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut below = Below::default();
    let by = sort
        .expr
        .into_iter()
        .map(|by| Ok(SortExpr::new(below.replace(by.expr)?, by.asc, by.nulls_first)));
    let by = by.collect::<Result<Vec<_>>>()?;
    let input = below.computed(sort.input)?;
    let sorted = LogicalPlan::Sort(Sort { expr: by, input, fetch: sort.fetch });
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(sorted))?))
}
