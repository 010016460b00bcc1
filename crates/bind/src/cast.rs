//! Casts that a statement writes, and the types that they are to.
//!
//! A type of lists says what the items are, and not how deep the lists are: of `int[]` and `int[][]` either may
//! be nested or not, as in PostgreSQL. How deep the value is stays.

use arrow::datatypes::DataType;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast::{self, CastKind};

use crate::binder::Binder;
use crate::failure::{Placed, Result, not_covered, wrong};
use crate::functions::listed::item;
use crate::place::Place;
use crate::typed::Typed;
use crate::types;

impl Binder<'_> {
    /// The type of a cast of a value to one that is written.
    pub(crate) fn target(&self, value: &Typed, sql: &ast::DataType) -> Result<DataType> {
        let to = self.sql_type(sql)?;
        if types::any_numeric(sql) {
            return Ok(self.numeric_of(value, to));
        }
        if item(&to).is_none() {
            return Ok(to);
        }
        let depth = match &value.expr {
            Expr::Literal(text, _) if value.unknown => {
                text.try_as_str().flatten().and_then(depth_of_text)
            }
            _ => item(&value.data_type).is_some().then(|| depth(&value.data_type)),
        };
        Ok(depth.map_or(to.clone(), |depth| nested(&to, depth)))
    }

    /// The type of a cast to NUMERIC that does not say how many digits: a number that is exact has them.
    fn numeric_of(&self, value: &Typed, otherwise: DataType) -> DataType {
        if let Some(decimal) = types::as_decimal(&value.data_type) {
            return decimal;
        }
        if let Expr::Literal(text, _) = &value.expr
            && value.unknown
            && let Some(Some(text)) = text.try_as_str()
            && let Some(decimal) = types::written(text)
        {
            return decimal;
        }
        otherwise
    }

    /// `ARRAY['1', 2.5]::int[]`: each item is cast.
    pub(crate) fn array_as(
        &self,
        array: &ast::Array,
        to: &DataType,
        kind: &CastKind,
        place: Place<'_>,
    ) -> Result<Typed> {
        if item(to).is_none() {
            return not_covered("an array that is no list");
        }
        let items = array.elem.iter().map(|e| match e {
            ast::Expr::Array(inner) => self.array_as(inner, to, kind, place),
            e => {
                let value = self.expr(e, place)?;
                let to = nested(to, depth(&value.data_type));
                self.cast_as_written(value, to, kind.clone()).at(e)
            }
        });
        let items = items.collect::<Result<Vec<_>>>()?;
        let Some(deepest) = items.iter().map(|item| depth(&item.data_type)).max() else {
            return Ok(self.scalar("make_array", items)?.cast(to));
        };
        // A NULL is as deep as what stands beside it.
        let within = nested(to, deepest);
        let items = items.into_iter().map(|item| match item.is_null() {
            true => item.cast(&within),
            false => item,
        });
        let items = items.collect();
        Ok(self.scalar("make_array", items)?.cast(&nested(to, deepest + 1)))
    }

    /// A cast that the statement writes.
    pub(crate) fn cast_as_written(
        &self,
        value: Typed,
        to: DataType,
        kind: CastKind,
    ) -> Result<Typed> {
        if !value.is_open() && !types::may_cast(&value.data_type, &to) {
            return wrong(
                "42846",
                format!(
                    "cannot cast type {} to {}",
                    types::name(&value.data_type),
                    types::name(&to)
                ),
            );
        }
        Ok(match kind {
            CastKind::TryCast | CastKind::SafeCast => value.converted(&to, true),
            _ => value.converted(&to, false),
        })
    }
}

/// Levels of lists around the values of a type.
fn depth(data_type: &DataType) -> usize {
    item(data_type).map_or(0, |item| 1 + depth(item))
}

/// How deep the list is that a text spells; `None`: it has no items, or is no list.
fn depth_of_text(text: &str) -> Option<usize> {
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => return None,
            c if c.is_whitespace() => {}
            _ => break,
        }
    }
    (depth > 0).then_some(depth)
}

/// The items of a type of lists within so many levels of lists.
fn nested(lists: &DataType, depth: usize) -> DataType {
    let mut data_type = lists;
    while let Some(item) = item(data_type) {
        data_type = item;
    }
    (0..depth).fold(data_type.clone(), |item, _| DataType::new_list(item, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_how_deep_they_are() {
        let check = |text: &str, expected: Option<usize>| {
            assert_eq!(depth_of_text(text), expected, "{text}");
        };
        check("{1,2}", Some(1));
        check(" { {1}, {2}}", Some(2));
        check("{}", None);
        check("{{},{}}", None);
        check("1", None);
        check("{\"{\"}", Some(1));
    }

    #[test]
    fn lists_are_as_deep_as_the_value() {
        let list = |item: DataType| DataType::new_list(item, true);
        let deep = list(list(DataType::Int32));
        assert_eq!(nested(&list(DataType::Int32), 2), deep);
        assert_eq!(nested(&deep, 1), list(DataType::Int32));
        assert_eq!(nested(&deep, 0), DataType::Int32);
        assert_eq!(depth(&deep), 2);
    }
}
