//! A group that is there without rows is not lost to a filter.
//!
//! `SELECT count(*) … HAVING false` gives nothing, but DataFusion pushed a condition without columns
//! below the aggregate, which then counted no rows and gave 0; and so it did with `… LEFT JOIN (SELECT
//! count(*) …) ON false`. The same goes for the total of a ROLLUP. And a condition on what is computed
//! anew at each place, `SELECT DISTINCT random() AS r … WHERE r < 0.5`, is about another number below
//! the aggregate. So is a condition that is itself volatile: `random() < 0.5` above groups or windows chose
//! among the rows below them. While DataFusion's rule runs, such aggregates, and what such conditions are
//! above, stand below a limit that limits nothing, which it pushes nothing through.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Aggregate, Expr, Filter, GroupingSet, Limit, LogicalPlan};

/// Runs a rule on a plan whose lone groups are fenced off.
pub fn apart(
    plan: LogicalPlan,
    rule: impl FnOnce(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut concerned = false;
    plan.apply_with_subqueries(|plan| {
        concerned |= is_lone(plan) || is_random_choice(plan);
        Ok(if concerned { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !concerned {
        return rule(plan);
    }
    let fenced = plan.transform_up_with_subqueries(|plan| {
        if is_random_choice(&plan)
            && let LogicalPlan::Filter(Filter { predicate, input, .. }) = plan
        {
            let conditions = split_conjunction_owned(predicate);
            let (chance, others): (Vec<_>, Vec<_>) =
                conditions.into_iter().partition(Expr::is_volatile);
            let below = match conjunction(others) {
                Some(others) => Arc::new(LogicalPlan::Filter(Filter::try_new(others, input)?)),
                None => input,
            };
            let fenced = Arc::new(fenced(Arc::unwrap_or_clone(below)));
            let chance = conjunction(chance).unwrap_or_default();
            let filter = LogicalPlan::Filter(Filter::try_new(chance, fenced)?);
            return Ok(Transformed::yes(filter));
        }
        Ok(if is_lone(&plan) { Transformed::yes(fenced(plan)) } else { Transformed::no(plan) })
    })?;
    let rewritten = rule(fenced.data)?;
    let opened = rewritten.data.transform_up_with_subqueries(|plan| {
        Ok(match plan {
            LogicalPlan::Limit(Limit { skip: None, fetch: None, input }) => {
                Transformed::yes(Arc::unwrap_or_clone(input))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(Transformed::new_transformed(opened.data, rewritten.transformed))
}

fn fenced(plan: LogicalPlan) -> LogicalPlan {
    LogicalPlan::Limit(Limit { skip: None, fetch: None, input: Arc::new(plan) })
}

fn is_lone(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(Aggregate { group_expr, .. }) = plan else { return false };
    group_expr.is_empty() || group_expr.iter().any(|e| has_total(e) || e.is_volatile())
}

/// Whether rows that are made of others are chosen by chance.
fn is_random_choice(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else { return false };
    filter.predicate.is_volatile() && !crate::nodes::is_of_scan(&filter.input)
}

/// Whether one of the sets is empty.
fn has_total(expr: &Expr) -> bool {
    match expr {
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    }
}
