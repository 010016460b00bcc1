//! What the catalog leaves to its session: schemas that are not stored, and the plans of views.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::SchemaProvider;
use datafusion::catalog::information_schema::{INFORMATION_SCHEMA, InformationSchemaProvider};
use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use thalweg_base::SnapshotId;
use thalweg_errors::into_datafusion;
use thalweg_storage::Snapshot;

use crate::access::Viewer;
use crate::as_of;
use crate::catalog::{Handle, Host};
use crate::information::Information;
use crate::names::SYSTEM;
use crate::pg::{PG_CATALOG, PgCatalog};
use crate::session::Inner;
use crate::statement;
use crate::system::SystemSchema;

#[async_trait]
impl Host for Inner {
    fn schema(
        self: Arc<Self>,
        name: &str,
        catalog: &Handle,
        snapshot: Arc<Snapshot>,
        viewer: Viewer,
    ) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SYSTEM => Some(Arc::new(SystemSchema {
                database: self.engine.database().clone(),
                driver: Arc::clone(self.engine.runtime().driver()),
                last: self.transactions.base().unwrap_or(snapshot.id).min(snapshot.id),
                access: Arc::clone(self.engine.access()),
                snapshot,
                viewer,
                state: self.context.state_weak_ref(),
                attachments: Arc::clone(self.catalog.attachments()),
            })),
            PG_CATALOG => Some(Arc::new(PgCatalog { session: Arc::downgrade(&self), snapshot })),
            INFORMATION_SCHEMA => {
                let state = self.context.state_ref();
                let state = state.read();
                let inner = InformationSchemaProvider::new(Arc::clone(state.catalog_list()))
                    .with_table_functions(state.table_functions().clone());
                Some(Arc::new(Information { inner, catalog: catalog.clone(), snapshot }))
            }
            _ => None,
        }
    }

    async fn plan_view(
        &self,
        state: SessionState,
        sql: &str,
        version: Option<SnapshotId>,
    ) -> Result<LogicalPlan> {
        let mut statement = statement::parse(&state, sql).map_err(into_datafusion)?;
        if let Some(id) = version {
            as_of::pin(&mut statement, id);
        }
        let resolved = as_of::resolve(&self.catalog, &state, &mut statement).await;
        resolved.map_err(into_datafusion)?;
        statement::plan(&state, statement).await
    }
}
