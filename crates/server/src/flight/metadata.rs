//! What there is in the database: catalogs, schemas, tables, and keys, of which there are none.

use std::sync::Arc;

use arrow::array::{AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::FlightInfo;
use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{GetCatalogsBuilder, GetTablesBuilder};
use arrow_flight::sql::{Command, CommandGetTableTypes, CommandGetTables};
use futures::stream;
use thalweg_base::Result;
use thalweg_base::text::quoted;
use thalweg_engine::sql_type_of;

use super::auth::Caller;
use super::info;
use super::plain::Plain;
use super::service::{State, unknown};
use super::statements::{Place, ipc_schema};
use super::status::{from_arrow, from_flight};
use super::tickets::{self, Rows};

/// The one catalog.
pub const CATALOG: &str = "thalweg";

const TABLE: &str = "TABLE";
const VIEW: &str = "VIEW";
const SYSTEM_TABLE: &str = "SYSTEM TABLE";

/// The ticket is the command itself: it is cheap, and can be asked for again.
pub fn info(command: &Command, text: &[u8]) -> Result<FlightInfo> {
    tickets::info(&schema(command)?, text.to_vec(), -1)
}

pub fn schema(command: &Command) -> Result<SchemaRef> {
    use Command as C;
    Ok(match command.clone() {
        C::CommandGetCatalogs(c) => c.into_builder().schema(),
        C::CommandGetDbSchemas(c) => c.into_builder().schema(),
        C::CommandGetTables(c) => c.into_builder().schema(),
        C::CommandGetTableTypes(c) => c.into_builder().schema(),
        C::CommandGetSqlInfo(_) => info::sql_info(&[])?.schema(),
        C::CommandGetXdbcTypeInfo(_) => info::types(None)?.schema(),
        C::CommandGetPrimaryKeys(_) => primary_keys(),
        C::CommandGetExportedKeys(_)
        | C::CommandGetImportedKeys(_)
        | C::CommandGetCrossReference(_) => foreign_keys(),
        other => return Err(unknown("GetFlightInfo", other.type_url())),
    })
}

pub async fn rows(state: &Arc<State>, caller: &Caller, command: Command) -> Result<Rows> {
    let batch = batch(state, caller, command).await?;
    let schema = batch.schema();
    let batches = stream::iter([Ok::<_, FlightError>(batch)]);
    Ok(Rows::new(state, schema, batches, None))
}

async fn batch(state: &State, caller: &Caller, command: Command) -> Result<RecordBatch> {
    use Command as C;
    match command {
        C::CommandGetCatalogs(_) => {
            let mut builder = GetCatalogsBuilder::new();
            builder.append(CATALOG);
            builder.build().map_err(from_flight)
        }
        C::CommandGetDbSchemas(command) => {
            let place = Place::of(state, caller, None)?;
            let sql = "SELECT schema_name FROM information_schema.schemata";
            let mut builder = command.into_builder();
            for [schema] in texts(&place, sql).await? {
                builder.append(CATALOG, schema);
            }
            builder.build().map_err(from_flight)
        }
        C::CommandGetTables(command) => tables(&Place::of(state, caller, None)?, command).await,
        C::CommandGetTableTypes(CommandGetTableTypes {}) => {
            let mut builder = CommandGetTableTypes {}.into_builder();
            [TABLE, VIEW, SYSTEM_TABLE].into_iter().for_each(|t| builder.append(t));
            builder.build().map_err(from_flight)
        }
        C::CommandGetSqlInfo(command) => info::sql_info(&command.info),
        C::CommandGetXdbcTypeInfo(command) => info::types(command.data_type),
        other => Ok(RecordBatch::new_empty(schema(&other)?)),
    }
}

async fn tables(place: &Place, command: CommandGetTables) -> Result<RecordBatch> {
    let CommandGetTables {
        catalog,
        db_schema_filter_pattern: schemas,
        table_name_filter_pattern: names,
        table_types,
        include_schema,
    } = command;
    let sql = "SELECT table_schema, table_name, table_type FROM information_schema.tables";
    let mut builder = GetTablesBuilder::new(catalog, schemas, names, table_types, false);
    for [schema, name, kind] in texts(place, sql).await? {
        let kind = match (schema.as_str(), kind.as_str()) {
            ("system" | "information_schema", _) => SYSTEM_TABLE,
            (_, "VIEW") => VIEW,
            _ => TABLE,
        };
        builder.append(CATALOG, schema, name, kind, &Schema::empty()).map_err(from_flight)?;
    }
    let found = builder.build().map_err(from_flight)?;
    if !include_schema {
        return Ok(found);
    }
    // Only of those that are asked for: of a view they are known when it is planned.
    let (schemas, names) = (found.column(1).as_string::<i32>(), found.column(2).as_string::<i32>());
    let mut encoded = vec![];
    for row in 0..found.num_rows() {
        let columns = columns(place, schemas.value(row), names.value(row)).await;
        encoded.push(ipc_schema(&columns)?);
    }
    let encoded: BinaryArray = encoded.iter().map(|schema| Some(&schema[..])).collect();
    let mut columns = found.columns().to_vec();
    columns.push(Arc::new(encoded));
    RecordBatch::try_new(
        CommandGetTables { include_schema, ..Default::default() }.into_builder().schema(),
        columns,
    )
    .map_err(from_arrow)
}

/// Of a view that can no longer be planned there are none.
async fn columns(place: &Place, schema: &str, table: &str) -> Schema {
    let sql = format!("SELECT * FROM {}.{}", quoted(schema), quoted(table));
    let described = place.session.describe(&sql, &[]).await.ok().and_then(|d| d.schema);
    let Some(found) = described else { return Schema::empty() };
    let plain = Plain::new(&found);
    let fields = found.fields().iter().zip(plain.schema().fields()).map(|(stored, sent)| {
        let mut metadata = sent.metadata().clone();
        let mut tell = |name: &str, value: String| {
            metadata.insert(format!("ARROW:FLIGHT:SQL:{name}"), value);
        };
        tell("CATALOG_NAME", CATALOG.into());
        tell("SCHEMA_NAME", schema.into());
        tell("TABLE_NAME", table.into());
        tell("TYPE_NAME", sql_type_of(stored));
        if let DataType::Decimal128(precision, scale) = sent.data_type() {
            tell("PRECISION", precision.to_string());
            tell("SCALE", scale.to_string());
        }
        tell("IS_AUTO_INCREMENT", "0".into());
        sent.as_ref().clone().with_metadata(metadata)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// The rows of a query of texts.
async fn texts<const N: usize>(place: &Place, sql: &str) -> Result<Vec<[String; N]>> {
    let mut rows = vec![];
    for batch in place.session.query(sql).await?.collect().await? {
        let columns = batch.columns().iter().map(|c| cast(c, &DataType::Utf8).map_err(from_arrow));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let columns: Vec<&StringArray> = columns.iter().map(|c| c.as_string()).collect();
        for row in 0..batch.num_rows() {
            rows.push(std::array::from_fn(|i| columns[i].value(row).to_string()));
        }
    }
    Ok(rows)
}

fn text(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

fn primary_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("key_name", true),
    ]))
}

fn foreign_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}
