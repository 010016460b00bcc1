//! Changes to the database, all at once or not at all.
//!
//! A transaction buffers operations against the snapshot it began with. `commit` replays them on
//! the snapshot that is current by then (this is optimistic concurrency: writers never wait for
//! each other's work, only for each other's commit), in one catalog transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result, SnapshotId, TableId};

use crate::database::Database;
use crate::extent::{Extent, NewExtent};
use crate::snapshot::{External, PUBLIC, RelationKind, Schema, Snapshot, View};
use crate::table::Table;
use crate::types::{check_name, check_schema};

/// Buffered changes. Dropped without `commit`, nothing happened, and the files of its new extents
/// are removed.
pub struct Transaction {
    database: Database,
    base: Arc<Snapshot>,
    /// The base with the operations so far applied.
    work: Arc<Snapshot>,
    operations: Vec<Operation>,
}

#[derive(Clone)]
pub(crate) enum Operation {
    CreateSchema(String),
    DropSchema(String),
    CreateTable { schema: String, table: Arc<Table> },
    DropTable { schema: String, name: String, id: TableId },
    CreateView { schema: String, view: Arc<View>, or_replace: bool },
    DropView { schema: String, name: String },
    CreateExternal { schema: String, external: Arc<External> },
    DropExternal { schema: String, name: String },
    Append { table: TableId, extents: Vec<Arc<Extent>> },
    Replace { table: TableId, extents: Vec<Arc<Extent>> },
}

impl Transaction {
    pub(crate) fn new(database: Database) -> Self {
        let base = database.snapshot();
        Transaction { database, work: base.clone(), base, operations: Vec::new() }
    }

    /// What this transaction read from.
    pub fn base(&self) -> &Arc<Snapshot> {
        &self.base
    }

    /// What this transaction would commit: the base with its own changes.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.work
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    fn run(&mut self, operation: Operation) -> Result<()> {
        let next = SnapshotId(self.base.id.0 + 1);
        apply(Arc::make_mut(&mut self.work), &operation, next)?;
        self.operations.push(operation);
        Ok(())
    }

    pub fn create_schema(&mut self, name: &str, if_not_exists: bool) -> Result<()> {
        check_name("schema", name)?;
        if if_not_exists && self.work.schemas.contains_key(name) {
            return Ok(());
        }
        self.run(Operation::CreateSchema(name.to_owned()))
    }

    /// Drops a schema; with `cascade`, and everything in it.
    pub fn drop_schema(&mut self, name: &str, if_exists: bool, cascade: bool) -> Result<()> {
        let Some(schema) = self.work.schemas.get(name).cloned() else {
            return if if_exists { Ok(()) } else { Err(no_schema(name)) };
        };
        if name == PUBLIC {
            return Err(
                Error::user("schema \"public\" cannot be dropped").hint("drop the tables in it")
            );
        }
        if cascade {
            for table in schema.tables.values() {
                self.drop_table(name, &table.name)?;
            }
            for view in schema.views.keys() {
                self.drop_view(name, view)?;
            }
            for external in schema.externals.keys() {
                self.drop_external(name, external)?;
            }
        }
        self.run(Operation::DropSchema(name.to_owned()))
    }

    /// An empty table; `cluster_by` are columns to sort by, most significant first.
    pub fn create_table(
        &mut self,
        schema: &str,
        name: &str,
        arrow_schema: SchemaRef,
        cluster_by: Vec<usize>,
    ) -> Result<TableId> {
        check_name("table", name)?;
        check_schema(name, &arrow_schema, &cluster_by)?;
        let id = self.database.next_table_id();
        let table = Arc::new(Table::new(id, name.to_owned(), arrow_schema, cluster_by, Vec::new()));
        self.run(Operation::CreateTable { schema: schema.to_owned(), table })?;
        Ok(id)
    }

    pub fn drop_table(&mut self, schema: &str, name: &str) -> Result<()> {
        let id = match self.work.table(schema, name) {
            Some(table) => table.id,
            None => return Err(missing(&self.work, schema, name, RelationKind::Table)),
        };
        self.run(Operation::DropTable { schema: schema.to_owned(), name: name.to_owned(), id })
    }

    pub fn create_view(
        &mut self,
        schema: &str,
        name: &str,
        sql: &str,
        or_replace: bool,
    ) -> Result<()> {
        check_name("view", name)?;
        let view = Arc::new(View { name: name.to_owned(), sql: sql.to_owned() });
        self.run(Operation::CreateView { schema: schema.to_owned(), view, or_replace })
    }

    pub fn drop_view(&mut self, schema: &str, name: &str) -> Result<()> {
        self.run(Operation::DropView { schema: schema.to_owned(), name: name.to_owned() })
    }

    pub fn create_external(&mut self, schema: &str, name: &str, sql: &str) -> Result<()> {
        check_name("table", name)?;
        let external = Arc::new(External { name: name.to_owned(), sql: sql.to_owned() });
        self.run(Operation::CreateExternal { schema: schema.to_owned(), external })
    }

    pub fn drop_external(&mut self, schema: &str, name: &str) -> Result<()> {
        self.run(Operation::DropExternal { schema: schema.to_owned(), name: name.to_owned() })
    }

    /// Adds rows to a table.
    pub fn append(&mut self, table: TableId, extents: Vec<NewExtent>) -> Result<()> {
        let extents = self.adopt(table, extents)?;
        if extents.is_empty() {
            return Ok(());
        }
        self.run(Operation::Append { table, extents })
    }

    /// Exchanges all rows of a table for these.
    pub fn replace(&mut self, table: TableId, extents: Vec<NewExtent>) -> Result<()> {
        let extents = self.adopt(table, extents)?;
        self.run(Operation::Replace { table, extents })
    }

    fn adopt(&self, table: TableId, extents: Vec<NewExtent>) -> Result<Vec<Arc<Extent>>> {
        let Some(table) = self.work.table_by_id(table) else {
            return Err(Error::conflict("the table to be written to is gone")
                .hint("run the statement again"));
        };
        if extents.iter().any(|e| !self.database.owns(&e.extent)) {
            return Err(Error::internal("an extent of another database"));
        }
        if extents.iter().any(|e| e.extent.schema != table.arrow_schema) {
            return Err(Error::internal(format!(
                "an extent for another table than {}",
                quoted(&table.name)
            )));
        }
        Ok(extents.into_iter().map(|e| e.extent).collect())
    }

    /// Makes everything durable and visible, and returns the new snapshot. Without operations it
    /// returns the current one.
    ///
    /// Conflicts ([`thalweg_base::Kind::Conflict`]) if, since the base, a table written to was
    /// dropped or replaced, a table replaced here was changed at all, or a name was taken or
    /// dropped. Appends never conflict with appends.
    pub fn commit(self) -> Result<Arc<Snapshot>> {
        if self.operations.is_empty() {
            return Ok(self.database.snapshot());
        }
        self.database.commit(&self.base, &self.operations)
    }
}

/// The pure core of a commit: `current` with `operations`, which were made against `base`.
pub(crate) fn rebase(
    base: &Snapshot,
    current: &Snapshot,
    operations: &[Operation],
) -> Result<Snapshot> {
    for operation in operations {
        check_conflict(base, current, operation)?;
    }
    let id = SnapshotId(current.id.0 + 1);
    let mut next = Snapshot { id, schemas: current.schemas.clone() };
    for operation in operations {
        apply(&mut next, operation, id).map_err(|e| {
            // It was possible when it was asked for: somebody came between.
            Error::conflict(format!("{}, by a transaction that committed first", e.message()))
                .hint("try again")
        })?;
    }
    Ok(next)
}

fn check_conflict(base: &Snapshot, current: &Snapshot, operation: &Operation) -> Result<()> {
    let (id, replaces) = match operation {
        Operation::Append { table, .. } => (*table, false),
        Operation::Replace { table, .. } => (*table, true),
        _ => return Ok(()),
    };
    let Some(before) = base.table_by_id(id) else { return Ok(()) };
    let happened = match current.table_by_id(id) {
        None => "dropped",
        Some(now) if now.replaced_at > base.id => "replaced",
        // What is replaced may have been computed from what was read: rows that came since
        // would be lost.
        Some(now) if replaces && now.changed_at > base.id => "changed",
        Some(_) => return Ok(()),
    };
    Err(Error::conflict(format!(
        "table {} was {happened} by a transaction that committed first",
        quoted(&before.name)
    ))
    .hint("try again"))
}

fn no_schema(name: &str) -> Error {
    Error::user(format!("schema {} does not exist", quoted(name))).hint("CREATE SCHEMA makes one")
}

fn missing(snapshot: &Snapshot, schema: &str, name: &str, wanted: RelationKind) -> Error {
    let Some(found) = snapshot.schemas.get(schema) else { return no_schema(schema) };
    match found.relation(name) {
        Some(other) if other != wanted => {
            Error::user(format!("{} is a {}, not a {}", quoted(name), other.name(), wanted.name()))
        }
        _ => Error::user(format!("{} {} does not exist", wanted.name(), quoted(name)))
            .hint("SHOW TABLES lists what there is"),
    }
}

fn schema_mut<'a>(
    schemas: &'a mut BTreeMap<String, Arc<Schema>>,
    name: &str,
) -> Result<&'a mut Schema> {
    schemas.get_mut(name).map(Arc::make_mut).ok_or_else(|| no_schema(name))
}

fn check_free(
    snapshot: &Snapshot,
    schema: &str,
    name: &str,
    replaceable: Option<RelationKind>,
) -> Result<()> {
    match snapshot.schemas.get(schema).and_then(|s| s.relation(name)) {
        Some(kind) if Some(kind) != replaceable => {
            Err(Error::user(format!("{} {} already exists", kind.name(), quoted(name)))
                .hint("choose another name, or drop it first"))
        }
        _ => Ok(()),
    }
}

/// One operation on a snapshot being made. `next` is the id it will have.
fn apply(snapshot: &mut Snapshot, operation: &Operation, next: SnapshotId) -> Result<()> {
    match operation {
        Operation::CreateSchema(name) => {
            if snapshot.schemas.contains_key(name) {
                return Err(Error::user(format!("schema {} already exists", quoted(name))));
            }
            snapshot.schemas.insert(name.clone(), Arc::new(Schema::new(name)));
        }
        Operation::DropSchema(name) => {
            let schema = snapshot.schemas.get(name).ok_or_else(|| no_schema(name))?;
            if !schema.is_empty() {
                return Err(Error::user(format!("schema {} is not empty", quoted(name)))
                    .hint("DROP SCHEMA … CASCADE drops what is in it, too"));
            }
            snapshot.schemas.remove(name);
        }
        Operation::CreateTable { schema, table } => {
            check_free(snapshot, schema, &table.name, None)?;
            let table = table.changed(Vec::new(), next, true);
            schema_mut(&mut snapshot.schemas, schema)?
                .tables
                .insert(table.name.clone(), Arc::new(table));
        }
        Operation::DropTable { schema, name, id } => {
            if snapshot.table(schema, name).is_none_or(|t| t.id != *id) {
                return Err(missing(snapshot, schema, name, RelationKind::Table));
            }
            schema_mut(&mut snapshot.schemas, schema)?.tables.remove(name);
        }
        Operation::CreateView { schema, view, or_replace } => {
            check_free(snapshot, schema, &view.name, or_replace.then_some(RelationKind::View))?;
            schema_mut(&mut snapshot.schemas, schema)?
                .views
                .insert(view.name.clone(), view.clone());
        }
        Operation::DropView { schema, name } => {
            if schema_mut(&mut snapshot.schemas, schema)?.views.remove(name).is_none() {
                return Err(missing(snapshot, schema, name, RelationKind::View));
            }
        }
        Operation::CreateExternal { schema, external } => {
            check_free(snapshot, schema, &external.name, None)?;
            schema_mut(&mut snapshot.schemas, schema)?
                .externals
                .insert(external.name.clone(), external.clone());
        }
        Operation::DropExternal { schema, name } => {
            if schema_mut(&mut snapshot.schemas, schema)?.externals.remove(name).is_none() {
                return Err(missing(snapshot, schema, name, RelationKind::External));
            }
        }
        Operation::Append { table, extents } => change(snapshot, *table, |t| {
            t.changed(t.extents.iter().chain(extents).cloned().collect(), next, false)
        })?,
        Operation::Replace { table, extents } => {
            change(snapshot, *table, |t| t.changed(extents.clone(), next, true))?;
        }
    }
    Ok(())
}

fn change(snapshot: &mut Snapshot, id: TableId, f: impl FnOnce(&Table) -> Table) -> Result<()> {
    for schema in snapshot.schemas.values_mut() {
        let Some(name) = schema.tables.values().find(|t| t.id == id).map(|t| t.name.clone()) else {
            continue;
        };
        if let Some(table) = Arc::make_mut(schema).tables.get_mut(&name) {
            *table = Arc::new(f(table));
            return Ok(());
        }
    }
    Err(Error::user("the table to be written to was dropped"))
}

#[cfg(test)]
mod tests;
