//! Attached databases as DataFusion's catalog has them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::Result as DfResult;
use datafusion::datasource::TableType;
use thalweg_base::Error;
use thalweg_errors::into_datafusion;

use super::Catalog;
use crate::access::Viewer;
use crate::attach::{Attached, check_reads};

/// An attached database as DataFusion's catalog; every schema may be there.
pub struct AttachedCatalog {
    pub attached: Arc<Attached>,
    pub catalog: Arc<Catalog>,
}

impl fmt::Debug for AttachedCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttachedCatalog({})", self.attached.kind())
    }
}

impl CatalogProvider for AttachedCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let (attached, catalog) = (Arc::clone(&self.attached), Arc::clone(&self.catalog));
        let viewer = catalog.viewer();
        Some(Arc::new(AttachedSchema { attached, catalog, name: name.to_owned(), viewer }))
    }
}

/// One schema of an attached database.
pub struct AttachedSchema {
    pub attached: Arc<Attached>,
    pub catalog: Arc<Catalog>,
    pub name: String,
    pub viewer: Viewer,
}

impl fmt::Debug for AttachedSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttachedSchema({})", self.name)
    }
}

#[async_trait]
impl SchemaProvider for AttachedSchema {
    /// Nobody lists them this way: it would be a question to another machine.
    fn table_names(&self) -> Vec<String> {
        vec![]
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        check_reads(&self.viewer).map_err(into_datafusion)?;
        if name.contains('\0') {
            return Err(into_datafusion(
                Error::unsupported("a table of an attached database is read as it is now")
                    .hint("leave AS OF out, and `SET thalweg.as_of` as well"),
            ));
        }
        self.attached.table(&self.name, name, self.catalog.zone().as_deref()).await
    }

    async fn table_type(&self, _: &str) -> DfResult<Option<TableType>> {
        Ok(None)
    }

    fn table_exist(&self, _: &str) -> bool {
        false
    }
}
