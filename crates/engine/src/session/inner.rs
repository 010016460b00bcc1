//! What a session is, for those who run its statements.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use thalweg_base::Result;
use thalweg_storage::Snapshot;

use crate::access::{Access, Identity, Viewer};
use crate::catalog::Catalog;
use crate::engine::Engine;
use crate::pg;
use crate::running::Job;
use crate::transaction::Transactions;

pub(crate) struct Inner {
    /// As `system.queries` shows it.
    pub id: u64,
    pub engine: Arc<Engine>,
    pub context: SessionContext,
    pub catalog: Arc<Catalog>,
    /// The text of `PREPARE name …`, planned anew when the tables have changed.
    pub prepared: Mutex<HashMap<String, String>>,
    pub transactions: Arc<Transactions>,
    pub identity: Identity,
    /// PostgreSQL's settings.
    pub pg: Mutex<pg::Settings>,
    /// Held by a statement until it has its rows to give, or is done.
    pub turn: tokio::sync::Mutex<()>,
    pub running: Mutex<Vec<Weak<Job>>>,
}

impl Inner {
    /// Roles and grants as the next statement finds them.
    pub fn access(&self) -> Result<Arc<Access>> {
        let registry = self.engine.access();
        match self.transactions.changed() {
            Some((base, work)) => registry.within(&base, &work),
            None => registry.newest(),
        }
    }

    /// Who the next statement runs for.
    pub fn viewer(&self) -> Result<Viewer> {
        let changed = self.transactions.changed();
        let changed = changed.as_ref().map(|(base, work)| (base.as_ref(), work.as_ref()));
        self.identity.viewer(self.engine.access(), changed)
    }

    /// Begins a statement for the session's role: the snapshot it reads, and who it runs for.
    pub fn begin_statement(&self) -> Result<(Arc<Snapshot>, Viewer)> {
        let snapshot = self.transactions.begin_statement()?;
        let viewer = self.viewer()?;
        self.transactions.make_for(viewer.role());
        self.catalog.show(&snapshot, &viewer);
        Ok((snapshot, viewer))
    }
}
