//! Expressions.

use std::rc::Rc;

use sqlparser::ast::{self, AccessExpr, BinaryOperator, Expr as Sql, Subscript, UnaryOperator};
use thalweg_base::{Error, Result};

use super::from::no_column;
use super::{Binder, Place, Scope, Typed, name, unsupported};
use crate::query::expr::{Expr, Op};
use crate::query::functions::Scalar;
use crate::types::{self, Class};
use crate::value::Value;

impl Binder<'_> {
    pub(super) fn condition(&self, expr: &Sql, place: Place) -> Result<Expr> {
        self.coerce(self.expr(expr, place)?, types::BOOL)
    }

    /// A value that is to be compared or grouped: not of an unknown type.
    pub(super) fn settled(&self, typed: Typed) -> Result<Typed> {
        if typed.oid != types::UNKNOWN {
            return Ok(typed);
        }
        Ok(Typed::new(self.coerce(typed, types::TEXT)?, types::TEXT))
    }

    pub(super) fn expr(&self, expr: &Sql, place: Place) -> Result<Typed> {
        if let Some(collected) = place.collected {
            let is_key = {
                let keys = &collected.borrow().keys;
                !keys.is_empty() && keys.contains(&expr.to_string())
            };
            if is_key {
                return self.expr(expr, Place { collected: None, ..place });
            }
        }
        let boxed = |e: &Sql| Ok::<_, Error>(Box::new(self.expr(e, place)?.expr));
        let not = |e: Expr| Typed::bool(Expr::Not(Box::new(e)));
        let truth = |e: &Sql, wanted| {
            let expr = Box::new(self.condition(e, place)?);
            Ok::<_, Error>(Expr::IsTrue { expr, wanted })
        };
        let negate = |e: Typed, negated: bool| if negated { not(e.expr) } else { e };
        Ok(match expr {
            Sql::Identifier(i) => self.column(&[name::ident(i)], place)?,
            Sql::CompoundIdentifier(parts) => {
                self.column(&parts.iter().map(name::ident).collect::<Vec<_>>(), place)?
            }
            Sql::CompoundFieldAccess { root, access_chain } => {
                self.access(root, access_chain, place)?
            }
            Sql::Nested(inner) | Sql::Collate { expr: inner, .. } => self.expr(inner, place)?,
            Sql::Value(value) => self.literal(&value.value)?,
            Sql::TypedString(typed) => {
                let (oid, typmod) = types::of_sql(&typed.data_type)?;
                let text = self.literal(&typed.value.value)?;
                Typed { typmod, ..Typed::new(self.coerce_with(text, oid, typmod)?, oid) }
            }
            Sql::Cast { expr, data_type, .. } => {
                let (oid, typmod) = types::of_sql(data_type)?;
                let inner = self.expr(expr, place)?;
                Typed { typmod, ..Typed::new(self.coerce_with(inner, oid, typmod)?, oid) }
            }
            Sql::IsNull(e) => Typed::bool(Expr::IsNull(boxed(e)?)),
            Sql::IsNotNull(e) => not(Expr::IsNull(boxed(e)?)),
            Sql::IsUnknown(e) => Typed::bool(Expr::IsNull(boxed(e)?)),
            Sql::IsNotUnknown(e) => not(Expr::IsNull(boxed(e)?)),
            Sql::IsTrue(e) => Typed::bool(truth(e, true)?),
            Sql::IsNotTrue(e) => not(truth(e, true)?),
            Sql::IsFalse(e) => Typed::bool(truth(e, false)?),
            Sql::IsNotFalse(e) => not(truth(e, false)?),
            Sql::IsDistinctFrom(a, b) | Sql::IsNotDistinctFrom(a, b) => {
                let (a, b) = (self.expr(a, place)?, self.expr(b, place)?);
                let (a, b) = self.comparable(a, b, "IS DISTINCT FROM")?;
                let distinct = Typed::bool(Expr::IsDistinct(Box::new(a), Box::new(b)));
                negate(distinct, matches!(expr, Sql::IsNotDistinctFrom(..)))
            }
            Sql::Between { expr, negated, low, high } => {
                let side = |op, bound: &Sql| {
                    self.compare(op, self.expr(expr, place)?, self.expr(bound, place)?)
                };
                let both = Expr::And(vec![side(Op::Ge, low)?.expr, side(Op::Le, high)?.expr]);
                negate(Typed::bool(both), *negated)
            }
            Sql::InList { expr, list, negated } => {
                let left = self.expr(expr, place)?;
                let mut items: Vec<Typed> = vec![];
                for item in list {
                    items.push(self.expr(item, place)?);
                }
                negate(self.in_list(left, items)?, *negated)
            }
            Sql::InSubquery { expr, subquery, negated } => {
                let found = self.quantified_query(Op::Eq, expr, subquery, false, place)?;
                negate(found, *negated)
            }
            Sql::InUnnest { expr, array_expr, negated } => {
                let (left, array) = (self.expr(expr, place)?, self.expr(array_expr, place)?);
                negate(self.quantified(Op::Eq, left, array, false)?, *negated)
            }
            Sql::AnyOp { left, compare_op, right, .. } => {
                self.any(left, compare_op, right, false, place)?
            }
            Sql::AllOp { left, compare_op, right } => {
                self.any(left, compare_op, right, true, place)?
            }
            Sql::Like { negated, expr, pattern, escape_char, any: false } => {
                self.like(expr, pattern, escape_char.as_ref(), *negated, false, place)?
            }
            Sql::ILike { negated, expr, pattern, escape_char, any: false } => {
                self.like(expr, pattern, escape_char.as_ref(), *negated, true, place)?
            }
            Sql::BinaryOp { left, op, right } => self.binary(left, op, right, place)?,
            Sql::UnaryOp { op, expr } => self.unary(op, expr, place)?,
            Sql::Function(function) => self.function_call(function, place)?,
            Sql::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), place)?
            }
            Sql::Exists { subquery, negated } => {
                let query = self.query(subquery, Some(place.scope))?;
                negate(Typed::bool(Expr::Exists(Rc::new(query))), *negated)
            }
            Sql::Subquery(subquery) => {
                let query = self.query(subquery, Some(place.scope))?;
                let Some(column) = query.columns.first().filter(|_| query.columns.len() == 1)
                else {
                    return Err(Error::user("subquery must return only one column").code("42601"));
                };
                let (oid, typmod, fields) = (column.oid, column.typmod, column.fields.clone());
                Typed { expr: Expr::Scalar(Rc::new(query)), oid, typmod, fields }
            }
            Sql::Tuple(parts) => {
                let mut fields = vec![];
                for part in parts {
                    fields.push(self.settled(self.expr(part, place)?)?.expr);
                }
                Typed::new(Expr::Row(fields), types::RECORD)
            }
            Sql::Array(array) => {
                let mut items = vec![];
                for item in &array.elem {
                    items.push(self.expr(item, place)?);
                }
                let element = self.common(items.iter().map(|i| i.oid))?;
                let oid = types::array_of(element).ok_or_else(|| unsupported("this array"))?;
                let items = items.into_iter().map(|i| self.coerce(i, element));
                Typed::new(Expr::Array(items.collect::<Result<_>>()?), oid)
            }
            Sql::Substring { expr, substring_from, substring_for, .. } => {
                let mut arguments = vec![self.expr(expr, place)?];
                match substring_from {
                    Some(from) => arguments.push(self.expr(from, place)?),
                    None => arguments.push(Typed::new(Expr::Const(Value::Int(1)), types::INT4)),
                }
                if let Some(count) = substring_for {
                    arguments.push(self.expr(count, place)?);
                }
                self.call("substring", arguments)?
            }
            Sql::Trim { expr, trim_where, trim_what, trim_characters } => {
                let called = match trim_where {
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                let mut arguments = vec![self.expr(expr, place)?];
                let what = trim_what.as_deref();
                if let Some(what) = what.or(trim_characters.as_ref().and_then(|c| c.first())) {
                    arguments.push(self.expr(what, place)?);
                }
                self.call(called, arguments)?
            }
            Sql::Position { expr, r#in } => {
                let arguments = vec![self.expr(r#in, place)?, self.expr(expr, place)?];
                self.call("strpos", arguments)?
            }
            Sql::Ceil { expr, .. } => self.call("ceil", vec![self.expr(expr, place)?])?,
            Sql::Floor { expr, .. } => self.call("floor", vec![self.expr(expr, place)?])?,
            other => return Err(unsupported(format!("the expression {other}"))),
        })
    }

    fn literal(&self, value: &ast::Value) -> Result<Typed> {
        use ast::Value as V;
        let text = |text: &str| Typed::new(Expr::Const(text.into()), types::UNKNOWN);
        Ok(match value {
            V::Number(digits, _) => match digits.parse::<i64>() {
                Ok(n) if i32::try_from(n).is_ok() => Typed::new(Expr::Const(n.into()), types::INT4),
                Ok(n) => Typed::new(Expr::Const(n.into()), types::INT8),
                Err(_) => match digits.parse() {
                    Ok(n) => Typed::new(Expr::Const(Value::Float(n)), types::NUMERIC),
                    Err(_) => return Err(Error::user(format!("{digits} is no number"))),
                },
            },
            V::Boolean(b) => Typed::bool(Expr::Const((*b).into())),
            V::Null => Typed::new(Expr::null(), types::UNKNOWN),
            V::SingleQuotedString(s)
            | V::EscapedStringLiteral(s)
            | V::UnicodeStringLiteral(s)
            | V::NationalStringLiteral(s) => text(s),
            V::DollarQuotedString(s) => text(&s.value),
            V::Placeholder(name) => {
                let number = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
                let number = number.and_then(|n| n.checked_sub(1)).filter(|n| *n < PARAMETERS_MAX);
                let Some(number) = number else {
                    return Err(Error::user(format!("there is no parameter {name}")).code("42P02"));
                };
                let mut parameters = self.parameters.borrow_mut();
                if parameters.len() <= number {
                    parameters.resize(number + 1, None);
                }
                let parameter = Expr::Parameter(number);
                match parameters[number] {
                    Some(oid) => Typed::new(parameter.cast(types::UNKNOWN, oid, -1), oid),
                    None => Typed::new(parameter, types::UNKNOWN),
                }
            }
            other => return Err(unsupported(format!("the literal {other}"))),
        })
    }

    fn column(&self, parts: &[String], place: Place) -> Result<Typed> {
        let (schema, table, column) = match parts {
            [column] => (None, None, column.as_str()),
            [table, column] => (None, Some(table.as_str()), column.as_str()),
            [.., schema, table, column] => {
                (Some(schema.as_str()), Some(table.as_str()), column.as_str())
            }
            [] => return Err(no_column("")),
        };
        let mut scope: Option<&Scope> = Some(place.scope);
        let mut depth = 0;
        while let Some(here) = scope {
            if let Some(index) = here.find(schema, table, column)? {
                self.lowest.set(self.lowest.get().min(here.level));
                if depth == 0
                    && let Some(collected) = place.collected
                {
                    collected.borrow_mut().bare.push(index);
                }
                let found = &here.columns[index];
                return Ok(Typed {
                    expr: Expr::Column { depth, index },
                    oid: found.oid,
                    typmod: found.typmod,
                    fields: found.fields.clone(),
                });
            }
            scope = here.parent;
            depth += 1;
        }
        // Words that stand for a call without parentheses.
        if parts.len() == 1
            && matches!(
                column,
                "current_schema"
                    | "current_catalog"
                    | "current_user"
                    | "session_user"
                    | "user"
                    | "current_role"
                    | "current_timestamp"
            )
        {
            return self.call(column, vec![]);
        }
        let known = |table: &str| place.scope.columns.iter().any(|c| c.table == table);
        match table {
            Some(table) if !known(table) => {
                Err(Error::user(format!("missing FROM-clause entry for table \"{table}\""))
                    .code("42P01"))
            }
            _ => Err(no_column(&parts.join("."))),
        }
    }

    /// `(value).field`, `array[1]`, and names that the parser takes for fields.
    fn access(&self, root: &Sql, chain: &[AccessExpr], place: Place) -> Result<Typed> {
        let mut chain = chain.iter().peekable();
        let mut value = match root {
            Sql::Identifier(first) => {
                let mut parts = vec![name::ident(first)];
                while let Some(AccessExpr::Dot(Sql::Identifier(next))) = chain.peek() {
                    parts.push(name::ident(next));
                    chain.next();
                }
                self.column(&parts, place)?
            }
            other => self.expr(other, place)?,
        };
        for access in chain {
            value = match access {
                AccessExpr::Dot(Sql::Identifier(field)) => {
                    let wanted = name::ident(field);
                    let fields = value.fields.as_deref().map_or(&[][..], Vec::as_slice);
                    let at = fields.iter().position(|(name, _)| *name == wanted);
                    let at = at.ok_or_else(|| no_column(&wanted))?;
                    let oid = fields[at].1;
                    Typed::new(Expr::Field(Box::new(value.expr), at), oid)
                }
                AccessExpr::Subscript(Subscript::Index { index }) => {
                    let Some(element) = types::element(value.oid) else {
                        return Err(Error::user("only arrays have subscripts").code("42804"));
                    };
                    let index = self.coerce(self.expr(index, place)?, types::INT4)?;
                    let first = types::first_subscript(value.oid);
                    let (array, index) = (Box::new(value.expr), Box::new(index));
                    Typed::new(Expr::Subscript { array, index, first }, element)
                }
                _ => return Err(unsupported("this subscript")),
            };
        }
        Ok(value)
    }

    pub(super) fn compare(&self, op: Op, left: Typed, right: Typed) -> Result<Typed> {
        let (left, right) = match op {
            Op::Match { .. } | Op::Like { .. } => {
                for side in [left.oid, right.oid] {
                    if !matches!(types::class(side), Class::Text | Class::Unknown) {
                        return Err(self.no_operator(symbol(op), left.oid, right.oid));
                    }
                }
                (self.coerce(left, types::TEXT)?, self.coerce(right, types::TEXT)?)
            }
            _ => self.comparable(left, right, symbol(op))?,
        };
        Ok(Typed::bool(Expr::Compare { op, left: Box::new(left), right: Box::new(right) }))
    }

    fn in_list(&self, left: Typed, items: Vec<Typed>) -> Result<Typed> {
        if left.oid == types::RECORD {
            let items = items.into_iter().map(|i| i.expr).collect();
            let array = Box::new(Expr::Array(items));
            let left = Box::new(left.expr);
            return Ok(Typed::bool(Expr::Quantified { op: Op::Eq, left, array, all: false }));
        }
        // All are of the type of what is looked for; numbers may be of a wider one.
        let class = types::class(left.oid);
        let to = match class {
            Class::Unknown => self.common(items.iter().map(|i| i.oid))?,
            Class::Int | Class::Float if !types::is_alias(left.oid) => {
                let known = items.iter().map(|i| i.oid).filter(|o| *o != types::UNKNOWN);
                self.common(std::iter::once(left.oid).chain(known))?
            }
            _ => left.oid,
        };
        let mut array = vec![];
        for item in items {
            if !matches!(types::class(item.oid), Class::Unknown)
                && types::class(item.oid) != types::class(to)
            {
                return Err(self.no_operator("=", left.oid, item.oid));
            }
            array.push(match types::class(item.oid) == types::class(to) {
                true => item.expr,
                false => self.coerce(item, to)?,
            });
        }
        let left = match types::class(left.oid) == types::class(to) {
            true => left.expr,
            false => self.coerce(left, to)?,
        };
        let (left, array) = (Box::new(left), Box::new(Expr::Array(array)));
        Ok(Typed::bool(Expr::Quantified { op: Op::Eq, left, array, all: false }))
    }

    fn quantified(&self, op: Op, left: Typed, array: Typed, all: bool) -> Result<Typed> {
        let array = match types::class(array.oid) {
            Class::Array => array,
            // `'{a,b}'`
            Class::Unknown => {
                let left = if left.oid == types::UNKNOWN { types::TEXT } else { left.oid };
                let oid = types::array_of(left).ok_or_else(|| unsupported("this array"))?;
                Typed::new(self.coerce(array, oid)?, oid)
            }
            _ => {
                return Err(
                    Error::user("op ANY/ALL (array) requires array on right side").code("42809")
                );
            }
        };
        let element = types::element(array.oid).unwrap_or(types::TEXT);
        let (left, _) = match op {
            Op::Match { .. } | Op::Like { .. } => (self.coerce(left, types::TEXT)?, Expr::null()),
            // The right is but a stand-in with the type of an element.
            _ => self.comparable(left, Typed::new(Expr::Aggregate(0), element), symbol(op))?,
        };
        let (left, array) = (Box::new(left), Box::new(array.expr));
        Ok(Typed::bool(Expr::Quantified { op, left, array, all }))
    }

    fn quantified_query(
        &self,
        op: Op,
        left: &Sql,
        subquery: &ast::Query,
        all: bool,
        place: Place,
    ) -> Result<Typed> {
        let left = self.expr(left, place)?;
        let query = self.query(subquery, Some(place.scope))?;
        let expr = match (left.oid, query.columns.as_slice()) {
            (types::RECORD, _) => left.expr,
            (_, [column]) => {
                let stand_in = Typed::new(Expr::Aggregate(0), column.oid);
                match types::class(column.oid) {
                    Class::Unknown => left.expr,
                    _ => self.comparable(left, stand_in, symbol(op))?.0,
                }
            }
            _ => return Err(Error::user("subquery has too many columns").code("42601")),
        };
        let (left, query) = (Box::new(expr), Rc::new(query));
        Ok(Typed::bool(Expr::QuantifiedQuery { op, left, query, all }))
    }

    fn any(
        &self,
        left: &Sql,
        op: &BinaryOperator,
        right: &Sql,
        all: bool,
        place: Place,
    ) -> Result<Typed> {
        let op = comparison(op).ok_or_else(|| unsupported(format!("{op} ANY")))?;
        let mut inner = right;
        while let Sql::Nested(nested) = inner {
            inner = nested;
        }
        if let Sql::Subquery(query) = inner {
            return self.quantified_query(op, left, query, all, place);
        }
        self.quantified(op, self.expr(left, place)?, self.expr(inner, place)?, all)
    }

    fn like(
        &self,
        expr: &Sql,
        pattern: &Sql,
        escape: Option<&ast::ValueWithSpan>,
        negated: bool,
        ignore_case: bool,
        place: Place,
    ) -> Result<Typed> {
        let escape = match escape.map(|e| &e.value) {
            None => Some('\\'),
            Some(ast::Value::SingleQuotedString(text)) => text.chars().next(),
            Some(_) => return Err(unsupported("this ESCAPE")),
        };
        let op = Op::Like { negated, ignore_case, escape };
        self.compare(op, self.expr(expr, place)?, self.expr(pattern, place)?)
    }

    fn binary(&self, left: &Sql, op: &BinaryOperator, right: &Sql, place: Place) -> Result<Typed> {
        use BinaryOperator as B;
        match op {
            B::And | B::Or => {
                let (a, b) = (self.condition(left, place)?, self.condition(right, place)?);
                let mut parts = vec![];
                for part in [a, b] {
                    match (op, part) {
                        (B::And, Expr::And(inner)) | (B::Or, Expr::Or(inner)) => {
                            parts.extend(inner);
                        }
                        (_, other) => parts.push(other),
                    }
                }
                let is_and = matches!(op, B::And);
                return Ok(Typed::bool(if is_and { Expr::And(parts) } else { Expr::Or(parts) }));
            }
            _ => {}
        }
        let (a, b) = (self.expr(left, place)?, self.expr(right, place)?);
        if let Some(op) = comparison(op) {
            return self.compare(op, a, b);
        }
        let written = match op {
            B::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
            other => other.to_string(),
        };
        match written.as_str() {
            "||" => self.concatenation(a, b),
            "+" | "-" | "*" | "/" | "%" | "&" | "|" | "#" | "<<" | ">>" => {
                self.arithmetic(&written, a, b)
            }
            "@>" | "<@" | "&&"
                if types::class(a.oid) == Class::Array || types::class(b.oid) == Class::Array =>
            {
                let (a, b) = self.comparable(a, b, &written)?;
                let run: crate::query::functions::Run = match written.as_str() {
                    "&&" => |_, a, _| Ok(shares(&a[0], &a[1], false).into()),
                    "@>" => |_, a, _| Ok(shares(&a[1], &a[0], true).into()),
                    _ => |_, a, _| Ok(shares(&a[0], &a[1], true).into()),
                };
                let function = Scalar { run, strict: true };
                Ok(Typed::bool(Expr::Call { function, arguments: vec![a, b], types: vec![] }))
            }
            other => Err(unsupported(format!("the operator {other}"))),
        }
    }

    fn concatenation(&self, a: Typed, b: Typed) -> Result<Typed> {
        let (left, right) = (types::class(a.oid), types::class(b.oid));
        match (left, right) {
            (Class::Array, Class::Array | Class::Unknown) => {
                let oid = a.oid;
                let b = Typed::new(self.coerce(b, oid)?, oid);
                self.call("array_cat", vec![a, b])
            }
            (Class::Array, _) => self.call("array_append", vec![a, b]),
            (_, Class::Array) => self.call("array_prepend", vec![a, b]),
            _ => {
                let a = self.coerce(a, types::TEXT)?;
                let b = self.coerce(b, types::TEXT)?;
                let function = Scalar {
                    run: |_, a, _| {
                        let parts = a.iter().filter_map(Value::as_text);
                        Ok(parts.collect::<String>().into())
                    },
                    strict: true,
                };
                let types = vec![types::TEXT, types::TEXT];
                Ok(Typed::new(Expr::Call { function, arguments: vec![a, b], types }, types::TEXT))
            }
        }
    }

    fn arithmetic(&self, op: &str, a: Typed, b: Typed) -> Result<Typed> {
        let common = self.common([a.oid, b.oid])?;
        let common = if common == types::TEXT { types::INT4 } else { common };
        let (left, right) = (a.oid, b.oid);
        let is_number =
            |oid| matches!(types::class(oid), Class::Int | Class::Float | Class::Unknown);
        if !is_number(left) || !is_number(right) {
            return Err(self.no_operator(op, left, right));
        }
        let (a, b) = (self.coerce(a, common)?, self.coerce(b, common)?);
        let run: crate::query::functions::Run = match op {
            "+" => |_, a, _| number(a, i64::checked_add, |x, y| x + y),
            "-" => |_, a, _| number(a, i64::checked_sub, |x, y| x - y),
            "*" => |_, a, _| number(a, i64::checked_mul, |x, y| x * y),
            "/" => |_, a, _| divided(a, i64::checked_div, |x, y| x / y),
            "%" => |_, a, _| divided(a, i64::checked_rem, |x, y| x % y),
            "&" => |_, a, _| number(a, |x, y| Some(x & y), |x, _| x),
            "|" => |_, a, _| number(a, |x, y| Some(x | y), |x, _| x),
            "#" => |_, a, _| number(a, |x, y| Some(x ^ y), |x, _| x),
            "<<" => |_, a, _| number(a, |x, y| x.checked_shl(y.try_into().ok()?), |x, _| x),
            _ => |_, a, _| number(a, |x, y| x.checked_shr(y.try_into().ok()?), |x, _| x),
        };
        let function = Scalar { run, strict: true };
        let types = vec![common, common];
        Ok(Typed::new(Expr::Call { function, arguments: vec![a, b], types }, common))
    }

    fn unary(&self, op: &UnaryOperator, expr: &Sql, place: Place) -> Result<Typed> {
        match op {
            UnaryOperator::Not => {
                Ok(Typed::bool(Expr::Not(Box::new(self.condition(expr, place)?))))
            }
            UnaryOperator::Plus => self.expr(expr, place),
            UnaryOperator::Minus => {
                let value = self.expr(expr, place)?;
                let zero = Typed::new(Expr::Const(Value::Int(0)), types::INT4);
                match value.expr {
                    Expr::Const(Value::Int(n)) => {
                        Ok(Typed::new(Expr::Const(Value::Int(-n)), value.oid))
                    }
                    _ => self.arithmetic("-", zero, value),
                }
            }
            other => Err(unsupported(format!("the operator {other}"))),
        }
    }

    fn case(
        &self,
        operand: Option<&Sql>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&Sql>,
        place: Place,
    ) -> Result<Typed> {
        let mut operand = match operand {
            Some(operand) => Some(self.settled(self.expr(operand, place)?)?),
            None => None,
        };
        let mut whens = vec![];
        let mut thens = vec![];
        for case in conditions {
            let when = match &operand {
                None => self.condition(&case.condition, place)?,
                Some(operand) => {
                    let when = self.expr(&case.condition, place)?;
                    let stand_in = Typed::new(Expr::Aggregate(0), operand.oid);
                    self.comparable(stand_in, when, "=")?.1
                }
            };
            whens.push(when);
            thens.push(self.expr(&case.result, place)?);
        }
        let otherwise = match otherwise {
            Some(otherwise) => self.expr(otherwise, place)?,
            None => Typed::new(Expr::null(), types::UNKNOWN),
        };
        let oid = self.common(thens.iter().map(|t| t.oid).chain([otherwise.oid]))?;
        let mut branches = vec![];
        for (when, then) in whens.into_iter().zip(thens) {
            branches.push((when, self.coerce(then, oid)?));
        }
        let otherwise = Typed::boxed(self.coerce(otherwise, oid)?);
        let operand = operand.take().map(|o| Box::new(o.expr));
        Ok(Typed::new(Expr::Case { operand, branches, otherwise }, oid))
    }
}

/// Parameters of one statement; the protocol has 16 bits for their number.
const PARAMETERS_MAX: usize = u16::MAX as usize;

fn comparison(op: &BinaryOperator) -> Option<Op> {
    use BinaryOperator as B;
    Some(match op {
        B::Eq => Op::Eq,
        B::NotEq => Op::Ne,
        B::Lt => Op::Lt,
        B::LtEq => Op::Le,
        B::Gt => Op::Gt,
        B::GtEq => Op::Ge,
        B::PGRegexMatch => named("~")?,
        B::PGRegexIMatch => named("~*")?,
        B::PGRegexNotMatch => named("!~")?,
        B::PGRegexNotIMatch => named("!~*")?,
        B::PGLikeMatch => named("~~")?,
        B::PGILikeMatch => named("~~*")?,
        B::PGNotLikeMatch => named("!~~")?,
        B::PGNotILikeMatch => named("!~~*")?,
        // `OPERATOR(pg_catalog.~)`
        B::PGCustomBinaryOperator(parts) => named(parts.last()?)?,
        _ => return None,
    })
}

fn named(symbol: &str) -> Option<Op> {
    let (negated, rest) = match symbol.strip_prefix('!') {
        Some(rest) if rest.starts_with('~') => (true, rest),
        _ => (false, symbol),
    };
    Some(match rest {
        "=" => Op::Eq,
        "<>" | "!=" => Op::Ne,
        "<" => Op::Lt,
        "<=" => Op::Le,
        ">" => Op::Gt,
        ">=" => Op::Ge,
        "~" => Op::Match { negated, ignore_case: false },
        "~*" => Op::Match { negated, ignore_case: true },
        "~~" => Op::Like { negated, ignore_case: false, escape: Some('\\') },
        "~~*" => Op::Like { negated, ignore_case: true, escape: Some('\\') },
        _ => return None,
    })
}

fn symbol(op: Op) -> &'static str {
    match op {
        Op::Eq => "=",
        Op::Ne => "<>",
        Op::Lt => "<",
        Op::Le => "<=",
        Op::Gt => ">",
        Op::Ge => ">=",
        Op::Match { .. } => "~",
        Op::Like { .. } => "~~",
    }
}

fn number(
    values: &[Value],
    whole: impl Fn(i64, i64) -> Option<i64>,
    real: impl Fn(f64, f64) -> f64,
) -> Result<Value> {
    match values {
        [Value::Int(a), Value::Int(b)] => match whole(*a, *b) {
            Some(n) => Ok(Value::Int(n)),
            None => Err(Error::user("integer out of range").code("22003")),
        },
        [Value::Float(a), Value::Float(b)] => Ok(Value::Float(real(*a, *b))),
        _ => Ok(Value::Null),
    }
}

fn divided(
    values: &[Value],
    whole: impl Fn(i64, i64) -> Option<i64>,
    real: impl Fn(f64, f64) -> f64,
) -> Result<Value> {
    if values[1].as_int() == Some(0) && !matches!(values[1], Value::Float(n) if n != 0.0) {
        return Err(Error::user("division by zero").code("22012"));
    }
    number(values, whole, real)
}

/// Whether all or some of one array's elements are in the other.
fn shares(a: &Value, b: &Value, all: bool) -> bool {
    let (a, b) = (a.as_array().unwrap_or(&[]), b.as_array().unwrap_or(&[]));
    if all { a.iter().all(|v| b.contains(v)) } else { a.iter().any(|v| b.contains(v)) }
}
