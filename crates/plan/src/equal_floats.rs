//! Floats that are equal have the same bits wherever bits are compared.
//!
//! Stored columns have one zero and one NaN (`storage/src/floats.rs`). What is computed may be -0.0, as
//! `x * -1` of 0 is, or a NaN with a sign. So a computed float is made canonical where it becomes a column,
//! and where it is compared, ordered, grouped, joined on or aggregated by its bits. Sums and averages see
//! no difference, and columns, which are what hot paths compare, are left as they are. The rule stands
//! behind the others of the analyzer.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::datasource::{TableProvider, ViewTable, provider_as_source};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::{Between, Case, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, GroupingSet, LogicalPlan, LogicalPlanBuilder, TableSource,
};
use datafusion::optimizer::AnalyzerRule;

use thalweg_functions::canonical_float::{CANONICAL_FLOAT, scalar};

#[derive(Debug, Default)]
struct EqualFloats;

/// Puts the rule behind all others.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::analyze_last(EqualFloats, builder)
}

impl AnalyzerRule for EqualFloats {
    fn name(&self) -> &str {
        "equal_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let made = plan.transform_up_with_subqueries(|node| {
            if !matters(&node) || !crate::nodes::may_have(&node, is_float)? {
                return Ok(Transformed::no(node));
            }
            let schema = crate::nodes::input_schema(&node)?;
            let names = NamePreserver::new(&node);
            let all = makes_columns(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_up(|e| within(e, &schema))?;
                let expr = match all {
                    true => expr.transform_data(|e| Ok(whole(e, &schema)))?,
                    false => expr,
                };
                Ok(match expr.transformed {
                    true => Transformed::yes(name.restore(expr.data)),
                    false => expr,
                })
            })
        })?;
        Ok(made.data)
    }
}

/// Whether the node may have to do with floats at all.
fn matters(node: &LogicalPlan) -> bool {
    !matches!(
        node,
        LogicalPlan::TableScan(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Statement(_)
    )
}

/// Whether the values of a node's expressions themselves are what is compared, or become columns.
fn makes_columns(node: &LogicalPlan) -> bool {
    matches!(
        node,
        LogicalPlan::Projection(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Repartition(_)
    )
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Whether an expression is a float that may have other bits than an equal one.
fn is_odd(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Column(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::ScalarSubquery(_)
        | Expr::AggregateFunction(_)
        | Expr::WindowFunction(_)
        | Expr::Placeholder(_) => false,
        Expr::Literal(value, _) => is_float(&value.data_type()) && scalar(value.clone()) != *value,
        Expr::Alias(alias) => is_odd(&alias.expr, schema),
        Expr::Case(Case { when_then_expr, else_expr, .. }) => {
            when_then_expr.iter().any(|(_, then)| is_odd(then, schema))
                || else_expr.as_ref().is_some_and(|e| is_odd(e, schema))
        }
        Expr::ScalarFunction(call) if Arc::ptr_eq(&call.func, &CANONICAL_FLOAT) => false,
        Expr::ScalarFunction(call) if call.func.name() == "coalesce" => {
            call.args.iter().any(|arg| is_odd(arg, schema))
        }
        Expr::Cast(cast) => {
            is_float(cast.field.data_type())
                && cast.expr.get_type(schema).is_ok_and(|from| match from {
                    // Rounded, a small number may become a zero with a sign.
                    DataType::Float64 => {
                        *cast.field.data_type() == DataType::Float32 || is_odd(&cast.expr, schema)
                    }
                    from if is_float(&from) => is_odd(&cast.expr, schema),
                    from => !from.is_numeric(),
                })
        }
        other => other.get_type(schema).is_ok_and(|t| is_float(&t)),
    }
}

/// The value itself.
fn whole(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::Alias(mut alias) => {
            let inner = whole(std::mem::take(&mut alias.expr), schema);
            *alias.expr = inner.data;
            Transformed::new_transformed(Expr::Alias(alias), inner.transformed)
        }
        Expr::GroupingSet(set) => {
            let mut any = false;
            let mut list = |keys: Vec<Expr>| -> Vec<Expr> {
                let keys = keys.into_iter().map(|key| {
                    let key = whole(key, schema);
                    any |= key.transformed;
                    key.data
                });
                keys.collect()
            };
            let set = match set {
                GroupingSet::Rollup(keys) => GroupingSet::Rollup(list(keys)),
                GroupingSet::Cube(keys) => GroupingSet::Cube(list(keys)),
                GroupingSet::GroupingSets(lists) => {
                    GroupingSet::GroupingSets(lists.into_iter().map(list).collect())
                }
            };
            Transformed::new_transformed(Expr::GroupingSet(set), any)
        }
        Expr::Literal(value, metadata) => {
            let made = scalar(value.clone());
            // `==` of scalars compares bits.
            let is_other = made != value;
            Transformed::new_transformed(Expr::Literal(made, metadata), is_other)
        }
        expr if is_odd(&expr, schema) => {
            let call = ScalarFunction::new_udf(Arc::clone(&CANONICAL_FLOAT), vec![expr]);
            Transformed::yes(Expr::ScalarFunction(call))
        }
        expr => Transformed::no(expr),
    }
}

fn make(expr: &mut Expr, schema: &DFSchema) -> bool {
    let made = whole(std::mem::take(expr), schema);
    *expr = made.data;
    made.transformed
}

/// What is compared within an expression.
fn within(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut any = false;
    let mut make = |e: &mut Expr| any |= make(e, schema);
    match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            make(left);
            make(right);
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            make(expr);
            make(low);
            make(high);
        }
        Expr::InList(InList { expr, list, .. }) => {
            make(expr);
            list.iter_mut().for_each(make);
        }
        Expr::InSubquery(found) => make(&mut found.expr),
        Expr::SetComparison(found) => make(&mut found.expr),
        Expr::Case(Case { expr: Some(operand), when_then_expr, .. }) => {
            make(operand);
            when_then_expr.iter_mut().for_each(|(when, _)| make(when));
        }
        Expr::ScalarFunction(call)
            if matches!(call.func.name(), "nullif" | "greatest" | "least" | "make_array") =>
        {
            call.args.iter_mut().for_each(make);
        }
        Expr::AggregateFunction(call) => {
            if !is_numeric(call.func.name()) || call.params.distinct {
                call.params.args.iter_mut().for_each(&mut make);
            }
            call.params.order_by.iter_mut().for_each(|by| make(&mut by.expr));
        }
        Expr::WindowFunction(call) => {
            if !is_numeric(call.fun.name()) || call.params.distinct {
                call.params.args.iter_mut().for_each(&mut make);
            }
            call.params.partition_by.iter_mut().for_each(&mut make);
            call.params.order_by.iter_mut().for_each(|by| make(&mut by.expr));
        }
        _ => {}
    }
    Ok(Transformed::new_transformed(expr, any))
}

/// Aggregates that compute with their values, and do not compare them.
fn is_numeric(name: &str) -> bool {
    matches!(name, "sum" | "avg" | "count")
        || name.starts_with("var")
        || name.starts_with("stddev")
        || name.starts_with("regr_")
        || name.starts_with("corr")
        || name.starts_with("covar")
}

/// A table that is not stored here, such as a file, with its floats made canonical.
pub fn source_of(table: Arc<dyn TableProvider>) -> Result<Arc<dyn TableSource>> {
    let schema = table.schema();
    let is_plain = !schema.fields().iter().any(|f| is_float(f.data_type()));
    if is_plain || table.get_logical_plan().is_some() {
        return Ok(provider_as_source(table));
    }
    let scan = LogicalPlanBuilder::scan("file", provider_as_source(table), None)?;
    let columns = schema.fields().iter().map(|field| {
        let column = Expr::Column(Column::new(Some("file"), field.name()));
        match is_float(field.data_type()) {
            true => {
                let call = ScalarFunction::new_udf(Arc::clone(&CANONICAL_FLOAT), vec![column]);
                Expr::ScalarFunction(call).alias(field.name())
            }
            false => column,
        }
    });
    let plan = scan.project(columns.collect::<Vec<_>>())?.build()?;
    Ok(provider_as_source(Arc::new(ViewTable::new(plan, None))))
}
