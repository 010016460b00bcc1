//! Operators between two expressions.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator};

use crate::binder::Binder;
use crate::expr::{Place, Typed};
use crate::failure::{Result, not_covered, wrong};
use crate::types::{
    self, INTERVAL, TEXT, as_decimal, common, is_decimal, is_float, is_number, is_text,
};

/// What an operator does, by its spelling.
enum Kind {
    Logic(Operator),
    Comparison(Operator),
    Arithmetic(Operator),
    Power,
    /// DataFusion's coercion decides.
    Other(Operator),
}

fn kind(op: &BinaryOperator) -> Option<Kind> {
    use BinaryOperator as B;
    Some(match op {
        B::And => Kind::Logic(Operator::And),
        B::Or => Kind::Logic(Operator::Or),
        B::Eq => Kind::Comparison(Operator::Eq),
        B::NotEq => Kind::Comparison(Operator::NotEq),
        B::Lt => Kind::Comparison(Operator::Lt),
        B::LtEq => Kind::Comparison(Operator::LtEq),
        B::Gt => Kind::Comparison(Operator::Gt),
        B::GtEq => Kind::Comparison(Operator::GtEq),
        B::Spaceship => Kind::Comparison(Operator::IsNotDistinctFrom),
        B::Plus => Kind::Arithmetic(Operator::Plus),
        B::Minus => Kind::Arithmetic(Operator::Minus),
        B::Multiply => Kind::Arithmetic(Operator::Multiply),
        B::Divide => Kind::Arithmetic(Operator::Divide),
        B::Modulo => Kind::Arithmetic(Operator::Modulo),
        // PostgreSQL's powers; its exclusive or is `#`.
        B::PGExp | B::BitwiseXor => Kind::Power,
        B::PGRegexMatch => Kind::Other(Operator::RegexMatch),
        B::PGRegexIMatch => Kind::Other(Operator::RegexIMatch),
        B::PGRegexNotMatch => Kind::Other(Operator::RegexNotMatch),
        B::PGRegexNotIMatch => Kind::Other(Operator::RegexNotIMatch),
        B::PGLikeMatch => Kind::Other(Operator::LikeMatch),
        B::PGILikeMatch => Kind::Other(Operator::ILikeMatch),
        B::PGNotLikeMatch => Kind::Other(Operator::NotLikeMatch),
        B::PGNotILikeMatch => Kind::Other(Operator::NotILikeMatch),
        B::BitwiseAnd => Kind::Other(Operator::BitwiseAnd),
        B::BitwiseOr => Kind::Other(Operator::BitwiseOr),
        B::Xor | B::PGBitwiseXor => Kind::Other(Operator::BitwiseXor),
        B::PGBitwiseShiftRight => Kind::Other(Operator::BitwiseShiftRight),
        B::PGBitwiseShiftLeft => Kind::Other(Operator::BitwiseShiftLeft),
        B::StringConcat => Kind::Other(Operator::StringConcat),
        _ => return None,
    })
}

/// The comparison that `ANY` or `ALL` makes.
pub(crate) fn comparison(op: &BinaryOperator) -> Option<Operator> {
    match kind(op) {
        Some(Kind::Comparison(op)) => Some(op),
        _ => None,
    }
}

impl Binder<'_> {
    pub(crate) fn binary(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        place: Place<'_>,
    ) -> Result<Typed> {
        if let (ast::Expr::Tuple(l), ast::Expr::Tuple(r)) = (unnested(left), unnested(right)) {
            return self.rows(l, op, r, place);
        }
        let Some(kind) = kind(op) else { return not_covered("this operator") };
        if let Kind::Logic(op) = kind {
            return self.logic(left, op, right, place);
        }
        let (l, r) = (self.expr(left, place)?, self.expr(right, place)?);
        match kind {
            Kind::Comparison(op) if is_decimal(&l.data_type) => {
                let r = self.exactly(r, right, place)?;
                self.compare(l, op, r)
            }
            Kind::Comparison(op) if is_decimal(&r.data_type) => {
                let l = self.exactly(l, left, place)?;
                self.compare(l, op, r)
            }
            Kind::Comparison(op) => self.compare(l, op, r),
            Kind::Arithmetic(op) => self.arithmetic(l, op, r, place),
            Kind::Power => self.scalar("power", vec![l, r]),
            Kind::Other(op) => self.other(l, op, r),
            Kind::Logic(_) => not_covered("this operator"),
        }
    }

    /// AND and OR of many operands: a chain is long where programs write it, and the stack is not.
    fn logic(
        &self,
        left: &ast::Expr,
        op: Operator,
        right: &ast::Expr,
        place: Place<'_>,
    ) -> Result<Typed> {
        let clause = if op == Operator::And { "AND" } else { "OR" };
        let mut operands = vec![right];
        let mut now = left;
        while let ast::Expr::BinaryOp { left, op: other, right } = now
            && matches!(
                (op, other),
                (Operator::And, BinaryOperator::And) | (Operator::Or, BinaryOperator::Or)
            )
        {
            operands.push(right);
            now = left;
        }
        let first = self.expr(now, place)?;
        let mut nullable = first.nullable;
        let mut expr = first.condition(clause)?;
        for operand in operands.into_iter().rev() {
            let operand = self.expr(operand, place)?;
            nullable |= operand.nullable;
            expr = binary(expr, op, operand.condition(clause)?);
        }
        Ok(Typed::boolean(expr, nullable))
    }

    /// `(a, b) = (c, d)`.
    pub(crate) fn rows(
        &self,
        left: &[ast::Expr],
        op: &BinaryOperator,
        right: &[ast::Expr],
        place: Place<'_>,
    ) -> Result<Typed> {
        if left.len() != right.len() {
            return wrong("42601", "unequal number of entries in row expressions");
        }
        let (op, joined_by) = match op {
            BinaryOperator::Eq => (Operator::Eq, Operator::And),
            BinaryOperator::NotEq => (Operator::NotEq, Operator::Or),
            _ => return not_covered("an order of rows"),
        };
        let mut all: Option<Typed> = None;
        for (l, r) in left.iter().zip(right) {
            let one = self.compare(self.expr(l, place)?, op, self.expr(r, place)?)?;
            all = Some(match all {
                None => one,
                Some(so_far) => {
                    let nullable = so_far.nullable || one.nullable;
                    Typed::boolean(binary(so_far.expr, joined_by, one.expr), nullable)
                }
            });
        }
        match all {
            Some(all) => Ok(all),
            None => wrong("42601", "a row expression has at least one entry"),
        }
    }

    pub(crate) fn compare(&self, l: Typed, op: Operator, r: Typed) -> Result<Typed> {
        let nullable = (l.nullable || r.nullable)
            && !matches!(op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom);
        let (l, r) = self.comparable(l, op, r)?;
        Ok(Typed::boolean(binary(l.expr, op, r.expr), nullable))
    }

    /// Both sides of a comparison, as the type in which they are compared.
    pub(crate) fn comparable(&self, l: Typed, op: Operator, r: Typed) -> Result<(Typed, Typed)> {
        let target = match (l.is_open(), r.is_open()) {
            (true, true) => TEXT,
            (true, false) => r.data_type.clone(),
            (false, true) => l.data_type.clone(),
            (false, false) => match met(&l, &r) {
                Some(target) => target,
                None => return mismatch(&l, &op.to_string(), &r),
            },
        };
        Ok((l.cast(&target), r.cast(&target)))
    }

    fn arithmetic(&self, l: Typed, op: Operator, r: Typed, place: Place<'_>) -> Result<Typed> {
        let nullable = l.nullable || r.nullable;
        let (l, r) = operands(l, op, r)?;
        // Days are counted by whole numbers.
        let is_date = |t: &Typed| t.data_type == DataType::Date32;
        match op {
            Operator::Plus | Operator::Minus if is_date(&l) && r.data_type.is_integer() => {
                return Ok(days(l, op, r, &DataType::Date32));
            }
            Operator::Plus if l.data_type.is_integer() && is_date(&r) => {
                return Ok(days(r, op, l, &DataType::Date32));
            }
            _ => {}
        }
        if !(is_number(&l.data_type) && is_number(&r.data_type)) {
            for side in [&l, &r] {
                let has_arithmetic = is_number(&side.data_type) || side.data_type.is_temporal();
                if !has_arithmetic {
                    return mismatch(&l, &op.to_string(), &r);
                }
            }
            if let Some(planned) = self.of_times(&l, op, &r, place)? {
                return Ok(planned);
            }
            return self.other(l, op, r);
        }
        let (left, right) = (l.data_type.clone(), r.data_type.clone());
        let (l, r) = if is_float(&left) || is_float(&right) {
            let target = match (&left, &right) {
                (DataType::Float32, DataType::Float32) => DataType::Float32,
                _ => DataType::Float64,
            };
            (l.cast(&target), r.cast(&target))
        } else if is_decimal(&left) || is_decimal(&right) {
            match (as_decimal(&left), as_decimal(&right)) {
                (Some(left), Some(right)) => (l.cast(&left), r.cast(&right)),
                _ => return self.other(l, op, r),
            }
        } else {
            return self.other(l, op, r);
        };
        let result = BinaryTypeCoercer::new(&l.data_type, &op, &r.data_type).get_result_type()?;
        Ok(Typed::new(binary(l.expr, op, r.expr), result, nullable))
    }

    /// What DataFusion makes of two types.
    fn other(&self, l: Typed, op: Operator, r: Typed) -> Result<Typed> {
        let nullable = l.nullable || r.nullable;
        let (l, r) = (Typed { unknown: false, ..l }, Typed { unknown: false, ..r });
        let coercer = BinaryTypeCoercer::new(&l.data_type, &op, &r.data_type);
        let (Ok((left, right)), Ok(result)) =
            (coercer.get_input_types(), coercer.get_result_type())
        else {
            return mismatch(&l, &op.to_string(), &r);
        };
        let (l, r) = (l.cast(&left), r.cast(&right));
        Ok(Typed::new(binary(l.expr, op, r.expr), result, nullable))
    }
}

/// The type in which two sides meet. A whole number that is written needs no more than its digits: a column
/// beside it keeps its type as far as that holds the number.
fn met(l: &Typed, r: &Typed) -> Option<DataType> {
    let written = |literal: &Typed, other: &Typed| {
        let Expr::Literal(ScalarValue::Int64(Some(n)), _) = &literal.expr else { return None };
        if matches!(other.expr, Expr::Literal(..)) {
            return None;
        }
        match &other.data_type {
            DataType::Decimal128(..) => {
                let digits = n.unsigned_abs().to_string().len() as u8;
                common(&other.data_type, &DataType::Decimal128(digits, 0))
            }
            t if t.is_integer() => {
                let held = ScalarValue::Int64(Some(*n)).cast_to(t);
                held.is_ok_and(|held| !held.is_null()).then(|| t.clone())
            }
            _ => None,
        }
    };
    let narrow = written(l, r).or_else(|| written(r, l));
    narrow.or_else(|| common(&l.data_type, &r.data_type))
}

/// A literal without a type gets one from the other side.
fn operands(l: Typed, op: Operator, r: Typed) -> Result<(Typed, Typed)> {
    let beside = |other: &DataType| match other {
        // `date + '1 day'` and `timestamp - '2 hours'`; a date less a text is less a date.
        DataType::Timestamp(..) | DataType::Time64(_) => match op {
            Operator::Minus if matches!(other, DataType::Timestamp(..)) => other.clone(),
            _ => INTERVAL,
        },
        DataType::Date32 if op == Operator::Plus => INTERVAL,
        other => other.clone(),
    };
    Ok(match (l.is_open(), r.is_open()) {
        (true, true) => match l.unknown && r.unknown {
            true => return ambiguous(op),
            false => (l.cast(&DataType::Int64), r.cast(&DataType::Int64)),
        },
        (true, false) if is_text(&r.data_type) => return mismatch(&l, &op.to_string(), &r),
        (false, true) if is_text(&l.data_type) => return mismatch(&l, &op.to_string(), &r),
        (true, false) => {
            let to = beside(&r.data_type);
            (l.cast(&to), r)
        }
        (false, true) => {
            let to = beside(&l.data_type);
            (l, r.cast(&to))
        }
        (false, false) => (l, r),
    })
}

/// A date and a number of days.
fn days(date: Typed, op: Operator, days: Typed, to: &DataType) -> Typed {
    let nullable = date.nullable || days.nullable;
    let (date, days) = (date.cast(&DataType::Int32), days.cast(&DataType::Int32));
    let sum = Typed::new(binary(date.expr, op, days.expr), DataType::Int32, nullable);
    sum.cast(to)
}

pub(crate) fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn unnested(mut expr: &ast::Expr) -> &ast::Expr {
    while let ast::Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

fn mismatch<T>(l: &Typed, op: &str, r: &Typed) -> Result<T> {
    let name = |t: &Typed| if t.unknown { "unknown".into() } else { types::name(&t.data_type) };
    let error =
        thalweg_base::Error::user(format!("operator does not exist: {} {op} {}", name(l), name(r)));
    let error = error.code("42883").about(thalweg_base::Subject::Operator(op.to_string()));
    let one_is_text = is_text(&l.data_type) != is_text(&r.data_type);
    Err(match one_is_text {
        true => {
            let other = if is_text(&l.data_type) { &r.data_type } else { &l.data_type };
            error.hint(format!(
                "cast one side: the text by ::{0}, which fails where it is no {0}, or by TRY_CAST(… AS {0}); or the other by ::text",
                types::name(other)
            ))
        }
        false => error.hint("add explicit casts"),
    }
    .into())
}

fn ambiguous<T>(op: Operator) -> Result<T> {
    wrong("42725", format!("operator is not unique: unknown {op} unknown"))
}
