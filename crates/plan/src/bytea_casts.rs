//! A text becomes bytes, and bytes become a text, as PostgreSQL writes them: `'\x0102'::bytea` is
//! two bytes, and so is `'\x0102'` where it is compared with or put into a column of bytes.
//!
//! The planner's cast takes the characters themselves for the bytes. The rule stands twice among the
//! analyzer's: before types are coerced it sees the casts of the statement, and after that those
//! that comparisons, set operations and their like got. Bytes that only a function of texts needs
//! as a text, such as LIKE, stay what they are: files hold texts without saying so.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use thalweg_bind::EachItem;
use thalweg_errors::into_datafusion;
use thalweg_functions::bytea::{self, is_binary};

#[derive(Debug)]
struct ByteaCasts {
    /// The casts are those of the statement.
    written: bool,
}

pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.analyzer().take().unwrap_or_default().rules;
    rules.insert(0, Arc::new(ByteaCasts { written: true }));
    rules.push(Arc::new(ByteaCasts { written: false }));
    builder.with_analyzer_rules(rules)
}

impl AnalyzerRule for ByteaCasts {
    fn name(&self) -> &str {
        if self.written { "written_bytea_casts" } else { "bytea_casts" }
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            if !concerns(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = crate::nodes::input_schema(&node)?;
            let names = NamePreserver::new(&node);
            let node = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_down(|e| self.rewrite(e, &schema))?;
                Ok(expr.update_data(|e| name.restore(e)))
            })?;
            node.map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(rewritten.data)
    }
}

/// Whether a cast of the node may be one between bytes and texts.
fn concerns(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        expr.apply(|e| {
            found |= match e {
                Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
                    is_binary(field.data_type()) || field.data_type().is_string()
                }
                Expr::ScalarFunction(call) => EachItem::of(call).is_some(),
                _ => false,
            };
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

impl ByteaCasts {
    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let of_items = |body: Expr, item: &DFSchema| body.transform_down(|e| self.rewrite(e, item));
        if let Some(list) = crate::nodes::in_items(&expr, of_items)? {
            return Ok(Transformed::yes(list));
        }
        match expr {
            // What the planner has made bytes for a function that takes texts as well: only what is
            // written out is meant as bytes.
            Expr::ScalarFunction(function) if !self.written && !gives_back(function.name()) => {
                let ScalarFunction { func, args } = function;
                let args = args.into_iter().map(|arg| match literal(&arg) {
                    Some(literal) => Ok(literal?),
                    None => Ok(arg),
                });
                let args = args.collect::<Result<Vec<_>>>()?;
                let expr = Expr::ScalarFunction(ScalarFunction { func, args });
                // Its arguments have been seen to; what is below them has not.
                let expr = expr.map_children(|arg| {
                    arg.map_children(|inner| inner.transform_down(|e| self.rewrite(e, schema)))
                })?;
                Ok(Transformed::new(expr.data, true, TreeNodeRecursion::Jump))
            }
            Expr::Cast(ref cast) => self
                .cast(&cast.expr, cast.field.data_type(), false, schema)
                .map_or(Ok(Transformed::no(expr.clone())), |e| Ok(Transformed::yes(e?))),
            Expr::TryCast(ref cast) => self
                .cast(&cast.expr, cast.field.data_type(), true, schema)
                .map_or(Ok(Transformed::no(expr.clone())), |e| Ok(Transformed::yes(e?))),
            other => Ok(Transformed::no(other)),
        }
    }

    /// What stands for the cast; `None`: it may stay.
    fn cast(
        &self,
        expr: &Expr,
        to: &DataType,
        lenient: bool,
        schema: &DFSchema,
    ) -> Option<Result<Expr>> {
        let reads = is_binary(to);
        // A type that cannot be told here (an outer column, a parameter) changes nothing.
        let from = || expr.get_type(schema).ok();
        if reads && from().is_some_and(|t| t.is_string()) {
            if let Some(text) = text(expr) {
                return match bytea::parse(text) {
                    Ok(bytes) => Some(Ok(Expr::Literal(binary(bytes, to), None))),
                    Err(_) if lenient => {
                        Some(ScalarValue::try_from(to).map(|n| Expr::Literal(n, None)))
                    }
                    Err(e) => Some(Err(into_datafusion(e))),
                };
            }
        } else if !(self.written && to.is_string() && from().is_some_and(|t| is_binary(&t))) {
            return None;
        }
        let function = ByteaCast { to: to.clone(), lenient, signature: signature() };
        let function = ScalarUDF::new_from_impl(function);
        Some(Ok(function.call(vec![expr.clone()])))
    }
}

/// Functions that give one of their arguments.
fn gives_back(function: &str) -> bool {
    ["coalesce", "nullif", "nvl", "nvl2", "ifnull", "greatest", "least", "make_array"]
        .contains(&function)
}

/// The text of a literal.
fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(scalar, _) => scalar.try_as_str().flatten(),
        _ => None,
    }
}

/// The bytes of a literal that is cast to them.
fn literal(expr: &Expr) -> Option<Result<Expr>> {
    let Expr::Cast(Cast { expr, field }) = expr else { return None };
    let to = field.data_type();
    let text = text(expr).filter(|_| is_binary(to))?;
    let read = bytea::parse(text).map_err(into_datafusion);
    Some(read.map(|bytes| Expr::Literal(binary(bytes, to), None)))
}

fn binary(bytes: Vec<u8>, data_type: &DataType) -> ScalarValue {
    match data_type {
        DataType::BinaryView => ScalarValue::BinaryView(Some(bytes)),
        DataType::LargeBinary => ScalarValue::LargeBinary(Some(bytes)),
        _ => ScalarValue::Binary(Some(bytes)),
    }
}

/// Types are coerced no more.
fn signature() -> Signature {
    Signature::any(1, Volatility::Immutable)
}

/// The cast of what is not written out.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ByteaCast {
    to: DataType,
    lenient: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ByteaCast {
    fn name(&self) -> &str {
        if is_binary(&self.to) { "bytea_from_text" } else { "text_from_bytea" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = &args.args[..] else {
            return datafusion::common::internal_err!("a cast takes one value");
        };
        let (array, is_scalar) = match value {
            ColumnarValue::Array(array) => (Arc::clone(array), false),
            ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
        };
        let cast = match is_binary(&self.to) {
            true => bytea::from_texts(&array, &self.to, self.lenient),
            false => bytea::to_texts(&array, &self.to),
        };
        let cast = cast.map_err(into_datafusion)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&cast, 0)?),
            false => ColumnarValue::Array(cast),
        })
    }
}
