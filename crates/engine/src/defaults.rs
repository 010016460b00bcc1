//! The defaults of columns: what is kept of them is the text of an expression, which means the same in sessions
//! of other zones, and when the column has another type.

use std::ops::ControlFlow;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{self, CastKind, Expr, TypedString, Value, VisitorMut};
use thalweg_base::{Error, Result};

use crate::dml::target::expression;
use crate::sql_type::sql_type;
use crate::walk::walk_mut;
use crate::{bound, ddl};

/// The text that is kept of a default of a column. Texts in quotes that are instants are read now, in the zone
/// of this session, and kept in UTC.
///
/// # Errors
/// The text is no expression, or an instant in it is none.
pub fn kept(state: &SessionState, text: &str, field: &Field) -> Result<String> {
    let mut expr = expression(text)?;
    let mut instants = Instants { state, found: false, failed: None };
    if is_instant(field.data_type())
        && let Some(value) = quoted(&mut expr)
    {
        instants.settle(value);
    }
    let _ = walk_mut(&mut expr, &mut instants);
    match (instants.failed, instants.found) {
        (Some(e), _) => Err(e),
        (None, true) => Ok(expr.to_string()),
        (None, false) => Ok(text.into()),
    }
}

fn is_instant(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(_)))
}

/// Puts instants in UTC in the place of texts in quotes that are cast to instants.
struct Instants<'a> {
    state: &'a SessionState,
    found: bool,
    failed: Option<Error>,
}

impl Instants<'_> {
    fn is_instant(&self, data_type: &ast::DataType) -> bool {
        bound::sql_type(self.state, data_type).is_ok_and(|data_type| is_instant(&data_type))
    }

    fn settle(&mut self, value: &mut Value) {
        match self.in_utc(value) {
            Ok(text) => {
                *value = Value::SingleQuotedString(text);
                self.found = true;
            }
            Err(e) => self.failed = Some(e),
        }
    }

    fn in_utc(&self, value: &Value) -> Result<String> {
        let text =
            format!("CAST(CAST({value} AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS TEXT) || '+00'");
        let text = ddl::constant(self.state, &text, &DataType::Utf8View)?;
        match text.as_string_view_opt() {
            Some(text) => Ok(text.value(0).to_string()),
            None => Err(Error::internal("an instant has no text")),
        }
    }
}

impl VisitorMut for Instants<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, ..
            } if self.is_instant(data_type) => {
                if let Some(value) = quoted(expr) {
                    self.settle(value);
                }
            }
            Expr::TypedString(TypedString { data_type, value, .. })
                if self.is_instant(data_type) =>
            {
                self.settle(&mut value.value);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The default of a column that gets another type: a text in quotes stays the value that it was of the `old`
/// type.
pub fn retyped(text: &str, old: &Field) -> Result<String> {
    let is_quoted = quoted(&mut expression(text)?).is_some();
    Ok(match is_quoted && !old.data_type().is_string() {
        true => format!("CAST({text} AS {})", sql_type(old.data_type())),
        false => text.into(),
    })
}

/// The text in quotes that an expression is, whose type its place decides.
fn quoted(expr: &mut Expr) -> Option<&mut Value> {
    match expr {
        Expr::Value(value) if is_text(&value.value) => Some(&mut value.value),
        Expr::Nested(inner) => quoted(inner),
        _ => None,
    }
}

fn is_text(value: &Value) -> bool {
    matches!(
        value,
        Value::SingleQuotedString(_)
            | Value::EscapedStringLiteral(_)
            | Value::DollarQuotedString(_)
            | Value::UnicodeStringLiteral(_)
    )
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::retyped;

    #[test]
    fn texts_in_quotes_keep_their_values() {
        let check = |text: &str, old: DataType, expected: &str| {
            assert_eq!(retyped(text, &Field::new("a", old, true)).unwrap(), expected);
        };
        check("'yes'", DataType::Boolean, "CAST('yes' AS boolean)");
        check("('1.5')", DataType::Float64, "CAST(('1.5') AS double)");
        check("'5'", DataType::Utf8View, "'5'");
        check("5", DataType::Int64, "5");
        check("'a' || 'b'", DataType::Binary, "'a' || 'b'");
    }
}
