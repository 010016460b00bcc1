//! From commits to snapshots and back: the pure part of the catalog.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema as ArrowSchema};
use roaring::RoaringBitmap;
use thalweg_base::limits::HISTORY_COMMITS_MAX;
use thalweg_base::{ExtentId, Result, SnapshotId, TableId};

use super::record::{
    Change, Checkpoint, ColumnRecord, Commit, CommitInfo, Relation, Removed, Summary, TableRecord,
    damaged,
};
use crate::extent::{Extent, Home, batch_from_ipc, schema_from_ipc, to_ipc};
use crate::snapshot::{External, Schema, Snapshot, View};
use crate::table::{Column, Deleted, PartitionBy, Table, TableExtent};

/// A snapshot, and how it came to be.
pub(crate) struct History {
    pub snapshot: Arc<Snapshot>,
    /// Oldest first, the last one made the snapshot; bounded.
    pub commits: VecDeque<CommitInfo>,
    /// Extents that no table names any more and whose files may still be there.
    pub removed: Vec<Removed>,
}

impl History {
    pub fn from_checkpoint(checkpoint: Checkpoint, home: &Arc<Home>, object: &str) -> Result<Self> {
        let Checkpoint { id, time_ms, changes, history, removed } = checkpoint;
        let empty = Snapshot::empty();
        let (snapshot, _) = apply(&empty, SnapshotId(id), time_ms, changes, home, object)?;
        Ok(History { snapshot: Arc::new(snapshot), commits: history.into(), removed })
    }

    pub fn to_checkpoint(&self) -> Result<Checkpoint> {
        Ok(Checkpoint {
            id: self.snapshot.id.0,
            time_ms: self.snapshot.time_ms,
            changes: changes_from_nothing(&self.snapshot)?,
            history: self.commits.iter().cloned().collect(),
            removed: self.removed.clone(),
        })
    }

    /// Moves on by a commit; after an error nothing has changed. `object` is the commit's name for
    /// messages.
    pub fn advance(&mut self, commit: Commit, home: &Arc<Home>, object: &str) -> Result<()> {
        let Commit { id, time_ms, summary, changes } = commit;
        let (snapshot, gone) =
            apply(&self.snapshot, SnapshotId(id), time_ms, changes, home, object)?;
        self.push(Arc::new(snapshot), summary, gone);
        Ok(())
    }

    /// Moves on to `snapshot`, in which `gone` are named no more.
    pub fn push(
        &mut self,
        snapshot: Arc<Snapshot>,
        summary: Summary,
        gone: impl IntoIterator<Item = Removed>,
    ) {
        let (id, time_ms) = (snapshot.id.0, snapshot.time_ms);
        self.commits.push_back(CommitInfo { id, time_ms, summary });
        if self.commits.len() > HISTORY_COMMITS_MAX {
            self.commits.pop_front();
        }
        self.removed.extend(gone);
        self.snapshot = snapshot;
    }

    /// The newest snapshot that is at least `retention_ms` old: it, and every later one, may be
    /// asked for. Without one so old, the first.
    pub fn oldest_kept(&self, now_ms: u64, retention_ms: u64) -> SnapshotId {
        let limit = now_ms.saturating_sub(retention_ms);
        let old = self.commits.iter().rev().find(|c| c.time_ms <= limit);
        let first = match self.commits.front() {
            None => self.snapshot.id.0,
            // Before it there was the empty database.
            Some(first) if first.id == 1 => 0,
            Some(first) => first.id,
        };
        SnapshotId(old.map_or(first, |c| c.id))
    }
}

/// Extents that `old` names and `new` does not, as removed at `time_ms`.
pub(crate) fn gone(old: &Snapshot, new: &Snapshot, time_ms: u64) -> Vec<Removed> {
    let kept: HashSet<ExtentId> = new.extents().map(|e| e.extent.id).collect();
    let gone = old.extents().filter(|e| !kept.contains(&e.extent.id));
    gone.map(|e| Removed { extent: e.extent.id.0, bytes: e.extent.bytes, time_ms }).collect()
}

/// A snapshot with changes, and the extents that are gone by them.
fn apply(
    old: &Snapshot,
    id: SnapshotId,
    time_ms: u64,
    changes: Vec<Change>,
    home: &Arc<Home>,
    object: &str,
) -> Result<(Snapshot, Vec<Removed>)> {
    let fault = |why: String| damaged(object, &why);
    let mut schemas: BTreeMap<String, Schema> =
        old.schemas.iter().map(|(name, s)| (name.clone(), Schema::clone(s))).collect();
    let mut properties = old.properties.clone();

    // Tables that change leave their places first, so that names can be exchanged.
    let touched: HashSet<u64> = changes
        .iter()
        .filter_map(|change| match change {
            Change::PutTable(table) => Some(table.id),
            Change::RemoveTable { id } => Some(*id),
            Change::Extents { table, .. }
            | Change::Deleted { table, .. }
            | Change::LoadedFiles { table, .. } => Some(*table),
            _ => None,
        })
        .collect();
    let mut tables: HashMap<u64, (String, Table)> = HashMap::new();
    for (name, schema) in &mut schemas {
        schema.tables.retain(|_, table| {
            let stays = !touched.contains(&table.id.0);
            if !stays {
                tables.insert(table.id.0, (name.clone(), table.edit()));
            }
            stays
        });
    }

    let mut dropped = Vec::new();
    for change in changes {
        let schema_of = |name: &str| fault(format!("it names schema {name:?}, which is not there"));
        let no_table = |id: u64| fault(format!("it names table {id}, which is not there"));
        match change {
            Change::PutSchema(name) => {
                schemas.insert(name.clone(), Schema::new(name));
            }
            Change::RemoveSchema(name) => {
                schemas.remove(&name);
            }
            Change::PutRelation { schema, name, relation } => {
                let schema = schemas.get_mut(&schema).ok_or_else(|| schema_of(&schema))?;
                match relation {
                    Relation::View { sql } => {
                        let view = View { name: name.clone(), sql };
                        schema.views.insert(name, Arc::new(view));
                    }
                    Relation::External { sql } => {
                        let external = External { name: name.clone(), sql };
                        schema.externals.insert(name, Arc::new(external));
                    }
                }
            }
            Change::RemoveRelation { schema, name } => {
                let schema = schemas.get_mut(&schema).ok_or_else(|| schema_of(&schema))?;
                schema.views.remove(&name);
                schema.externals.remove(&name);
            }
            Change::PutTable(record) => {
                let (id, schema) = (record.id, record.schema.clone());
                let mut table = define(record).map_err(fault)?;
                if let Some((_, before)) = tables.remove(&id) {
                    table.extents = before.extents;
                    table.loaded_files = before.loaded_files;
                }
                tables.insert(id, (schema, table));
            }
            Change::RemoveTable { id } => {
                let (_, table) = tables.remove(&id).ok_or_else(|| no_table(id))?;
                dropped.extend(table.extents);
            }
            Change::Extents { table: id, removed, added } => {
                let (_, table) = tables.get_mut(&id).ok_or_else(|| no_table(id))?;
                if !removed.is_empty() {
                    let removed: HashSet<u64> = removed.into_iter().collect();
                    let (out, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut table.extents)
                        .into_iter()
                        .partition(|e| removed.contains(&e.extent.id.0));
                    table.extents = kept;
                    dropped.extend(out);
                }
                let added = added.iter().map(|r| TableExtent::new(Extent::committed(r, home)));
                table.extents.extend(added);
            }
            Change::Deleted { table: id, extent, rows } => {
                let (_, table) = tables.get_mut(&id).ok_or_else(|| no_table(id))?;
                let place = table.extent(ExtentId(extent)).ok_or_else(|| {
                    fault(format!("it names extent {extent:x}, which is not there"))
                })?;
                let rows = RoaringBitmap::deserialize_from(rows.as_slice())
                    .map_err(|e| fault(format!("the deleted rows of extent {extent:x}: {e}")))?;
                let entry = &mut table.extents[place];
                if rows.max().is_some_and(|last| u64::from(last) >= entry.extent.rows) {
                    return Err(fault(format!("extent {extent:x} has no such row to delete")));
                }
                entry.deleted = (!rows.is_empty()).then(|| Arc::new(Deleted(rows)));
            }
            Change::LoadedFiles { table: id, files } => {
                let (_, table) = tables.get_mut(&id).ok_or_else(|| no_table(id))?;
                table.loaded_files = files.into();
            }
            Change::SetProperty { name, value } => match value {
                Some(value) => {
                    properties.insert(name, value);
                }
                None => {
                    properties.remove(&name);
                }
            },
        }
    }
    for (schema, table) in tables.into_values() {
        let schema = schemas
            .get_mut(&schema)
            .ok_or_else(|| fault(format!("it names schema {schema:?}, which is not there")))?;
        schema.tables.insert(table.name.clone(), Arc::new(table));
    }
    let schemas = schemas.into_iter().map(|(name, schema)| (name, Arc::new(schema))).collect();
    let gone =
        dropped.iter().map(|e| Removed { extent: e.extent.id.0, bytes: e.extent.bytes, time_ms });
    let gone = gone.collect();
    Ok((Snapshot { id, time_ms, schemas, properties }, gone))
}

/// A table without rows. The error is the cause alone.
fn define(record: TableRecord) -> Result<Table, String> {
    let name = record.name;
    let cause = |e: &dyn std::fmt::Display| format!("table {name:?}: {e}");
    let arrow_schema = schema_from_ipc(&record.arrow_schema).map_err(|e| cause(&e))?;
    let count = arrow_schema.fields().len();
    if record.columns.len() != count {
        return Err(format!(
            "table {name:?} has {count} fields and {} columns",
            record.columns.len()
        ));
    }
    let columns = record.columns.into_iter().zip(arrow_schema.fields()).map(|(column, field)| {
        let initial = column.initial.map(|bytes| decode_array(&bytes)).transpose()?;
        if initial.as_ref().is_some_and(|i| i.len() != 1 || i.data_type() != field.data_type()) {
            return Err(format!("the first value of column {:?} is not its type", field.name()));
        }
        Ok(Column { id: column.id, initial, default: column.default })
    });
    let columns = columns.collect::<Result<Vec<_>, String>>().map_err(|e| cause(&e))?;
    let cluster_by: Vec<usize> = record.cluster_by.into_iter().map(|c| c as usize).collect();
    let partition_by = record
        .partition_by
        .map(|(column, buckets)| PartitionBy { column: column as usize, buckets });
    let named = cluster_by.iter().copied().chain(partition_by.map(|p| p.column));
    if named.max().is_some_and(|last| last >= count) {
        return Err(format!("table {name:?} is ordered by a column it has not"));
    }
    let mut table = Table::create(TableId(record.id), name, arrow_schema, Default::default());
    table.columns = columns.into();
    table.next_column = record.next_column;
    table.cluster_by = cluster_by;
    table.partition_by = partition_by;
    Ok(table)
}

/// What makes `snapshot` from an empty database.
pub(crate) fn changes_from_nothing(snapshot: &Snapshot) -> Result<Vec<Change>> {
    changes(&Snapshot::empty(), snapshot)
}

/// What turns `old` into `new`.
///
/// *Invariant* of all that make new snapshots: the extents of a table that stay keep their order,
/// and those that come are behind them.
pub(crate) fn changes(old: &Snapshot, new: &Snapshot) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let before: HashMap<TableId, (&str, &Arc<Table>)> =
        old.named_tables().map(|(schema, table)| (table.id, (schema, table))).collect();
    let after: HashSet<TableId> = new.tables().map(|t| t.id).collect();
    for (_, table) in old.named_tables().filter(|(_, t)| !after.contains(&t.id)) {
        changes.push(Change::RemoveTable { id: table.id.0 });
    }
    for (name, schema) in &old.schemas {
        let kept = new.schemas.get(name);
        for relation in schema.views.keys().chain(schema.externals.keys()) {
            let stays = kept.is_some_and(|k| {
                k.views.contains_key(relation) || k.externals.contains_key(relation)
            });
            if !stays {
                let (schema, name) = (name.clone(), relation.clone());
                changes.push(Change::RemoveRelation { schema, name });
            }
        }
        if kept.is_none() {
            changes.push(Change::RemoveSchema(name.clone()));
        }
    }
    for (name, schema) in &new.schemas {
        let kept = old.schemas.get(name);
        if kept.is_none() {
            changes.push(Change::PutSchema(name.clone()));
        }
        let mut put = |relation: &str, record: Relation| {
            changes.push(Change::PutRelation {
                schema: name.clone(),
                name: relation.to_owned(),
                relation: record,
            });
        };
        for (relation, view) in &schema.views {
            if kept.and_then(|k| k.views.get(relation)).is_none_or(|v| v.sql != view.sql) {
                put(relation, Relation::View { sql: view.sql.clone() });
            }
        }
        for (relation, external) in &schema.externals {
            if kept.and_then(|k| k.externals.get(relation)).is_none_or(|e| e.sql != external.sql) {
                put(relation, Relation::External { sql: external.sql.clone() });
            }
        }
    }
    for (schema, table) in new.named_tables() {
        let was = before.get(&table.id);
        if was.is_some_and(|(_, was)| Arc::ptr_eq(was, table)) {
            continue;
        }
        if was.is_none_or(|(s, was)| *s != schema || !was.same_definition(table)) {
            changes.push(Change::PutTable(table_record(schema, table)?));
        }
        rows_changed(was.map(|(_, was)| &***was), table, &mut changes)?;
    }
    let names = old.properties.keys().chain(new.properties.keys());
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        let value = new.properties.get(name);
        if old.properties.get(name) != value {
            changes.push(Change::SetProperty { name: name.clone(), value: value.cloned() });
        }
    }
    Ok(changes)
}

fn rows_changed(old: Option<&Table>, new: &Table, changes: &mut Vec<Change>) -> Result<()> {
    let table = new.id.0;
    let none = Vec::new();
    let old_extents = old.map_or(&none, |t| &t.extents);
    let was: HashMap<ExtentId, &TableExtent> =
        old_extents.iter().map(|e| (e.extent.id, e)).collect();
    let is: HashSet<ExtentId> = new.extents.iter().map(|e| e.extent.id).collect();
    let removed: Vec<u64> =
        old_extents.iter().filter(|e| !is.contains(&e.extent.id)).map(|e| e.extent.id.0).collect();
    let added: Vec<_> = new
        .extents
        .iter()
        .filter(|e| !was.contains_key(&e.extent.id))
        .map(|e| e.extent.record())
        .collect();
    if !removed.is_empty() || !added.is_empty() {
        changes.push(Change::Extents { table, removed, added });
    }
    for e in &new.extents {
        let before = was.get(&e.extent.id).and_then(|e| e.deleted.as_ref());
        if crate::table::same_deleted(before, e.deleted.as_ref()) {
            continue;
        }
        let mut rows = Vec::new();
        let empty = RoaringBitmap::new();
        let bitmap = e.deleted.as_ref().map_or(&empty, |d| &d.0);
        bitmap.serialize_into(&mut rows).map_err(|e| {
            thalweg_base::Error::internal("deleted rows cannot be written").source(e)
        })?;
        changes.push(Change::Deleted { table, extent: e.extent.id.0, rows });
    }
    if old.map_or(0, |t| t.loaded_files.len()) != new.loaded_files.len()
        || old.is_some_and(|t| t.loaded_files != new.loaded_files)
    {
        changes.push(Change::LoadedFiles { table, files: new.loaded_files.to_vec() });
    }
    Ok(())
}

fn table_record(schema: &str, table: &Table) -> Result<TableRecord> {
    let columns = table.columns.iter().map(|column| {
        Ok(ColumnRecord {
            id: column.id,
            initial: column.initial.as_ref().map(encode_array).transpose()?,
            default: column.default.clone(),
        })
    });
    Ok(TableRecord {
        id: table.id.0,
        schema: schema.to_owned(),
        name: table.name.clone(),
        arrow_schema: to_ipc(&table.arrow_schema, None)?,
        columns: columns.collect::<Result<_>>()?,
        next_column: table.next_column,
        cluster_by: table.cluster_by.iter().map(|&c| c as u32).collect(),
        partition_by: table.partition_by.map(|p| (p.column as u32, p.buckets)),
    })
}

pub(crate) fn encode_array(array: &ArrayRef) -> Result<Vec<u8>> {
    let field = Field::new("value", array.data_type().clone(), true);
    let schema = Arc::new(ArrowSchema::new(vec![field]));
    let batch = RecordBatch::try_new(schema.clone(), vec![array.clone()])
        .map_err(|e| thalweg_base::Error::internal("a value makes no batch").source(e))?;
    to_ipc(&schema, Some(&batch))
}

/// The error is the cause alone.
pub(crate) fn decode_array(bytes: &[u8]) -> Result<ArrayRef, String> {
    let batch = batch_from_ipc(bytes).map_err(|e| e.to_string())?;
    match batch.columns() {
        [only] => Ok(only.clone()),
        columns => Err(format!("a value of {} columns", columns.len())),
    }
}
