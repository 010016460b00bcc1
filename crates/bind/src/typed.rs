//! Expressions with their types, and the casts from one type to another.

use std::convert::Infallible;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::functions::string::rtrim;
use datafusion::logical_expr::expr::{Cast, Placeholder, ScalarFunction, TryCast};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use crate::failure::{Result, wrong};
use crate::functions::{listed, rounded, time_of_day};
use crate::types::{self, INTERVAL, TEXT, TextKind, is_text};

/// An expression and what its values are.
#[derive(Clone, Debug)]
pub struct Typed {
    pub expr: Expr,
    pub data_type: DataType,
    pub nullable: bool,
    /// A literal in quotes that has no type yet: it gets that of what it meets.
    pub unknown: bool,
    /// Whether blanks at its end count where it is compared.
    pub text: TextKind,
}

impl Typed {
    pub fn new(expr: Expr, data_type: DataType, nullable: bool) -> Self {
        Typed { expr, data_type, nullable, unknown: false, text: TextKind::Any }
    }

    pub fn boolean(expr: Expr, nullable: bool) -> Self {
        Typed::new(expr, DataType::Boolean, nullable)
    }

    pub fn field(&self) -> FieldRef {
        Arc::new(Field::new("", self.data_type.clone(), self.nullable))
    }

    /// A NULL, or a literal without a type: fits everywhere.
    pub fn is_open(&self) -> bool {
        self.unknown || self.data_type == DataType::Null
    }

    pub fn is_null(&self) -> bool {
        matches!(&self.expr, Expr::Literal(value, _) if value.is_null())
    }

    /// The same as another type, by a cast if it is not of that type yet.
    pub fn cast(self, to: &DataType) -> Typed {
        if let Expr::Placeholder(parameter) = &self.expr
            && parameter.field.is_none()
        {
            let field = Arc::new(Field::new("", to.clone(), true));
            let parameter = Placeholder::new_with_field(parameter.id.clone(), Some(field));
            return Typed::new(Expr::Placeholder(parameter), to.clone(), true);
        }
        if self.data_type == *to {
            return Typed { unknown: false, ..self };
        }
        if let (Some(_), DataType::List(item)) = (listed::item(&self.data_type), to)
            && !listed::is_plain(&self.data_type, to)
            && !self.is_null()
        {
            return self.each_item(to, |value| value.cast(item.data_type()));
        }
        let expr = match &self.expr {
            Expr::Literal(value, _) if value.is_null() => match ScalarValue::try_from(to) {
                Ok(null) => Expr::Literal(null, None),
                Err(_) => cast(self.expr, to),
            },
            // A number is the same in every type that holds it.
            Expr::Literal(value, _) if types::is_exact(&self.data_type) && types::is_exact(to) => {
                match value.cast_to(to) {
                    Ok(held) if held.cast_to(&self.data_type).is_ok_and(|back| back == *value) => {
                        Expr::Literal(held, None)
                    }
                    _ => cast(self.expr, to),
                }
            }
            // The double that is nearest to what is written.
            Expr::Literal(value @ ScalarValue::Decimal128(..), _) if *to == DataType::Float64 => {
                match value.to_string().parse::<f64>() {
                    Ok(double) => Expr::Literal(ScalarValue::from(double), None),
                    Err(_) => cast(self.expr, to),
                }
            }
            // Texts of one kind and another are the same value.
            Expr::Literal(value, _) if is_text(to) && is_text(&self.data_type) => {
                match value.cast_to(to) {
                    Ok(value) => Expr::Literal(value, None),
                    Err(_) => cast(self.expr, to),
                }
            }
            _ => cast(self.expr, to),
        };
        Typed::new(expr, to.clone(), self.nullable)
    }

    /// A text without a type, beside values that have one: it is read as their type, with all the digits
    /// that are written. The precision and scale of a column, or of its timestamps, are the column's own:
    /// `d = '2.5004'` is false of 2.500.
    pub fn beside(self, other: &DataType) -> Typed {
        let Expr::Literal(text, _) = &self.expr else { return self };
        let Some(Some(text)) = text.try_as_str().filter(|_| self.unknown) else { return self };
        let to = match other {
            DataType::Decimal128(..) => types::written(text),
            DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
                Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
            }
            _ => None,
        };
        match to {
            Some(to) => self.cast(&to),
            None => self,
        }
    }

    /// The same as the type of a cast that is written, or of the column that it is put into: numbers are
    /// rounded. With `is_try`, what cannot be cast is NULL.
    pub fn converted(self, to: &DataType, is_try: bool) -> Typed {
        if matches!(self.expr, Expr::Placeholder(_)) {
            return self.cast(to);
        }
        if self.data_type == *to && !is_try {
            return Typed { unknown: false, ..self };
        }
        if let (Some(from), DataType::List(item)) = (listed::item(&self.data_type), to)
            && from != item.data_type()
            && *from != DataType::Null
        {
            return self.each_item(to, |value| value.converted(item.data_type(), is_try));
        }
        let nullable = self.nullable || is_try;
        let call =
            |function, expr| Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![expr]));
        let value = match (&self.data_type, to) {
            (from, &DataType::Decimal128(precision, scale)) if types::is_float(from) => {
                let expr = call(rounded::decimal(precision, scale, is_try), self.expr);
                return Typed::new(expr, to.clone(), nullable);
            }
            (DataType::Float64, DataType::Float32) => {
                let expr = call(rounded::real(is_try), self.expr);
                return Typed::new(expr, to.clone(), nullable);
            }
            (DataType::Timestamp(from, _), &DataType::Timestamp(unit, _)) if *from > unit => {
                Typed { expr: call(rounded::instant(unit), self.expr), ..self }
            }
            (
                DataType::Interval(_) | DataType::Duration(_),
                DataType::Time32(_) | DataType::Time64(_),
            ) => {
                let span = self.cast(&INTERVAL);
                let expr = time_of_day::of_interval().call(vec![span.expr]);
                Typed::new(expr, time_of_day::TIME, span.nullable)
            }
            (DataType::Time32(_) | DataType::Time64(_), DataType::Interval(_)) => {
                let time = self.cast(&time_of_day::TIME);
                let expr = time_of_day::as_interval().call(vec![time.expr]);
                Typed::new(expr, INTERVAL, time.nullable)
            }
            (from, to) if types::is_float(from) && to.is_integer() => {
                Typed { expr: call(rounded::whole(), self.expr), ..self }
            }
            (DataType::Decimal128(precision, scale @ 1..), to) if to.is_integer() => {
                let whole = (i16::from(*precision) - i16::from(*scale)).max(0) as u8 + 1;
                self.cast(&DataType::Decimal128(whole, 0))
            }
            _ => self,
        };
        match is_try {
            true => {
                let expr = TryCast::new(Box::new(value.expr), to.clone());
                Typed::new(Expr::TryCast(expr), to.clone(), nullable)
            }
            false => Typed { nullable, ..value.cast(to) },
        }
    }

    /// A list as another type of lists, with what is made of each of its items.
    fn each_item(self, to: &DataType, make: impl FnOnce(Typed) -> Typed) -> Typed {
        let made: std::result::Result<_, Infallible> = each(self, |item| Ok(make(item)));
        let Ok(list) = made;
        match list.data_type == *to {
            true => list,
            // The items are called otherwise, or are never NULL.
            false => Typed::new(cast(list.expr, to), to.clone(), list.nullable),
        }
    }

    /// Whether it is compared with a literal or a `varchar(n)` as if these had no blanks at their ends.
    pub fn is_padded(&self) -> bool {
        self.text == TextKind::Padded
    }

    /// A value beside a `char(n)`: blanks at the end of a literal without a type and of a `varchar(n)` do not
    /// count there.
    pub fn without_blanks(self) -> Typed {
        if self.text == TextKind::Varying {
            let blank = Expr::Literal(ScalarValue::Utf8View(Some(" ".into())), None);
            let value = self.cast(&TEXT);
            return Typed::new(rtrim().call(vec![value.expr, blank]), TEXT, value.nullable);
        }
        let Expr::Literal(text, _) = &self.expr else { return self };
        let Some(Some(text)) = text.try_as_str().filter(|_| self.unknown) else { return self };
        let expr = Expr::Literal(ScalarValue::from(text.trim_end_matches(' ')), None);
        Typed { expr, ..self }
    }

    /// As the value of a column that it is put into.
    pub fn assigned(self, to: &DataType) -> Result<Typed> {
        if !self.is_open() && !types::may_assign(&self.data_type, to) {
            return wrong(
                "42804",
                format!(
                    "a column of type {} takes no values of type {}; they need an explicit cast",
                    types::name(to),
                    types::name(&self.data_type)
                ),
            );
        }
        Ok(self.converted(to, false))
    }

    /// As a condition.
    pub fn condition(self, clause: &str) -> Result<Expr> {
        if self.data_type == DataType::Boolean || self.is_open() {
            return Ok(self.cast(&DataType::Boolean).expr);
        }
        wrong(
            "42804",
            format!(
                "argument of {clause} must be type boolean, not type {}",
                types::name(&self.data_type)
            ),
        )
    }
}

fn cast(expr: Expr, to: &DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), to.clone()))
}

/// A list of what is made of each item of a list; what is no list stays.
pub(crate) fn each<E>(
    list: Typed,
    make: impl FnOnce(Typed) -> std::result::Result<Typed, E>,
) -> std::result::Result<Typed, E> {
    let Some(of) = listed::item(&list.data_type).cloned() else { return Ok(list) };
    let (expr, to) = listed::each(list.expr, &list.data_type, of.clone(), |item| {
        let made = make(Typed::new(item, of, true))?;
        Ok((made.expr, made.data_type))
    })?;
    Ok(Typed::new(expr, to, list.nullable))
}

/// An operator between two expressions whose types it takes as they are.
pub(crate) fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}
