//! Which of DataFusion's expressions are operations of pipelines.
//!
//! An expression is one only where it means the same, down to its errors: what is left out here is
//! evaluated by DataFusion as before.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, LikeExpr, Literal,
    NegativeExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use thalweg_bind::calculates;
use thalweg_functions::parts::field;
use thalweg_ir::op::{DatePart, DateUnit, Op};
use thalweg_pipeline::literal;

/// An operation and what it is applied to.
type Applied = (Op, Vec<Arc<dyn PhysicalExpr>>);

/// Branches of a CASE with an operand that is computed for each.
const COMPUTED_BRANCHES_MAX: usize = 4;
/// Branches of a CASE with an operand that is a column: DataFusion looks up what is among so many.
const BRANCHES_MAX: usize = 16;

/// What an expression applies, and to what, if it is an operation of pipelines and takes such operands.
pub fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Applied>> {
    let Some((op, operands)) = applied(expr, schema)? else { return Ok(None) };
    let types = operands.iter().map(|operand| operand.data_type(schema));
    let result = op.result_type(&types.collect::<Result<Vec<_>>>()?);
    let is_same = result == Some(expr.data_type(schema)?);
    Ok(is_same.then_some((op, operands)))
}

fn applied(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Applied>> {
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        return called(call, schema);
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        return Ok(coalesce(case).or_else(|| choice(case)));
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        // A safe cast makes NULL of what has no counterpart.
        let is_strict = !cast.cast_options().safe;
        let op = Op::Cast(cast.cast_type().clone());
        return Ok(is_strict.then(|| (op, vec![Arc::clone(cast.expr())])));
    }
    if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
        return Ok(Some((Op::Negate, vec![Arc::clone(negative.arg())])));
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        return listed(list);
    }
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        let Some(pattern) = text(like.pattern()) else { return Ok(None) };
        let (negated, any_case) = (like.negated(), like.case_insensitive());
        let op = Op::Like { pattern: pattern.into(), negated, any_case };
        return Ok(Some((op, vec![Arc::clone(like.expr())])));
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return binary_op(binary, schema);
    }
    Ok(None)
}

fn binary_op(binary: &BinaryExpr, schema: &Schema) -> Result<Option<Applied>> {
    let operands = vec![Arc::clone(binary.left()), Arc::clone(binary.right())];
    let is_integer = || {
        Ok::<_, datafusion::error::DataFusionError>(binary.left().data_type(schema)?.is_integer())
    };
    Ok(match binary.op() {
        // Of floats the binder has functions, which fail where DataFusion does not.
        Operator::Divide if is_integer()? => Some((Op::Divide, operands)),
        Operator::Modulo if is_integer()? => Some((Op::Modulo, operands)),
        Operator::StringConcat => Some((Op::Concatenate, concatenated(operands))),
        _ => None,
    })
}

/// The texts of a chain of `||`, which may be long.
fn concatenated(operands: Vec<Arc<dyn PhysicalExpr>>) -> Vec<Arc<dyn PhysicalExpr>> {
    let mut all = vec![];
    let mut left = operands;
    while let Some(operand) = left.pop() {
        match operand.downcast_ref::<BinaryExpr>() {
            Some(binary) if *binary.op() == Operator::StringConcat => {
                left.extend([Arc::clone(binary.left()), Arc::clone(binary.right())]);
            }
            _ => all.push(operand),
        }
    }
    all.reverse();
    all
}

/// A text that is written.
fn text(expr: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    expr.downcast_ref::<Literal>()?.value().try_as_str().flatten()
}

fn listed(list: &InListExpr) -> Result<Option<Applied>> {
    let mut items = Vec::with_capacity(list.len());
    for item in list.list() {
        let Some(item) = item.downcast_ref::<Literal>() else { return Ok(None) };
        match literal::of(&item.value().to_array_of_size(1)?) {
            Some(item) => items.push(item),
            None => return Ok(None),
        }
    }
    let op = Op::In { list: items, negated: list.negated() };
    Ok(Some((op, vec![Arc::clone(list.expr())])))
}

/// `CASE WHEN a IS NOT NULL THEN a … ELSE b END`, which DataFusion makes of COALESCE.
fn coalesce(case: &CaseExpr) -> Option<Applied> {
    let otherwise = case.else_expr()?;
    if case.expr().is_some() {
        return None;
    }
    let first_not_null = case.when_then_expr().iter().map(|(when, then)| {
        let tested = when.downcast_ref::<IsNotNullExpr>()?;
        (tested.arg() == then).then(|| Arc::clone(then))
    });
    let mut operands = first_not_null.collect::<Option<Vec<_>>>()?;
    operands.push(Arc::clone(otherwise));
    Some((Op::Coalesce, operands))
}

fn choice(case: &CaseExpr) -> Option<Applied> {
    let branches = case.when_then_expr();
    if let Some(operand) = case.expr() {
        // It is computed once for each branch.
        let most = if operand.is::<Column>() { BRANCHES_MAX } else { COMPUTED_BRANCHES_MAX };
        let is_volatile = datafusion::physical_expr_common::physical_expr::is_volatile(operand);
        if branches.len() > most || is_volatile {
            return None;
        }
    }
    let mut operands = Vec::with_capacity(2 * branches.len() + 1);
    for (when, then) in branches {
        operands.push(match case.expr() {
            Some(operand) => {
                let (operand, when) = (Arc::clone(operand), Arc::clone(when));
                Arc::new(BinaryExpr::new(operand, Operator::Eq, when)) as _
            }
            None => Arc::clone(when),
        });
        operands.push(Arc::clone(then));
    }
    operands.extend(case.else_expr().cloned());
    Some((Op::Case, operands))
}

fn called(call: &ScalarFunctionExpr, schema: &Schema) -> Result<Option<Applied>> {
    let operands = call.args();
    if let Some(op) = calculates(call.fun()) {
        let op = match (op, call.return_type()) {
            (Operator::Divide, &DataType::Decimal128(precision, scale)) => {
                Op::Quotient { precision, scale }
            }
            (Operator::Plus, _) => Op::Add,
            (Operator::Minus, _) => Op::Subtract,
            (Operator::Multiply, _) => Op::Multiply,
            (Operator::Divide, _) => Op::Divide,
            (Operator::Modulo, _) => Op::Modulo,
            _ => return Ok(None),
        };
        return Ok(Some((op, operands.to_vec())));
    }
    let is_float = |operand: &Arc<dyn PhysicalExpr>| {
        Ok::<_, datafusion::error::DataFusionError>(matches!(
            operand.data_type(schema)?,
            DataType::Float32 | DataType::Float64
        ))
    };
    let op = match (call.name(), operands) {
        ("within_digits", [_]) => Op::WithinDigits,
        ("canonical_float", [_]) => Op::Canonical,
        ("nearest_whole", [_]) => Op::NearestWhole,
        ("floor", [value]) if is_float(value)? => Op::Floor,
        ("ceil", [value]) if is_float(value)? => Op::Ceiling,
        ("abs", [_]) => Op::Absolute,
        ("nullif", [_, _]) => Op::NullIf,
        ("greatest", _) => Op::Greatest,
        ("least", _) => Op::Least,
        ("substr", _) => Op::Substring,
        ("character_length", [_]) => Op::Characters,
        ("octet_length", [_]) => Op::Octets,
        ("upper", [_]) => Op::Upper,
        ("lower", [_]) => Op::Lower,
        ("btrim", [_]) => Op::Trim { start: true, end: true },
        ("ltrim", [_]) => Op::Trim { start: true, end: false },
        ("rtrim", [_]) => Op::Trim { start: false, end: true },
        ("date_part", [name, time]) => {
            let op = text(name).and_then(|name| date_part(field(name).ok()?)).map(Op::DatePart);
            return Ok(op.map(|op| (op, vec![Arc::clone(time)])));
        }
        ("date_trunc", [name, time]) => {
            let op = text(name).and_then(|name| date_unit(field(name).ok()?)).map(Op::DateTrunc);
            return Ok(op.map(|op| (op, vec![Arc::clone(time)])));
        }
        _ => return Ok(None),
    };
    Ok(Some((op, operands.to_vec())))
}

fn date_part(field: &str) -> Option<DatePart> {
    Some(match field {
        "year" => DatePart::Year,
        "quarter" => DatePart::Quarter,
        "month" => DatePart::Month,
        "week" => DatePart::Week,
        "day" => DatePart::Day,
        "dow" => DatePart::DayOfWeek,
        "isodow" => DatePart::IsoDayOfWeek,
        "doy" => DatePart::DayOfYear,
        "hour" => DatePart::Hour,
        "minute" => DatePart::Minute,
        "second" => DatePart::Second,
        "epoch" => DatePart::Epoch,
        _ => return None,
    })
}

fn date_unit(field: &str) -> Option<DateUnit> {
    Some(match field {
        "millisecond" => DateUnit::Millisecond,
        "second" => DateUnit::Second,
        "minute" => DateUnit::Minute,
        "hour" => DateUnit::Hour,
        "day" => DateUnit::Day,
        "week" => DateUnit::Week,
        "month" => DateUnit::Month,
        "quarter" => DateUnit::Quarter,
        "year" => DateUnit::Year,
        _ => return None,
    })
}
