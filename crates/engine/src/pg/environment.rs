//! What a query over the catalog sees of a session.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_base::{Error, Result};
use thalweg_pgcatalog::database::{Catalog, Database};
use thalweg_pgcatalog::{Environment, Oid, Privilege, Relation};
use thalweg_storage::Snapshot;

use thalweg_runtime::Run;

use super::{command, database, roles, settings, statics};
use crate::names::CATALOG;
use crate::session::Inner;

pub struct Seen {
    pub session: Arc<Inner>,
    pub run: Option<Arc<Run>>,
    pub snapshot: Arc<Snapshot>,
    user: String,
    catalog: Catalog,
}

impl Seen {
    pub fn new(
        session: Arc<Inner>,
        run: Option<Arc<Run>>,
        snapshot: Arc<Snapshot>,
        database: Database,
    ) -> Self {
        let user = roles::current(&session);
        let catalog = Catalog::new(statics::statics(), database);
        Seen { session, run, snapshot, user, catalog }
    }
}

fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

impl Environment for Seen {
    fn relation(&self, schema: &str, name: &str) -> Result<Option<Arc<Relation>>> {
        self.catalog.relation(schema, name)
    }

    fn database(&self) -> &str {
        CATALOG
    }

    fn user(&self) -> &str {
        &self.user
    }

    /// Without schemas that are not there.
    fn search_path(&self) -> Vec<String> {
        let value = self.session.pg.lock().get("search_path").unwrap_or_default();
        let mut path = settings::path(&value);
        path.retain(|schema| self.snapshot.schemas.contains_key(schema));
        path
    }

    fn backend_pid(&self) -> i64 {
        self.session.id as i64
    }

    fn now_us(&self) -> i64 {
        micros(SystemTime::now())
    }

    fn started_us(&self) -> i64 {
        micros(self.session.engine.started())
    }

    fn setting(&self, name: &str) -> Option<String> {
        command::value(&self.session, name)
    }

    fn set(&self, name: &str, value: &str, local: bool) -> Result<String> {
        let lower = name.to_ascii_lowercase();
        if lower.starts_with("thalweg.") || lower.starts_with("datafusion.") {
            return Err(Error::unsupported(format!("set_config cannot set {name}"))
                .hint(format!("write SET {name} = …")));
        }
        command::set_value(&self.session, name, value, local)
    }

    fn definition(&self, relation: Oid) -> Option<String> {
        let (schema, name) = database::find(&self.snapshot, relation)?;
        let view = self.snapshot.schemas.get(schema)?.views.get(name)?;
        Some(database::query_of(&view.sql))
    }

    fn stored_bytes(&self, relation: Oid) -> Option<u64> {
        self.catalog.table(relation).map(|table| table.bytes)
    }

    fn may(&self, user: Option<&str>, what: Privilege, on: Oid, privilege: &str) -> bool {
        roles::may(&self.session, user, what, on, privilege)
    }

    fn stopped(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.cancelled().is_some())
    }
}
