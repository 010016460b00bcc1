//! The defaults of columns: what is kept of them is the text of an expression, which means the same when the
//! column has another type.

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{Expr, Value};
use thalweg_base::Result;

use crate::dml::target::expression;
use crate::sql_type::sql_type;

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
