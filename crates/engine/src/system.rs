//! The schema `system`: what the database is made of, as tables to be queried.
//!
//! They show the snapshot of the statement, with the changes of the transaction that is open, and
//! are made as they are read: a list of a million chunks is never all in memory. `queries`, `slots`,
//! `quanta`, `workloads` and `query_log` show the scheduler as it is when they are read.

mod functions;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray,
    TimestampMillisecondArray, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result as DfResult;
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::RwLock;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, ExtentId, Result, SnapshotId};
use thalweg_scheduler::{Class, Phase, SlotView};
use thalweg_storage::{ChunkStatistics, CommitInfo, Database, Snapshot, Table};

use thalweg_errors::{from_arrow, into_datafusion};
use thalweg_runtime::{Driver, Listed, Logged, Origin, blocking};

use crate::access::{self, Object, Privilege, Registry, Seen, Viewer};
use crate::attach::{self, Attachments};
use crate::bound;
use crate::names::SYSTEM;
use crate::sql_type::sql_type_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Tables,
    Columns,
    Extents,
    Chunks,
    Snapshots,
    Loads,
    Queries,
    Slots,
    Quanta,
    Workloads,
    QueryLog,
    Roles,
    Grants,
    Functions,
    Databases,
    AttachedTables,
}

const LISTINGS: [(&str, Listing); 16] = [
    ("tables", Listing::Tables),
    ("columns", Listing::Columns),
    ("extents", Listing::Extents),
    ("chunks", Listing::Chunks),
    ("snapshots", Listing::Snapshots),
    ("loads", Listing::Loads),
    ("queries", Listing::Queries),
    ("slots", Listing::Slots),
    ("quanta", Listing::Quanta),
    ("workloads", Listing::Workloads),
    ("query_log", Listing::QueryLog),
    ("roles", Listing::Roles),
    ("grants", Listing::Grants),
    ("functions", Listing::Functions),
    ("databases", Listing::Databases),
    ("attached_tables", Listing::AttachedTables),
];

/// Of the tables of this schema.
pub fn names() -> impl Iterator<Item = &'static str> {
    LISTINGS.iter().map(|(name, _)| *name)
}

/// The schema as one statement sees it.
pub struct SystemSchema {
    pub database: Database,
    pub driver: Arc<Driver>,
    pub snapshot: Arc<Snapshot>,
    /// The last commit that the statement sees.
    pub last: SnapshotId,
    pub access: Arc<Registry>,
    pub viewer: Viewer,
    pub state: Weak<RwLock<SessionState>>,
    pub attachments: Arc<Attachments>,
}

impl fmt::Debug for SystemSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SYSTEM)
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        LISTINGS.iter().map(|(name, _)| name.to_string()).collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let Some((_, listing)) = LISTINGS.iter().find(|(n, _)| *n == name) else {
            return Ok(None);
        };
        let Some(seen) = self.viewer.sees(name) else {
            let denied = self.viewer.check(Privilege::Select, &Object::System(name.into()));
            return denied.map(|()| None).map_err(into_datafusion);
        };
        let part = Part {
            listing: *listing,
            seen,
            viewer: self.viewer.clone(),
            state: Weak::clone(&self.state),
            attachments: Arc::clone(&self.attachments),
            access: Arc::clone(&self.access),
            schema: schema(*listing),
            database: self.database.clone(),
            driver: Arc::clone(&self.driver),
            snapshot: Arc::clone(&self.snapshot),
            last: self.last,
        };
        let table = StreamingTable::try_new(Arc::clone(&part.schema), vec![Arc::new(part)])?;
        Ok(Some(Arc::new(table)))
    }

    async fn table_type(&self, name: &str) -> DfResult<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::View))
    }

    fn table_exist(&self, name: &str) -> bool {
        LISTINGS.iter().any(|(n, _)| *n == name)
    }
}

#[derive(Clone)]
struct Part {
    listing: Listing,
    schema: SchemaRef,
    database: Database,
    driver: Arc<Driver>,
    snapshot: Arc<Snapshot>,
    last: SnapshotId,
    seen: Seen,
    viewer: Viewer,
    access: Arc<Registry>,
    state: Weak<RwLock<SessionState>>,
    attachments: Arc<Attachments>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SYSTEM}.{:?}", self.listing)
    }
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let part = self.clone();
        let batches = match self.listing {
            Listing::Tables => stream::once(async move { part.tables() }).boxed(),
            Listing::Extents => stream::once(async move { part.extents() }).boxed(),
            Listing::Snapshots | Listing::Loads => {
                stream::once(async move { part.commits() }).boxed()
            }
            Listing::Queries => stream::once(async move { part.queries().await }).boxed(),
            Listing::Slots => stream::once(async move { part.slots() }).boxed(),
            Listing::Quanta => stream::once(async move { part.quanta() }).boxed(),
            Listing::Workloads => stream::once(async move { part.workloads() }).boxed(),
            Listing::QueryLog => stream::once(async move { part.query_log().await }).boxed(),
            Listing::Roles | Listing::Grants => stream::once(async move { part.rights() }).boxed(),
            Listing::Functions => stream::once(async move { part.functions() }).boxed(),
            Listing::Databases => stream::once(async move { part.databases() }).boxed(),
            Listing::AttachedTables => {
                stream::once(async move { attach::tables(&part.attachments, &part.viewer).await })
                    .boxed()
            }
            // These look into the extents, table by table.
            Listing::Columns => self
                .each_table()
                .then(move |(schema, table)| {
                    let part = part.clone();
                    blocking(move || part.columns(&schema, &table))
                })
                .boxed(),
            Listing::Chunks => self
                .each_extent()
                .then(move |(schema, table, extent)| {
                    let part = part.clone();
                    blocking(move || part.chunks(&schema, &table, extent))
                })
                .boxed(),
        };
        let slices = batches.map_ok(|batch| {
            let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
            let slices: Vec<DfResult<RecordBatch>> = starts
                .map(|at| Ok(batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at))))
                .collect();
            stream::iter(slices)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, slices.try_flatten()))
    }
}

type Named = (String, Arc<Table>);

impl Part {
    /// Those that may be read: the least and the greatest value of a column are data, too.
    fn named_tables(&self) -> Vec<Named> {
        let all = self.snapshot.named_tables();
        let seen = all.filter(|(schema, table)| {
            self.seen == Seen::All
                || self.viewer.may(Privilege::Select, &Object::relation(schema, &table.name))
        });
        seen.map(|(s, t)| (s.to_string(), Arc::clone(t))).collect()
    }

    /// The text of a query; `None`: it is not shown.
    fn text_of(&self, origin: &Origin) -> Option<String> {
        let shown = self.seen == Seen::All || self.viewer.reads_queries_of(origin.role);
        shown.then(|| origin.text.clone())
    }

    fn rights(&self) -> DfResult<RecordBatch> {
        let access = self.access.of(&self.snapshot).map_err(into_datafusion)?;
        let rows = match self.listing {
            Listing::Roles => access::roles(&access, &self.viewer),
            _ => access::grants(&access),
        };
        rows.map_err(into_datafusion)
    }

    /// What the session has registered, and what the binder sees to itself.
    fn functions(&self) -> DfResult<RecordBatch> {
        let Some(state) = self.state.upgrade() else {
            return Err(into_datafusion(Error::internal("the session is closed")));
        };
        let all = bound::functions(&state.read());
        functions::rows(&all).map_err(into_datafusion)
    }

    /// Where the database is, is for those to know who may do everything.
    fn databases(&self) -> DfResult<RecordBatch> {
        let location = match self.database.path() {
            Some(path) => path.to_string_lossy().into_owned(),
            None => ":memory:".to_owned(),
        };
        let location = self.viewer.is_superuser().then_some(location);
        attach::databases(&self.attachments, location).map_err(into_datafusion)
    }

    fn each_table(&self) -> impl futures::Stream<Item = Named> + Send + use<> {
        stream::iter(self.named_tables())
    }

    fn each_extent(
        &self,
    ) -> impl futures::Stream<Item = (String, Arc<Table>, usize)> + Send + use<> {
        stream::iter(self.named_tables().into_iter().flat_map(|(schema, table)| {
            (0..table.extents.len()).map(move |e| (schema.clone(), Arc::clone(&table), e))
        }))
    }

    fn batch(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|e| from_arrow(&e))
    }

    fn tables(&self) -> DfResult<RecordBatch> {
        let all = self.named_tables();
        let number = |f: &dyn Fn(&Table) -> u64| numbers(all.iter().map(|(_, t)| f(t)));
        let columns_of = |t: &Table, columns: &[usize]| {
            let names = columns.iter().map(|c| t.arrow_schema.field(*c).name().as_str());
            (!columns.is_empty()).then(|| names.collect::<Vec<_>>().join(", "))
        };
        let partition_by = |t: &Table| {
            t.partition_by.map(|p| {
                format!("hash({}) into {}", t.arrow_schema.field(p.column).name(), p.buckets)
            })
        };
        self.batch(vec![
            texts(all.iter().map(|(s, _)| Some(s.clone()))),
            texts(all.iter().map(|(_, t)| Some(t.name.clone()))),
            number(&|t| t.rows()),
            number(&|t| t.deleted_rows()),
            number(&|t| t.arrow_schema.fields().len() as u64),
            number(&|t| t.extents.len() as u64),
            number(&|t| t.chunks() as u64),
            number(&|t| t.stored_bytes()),
            texts(all.iter().map(|(_, t)| columns_of(t, &t.cluster_by))),
            texts(all.iter().map(|(_, t)| partition_by(t))),
        ])
        .map_err(into_datafusion)
    }

    fn extents(&self) -> DfResult<RecordBatch> {
        let all = self.named_tables();
        let lines: Vec<_> = all
            .iter()
            .flat_map(|(schema, table)| table.extents.iter().map(move |e| (schema, table, e)))
            .collect();
        self.batch(vec![
            texts(lines.iter().map(|(s, ..)| Some(s.to_string()))),
            texts(lines.iter().map(|(_, t, _)| Some(t.name.clone()))),
            texts(lines.iter().map(|(.., e)| Some(extent_name(e.extent.id)))),
            texts(lines.iter().map(|(.., e)| Some(e.extent.location()))),
            Arc::new(lines.iter().map(|(.., e)| e.extent.bucket).collect::<UInt32Array>()),
            numbers(lines.iter().map(|(.., e)| e.rows())),
            numbers(lines.iter().map(|(.., e)| e.extent.rows - e.rows())),
            numbers(lines.iter().map(|(.., e)| e.extent.chunks() as u64)),
            numbers(lines.iter().map(|(.., e)| e.extent.bytes)),
        ])
        .map_err(into_datafusion)
    }

    fn columns(&self, schema: &str, table: &Table) -> Result<RecordBatch> {
        let contents = table.contents()?;
        let fields = table.arrow_schema.fields();
        let all: Vec<_> = (0..fields.len()).map(|c| contents.column_statistics(c)).collect();
        let count = fields.len();
        let bounds = |f: &dyn Fn(usize) -> Option<ArrayRef>| -> Result<ArrayRef> {
            let values = (0..count).map(|c| match f(c) {
                Some(bound) => value(&bound, 0),
                None => Ok(None),
            });
            Ok(texts(values.collect::<Result<Vec<_>>>()?))
        };
        self.batch(vec![
            texts(vec![Some(schema.to_string()); count]),
            texts(vec![Some(table.name.clone()); count]),
            texts(fields.iter().map(|f| Some(f.name().clone()))),
            numbers(1..=count as u64),
            texts(fields.iter().map(|f| Some(sql_type_of(f)))),
            Arc::new(fields.iter().map(|f| Some(f.is_nullable())).collect::<BooleanArray>()),
            texts(table.columns.iter().map(|c| c.default.clone())),
            numbers(all.iter().map(|s| s.nulls)),
            Arc::new(all.iter().map(|s| s.distinct).collect::<UInt64Array>()),
            bounds(&|c| all[c].min.clone())?,
            bounds(&|c| all[c].max.clone())?,
            numbers(all.iter().map(|s| s.value_bytes)),
            numbers(all.iter().map(|s| s.stored_bytes)),
        ])
    }

    /// One line per chunk and column.
    fn chunks(&self, schema: &str, table: &Table, extent: usize) -> Result<RecordBatch> {
        let contents = table.contents()?;
        let fields = table.arrow_schema.fields();
        let chunks: Vec<_> = contents.chunks_of(extent).map(|i| contents.chunk(i)).collect();
        let statistics: Vec<Arc<ChunkStatistics>> =
            (0..fields.len()).map(|c| contents.statistics_in(extent, c)).collect();
        let lines: Vec<(usize, usize)> =
            (0..chunks.len()).flat_map(|i| (0..fields.len()).map(move |c| (i, c))).collect();
        let number = |f: &dyn Fn(usize) -> u64| numbers(lines.iter().map(|(i, _)| f(*i)));
        let known = |f: &dyn Fn(&ChunkStatistics) -> &UInt64Array| {
            let values = lines.iter().map(|(i, c)| {
                let array = f(&statistics[*c]);
                array.is_valid(*i).then(|| array.value(*i))
            });
            Arc::new(values.collect::<UInt64Array>()) as ArrayRef
        };
        let bounds = |f: &dyn Fn(&ChunkStatistics) -> &ArrayRef| -> Result<ArrayRef> {
            let values = lines.iter().map(|(i, c)| value(f(&statistics[*c]), *i));
            Ok(texts(values.collect::<Result<Vec<_>>>()?))
        };
        let exact = |f: &dyn Fn(&ChunkStatistics) -> &BooleanArray| {
            let values = lines.iter().map(|(i, c)| Some(f(&statistics[*c]).value(*i)));
            Arc::new(values.collect::<BooleanArray>()) as ArrayRef
        };
        let id = extent_name(table.extents[extent].extent.id);
        self.batch(vec![
            texts(vec![Some(schema.to_string()); lines.len()]),
            texts(vec![Some(table.name.clone()); lines.len()]),
            texts(vec![Some(id); lines.len()]),
            number(&|i| chunks[i].chunk as u64),
            texts(lines.iter().map(|(_, c)| Some(fields[*c].name().clone()))),
            number(&|i| chunks[i].first_row),
            number(&|i| chunks[i].live_rows() as u64),
            number(&|i| (chunks[i].rows - chunks[i].live_rows()) as u64),
            known(&|s| &s.nulls),
            known(&|s| &s.distincts),
            bounds(&|s| &s.mins)?,
            bounds(&|s| &s.maxs)?,
            exact(&|s| &s.min_exact),
            exact(&|s| &s.max_exact),
            known(&|s| &s.value_bytes),
            known(&|s| &s.stored_bytes),
        ])
    }

    fn commits(&self) -> DfResult<RecordBatch> {
        let loads = self.listing == Listing::Loads;
        let mut all: Vec<CommitInfo> = self.database.history();
        all.retain(|c| c.id <= self.last.0 && (!loads || c.summary.files > 0));
        let number = |f: &dyn Fn(&CommitInfo) -> u64| numbers(all.iter().map(f));
        let times = all.iter().map(|c| c.time_ms as i64);
        let mut columns: Vec<ArrayRef> =
            vec![number(&|c| c.id), Arc::new(TimestampMillisecondArray::from_iter_values(times))];
        let table = texts(
            all.iter().map(|c| Some(c.summary.table.clone()).filter(|name| !name.is_empty())),
        );
        if loads {
            columns.extend([
                table,
                number(&|c| c.summary.files),
                number(&|c| c.summary.rows_added),
                number(&|c| c.summary.rejected),
                number(&|c| c.summary.raw_bytes),
                number(&|c| c.summary.stored_bytes),
                number(&|c| c.summary.millis),
            ]);
        } else {
            let oldest = self.database.oldest_snapshot();
            let readable = all.iter().map(|c| Some(c.id >= oldest.0));
            columns.extend([
                texts(all.iter().map(|c| Some(c.summary.operation.clone()))),
                table,
                number(&|c| c.summary.rows_added),
                number(&|c| c.summary.rows_removed),
                number(&|c| c.summary.stored_bytes),
                number(&|c| c.summary.millis),
                Arc::new(readable.collect::<BooleanArray>()),
            ]);
        }
        self.batch(columns).map_err(into_datafusion)
    }
}

/// What the scheduler does now.
impl Part {
    async fn queries(&self) -> DfResult<RecordBatch> {
        self.driver.answered_ended().await;
        let (all, now) = (self.driver.listed(), self.driver.now_ns());
        let policy = self.driver.policy();
        let number = |f: &dyn Fn(&Listed) -> u64| numbers(all.iter().map(f));
        let known = |f: &dyn Fn(&Listed) -> Option<u64>| {
            Arc::new(all.iter().map(f).collect::<UInt64Array>()) as ArrayRef
        };
        let started = all.iter().map(|q| {
            let time = q.run.origin().time.duration_since(UNIX_EPOCH).unwrap_or_default();
            time.as_millis() as i64
        });
        let waits = |phase: Phase| number(&|q: &Listed| to_ms(q.state.phases.spent_ns(phase, now)));
        self.batch(vec![
            number(&|q| q.state.query.0),
            known(&|q| q.run.origin().session),
            texts(all.iter().map(|q| self.text_of(q.run.origin()))),
            texts(all.iter().map(|q| Some(q.doing().to_owned()))),
            texts(all.iter().map(|q| q.reason())),
            number(&|q| to_ms(now.saturating_sub(q.state.phases.since_ns()))),
            Arc::new(TimestampMillisecondArray::from_iter_values(started)),
            number(&|q| to_ms(now.saturating_sub(q.state.arrival_ns))),
            texts(all.iter().map(|_| Some(policy.to_string()))),
            texts(all.iter().map(|q| Some(q.workload.clone()))),
            number(&|q| q.state.share),
            number(&|q| to_ms(q.state.cpu_ns)),
            number(&|q| to_ms(q.state.estimate_ns)),
            Arc::new(
                all.iter()
                    .map(|q| Some((q.share_done() * 1e3).round() / 10.0))
                    .collect::<Float64Array>(),
            ),
            known(&|q| q.left(now).map(|left| left.as_millis() as u64)),
            waits(Phase::Slot),
            waits(Phase::Input),
            waits(Phase::Memory),
            waits(Phase::Admission),
            number(&|q| q.memory_bytes),
            number(&|q| q.run.read_bytes()),
            number(&|q| u64::from(q.state.tasks)),
            number(&|q| u64::from(q.state.queued)),
            number(&|q| u64::from(q.state.running)),
            number(&|q| q.state.quanta),
            number(&|q| q.state.longest_quantum_ns / 1_000),
            texts(all.iter().map(|q| q.run.origin().user.as_deref().map(str::to_owned))),
        ])
        .map_err(into_datafusion)
    }

    fn slots(&self) -> DfResult<RecordBatch> {
        let (held, now) = (self.driver.slots_held(), self.driver.now_ns());
        let places = self.driver.slots() + self.driver.reserve();
        let all: Vec<Option<&SlotView>> =
            (0..places).map(|slot| held.iter().find(|view| view.slot == slot)).collect();
        let known = |f: &dyn Fn(&SlotView) -> u64| {
            Arc::new(all.iter().map(|view| view.map(f)).collect::<UInt64Array>()) as ArrayRef
        };
        self.batch(vec![
            numbers(0..places as u64),
            known(&|view| view.query.0),
            known(&|view| view.task.0),
            known(&|view| now.saturating_sub(view.since_ns) / 1_000),
            texts(all.iter().map(|view| view.map(|view| view.age.name().to_owned()))),
        ])
        .map_err(into_datafusion)
    }

    fn workloads(&self) -> DfResult<RecordBatch> {
        struct Row {
            class: Class,
            running: usize,
            waiting: usize,
            memory: u64,
        }
        let all: Vec<Row> = self.driver.look(|s| {
            let classes = s.classes().map(|(id, class, running, waiting)| Row {
                class: class.clone(),
                running,
                waiting,
                memory: s.memory_of_class(id),
            });
            classes.collect()
        });
        let small = |f: &dyn Fn(&Class) -> Option<u32>| {
            Arc::new(all.iter().map(|r| f(&r.class)).collect::<UInt32Array>()) as ArrayRef
        };
        let large = |f: &dyn Fn(&Class) -> Option<u64>| {
            Arc::new(all.iter().map(|r| f(&r.class)).collect::<UInt64Array>()) as ArrayRef
        };
        self.batch(vec![
            texts(all.iter().map(|r| Some(r.class.name.clone()))),
            small(&|c| Some(c.weight)),
            small(&|c| c.max_running),
            small(&|c| Some(c.queue_max)),
            large(&|c| c.queue_timeout_ns.map(to_ms)),
            large(&|c| c.statement_timeout_ns.map(to_ms)),
            large(&|c| c.memory_bytes),
            large(&|c| c.query_memory_bytes),
            numbers(all.iter().map(|r| r.running as u64)),
            numbers(all.iter().map(|r| r.waiting as u64)),
            numbers(all.iter().map(|r| r.memory)),
        ])
        .map_err(into_datafusion)
    }

    async fn query_log(&self) -> DfResult<RecordBatch> {
        self.driver.answered_ended().await;
        let all = self.driver.log();
        let number = |f: &dyn Fn(&Logged) -> u64| numbers(all.iter().map(|q| f(q)));
        let us = |f: &dyn Fn(&Logged) -> u64| numbers(all.iter().map(|q| f(q) / 1_000));
        let time = |f: &dyn Fn(&Logged) -> SystemTime| {
            let ms = all.iter().map(|q| {
                let time = f(q).duration_since(UNIX_EPOCH).unwrap_or_default();
                time.as_millis() as i64
            });
            Arc::new(TimestampMillisecondArray::from_iter_values(ms)) as ArrayRef
        };
        self.batch(vec![
            number(&|q| q.query),
            Arc::new(all.iter().map(|q| q.origin.session).collect::<UInt64Array>()),
            texts(all.iter().map(|q| self.text_of(&q.origin))),
            texts(all.iter().map(|q| Some(q.workload.clone()))),
            texts(all.iter().map(|q| Some(q.state.to_owned()))),
            time(&|q| q.origin.time),
            time(&|q| q.ended),
            us(&|q| q.wall_ns),
            us(&|q| q.planning_ns),
            us(&|q| q.cpu_ns),
            us(&|q| q.estimate_ns),
            us(&|q| q.admission_ns),
            us(&|q| q.slot_ns),
            us(&|q| q.memory_ns),
            us(&|q| q.input_ns),
            number(&|q| q.quanta),
            us(&|q| q.longest_quantum_ns),
            number(&|q| q.tasks_most),
            number(&|q| q.read_bytes),
            texts(all.iter().map(|q| q.origin.user.as_deref().map(str::to_owned))),
        ])
        .map_err(into_datafusion)
    }

    fn quanta(&self) -> DfResult<RecordBatch> {
        let lengths = self.driver.quantum_lengths();
        let buckets: Vec<(u64, u32)> = lengths.buckets().collect();
        self.batch(vec![
            Arc::new(buckets.iter().map(|(ns, _)| *ns as f64 / 1e3).collect::<Float64Array>()),
            numbers(buckets.iter().map(|(_, count)| u64::from(*count))),
        ])
        .map_err(into_datafusion)
    }
}

fn to_ms(ns: u64) -> u64 {
    ns / 1_000_000
}

fn schema(listing: Listing) -> SchemaRef {
    use DataType::{Boolean, Float64, UInt32, UInt64, Utf8};
    let table = [("table_schema", Utf8), ("table_name", Utf8)];
    let commit = [("snapshot", UInt64), ("time", DataType::Timestamp(TimeUnit::Millisecond, None))];
    let columns: Vec<(&str, DataType)> = match listing {
        Listing::Tables => [
            &table[..],
            &[
                ("rows", UInt64),
                ("deleted_rows", UInt64),
                ("columns", UInt64),
                ("extents", UInt64),
                ("chunks", UInt64),
                ("stored_bytes", UInt64),
                ("cluster_by", Utf8),
                ("partition_by", Utf8),
            ],
        ]
        .concat(),
        Listing::Columns => [
            &table[..],
            &[
                ("column_name", Utf8),
                ("ordinal_position", UInt64),
                ("data_type", Utf8),
                ("is_nullable", Boolean),
                ("column_default", Utf8),
                ("nulls", UInt64),
                ("distinct_values", UInt64),
                ("min", Utf8),
                ("max", Utf8),
                ("value_bytes", UInt64),
                ("stored_bytes", UInt64),
            ],
        ]
        .concat(),
        Listing::Extents => [
            &table[..],
            &[
                ("extent", Utf8),
                ("location", Utf8),
                ("bucket", UInt32),
                ("rows", UInt64),
                ("deleted_rows", UInt64),
                ("chunks", UInt64),
                ("stored_bytes", UInt64),
            ],
        ]
        .concat(),
        Listing::Chunks => [
            &table[..],
            &[
                ("extent", Utf8),
                ("chunk", UInt64),
                ("column_name", Utf8),
                ("first_row", UInt64),
                ("rows", UInt64),
                ("deleted_rows", UInt64),
                ("nulls", UInt64),
                ("distinct_values", UInt64),
                ("min", Utf8),
                ("max", Utf8),
                ("min_is_exact", Boolean),
                ("max_is_exact", Boolean),
                ("value_bytes", UInt64),
                ("stored_bytes", UInt64),
            ],
        ]
        .concat(),
        Listing::Snapshots => [
            &commit[..],
            &[
                ("operation", Utf8),
                ("table_name", Utf8),
                ("rows_added", UInt64),
                ("rows_removed", UInt64),
                ("stored_bytes", UInt64),
                ("duration_ms", UInt64),
                ("is_readable", Boolean),
            ],
        ]
        .concat(),
        Listing::Loads => [
            &commit[..],
            &[
                ("table_name", Utf8),
                ("files", UInt64),
                ("rows", UInt64),
                ("rejected_rows", UInt64),
                ("raw_bytes", UInt64),
                ("stored_bytes", UInt64),
                ("duration_ms", UInt64),
            ],
        ]
        .concat(),
        Listing::Queries => vec![
            ("query_id", UInt64),
            ("session_id", UInt64),
            ("query", Utf8),
            ("state", Utf8),
            ("waits_for", Utf8),
            ("state_ms", UInt64),
            ("started", DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("elapsed_ms", UInt64),
            ("policy", Utf8),
            ("workload", Utf8),
            ("share", UInt64),
            ("cpu_ms", UInt64),
            ("estimated_cpu_ms", UInt64),
            ("progress_percent", Float64),
            ("left_ms", UInt64),
            ("waited_for_slot_ms", UInt64),
            ("waited_for_input_ms", UInt64),
            ("waited_for_memory_ms", UInt64),
            ("waited_for_admission_ms", UInt64),
            ("memory_bytes", UInt64),
            ("read_bytes", UInt64),
            ("tasks", UInt64),
            ("tasks_queued", UInt64),
            ("tasks_running", UInt64),
            ("quanta", UInt64),
            ("longest_quantum_us", UInt64),
            ("user_name", Utf8),
        ],
        Listing::Slots => vec![
            ("slot", UInt64),
            ("query_id", UInt64),
            ("task_id", UInt64),
            ("held_us", UInt64),
            ("query_age", Utf8),
        ],
        Listing::Quanta => vec![("up_to_us", Float64), ("count", UInt64)],
        Listing::Workloads => vec![
            ("workload", Utf8),
            ("weight", UInt32),
            ("max_running", UInt32),
            ("queue", UInt32),
            ("queue_timeout_ms", UInt64),
            ("statement_timeout_ms", UInt64),
            ("memory_limit", UInt64),
            ("query_memory_limit", UInt64),
            ("running", UInt64),
            ("waiting", UInt64),
            ("memory_bytes", UInt64),
        ],
        Listing::QueryLog => vec![
            ("query_id", UInt64),
            ("session_id", UInt64),
            ("query", Utf8),
            ("workload", Utf8),
            ("state", Utf8),
            ("arrived", DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("ended", DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("wall_us", UInt64),
            ("planning_us", UInt64),
            ("cpu_us", UInt64),
            ("estimated_cpu_us", UInt64),
            ("waited_for_admission_us", UInt64),
            ("waited_for_slot_us", UInt64),
            ("waited_for_memory_us", UInt64),
            ("waited_for_input_us", UInt64),
            ("quanta", UInt64),
            ("longest_quantum_us", UInt64),
            ("tasks", UInt64),
            ("read_bytes", UInt64),
            ("user_name", Utf8),
        ],
        Listing::Roles => return access::roles_schema(),
        Listing::Grants => return access::grants_schema(),
        Listing::Functions => return functions::schema(),
        Listing::Databases => return attach::databases_schema(),
        Listing::AttachedTables => return attach::tables_schema(),
    };
    let fields = columns.into_iter().map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn numbers(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

/// A value as text.
fn value(array: &ArrayRef, row: usize) -> Result<Option<String>> {
    if array.is_null(row) {
        return Ok(None);
    }
    let formatter = ArrayFormatter::try_new(array.as_ref(), &FormatOptions::default());
    let text = formatter.and_then(|f| f.value(row).try_to_string());
    text.map(Some).map_err(|e| from_arrow(&e))
}

/// As in the name of its file.
fn extent_name(id: ExtentId) -> String {
    format!("{:016x}", id.0)
}
