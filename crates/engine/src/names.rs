//! Names as the planner knows them, and names for the columns of a SELECT list that have none of
//! their own.

pub mod cased;

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, Select, SelectItem, SetExpr, VisitorMut,
};

use thalweg_base::Result;

use crate::walk::walk_mut;

/// A name that is not quoted is folded to lower case.
pub fn ident(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Which of the columns a name means: the very one with quotes; without, the one in lower case, else
/// the only one that is the same without regard to case.
///
/// # Errors
/// Several columns differ by case alone.
pub fn column<'n>(
    columns: impl Iterator<Item = &'n str> + Clone,
    name: &Ident,
) -> Result<Option<usize>> {
    let wanted = ident(name);
    if let Some(at) = columns.clone().position(|column| column == wanted) {
        return Ok(Some(at));
    }
    if name.quote_style.is_some() {
        return Ok(None);
    }
    let same = columns.enumerate().filter(|(_, column)| column.to_lowercase() == wanted);
    let same: Vec<(usize, &str)> = same.collect();
    match &same[..] {
        [] => Ok(None),
        [(at, _)] => Ok(Some(*at)),
        several => {
            let columns: Vec<&str> = several.iter().map(|(_, column)| *column).collect();
            Err(cased::ambiguous(&name.value, &columns))
        }
    }
}

/// The same for each part of a name, joined by points.
pub fn folded(name: &ObjectName) -> String {
    let parts = name.0.iter().map(|part| part.as_ident().map_or(part.to_string(), ident));
    parts.collect::<Vec<_>>().join(".")
}

/// The candidate that is most like a name, if one is so like it that it may have been meant.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let most = (name.chars().count() / 3).clamp(1, 3);
    let distances = candidates.map(|c| (distance(&name, &c.to_lowercase(), most), c));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= most && distance < name.chars().count()).then_some(near)
}

/// How many characters have to be changed, added or left out (Levenshtein), as long as these are
/// not more than `most`.
fn distance(a: &str, b: &str, most: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > most {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Gives every unnamed expression of every SELECT list its own text as its name, with a number
/// where that is taken. Columns keep their names, unless one is selected twice.
pub fn unique(mut statement: Statement) -> Statement {
    let mut inner = &mut statement;
    while let Statement::Explain(explain) = inner {
        inner = &mut explain.statement;
    }
    if let Statement::Statement(statement) = inner {
        let _ = walk_mut(statement, &mut Names);
    }
    statement
}

struct Names;

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        name_body(&mut query.body);
        ControlFlow::Continue(())
    }
}

/// The same for the branches of set operations that do not name the result. The planner gives an
/// expression there the name of the column that it becomes, which may be the name of another column
/// of its own branch: `SELECT i, h … UNION SELECT h, i * 2 …`.
pub fn branches(statement: &mut Statement) {
    let mut inner = statement;
    while let Statement::Explain(explain) = inner {
        inner = &mut explain.statement;
    }
    if let Statement::Statement(statement) = inner {
        let _ = walk_mut(statement, &mut Branches);
    }
}

struct Branches;

impl VisitorMut for Branches {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut body = &mut *query.body;
        while let SetExpr::SetOperation { left, right, .. } = body {
            name_body(right);
            body = left;
        }
        ControlFlow::Continue(())
    }
}

/// Queries in parentheses are visited on their own.
fn name_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => name_list(select),
        SetExpr::SetOperation { left, right, .. } => {
            name_body(left);
            name_body(right);
        }
        _ => {}
    }
}

fn name_list(select: &mut Select) {
    let mut taken: HashSet<String> = HashSet::new();
    for item in &select.projection {
        if let SelectItem::ExprWithAlias { alias, .. } = item {
            taken.insert(alias.value.clone());
        }
    }
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let (base, is_column) = match &*expr {
            Expr::Identifier(name) => (name.value.clone(), true),
            Expr::CompoundIdentifier(parts) => match parts.last() {
                Some(name) => (name.value.clone(), true),
                None => continue,
            },
            other => (other.to_string(), false),
        };
        let mut name = base.clone();
        let mut number = 0;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{number}");
        }
        if is_column && number == 0 {
            continue;
        }
        *item =
            SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    #[test]
    fn branches_get_names_of_their_own() {
        let mut statement = DFParser::parse_sql(
            "SELECT a, 1 FROM t UNION SELECT b, a + 1 FROM t UNION SELECT 1, 1",
        )
        .unwrap()
        .pop_front()
        .unwrap();
        super::branches(&mut statement);
        let expected = "SELECT a, 1 FROM t UNION SELECT b, a + 1 AS \"a + 1\" FROM t \
            UNION SELECT 1 AS \"1\", 1 AS \"1_1\"";
        assert_eq!(statement.to_string(), expected);
    }

    #[test]
    fn unnamed_columns_get_names() {
        let check = |sql: &str, expected: &str| {
            let statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            assert_eq!(super::unique(statement).to_string(), expected);
        };
        check("SELECT a, t.b FROM t", "SELECT a, t.b FROM t");
        check("SELECT a, a, t.a FROM t", "SELECT a, a AS \"a_1\", t.a AS \"a_2\" FROM t");
        check("SELECT 5, 5, 5 AS x", "SELECT 5 AS \"5\", 5 AS \"5_1\", 5 AS x");
        check(
            "SELECT a::INT, (SELECT 1, 1) FROM t UNION SELECT 2, 2",
            "SELECT a::INT AS \"a::INT\", (SELECT 1 AS \"1\", 1 AS \"1_1\") AS \"(SELECT 1, 1)\" FROM t \
             UNION SELECT 2 AS \"2\", 2 AS \"2_1\"",
        );
    }
}
