//! Parquet files that have doubles.
//!
//! Writers leave NaN out of the bounds they note of a column: `[3.0, NaN, 3.0]` has 3.0 as its least and
//! its greatest value. DataFusion's reader takes a column whose bounds are equal for a constant, and skips
//! what lies beyond them, where NaN, which is greater than all, may be. So of files with such columns the
//! bounds are not looked at.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingTable, ListingTableConfig};
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

#[derive(Debug)]
struct WithoutBounds(ListingTable);

/// The table itself, unless its bounds may lie.
pub fn without_bounds(
    table: ListingTable,
    config: ListingTableConfig,
) -> Result<Arc<dyn TableProvider>> {
    let has_floats = table.schema().fields().iter().any(|field| field.data_type().is_floating());
    let parquet = table.options().format.downcast_ref::<ParquetFormat>().filter(|_| has_floats);
    let Some(parquet) = parquet else { return Ok(Arc::new(table)) };
    let parquet =
        ParquetFormat::default().with_options(parquet.options().clone()).with_enable_pruning(false);
    let mut options = table.options().clone();
    options.format = Arc::new(parquet);
    let table = ListingTable::try_new(config.with_listing_options(options))?;
    Ok(Arc::new(WithoutBounds(table)))
}

#[async_trait]
impl TableProvider for WithoutBounds {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        self.0.table_type()
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        self.0.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(own) = state.as_any().downcast_ref::<SessionState>() else {
            return self.0.scan(state, projection, filters, limit).await;
        };
        let mut state = own.clone();
        state.config_mut().options_mut().execution.collect_statistics = false;
        self.0.scan(&state, projection, filters, limit).await
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.insert_into(state, input, op).await
    }
}
