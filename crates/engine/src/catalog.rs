//! The database's schemas, as the snapshot a session's statement runs on shows them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::{TableType, ViewTable};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use parking_lot::RwLock;
use std::sync::Weak;
use thalweg_base::{Error, text::quoted};
use thalweg_storage::{Database, Schema, Snapshot};

use crate::error::into_datafusion;
use crate::exec::Source;
use crate::files;
use crate::statement;
use crate::table::StoredTable;

/// The one catalog's name, as `information_schema` shows it.
pub const CATALOG: &str = "thalweg";
/// Where a table without a schema name lives.
pub const PUBLIC: &str = "public";
/// Views inside views; deeper is taken for a view that refers to itself.
const VIEW_DEPTH_MAX: usize = 32;

/// One per session. Every statement first moves it to the newest snapshot and then sees only
/// that one.
pub struct Catalog {
    database: Database,
    snapshot: RwLock<Arc<Snapshot>>,
    /// To plan views and external tables, which are stored as text.
    state: RwLock<Weak<RwLock<SessionState>>>,
    view_depth: AtomicUsize,
}

impl Catalog {
    pub fn new(database: Database) -> Arc<Self> {
        Arc::new(Catalog {
            snapshot: RwLock::new(database.snapshot()),
            database,
            state: RwLock::default(),
            view_depth: AtomicUsize::new(0),
        })
    }

    pub fn bind(&self, state: Weak<RwLock<SessionState>>) {
        *self.state.write() = state;
    }

    /// Moves to the newest snapshot.
    pub fn refresh(&self) -> Arc<Snapshot> {
        let newest = self.database.snapshot();
        *self.snapshot.write() = Arc::clone(&newest);
        newest
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    fn state(&self) -> Result<SessionState> {
        let state = self.state.read().upgrade();
        let state =
            state.ok_or_else(|| into_datafusion(Error::internal("the session is closed")))?;
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
#[derive(Debug)]
pub struct Handle(pub Arc<Catalog>);

impl CatalogProvider for Handle {
    fn schema_names(&self) -> Vec<String> {
        self.0.snapshot().schemas.keys().cloned().collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let snapshot = self.0.snapshot();
        let schema = Arc::clone(snapshot.schemas.get(name)?);
        Some(Arc::new(SchemaHandle { catalog: Arc::clone(&self.0), snapshot, schema }))
    }
}

struct SchemaHandle {
    catalog: Arc<Catalog>,
    snapshot: Arc<Snapshot>,
    schema: Arc<Schema>,
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
        if let Some(table) = self.schema.tables.get(name) {
            let source = Source {
                database: self.catalog.database.clone(),
                snapshot: Arc::clone(&self.snapshot),
                table: Arc::clone(table),
                name: self.qualified(name),
            };
            return Ok(Some(Arc::new(StoredTable::new(source))));
        }
        if let Some(view) = self.schema.views.get(name) {
            return self.view(name, &view.sql).await.map(Some);
        }
        if let Some(external) = self.schema.externals.get(name) {
            return self.external(name, &external.sql).await.map(Some);
        }
        if self.schema.name == PUBLIC {
            return files::table(name, &self.catalog.state()?).await;
        }
        Ok(None)
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
    fn qualified(&self, name: &str) -> String {
        if self.schema.name == PUBLIC {
            name.into()
        } else {
            format!("{}.{name}", self.schema.name)
        }
    }

    /// Views are stored as their `CREATE VIEW` text and planned anew, so that they follow their
    /// tables.
    async fn view(&self, name: &str, sql: &str) -> Result<Arc<dyn TableProvider>> {
        let depth = self.catalog.view_depth.fetch_add(1, Ordering::Relaxed);
        let planned = if depth >= VIEW_DEPTH_MAX {
            Err(into_datafusion(
                Error::user(format!("view {} refers to itself", quoted(name)))
                    .hint("replace it with CREATE OR REPLACE VIEW"),
            ))
        } else {
            self.plan_text(sql).await
        };
        self.catalog.view_depth.fetch_sub(1, Ordering::Relaxed);
        match planned.map_err(|e| e.context(format!("view {}", quoted(name))))? {
            LogicalPlan::Ddl(DdlStatement::CreateView(view)) => {
                let plan = Arc::unwrap_or_clone(view.input);
                Ok(Arc::new(ViewTable::new(plan, Some(sql.to_string()))))
            }
            _ => Err(broken("view", name)),
        }
    }

    async fn external(&self, name: &str, sql: &str) -> Result<Arc<dyn TableProvider>> {
        match without_tables(&self.catalog.state()?).create_logical_plan(sql).await? {
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(command)) => {
                files::external(&command, &self.catalog.state()?).await
            }
            _ => Err(broken("external table", name)),
        }
    }

    async fn plan_text(&self, sql: &str) -> Result<LogicalPlan> {
        // Boxed: a view's plan may look up another view.
        let state = self.catalog.state()?;
        Box::pin(async move {
            let statement = statement::parse(&state, sql).map_err(into_datafusion)?;
            statement::plan(&state, statement).await
        })
        .await
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
