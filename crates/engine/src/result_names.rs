//! What PostgreSQL calls the columns of a result that have no name in the statement: clients look
//! for `count` and `?column?`, where DataFusion says `count(*)` and `Int64(1)`.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
};
use datafusion::sql::sqlparser::parser::Parser;

use crate::dialect::Thalweg;
use crate::names;

const UNNAMED: &str = "?column?";

/// A name for each of the columns, or `None` where the one they have is right. A statement that is
/// no plain query keeps all of its names.
pub fn result_names(sql: &str, columns: usize) -> Vec<Option<String>> {
    let mut found = vec![None; columns];
    let Some(select) = parsed(sql) else { return found };
    let items = &select.projection;
    let is_wild = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    let wild = items.iter().filter(|i| is_wild(i)).count();
    // Two of them hide where the first ends.
    if wild > 1 || (wild == 0 && items.len() != columns) || items.len() > columns + 1 {
        return found;
    }
    let before = items.iter().position(is_wild).unwrap_or(items.len());
    for (item, found) in items.iter().zip(&mut found).take(before) {
        *found = of_item(item);
    }
    for (item, found) in items.iter().rev().zip(found.iter_mut().rev()) {
        if is_wild(item) {
            break;
        }
        *found = of_item(item);
    }
    found
}

fn parsed(sql: &str) -> Option<Select> {
    // Most have a name for each, and need no second look.
    let mut statements = Parser::parse_sql(&Thalweg, sql).ok()?;
    let Some(Statement::Query(query)) = statements.pop() else { return None };
    let mut body = *query.body;
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(*select),
            SetExpr::Query(query) => *query.body,
            SetExpr::SetOperation { left, .. } => *left,
            _ => return None,
        }
    }
}

fn of_item(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => of(expr).or_else(|| Some(UNNAMED.into())),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(_), _)
        | SelectItem::QualifiedWildcard(..)
        | SelectItem::Wildcard(_)
        | SelectItem::ExprWithAlias { .. }
        | SelectItem::ExprWithAliases { .. } => None,
    }
}

/// As PostgreSQL's `FigureColname` has it.
fn of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(names::ident(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(names::ident),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => of(inner),
        Expr::Cast { expr, data_type, .. } => of(expr).or_else(|| Some(type_name(data_type))),
        Expr::TypedString(typed) => Some(type_name(&typed.data_type)),
        Expr::Function(function) => {
            function.name.0.last().and_then(|part| part.as_ident()).map(names::ident)
        }
        Expr::Case { else_result, .. } => {
            else_result.as_deref().and_then(of).or_else(|| Some("case".into()))
        }
        Expr::Exists { .. } => Some("exists".into()),
        Expr::Array(_) => Some("array".into()),
        Expr::Tuple(_) => Some("row".into()),
        Expr::Interval(_) => Some("interval".into()),
        Expr::Extract { .. } => Some("extract".into()),
        Expr::Substring { .. } => Some("substring".into()),
        Expr::Position { .. } => Some("position".into()),
        Expr::Overlay { .. } => Some("overlay".into()),
        Expr::Trim { .. } => Some("btrim".into()),
        Expr::Ceil { .. } => Some("ceil".into()),
        Expr::Floor { .. } => Some("floor".into()),
        Expr::AtTimeZone { .. } => Some("timezone".into()),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first()? {
                SelectItem::UnnamedExpr(expr) => of(expr),
                SelectItem::ExprWithAlias { alias, .. } => Some(names::ident(alias)),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// PostgreSQL's own name of a type.
fn type_name(data_type: &DataType) -> String {
    let spelled = data_type.to_string().to_lowercase();
    let base = spelled.split(['(', '[']).next().unwrap_or_default().trim();
    match base {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "real" | "float" => "float4",
        "double" | "double precision" => "float8",
        "boolean" => "bool",
        "character varying" => "varchar",
        "character" | "char" => "bpchar",
        "decimal" | "dec" => "numeric",
        "timestamp with time zone" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        "time without time zone" => "time",
        other => other,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::result_names;

    /// As PostgreSQL 15 names them; `-` keeps the name.
    #[test]
    fn names_are_postgresqls() {
        let check = |sql: &str, columns: usize, expected: &str| {
            let names = result_names(sql, columns);
            let names: Vec<_> = names.iter().map(|n| n.as_deref().unwrap_or("-")).collect();
            assert_eq!(names.join(" "), expected, "{sql}");
        };
        check(
            "SELECT count(*), sum(a), a, t.B, a + 1, 'x' FROM t",
            6,
            "count sum a b ?column? ?column?",
        );
        check("SELECT 1 AS x, 1::int, a::text, date '2024-01-01'", 4, "- int4 a date");
        check("SELECT 1, * , max(b) OVER () FROM t", 5, "?column? - - - max");
        check("SELECT *, * FROM t", 4, "- - - -");
        check("(SELECT coalesce(a, 1) FROM t) UNION ALL SELECT 2", 1, "coalesce");
        check(
            "SELECT (SELECT max(a) FROM t), EXISTS (SELECT 1), CASE WHEN a THEN 1 END",
            3,
            "max exists case",
        );
        check("WITH a AS (SELECT 1) SELECT -a FROM a", 1, "?column?");
        check("SHOW ALL", 2, "- -");
        check("INSERT INTO t VALUES (1)", 1, "-");
        check("nonsense", 1, "-");
    }
}
