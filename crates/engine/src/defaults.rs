//! The defaults of columns: what is kept of them is the text of an expression, which means the same in sessions
//! of other zones, and when the column has another type.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, internal_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, Projection};
use datafusion::sql::sqlparser::ast::{self, CastKind, Expr, TypedString, Value, VisitorMut};
use thalweg_base::{Error, Result};
use thalweg_errors::from_datafusion;
use thalweg_plan::zones::has_instants;

use crate::bound;
use crate::dml::target::expression;
use crate::sql_type::sql_type;
use crate::walk::walk_mut;

/// The text that is kept of a default of a column. Texts in quotes that are instants are read now, in the zone
/// of this session, and kept in UTC.
///
/// # Errors
/// The text is no expression, or an instant in it is none.
pub fn kept(state: &SessionState, text: &str, field: &Field) -> Result<String> {
    let mut expr = expression(text)?;
    let mut instants = Instants { state, found: false, failed: None };
    if has_instants(field.data_type())
        && let Some(value) = quoted(&mut expr)
    {
        instants.settle(value, field.data_type());
    }
    let _ = walk_mut(&mut expr, &mut instants);
    match (instants.failed, instants.found) {
        (Some(e), _) => Err(e),
        (None, true) => Ok(expr.to_string()),
        (None, false) => Ok(text.into()),
    }
}

/// Puts instants in UTC in the place of texts in quotes that are cast to instants, or to lists of these.
struct Instants<'a> {
    state: &'a SessionState,
    found: bool,
    failed: Option<Error>,
}

impl Instants<'_> {
    /// The type that a statement names, if its values are instants or lists of these.
    fn of_instants(&self, data_type: &ast::DataType) -> Option<DataType> {
        bound::sql_type(self.state, data_type).ok().filter(has_instants)
    }

    fn settle(&mut self, value: &mut Value, data_type: &DataType) {
        match in_utc(self.state, value, data_type) {
            Ok(text) => {
                *value = Value::SingleQuotedString(text);
                self.found = true;
            }
            Err(e) => self.failed = Some(e),
        }
    }
}

/// The text of an instant, or of a list of these, in UTC and with its offset; the text in quotes is read in the
/// zone of this session.
///
/// # Errors
/// The text is no such value.
pub fn in_utc(state: &SessionState, value: &Value, data_type: &DataType) -> Result<String> {
    let read = format!("CAST({value} AS {})", sql_type(data_type));
    let text = format!("CAST({} AS TEXT)", with_offset(&read, data_type, 0));
    let text = constant(state, &text, &DataType::Utf8View)?;
    match text.as_string_view_opt() {
        Some(text) => Ok(text.value(0).to_string()),
        None => Err(Error::internal("an instant has no text")),
    }
}

/// An expression for the text of an instant in UTC, with its offset; of lists, for such texts of their items.
fn with_offset(value: &str, data_type: &DataType, depth: usize) -> String {
    match data_type {
        DataType::List(item) => {
            let name = format!("item_{depth}");
            let item = with_offset(&name, item.data_type(), depth + 1);
            format!("list_transform({value}, {name} -> {item})")
        }
        _ => format!("CAST({value} AT TIME ZONE 'UTC' AS TEXT) || '+00'"),
    }
}

impl VisitorMut for Instants<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, ..
            } => {
                if let Some(of) = self.of_instants(data_type)
                    && let Some(value) = quoted(expr)
                {
                    self.settle(value, &of);
                }
            }
            Expr::TypedString(TypedString { data_type, value, .. }) => {
                if let Some(of) = self.of_instants(data_type) {
                    self.settle(&mut value.value, &of);
                }
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

/// The value of a default, of length 1.
pub(crate) fn constant(state: &SessionState, text: &str, data_type: &DataType) -> Result<ArrayRef> {
    let value = (|| {
        let expr = bound::default(state, text, data_type)?;
        let plan = LogicalPlanBuilder::empty(true).project([expr.alias("value")])?.build()?;
        // As in a query: rules give casts their meaning, and now() its value.
        let plan = state.optimize(&plan)?;
        let LogicalPlan::Projection(Projection { expr, .. }) = &plan else {
            return internal_err!("a constant that is optimized to {}", plan.display());
        };
        let expr = expr[0].clone().unalias();
        let expr = state.create_physical_expr(expr, &DFSchema::empty())?;
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let one = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
        expr.evaluate(&one)?.into_array(1)
    })();
    value.map_err(from_datafusion)
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
