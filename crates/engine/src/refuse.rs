//! What is parsed is done or refused: nothing that a statement says is passed over in silence.
//!
//! The parser knows the clauses of twenty dialects, the planner a part of them, and of the others
//! it often takes no notice. So every node of a statement is taken apart here, field by field and
//! without `..`: a field that a newer parser adds does not compile until somebody has said what
//! becomes of it. What stands in another spelling for something that is done has been written anew
//! before (`spelling.rs`).
//!
//! * `refuse/query.rs`: queries, their clauses, windows
//! * `refuse/table.rs`: what stands in FROM
//! * `refuse/expr.rs`: expressions and calls of functions
//! * `refuse/define.rs`: CREATE, ALTER and DROP
//! * `refuse/change.rs`: INSERT, UPDATE, DELETE, MERGE, TRUNCATE
//!
//! Left alone: optimizer hints in comments, which are free to be ignored.

mod change;
mod define;
mod expr;
mod query;
mod table;

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Spanned, Statement, TableFactor, Visit, Visitor,
};
use thalweg_base::{Error, Result, Subject};

use crate::walk::walk;

/// Refuses a statement with a clause that nobody would heed.
///
/// # Errors
/// Kind `unsupported`: names the clause, and what to write instead.
pub(crate) fn check(state: &SessionState, statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(inner) => check_all(state, inner.as_ref()),
        DfStatement::Explain(explain) => check(state, &explain.statement),
        DfStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => check_all(state, query.as_ref()),
            CopyToSource::Relation(_) => Ok(()),
        },
        DfStatement::CreateExternalTable(create) => define::external(create),
        DfStatement::Reset(_) => Ok(()),
    }
}

/// The same of a part of a statement.
pub(crate) fn check_all(state: &SessionState, node: &impl Visit) -> Result<()> {
    let mut refuse = Refuse { state, found: Ok(()) };
    let _ = walk(node, &mut refuse);
    refuse.found
}

struct Refuse<'a> {
    state: &'a SessionState,
    found: Result<()>,
}

impl Refuse<'_> {
    /// Goes on, unless the node is refused: at its place in the text.
    fn note(&mut self, node: &impl Spanned, result: Result<()>) -> ControlFlow<()> {
        self.found = result.map_err(|e| {
            let start = node.span().start;
            match start.line {
                0 => e,
                line => e.within(line as u32, start.column as u32),
            }
        });
        if self.found.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Visitor for Refuse<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.note(query, query::query(query))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.note(factor, table::factor(factor))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        // Most of a long VALUES list.
        if matches!(expr, Expr::Value(_) | Expr::Identifier(_)) {
            return ControlFlow::Continue(());
        }
        let state = self.state;
        self.note(expr, expr::expr(state, expr))
    }

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        let result = match statement {
            Statement::Insert(insert) => change::insert(insert),
            Statement::Update(update) => change::update(update),
            Statement::Delete(delete) => change::delete(delete),
            Statement::Merge(merge) => change::merge(merge),
            Statement::Truncate(truncate) => change::truncate(truncate),
            other => define::statement(other),
        };
        self.note(statement, result)
    }
}

/// An error if `present`.
fn no(present: bool, what: &str, instead: &str) -> Result<()> {
    if present { Err(unsupported(what, instead)) } else { Ok(()) }
}

fn unsupported(what: &str, instead: &str) -> Error {
    let error = Error::unsupported(format!("{what} is not supported")).hint(instead);
    // The first of its words that are written in capitals is one of the statement.
    let is_word = |w: &&str| w.len() > 1 && w.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    match what.split(' ').find(is_word) {
        Some(word) => error.about(Subject::Word(word.into())),
        None => error,
    }
}
