//! The catalog on disk: one redb file, changed by one durable transaction per commit.
//!
//! ```text
//! meta       name                → number      format, snapshot, next_extent, next_table
//! schemas    name                → ()
//! relations  (schema, name)      → Relation    table, view or external table   (postcard)
//! extents    (table id, ordinal) → ExtentRecord                                (postcard)
//! ```
//! *Invariant*: every extent in `extents` was synced before the transaction that put it there.
//! redb commits are atomic, so a crash at any byte leaves the previous or the next state. Nothing
//! here is edited in place: a commit writes the difference of two snapshots.

use std::collections::{BTreeMap, HashSet};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, AsArray, RecordBatch, UInt64Array};
use arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use redb::backends::InMemoryBackend;
use redb::{Builder, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use thalweg_base::{Error, ExtentId, Result, SnapshotId, TableId};

use crate::extent::{
    ColumnTypes, EncodingNames, Extent, ExtentColumn, ExtentParts, Home, Location,
};
use crate::hll::Sketch;
use crate::snapshot::{External, PUBLIC, Schema, Snapshot, View};
use crate::statistics::ChunkStatistics;
use crate::table::Table;

/// Of everything in a database directory: the catalog's tables, the extents, the sketches' hashes.
/// Raised when an older program would misread a newer directory, or the other way round.
const FORMAT: u64 = 1;

/// redb's own cache of pages; the catalog is read once, at open.
const CACHE_BYTES_MAX: usize = 16 * 1024 * 1024;

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const SCHEMAS: TableDefinition<&str, ()> = TableDefinition::new("schemas");
const RELATIONS: TableDefinition<(&str, &str), &[u8]> = TableDefinition::new("relations");
const EXTENTS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("extents");

#[derive(Serialize, Deserialize)]
enum Relation {
    /// `arrow_schema` is an Arrow IPC stream without batches.
    Table {
        id: u64,
        arrow_schema: Vec<u8>,
        cluster_by: Vec<u32>,
    },
    View {
        sql: String,
    },
    External {
        sql: String,
    },
}

#[derive(Serialize, Deserialize)]
struct ExtentRecord {
    id: u64,
    bytes: u64,
    encodings: EncodingNames,
    chunk_rows: Vec<u32>,
    columns: Vec<ColumnRecord>,
    /// An Arrow IPC stream of one batch: of each column min, max, and whether they are exact;
    /// one row per chunk.
    bounds: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct ColumnRecord {
    /// Offset, length and checksum of each chunk.
    locations: Vec<(u64, u32, u32)>,
    nulls: Vec<u64>,
    distincts: Vec<u64>,
    value_bytes: Vec<u64>,
    sketch: Sketch,
}

pub(crate) struct Catalog {
    redb: redb::Database,
    /// The file's, for messages.
    name: String,
}

/// What the catalog held when it was opened.
pub(crate) struct Loaded {
    pub snapshot: Snapshot,
    pub next_table: u64,
    /// Ids of all extents, to tell orphans by.
    pub extents: HashSet<ExtentId>,
}

impl Catalog {
    pub fn memory() -> Result<Self> {
        let redb = Builder::new()
            .create_with_backend(InMemoryBackend::new())
            .map_err(|e| Error::internal(format!("cannot make an in-memory catalog: {e}")))?;
        let catalog = Catalog { redb, name: "the in-memory catalog".to_owned() };
        catalog.initialize()?;
        Ok(catalog)
    }

    /// Makes a new catalog at `path`: complete under another name first, so that no crash leaves
    /// half of one, and then linked to its own, so that of two processes only one gets it.
    pub fn create(path: &Path) -> Result<Self> {
        let partial = path.with_extension(format!("redb.new-{}", std::process::id()));
        let name = display(path);
        let failed = |e| Error::io(format!("cannot create {name}"), e);
        let _ = std::fs::remove_file(&partial);
        let redb = builder().create(&partial).map_err(|e| open_failed(&name, e))?;
        let catalog = Catalog { redb, name: name.clone() };
        catalog.initialize()?;
        match std::fs::hard_link(&partial, path) {
            Ok(()) => std::fs::remove_file(&partial).map_err(failed)?,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                let _ = std::fs::remove_file(&partial);
                return Err(open_failed(&name, DatabaseError::DatabaseAlreadyOpen));
            }
            // Not every file system has links.
            Err(_) => std::fs::rename(&partial, path).map_err(failed)?,
        }
        Ok(catalog)
    }

    pub fn open(path: &Path) -> Result<Self> {
        let name = display(path);
        // redb asserts on some malformed files rather than returning an error.
        let redb = catch_unwind(|| builder().open(path))
            .map_err(|_| damaged(&name, "its structure is malformed"))?
            .map_err(|e| open_failed(&name, e))?;
        Ok(Catalog { redb, name })
    }

    fn initialize(&self) -> Result<()> {
        self.write(|transaction| {
            transaction.open_table(SCHEMAS)?.insert(PUBLIC, ())?;
            transaction.open_table(RELATIONS)?;
            transaction.open_table(EXTENTS)?;
            let mut meta = transaction.open_table(META)?;
            for (name, value) in
                [("format", FORMAT), ("snapshot", 0), ("next_extent", 1), ("next_table", 1)]
            {
                meta.insert(name, value)?;
            }
            Ok(())
        })
    }

    fn write(
        &self,
        f: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<()> {
        let run = || -> Result<(), redb::Error> {
            let mut transaction = self.redb.begin_write()?;
            transaction.set_durability(redb::Durability::Immediate)?;
            f(&transaction)?;
            transaction.commit()?;
            Ok(())
        };
        run().map_err(|e| self.failed("cannot commit to", e))
    }

    fn failed(&self, what: &str, e: redb::Error) -> Error {
        match e {
            redb::Error::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                damaged(&self.name, &e.to_string())
            }
            redb::Error::Io(e) => Error::io(format!("{what} {}", self.name), e),
            redb::Error::PreviousIo => Error::new(
                thalweg_base::Kind::Io,
                format!("{what} {}: an earlier write failed", self.name),
            )
            .hint("free some disk space if it is full, and open the database again"),
            redb::Error::Corrupted(why) => damaged(&self.name, &why),
            e => damaged(&self.name, &e.to_string()),
        }
    }

    /// Writes what `next` has and `current` has not, and the other way round. Returns after it is
    /// durable.
    pub fn commit(
        &self,
        current: &Snapshot,
        next: &Snapshot,
        home: &Home,
        next_table: u64,
    ) -> Result<()> {
        // Everything that can fail for its own reasons fails before the transaction.
        let changes = difference(current, next)?;
        self.write(|transaction| {
            let mut schemas = transaction.open_table(SCHEMAS)?;
            let mut relations = transaction.open_table(RELATIONS)?;
            let mut extents = transaction.open_table(EXTENTS)?;
            for change in &changes {
                match change {
                    Change::PutSchema(name) => {
                        schemas.insert(*name, ())?;
                    }
                    Change::RemoveSchema(name) => {
                        schemas.remove(*name)?;
                    }
                    Change::PutRelation(key, bytes) => {
                        relations.insert(*key, bytes.as_slice())?;
                    }
                    Change::RemoveRelation(key) => {
                        relations.remove(*key)?;
                    }
                    Change::PutExtent(key, bytes) => {
                        extents.insert(*key, bytes.as_slice())?;
                    }
                    Change::RemoveExtent(key) => {
                        extents.remove(*key)?;
                    }
                }
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert("snapshot", next.id.0)?;
            meta.insert("next_extent", home.next_extent.load(Ordering::Relaxed))?;
            meta.insert("next_table", next_table)?;
            Ok(())
        })
    }

    /// Reads everything. `home.next_extent` is set from it.
    pub fn load(&self, home: &Arc<Home>) -> Result<Loaded> {
        let load = || self.load_checked(home);
        // A page that redb reads but that does not hold what its table should is met with
        // assertions of redb or Arrow; they must not reach the user as a crash.
        catch_unwind(AssertUnwindSafe(load))
            .unwrap_or_else(|_| Err(damaged(&self.name, "its content is malformed")))
    }

    fn load_checked(&self, home: &Arc<Home>) -> Result<Loaded> {
        let failed = |e: redb::Error| self.failed("cannot read", e);
        let rows = self.rows().map_err(failed)?;
        let meta = |name: &str| {
            rows.meta
                .get(name)
                .copied()
                .ok_or_else(|| damaged(&self.name, &format!("it has no {name:?} entry")))
        };
        let format = meta("format")?;
        if format != FORMAT {
            let newer = format > FORMAT;
            return Err(Error::unsupported(format!(
                "{} has format {format}; this program reads format {FORMAT}",
                self.name
            ))
            .hint(if newer {
                "use a newer thalweg"
            } else {
                "load the data again into a new database"
            }));
        }
        let id = SnapshotId(meta("snapshot")?);
        home.next_extent.store(meta("next_extent")?, Ordering::Relaxed);
        let mut by_table: BTreeMap<u64, Vec<&Vec<u8>>> = BTreeMap::new();
        for ((table, _), bytes) in &rows.extents {
            by_table.entry(*table).or_default().push(bytes);
        }
        let mut known = HashSet::new();
        let mut schemas: BTreeMap<String, Schema> =
            rows.schemas.iter().map(|name| (name.clone(), Schema::new(name))).collect();
        for ((schema_name, name), bytes) in &rows.relations {
            let orphaned = || damaged(&self.name, &format!("relation {name:?} is in no schema"));
            let schema = schemas.get_mut(schema_name).ok_or_else(orphaned)?;
            let relation: Relation = self.decode(bytes, name)?;
            match relation {
                Relation::View { sql } => {
                    schema.views.insert(name.clone(), Arc::new(View { name: name.clone(), sql }));
                }
                Relation::External { sql } => {
                    schema
                        .externals
                        .insert(name.clone(), Arc::new(External { name: name.clone(), sql }));
                }
                Relation::Table { id: table_id, arrow_schema, cluster_by } => {
                    let arrow_schema = schema_from_bytes(&arrow_schema)
                        .map_err(|e| damaged(&self.name, &format!("table {name:?}: {e}")))?;
                    let types = Arc::new(ColumnTypes::of(&arrow_schema)?);
                    let records = by_table.remove(&table_id).unwrap_or_default();
                    let mut extents = Vec::with_capacity(records.len());
                    for bytes in records {
                        let record: ExtentRecord = self.decode(bytes, name)?;
                        let extent = self.extent(record, &arrow_schema, &types, home)?;
                        known.insert(extent.id);
                        extents.push(extent);
                    }
                    let cluster_by: Vec<usize> =
                        cluster_by.into_iter().map(|c| c as usize).collect();
                    if cluster_by.iter().any(|&c| c >= arrow_schema.fields().len()) {
                        return Err(damaged(
                            &self.name,
                            &format!("table {name:?} is clustered by a column it has not"),
                        ));
                    }
                    let table = Table::new(
                        TableId(table_id),
                        name.clone(),
                        arrow_schema,
                        cluster_by,
                        extents,
                    );
                    schema.tables.insert(name.clone(), Arc::new(table));
                }
            }
        }
        let schemas = schemas.into_iter().map(|(name, schema)| (name, Arc::new(schema))).collect();
        Ok(Loaded {
            snapshot: Snapshot { id, schemas },
            next_table: meta("next_table")?,
            extents: known,
        })
    }

    fn rows(&self) -> Result<Rows, redb::Error> {
        let transaction = self.redb.begin_read()?;
        let mut rows = Rows::default();
        for row in transaction.open_table(META)?.iter()? {
            let (name, value) = row?;
            rows.meta.insert(name.value().to_owned(), value.value());
        }
        for row in transaction.open_table(SCHEMAS)?.iter()? {
            rows.schemas.push(row?.0.value().to_owned());
        }
        for row in transaction.open_table(RELATIONS)?.iter()? {
            let (key, value) = row?;
            let (schema, name) = key.value();
            rows.relations.push(((schema.to_owned(), name.to_owned()), value.value().to_vec()));
        }
        for row in transaction.open_table(EXTENTS)?.iter()? {
            let (key, value) = row?;
            rows.extents.push((key.value(), value.value().to_vec()));
        }
        Ok(rows)
    }

    fn decode<'a, T: Deserialize<'a>>(&self, bytes: &'a [u8], relation: &str) -> Result<T> {
        postcard::from_bytes(bytes)
            .map_err(|e| damaged(&self.name, &format!("the record of {relation:?}: {e}")))
    }

    fn extent(
        &self,
        record: ExtentRecord,
        schema: &SchemaRef,
        types: &Arc<ColumnTypes>,
        home: &Arc<Home>,
    ) -> Result<Arc<Extent>> {
        let id = ExtentId(record.id);
        let file = home.file(id)?;
        let fault = |why: &str| damaged(&self.name, &format!("the record of extent {file}: {why}"));
        let bounds = batch_from_bytes(&record.bounds).map_err(|e| fault(&e.to_string()))?;
        if bounds.num_columns() != record.columns.len() * BOUNDS_PER_COLUMN {
            return Err(fault("bounds are missing"));
        }
        let rows = UInt64Array::from_iter_values(record.chunk_rows.iter().map(|&n| u64::from(n)));
        let mut columns = Vec::with_capacity(record.columns.len());
        for (i, column) in record.columns.into_iter().enumerate() {
            let bound = |k: usize| bounds.column(i * BOUNDS_PER_COLUMN + k);
            let flag = |k: usize| {
                bound(k).as_boolean_opt().cloned().ok_or_else(|| fault("a flag is not Boolean"))
            };
            let locations: Vec<Location> = column
                .locations
                .into_iter()
                .map(|(offset, bytes, checksum)| Location { offset, bytes, checksum })
                .collect();
            let statistics = ChunkStatistics {
                mins: bound(0).clone(),
                maxs: bound(1).clone(),
                min_exact: flag(2)?,
                max_exact: flag(3)?,
                rows: rows.clone(),
                nulls: column.nulls.into(),
                distincts: column.distincts.into(),
                stored_bytes: UInt64Array::from_iter_values(
                    locations.iter().map(|l| u64::from(l.bytes)),
                ),
                value_bytes: column.value_bytes.into(),
            };
            columns.push(ExtentColumn { locations, statistics, sketch: column.sketch });
        }
        let parts = ExtentParts {
            id,
            bytes: record.bytes,
            schema: schema.clone(),
            types: types.clone(),
            encodings: (&record.encodings).into(),
            file,
            chunk_rows: record.chunk_rows,
            columns,
            cache: home.cache.clone(),
        };
        Extent::new(parts, true)
    }
}

/// The catalog as it is stored.
#[derive(Default)]
struct Rows {
    meta: BTreeMap<String, u64>,
    schemas: Vec<String>,
    relations: Vec<((String, String), Vec<u8>)>,
    extents: Vec<((u64, u64), Vec<u8>)>,
}

enum Change<'a> {
    PutSchema(&'a str),
    RemoveSchema(&'a str),
    PutRelation((&'a str, &'a str), Vec<u8>),
    RemoveRelation((&'a str, &'a str)),
    PutExtent((u64, u64), Vec<u8>),
    RemoveExtent((u64, u64)),
}

/// What turns `old` into `new`, removals first: a name may be dropped and taken in one commit.
fn difference<'a>(old: &'a Snapshot, new: &'a Snapshot) -> Result<Vec<Change<'a>>> {
    let mut changes = Vec::new();
    for (name, schema) in &old.schemas {
        let kept = new.schemas.get(name);
        let relations =
            schema.tables.keys().chain(schema.views.keys()).chain(schema.externals.keys());
        for relation in relations {
            if kept.is_none_or(|k| k.relation(relation).is_none()) {
                changes.push(Change::RemoveRelation((name, relation)));
            }
        }
        if kept.is_none() {
            changes.push(Change::RemoveSchema(name));
        }
    }
    let before: BTreeMap<TableId, &Arc<Table>> = old.tables().map(|t| (t.id, t)).collect();
    let after: BTreeMap<TableId, &Arc<Table>> = new.tables().map(|t| (t.id, t)).collect();
    let none = Vec::new();
    for (id, table) in &before {
        let now = after.get(id).map_or(&none, |t| &t.extents);
        let same = common(&table.extents, now);
        changes
            .extend((same..table.extents.len()).map(|at| Change::RemoveExtent((id.0, at as u64))));
    }
    for (id, table) in &after {
        let same = before.get(id).map_or(0, |t| common(&t.extents, &table.extents));
        for (at, extent) in table.extents.iter().enumerate().skip(same) {
            changes.push(Change::PutExtent((id.0, at as u64), record(extent)?));
        }
    }
    for (name, schema) in &new.schemas {
        let kept = old.schemas.get(name);
        if kept.is_none() {
            changes.push(Change::PutSchema(name));
        }
        for (relation, table) in &schema.tables {
            // A table's own record never changes: only its extents do.
            if kept.and_then(|k| k.tables.get(relation)).is_none_or(|t| t.id != table.id) {
                changes.push(Change::PutRelation((name, relation), table_record(table)?));
            }
        }
        for (relation, view) in &schema.views {
            if kept.and_then(|k| k.views.get(relation)).is_none_or(|v| v.sql != view.sql) {
                changes.push(Change::PutRelation(
                    (name, relation),
                    encode(&Relation::View { sql: view.sql.clone() })?,
                ));
            }
        }
        for (relation, external) in &schema.externals {
            if kept.and_then(|k| k.externals.get(relation)).is_none_or(|e| e.sql != external.sql) {
                let record = Relation::External { sql: external.sql.clone() };
                changes.push(Change::PutRelation((name, relation), encode(&record)?));
            }
        }
    }
    Ok(changes)
}

/// How many first extents two versions of a table share.
fn common(a: &[Arc<Extent>], b: &[Arc<Extent>]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a.id == b.id).count()
}

fn table_record(table: &Table) -> Result<Vec<u8>> {
    encode(&Relation::Table {
        id: table.id.0,
        arrow_schema: to_bytes(&table.arrow_schema, None)?,
        cluster_by: table.cluster_by.iter().map(|&c| c as u32).collect(),
    })
}

const BOUNDS_PER_COLUMN: usize = 4;

fn record(extent: &Extent) -> Result<Vec<u8>> {
    let mut bounds: Vec<(Field, Arc<dyn Array>)> =
        Vec::with_capacity(extent.columns().len() * BOUNDS_PER_COLUMN);
    let mut columns = Vec::with_capacity(extent.columns().len());
    for (i, column) in extent.columns().iter().enumerate() {
        let statistics = &column.statistics;
        let flags = [&statistics.min_exact, &statistics.max_exact]
            .map(|f| Arc::new(f.clone()) as Arc<dyn Array>);
        let [min_exact, max_exact] = flags;
        for (name, array) in [
            ("min", statistics.mins.clone()),
            ("max", statistics.maxs.clone()),
            ("min_exact", min_exact),
            ("max_exact", max_exact),
        ] {
            bounds
                .push((Field::new(format!("{name}_{i}"), array.data_type().clone(), true), array));
        }
        columns.push(ColumnRecord {
            locations: column.locations.iter().map(|l| (l.offset, l.bytes, l.checksum)).collect(),
            nulls: statistics.nulls.values().to_vec(),
            distincts: statistics.distincts.values().to_vec(),
            value_bytes: statistics.value_bytes.values().to_vec(),
            sketch: column.sketch.clone(),
        });
    }
    let (fields, arrays): (Vec<_>, Vec<_>) = bounds.into_iter().unzip();
    let schema = Arc::new(ArrowSchema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), arrays)
        .map_err(|e| Error::internal("the statistics of an extent make no batch").source(e))?;
    encode(&ExtentRecord {
        id: extent.id.0,
        bytes: extent.bytes,
        encodings: extent.encodings.names(),
        chunk_rows: extent.all_chunk_rows().to_vec(),
        columns,
        bounds: to_bytes(&schema, Some(&batch))?,
    })
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|e| Error::internal(format!("a catalog record cannot be written: {e}")))
}

fn to_bytes(schema: &SchemaRef, batch: Option<&RecordBatch>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let write = |bytes: &mut Vec<u8>| {
        let mut writer = StreamWriter::try_new(bytes, schema)?;
        batch.map_or(Ok(()), |batch| writer.write(batch))?;
        writer.finish()
    };
    write(&mut bytes)
        .map_err(|e| Error::internal("a catalog record cannot be written").source(e))?;
    Ok(bytes)
}

fn schema_from_bytes(bytes: &[u8]) -> Result<SchemaRef, arrow::error::ArrowError> {
    Ok(StreamReader::try_new(Cursor::new(bytes), None)?.schema())
}

fn batch_from_bytes(bytes: &[u8]) -> Result<RecordBatch, arrow::error::ArrowError> {
    let missing = || arrow::error::ArrowError::IpcError("no batch".to_owned());
    StreamReader::try_new(Cursor::new(bytes), None)?.next().ok_or_else(missing)?
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES_MAX);
    builder
}

fn display(path: &Path) -> String {
    format!("the catalog \"{}\"", path.display())
}

fn damaged(name: &str, why: &str) -> Error {
    Error::corrupt(format!("{name} is damaged"))
        .detail(why)
        .hint("restore the database directory from a backup")
}

fn open_failed(name: &str, e: DatabaseError) -> Error {
    match e {
        DatabaseError::DatabaseAlreadyOpen => Error::resources(format!(
            "{name} is in use by another process"
        ))
        .hint("close the other program that has this database open, or connect to it as a server"),
        DatabaseError::UpgradeRequired(version) => {
            Error::unsupported(format!("{name} has an old file format ({version})"))
                .hint("load the data again into a new database")
        }
        DatabaseError::Storage(redb::StorageError::Io(e))
            if matches!(
                e.kind(),
                std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
            ) =>
        {
            damaged(name, &e.to_string())
        }
        DatabaseError::Storage(redb::StorageError::Io(e)) => {
            let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
            let error = Error::io(format!("cannot open {name}"), e);
            if denied {
                error.hint("the database directory must be readable and writable")
            } else {
                error
            }
        }
        e => damaged(name, &e.to_string()),
    }
}
