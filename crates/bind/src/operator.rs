//! Operators between two expressions.

use std::borrow::Cow;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{Expr, Operator, lit};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, FunctionArg, FunctionArgExpr};

use crate::binder::Binder;
use crate::failure::{Placed, Result, not_covered, wrong};
use crate::functions::checked::checked;
use crate::functions::overlaps::overlaps;
use crate::functions::quotient::{quotient, quotient_type};
use crate::functions::within_digits::within_digits;
use crate::guard::guarded;
use crate::name::Part;
use crate::place::Place;
use crate::typed::{Typed, binary};
use crate::types::{
    self, INTERVAL, TEXT, as_decimal, common, is_decimal, is_float, is_number, is_text,
};

/// What an operator does, by its spelling.
enum Kind {
    Logic(Operator),
    Comparison(Operator),
    Arithmetic(Operator),
    Power,
    /// A quotient without its fraction.
    WholeQuotient,
    /// Of texts or bytes, or of lists and their items.
    Concatenation,
    /// A function of the two, and one that takes them the other way round.
    Function(&'static str),
    FunctionOf(&'static str),
    /// A match of a regular expression.
    Matches {
        negated: bool,
        any_case: bool,
    },
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
        op if is_power(op) => Kind::Power,
        B::PGRegexMatch => Kind::Matches { negated: false, any_case: false },
        B::PGRegexIMatch => Kind::Matches { negated: false, any_case: true },
        B::PGRegexNotMatch => Kind::Matches { negated: true, any_case: false },
        B::PGRegexNotIMatch => Kind::Matches { negated: true, any_case: true },
        B::PGStartsWith => Kind::Function("starts_with"),
        B::PGLikeMatch => Kind::Other(Operator::LikeMatch),
        B::PGILikeMatch => Kind::Other(Operator::ILikeMatch),
        B::PGNotLikeMatch => Kind::Other(Operator::NotLikeMatch),
        B::PGNotILikeMatch => Kind::Other(Operator::NotILikeMatch),
        B::BitwiseAnd => Kind::Other(Operator::BitwiseAnd),
        B::BitwiseOr => Kind::Other(Operator::BitwiseOr),
        B::Xor | B::PGBitwiseXor => Kind::Other(Operator::BitwiseXor),
        B::PGBitwiseShiftRight => Kind::Other(Operator::BitwiseShiftRight),
        B::PGBitwiseShiftLeft => Kind::Other(Operator::BitwiseShiftLeft),
        B::AtArrow => Kind::Function("array_has_all"),
        B::ArrowAt => Kind::FunctionOf("array_has_all"),
        B::PGOverlap => Kind::Function("array_has_any"),
        B::DuckIntegerDivide => Kind::WholeQuotient,
        B::StringConcat => Kind::Concatenation,
        _ => return None,
    })
}

/// The operators between two expressions, and what they give.
pub(crate) const OPERATORS: [(&str, &str); 37] = [
    ("=", "equal"),
    ("<>", "not equal"),
    ("!=", "not equal"),
    ("<", "less than"),
    ("<=", "less than or equal"),
    (">", "greater than"),
    (">=", "greater than or equal"),
    ("<=>", "equal, where NULL is equal to NULL"),
    ("AND", "both are true"),
    ("OR", "one is true"),
    ("+", "sum; a time and a span later"),
    ("-", "difference; a time and a span earlier, or the span between two times"),
    ("*", "product"),
    ("/", "quotient; of whole numbers without its fraction"),
    ("//", "quotient without its fraction"),
    ("%", "remainder, with the sign of the dividend"),
    ("^", "power, of doubles"),
    ("||", "concatenation of texts or lists"),
    ("~", "matches a regular expression"),
    ("~*", "matches a regular expression, without regard to case"),
    ("!~", "does not match a regular expression"),
    ("!~*", "does not match a regular expression, without regard to case"),
    ("^@", "begins with a text"),
    ("~~", "LIKE"),
    ("~~*", "ILIKE"),
    ("!~~", "NOT LIKE"),
    ("!~~*", "NOT ILIKE"),
    ("&", "bitwise and"),
    ("|", "bitwise or"),
    ("#", "bitwise exclusive or"),
    (">>", "bits shifted to the right"),
    ("<<", "bits shifted to the left"),
    ("@>", "the left list has all items of the right one"),
    ("<@", "the right list has all items of the left one"),
    ("&&", "the lists have an item in common"),
    ("IS DISTINCT FROM", "not equal, where NULL is equal to NULL"),
    ("IS NOT DISTINCT FROM", "equal, where NULL is equal to NULL"),
];

/// Whether it is PostgreSQL's `^`, which the parser takes for another language's exclusive or.
pub(crate) fn is_power(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::PGExp | BinaryOperator::BitwiseXor)
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
        if let (Some(l), Some(r)) = (as_row(left), as_row(right)) {
            if *op == BinaryOperator::Overlaps {
                return self.spans_overlap(&l, &r, place);
            }
            return self.rows(&l, op, &r, place);
        }
        if let (Some(row), ast::Expr::Subquery(query), Some(op)) =
            (as_row(left), unnested(right), comparison(op))
        {
            return self.row_and_subquery(&row, op, query, place);
        }
        if let Some(in_turn) = powers_in_turn(left, op, right) {
            return self.expr(&in_turn, place);
        }
        let Some(kind) = kind(op) else { return not_covered("this operator") };
        if let Kind::Logic(op) = kind {
            return self.logic(left, op, right, place);
        }
        let (l, r) = (self.expr(left, place)?, self.expr(right, place)?);
        let value = match kind {
            Kind::Function(function) => {
                let (l, r) = lists(l, r);
                self.scalar(function, vec![l, r])
            }
            Kind::FunctionOf(function) => {
                let (l, r) = lists(l, r);
                self.scalar(function, vec![r, l])
            }
            Kind::Matches { negated, any_case } => {
                let op = op.to_string();
                return self.matches(l, &op, r, negated, any_case).behind(left);
            }
            Kind::Comparison(op) => self.compare(l, op, r),
            Kind::Arithmetic(op) => self.arithmetic(l, op, r, place),
            Kind::Power => self.power(l, r),
            Kind::WholeQuotient => {
                let quotient = self.arithmetic(l, Operator::Divide, r, place)?;
                match quotient.data_type.is_integer() {
                    true => Ok(quotient),
                    false => self.whole_number("trunc", quotient),
                }
            }
            Kind::Concatenation => self.concatenation(l, r),
            Kind::Other(op) => self.other(l, op, r),
            Kind::Logic(_) => not_covered("this operator"),
        };
        value.behind(left)
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
        let mut before = vec![first.condition(clause)?];
        for operand in operands.into_iter().rev() {
            let operand = self.expr(operand, place)?;
            nullable |= operand.nullable;
            before.push(guarded(operand.condition(clause)?, op, &before, &|c| {
                place.scope.type_of(c)
            })?);
        }
        let all = before.into_iter().reduce(|all, one| binary(all, op, one));
        match all {
            Some(all) => Ok(Typed::boolean(all, nullable)),
            None => not_covered("a condition without operands"),
        }
    }

    /// `(a, b) OVERLAPS (c, d)`, where the second of each is a time or what is between it and the first.
    fn spans_overlap(
        &self,
        left: &[ast::Expr],
        right: &[ast::Expr],
        place: Place<'_>,
    ) -> Result<Typed> {
        let mut ends = vec![];
        for span in [left, right] {
            let [first, last] = span else {
                return wrong(
                    "42601",
                    "wrong number of parameters in OVERLAPS: a span has two ends",
                );
            };
            let (first, last) = (self.expr(first, place)?, self.expr(last, place)?);
            let last = match last.data_type {
                DataType::Interval(_) => {
                    self.arithmetic(first.clone(), Operator::Plus, last, place)?
                }
                _ => last,
            };
            ends.extend([first, last]);
        }
        let ends = self.same_type(ends, "OVERLAPS")?;
        let ends = ends.into_iter().map(|end| match end.data_type {
            DataType::Date32 => Ok(end.cast(&DataType::Timestamp(TimeUnit::Microsecond, None))),
            DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => Ok(end),
            ref other => wrong(
                "42883",
                format!("OVERLAPS is of times, and not of type {}", types::name(other)),
            ),
        });
        let ends = ends.collect::<Result<Vec<Typed>>>()?;
        let ends = ends.into_iter().map(|end| end.expr).collect();
        Ok(Typed::boolean(overlaps().call(ends), true))
    }

    /// `(a, b) = (c, d)`.
    pub(crate) fn rows(
        &self,
        left: &[ast::Expr],
        op: &BinaryOperator,
        right: &[ast::Expr],
        place: Place<'_>,
    ) -> Result<Typed> {
        let Some(op) = comparison(op) else { return not_covered("this operator of rows") };
        self.compare_rows(self.exprs(left, place)?, op, self.exprs(right, place)?)
    }

    /// The values of two rows.
    pub(crate) fn compare_rows(
        &self,
        left: Vec<Typed>,
        op: Operator,
        right: Vec<Typed>,
    ) -> Result<Typed> {
        if left.len() != right.len() {
            return wrong("42601", "unequal number of entries in row expressions");
        }
        let joined_by = match op {
            Operator::Eq | Operator::IsNotDistinctFrom => Operator::And,
            Operator::NotEq => Operator::Or,
            Operator::Lt | Operator::Gt => return self.order_of_rows(left, op, None, right),
            Operator::LtEq => return self.order_of_rows(left, Operator::Lt, Some(op), right),
            Operator::GtEq => return self.order_of_rows(left, Operator::Gt, Some(op), right),
            _ => return not_covered("this operator of rows"),
        };
        let mut all: Option<Typed> = None;
        for (l, r) in left.into_iter().zip(right) {
            let one = self.compare(l, op, r)?;
            all = Some(match all {
                None => one,
                Some(so_far) => joined(so_far, joined_by, one),
            });
        }
        match all {
            Some(all) => Ok(all),
            None => wrong("42601", "a row expression has at least one entry"),
        }
    }

    /// `(a, b) < (c, d)`: `a < c OR a = c AND b < d`; the last pair is compared by `last`, if it is given.
    fn order_of_rows(
        &self,
        left: Vec<Typed>,
        op: Operator,
        last: Option<Operator>,
        right: Vec<Typed>,
    ) -> Result<Typed> {
        let mut found: Option<Typed> = None;
        for (l, r) in left.into_iter().zip(right).rev() {
            found = Some(match found {
                None => self.compare(l, last.unwrap_or(op), r)?,
                Some(further) => {
                    let before = self.compare(l.clone(), op, r.clone())?;
                    let equal = self.compare(l, Operator::Eq, r)?;
                    joined(before, Operator::Or, joined(equal, Operator::And, further))
                }
            });
        }
        match found {
            Some(found) => Ok(found),
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
        let (l, r) = match (l.is_padded(), r.is_padded()) {
            (true, false) => (l, r.without_blanks()),
            (false, true) => (l.without_blanks(), r),
            _ => (l, r),
        };
        let (l, r) = beside(l, r);
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

    pub(crate) fn arithmetic(
        &self,
        l: Typed,
        op: Operator,
        r: Typed,
        place: Place<'_>,
    ) -> Result<Typed> {
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
            let (l, r) = match op {
                Operator::Minus => self.both_instants(l, r),
                _ => (l, r),
            };
            if let Some(planned) = self.of_times(&l, op, &r, place)? {
                return Ok(planned);
            }
            return self.other(l, op, r);
        }
        let (l, r) = (signed(l), signed(r));
        if is_decimal(&l.data_type) != is_decimal(&r.data_type)
            && !(is_float(&l.data_type) || is_float(&r.data_type))
        {
            let (Some(left), Some(right)) = (exact_type(&l), exact_type(&r)) else {
                return self.other(l, op, r);
            };
            return calculated(l.cast(&left), op, r.cast(&right));
        }
        if is_decimal(&l.data_type) && is_decimal(&r.data_type) {
            return calculated(l, op, r);
        }
        let Some(both) = common(&l.data_type, &r.data_type) else { return self.other(l, op, r) };
        calculated(l.cast(&both), op, r.cast(&both))
    }

    /// An instant and a time on the clock of the session, whose difference is that of two instants.
    fn both_instants(&self, l: Typed, r: Typed) -> (Typed, Typed) {
        let is_instant = |t: &Typed| matches!(t.data_type, DataType::Timestamp(_, Some(_)));
        let is_clock =
            |t: &Typed| matches!(t.data_type, DataType::Date32 | DataType::Timestamp(_, None));
        let instant = self.instant(TimeUnit::Microsecond);
        if is_instant(&l) && is_clock(&r) {
            return (l, r.cast(&instant));
        }
        if is_clock(&l) && is_instant(&r) {
            return (l.cast(&instant), r);
        }
        (l, r)
    }

    /// `2 ^ 3`: of doubles.
    fn power(&self, l: Typed, r: Typed) -> Result<Typed> {
        for side in [&l, &r] {
            if !side.is_open() && !is_number(&side.data_type) {
                return mismatch(&l, "^", &r);
            }
        }
        self.scalar("power", vec![l.cast(&DataType::Float64), r.cast(&DataType::Float64)])
    }

    /// `a || b` of two texts, of two lists, or of a list and an item.
    fn concatenation(&self, l: Typed, r: Typed) -> Result<Typed> {
        if let Some(bytes) = self.of_bytes(&l, &r)? {
            return Ok(bytes);
        }
        let (l, r) = match l.is_open() && r.is_open() {
            true => (l.cast(&TEXT), r.cast(&TEXT)),
            false => (l, r),
        };
        let item = |list: &Typed| match &list.data_type {
            DataType::List(item) => Some(item.data_type().clone()),
            _ => None,
        };
        let as_lists = |l: Typed, r: Typed, item: DataType| {
            let list = DataType::new_list(item, true);
            (l.cast(&list), r.cast(&list))
        };
        let (function, (l, r)) = match (item(&l), item(&r)) {
            (None, None) => return self.other(l, Operator::StringConcat, r),
            // A text without a type spells a list.
            (Some(of), None) if r.is_open() => ("array_concat", as_lists(l, r, of)),
            (None, Some(of)) if l.is_open() => ("array_concat", as_lists(l, r, of)),
            (Some(a), Some(b)) => match common(&a, &b) {
                Some(both) => ("array_concat", as_lists(l, r, both)),
                None => return mismatch(&l, "||", &r),
            },
            (Some(of), None) => match common(&of, &r.data_type) {
                Some(both) => {
                    let list = DataType::new_list(both.clone(), true);
                    ("array_append", (l.cast(&list), r.cast(&both)))
                }
                None => return mismatch(&l, "||", &r),
            },
            (None, Some(of)) => match common(&l.data_type, &of) {
                Some(both) => {
                    let list = DataType::new_list(both.clone(), true);
                    ("array_prepend", (l.cast(&both), r.cast(&list)))
                }
                None => return mismatch(&l, "||", &r),
            },
        };
        self.scalar(function, vec![l, r])
    }

    /// `-x`
    pub(crate) fn negated(&self, value: Typed) -> Result<Typed> {
        let value = signed(value);
        if value.data_type.is_integer() {
            let zero = ScalarValue::new_zero(&value.data_type)?;
            let zero = Typed::new(Expr::Literal(zero, None), value.data_type.clone(), false);
            return calculated(zero, Operator::Minus, value);
        }
        Ok(Typed { expr: Expr::Negative(Box::new(value.expr)), ..value })
    }

    /// What DataFusion makes of two types.
    fn other(&self, l: Typed, op: Operator, r: Typed) -> Result<Typed> {
        let nullable = l.nullable || r.nullable;
        let (l, r) = (Typed { unknown: false, ..l }, Typed { unknown: false, ..r });
        if matches!(op, Operator::BitwiseShiftLeft | Operator::BitwiseShiftRight)
            && l.data_type.is_integer()
            && r.data_type.is_integer()
        {
            return Ok(shifted(l, op, r));
        }
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

/// Bits that are shifted, in a number of the same type: by as many places as the last bits of the other
/// number say, as the processor does it. Short numbers are shifted as ones of 32 bits, of which the last
/// stay.
fn shifted(l: Typed, op: Operator, r: Typed) -> Typed {
    let (nullable, data_type) = (l.nullable || r.nullable, l.data_type.clone());
    let cut = match data_type {
        DataType::Int8 => Some(24),
        DataType::Int16 => Some(16),
        _ => None,
    };
    let wide = if cut.is_some() { DataType::Int32 } else { data_type.clone() };
    let mut value = binary(l.cast(&wide).expr, op, r.cast(&wide).expr);
    if let Some(bits) = cut {
        value = binary(value, Operator::BitwiseShiftLeft, lit(bits));
        value = binary(value, Operator::BitwiseShiftRight, lit(bits));
    }
    Typed::new(value, wide, nullable).cast(&data_type)
}

/// An operator of two numbers of one type, or of two decimals.
fn calculated(l: Typed, op: Operator, r: Typed) -> Result<Typed> {
    let nullable = l.nullable || r.nullable;
    let call = |function, args, data_type| {
        let expr = Expr::ScalarFunction(ScalarFunction::new_udf(function, args));
        Ok(Typed::new(expr, data_type, nullable))
    };
    if op == Operator::Divide
        && let Some(data_type) = quotient_type(&l.data_type, &r.data_type)
    {
        return call(quotient(), vec![l.expr, r.expr], data_type);
    }
    if let Some(function) = checked(op, &l.data_type) {
        return call(function, vec![l.expr, r.expr], l.data_type);
    }
    let result = BinaryTypeCoercer::new(&l.data_type, &op, &r.data_type).get_result_type()?;
    let needed = digits_needed(op, &l.data_type, &r.data_type);
    let value = Typed::new(binary(l.expr, op, r.expr), result, nullable);
    Ok(if needed > i16::from(types::DIGITS_MAX) { within_digits(value) } else { value })
}

/// Digits that the result of an operator of two decimals may have.
fn digits_needed(op: Operator, left: &DataType, right: &DataType) -> i16 {
    let (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) = (left, right) else {
        return 0;
    };
    let [p1, s1, p2, s2] = [i16::from(*p1), i16::from(*s1), i16::from(*p2), i16::from(*s2)];
    match op {
        Operator::Plus | Operator::Minus => (p1 - s1).max(p2 - s2) + s1.max(s2) + 1,
        Operator::Multiply => p1 + p2,
        _ => 0,
    }
}

/// `sum / count`, of which the count is of a bigint.
pub(crate) fn average(sum: Typed, count: Typed) -> Result<Typed> {
    let count = match as_decimal(&count.data_type) {
        Some(decimal) => count.cast(&decimal),
        None => count,
    };
    calculated(sum, Operator::Divide, Typed { nullable: false, ..count })
}

/// Numbers are calculated with in types that have a sign.
fn signed(value: Typed) -> Typed {
    let to = match value.data_type {
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        _ => return value,
    };
    value.cast(&to)
}

/// The decimal that holds a whole number or a decimal: a number that is written needs no more than its
/// own digits.
fn exact_type(value: &Typed) -> Option<DataType> {
    match whole(&value.expr) {
        Some(n) => Some(DataType::Decimal128(digits(n), 0)),
        None => as_decimal(&value.data_type),
    }
}

fn digits(n: i128) -> u8 {
    n.unsigned_abs().to_string().len() as u8
}

/// A whole number that is written.
pub(crate) fn whole(expr: &Expr) -> Option<i128> {
    match expr {
        Expr::Literal(ScalarValue::Int32(Some(n)), _) => Some((*n).into()),
        Expr::Literal(ScalarValue::Int64(Some(n)), _) => Some((*n).into()),
        Expr::Literal(ScalarValue::Decimal128(Some(n), _, 0), _) => Some(*n),
        _ => None,
    }
}

/// The type in which two sides meet. A whole number that is written needs no more than its digits: a column
/// beside it keeps its type as far as that holds the number.
fn met(l: &Typed, r: &Typed) -> Option<DataType> {
    let written = |literal: &Typed, other: &Typed| {
        let n = whole(&literal.expr)?;
        if matches!(other.expr, Expr::Literal(..)) {
            return None;
        }
        match &other.data_type {
            DataType::Decimal128(..) => {
                common(&other.data_type, &DataType::Decimal128(digits(n), 0))
            }
            t if t.is_integer() => {
                let held = ScalarValue::Decimal128(Some(n), 38, 0).cast_to(t);
                held.is_ok_and(|held| !held.is_null()).then(|| t.clone())
            }
            _ => None,
        }
    };
    let narrow = written(l, r).or_else(|| written(r, l));
    narrow.or_else(|| common(&l.data_type, &r.data_type))
}

/// A text without a type beside a value that has one.
fn beside(l: Typed, r: Typed) -> (Typed, Typed) {
    match (l.is_open(), r.is_open()) {
        (true, false) => (l.beside(&r.data_type), r),
        (false, true) => {
            let r = r.beside(&l.data_type);
            (l, r)
        }
        _ => (l, r),
    }
}

/// A text without a type beside a list is a list, too.
fn lists(l: Typed, r: Typed) -> (Typed, Typed) {
    let is_list = |side: &Typed| matches!(side.data_type, DataType::List(_));
    match (l.is_open(), r.is_open()) {
        (true, false) if is_list(&r) => (l.cast(&r.data_type), r),
        (false, true) if is_list(&l) => {
            let r = r.cast(&l.data_type);
            (l, r)
        }
        _ => (l, r),
    }
}

/// A literal without a type gets one from the other side.
fn operands(l: Typed, op: Operator, r: Typed) -> Result<(Typed, Typed)> {
    let (l, r) = match (&l.data_type, &r.data_type) {
        // Beside a timestamp it may be a span.
        (DataType::Decimal128(..), _) | (_, DataType::Decimal128(..)) => beside(l, r),
        _ => (l, r),
    };
    let type_beside = |other: &DataType| match other {
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
            let to = type_beside(&r.data_type);
            (l.cast(&to), r)
        }
        (false, true) => {
            let to = type_beside(&l.data_type);
            (l, r.cast(&to))
        }
        (false, false) => (l, r),
    })
}

/// A date and a number of days.
fn days(date: Typed, op: Operator, days: Typed, to: &DataType) -> Typed {
    let nullable = date.nullable || days.nullable;
    let (date, days) = (date.cast(&DataType::Int32), days.cast(&DataType::Int32));
    let sum = match checked(op, &DataType::Int32) {
        Some(function) => {
            let call = ScalarFunction::new_udf(function, vec![date.expr, days.expr]);
            Expr::ScalarFunction(call)
        }
        None => binary(date.expr, op, days.expr),
    };
    Typed::new(sum, DataType::Int32, nullable).cast(to)
}

/// Two conditions as one.
fn joined(l: Typed, op: Operator, r: Typed) -> Typed {
    Typed::boolean(binary(l.expr, op, r.expr), l.nullable || r.nullable)
}

/// The parts of a row that is written out: `(a, b)` or `ROW(a, b)`.
pub(crate) fn as_row(expr: &ast::Expr) -> Option<Cow<'_, [ast::Expr]>> {
    match unnested(expr) {
        ast::Expr::Tuple(parts) => Some(Cow::Borrowed(parts)),
        ast::Expr::Function(call) => {
            let [name] = &call.name.0[..] else { return None };
            let ast::FunctionArguments::List(list) = &call.args else { return None };
            if Part::of(name.as_ident()?).text != "row" || call.over.is_some() {
                return None;
            }
            let parts = list.args.iter().map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(part)) => Some(part.clone()),
                _ => None,
            });
            Some(Cow::Owned(parts.collect::<Option<Vec<_>>>()?))
        }
        _ => None,
    }
}

/// `- a ^ b` and `- - a ^ b`, of which the parser makes the sign of a power, as the power of the base with
/// its signs: `(- a) ^ b`. `None` if there is no power behind the signs.
pub(crate) fn signed_power(sign: ast::UnaryOperator, expr: &ast::Expr) -> Option<ast::Expr> {
    let mut signs = vec![sign];
    let mut now = expr;
    while let ast::Expr::UnaryOp { op, expr } = now
        && is_sign(*op)
    {
        signs.push(*op);
        now = expr;
    }
    match now {
        ast::Expr::BinaryOp { op, .. } if is_power(op) => Some(on_base(now.clone(), &|base| {
            let signed = |expr, op: &ast::UnaryOperator| ast::Expr::UnaryOp {
                op: *op,
                expr: Box::new(expr),
            };
            signs.iter().rev().fold(base, signed)
        })),
        _ => None,
    }
}

/// `a ^ - b ^ c`, which is read from the left, as `(a ^ (- b)) ^ c`: the parser takes the sign for that of
/// `b ^ c`. `None` if it is another.
fn powers_in_turn(left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Option<ast::Expr> {
    let ast::Expr::UnaryOp { op: sign, expr } = right else { return None };
    if !is_power(op) || !is_sign(*sign) {
        return None;
    }
    let power = signed_power(*sign, expr)?;
    Some(on_base(power, &|base| ast::Expr::BinaryOp {
        left: Box::new(left.clone()),
        op: op.clone(),
        right: Box::new(base),
    }))
}

fn is_sign(op: ast::UnaryOperator) -> bool {
    matches!(op, ast::UnaryOperator::Minus | ast::UnaryOperator::Plus)
}

/// A chain of powers over another base.
fn on_base(power: ast::Expr, make: &dyn Fn(ast::Expr) -> ast::Expr) -> ast::Expr {
    match power {
        ast::Expr::BinaryOp { left, op, right } if is_power(&op) => {
            ast::Expr::BinaryOp { left: Box::new(on_base(*left, make)), op, right }
        }
        base => make(base),
    }
}

fn unnested(mut expr: &ast::Expr) -> &ast::Expr {
    while let ast::Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

pub(crate) fn mismatch<T>(l: &Typed, op: &str, r: &Typed) -> Result<T> {
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
