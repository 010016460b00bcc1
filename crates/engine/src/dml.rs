//! `INSERT`, `UPDATE`, `DELETE`, `MERGE` and `TRUNCATE` of stored tables.
//!
//! ```text
//!   DELETE FROM t USING u WHERE p        UPDATE t SET a = e WHERE p
//!            │                                    │            rewritten as a query over the table
//!            ▼                                    ▼            with the ids of its rows
//!   SELECT t.␀row FROM t, u WHERE p      SELECT t.␀row, e AS a, t.b FROM t WHERE p
//!            │                                    │            run as any query, under the scheduler
//!            ▼                                    ▼
//!   ids ──▶ Transaction::delete          ids ──▶ delete;  rows ──▶ extents ──▶ append
//! ```
//! All of it is one change of one transaction: readers see none of it or all.
//!
//! * `target.rs`: the table that is changed, and the query over it.
//! * `insert.rs`, `update.rs` (and `DELETE`), `merge.rs`, `truncate.rs`: one statement each.
//! * `apply.rs`: a query's rows into a table. `returning.rs`: `RETURNING`.

pub(crate) mod apply;
mod insert;
mod merge;
mod returning;
pub(crate) mod target;
mod truncate;
mod update;

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement, With};
use thalweg_base::{Error, Result};
use thalweg_storage::Snapshot;

use crate::access::Viewer;
use crate::session::Inner;
use crate::statement::Started;
use thalweg_runtime::Run;

pub(crate) use insert::inserts_values;

/// What a statement runs with.
pub(crate) struct Job<'a> {
    pub session: &'a Inner,
    pub run: &'a Run,
    pub state: &'a SessionState,
    pub snapshot: Arc<Snapshot>,
}

/// A statement of this module, apart from the `WITH` before it.
pub(crate) struct Change {
    with: Option<With>,
    statement: Statement,
}

impl Change {
    /// Whether a statement is one of those.
    pub fn is(statement: &Statement) -> bool {
        use {SetExpr as E, Statement as S};
        match statement {
            S::Query(query) => matches!(
                query.body.as_ref(),
                E::Insert(_) | E::Update(_) | E::Delete(_) | E::Merge(_)
            ),
            S::Insert(_) | S::Update(_) | S::Delete(_) | S::Merge(_) | S::Truncate(_) => true,
            _ => false,
        }
    }

    pub fn new(statement: Statement) -> Change {
        use SetExpr as E;
        match statement {
            Statement::Query(query) => match *query.body {
                E::Insert(inner) | E::Update(inner) | E::Delete(inner) | E::Merge(inner) => {
                    Change { with: query.with, statement: inner }
                }
                body => Change {
                    with: None,
                    statement: Statement::Query(Box::new(Query { body: Box::new(body), ..*query })),
                },
            },
            statement => Change { with: None, statement },
        }
    }

    pub async fn run(self, job: &Job<'_>) -> Result<Started> {
        match self.statement {
            Statement::Insert(insert) => insert::run(job, self.with, insert).await,
            Statement::Update(update) => update::update(job, self.with, update).await,
            Statement::Delete(delete) => update::delete(job, self.with, delete).await,
            Statement::Merge(merge) => merge::run(job, self.with, merge).await,
            Statement::Truncate(truncate) => truncate::run(job, truncate).await,
            other => Err(Error::internal(format!("{other} changes no rows"))),
        }
    }

    /// What DataFusion can plan of it, for `EXPLAIN`: the query that finds the rows, or the INSERT.
    pub fn planned(&self, snapshot: &Snapshot, viewer: &Viewer) -> Result<Option<Statement>> {
        let with = self.with.clone();
        let query = match &self.statement {
            Statement::Update(u) => update::query_of_update(snapshot, with, u)?,
            Statement::Delete(d) => update::query_of_delete(snapshot, with, d)?,
            Statement::Merge(m) => merge::query_of(snapshot, with, m)?,
            Statement::Insert(i) => return insert::planned(snapshot, with, i, viewer).map(Some),
            _ => return Ok(None),
        };
        Ok(Some(Statement::Query(Box::new(query))))
    }

    /// A query that gives what RETURNING gives, of all rows of the table; `None` if it gives none.
    pub fn returned(&self, snapshot: &Snapshot) -> Result<Option<Query>> {
        let (target, items) = match &self.statement {
            Statement::Insert(i) => (insert::target_of(snapshot, i), i.returning.as_ref()),
            Statement::Update(u) => (update::target_of_update(snapshot, u), u.returning.as_ref()),
            Statement::Delete(d) => (update::target_of_delete(snapshot, d), d.returning.as_ref()),
            _ => return Ok(None),
        };
        let Some(items) = items else { return Ok(None) };
        Ok(Some(returning::query(&target?, items.clone())))
    }

    pub fn is_insert(&self) -> bool {
        matches!(self.statement, Statement::Insert(_))
    }
}
