//! DataFusion's simplifier, kept from what it has wrong.
//!
//! It takes a cast out of a comparison with a constant also where the cast rounds, so that
//! `cast(d AS int) = 2` became `d = 2.0` and lost 2.4. And of two lists for one value it makes one
//! without regard to NULLs and to what is no constant: `x IN (1, 2) AND x NOT IN (2, NULL)` became
//! `x IN (1)`, which is never NULL. Of `x # x` it makes 0, also for a NULL. And of `sum(n + 1)` it makes
//! `sum(n) + 1 * count(n)`, whose count need not fit into a numeric's digits. It takes a constant that has
//! the length of a `varchar(3)` for another one than the same without: of `v = 'b'::varchar(3) AND v <> 'b'`
//! it left the first. So a condition is asked of constants without lengths. Of a numeric `n * 0.0` that is
//! never NULL it makes the `0.0`, which has fewer digits than the product, and of `n % 1.0` a zero of the type of
//! `n`: of what may be NULL it makes neither. This rule takes out the casts itself, where they are
//! [exact](super::casts); and it puts what DataFusion must not look into behind a function that gives its
//! argument, for as long as the simplifier runs:
//!
//! ```text
//! cast(d AS int) = 2              =>    as_is(cast(d AS int)) = 2
//! x IN (1, 2) AND x IN (y, 3)     =>    x IN (1, 2) AND as_is(x IN (y, 3))
//! x # x                           =>    x # as_is(x)
//! sum(n + 1)                      =>    sum(as_is(n + 1))
//! n * 0.0                         =>    maybe_null(n) * 0.0
//! ```

use std::cell::LazyCell;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::{Cast, InList, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;

use thalweg_functions::cut_text::varchar;

use super::casts::{before_cast, is_exact};

#[derive(Debug, Default)]
pub struct Simplify {
    simplifier: SimplifyExpressions,
}

/// Puts the rule in the place of DataFusion's.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::in_place(Simplify::default(), builder)
}

impl OptimizerRule for Simplify {
    fn name(&self) -> &str {
        "simplify_expressions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.simplifier.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let plan = without_lengths(plan)?;
        let schema = LazyCell::new(|| crate::nodes::input_schema(&plan));
        let mut concerned = false;
        plan.apply_expressions(|expr| {
            concerned = expr.exists(|e| {
                let is_any = is_cast(e) || is_pair(e) || is_xor(e) || adds_numeric(e);
                let hides_null = || {
                    schema.as_ref().is_ok_and(|schema| numeric_factors(e, schema).contains(&true))
                };
                Ok(is_any || multiplies(e) && hides_null())
            })?;
            Ok(if concerned { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !concerned {
            return self.simplifier.rewrite(plan, config);
        }
        let aggregates = matches!(plan, LogicalPlan::Aggregate(_));
        let freed = free_of_casts(plan)?;
        // What is hidden does not show in the names of columns.
        let names = NamePreserver::new(&freed.data);
        let schema = crate::nodes::input_schema(&freed.data)?;
        let hidden = freed.data.map_expressions(|expr| match expr {
            Expr::GroupingSet(_) => hide(expr, &schema),
            expr => {
                let name = names.save(&expr);
                Ok(hide(expr, &schema)?.update_data(|expr| name.restore(expr)))
            }
        })?;
        let simplified = self.simplifier.rewrite(hidden.data, config)?;
        // An aggregate may have become a projection over another.
        let shown = simplified.data.transform_down(|plan| {
            let shown = plan.map_expressions(show)?;
            let more = aggregates && !matches!(shown.data, LogicalPlan::Aggregate(_));
            let next = if more { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop };
            Ok(Transformed::new(shown.data, shown.transformed, next))
        })?;
        let rewritten = free_of_casts(shown.data)?;
        let changed = freed.transformed || simplified.transformed || rewritten.transformed;
        Ok(Transformed::new_transformed(rewritten.data, changed))
    }
}

/// The same plan with constants in its comparisons that have no length of a type.
fn without_lengths(plan: LogicalPlan) -> Result<LogicalPlan> {
    let names = NamePreserver::new(&plan);
    let bare = plan.map_expressions(|expr| {
        if !expr.exists(|e| Ok(operands(e).iter().any(|side| bare_constant(side).is_some())))? {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let bare = expr.transform_up(|expr| {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
                return Ok(Transformed::no(expr));
            };
            if !compares(op) {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            }
            let bare = |side: Box<Expr>| bare_constant(&side).map_or(side, Box::new);
            let (left, right) = (bare(left), bare(right));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        })?;
        Ok(bare.update_data(|expr| name.restore(expr)))
    })?;
    Ok(bare.data)
}

/// The two sides of a comparison.
fn operands(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => vec![left, right],
        _ => vec![],
    }
}

/// A constant that says of which length texts of its type are, or a text that is cut to a length, as a
/// constant that says nothing.
fn bare_constant(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Literal(value, Some(_)) => Some(Expr::Literal(value.clone(), None)),
        Expr::ScalarFunction(call) if call.func.name() == "cut_varchar" => {
            let [Expr::Literal(text, _), Expr::Literal(ScalarValue::Int64(Some(length)), _)] =
                &call.args[..]
            else {
                return None;
            };
            let cut = varchar(text.try_as_str().flatten()?, *length);
            Some(Expr::Literal(ScalarValue::Utf8View(Some(cut.into())), None))
        }
        _ => None,
    }
}

/// The same plan with the casts taken out of its comparisons that can do without.
fn free_of_casts(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = crate::nodes::input_schema(&plan)?;
    let names = NamePreserver::new(&plan);
    let named = |expr: Expr| {
        let name = names.save(&expr);
        let freed = without_casts(expr, &schema)?;
        Ok(freed.update_data(|expr| name.restore(expr)))
    };
    plan.map_expressions(|expr| match expr {
        Expr::GroupingSet(_) => expr.map_children(named),
        _ => named(expr),
    })
}

fn is_cast(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(_) | Expr::TryCast(_) => true,
        // Functions that the simplifier writes as casts.
        Expr::ScalarFunction(call) => matches!(
            call.func.name(),
            "arrow_cast" | "arrow_try_cast" | "cast_to_type" | "try_cast_to_type"
        ),
        _ => false,
    }
}

/// Whether a numeric constant is added, which a sum would take out of itself.
fn adds_numeric(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right }) = expr
    else {
        return false;
    };
    let is_numeric = |e: &Expr| match e {
        Expr::Literal(value, _) => value.data_type().is_decimal(),
        Expr::Cast(Cast { expr, field }) => {
            field.data_type().is_decimal() && matches!(expr.as_ref(), Expr::Literal(..))
        }
        _ => false,
    };
    is_numeric(left) || is_numeric(right)
}

/// Whether this is a product, or what is left of a division.
fn multiplies(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::Multiply | Operator::Modulo, .. }))
}

/// The operands of numerics that are multiplied, or divided for what is left, where these are never NULL.
fn numeric_factors(expr: &Expr, schema: &DFSchema) -> [bool; 2] {
    let Expr::BinaryExpr(BinaryExpr { left, right, .. }) = expr else { return [false; 2] };
    let is_decimal = |e: &Expr| e.get_type(schema).is_ok_and(|t| t.is_decimal());
    if !multiplies(expr) || !(is_decimal(left) || is_decimal(right)) {
        return [false; 2];
    }
    let never_null =
        |e: &Expr| !matches!(e, Expr::Literal(..)) && !e.nullable(schema).unwrap_or(true);
    [never_null(left), never_null(right)]
}

fn is_xor(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::BitwiseXor, .. }))
}

/// Whether these are two conditions on one value that the simplifier would make one of.
fn is_pair(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return false };
    // What is in one list or another is in both together; with negated ones it is not as easy.
    let harmless = match op {
        Operator::And => false,
        Operator::Or => !is_negated(left) && !is_negated(right),
        _ => return false,
    };
    !harmless && listed(left).is_some_and(|value| listed(right) == Some(value))
}

/// The value that a list of others is for, if an expression is one or becomes one.
fn listed(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::InList(list) => Some(&list.expr),
        Expr::Not(inner) => listed(inner),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            element(left).filter(|value| element(right) == Some(value))
        }
        _ => None,
    }
}

fn element(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            match (left.as_ref(), right.as_ref()) {
                (column @ Expr::Column(_), _) | (_, column @ Expr::Column(_)) => Some(column),
                _ => None,
            }
        }
        other => listed(other),
    }
}

fn is_negated(expr: &Expr) -> bool {
    match expr {
        Expr::InList(list) => list.negated,
        Expr::Not(_) => true,
        _ => false,
    }
}

fn hide(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        expr if multiplies(&expr) => {
            let factors = numeric_factors(&expr, schema);
            let Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) = expr else {
                return Ok(Transformed::no(expr));
            };
            for (factor, never_null) in [&mut left, &mut right].into_iter().zip(factors) {
                if never_null {
                    **factor = maybe_null(std::mem::take(factor.as_mut()));
                }
            }
            let hidden = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Ok(Transformed::new_transformed(hidden, factors.contains(&true)))
        }
        expr if is_cast(&expr) || adds_numeric(&expr) => Ok(Transformed::yes(as_is(expr))),
        expr if is_pair(&expr) || is_xor(&expr) => {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
                return Ok(Transformed::no(expr));
            };
            let right = Box::new(as_is(*right));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        other => Ok(Transformed::no(other)),
    })
}

fn show(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::ScalarFunction(mut call) if call.func.name() == AS_IS => {
            Ok(Transformed::yes(call.args.swap_remove(0)))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// With comparisons of casts with constants as comparisons of what is cast, where that is the same.
fn without_casts(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                let freed = match (compared(&left, &right, op, schema), op.swap()) {
                    (Some(value), _) => Some((inner(&left), op, value)),
                    (None, Some(swapped)) => compared(&right, &left, swapped, schema)
                        .map(|value| (inner(&right), swapped, value)),
                    (None, None) => None,
                };
                match freed {
                    Some((Some(cast), op, value)) => {
                        let comparison = BinaryExpr::new(Box::new(cast), op, Box::new(value));
                        Transformed::yes(Expr::BinaryExpr(comparison))
                    }
                    _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
                }
            }
            Expr::InList(InList { expr, list, negated }) => {
                let values = list.iter().map(|v| compared(&expr, v, Operator::Eq, schema));
                match (values.collect::<Option<Vec<_>>>(), inner(&expr)) {
                    (Some(values), Some(cast)) => Transformed::yes(Expr::InList(InList {
                        expr: Box::new(cast),
                        list: values,
                        negated,
                    })),
                    _ => Transformed::no(Expr::InList(InList { expr, list, negated })),
                }
            }
            other => Transformed::no(other),
        })
    })
}

fn compares(op: Operator) -> bool {
    use Operator::*;
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// What is cast.
fn inner(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => {
            Some(expr.as_ref().clone())
        }
        _ => None,
    }
}

/// What the operand of `cast` is compared with instead of the constant `with`.
fn compared(cast: &Expr, with: &Expr, op: Operator, schema: &DFSchema) -> Option<Expr> {
    let (operand, to) = match cast {
        Expr::Cast(Cast { expr, field, .. }) | Expr::TryCast(TryCast { expr, field, .. }) => {
            (expr, field.data_type())
        }
        _ => return None,
    };
    let Expr::Literal(value, metadata) = with else { return None };
    // A constant of another type has yet to be coerced.
    if value.data_type() != *to {
        return None;
    }
    let from = operand.get_type(schema).ok()?;
    // Numbers in words are in another order, but as many.
    let spelled = matches!(op, Operator::Eq | Operator::NotEq)
        && from.is_integer()
        && matches!(to, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if !spelled && !is_exact(&from, to) {
        return None;
    }
    let value = before_cast(value, &from)?;
    Some(Expr::Literal(value, metadata.clone()))
}

const AS_IS: &str = "as_is\0";

/// Its argument, which it may say to be NULL for some rows. No plan that runs has it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsIs {
    signature: Signature,
    is_nullable: bool,
}

impl AsIs {
    fn function(is_nullable: bool) -> Arc<ScalarUDF> {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(AsIs { signature, is_nullable }))
    }
}

fn as_is(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| AsIs::function(false));
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![expr]))
}

fn maybe_null(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| AsIs::function(true));
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![expr]))
}

impl ScalarUDFImpl for AsIs {
    fn name(&self) -> &str {
        AS_IS
    }

    /// Columns keep the names that they have without it.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = &args.arg_fields[0];
        Ok(match self.is_nullable {
            true => Arc::new(field.as_ref().clone().with_nullable(true)),
            false => Arc::clone(field),
        })
    }

    /// It is where all is constant.
    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
