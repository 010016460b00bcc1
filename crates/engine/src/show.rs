//! `SHOW …` as a query over `information_schema`.

use datafusion::sql::sqlparser::ast::{
    ObjectName, ShowCreateObject, ShowStatementFilter, ShowStatementFilterPosition,
    ShowStatementOptions, Statement,
};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::Snapshot;

use crate::attach::Attachments;
use crate::dml::target;
use crate::names::{self, CATALOG};
use crate::sql_type::sql_type_of;

/// The query that a statement stands for; `None` if it is no `SHOW`, or one of DataFusion's.
pub fn query(
    statement: &Statement,
    snapshot: &Snapshot,
    attachments: &Attachments,
) -> Result<Option<String>> {
    let relations = "SELECT table_catalog, table_schema, table_name, table_type \
                     FROM information_schema.tables \
                     WHERE table_schema NOT IN ('information_schema', 'system')";
    Ok(Some(match statement {
        Statement::ShowTables { show_options, .. }
            if place(show_options).is_some_and(|place| attachments.has(&place)) =>
        {
            let mut options = show_options.clone();
            let place = place(&options).unwrap_or_default();
            options.show_in = None;
            let tables = format!(
                "SELECT database_name AS table_catalog, table_schema, table_name, \
                 'BASE TABLE' AS table_type FROM system.attached_tables WHERE database_name = {}",
                literal(&place)
            );
            filtered(&tables, "table_name", &options)? + " ORDER BY 2, 3"
        }
        Statement::ShowTables { show_options, .. } => {
            filtered(relations, "table_name", show_options)? + " ORDER BY 2, 3"
        }
        Statement::ShowViews { show_options, .. } => {
            let views = format!("{relations} AND table_type = 'VIEW'");
            filtered(&views, "table_name", show_options)? + " ORDER BY 2, 3"
        }
        Statement::ShowDatabases { show_options, .. } => {
            let databases = "SELECT * FROM system.databases WHERE true";
            filtered(databases, "database_name", show_options)? + " ORDER BY 1"
        }
        Statement::ShowSchemas { show_options, .. } => {
            let schemas = "SELECT schema_name FROM information_schema.schemata WHERE true";
            filtered(schemas, "schema_name", show_options)? + " ORDER BY 1"
        }
        Statement::ShowFunctions { filter } => {
            let functions = "SELECT name, kind, arguments, returns, description \
                             FROM system.functions WHERE true";
            let text = match filter {
                Some(filter) => functions.to_string() + &condition("name", filter)?,
                None => functions.to_string(),
            };
            text + " ORDER BY name, kind, arguments"
        }
        Statement::ShowCreate {
            obj_type: ShowCreateObject::Table | ShowCreateObject::View,
            obj_name,
        } => {
            let (schema, name, _) = target::relation(snapshot, obj_name)?;
            let definition = definition(snapshot, &schema, &name);
            let definition =
                definition.ok_or_else(|| names::no_table(&target::full_name(&schema, &name)))?;
            let [catalog, schema, name, definition] =
                [CATALOG, &schema, &name, &definition].map(literal);
            format!(
                "SELECT {catalog} AS table_catalog, {schema} AS table_schema, \
                 {name} AS table_name, {definition} AS definition"
            )
        }
        Statement::ShowVariable { variable }
            if variable.iter().map(names::ident).eq(["queries"]) =>
        {
            "SELECT query_id, session_id, workload, state, elapsed_ms, cpu_ms, memory_bytes, \
             progress_percent, left_ms, waits_for, query FROM system.queries ORDER BY query_id"
                .into()
        }
        Statement::ShowVariable { variable }
            if variable.iter().map(names::ident).eq(["workloads"]) =>
        {
            "SELECT * FROM system.workloads ORDER BY workload".into()
        }
        // Clients ask for it. What PostgreSQL calls repeatable read is snapshot isolation.
        Statement::ShowVariable { variable }
            if variable.iter().map(names::ident).eq(["transaction", "isolation", "level"]) =>
        {
            "SELECT 'repeatable read' AS transaction_isolation".into()
        }
        _ => return Ok(None),
    }))
}

/// The statement that makes a relation as it is, without its rows.
fn definition(snapshot: &Snapshot, schema: &str, name: &str) -> Option<String> {
    let relations = snapshot.schemas.get(schema)?;
    if let Some(view) = relations.views.get(name) {
        return Some(view.sql.clone());
    }
    if let Some(external) = relations.externals.get(name) {
        return Some(external.sql.clone());
    }
    let table = relations.tables.get(name)?;
    let columns = table.arrow_schema.fields().iter().zip(table.columns.iter()).map(|(f, c)| {
        let not_null = if f.is_nullable() { "" } else { " NOT NULL" };
        let default = c.default.as_ref().map(|d| format!(" DEFAULT {d}")).unwrap_or_default();
        format!("{} {}{not_null}{default}", quoted(f.name()), sql_type_of(f))
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    let mut sql = format!("CREATE TABLE {}.{} ({columns})", quoted(schema), quoted(name));
    let column = |i: usize| quoted(table.arrow_schema.field(i).name());
    if let Some(by) = table.partition_by {
        sql += &format!(" PARTITION BY HASH ({}) INTO {}", column(by.column), by.buckets);
    }
    if !table.cluster_by.is_empty() {
        let by: Vec<String> = table.cluster_by.iter().map(|c| column(*c)).collect();
        sql += &format!(" CLUSTER BY ({})", by.join(", "));
    }
    Some(sql)
}

/// What stands behind IN or FROM.
fn place(options: &ShowStatementOptions) -> Option<String> {
    let name: &ObjectName = options.show_in.as_ref()?.parent_name.as_ref()?;
    Some(names::folded(&ObjectName(vec![name.0.last()?.clone()])))
}

/// With `IN schema` and `LIKE pattern`.
fn filtered(query: &str, name: &str, options: &ShowStatementOptions) -> Result<String> {
    let mut text = query.to_string();
    if options.show_in.is_some() {
        let schema = place(options).unwrap_or_default();
        text += &format!(" AND table_schema = {}", literal(&schema));
    }
    let (ShowStatementFilterPosition::Infix(filter) | ShowStatementFilterPosition::Suffix(filter)) =
        match &options.filter_position {
            Some(position) => position,
            None => return Ok(text),
        };
    text += &condition(name, filter)?;
    Ok(text)
}

fn condition(name: &str, filter: &ShowStatementFilter) -> Result<String> {
    use ShowStatementFilter as F;
    Ok(match filter {
        F::Like(pattern) | F::NoKeyword(pattern) => {
            format!(" AND {name} LIKE {}", literal(pattern))
        }
        F::ILike(pattern) => format!(" AND {name} ILIKE {}", literal(pattern)),
        F::Where(_) => {
            return Err(Error::unsupported("SHOW takes no WHERE")
                .hint("query information_schema.tables or system.functions instead"));
        }
    })
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
