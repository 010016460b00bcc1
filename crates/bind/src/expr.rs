//! Expressions, each with its type.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, InList, LambdaVariable, Like};
use datafusion::logical_expr::{Expr, Operator, lit, when};
use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, CastKind, CeilFloorKind, Subscript, UnaryOperator,
};

use crate::binder::Binder;
use crate::failure::{Placed, Result, not_covered, wrong};
use crate::guard::guarded;
use crate::literal;
use crate::name::Part;
use crate::operator::{as_row, signed_power, whole};
use crate::place::{CHOICE, Place};
use crate::scope::Entry;
use crate::typed::{Typed, binary};
use crate::types::{self, TEXT, is_text};

impl Binder<'_> {
    /// An expression whose type is decided: a literal that nothing gave one is a text.
    pub(crate) fn value(&self, sql: &ast::Expr, place: Place<'_>) -> Result<Typed> {
        let typed = self.expr(sql, place)?;
        Ok(Typed { unknown: false, ..typed })
    }

    pub(crate) fn condition(
        &self,
        sql: &ast::Expr,
        place: Place<'_>,
        clause: &'static str,
    ) -> Result<Expr> {
        self.expr(sql, place)?.condition(clause).at(sql)
    }

    pub(crate) fn exprs<'e>(
        &self,
        sql: impl IntoIterator<Item = &'e ast::Expr>,
        place: Place<'_>,
    ) -> Result<Vec<Typed>> {
        sql.into_iter().map(|e| self.expr(e, place)).collect()
    }

    pub(crate) fn expr(&self, sql: &ast::Expr, place: Place<'_>) -> Result<Typed> {
        self.any_expr(sql, place).at(sql)
    }

    fn any_expr(&self, sql: &ast::Expr, place: Place<'_>) -> Result<Typed> {
        use ast::Expr as Sql;
        match sql {
            Sql::Value(value) => self.literal(&value.value),
            Sql::Identifier(name) => self.named(&[Part::of(name)], place),
            Sql::CompoundIdentifier(names) => {
                let parts: Vec<Part> = names.iter().map(Part::of).collect();
                self.named(&parts, place)
            }
            Sql::Nested(inner) => self.expr(inner, place),
            Sql::BinaryOp { left, op, right } => self.binary(left, op, right, place),
            Sql::UnaryOp { op, expr } => self.unary(*op, expr, place),
            Sql::Cast { kind, expr, data_type, array: false, format: None } => {
                if let Sql::Array(array) = expr.as_ref()
                    && let to @ DataType::List(_) = self.sql_type(data_type)?
                {
                    return self.cut(self.array_as(array, &to, kind, place)?, data_type);
                }
                let value = self.expr(expr, place)?;
                let to = self.target(&value, data_type)?;
                let value = self.cast_as_written(value, to, kind.clone())?;
                self.cut(value, data_type)
            }
            Sql::TypedString(typed) if !typed.uses_odbc_syntax => {
                let value = self.literal(&typed.value.value)?;
                let to = self.target(&value, &typed.data_type)?;
                let value = self.cast_as_written(value, to, CastKind::Cast)?;
                self.cut(value, &typed.data_type)
            }
            Sql::Interval(interval) => self.interval(interval, false),
            Sql::IsNull(e) => self.null(e, Expr::is_null, place),
            Sql::IsNotNull(e) => self.null(e, Expr::is_not_null, place),
            Sql::IsTrue(e) => self.truth(e, place, Expr::IsTrue),
            Sql::IsNotTrue(e) => self.truth(e, place, Expr::IsNotTrue),
            Sql::IsFalse(e) => self.truth(e, place, Expr::IsFalse),
            Sql::IsNotFalse(e) => self.truth(e, place, Expr::IsNotFalse),
            Sql::IsUnknown(e) => self.truth(e, place, Expr::IsUnknown),
            Sql::IsNotUnknown(e) => self.truth(e, place, Expr::IsNotUnknown),
            Sql::IsDistinctFrom(l, r) => {
                let (l, r) = (self.expr(l, place)?, self.expr(r, place)?);
                self.compare(l, Operator::IsDistinctFrom, r)
            }
            Sql::IsNotDistinctFrom(l, r) => {
                let (l, r) = (self.expr(l, place)?, self.expr(r, place)?);
                self.compare(l, Operator::IsNotDistinctFrom, r)
            }
            Sql::Between { expr, negated, low, high } if as_row(expr).is_some() => {
                let compared = |op, bound: &Sql| Sql::BinaryOp {
                    left: expr.clone(),
                    op,
                    right: Box::new(bound.clone()),
                };
                let within = Sql::Nested(Box::new(Sql::BinaryOp {
                    left: Box::new(compared(ast::BinaryOperator::GtEq, low)),
                    op: ast::BinaryOperator::And,
                    right: Box::new(compared(ast::BinaryOperator::LtEq, high)),
                }));
                match negated {
                    true => {
                        let (op, expr) = (UnaryOperator::Not, Box::new(within));
                        self.expr(&Sql::UnaryOp { op, expr }, place)
                    }
                    false => self.expr(&within, place),
                }
            }
            Sql::Between { expr, negated, low, high } => {
                let items = self.exprs([&**expr, &**low, &**high], place)?;
                let nullable = items.iter().any(|i| i.nullable);
                let mut items =
                    self.same_type(items, "BETWEEN")?.into_iter().map(|t| Box::new(t.expr));
                let (Some(expr), Some(low), Some(high)) =
                    (items.next(), items.next(), items.next())
                else {
                    return not_covered("BETWEEN");
                };
                let between = Between { expr, negated: *negated, low, high };
                Ok(Typed::boolean(Expr::Between(between), nullable))
            }
            Sql::InList { expr, list, negated } => self.in_list(expr, list, *negated, place),
            Sql::Like { negated, any: false, expr, pattern, escape_char } => {
                let pattern = self.pattern(pattern, escape_char.as_ref(), place)?;
                self.like(expr, pattern, *negated, false, place)
            }
            Sql::ILike { negated, any: false, expr, pattern, escape_char } => {
                let pattern = self.pattern(pattern, escape_char.as_ref(), place)?;
                self.like(expr, pattern, *negated, true, place)
            }
            Sql::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), place)
            }
            Sql::Function(function) => self.call(function, place),
            Sql::Extract { field, expr, .. } => {
                let field = Expr::Literal(ScalarValue::from(field.to_string()), None);
                let field = Typed::new(field, DataType::Utf8, false);
                let value = self.expr(expr, place)?;
                self.extract(field, value, place)
            }
            Sql::Ceil {
                expr,
                field: CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => {
                let value = self.expr(expr, place)?;
                self.whole_number("ceil", value)
            }
            Sql::Floor {
                expr,
                field: CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => {
                let value = self.expr(expr, place)?;
                self.whole_number("floor", value)
            }
            Sql::Position { expr, r#in } => {
                let (what, text) = (self.expr(expr, place)?, self.expr(r#in, place)?);
                self.called("strpos", vec![text, what])
            }
            Sql::Substring { expr, substring_from, substring_for, special: _, shorthand } => {
                let (from, count) = (substring_from.as_deref(), substring_for.as_deref());
                self.substring(expr, from, count, *shorthand, place)
            }
            Sql::Trim { trim_where, trim_what, expr, trim_characters } => {
                let further = trim_characters.iter().flatten();
                let what = trim_what.as_deref().into_iter().chain(further);
                self.trim(expr, *trim_where, what, place)
            }
            Sql::IsNormalized { expr, form, negated } => {
                self.is_normalized(expr, form.as_ref(), *negated, place)
            }
            Sql::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let parts = [&**expr, &**overlay_what, &**overlay_from];
                let parts = parts.into_iter().chain(overlay_for.as_deref());
                let args = self.exprs(parts, place)?;
                self.called("overlay", args)
            }
            Sql::Array(array) => {
                let items = self.exprs(&array.elem, place)?;
                let items = self.same_type(items, "ARRAY")?;
                self.scalar("make_array", items)
            }
            Sql::Tuple(parts) => {
                let parts = self.exprs(parts, place)?;
                self.scalar("struct", parts)
            }
            Sql::Dictionary(fields) => {
                let mut args = vec![];
                for field in fields {
                    let key = Expr::Literal(ScalarValue::from(field.key.value.as_str()), None);
                    args.push(Typed::new(key, DataType::Utf8, false));
                    args.push(self.value(&field.value, place)?);
                }
                self.scalar("named_struct", args)
            }
            Sql::Map(map) => {
                let keys = self.exprs(map.entries.iter().map(|e| &*e.key), place)?;
                let values = self.exprs(map.entries.iter().map(|e| &*e.value), place)?;
                let keys = self.scalar("make_array", self.same_type(keys, "MAP")?)?;
                let values = self.scalar("make_array", self.same_type(values, "MAP")?)?;
                self.scalar("map", vec![keys, values])
            }
            Sql::CompoundFieldAccess { root, access_chain } => {
                let mut value = self.expr(root, place)?;
                for access in access_chain {
                    value = self.access(value, access, place)?;
                }
                Ok(value)
            }
            Sql::Exists { subquery, negated } => self.exists(subquery, *negated, place),
            Sql::InSubquery { expr, subquery, negated } => {
                self.in_subquery(expr, subquery, *negated, place)
            }
            Sql::Subquery(query) => self.scalar_subquery(query, place),
            Sql::AnyOp { left, compare_op, right, .. } => {
                self.quantified(left, compare_op, right, false, place)
            }
            Sql::AllOp { left, compare_op, right } => {
                self.quantified(left, compare_op, right, true, place)
            }
            Sql::Collate { .. } => not_covered("COLLATE other than \"C\""),
            Sql::AtTimeZone { timestamp, time_zone } => {
                self.at_time_zone(timestamp, time_zone, place)
            }
            _ => not_covered("this expression"),
        }
    }

    /// A name: a column, an alias, or a field of a struct.
    fn named(&self, parts: &[Part], place: Place<'_>) -> Result<Typed> {
        if let [part] = parts
            && !part.quoted
            && part.text.starts_with('@')
        {
            return not_covered("a variable");
        }
        let [first, fields @ ..] = parts else { return not_covered("this name") };
        if let Some(field) = place.variables.iter().rev().find(|v| *v.name() == first.text) {
            let variable = LambdaVariable::new(field.name().clone(), Some(Arc::clone(field)));
            let variable = Expr::LambdaVariable(variable);
            let typed = Typed::new(variable, field.data_type().clone(), field.is_nullable());
            return fields.iter().try_fold(typed, |value, part| self.field_of(value, &part.text));
        }
        match place.scope.find(parts) {
            Ok((found, used)) => {
                let mut value = found;
                for part in &parts[used..] {
                    value = self.field_of(value, &part.text)?;
                }
                Ok(value)
            }
            // `current_date` and its like are functions that are called without parentheses.
            Err(missing) => match parts {
                [part] if !part.quoted => match self.without_parentheses(&part.text)? {
                    Some(value) => Ok(value),
                    None => Err(missing),
                },
                _ => Err(missing),
            },
        }
    }

    fn access(&self, value: Typed, access: &AccessExpr, place: Place<'_>) -> Result<Typed> {
        match access {
            AccessExpr::Dot(ast::Expr::Identifier(name)) => {
                self.field_of(value, &Part::of(name).text)
            }
            AccessExpr::Subscript(Subscript::Index { index }) => {
                let index = self.expr(index, place)?;
                match &value.data_type {
                    DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
                        // The function counts from the end where the place is negative.
                        let index = at_least(index.converted(&DataType::Int64, false), 0)?;
                        self.scalar("array_element", vec![value, index])
                    }
                    _ => self.scalar("get_field", vec![value, index]),
                }
            }
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride }) => {
                // With a step, places are counted from the end as well.
                let bound = |bound: &Option<ast::Expr>, open: i64, least: i64| -> Result<Typed> {
                    let Some(bound) = bound else { return Ok(literal::count(open)) };
                    let bound = self.expr(bound, place)?.converted(&DataType::Int64, false);
                    if stride.is_some() { Ok(bound) } else { at_least(bound, least) }
                };
                // No list is longer.
                let last = i64::from(i32::MAX);
                let (lower, upper) = (bound(lower_bound, 1, 1)?, bound(upper_bound, last, 0)?);
                let mut args = vec![value, lower, upper];
                if let Some(stride) = stride {
                    args.push(self.expr(stride, place)?.cast(&DataType::Int64));
                }
                self.scalar("array_slice", args)
            }
            _ => not_covered("this subscript"),
        }
    }

    fn field_of(&self, value: Typed, name: &str) -> Result<Typed> {
        let DataType::Struct(fields) = &value.data_type else {
            return wrong(
                "42809",
                format!(
                    "column notation .{name} applied to type {}, which is not a composite type",
                    types::name(&value.data_type)
                ),
            );
        };
        let exact = fields.iter().find(|f| f.name() == name);
        let field = exact.or_else(|| fields.iter().find(|f| f.name().to_lowercase() == name));
        let Some(field) = field else {
            let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
            return wrong(
                "42703",
                format!("there is no field \"{name}\"; the fields are {}", names.join(", ")),
            );
        };
        let name = Expr::Literal(ScalarValue::from(field.name().as_str()), None);
        let name = Typed::new(name, DataType::Utf8, false);
        self.scalar("get_field", vec![value, name])
    }

    /// Whether a value is NULL, or not: of a row, whether all its fields are.
    fn null(&self, e: &ast::Expr, test: fn(Expr) -> Expr, place: Place<'_>) -> Result<Typed> {
        let tests = match self.whole_row(e, place) {
            Some(fields) => fields.into_iter().map(|field| test(field.expr)).collect(),
            None => {
                let fields = as_row(e).unwrap_or(Cow::Borrowed(std::slice::from_ref(e)));
                let tests = fields.iter().map(|field| Ok(test(self.value(field, place)?.expr)));
                tests.collect::<Result<Vec<Expr>>>()?
            }
        };
        match tests.into_iter().reduce(Expr::and) {
            Some(all) => Ok(Typed::boolean(all, false)),
            None => wrong("42601", "a row expression has at least one entry"),
        }
    }

    /// The columns of a table whose name stands for its row: `u IS NULL`. A column of that name goes first.
    pub(crate) fn whole_row(&self, e: &ast::Expr, place: Place<'_>) -> Option<Vec<Typed>> {
        let ast::Expr::Identifier(name) = e else { return None };
        let name = [Part::of(name)];
        if place.scope.find(&name).is_ok() {
            return None;
        }
        let columns = place.scope.columns(Some(&name));
        (!columns.is_empty()).then(|| columns.into_iter().map(Entry::typed).collect())
    }

    fn truth(&self, e: &ast::Expr, place: Place<'_>, of: fn(Box<Expr>) -> Expr) -> Result<Typed> {
        let condition = self.condition(e, place, "IS")?;
        Ok(Typed::boolean(of(Box::new(condition)), false))
    }

    /// All as the type in which they meet.
    pub(crate) fn same_type(&self, items: Vec<Typed>, what: &str) -> Result<Vec<Typed>> {
        let Some(mut target) = self.common_type(&items, what)? else {
            return Ok(items);
        };
        let mut items = items;
        if is_compared(what) {
            items = beside_padded(items);
        }
        // Of what is written without a type, the digits count as well.
        if items.iter().any(|item| item.unknown) {
            items = items.into_iter().map(|item| item.beside(&target)).collect();
            target = self.common_type(&items, what)?.unwrap_or(target);
        }
        Ok(items.into_iter().map(|item| item.cast(&target)).collect())
    }

    /// The type in which all meet; `None` if there are none.
    pub(crate) fn common_type<'t>(
        &self,
        items: impl IntoIterator<Item = &'t Typed> + Clone,
        what: &str,
    ) -> Result<Option<DataType>> {
        let meet = if is_compared(what) { types::common } else { types::united };
        let mut target: Option<DataType> = None;
        let mut any_text = false;
        for item in items {
            if item.is_open() {
                any_text |= item.unknown;
                continue;
            }
            target = Some(match target {
                None => item.data_type.clone(),
                Some(so_far) => match meet(&so_far, &item.data_type) {
                    Some(both) => both,
                    None => {
                        return wrong(
                            "42804",
                            format!(
                                "{what} types {} and {} cannot be matched",
                                types::name(&so_far),
                                types::name(&item.data_type)
                            ),
                        );
                    }
                },
            });
        }
        Ok(target.or(any_text.then_some(TEXT)))
    }

    fn in_list(
        &self,
        expr: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        if let Some(row) = as_row(expr) {
            return self.row_in_list(&row, list, negated, place);
        }
        let items = self.exprs(std::iter::once(expr).chain(list), place)?;
        let nullable = items.iter().any(|i| i.nullable);
        let mut items = self.same_type(items, "IN")?.into_iter().map(|t| t.expr);
        let Some(expr) = items.next() else { return not_covered("IN") };
        let list = InList { expr: Box::new(expr), list: items.collect(), negated };
        Ok(Typed::boolean(Expr::InList(list), nullable))
    }

    /// `(a, b) IN ((1, 2), (3, 4))`
    fn row_in_list(
        &self,
        row: &[ast::Expr],
        list: &[ast::Expr],
        negated: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        let mut found: Option<Typed> = None;
        for item in list {
            let Some(item) = as_row(item) else { return not_covered("a list of rows") };
            let one = self.rows(row, &ast::BinaryOperator::Eq, &item, place)?;
            found = Some(match found {
                None => one,
                Some(so_far) => {
                    let nullable = so_far.nullable || one.nullable;
                    Typed::boolean(so_far.expr.or(one.expr), nullable)
                }
            });
        }
        let Some(found) = found else { return not_covered("an empty list") };
        let expr = if negated { Expr::Not(Box::new(found.expr)) } else { found.expr };
        Ok(Typed { expr, ..found })
    }

    /// A pattern of LIKE, with a backslash in the place of its own escape character.
    fn pattern(
        &self,
        pattern: &ast::Expr,
        escape: Option<&ast::ValueWithSpan>,
        place: Place<'_>,
    ) -> Result<Typed> {
        let typed = self.expr(pattern, place)?;
        let Some(escape) = escape else { return Ok(typed) };
        let ast::Value::SingleQuotedString(escape) = &escape.value else {
            return not_covered("this ESCAPE");
        };
        if escape.chars().count() > 1 {
            return Err(thalweg_base::Error::user("invalid escape string")
                .code("22025")
                .hint("an escape string is empty or one character")
                .into());
        }
        let Expr::Literal(value, _) = &typed.expr else {
            return not_covered("ESCAPE of an expression");
        };
        let Some(Some(text)) = value.try_as_str() else { return Ok(typed) };
        let mut written = String::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                c if escape.starts_with(c) => match rest.next() {
                    Some(escaped) => written.extend(['\\', escaped]),
                    None => {
                        return wrong("22025", "LIKE pattern must not end with escape character");
                    }
                },
                '\\' => written.push_str("\\\\"),
                c => written.push(c),
            }
        }
        Ok(Typed { expr: Expr::Literal(ScalarValue::from(written), None), ..typed })
    }

    fn like(
        &self,
        expr: &ast::Expr,
        pattern: Typed,
        negated: bool,
        case_insensitive: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        let value = self.expr(expr, place)?;
        let nullable = value.nullable || pattern.nullable;
        for side in [&value, &pattern] {
            if !side.is_open() && !is_text(&side.data_type) {
                return wrong(
                    "42883",
                    format!(
                        "operator does not exist: {} {} {}",
                        types::name(&value.data_type),
                        if case_insensitive { "~~*" } else { "~~" },
                        types::name(&pattern.data_type)
                    ),
                );
            }
        }
        let text = match (&value.data_type, value.is_open()) {
            (DataType::Dictionary(..), _) | (_, true) => TEXT,
            (own, false) => own.clone(),
        };
        let like = Like {
            negated,
            expr: Box::new(value.cast(&text).expr),
            pattern: Box::new(pattern.cast(&text).expr),
            escape_char: None,
            case_insensitive,
        };
        Ok(Typed::boolean(Expr::Like(like), nullable))
    }

    fn case(
        &self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
        place: Place<'_>,
    ) -> Result<Typed> {
        let place = Place { without_rows: place.without_rows.or(Some(CHOICE)), ..place };
        let mut whens = vec![];
        let operand = match operand {
            None => {
                for when in conditions {
                    whens.push(self.condition(&when.condition, place, "CASE/WHEN")?);
                }
                None
            }
            Some(operand) => {
                let mut items = vec![self.expr(operand, place)?];
                for when in conditions {
                    items.push(self.expr(&when.condition, place)?);
                }
                let items = beside_padded(items);
                let mut items = self.same_type(items, "CASE")?.into_iter().map(|t| t.expr);
                let operand = items.next().map(Box::new);
                whens.extend(items);
                operand
            }
        };
        let mut results = vec![];
        for when in conditions {
            results.push(self.expr(&when.result, place)?);
        }
        let has_else = otherwise.is_some();
        if let Some(otherwise) = otherwise {
            results.push(self.expr(otherwise, place)?);
        }
        let nullable = !has_else || results.iter().any(|r| r.nullable);
        let results = self.same_type(results, "CASE")?;
        let data_type = results[0].data_type.clone();
        let mut results: Vec<Expr> = results.into_iter().map(|r| r.expr).collect();
        // A CASE of conditions may become one of ANDs and ORs, whose operands have their guards with them.
        if data_type == DataType::Boolean && operand.is_none() {
            let types = |column: &Column| place.scope.type_of(column);
            for (at, result) in results.iter_mut().enumerate() {
                let before = &whens[..at.min(whens.len())];
                let mut value = std::mem::take(result);
                if let Some(own) = whens.get(at) {
                    value = guarded(value, Operator::And, std::slice::from_ref(own), &types)?;
                }
                *result = guarded(value, Operator::Or, before, &types)?;
            }
        }
        let else_expr = if has_else { results.pop().map(Box::new) } else { None };
        let when_then_expr =
            whens.into_iter().zip(results).map(|(w, r)| (Box::new(w), Box::new(r)));
        let case = Case { expr: operand, when_then_expr: when_then_expr.collect(), else_expr };
        Ok(Typed::new(Expr::Case(case), data_type, nullable))
    }

    /// The type of a cast. One of a time may say how many digits its seconds have: the value is rounded to
    /// these, and is one of the type that has more.
    pub(crate) fn sql_type(&self, sql: &ast::DataType) -> Result<DataType> {
        match types::with_digits(sql) {
            Some((_, wider)) => types::of_sql(&wider, Some(self.zone())),
            None => types::of_sql(sql, Some(self.zone())),
        }
    }

    fn unary(&self, op: UnaryOperator, expr: &ast::Expr, place: Place<'_>) -> Result<Typed> {
        match op {
            UnaryOperator::Not => {
                let value = self.expr(expr, place)?;
                let nullable = value.nullable;
                let condition = value.condition("NOT")?;
                Ok(Typed::boolean(Expr::Not(Box::new(condition)), nullable))
            }
            UnaryOperator::Minus => match expr {
                ast::Expr::Value(value) if matches!(value.value, ast::Value::Number(..)) => {
                    self.negative(&value.value)
                }
                ast::Expr::Interval(interval) => self.interval(interval, true),
                _ => match signed_power(op, expr) {
                    Some(power) => self.expr(&power, place),
                    None => self.negated(self.number(expr, "-", place)?),
                },
            },
            UnaryOperator::Plus => match signed_power(op, expr) {
                Some(power) => self.expr(&power, place),
                None => self.number(expr, "+", place),
            },
            // `~x` has all other bits.
            UnaryOperator::BitwiseNot => {
                let value = self.number(expr, "~", place)?;
                if !value.data_type.is_integer() {
                    return wrong(
                        "42883",
                        format!("operator does not exist: ~ {}", types::name(&value.data_type)),
                    );
                }
                let all = Typed::new(lit(-1), DataType::Int32, false).cast(&value.data_type);
                self.arithmetic(all, Operator::Minus, value, place)
            }
            UnaryOperator::PGAbs => {
                let value = self.number(expr, "@", place)?;
                self.called("abs", vec![value])
            }
            UnaryOperator::PGSquareRoot | UnaryOperator::PGCubeRoot => {
                let value = self.number(expr, &op.to_string(), place)?.cast(&DataType::Float64);
                let function = if op == UnaryOperator::PGSquareRoot { "sqrt" } else { "cbrt" };
                self.called(function, vec![value])
            }
            _ => not_covered("this operator"),
        }
    }

    /// The operand of a sign.
    fn number(&self, expr: &ast::Expr, sign: &str, place: Place<'_>) -> Result<Typed> {
        let value = self.expr(expr, place)?;
        if value.is_open() {
            return Ok(value.cast(&DataType::Float64));
        }
        if types::is_number(&value.data_type) || matches!(value.data_type, DataType::Interval(_)) {
            return Ok(value);
        }
        wrong("42883", format!("operator does not exist: {sign} {}", types::name(&value.data_type)))
    }
}

/// The first value and those that it is compared with, without the blanks at their ends that do not count.
fn beside_padded(mut items: Vec<Typed>) -> Vec<Typed> {
    let Some((first, others)) = items.split_first() else { return items };
    if first.is_padded() || first.unknown && others.iter().any(Typed::is_padded) {
        return items.into_iter().map(Typed::without_blanks).collect();
    }
    // Beside a text as well, its blanks would count for that.
    if !others.is_empty() && others.iter().all(Typed::is_padded) {
        items[0] = items[0].clone().without_blanks();
    }
    items
}

/// Whether values meet to be compared.
fn is_compared(what: &str) -> bool {
    matches!(what, "IN" | "ANY" | "ALL" | "BETWEEN" | "NULLIF")
}

/// A place in a list, and no smaller one than `least`.
fn at_least(place: Typed, least: i64) -> Result<Typed> {
    let bound = lit(least);
    if let Some(at) = whole(&place.expr) {
        return Ok(if at < i128::from(least) { literal::count(least) } else { place });
    }
    let is_below = binary(place.expr.clone(), Operator::Lt, bound.clone());
    let expr = when(is_below, bound).otherwise(place.expr)?;
    Ok(Typed { expr, ..place })
}
