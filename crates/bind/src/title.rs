//! What a column of the result is called.

use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr};

use crate::name::Part;

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

/// What PostgreSQL calls it: how a query around names a column of a subquery that has no alias.
pub(crate) fn of_postgresql(expr: &Expr) -> Option<String> {
    let named = |name: &str| Some(name.to_string());
    match expr {
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => of_postgresql(inner),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => Some(of(expr)),
        Expr::Cast { expr, .. } => of_postgresql(expr),
        Expr::Function(function) => {
            function.name.0.last().and_then(|part| part.as_ident()).map(|name| Part::of(name).text)
        }
        Expr::Case { else_result, .. } => {
            else_result.as_deref().and_then(of_postgresql).or_else(|| named("case"))
        }
        Expr::Exists { .. } => named("exists"),
        Expr::Extract { .. } => named("extract"),
        Expr::Ceil { .. } => named("ceil"),
        Expr::Floor { .. } => named("floor"),
        Expr::Position { .. } => named("position"),
        Expr::Substring { .. } => named("substring"),
        Expr::Trim { .. } => named("btrim"),
        Expr::Overlay { .. } => named("overlay"),
        Expr::Array(_) => named("array"),
        Expr::Interval(_) => named("interval"),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match &select.projection[..] {
                [SelectItem::UnnamedExpr(expr)] => of_postgresql(expr),
                [SelectItem::ExprWithAlias { alias, .. }] => Some(Part::of(alias).text),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}
