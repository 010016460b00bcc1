//! `IN (SELECT …)`, `EXISTS`, `ANY` and `ALL`, as far as DataFusion's joins do not have them right.
//!
//! DataFusion joins `IN` and `EXISTS` where they are conditions of their own: `WHERE a NOT IN (SELECT …)
//! AND …`. Within another expression it knows only whether there is a match, and takes "not known" for
//! "no": `WHERE c OR a NOT IN (SELECT …)` would keep rows although the subquery has a NULL. In lists of
//! results and in arguments of aggregates it takes none at all. Before types are coerced, this rule
//! writes them with what it does take: `a IN (SELECT b …)` becomes
//!
//! ```text
//! CASE WHEN EXISTS (SELECT … WHERE b = a) THEN true
//!      WHEN EXISTS (SELECT … WHERE b IS NULL) OR a IS NULL AND EXISTS (SELECT …) THEN NULL
//!      ELSE false END
//! ```
//!
//! and outside of conditions `EXISTS (…)` becomes `(SELECT count(*) …) > 0`. A condition `a NOT IN …`
//! with a subquery that looks at the outer row becomes three `NOT EXISTS`. `ANY` and `ALL` are written
//! the same way, and by the smallest or largest value where that decides.
//!
//! Whether a subquery has rows is asked of what decides it ([`Rows`]): an aggregate without groups has
//! one, and what an `OFFSET` leaves has to be counted. A subquery that is the same for all outer rows is
//! asked for one row.
//!
//! What an aggregate or a sort takes of subqueries is computed below it; the condition of an inner join
//! is tested above it.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, DataFusionError, ExprSchema, JoinType, Result, ScalarValue,
};
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, ExprSchemable, FetchType, Filter, Join, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SkipType, Sort, SortExpr, Subquery, binary_expr, lit,
    not, when,
};
use datafusion::optimizer::AnalyzerRule;
use thalweg_base::Error;

use crate::error::into_datafusion;

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
    refuse_lateral(&plan)?;
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

/// DataFusion's join with a `LATERAL` aggregate without groups has a row also where `HAVING` has none.
fn refuse_lateral(plan: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Join(Join { right, join_type: JoinType::Inner, .. }) = plan else {
        return Ok(());
    };
    let right = match right.as_ref() {
        LogicalPlan::SubqueryAlias(alias) => &alias.input,
        _ => right,
    };
    match right.as_ref() {
        LogicalPlan::Subquery(lateral)
            if is_correlated(lateral) && matches!(rows(&lateral.subquery)?, Rows::Having(_)) =>
        {
            Err(into_datafusion(
                Error::unsupported(
                    "HAVING without GROUP BY in a LATERAL subquery is not supported",
                )
                .hint("give the condition to the WHERE of the query around it"),
            ))
        }
        _ => Ok(()),
    }
}

fn is_predicate(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))
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
    /// In no condition at all.
    Result,
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
        Expr::Not(inner) if is_predicate(&inner) => condition(negated(*inner), place, schema),
        Expr::InSubquery(found) => {
            let correlated = is_correlated(&found.subquery);
            let joined = match place {
                // What one row of an aggregate has is not found by a join if that row stands for none.
                _ if correlated && is_lone(&found.subquery.subquery) => false,
                Place::Conjunct => !found.negated || !correlated && shows_nulls(&found, schema),
                Place::Alternative => !found.negated,
                Place::Anywhere | Place::Result => false,
            };
            match found {
                found if joined => Ok(Expr::InSubquery(found)),
                found => compared(equal(found), place, schema, plain),
            }
        }
        Expr::SetComparison(found) => compared(found, place, schema, plain),
        Expr::Exists(Exists { subquery, negated }) => {
            let found = exists(subquery, plain)?;
            Ok(if negated { opposite(found) } else { found })
        }
        other => {
            let mapped = other.map_children(|child| {
                condition(child, Place::Anywhere, schema).map(Transformed::yes)
            });
            mapped.map(|mapped| mapped.data)
        }
    }
}

/// Whether DataFusion sees by the columns of a `NOT IN` that there may be NULLs, if there may be.
fn shows_nulls(found: &InSubquery, schema: &DFSchema) -> bool {
    if matches!(found.expr.as_ref(), Expr::Column(_)) {
        return true;
    }
    let columns = found.expr.column_refs();
    let nullable =
        |column: &&Column| schema.field_from_column(column).is_ok_and(|f| f.is_nullable());
    let items = found.subquery.subquery.schema();
    !columns.is_empty()
        && (columns.iter().any(nullable) || items.fields().iter().any(|f| f.is_nullable()))
}

/// Of an expression that is no condition.
fn value(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewritten = expr.transform_up(|expr| match expr {
        Expr::InSubquery(found) => {
            compared(equal(found), Place::Result, schema, some).map(Transformed::yes)
        }
        Expr::SetComparison(found) => {
            compared(found, Place::Result, schema, some).map(Transformed::yes)
        }
        Expr::Exists(Exists { subquery, negated }) => {
            let found = exists(subquery, some)?;
            Ok(Transformed::yes(if negated { opposite(found) } else { found }))
        }
        other => Ok(Transformed::no(other)),
    });
    rewritten.map(|rewritten| rewritten.data)
}

/// The same without the `NOT` that stands before it.
fn negated(expr: Expr) -> Expr {
    match expr {
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            Expr::InSubquery(InSubquery::new(expr, subquery, !negated))
        }
        Expr::Exists(Exists { subquery, negated }) => Expr::Exists(Exists::new(subquery, !negated)),
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
            match (op.negate(), quantifier) {
                (Some(op), SetQuantifier::Any) => {
                    Expr::SetComparison(SetComparison::new(expr, subquery, op, SetQuantifier::All))
                }
                (Some(op), SetQuantifier::All) => {
                    Expr::SetComparison(SetComparison::new(expr, subquery, op, SetQuantifier::Any))
                }
                (None, quantifier) => {
                    not(Expr::SetComparison(SetComparison::new(expr, subquery, op, quantifier)))
                }
            }
        }
        other => not(other),
    }
}

fn opposite(found: Expr) -> Expr {
    match found {
        Expr::Exists(_) => negated(found),
        found => not(found),
    }
}

/// `IN` is `= ANY`, and `NOT IN` is `<> ALL`.
fn equal(found: InSubquery) -> SetComparison {
    let InSubquery { expr, subquery, negated } = found;
    match negated {
        false => SetComparison::new(expr, subquery, Operator::Eq, SetQuantifier::Any),
        true => SetComparison::new(expr, subquery, Operator::NotEq, SetQuantifier::All),
    }
}

/// Asks DataFusion whether a subquery has rows, in a condition.
fn plain(subquery: Subquery) -> Result<Expr> {
    Ok(Expr::Exists(Exists::new(subquery, false)))
}

/// Asks for it outside of conditions.
fn some(subquery: Subquery) -> Result<Expr> {
    let rows = scalar(&subquery, count(lit(1_i64)))?;
    Ok(rows.gt(lit(0_i64)))
}

/// What decides whether a plan has rows.
enum Rows<'a> {
    /// It has one at least.
    Always,
    Never,
    /// There are more than so many of this.
    More(&'a Arc<LogicalPlan>, usize),
    /// The one row that there is meets a condition.
    Having(&'a Filter),
    Anything,
}

fn rows(plan: &LogicalPlan) -> Result<Rows<'_>> {
    Ok(match plan {
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::Sort(Sort { input, .. })
        | LogicalPlan::Distinct(Distinct::All(input)) => rows(input)?,
        LogicalPlan::SubqueryAlias(alias) => rows(&alias.input)?,
        LogicalPlan::Aggregate(aggregate) if has_total(aggregate) => Rows::Always,
        LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
            (_, FetchType::Literal(Some(0))) => Rows::Never,
            (SkipType::Literal(0), FetchType::Literal(_)) => match rows(&limit.input)? {
                Rows::Having(_) | Rows::Anything => Rows::Anything,
                known => known,
            },
            (SkipType::Literal(skipped), FetchType::Literal(_)) => {
                Rows::More(&limit.input, skipped)
            }
            _ => Rows::Anything,
        },
        LogicalPlan::Filter(filter) if is_lone(&filter.input) => Rows::Having(filter),
        _ => Rows::Anything,
    })
}

/// Whether a plan is an aggregate without groups, of which nothing but columns are taken.
fn is_lone(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::Sort(Sort { input, fetch: None, .. }) => is_lone(input),
        LogicalPlan::SubqueryAlias(alias) => is_lone(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// Whether there is a group of all rows, also of none.
fn has_total(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.is_empty()
        || aggregate.group_expr.iter().any(super::lone_groups::has_total)
}

fn is_correlated(subquery: &Subquery) -> bool {
    !subquery.outer_ref_columns.is_empty() || !subquery.subquery.all_out_ref_exprs().is_empty()
}

/// Whether a subquery has rows; `ask` does it where nothing else decides it.
fn exists(subquery: Subquery, ask: impl Fn(Subquery) -> Result<Expr>) -> Result<Expr> {
    let correlated = is_correlated(&subquery);
    let of = |plan: LogicalPlan| Subquery { subquery: Arc::new(plan), ..subquery.clone() };
    Ok(match rows(&subquery.subquery)? {
        Rows::Always => lit(true),
        Rows::Never => lit(false),
        Rows::More(input, skipped) => {
            let all = of(input.as_ref().clone());
            scalar(&all, count(lit(1_i64)))?.gt(lit(skipped as i64))
        }
        Rows::Having(filter) if correlated => {
            let meets = LogicalPlanBuilder::from(Arc::clone(&filter.input)).project([filter
                .predicate
                .clone()
                .is_true()
                .alias("__meets")])?;
            Expr::ScalarSubquery(of(meets.build()?))
        }
        Rows::Anything if !correlated => {
            let one = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery)).limit(0, Some(1))?;
            ask(of(one.build()?))?
        }
        _ => ask(subquery)?,
    })
}

/// A comparison with all or any rows of a subquery, as SQL has it. `ask` says whether there are rows.
fn compared(
    found: SetComparison,
    place: Place,
    schema: &DFSchema,
    ask: impl Fn(Subquery) -> Result<Expr>,
) -> Result<Expr> {
    let SetComparison { expr, subquery, op, quantifier } = found;
    let correlated = is_correlated(&subquery);
    if is_lone(&subquery.subquery) {
        let one = Box::new(Expr::ScalarSubquery(subquery));
        return Ok(Expr::BinaryExpr(BinaryExpr::new(expr, op, one)));
    }
    let (item, of_subquery) = item(&subquery)?;
    let any = quantifier == SetQuantifier::Any;
    // The comparison that settles it if it is true for one row.
    let Some(deciding) = (if any { Some(op) } else { op.negate() }) else {
        return Err(DataFusionError::NotImplemented(format!(
            "{op} {quantifier} with a subquery is not supported"
        )));
    };
    let expr_nullable = expr.nullable(schema)?;
    let item_nullable = of_subquery.schema().fields().iter().any(|f| f.is_nullable());
    let least = matches!(deciding, Operator::Gt | Operator::GtEq);
    // Of what looks at the outer row, a condition can ask in more ways than there are figures.
    let bounded = least || matches!(deciding, Operator::Lt | Operator::LtEq);
    let decides = if bounded && (!correlated || place == Place::Result) {
        let items = Subquery { subquery: Arc::new(of_subquery.clone()), ..subquery.clone() };
        let bound = scalar(&items, if least { min(item.clone()) } else { max(item.clone()) })?;
        binary_expr(expr.as_ref().clone(), deciding, bound)
    } else {
        let (outer, columns) = outer(expr.as_ref().clone(), schema)?;
        let matching = LogicalPlanBuilder::from(of_subquery.clone());
        let matching = matching.filter(binary_expr(outer, deciding, item.clone()))?;
        let mut outer_ref_columns = subquery.outer_ref_columns.clone();
        outer_ref_columns.extend(columns);
        exists(
            Subquery {
                subquery: Arc::new(matching.build()?),
                outer_ref_columns,
                spans: subquery.spans.clone(),
            },
            &ask,
        )?
    };
    if any && matches!(place, Place::Conjunct | Place::Alternative) {
        return Ok(decides);
    }
    let mut unknown = vec![];
    if item_nullable {
        let nulls = LogicalPlanBuilder::from(of_subquery.clone()).filter(item.is_null())?;
        unknown.push(exists(
            Subquery { subquery: Arc::new(nulls.build()?), ..subquery.clone() },
            &ask,
        )?);
    }
    if expr_nullable {
        let all = Subquery { subquery: Arc::new(of_subquery), ..subquery };
        unknown.push(expr.is_null().and(exists(all, &ask)?));
    }
    // Of a condition that has to be true it does not matter whether it is false or not known.
    if place == Place::Conjunct {
        let conditions =
            std::iter::once(is_not_true(decides)).chain(unknown.into_iter().map(opposite));
        return Ok(conditions.reduce(Expr::and).unwrap_or_else(|| lit(true)));
    }
    let mut found = when(decides, lit(any));
    if let Some(unknown) = unknown.into_iter().reduce(Expr::or) {
        found = found.when(unknown, lit(ScalarValue::Boolean(None)));
    }
    found.otherwise(lit(!any))
}

fn is_not_true(found: Expr) -> Expr {
    match found {
        Expr::Exists(_) => opposite(found),
        found => found.is_not_true(),
    }
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
