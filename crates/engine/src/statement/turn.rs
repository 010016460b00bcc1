//! What every statement of a session begins and ends with, whatever it is.

use std::sync::Arc;

use datafusion::execution::SessionState;
use thalweg_base::{Error, Result};
use thalweg_runtime::Run;
use thalweg_storage::Snapshot;

use crate::access::{Audit, Event, Viewer, audit};
use crate::as_of;
use crate::config::Settings;
use crate::session::Inner;

/// Shows the session the snapshot that the next statement reads.
pub(crate) async fn begin(
    session: &Inner,
    state: &SessionState,
) -> Result<(Arc<Snapshot>, Viewer)> {
    session.transactions.settle().await?;
    begin_unsettled(session, state).await
}

/// The same for a statement that reads no rows: those that the transaction holds stay as they are.
pub(crate) async fn begin_unsettled(
    session: &Inner,
    state: &SessionState,
) -> Result<(Arc<Snapshot>, Viewer)> {
    let settings = state.config_options().extensions.get::<Settings>();
    let past = settings.map(|s| s.as_of.clone()).filter(|text| !text.is_empty());
    session.transactions.refresh().await?;
    let (snapshot, viewer) = session.begin_statement()?;
    let Some(text) = past else { return Ok((snapshot, viewer)) };
    let id = session.catalog.version(as_of::parse(state, &text)?).await;
    let id = id.map_err(|e| e.context("thalweg.as_of"))?;
    let snapshot = session.catalog.show_version(id);
    session.transactions.read_past();
    Ok((snapshot, viewer))
}

/// Ends the statement for its transaction, also if it is cancelled.
pub(crate) struct Ended<'a> {
    pub session: &'a Inner,
    pub succeeded: bool,
}

impl Ended<'_> {
    pub fn with(mut self, succeeded: bool) {
        self.succeeded = succeeded;
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.session.transactions.end_statement(self.succeeded);
    }
}

/// Writes to the audit log what the log is to have.
pub(crate) fn note(session: &Inner, sql: &str, error: Option<&Error>) {
    let level = session.engine.audit();
    let (wanted_at, class) = audit::class(sql);
    let denied = error.is_some_and(|e| e.sqlstate() == "42501");
    if level == Audit::None || (level < wanted_at && !denied) {
        return;
    }
    let ((_, user), (_, role)) = (session.identity.session(), session.identity.current());
    Event::new("statement")
        .text("user", &user)
        .text("role", &role)
        .number("session", session.id)
        .number("query", Run::current().map_or(0, |run| run.id().0))
        .text("class", class)
        .statement(sql)
        .outcome(error)
        .write();
}
