//! The database's schemas, as the snapshot a session's statement runs on shows them.

mod attached;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::{TableType, ViewTable};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use parking_lot::{Mutex, RwLock};
use thalweg_base::text::quoted;
use thalweg_base::{Error, SnapshotId};
use thalweg_storage::{AsOf, Database, RelationKind, Schema, Snapshot, Table};

use thalweg_errors::{from_datafusion, into_datafusion};
use thalweg_exec::{Loading, Source};
use thalweg_plan::zones::has_instants;
use thalweg_runtime::blocking;

use self::attached::{AttachedCatalog, AttachedSchema};
use crate::access::{PG_READ_SERVER_FILES, Privilege, Registry, Viewer};
use crate::attach::{Attached, Attachments};
use crate::files::{self, Known, Reading};
use crate::names::{CATALOG, PUBLIC, ROWS, SYSTEM, TARGET};
use crate::pg::{self, PG_CATALOG};
use crate::table::StoredTable;
use crate::transaction::Transactions;

/// Views inside views; deeper is taken for a view that refers to itself.
const VIEW_DEPTH_MAX: usize = 32;

/// One per session. Every statement first shows it a snapshot and then sees only that one, but
/// for tables that it asks for as they were.
///
/// Names with a NUL cannot be typed, and mean something else: [`ROWS`], an older version of the
/// relation (`t␀12`), or a table of the statement's own.
pub struct Catalog {
    database: Database,
    loading: Arc<Loading>,
    files: Arc<Known>,
    transactions: Arc<Transactions>,
    snapshot: RwLock<Arc<Snapshot>>,
    access: Arc<Registry>,
    /// Who the statement runs for.
    viewer: RwLock<Viewer>,
    /// Older snapshots that the statement names.
    versions: Mutex<HashMap<SnapshotId, Arc<Snapshot>>>,
    /// Tables of the statement's own, by name.
    offers: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
    /// To plan views and external tables, which are stored as text.
    state: RwLock<Weak<RwLock<SessionState>>>,
    /// The session whose catalog it is.
    host: RwLock<Option<Weak<dyn Host>>>,
    view_depth: AtomicUsize,
    attachments: Arc<Attachments>,
}

/// What a catalog leaves to its session: schemas that show more than what is stored, and the plans of
/// views, which are statements.
#[async_trait]
pub trait Host: Send + Sync {
    /// `system`, `pg_catalog` or `information_schema`, of a snapshot and as `viewer` sees it.
    fn schema(
        self: Arc<Self>,
        name: &str,
        catalog: &Handle,
        snapshot: Arc<Snapshot>,
        viewer: Viewer,
    ) -> Option<Arc<dyn SchemaProvider>>;

    /// The plan of the text of a view; `version` is the snapshot that it is to read, if that is another
    /// than the statement's.
    async fn plan_view(
        &self,
        state: SessionState,
        sql: &str,
        version: Option<SnapshotId>,
    ) -> Result<LogicalPlan>;
}

/// A table that a statement can name as long as this lives.
pub struct Offer<'a> {
    catalog: &'a Catalog,
    name: String,
}

impl Offer<'_> {
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        self.catalog.offers.lock().remove(&self.name);
    }
}

impl Catalog {
    pub fn new(
        database: Database,
        loading: Arc<Loading>,
        files: Arc<Known>,
        transactions: Arc<Transactions>,
        access: Arc<Registry>,
    ) -> Arc<Self> {
        Arc::new(Catalog {
            snapshot: RwLock::new(database.snapshot()),
            database,
            loading,
            files,
            transactions,
            access,
            viewer: RwLock::new(Viewer::superuser()),
            versions: Mutex::default(),
            offers: Mutex::default(),
            state: RwLock::default(),
            host: RwLock::default(),
            view_depth: AtomicUsize::new(0),
            attachments: Arc::default(),
        })
    }

    pub fn bind(&self, state: Weak<RwLock<SessionState>>) {
        *self.state.write() = state;
    }

    pub fn serve(&self, host: Weak<dyn Host>) {
        *self.host.write() = Some(host);
    }

    fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.read().as_ref()?.upgrade()
    }

    /// Moves to the snapshot of the next statement, which runs for `viewer`.
    pub fn show(&self, snapshot: &Arc<Snapshot>, viewer: &Viewer) {
        self.versions.lock().clear();
        self.attachments.begin_statement();
        *self.viewer.write() = viewer.clone();
        *self.snapshot.write() = Arc::clone(snapshot);
    }

    /// Moves to one that [`Catalog::version`] has found.
    pub fn show_version(&self, id: SnapshotId) -> Arc<Snapshot> {
        if let Some(version) = self.versions.lock().get(&id) {
            *self.snapshot.write() = Arc::clone(version);
        }
        self.snapshot()
    }

    /// Whether the statement names older snapshots.
    pub fn shows_versions(&self) -> bool {
        !self.versions.lock().is_empty()
    }

    /// Whether it is one of these.
    fn is_version(&self, snapshot: &Arc<Snapshot>) -> bool {
        self.versions.lock().get(&snapshot.id).is_some_and(|own| Arc::ptr_eq(own, snapshot))
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    pub fn viewer(&self) -> Viewer {
        self.viewer.read().clone()
    }

    /// Finds an older snapshot, which names such as `t␀12` can be looked up in from now on.
    pub async fn version(&self, as_of: AsOf) -> thalweg_base::Result<SnapshotId> {
        let database = self.database.clone();
        let found = blocking(move || database.snapshot_at(as_of)).await;
        let snapshot = found.map_err(from_datafusion)?;
        let id = snapshot.id;
        self.versions.lock().insert(id, snapshot);
        Ok(id)
    }

    /// Lets the statement name a table of its own.
    pub fn offer(&self, table: Arc<dyn TableProvider>) -> Offer<'_> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rows\0offer{number}");
        self.offers.lock().insert(name.clone(), table);
        Offer { catalog: self, name }
    }

    /// Other databases that the session reads.
    pub fn attachments(&self) -> &Arc<Attachments> {
        &self.attachments
    }

    /// One of them, unless a view is being planned: what is stored depends on none.
    fn attached(&self, name: &str) -> Option<Arc<Attached>> {
        match self.view_depth.load(Ordering::Relaxed) {
            0 => self.attachments.find(name),
            _ => None,
        }
    }

    /// The zone in which the session sees instants.
    pub fn zone(&self) -> Option<String> {
        let state = self.state.read().upgrade()?;
        let state = state.read();
        state.config_options().execution.time_zone.clone()
    }

    fn state(&self) -> Result<SessionState> {
        let state = self.state.read().upgrade();
        let state = state.ok_or_else(closed)?;
        let state = state.read();
        Ok(state.clone())
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CATALOG)
    }
}

/// The provider DataFusion holds; it hands out schemas of the catalog's present snapshot.
#[derive(Clone, Debug)]
pub struct Handle {
    pub catalog: Arc<Catalog>,
    /// Whose view is being planned; `None`: the statement's own names are looked up.
    viewer: Option<Viewer>,
}

impl Handle {
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Handle { catalog, viewer: None }
    }
}

impl Handle {
    /// Files that a statement, or the view that is being planned, reads by a call.
    ///
    /// # Errors
    /// Whoever wants them may not read files, or they cannot be read so.
    pub async fn read(&self, reading: &Reading) -> Result<Arc<dyn TableProvider>> {
        let viewer = self.viewer.clone().unwrap_or_else(|| self.catalog.viewer());
        check_reads_files(&viewer)?;
        files::read(reading, &self.catalog.state()?, &self.catalog.files).await
    }
}

fn check_reads_files(viewer: &Viewer) -> Result<()> {
    let may = viewer.check_member(PG_READ_SERVER_FILES, "read files of the server");
    may.map_err(into_datafusion)
}

impl CatalogProvider for Handle {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.catalog.snapshot().schemas.keys().cloned().collect();
        names.push(SYSTEM.into());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let catalog = &self.catalog;
        let snapshot = catalog.snapshot();
        let viewer = self.viewer.clone().unwrap_or_else(|| catalog.viewer());
        match name {
            SYSTEM | PG_CATALOG | INFORMATION_SCHEMA => {
                catalog.host()?.schema(name, self, snapshot, viewer)
            }
            _ => {
                let catalog = Arc::clone(catalog);
                let Some(schema) = snapshot.schemas.get(name).map(Arc::clone) else {
                    let attached = catalog.attached(name)?;
                    let name = attached.default_schema().to_owned();
                    return Some(Arc::new(AttachedSchema { attached, catalog, name, viewer }));
                };
                Some(Arc::new(SchemaHandle { catalog, snapshot, schema, viewer }))
            }
        }
    }
}

/// The session's own database, and those that are attached, by their names. Only the own one is listed:
/// `information_schema` asks no other machine.
#[derive(Debug)]
pub struct Catalogs(Arc<Handle>);

impl Catalogs {
    pub fn new(catalog: &Arc<Catalog>) -> Self {
        Catalogs(Arc::new(Handle::new(Arc::clone(catalog))))
    }
}

impl CatalogProviderList for Catalogs {
    fn register_catalog(
        &self,
        _: String,
        _: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        if name == CATALOG {
            return Some(Arc::clone(&self.0) as _);
        }
        let catalog = Arc::clone(&self.0.catalog);
        let attached = catalog.attached(name)?;
        Some(Arc::new(AttachedCatalog { attached, catalog }))
    }
}

struct SchemaHandle {
    catalog: Arc<Catalog>,
    snapshot: Arc<Snapshot>,
    schema: Arc<Schema>,
    viewer: Viewer,
}

impl fmt::Debug for SchemaHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.schema.name)
    }
}

#[async_trait]
impl SchemaProvider for SchemaHandle {
    fn table_names(&self) -> Vec<String> {
        let s = &self.schema;
        s.tables.keys().chain(s.views.keys()).chain(s.externals.keys()).cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match name.split_once('\0') {
            None => {
                self.check_readable(name)?;
                self.relation(name, None).await
            }
            // What the statement may do with these has been checked by its text.
            Some((name, TARGET)) => self.relation(name, None).await,
            Some((name, ROWS)) => match self.schema.tables.get(name) {
                Some(table) => {
                    let source = self.source(table, name).await?;
                    Ok(Some(Arc::new(self.stored(source, true))))
                }
                None => Ok(None),
            },
            Some((base, version)) => match version.parse() {
                Ok(id) => self.as_of(base, SnapshotId(id)).await,
                Err(_) => Ok(self.catalog.offers.lock().get(name).cloned()),
            },
        }
    }

    /// Without planning a view: `information_schema.tables` lists those that no longer can be, too.
    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        if self.schema.views.contains_key(name) {
            return Ok(Some(TableType::View));
        }
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.schema.relation(name).is_some()
    }
}

impl SchemaHandle {
    /// `version` is the snapshot that the statement names for it, if that is another than its own.
    async fn relation(
        &self,
        name: &str,
        version: Option<SnapshotId>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.schema.tables.get(name) {
            let source = self.source(table, name).await?;
            return Ok(Some(Arc::new(self.stored(source, false))));
        }
        if let Some(view) = self.schema.views.get(name) {
            return self.view(name, &view.sql, version).await.map(Some);
        }
        if let Some(external) = self.schema.externals.get(name) {
            return self.external(name, &external.sql).await.map(Some);
        }
        // As if `pg_catalog` were on the path.
        if self.schema.name == PUBLIC
            && pg::is_relation(name)
            && let Some(schema) = Handle::new(Arc::clone(&self.catalog)).schema(PG_CATALOG)
        {
            return schema.table(name).await;
        }
        if self.schema.name == PUBLIC && files::is_path(name) {
            check_reads_files(&self.viewer)?;
            return files::table(name, &self.catalog.state()?, &self.catalog.files).await;
        }
        Ok(None)
    }

    async fn as_of(&self, name: &str, id: SnapshotId) -> Result<Option<Arc<dyn TableProvider>>> {
        let version = self.catalog.versions.lock().get(&id).cloned();
        let Some(snapshot) = version else { return Ok(None) };
        let schema = snapshot.schemas.get(&self.schema.name).cloned();
        let schema = schema.unwrap_or_else(|| Arc::new(Schema::new(&self.schema.name)));
        let then = SchemaHandle {
            catalog: Arc::clone(&self.catalog),
            snapshot,
            schema,
            viewer: self.viewer.clone(),
        };
        self.check_readable_then(name, &then)?;
        match then.relation(name, Some(id)).await? {
            Some(relation) => Ok(Some(relation)),
            None => Err(into_datafusion(
                Error::user(format!(
                    "there is no table {} in snapshot {id}",
                    quoted(&self.qualified(name))
                ))
                .code("42P01")
                .hint("SELECT * FROM system.snapshots says when what was changed"),
            )),
        }
    }

    fn check_readable(&self, name: &str) -> Result<()> {
        if self.catalog.is_version(&self.snapshot) {
            return self.check_readable_then(name, self);
        }
        let Some(kind) = self.schema.relation(name) else { return Ok(()) };
        let checked = self.viewer.check_relation(Privilege::Select, &self.schema.name, name, kind);
        checked.map_err(into_datafusion)
    }

    /// As something was in an older snapshot. Rights are of today, and of the relation that has the
    /// name today: what had it then may have been another's.
    fn check_readable_then(&self, name: &str, then: &SchemaHandle) -> Result<()> {
        if self.viewer.is_superuser() || then.schema.relation(name).is_none() {
            return Ok(());
        }
        let now = self.catalog.database.snapshot();
        let now = now.schemas.get(&self.schema.name);
        let found = now.and_then(|now| {
            if let Some(table) = then.schema.tables.get(name) {
                let same = now.tables.values().find(|t| t.id == table.id)?;
                return Some((same.name.clone(), RelationKind::Table));
            }
            let text = |s: &Schema| s.views.get(name).map(|v| v.sql.clone());
            let location = |s: &Schema| s.externals.get(name).map(|e| e.sql.clone());
            let same = text(&then.schema) == text(now) && location(&then.schema) == location(now);
            Some((name.to_owned(), now.relation(name).filter(|_| same)?))
        });
        let checked = match found {
            Some((name, kind)) => {
                self.viewer.check_relation(Privilege::Select, &self.schema.name, &name, kind)
            }
            None => self.viewer.check_superuser("read what is not there any more"),
        };
        checked.map_err(into_datafusion)
    }

    fn stored(&self, source: Source, row_ids: bool) -> StoredTable {
        let fields = source.table.arrow_schema.fields();
        let zone = match fields.iter().any(|field| has_instants(field.data_type())) {
            true => self.catalog.zone(),
            false => None,
        };
        let transactions = &self.catalog.transactions;
        StoredTable::new(source, row_ids, transactions, zone.as_deref())
    }

    /// The table with its metadata; the first query of a table waits here for the store.
    async fn source(&self, table: &Arc<Table>, name: &str) -> Result<Source> {
        let contents = if table.is_open() {
            table.contents().map_err(into_datafusion)?
        } else {
            let table = Arc::clone(table);
            blocking(move || table.contents()).await?
        };
        Ok(Source {
            database: self.catalog.database.clone(),
            loading: Arc::clone(&self.catalog.loading),
            snapshot: Arc::clone(&self.snapshot),
            table: Arc::clone(table),
            contents,
            name: self.qualified(name),
        })
    }

    fn qualified(&self, name: &str) -> String {
        if self.schema.name == PUBLIC {
            name.into()
        } else {
            format!("{}.{name}", self.schema.name)
        }
    }

    /// Views are stored as their `CREATE VIEW` text and planned anew, so that they follow their
    /// tables.
    async fn view(
        &self,
        name: &str,
        sql: &str,
        version: Option<SnapshotId>,
    ) -> Result<Arc<dyn TableProvider>> {
        let depth = self.catalog.view_depth.fetch_add(1, Ordering::Relaxed);
        let planned = if depth >= VIEW_DEPTH_MAX {
            Err(into_datafusion(
                Error::user(format!("view {} refers to itself", quoted(name)))
                    .hint("replace it with CREATE OR REPLACE VIEW"),
            ))
        } else {
            self.plan_text(name, sql, version).await
        };
        self.catalog.view_depth.fetch_sub(1, Ordering::Relaxed);
        // Places are those of the view's text, which the statement does not have.
        match planned.map_err(|e| into_datafusion(from_datafusion(e).nowhere()))? {
            LogicalPlan::Ddl(DdlStatement::CreateView(view)) => {
                let plan = Arc::unwrap_or_clone(view.input);
                Ok(Arc::new(ViewTable::new(plan, Some(sql.to_string()))))
            }
            _ => Err(broken("view", name)),
        }
    }

    /// What a view reads, it reads for its owner.
    fn state_of_owner(&self, name: &str) -> Result<SessionState> {
        let state = self.catalog.state()?;
        let (registry, snapshot) = (&self.catalog.access, self.catalog.snapshot());
        let owner = self.viewer.of_view(registry, &snapshot, &self.schema.name, name);
        let owner = owner.map_err(into_datafusion)?;
        if owner.is_superuser() && self.viewer.is_superuser() {
            return Ok(state);
        }
        let catalogs = MemoryCatalogProviderList::new();
        let handle = Handle { catalog: Arc::clone(&self.catalog), viewer: Some(owner) };
        catalogs.register_catalog(CATALOG.into(), Arc::new(handle));
        Ok(SessionStateBuilder::new_from_existing(state)
            .with_catalog_list(Arc::new(catalogs))
            .build())
    }

    async fn external(&self, name: &str, sql: &str) -> Result<Arc<dyn TableProvider>> {
        match without_tables(&self.catalog.state()?).create_logical_plan(sql).await? {
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(command)) => {
                files::external(&command, &self.catalog.state()?, &self.catalog.files).await
            }
            _ => Err(broken("external table", name)),
        }
    }

    async fn plan_text(
        &self,
        name: &str,
        sql: &str,
        version: Option<SnapshotId>,
    ) -> Result<LogicalPlan> {
        let state = self.state_of_owner(name)?;
        let host = self.catalog.host().ok_or_else(closed)?;
        host.plan_view(state, sql, version).await
    }
}

/// A state that knows no table. DataFusion looks up the very table a `CREATE EXTERNAL TABLE`
/// names: one that is being read would look itself up for ever, and one whose files are gone
/// could not be replaced.
pub(crate) fn without_tables(state: &SessionState) -> SessionState {
    SessionStateBuilder::new_from_existing(state.clone())
        .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
        .build()
}

fn broken(what: &str, name: &str) -> DataFusionError {
    into_datafusion(Error::corrupt(format!("the stored text of {what} {} is broken", quoted(name))))
}

fn closed() -> DataFusionError {
    into_datafusion(Error::internal("the session is closed"))
}
