//! Functions that give rows, in the select list: `SELECT generate_series(1, 3)` is three rows.
//!
//! The planner's `generate_series` makes an array, and `unnest` in the select list makes rows of it.
//! Where PostgreSQL lets no such function stand, it is refused.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query,
    Select, SelectItem, SetExpr, TableFactor, VisitorMut,
};
use thalweg_base::{Error, Result, Subject};

use crate::dml::target;
use crate::names;
use crate::walk::walk_mut;

const SERIES: &str = "generate_series";
const UNNEST: &str = "unnest";

pub(crate) fn rewrite(statement: &mut Statement) -> Result<()> {
    let mut inner = statement;
    while let Statement::Explain(explain) = inner {
        inner = &mut explain.statement;
    }
    let mut queries = Queries { error: None };
    if let Statement::Statement(statement) = inner {
        let _ = walk_mut(statement, &mut queries);
    }
    queries.error.map_or(Ok(()), Err)
}

struct Queries {
    error: Option<Error>,
}

impl VisitorMut for Queries {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(arguments), .. } = factor
            && names::folded(name) == SERIES
        {
            arguments.args.iter_mut().for_each(widen);
        }
        if let TableFactor::Function { name, args, .. } = factor
            && names::folded(name) == SERIES
        {
            args.iter_mut().for_each(widen);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        match of_body(&mut query.body) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                self.error = Some(e);
                ControlFlow::Break(())
            }
        }
    }
}

/// The planner's table function takes a bound that is cast to an integer as a bigint alone.
fn widen(argument: &mut FunctionArg) {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Cast { data_type, .. })) = argument else {
        return;
    };
    if matches!(
        data_type,
        DataType::Int(None)
            | DataType::Integer(None)
            | DataType::SmallInt(None)
            | DataType::Int2(None)
            | DataType::Int4(None)
            | DataType::TinyInt(None)
    ) {
        *data_type = DataType::BigInt(None);
    }
}

/// Queries in parentheses are visited on their own.
fn of_body(body: &mut SetExpr) -> Result<()> {
    match body {
        SetExpr::Select(select) => of_select(select),
        SetExpr::SetOperation { left, right, .. } => {
            of_body(left)?;
            of_body(right)
        }
        _ => Ok(()),
    }
}

fn of_select(select: &mut Select) -> Result<()> {
    let clauses = [(&mut select.selection, "WHERE"), (&mut select.having, "HAVING")];
    for (clause, name) in clauses {
        if let Some(expr) = clause {
            within(expr, &mut Rows { refused_in: Some(name), ..Rows::default() })?;
        }
    }
    let mut named = false;
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            continue;
        };
        let is_series = function(expr, SERIES).is_some();
        within(expr, &mut Rows::default())?;
        // The name that PostgreSQL gives it, unless another has it already.
        if is_series
            && !std::mem::replace(&mut named, true)
            && let SelectItem::UnnamedExpr(expr) = item
        {
            let alias = Ident::with_quote('"', SERIES);
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    Ok(())
}

fn within(expr: &mut Expr, rows: &mut Rows) -> Result<()> {
    let _ = walk_mut(expr, rows);
    match rows.error.take() {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

/// Makes rows of every series in an expression, not in queries within it.
#[derive(Default)]
struct Rows {
    queries: usize,
    /// Expressions around, of those that evaluate only some of their parts.
    guards: usize,
    refused_in: Option<&'static str>,
    error: Option<Error>,
}

impl Rows {
    fn refuse(&mut self, name: &str, place: &str) -> ControlFlow<()> {
        let e = Error::unsupported(format!("set-returning functions are not allowed in {place}"))
            .hint(format!("move it into FROM: FROM t, LATERAL {name}(…) AS x"))
            .about(Subject::Function(name.into()));
        self.error = Some(e);
        ControlFlow::Break(())
    }
}

impl VisitorMut for Rows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        self.guards += usize::from(is_guard(expr));
        for name in [SERIES, UNNEST] {
            if function(expr, name).is_none() {
                continue;
            }
            // An array of our own making is no set: `3 = ANY (generate_series(1, 5))`.
            match self.refused_in {
                Some(place) if name == UNNEST => return self.refuse(name, place),
                None if self.guards > 0 => return self.refuse(name, "CASE or COALESCE"),
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        self.guards -= usize::from(is_guard(expr));
        if self.refused_in.is_some() {
            return ControlFlow::Continue(());
        }
        if function(expr, SERIES).is_some() {
            *expr = target::call(UNNEST, vec![expr.clone()]);
        } else if let Some(inner) = function(expr, UNNEST).and_then(argument)
            && function(inner, UNNEST)
                .and_then(argument)
                .is_some_and(|e| function(e, SERIES).is_some())
        {
            // It was written with `unnest` around it.
            *expr = inner.clone();
        }
        ControlFlow::Continue(())
    }
}

fn is_guard(expr: &Expr) -> bool {
    matches!(expr, Expr::Case { .. }) || function(expr, "coalesce").is_some()
}

fn function<'a>(expr: &'a Expr, name: &str) -> Option<&'a Function> {
    match expr {
        Expr::Function(function) if names::folded(&function.name) == name => Some(function),
        _ => None,
    }
}

/// The only one.
fn argument(function: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => Some(expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use crate::dialect::Thalweg;

    fn rewritten(sql: &str) -> Result<String, String> {
        let parser = DFParserBuilder::new(sql).with_dialect(&Thalweg).build();
        let mut statement = parser.unwrap().parse_statements().unwrap().pop_front().unwrap();
        super::rewrite(&mut statement).map_err(|e| e.message().to_string())?;
        Ok(statement.to_string())
    }

    #[test]
    fn series_give_rows() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql).as_deref(), Ok(expected));
        check(
            "SELECT generate_series(1, 3), a + generate_series(1, 2) FROM t",
            "SELECT unnest(generate_series(1, 3)) AS \"generate_series\", \
             a + unnest(generate_series(1, 2)) FROM t",
        );
        for same in [
            "SELECT unnest(generate_series(1, 3))",
            "SELECT * FROM generate_series(1, 3)",
            "SELECT * FROM UNNEST(generate_series(1, 3))",
            "SELECT 1 WHERE 3 = ANY(generate_series(1, 5))",
        ] {
            check(same, same);
        }
        check(
            "SELECT * FROM generate_series(1::INT, 3)",
            "SELECT * FROM generate_series(1::BIGINT, 3)",
        );
        for wrong in
            ["SELECT CASE WHEN a THEN generate_series(1, 3) END", "SELECT 1 WHERE unnest(a) = 1"]
        {
            assert!(rewritten(wrong).unwrap_err().contains("not allowed"), "{wrong}");
        }
    }
}
