//! Which changes there are, what they do to a snapshot, and which of them conflict: pure functions,
//! without a store and without a clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema as ArrowSchema};
use roaring::RoaringBitmap;
use thalweg_base::text::quoted;
use thalweg_base::{Error, ExtentId, Result, SnapshotId, TableId};

use crate::catalog::LoadedFile;
use crate::extent::Extent;
use crate::properties::{self, of_relation, of_schema};
use crate::snapshot::{External, RelationKind, Schema, Snapshot, View};
use crate::table::{Column, Deleted, Table, TableExtent, TableSpec, same_deleted};
use crate::types::check_schema;

#[derive(Clone)]
pub(crate) enum Operation {
    CreateSchema(String),
    DropSchema(String),
    CreateTable {
        schema: String,
        table: Arc<Table>,
    },
    DropTable {
        schema: String,
        name: String,
        id: TableId,
    },
    CreateView {
        schema: String,
        view: Arc<View>,
        or_replace: bool,
    },
    DropView {
        schema: String,
        name: String,
    },
    CreateExternal {
        schema: String,
        external: Arc<External>,
    },
    DropExternal {
        schema: String,
        name: String,
    },
    Append {
        table: TableId,
        extents: Vec<Arc<Extent>>,
    },
    /// Other rows for all that are there.
    Replace {
        table: TableId,
        extents: Vec<Arc<Extent>>,
    },
    Delete {
        table: TableId,
        rows: Arc<BTreeMap<ExtentId, RoaringBitmap>>,
    },
    /// The same rows in other extents.
    Rewrite {
        table: TableId,
        removed: Vec<TableExtent>,
        added: Vec<Arc<Extent>>,
    },
    Alter {
        table: TableId,
        alteration: Alteration,
    },
    RecordFiles {
        table: TableId,
        files: Vec<LoadedFile>,
    },
    SetProperty {
        name: String,
        value: Option<String>,
    },
}

#[derive(Clone)]
pub(crate) enum Alteration {
    AddColumn { field: Arc<Field>, initial: Option<ArrayRef>, default: Option<String> },
    DropColumn { name: String },
    RenameColumn { from: String, to: String },
    SetDefault { name: String, default: Option<String> },
    SetNullable { name: String },
    ClusterBy { columns: Vec<String> },
    Rename { to: String },
}

/// Extents that operations bring.
pub(crate) fn new_extents(operations: &[Operation]) -> impl Iterator<Item = &Arc<Extent>> {
    operations.iter().flat_map(|operation| match operation {
        Operation::Append { extents, .. }
        | Operation::Replace { extents, .. }
        | Operation::Rewrite { added: extents, .. } => extents.as_slice(),
        _ => &[],
    })
}

/// The pure core of a commit: `current` with `operations`, which were made against `base`.
pub(crate) fn rebase(
    base: &Snapshot,
    current: &Snapshot,
    operations: &[Operation],
    time_ms: u64,
) -> Result<Snapshot> {
    for operation in operations {
        check_conflict(base, current, operation)?;
    }
    let id = SnapshotId(current.id.0 + 1);
    let mut next = Snapshot { id, time_ms, ..current.clone() };
    for operation in operations {
        apply(&mut next, operation).map_err(|e| {
            // It was possible when it was asked for: somebody came between.
            Error::conflict(format!("{}, by a transaction that committed first", e.message()))
                .hint("try again")
        })?;
    }
    Ok(next)
}

fn check_conflict(base: &Snapshot, current: &Snapshot, operation: &Operation) -> Result<()> {
    let id = match operation {
        Operation::Append { table, .. }
        | Operation::Replace { table, .. }
        | Operation::Delete { table, .. }
        | Operation::Rewrite { table, .. }
        | Operation::Alter { table, .. }
        | Operation::RecordFiles { table, .. } => *table,
        Operation::SetProperty { name, .. } => return check_property(base, current, name),
        _ => return Ok(()),
    };
    // Made by this very transaction.
    let Some(before) = base.table_by_id(id) else { return Ok(()) };
    let happened = match current.table_by_id(id) {
        None => "dropped",
        // What is replaced may have been computed from what was read: rows that came since would
        // be lost.
        Some(now) if matches!(operation, Operation::Replace { .. }) && !now.same_rows(before) => {
            "changed"
        }
        Some(now)
            if matches!(operation, Operation::Alter { .. }) && !now.same_definition(before) =>
        {
            "altered"
        }
        Some(_) => return Ok(()),
    };
    Err(Error::conflict(format!(
        "table {} was {happened} by a transaction that committed first",
        quoted(&before.name)
    ))
    .hint("try again"))
}

/// What a property becomes may have been computed from what it was: neither of two changes of it
/// may be lost.
fn check_property(base: &Snapshot, current: &Snapshot, name: &str) -> Result<()> {
    if base.properties.get(name) == current.properties.get(name) {
        return Ok(());
    }
    Err(Error::conflict("a setting was changed by a transaction that committed first")
        .hint("try again"))
}

pub(crate) fn no_schema(name: &str) -> Error {
    Error::user(format!("schema {} does not exist", quoted(name)))
        .code("3F000")
        .hint("CREATE SCHEMA makes one")
}

pub(crate) fn missing(
    snapshot: &Snapshot,
    schema: &str,
    name: &str,
    wanted: RelationKind,
) -> Error {
    let Some(found) = snapshot.schemas.get(schema) else { return no_schema(schema) };
    match found.relation(name) {
        Some(other) if other != wanted => {
            Error::user(format!("{} is a {}, not a {}", quoted(name), other.name(), wanted.name()))
                .code("42809")
        }
        _ => Error::user(format!("{} {} does not exist", wanted.name(), quoted(name)))
            .code("42P01")
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
                .code("42P07")
                .hint("choose another name, or drop it first"))
        }
        _ => Ok(()),
    }
}

/// One operation on a snapshot being made.
pub(crate) fn apply(snapshot: &mut Snapshot, operation: &Operation) -> Result<()> {
    match operation {
        Operation::CreateSchema(name) => {
            if snapshot.schemas.contains_key(name) {
                let e = Error::user(format!("schema {} already exists", quoted(name)));
                return Err(e.code("42P06"));
            }
            snapshot.schemas.insert(name.clone(), Arc::new(Schema::new(name)));
        }
        Operation::DropSchema(name) => {
            let schema = snapshot.schemas.get(name).ok_or_else(|| no_schema(name))?;
            if !schema.is_empty() {
                return Err(Error::user(format!("schema {} is not empty", quoted(name)))
                    .code("2BP01")
                    .hint("DROP SCHEMA … CASCADE drops what is in it, too"));
            }
            snapshot.schemas.remove(name);
            properties::take(&mut snapshot.properties, &of_schema(name));
        }
        Operation::CreateTable { schema, table } => {
            check_free(snapshot, schema, &table.name, None)?;
            schema_mut(&mut snapshot.schemas, schema)?
                .tables
                .insert(table.name.clone(), table.clone());
        }
        Operation::DropTable { schema, name, id } => {
            if snapshot.table(schema, name).is_none_or(|t| t.id != *id) {
                return Err(missing(snapshot, schema, name, RelationKind::Table));
            }
            schema_mut(&mut snapshot.schemas, schema)?.tables.remove(name);
            properties::take(&mut snapshot.properties, &of_relation(schema, name));
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
            properties::take(&mut snapshot.properties, &of_relation(schema, name));
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
            properties::take(&mut snapshot.properties, &of_relation(schema, name));
        }
        Operation::Append { table, extents } => edit(snapshot, *table, |t| {
            t.extents.extend(extents.iter().cloned().map(TableExtent::new));
            Ok(())
        })?,
        Operation::Replace { table, extents } => edit(snapshot, *table, |t| {
            t.extents = extents.iter().cloned().map(TableExtent::new).collect();
            t.loaded_files = Arc::default();
            Ok(())
        })?,
        Operation::Delete { table, rows } => edit(snapshot, *table, |t| delete(t, rows))?,
        Operation::Rewrite { table, removed, added } => edit(snapshot, *table, |t| {
            for gone in removed {
                let place = t.extent(gone.extent.id).filter(|&place| {
                    same_deleted(t.extents[place].deleted.as_ref(), gone.deleted.as_ref())
                });
                let Some(place) = place else {
                    return Err(Error::conflict(format!(
                        "rows of table {} to be rewritten were changed",
                        quoted(&t.name)
                    )));
                };
                t.extents.remove(place);
            }
            t.extents.extend(added.iter().cloned().map(TableExtent::new));
            Ok(())
        })?,
        Operation::Alter { table, alteration: Alteration::Rename { to } } => {
            rename(snapshot, *table, to)?;
        }
        Operation::Alter { table, alteration } => {
            edit(snapshot, *table, |t| alter(t, alteration))?;
        }
        Operation::RecordFiles { table, files } => edit(snapshot, *table, |t| {
            let mut all: BTreeMap<&str, &LoadedFile> =
                t.loaded_files.iter().map(|f| (f.path.as_str(), f)).collect();
            all.extend(files.iter().map(|f| (f.path.as_str(), f)));
            t.loaded_files = all.into_values().cloned().collect();
            Ok(())
        })?,
        Operation::SetProperty { name, value } => match value {
            Some(_) if !properties::has_owner(snapshot, name) => {
                return Err(Error::user("what is to be described is not there"));
            }
            Some(value) => {
                snapshot.properties.insert(name.clone(), value.clone());
            }
            None => {
                snapshot.properties.remove(name);
            }
        },
    }
    Ok(())
}

fn delete(table: &mut Table, rows: &BTreeMap<ExtentId, RoaringBitmap>) -> Result<()> {
    let name = quoted(&table.name);
    for (extent, rows) in rows {
        let Some(place) = table.extent(*extent) else {
            return Err(Error::conflict(format!(
                "rows of table {name} to be changed were rewritten"
            )));
        };
        let entry = &mut table.extents[place];
        let mut all = match &entry.deleted {
            None => RoaringBitmap::new(),
            Some(deleted) if !deleted.0.is_disjoint(rows) => {
                return Err(Error::conflict(format!(
                    "a row of table {name} to be changed was changed"
                )));
            }
            Some(deleted) => deleted.0.clone(),
        };
        all |= rows;
        if all.len() == entry.extent.rows {
            table.extents.remove(place);
        } else {
            entry.deleted = Some(Arc::new(Deleted(all)));
        }
    }
    Ok(())
}

fn alter(table: &mut Table, alteration: &Alteration) -> Result<()> {
    let schema = table.arrow_schema.clone();
    let of = quoted(&table.name);
    let position = |name: &str| {
        schema.index_of(name).map_err(|_| {
            let all: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            Error::user(format!("column {} of relation {of} does not exist", quoted(name)))
                .code("42703")
                .hint(format!("its columns are {}", all.join(", ")))
        })
    };
    let free = |name: &str| match schema.index_of(name) {
        Err(_) => Ok(()),
        Ok(_) => {
            let e = format!("column {} of relation {of} already exists", quoted(name));
            Err(Error::user(e).code("42701"))
        }
    };
    let mut fields: Vec<Arc<Field>> = schema.fields().to_vec();
    let mut columns = table.columns.to_vec();
    match alteration {
        Alteration::AddColumn { field, initial, default } => {
            free(field.name())?;
            if !field.is_nullable() && initial.as_ref().is_none_or(|i| i.is_null(0)) {
                let rows = table.rows();
                if rows > 0 {
                    return Err(Error::user(format!(
                        "column {} is NOT NULL, and the {rows} rows of table {of} have no value for it",
                        quoted(field.name())
                    ))
                    .hint("give it a DEFAULT, or leave NOT NULL out"));
                }
            }
            if initial.as_ref().is_some_and(|i| i.len() != 1 || i.data_type() != field.data_type())
            {
                return Err(Error::internal("a first value that is not of the column's type"));
            }
            fields.push(field.clone());
            columns.push(Column {
                id: table.next_column,
                initial: initial.clone().filter(|i| !i.is_null(0)),
                default: default.clone(),
            });
            table.next_column += 1;
        }
        Alteration::DropColumn { name } => {
            let at = position(name)?;
            if fields.len() == 1 {
                return Err(Error::user(format!(
                    "column {} is the only one of table {of}",
                    quoted(name)
                ))
                .hint("DROP TABLE drops the table"));
            }
            if table.cluster_by.contains(&at) {
                return Err(Error::user(format!(
                    "table {of} is clustered by column {}",
                    quoted(name)
                ))
                .hint("ALTER TABLE … CLUSTER BY another column first"));
            }
            if table.partition_by.is_some_and(|p| p.column == at) {
                return Err(Error::user(format!(
                    "table {of} is partitioned by column {}",
                    quoted(name)
                ))
                .hint("CREATE TABLE … AS SELECT makes one without it"));
            }
            fields.remove(at);
            columns.remove(at);
            let shift = |c: &mut usize| *c -= usize::from(*c > at);
            table.cluster_by.iter_mut().for_each(shift);
            table.partition_by.iter_mut().for_each(|p| shift(&mut p.column));
        }
        Alteration::RenameColumn { from, to } => {
            let at = position(from)?;
            free(to)?;
            fields[at] = Arc::new(fields[at].as_ref().clone().with_name(to));
        }
        Alteration::SetDefault { name, default } => {
            columns[position(name)?].default = default.clone();
        }
        Alteration::SetNullable { name } => {
            let at = position(name)?;
            fields[at] = Arc::new(fields[at].as_ref().clone().with_nullable(true));
        }
        Alteration::ClusterBy { columns } => {
            table.cluster_by = columns.iter().map(|c| position(c)).collect::<Result<_>>()?;
        }
        Alteration::Rename { .. } => {
            return Err(Error::internal("a table is renamed in its schema"));
        }
    }
    let schema = Arc::new(ArrowSchema::new(fields));
    let spec = TableSpec {
        cluster_by: table.cluster_by.clone(),
        partition_by: table.partition_by,
        defaults: Vec::new(),
    };
    check_schema(&table.name, &schema, &spec)?;
    table.arrow_schema = schema;
    table.columns = columns.into();
    Ok(())
}

fn rename(snapshot: &mut Snapshot, id: TableId, to: &str) -> Result<()> {
    let found = snapshot.named_tables().find(|(_, t)| t.id == id);
    let Some((schema, table)) = found.map(|(s, t)| (s.to_owned(), t.clone())) else {
        return Err(Error::user("the table to be renamed was dropped"));
    };
    if table.name == to {
        return Ok(());
    }
    check_free(snapshot, &schema, to, None)?;
    let tables = &mut schema_mut(&mut snapshot.schemas, &schema)?.tables;
    tables.remove(&table.name);
    let mut renamed = table.edit();
    renamed.name = to.to_owned();
    tables.insert(to.to_owned(), Arc::new(renamed));
    let (old, new) = (of_relation(&schema, &table.name), of_relation(&schema, to));
    for (name, value) in properties::take(&mut snapshot.properties, &old) {
        snapshot.properties.insert(format!("{new}{name}"), value);
    }
    Ok(())
}

fn edit(
    snapshot: &mut Snapshot,
    id: TableId,
    f: impl FnOnce(&mut Table) -> Result<()>,
) -> Result<()> {
    for schema in snapshot.schemas.values_mut() {
        let Some(name) = schema.tables.values().find(|t| t.id == id).map(|t| t.name.clone()) else {
            continue;
        };
        if let Some(table) = Arc::make_mut(schema).tables.get_mut(&name) {
            let mut changed = table.edit();
            f(&mut changed)?;
            *table = Arc::new(changed);
            return Ok(());
        }
    }
    Err(Error::user("the table to be written to was dropped"))
}
