//! Casts of texts to dates, times, timestamps, intervals, numerics, doubles and lists, read as PostgreSQL
//! reads them, and of these to texts, as PostgreSQL writes them.
//!
//! Arrow's reader wants seconds and one order of the fields, takes no exponent, and has a text for a list
//! of one. After types are coerced, and before
//! constants are folded, such a cast of a literal becomes the value, and any other a function of our
//! own (`thalweg_functions`, `text_as.rs`).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, ScalarUDF, cast};
use datafusion::optimizer::AnalyzerRule;

use thalweg_errors::into_datafusion;
use thalweg_functions::as_text::{AS_TEXT, is_written};
use thalweg_functions::text_as::{TextAs, is_read, is_text};

#[derive(Debug, Default)]
pub struct ReadTimes;

/// Puts the rule behind all others, which add casts.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::analyze_last(ReadTimes, builder)
}

impl AnalyzerRule for ReadTimes {
    fn name(&self) -> &str {
        "read_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let schema = crate::nodes::input_schema(&node)?;
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let read = expr.transform_up(|e| read(e, &schema))?;
                Ok(match read.transformed {
                    true => Transformed::yes(name.restore(read.data)),
                    false => read,
                })
            })
        })?;
        Ok(rewritten.data)
    }
}

fn read(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let of_items = |body: Expr, item: &DFSchema| body.transform_up(|e| read(e, item));
    if let Some(list) = crate::nodes::in_items(&expr, of_items)? {
        return Ok(Transformed::yes(list));
    }
    let (inner, data_type, tries) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
        _ => return Ok(Transformed::no(expr)),
    };
    if is_text(data_type) && inner.get_type(schema).is_ok_and(|t| is_written(&t)) {
        let call = ScalarFunction::new_udf(Arc::clone(&AS_TEXT), vec![*inner.clone()]);
        let text = Expr::ScalarFunction(call);
        return Ok(Transformed::yes(match data_type {
            DataType::Utf8View => text,
            other => cast(text, other.clone()),
        }));
    }
    if !is_read(data_type) {
        return Ok(Transformed::no(expr));
    }
    let read = TextAs::new(data_type.clone(), tries);
    if let Expr::Literal(
        ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text),
        _,
    ) = inner.as_ref()
    {
        let value = match text {
            Some(text) => read.scalar(text).map_err(into_datafusion)?,
            None => ScalarValue::try_from(data_type)?,
        };
        return Ok(Transformed::yes(Expr::Literal(value, None)));
    }
    let is_text = |data_type: &DataType| match data_type {
        DataType::Dictionary(_, value) => is_text(value),
        data_type => is_text(data_type),
    };
    if !inner.get_type(schema).is_ok_and(|t| is_text(&t)) {
        return Ok(Transformed::no(expr));
    }
    let call = ScalarFunction::new_udf(
        Arc::new(ScalarUDF::new_from_impl(read)),
        vec![inner.as_ref().clone()],
    );
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}
