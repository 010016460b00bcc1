//! What a column of a result is called if nobody says, as PostgreSQL calls it.

use sqlparser::ast::{self, AccessExpr, Expr};

use crate::types;

pub fn ident(ident: &ast::Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// The parts of a name.
pub fn parts(name: &ast::ObjectName) -> Vec<String> {
    name.0.iter().map(|part| part.as_ident().map_or(part.to_string(), ident)).collect()
}

pub fn of(expr: &Expr) -> String {
    known(expr).unwrap_or("?column?".into())
}

fn known(expr: &Expr) -> Option<String> {
    Some(match expr {
        Expr::Identifier(name) => ident(name),
        Expr::CompoundIdentifier(parts) => ident(parts.last()?),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(name)) => Some(ident(name)),
                _ => None,
            });
            field.or_else(|| known(root))?
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => known(inner)?,
        Expr::Cast { expr, data_type, .. } => {
            known(expr).or_else(|| types::name(types::of_sql(data_type).ok()?.0))?
        }
        Expr::Function(function) => parts(&function.name).pop()?,
        Expr::Case { else_result, .. } => {
            else_result.as_deref().and_then(column).unwrap_or("case".into())
        }
        Expr::Exists { .. } => "exists".into(),
        Expr::Subquery(query) => match query.body.as_ref() {
            ast::SetExpr::Select(select) => match select.projection.first()? {
                ast::SelectItem::ExprWithAlias { alias, .. } => ident(alias),
                ast::SelectItem::UnnamedExpr(expr) => known(expr)?,
                _ => return None,
            },
            _ => return None,
        },
        Expr::Array(_) => "array".into(),
        Expr::Tuple(_) => "row".into(),
        Expr::Substring { .. } => "substring".into(),
        Expr::Trim { .. } => "btrim".into(),
        Expr::Position { .. } => "position".into(),
        _ => return None,
    })
}

/// The name of a plain column.
fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => known(expr),
        Expr::Nested(inner) => column(inner),
        _ => None,
    }
}
