//! What a node of a logical plan is over, and what its expressions may have.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use thalweg_bind::EachItem;

/// A function over the items of lists with its expression as `rewrite` leaves it; `None`: there is nothing to
/// rewrite in it, or it is none.
pub(crate) fn in_items(
    expr: &Expr,
    rewrite: impl FnOnce(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Option<Expr>> {
    let Expr::ScalarFunction(call) = expr else { return Ok(None) };
    let Some(function) = EachItem::of(call) else { return Ok(None) };
    let body = rewrite(function.body().clone(), &function.schema()?)?;
    Ok(match body.transformed {
        true => Some(function.with_body(body.data).call(call.args.clone())),
        false => None,
    })
}

/// Whether rows are those of a table, perhaps with other columns.
pub(crate) fn is_of_scan(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_of_scan(&alias.input),
        LogicalPlan::Projection(projection) => is_of_scan(&projection.input),
        _ => false,
    }
}

/// Whether a plan's expressions may have values of a type: a column, a literal, a cast or a function has
/// it, and nothing else makes it. Most plans are told apart by a look at their schemas.
pub(crate) fn may_have(plan: &LogicalPlan, is: fn(&DataType) -> bool) -> Result<bool> {
    if plan.inputs().iter().any(|i| i.schema().fields().iter().any(|f| is(f.data_type()))) {
        return Ok(true);
    }
    let mut found = false;
    plan.apply_expressions(|expr| {
        expr.apply(|e| {
            found |= match e {
                Expr::Literal(value, _) => is(&value.data_type()),
                Expr::Cast(cast) => is(cast.field.data_type()),
                Expr::TryCast(cast) => is(cast.field.data_type()),
                Expr::OuterReferenceColumn(field, _) => is(field.data_type()),
                Expr::ScalarFunction(_) | Expr::ScalarSubquery(_) => true,
                _ => false,
            };
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// What expressions of a plan are over.
pub(crate) fn input_schema(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        schema.merge(&DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &scan.source.schema(),
        )?);
    }
    Ok(schema)
}
