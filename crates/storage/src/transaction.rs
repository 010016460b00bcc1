//! Changes to the database, all at once or not at all.
//!
//! A transaction buffers operations against the snapshot it began with. `commit` replays them on
//! the snapshot that is current by then (this is optimistic concurrency: writers never wait for
//! each other's work, only for each other's commit), in one catalog transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};
use roaring::{RoaringBitmap, RoaringTreemap};
use thalweg_base::text::quoted;
use thalweg_base::{Error, ExtentId, Result, SnapshotId, TableId};

use crate::catalog::{LoadedFile, Summary};
use crate::database::Database;
use crate::extent::{Extent, NewExtent, Writing};
use crate::properties::{of_relation, of_schema, with_prefix};
use crate::rebase::{Alteration, Operation, apply, missing, no_schema};
use crate::snapshot::{External, PUBLIC, RelationKind, Snapshot, View};
use crate::table::{Table, TableExtent, TableSpec};
use crate::types::{check_name, check_schema};

/// Buffered changes. Dropped without `commit`, nothing happened, and the files of its new extents
/// are removed. A clone is a savepoint.
#[derive(Clone)]
pub struct Transaction {
    database: Database,
    base: Arc<Snapshot>,
    /// The base with the operations so far applied.
    work: Arc<Snapshot>,
    operations: Vec<Operation>,
    summary: Summary,
    /// The property that what it makes gets: its name and its value.
    mark: Option<(String, String)>,
    /// Held from the first new extent on, so that no other process takes it for an orphan.
    writing: Option<Arc<Writing>>,
}

/// Rows of one version of a table, by what [`crate::ChunkRef::row_ids`] calls them.
#[derive(Clone, Debug, Default)]
pub struct RowSet(RoaringTreemap);

impl RowSet {
    /// Adds rows; returns how many of them were not in it.
    pub fn insert(&mut self, row_ids: &[u64]) -> u64 {
        row_ids.iter().filter(|&&id| self.0.insert(id)).count() as u64
    }

    pub fn contains(&self, row_id: u64) -> bool {
        self.0.contains(row_id)
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Database {
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone())
    }
}

impl Transaction {
    pub(crate) fn new(database: Database) -> Self {
        let base = database.snapshot();
        Transaction {
            database,
            work: base.clone(),
            base,
            operations: Vec::new(),
            summary: Summary::default(),
            mark: None,
            writing: None,
        }
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

    /// What the commit will be called in the history. Described again, it is one of several
    /// statements, and its numbers are added up.
    pub fn describe(&mut self, summary: Summary) {
        if self.summary.operation.is_empty() {
            self.summary = summary;
            return;
        }
        let all = &mut self.summary;
        all.operation = "TRANSACTION".to_owned();
        let known = all.table.split(", ").any(|name| name == summary.table);
        if !known && !summary.table.is_empty() {
            let separator = if all.table.is_empty() { "" } else { ", " };
            all.table = format!("{}{separator}{}", all.table, summary.table);
        }
        all.rows_added += summary.rows_added;
        all.rows_removed += summary.rows_removed;
        all.files += summary.files;
        all.raw_bytes += summary.raw_bytes;
        all.millis += summary.millis;
        all.rejected += summary.rejected;
    }

    /// Schemas and relations that are made from now on get this property, such as who made them.
    pub fn mark_new(&mut self, mark: Option<(String, String)>) {
        self.mark = mark;
    }

    fn mark(&mut self, prefix: &str) -> Result<()> {
        match self.mark.clone() {
            Some((name, value)) => self.set_property(&format!("{prefix}{name}"), Some(value)),
            None => Ok(()),
        }
    }

    fn run(&mut self, operation: Operation) -> Result<()> {
        let next = SnapshotId(self.base.id.0 + 1);
        // On a copy: an operation that fails halfway must leave nothing.
        let mut work = Snapshot { id: next, ..Snapshot::clone(&self.work) };
        apply(&mut work, &operation)?;
        self.work = Arc::new(work);
        self.operations.push(operation);
        Ok(())
    }

    pub fn create_schema(&mut self, name: &str, if_not_exists: bool) -> Result<()> {
        check_name("schema", name)?;
        if if_not_exists && self.work.schemas.contains_key(name) {
            return Ok(());
        }
        self.run(Operation::CreateSchema(name.to_owned()))?;
        self.mark(&of_schema(name))
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

    /// An empty table.
    pub fn create_table(
        &mut self,
        schema: &str,
        name: &str,
        arrow_schema: SchemaRef,
        spec: TableSpec,
    ) -> Result<TableId> {
        check_name("table", name)?;
        check_schema(name, &arrow_schema, &spec)?;
        let id = TableId(self.database.new_id());
        let table = Arc::new(Table::create(id, name.to_owned(), arrow_schema, spec));
        self.run(Operation::CreateTable { schema: schema.to_owned(), table })?;
        self.mark(&of_relation(schema, name))?;
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
        let is_new = self.work.schemas.get(schema).is_none_or(|s| !s.views.contains_key(name));
        self.run(Operation::CreateView { schema: schema.to_owned(), view, or_replace })?;
        if is_new { self.mark(&of_relation(schema, name)) } else { Ok(()) }
    }

    pub fn drop_view(&mut self, schema: &str, name: &str) -> Result<()> {
        self.run(Operation::DropView { schema: schema.to_owned(), name: name.to_owned() })
    }

    pub fn create_external(&mut self, schema: &str, name: &str, sql: &str) -> Result<()> {
        check_name("table", name)?;
        let external = Arc::new(External { name: name.to_owned(), sql: sql.to_owned() });
        self.run(Operation::CreateExternal { schema: schema.to_owned(), external })?;
        self.mark(&of_relation(schema, name))
    }

    pub fn drop_external(&mut self, schema: &str, name: &str) -> Result<()> {
        self.run(Operation::DropExternal { schema: schema.to_owned(), name: name.to_owned() })
    }

    /// Drops a table and makes one of the same name, which keeps its properties.
    pub fn recreate_table(
        &mut self,
        schema: &str,
        name: &str,
        arrow_schema: SchemaRef,
        spec: TableSpec,
    ) -> Result<TableId> {
        let prefix = of_relation(schema, name);
        let kept = with_prefix(&self.work.properties, &prefix);
        let kept: Vec<_> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        self.drop_table(schema, name)?;
        let mark = self.mark.take();
        let made = self.create_table(schema, name, arrow_schema, spec);
        self.mark = mark;
        let id = made?;
        for (name, value) in kept {
            self.set_property(&name, Some(value))?;
        }
        Ok(id)
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

    /// Removes all rows.
    pub fn truncate(&mut self, table: TableId) -> Result<()> {
        self.run(Operation::Replace { table, extents: Vec::new() })
    }

    /// Removes rows of `version`, which is the table as this transaction saw it when it found
    /// them. Returns how many.
    pub fn delete(&mut self, version: &Table, rows: &RowSet) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        let mut by_extent: BTreeMap<ExtentId, RoaringBitmap> = BTreeMap::new();
        for (ordinal, bitmap) in rows.0.bitmaps() {
            let extent = version.extents.get(ordinal as usize);
            let extent =
                extent.filter(|e| bitmap.max().is_none_or(|last| u64::from(last) < e.extent.rows));
            let Some(extent) = extent else {
                return Err(Error::internal(format!(
                    "rows to delete that table {} has not",
                    quoted(&version.name)
                )));
            };
            by_extent.insert(extent.extent.id, bitmap.clone());
        }
        self.run(Operation::Delete { table: version.id, rows: Arc::new(by_extent) })?;
        Ok(rows.len())
    }

    /// Exchanges extents of a table for others with the same rows, as far as they are not deleted.
    pub(crate) fn rewrite(
        &mut self,
        table: TableId,
        removed: Vec<TableExtent>,
        added: Vec<NewExtent>,
    ) -> Result<()> {
        let added = self.adopt(table, added)?;
        self.run(Operation::Rewrite { table, removed, added })
    }

    /// `initial` (of length 1) is the value of the rows that are there; `None`: NULL. `default` is
    /// the SQL text of what INSERT takes.
    pub fn add_column(
        &mut self,
        table: TableId,
        field: Field,
        initial: Option<ArrayRef>,
        default: Option<String>,
    ) -> Result<()> {
        let field = Arc::new(field);
        self.alter(table, Alteration::AddColumn { field, initial, default })
    }

    pub fn drop_column(&mut self, table: TableId, name: &str) -> Result<()> {
        self.alter(table, Alteration::DropColumn { name: name.to_owned() })
    }

    pub fn rename_column(&mut self, table: TableId, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.alter(table, Alteration::RenameColumn { from, to })
    }

    /// What INSERT takes where no value is given.
    pub fn set_default(
        &mut self,
        table: TableId,
        name: &str,
        default: Option<String>,
    ) -> Result<()> {
        self.alter(table, Alteration::SetDefault { name: name.to_owned(), default })
    }

    pub fn drop_not_null(&mut self, table: TableId, name: &str) -> Result<()> {
        self.alter(table, Alteration::SetNullable { name: name.to_owned() })
    }

    /// How rows written from now on, and compacted ones, are sorted.
    pub fn set_cluster_by(&mut self, table: TableId, columns: Vec<String>) -> Result<()> {
        self.alter(table, Alteration::ClusterBy { columns })
    }

    /// Within its schema.
    pub fn rename_table(&mut self, table: TableId, to: &str) -> Result<()> {
        check_name("table", to)?;
        self.alter(table, Alteration::Rename { to: to.to_owned() })
    }

    fn alter(&mut self, table: TableId, alteration: Alteration) -> Result<()> {
        self.run(Operation::Alter { table, alteration })
    }

    /// Remembers that the rows of these files are in the table.
    pub fn record_files(&mut self, table: TableId, files: Vec<LoadedFile>) -> Result<()> {
        self.run(Operation::RecordFiles { table, files })
    }

    /// A setting of the database as a whole; `None` removes it.
    pub fn set_property(&mut self, name: &str, value: Option<String>) -> Result<()> {
        self.run(Operation::SetProperty { name: name.to_owned(), value })
    }

    fn adopt(&mut self, table: TableId, extents: Vec<NewExtent>) -> Result<Vec<Arc<Extent>>> {
        let Some(table) = self.work.table_by_id(table) else {
            return Err(Error::conflict("the table to be written to is gone")
                .hint("run the statement again"));
        };
        if extents.iter().any(|e| !self.database.owns(&e.extent)) {
            return Err(Error::internal("an extent of another database"));
        }
        for new in &extents {
            let metadata = new.extent.open()?;
            let fits = |c: &crate::extent::ExtentColumn| {
                let place = table.columns.iter().position(|column| column.id == c.id);
                place.is_none_or(|p| *table.arrow_schema.field(p).data_type() == c.data_type)
            };
            if !metadata.columns.iter().all(fits) {
                return Err(Error::internal(format!(
                    "an extent for another table than {}",
                    quoted(&table.name)
                )));
            }
        }
        if let Some(first) = extents.first() {
            self.writing = Some(first.writing.clone());
        }
        Ok(extents.into_iter().map(|e| e.extent).collect())
    }

    /// Makes everything durable and visible, and returns the new snapshot. Without operations it
    /// returns the current one.
    ///
    /// Conflicts ([`thalweg_base::Kind::Conflict`]) if, since the base, a table written to was
    /// dropped; a row deleted here was deleted, or its extent rewritten; a table replaced here was
    /// changed at all; a table altered here was altered; or a name was taken or dropped. Appends
    /// never conflict with appends.
    pub fn commit(self) -> Result<Arc<Snapshot>> {
        if self.operations.is_empty() {
            return Ok(self.database.snapshot());
        }
        self.database.commit(&self.base, &self.operations, self.summary)
    }
}

#[cfg(test)]
mod tests;
