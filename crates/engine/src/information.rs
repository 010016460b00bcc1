//! `information_schema`: DataFusion's, but for what only the catalog knows: defaults, the text of
//! views, and columns without reading anything of their tables.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::Result as DfResult;
use datafusion::datasource::{MemTable, TableType};
use thalweg_storage::{Snapshot, TextLength};

use crate::catalog::Handle;
use crate::names::{CATALOG, SYSTEM};
use crate::sql_type::sql_type_of;

#[derive(Debug)]
pub struct Information {
    /// For all that is not here.
    pub inner: InformationSchemaProvider,
    pub catalog: Handle,
    pub snapshot: Arc<Snapshot>,
}

#[async_trait]
impl SchemaProvider for Information {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        match name {
            "columns" => self.columns().await.map(Some),
            "views" => self.views().map(Some),
            _ => self.inner.table(name).await,
        }
    }

    async fn table_type(&self, name: &str) -> DfResult<Option<TableType>> {
        self.inner.table_type(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}

/// A column, and what it is in.
struct Line {
    schema: String,
    table: String,
    position: u64,
    field: FieldRef,
    default: Option<String>,
}

impl Information {
    fn views(&self) -> DfResult<Arc<dyn TableProvider>> {
        let views: Vec<_> = self
            .snapshot
            .schemas
            .values()
            .flat_map(|s| s.views.values().map(move |view| (&s.name, view)))
            .collect();
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let schema = Schema::new(vec![
            text("table_catalog"),
            text("table_schema"),
            text("table_name"),
            text("definition"),
        ]);
        table(
            schema,
            vec![
                texts(views.iter().map(|_| Some(CATALOG.to_string()))),
                texts(views.iter().map(|(schema, _)| Some(schema.to_string()))),
                texts(views.iter().map(|(_, view)| Some(view.name.clone()))),
                texts(views.iter().map(|(_, view)| Some(view.sql.clone()))),
            ],
        )
    }

    async fn columns(&self) -> DfResult<Arc<dyn TableProvider>> {
        let mut lines = vec![];
        for schema in self.snapshot.schemas.values() {
            for stored in schema.tables.values() {
                let defaults = stored.columns.iter().map(|c| c.default.clone()).collect();
                push(&mut lines, &schema.name, &stored.name, &stored.arrow_schema, defaults);
            }
            let others = schema.views.keys().chain(schema.externals.keys());
            for name in others {
                // One that can no longer be planned has no columns to show.
                let handle = self.catalog.schema(&schema.name);
                let Some(handle) = handle else { continue };
                if let Ok(Some(relation)) = handle.table(name).await {
                    push(&mut lines, &schema.name, name, &relation.schema(), vec![]);
                }
            }
        }
        if let Some(system) = self.catalog.schema(SYSTEM) {
            for name in system.table_names() {
                // One that may not be seen has none, either.
                if let Ok(Some(relation)) = system.table(&name).await {
                    push(&mut lines, SYSTEM, &name, &relation.schema(), vec![]);
                }
            }
        }
        let text = |f: &dyn Fn(&Line) -> Option<String>| texts(lines.iter().map(f));
        let number = |f: &dyn Fn(&Line) -> Option<u64>| {
            Arc::new(lines.iter().map(f).collect::<UInt64Array>()) as ArrayRef
        };
        let schema = Schema::new(
            [
                ("table_catalog", DataType::Utf8),
                ("table_schema", DataType::Utf8),
                ("table_name", DataType::Utf8),
                ("column_name", DataType::Utf8),
                ("ordinal_position", DataType::UInt64),
                ("column_default", DataType::Utf8),
                ("is_nullable", DataType::Utf8),
                ("data_type", DataType::Utf8),
                ("character_maximum_length", DataType::UInt64),
                ("character_octet_length", DataType::UInt64),
                ("numeric_precision", DataType::UInt64),
                ("numeric_precision_radix", DataType::UInt64),
                ("numeric_scale", DataType::UInt64),
                ("datetime_precision", DataType::UInt64),
                ("interval_type", DataType::Utf8),
            ]
            .map(|(name, data_type)| Field::new(name, data_type, true))
            .to_vec(),
        );
        table(
            schema,
            vec![
                text(&|_| Some(CATALOG.into())),
                text(&|l| Some(l.schema.clone())),
                text(&|l| Some(l.table.clone())),
                text(&|l| Some(l.field.name().clone())),
                number(&|l| Some(l.position)),
                text(&|l| l.default.clone()),
                text(&|l| Some(if l.field.is_nullable() { "YES" } else { "NO" }.into())),
                text(&|l| Some(sql_type_of(&l.field))),
                number(&|l| TextLength::of(&l.field).map(|t| t.characters.into())),
                number(&|_| None),
                number(&|l| numeric(l.field.data_type()).map(|n| n.0)),
                number(&|l| numeric(l.field.data_type()).map(|n| n.1)),
                number(&|l| numeric(l.field.data_type()).and_then(|n| n.2)),
                number(&|l| fractional_digits(l.field.data_type())),
                text(&|_| None),
            ],
        )
    }
}

fn push(
    lines: &mut Vec<Line>,
    schema: &str,
    table: &str,
    columns: &SchemaRef,
    defaults: Vec<Option<String>>,
) {
    let defaults = defaults.into_iter().chain(std::iter::repeat(None));
    for ((field, default), position) in columns.fields().iter().zip(defaults).zip(1..) {
        lines.push(Line {
            schema: schema.to_string(),
            table: table.to_string(),
            position,
            field: Arc::clone(field),
            default,
        });
    }
}

/// Precision, its radix, and the scale.
fn numeric(data_type: &DataType) -> Option<(u64, u64, Option<u64>)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (8, 2, Some(0)),
        DataType::Int16 | DataType::UInt16 => (16, 2, Some(0)),
        DataType::Int32 | DataType::UInt32 => (32, 2, Some(0)),
        DataType::Int64 | DataType::UInt64 => (64, 2, Some(0)),
        DataType::Float32 => (24, 2, None),
        DataType::Float64 => (53, 2, None),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            (u64::from(*precision), 10, u64::try_from(*scale).ok())
        }
        _ => return None,
    })
}

/// Of a second.
fn fractional_digits(data_type: &DataType) -> Option<u64> {
    use arrow::datatypes::TimeUnit;
    Some(match data_type {
        DataType::Date32 | DataType::Date64 => 0,
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            }
        }
        _ => return None,
    })
}

fn texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn table(schema: Schema, columns: Vec<ArrayRef>) -> DfResult<Arc<dyn TableProvider>> {
    let schema = Arc::new(schema);
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
}
