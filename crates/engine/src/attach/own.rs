//! Another database of Thalweg.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result as DfResult, Statistics};
use datafusion::datasource::TableType;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::{Database, Options, Snapshot, load};

use thalweg_errors::into_datafusion;
use thalweg_exec::{Loading, Source};
use thalweg_plan::zones::has_instants;
use thalweg_runtime::blocking;

use crate::names::PUBLIC;
use crate::table::StoredTable;
use crate::transaction::Transactions;

/// Decoded chunks of it that are kept in memory; those of the session's own database come first.
const CACHE_BYTES_MAX: u64 = 256 << 20;

pub struct Own {
    location: String,
    database: Database,
    loading: Arc<Loading>,
    /// A stored table wants to know where rows would go.
    transactions: Arc<Transactions>,
    /// What the statement that runs sees, once it has asked.
    seen: Mutex<Option<Arc<Snapshot>>>,
}

impl Own {
    /// Blocking.
    ///
    /// # Errors
    /// There is no database.
    pub fn open(location: &str) -> Result<Self> {
        let location = match location.contains("://") {
            true => location.to_owned(),
            false => load::home(location),
        };
        // Nothing of it is changed, also not what a crash has left behind.
        let options = Options {
            create: false,
            sweep: false,
            cache_bytes_max: CACHE_BYTES_MAX,
            ..Options::default()
        };
        let database = Database::open_at(&location, options)?;
        let transactions = Arc::new(Transactions::new(database.clone()));
        let loading = Arc::default();
        Ok(Own { location, database, loading, transactions, seen: Mutex::default() })
    }

    pub fn location(&self) -> &str {
        &self.location
    }

    pub fn begin_statement(&self) {
        *self.seen.lock() = None;
    }

    /// One for the whole statement.
    async fn snapshot(&self) -> DfResult<Arc<Snapshot>> {
        if let Some(seen) = self.seen.lock().clone() {
            return Ok(seen);
        }
        let database = self.database.clone();
        let newest = blocking(move || database.refresh()).await?;
        Ok(Arc::clone(self.seen.lock().get_or_insert(newest)))
    }

    pub async fn tables(&self) -> DfResult<Vec<(String, String)>> {
        let snapshot = self.snapshot().await?;
        let schemas = snapshot.schemas.values();
        let names =
            schemas.flat_map(|s| s.tables.keys().map(|name| (s.name.clone(), name.clone())));
        Ok(names.collect())
    }

    pub async fn table(
        &self,
        schema: &str,
        name: &str,
        zone: Option<&str>,
    ) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let snapshot = self.snapshot().await?;
        let Some(found) = snapshot.schemas.get(schema) else { return Ok(None) };
        let Some(table) = found.tables.get(name) else {
            return match found.relation(name) {
                Some(kind) => Err(into_datafusion(
                    Error::unsupported(format!(
                        "{} is a {} of an attached database, of which only tables are read",
                        quoted(name),
                        kind.name()
                    ))
                    .hint("name the tables that it reads"),
                )),
                None => Ok(None),
            };
        };
        let table = Arc::clone(table);
        let of_table = Arc::clone(&table);
        let contents = blocking(move || of_table.contents()).await?;
        let fields = table.arrow_schema.fields();
        let zone = zone.filter(|_| fields.iter().any(|field| has_instants(field.data_type())));
        let source = Source {
            database: self.database.clone(),
            loading: Arc::clone(&self.loading),
            snapshot: Arc::clone(&snapshot),
            contents,
            name: match schema {
                PUBLIC => name.to_owned(),
                schema => format!("{schema}.{name}"),
            },
            table,
        };
        let stored = StoredTable::new(source, false, &self.transactions, zone);
        Ok(Some(Arc::new(OwnTable(stored))))
    }
}

/// A stored table of another database. It is none of this one for whoever keeps plans or shares rows by the
/// snapshot of this database.
#[derive(Debug)]
struct OwnTable(StoredTable);

#[async_trait]
impl TableProvider for OwnTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        self.0.table_type()
    }

    fn statistics(&self) -> Option<Statistics> {
        self.0.statistics()
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DfResult<Vec<TableProviderFilterPushDown>> {
        self.0.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        self.0.scan(state, projection, filters, limit).await
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Own({})", self.location)
    }
}
