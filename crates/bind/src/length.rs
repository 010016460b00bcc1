//! Casts to `varchar(n)` and `char(n)`, which cut what is too long, and to `time(n)`, which rounds; also of the items of lists.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType as SqlType};

use crate::binder::Binder;
use crate::failure::{Result, wrong};
use crate::functions::rounded;
use crate::typed::{Typed, each};
use crate::types::{TextKind, is_text, with_digits};

fn is_varchar(sql: &SqlType) -> bool {
    matches!(
        sql,
        SqlType::Varchar(_)
            | SqlType::CharacterVarying(_)
            | SqlType::CharVarying(_)
            | SqlType::Nvarchar(_)
    )
}

/// The length of a type of texts, and the function that cuts to it; `None`: it has none.
fn length(sql: &SqlType) -> Option<(u64, &'static str)> {
    let (length, function) = match sql {
        SqlType::Varchar(length)
        | SqlType::CharacterVarying(length)
        | SqlType::CharVarying(length)
        | SqlType::Nvarchar(length) => (length, "cut_varchar"),
        SqlType::Char(length) | SqlType::Character(length) => (length, "cut_char"),
        _ => return None,
    };
    match length {
        Some(CharacterLength::IntegerLength { length, .. }) => Some((*length, function)),
        None if function == "cut_char" => Some((1, function)),
        Some(CharacterLength::Max) | None => None,
    }
}

/// Whether values of a type are cut or rounded, also as items of lists.
fn is_cut(sql: &SqlType) -> bool {
    match item(sql) {
        Some(item) => is_cut(item),
        None => length(sql).is_some() || with_digits(sql).is_some(),
    }
}

fn item(sql: &SqlType) -> Option<&SqlType> {
    match sql {
        SqlType::Array(
            ArrayElemTypeDef::AngleBracket(item) | ArrayElemTypeDef::SquareBracket(item, _),
        ) => Some(item),
        _ => None,
    }
}

impl Binder<'_> {
    /// A value that was cast to a type of texts, as long as the type says; of times, rounded as it says.
    pub(crate) fn cut(&self, value: Typed, sql: &SqlType) -> Result<Typed> {
        if matches!(value.data_type, DataType::List(_)) {
            // Whatever the type says of their depth, the items are those of all lists.
            let mut of_items = sql;
            while let Some(item) = item(of_items) {
                of_items = item;
            }
            return match item(sql).is_some() && is_cut(of_items) {
                true => each(value, |value| self.cut_items(value, of_items)),
                false => Ok(value),
            };
        }
        if let Some((digits, _)) = with_digits(sql) {
            let expr = rounded::digits(digits).call(vec![value.expr]);
            return Ok(Typed { expr, ..value });
        }
        let Some((length, function)) = length(sql).filter(|_| is_text(&value.data_type)) else {
            let is_varying = is_text(&value.data_type) && is_varchar(sql);
            let text = if is_varying { TextKind::Varying } else { TextKind::Any };
            return Ok(Typed { text, ..value });
        };
        if length == 0 {
            return wrong("22023", "length of a type of texts must be at least 1");
        }
        let length = ScalarValue::from(length.min(i64::MAX as u64) as i64);
        let length = Typed::new(Expr::Literal(length, None), DataType::Int64, false);
        let value = self.scalar(function, vec![value, length])?;
        let text = if is_varchar(sql) { TextKind::Varying } else { TextKind::Padded };
        Ok(Typed { text, ..value })
    }

    /// Values that may be lists of what is cut.
    fn cut_items(&self, value: Typed, sql: &SqlType) -> Result<Typed> {
        match value.data_type {
            DataType::List(_) => each(value, |value| self.cut_items(value, sql)),
            _ => self.cut(value, sql),
        }
    }
}
