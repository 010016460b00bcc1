//! `ATTACH`: tables of other databases under names of this session: SQLite files, PostgreSQL servers, and
//! other databases of Thalweg. They are only read.
//!
//! What is attached belongs to the session, as what it prepares does: nothing of it is stored, no other
//! session sees it, and it is gone with the session. So nothing that is stored may depend on it.
//!
//! * `attach/command.rs`: the two statements.
//! * `attach/foreign.rs`: tables of [`thalweg_foreign`], and their scan. `attach/conditions.rs`: which
//!   filters go along.
//! * `attach/own.rs`: other databases of Thalweg.

mod command;
mod conditions;
mod foreign;
mod own;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{ResolvedTableReference, Result as DfResult};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, FromTable, ObjectName, TableFactor, TableObject};
use parking_lot::RwLock;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_foreign::Foreign;
use thalweg_storage::Snapshot;

pub use self::command::{Command, is_command, parse, run};
pub use self::foreign::ForeignTable;
use self::own::Own;
use crate::access::{PG_READ_SERVER_FILES, Viewer};
use crate::names::{self, CATALOG, PUBLIC};
use thalweg_errors::{from_arrow, into_datafusion};

/// What a session has attached, by name.
#[derive(Default)]
pub struct Attachments(RwLock<BTreeMap<String, Arc<Attached>>>);

/// One other database.
pub enum Attached {
    Foreign(Arc<dyn Foreign>),
    Own(Own),
}

impl Attachments {
    pub fn find(&self, name: &str) -> Option<Arc<Attached>> {
        self.0.read().get(name).cloned()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.read().contains_key(name)
    }

    fn all(&self) -> Vec<(String, Arc<Attached>)> {
        self.0.read().iter().map(|(name, one)| (name.clone(), Arc::clone(one))).collect()
    }

    fn add(&self, name: String, one: Attached) {
        self.0.write().insert(name, Arc::new(one));
    }

    fn remove(&self, name: &str) -> bool {
        self.0.write().remove(name).is_some()
    }

    /// The next statement reads what is newest then.
    pub fn begin_statement(&self) {
        for one in self.0.read().values() {
            if let Attached::Own(own) = one.as_ref() {
                own.begin_statement();
            }
        }
    }
}

impl Attached {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Attached::Foreign(foreign) => foreign.kind(),
            Attached::Own(_) => "thalweg",
        }
    }

    fn location(&self) -> String {
        match self {
            Attached::Foreign(foreign) => foreign.location(),
            Attached::Own(own) => own.location().to_owned(),
        }
    }

    /// Where a table is looked for whose schema is not named.
    pub fn default_schema(&self) -> &'static str {
        match self {
            Attached::Foreign(foreign) => foreign.default_schema(),
            Attached::Own(_) => PUBLIC,
        }
    }

    async fn tables(&self) -> DfResult<Vec<(String, String)>> {
        match self {
            Attached::Foreign(foreign) => foreign::tables(foreign).await,
            Attached::Own(own) => own.tables().await,
        }
    }

    pub(crate) async fn table(
        &self,
        schema: &str,
        name: &str,
        zone: Option<&str>,
    ) -> DfResult<Option<Arc<dyn TableProvider>>> {
        match self {
            Attached::Foreign(foreign) => foreign::table(foreign, schema, name, zone).await,
            Attached::Own(own) => own.table(schema, name, zone).await,
        }
    }
}

/// The role of today decides, whoever has attached the database.
pub(crate) fn check_reads(viewer: &Viewer) -> Result<()> {
    viewer.check_member(PG_READ_SERVER_FILES, "read other databases")
}

/// Refuses what an attached database cannot be in: the target of a change, and a view.
///
/// # Errors
/// Kind `unsupported`: names the table.
pub fn check(
    statement: &Statement,
    state: &SessionState,
    attachments: &Attachments,
    snapshot: &Snapshot,
) -> Result<()> {
    if attachments.0.read().is_empty() {
        return Ok(());
    }
    for target in targets(statement) {
        check_target(target, attachments, snapshot)?;
    }
    let Statement::Statement(inner) = statement else { return Ok(()) };
    if !matches!(inner.as_ref(), ast::Statement::CreateView(_)) {
        return Ok(());
    }
    let options = &state.config_options().catalog;
    let references = state.resolve_table_references(statement).unwrap_or_default();
    let is_attached = |reference: &ResolvedTableReference| match &*reference.catalog {
        CATALOG => {
            !snapshot.schemas.contains_key(&*reference.schema) && attachments.has(&reference.schema)
        }
        other => attachments.has(other),
    };
    let mut resolved = references
        .into_iter()
        .map(|reference| reference.resolve(&options.default_catalog, &options.default_schema));
    match resolved.find(is_attached) {
        Some(name) => Err(Error::unsupported(format!(
            "a view cannot read {}, which is attached to this session alone",
            quoted(&name.table)
        ))
        .hint("CREATE TABLE … AS SELECT copies the rows; a view can read that table")),
        None => Ok(()),
    }
}

/// Refuses a table that is to be changed, if it is of an attached database.
///
/// # Errors
/// It is.
pub fn check_target(
    name: &ObjectName,
    attachments: &Attachments,
    snapshot: &Snapshot,
) -> Result<()> {
    let first = match &name.0[..] {
        [first, _] | [first, _, _] => first.as_ident().map(names::ident),
        _ => None,
    };
    match first {
        Some(first)
            if attachments.has(&first)
                && (name.0.len() == 3 || !snapshot.schemas.contains_key(&first)) =>
        {
            Err(Error::unsupported(format!(
                "{name} is of the attached database {}, which is only read",
                quoted(&first)
            ))
            .hint("change it with a client of its own; CREATE TABLE … AS SELECT copies it here"))
        }
        _ => Ok(()),
    }
}

/// What a statement would change.
fn targets(statement: &Statement) -> Vec<&ObjectName> {
    use ast::Statement as S;
    fn name_of(factor: &TableFactor) -> Option<&ObjectName> {
        match factor {
            TableFactor::Table { name, .. } => Some(name),
            _ => None,
        }
    }
    let inner = match statement {
        Statement::CreateExternalTable(create) => return vec![&create.name],
        Statement::Statement(inner) => inner.as_ref(),
        Statement::Explain(explain) => return targets(&explain.statement),
        _ => return vec![],
    };
    match inner {
        S::Insert(insert) => match &insert.table {
            TableObject::TableName(name) => vec![name],
            _ => vec![],
        },
        S::Update(update) => name_of(&update.table.relation).into_iter().collect(),
        S::Delete(delete) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            from.iter().filter_map(|table| name_of(&table.relation)).collect()
        }
        S::Merge(merge) => name_of(&merge.table).into_iter().collect(),
        S::Truncate(truncate) => truncate.table_names.iter().map(|table| &table.name).collect(),
        S::CreateTable(create) => vec![&create.name],
        S::CreateView(create) => vec![&create.name],
        S::AlterTable(alter) => vec![&alter.name],
        S::CreateIndex(create) => vec![&create.table_name],
        S::Drop { names, .. } => names.iter().collect(),
        _ => vec![],
    }
}

/// `system.databases`
pub fn databases_schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, true);
    Arc::new(Schema::new(vec![
        text("database_name"),
        text("type"),
        text("location"),
        Field::new("read_only", DataType::Boolean, true),
    ]))
}

/// The session's own database, which is at `location`, and those that it has attached.
pub fn databases(attachments: &Attachments, location: Option<String>) -> Result<RecordBatch> {
    let mut rows = vec![(CATALOG.to_owned(), "thalweg", location, false)];
    for (name, one) in attachments.all() {
        rows.push((name, one.kind(), Some(one.location()), true));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| Some(row.0.clone())).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| Some(row.1)).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| row.2.clone()).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| Some(row.3)).collect::<BooleanArray>()),
    ];
    RecordBatch::try_new(databases_schema(), columns).map_err(|e| from_arrow(&e))
}

/// `system.attached_tables`
pub fn tables_schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, true);
    Arc::new(Schema::new(vec![text("database_name"), text("table_schema"), text("table_name")]))
}

/// All tables and views of all attached databases.
pub async fn tables(attachments: &Attachments, viewer: &Viewer) -> DfResult<RecordBatch> {
    let mut rows = vec![];
    for (database, one) in attachments.all() {
        check_reads(viewer).map_err(into_datafusion)?;
        for (schema, name) in one.tables().await? {
            rows.push([database.clone(), schema, name]);
        }
    }
    let column = |at: usize| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(row[at].clone())).collect::<StringArray>())
    };
    let columns = vec![column(0), column(1), column(2)];
    RecordBatch::try_new(tables_schema(), columns).map_err(|e| into_datafusion(from_arrow(&e)))
}
