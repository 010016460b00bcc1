//! The catalog's relations for statements that are planned: joins with stored tables, views,
//! CREATE TABLE … AS.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result as DfResult;
use datafusion::datasource::{MemTable, TableType};
use thalweg_pgcatalog::ResultColumn;
use thalweg_pgcatalog::database::{Catalog, PG_CATALOG};
use thalweg_storage::Snapshot;

use thalweg_errors::into_datafusion;

use super::database::{Wanted, describe};
use super::environment::Seen;
use super::{answer, statics};
use crate::session::Inner;

/// As one statement sees it.
pub struct PgCatalog {
    pub session: Weak<Inner>,
    pub snapshot: Arc<Snapshot>,
}

impl fmt::Debug for PgCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PG_CATALOG)
    }
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    /// None, though there are: `SHOW TABLES` and `information_schema` list what is the database's.
    fn table_names(&self) -> Vec<String> {
        vec![]
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let Some(session) = self.session.upgrade().filter(|_| self.table_exist(name)) else {
            return Ok(None);
        };
        let wanted = Wanted { columns: name == "pg_attribute", definitions: name == "pg_views" };
        // Boxed: views that are planned for their columns may look up the catalog again.
        let database = Box::pin(describe(&session, &self.snapshot, wanted)).await;
        let seen = Seen::new(session, None, Arc::clone(&self.snapshot), database);
        let relation = thalweg_pgcatalog::Environment::relation(&seen, PG_CATALOG, name)
            .map_err(into_datafusion)?;
        let Some(relation) = relation else { return Ok(None) };
        let column = |c: &thalweg_pgcatalog::Column| ResultColumn {
            name: c.name.clone(),
            oid: c.oid,
            typmod: -1,
        };
        let columns: Vec<_> = relation.columns.iter().map(column).collect();
        let batch = answer::rows(&columns, &relation.rows, &seen).map_err(into_datafusion)?;
        Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
    }

    async fn table_type(&self, name: &str) -> DfResult<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::View))
    }

    fn table_exist(&self, name: &str) -> bool {
        Catalog::knows(&statics::statics(), PG_CATALOG, name)
    }
}
