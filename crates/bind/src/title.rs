//! What a column of the result is called.

use datafusion::sql::sqlparser::ast::Expr;

use crate::scope::Part;

/// A column keeps its name; any other expression is called as it is written.
pub(crate) fn of(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => Part::of(name).text,
        Expr::CompoundIdentifier(parts) => {
            parts.last().map(|p| Part::of(p).text).unwrap_or_default()
        }
        Expr::Nested(inner) => of(inner),
        other => other.to_string(),
    }
}
