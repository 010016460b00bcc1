//! Keys of one side of a join are no keys of groups of its rows.
//!
//! ```text
//! Aggregate: group by s.id, t.d         Aggregate: group by s.id, t.d
//!   Cross Join                            Projection: __keyless(s.id) AS s.id, t.d
//!     Aggregate: group by s.id     =>       Cross Join
//!     TableScan: t                            Aggregate: group by s.id
//!                                             TableScan: t
//! ```
//!
//! In the rows of a join, `s.id` still decides the other columns of `s`, and DataFusion keeps that as a
//! functional dependency. For an aggregate by `s.id` and more it then takes `s.id` as what decides every
//! column, `t.d` included, and often as unique: orders lost `t.d`, groups above fell together, and a join
//! with the groups found one row of each `s.id`. So where a side's key is among what is grouped by, a function
//! hides it, which is its argument: [`reveal`] takes it away again once the rules have run.
//!
//! The same is done where a cast of a key is grouped by. Names leave casts out, so that DataFusion took
//! `ts::date` for `ts`, of which no two rows were the same.

use std::sync::{Arc, LazyLock};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Dependency, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, Projection, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use super::transparent::transparent;

#[derive(Debug, Default)]
struct JoinedKeys;

/// Puts the rule behind all others of the analyzer.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::analyze_last(JoinedKeys, builder)
}

impl AnalyzerRule for JoinedKeys {
    fn name(&self) -> &str {
        "joined_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut hidden = false;
        let made = plan.transform_up_with_subqueries(|node| {
            // What lies above has to forget what it was told of the key.
            let node = if hidden { node.recompute_schema()? } else { node };
            let Some(node) = without_joined_keys(&node)? else { return Ok(Transformed::no(node)) };
            hidden = true;
            Ok(Transformed::yes(node))
        })?;
        Ok(made.data)
    }
}

/// The groups of `node`, if it makes some, over an input that hides the keys of joined sides among what is
/// grouped by.
fn without_joined_keys(node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let (input, grouped): (_, Vec<Expr>) = match node {
        LogicalPlan::Aggregate(aggregate) => (&aggregate.input, aggregate.group_expr.clone()),
        LogicalPlan::Distinct(Distinct::On(distinct)) => {
            (&distinct.input, distinct.on_expr.clone())
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            (input, input.schema().columns().into_iter().map(Expr::Column).collect())
        }
        _ => return Ok(None),
    };
    let schema = input.schema();
    let fields = schema.field_names();
    let names: Vec<String> = grouped.iter().map(|key| key.schema_name().to_string()).collect();
    // A later rule makes groups of DISTINCT, and keys of its columns.
    let keys: Vec<usize> = if joins_distinct_rows(input)? {
        (0..fields.len()).filter(|&index| names.contains(&fields[index])).collect()
    } else {
        let is_cast = |source: &usize| {
            let mut named =
                names.iter().zip(&grouped).filter(|(name, _)| **name == fields[*source]);
            named.any(|(_, key)| !matches!(key, Expr::Column(_)))
        };
        let dependencies = schema.functional_dependencies().iter();
        let believed = dependencies.filter(|dependency| {
            let sources = &dependency.source_indices;
            sources.iter().all(|&source| names.contains(&fields[source]))
                && (dependency.mode == Dependency::Multi || sources.iter().any(is_cast))
        });
        believed.filter_map(|dependency| dependency.source_indices.first().copied()).collect()
    };
    if keys.is_empty() {
        return Ok(None);
    }
    let columns = schema.columns().into_iter().enumerate().map(|(index, column)| {
        if !keys.contains(&index) {
            return Expr::Column(column);
        }
        let (relation, name) = (column.relation.clone(), column.name.clone());
        KEYLESS.call(vec![Expr::Column(column)]).alias_qualified(relation, name)
    });
    let projection = Projection::try_new(columns.collect(), Arc::clone(input))?;
    let input = LogicalPlan::Projection(projection);
    let groups = node.clone().map_children(|_| Ok(Transformed::yes(input.clone())))?;
    groups.data.recompute_schema().map(Some)
}

/// Whether there is a join in the plan one of whose sides has a DISTINCT.
fn joins_distinct_rows(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| match node {
        LogicalPlan::Join(join) => {
            let is_distinct = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Distinct(_)));
            Ok(join.left.exists(is_distinct)? || join.right.exists(is_distinct)?)
        }
        _ => Ok(false),
    })
}

/// The plan, once no rule looks at keys any more, without the function that hid them. Schemas stay as they
/// are: computed anew, they would tell of the keys again.
pub fn reveal(plan: LogicalPlan) -> Result<LogicalPlan> {
    let revealed = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::ScalarFunction(ScalarFunction { func, mut args }) if func == *KEYLESS => {
                    Ok(Transformed::yes(args.swap_remove(0)))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    })?;
    Ok(revealed.data)
}

/// `__keyless(value)` is the value, of which nobody takes it that it is a key.
static KEYLESS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| transparent("__keyless"));
