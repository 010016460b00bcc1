//! Rows that a client sends, as one insert: of `COPY … FROM STDIN` and of Arrow Flight's ingest.
//!
//! The client is read only as fast as the writers encode, so that memory is bounded however fast
//! it sends. All rows are one change of one transaction: after an error there are none of them.

use crate::defaults;
use crate::names;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::{Stream, StreamExt};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::{
    Layout, NewExtent, PUBLIC, RelationKind, Snapshot, Summary, Table, TableSpec, Transaction,
    check_schema,
};

use thalweg_errors::from_arrow;
use thalweg_runtime::checkpoint;

use crate::access::{Object, Privilege, Viewer};
use crate::dml::target::full_name;
use crate::session::Inner;
use crate::write::{Target, Writers};
use crate::{ddl, statement};

/// Where the rows go, and what they look like.
#[derive(Clone, Debug)]
pub struct Ingest {
    /// `None`: where a table without a schema name lives.
    pub schema: Option<String>,
    pub table: String,
    /// Columns are found in the table by their names; those that the rows have not get their
    /// default.
    pub columns: SchemaRef,
    pub if_absent: IfAbsent,
    pub if_present: IfPresent,
}

/// What becomes of rows for a table that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfAbsent {
    Fail,
    /// It is made, with the columns of the rows.
    Create,
}

/// What becomes of rows for a table that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfPresent {
    Fail,
    Append,
    /// It is dropped, and made anew with the columns of the rows.
    Replace,
}

impl Ingest {
    /// More rows for a table that is there.
    pub fn append(schema: Option<String>, table: String, columns: SchemaRef) -> Self {
        let (if_absent, if_present) = (IfAbsent::Fail, IfPresent::Append);
        Ingest { schema, table, columns, if_absent, if_present }
    }

    fn schema(&self) -> &str {
        self.schema.as_deref().unwrap_or(PUBLIC)
    }
}

/// As lists of queries show it.
impl std::fmt::Display for Ingest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "INGEST INTO {}", full_name(self.schema(), &self.table))
    }
}

/// Rows inserted.
pub(crate) async fn run(
    session: &Inner,
    ingest: &Ingest,
    rows: impl Stream<Item = Result<RecordBatch>> + Send,
) -> Result<u64> {
    let state = session.context.state();
    let (snapshot, viewer) = statement::begin(session, &state).await?;
    session.transactions.check_writable()?;
    let started = Instant::now();
    let place = Place::find(session, &snapshot, ingest)?;
    place.check(&viewer, ingest)?;
    let (extents, count) = place.write(session, ingest, rows).await?;
    let (schema, name) = (ingest.schema().to_string(), ingest.table.clone());
    let change = move |transaction: &mut Transaction| {
        let summary = Summary {
            operation: "INGEST".into(),
            table: format!("{schema}.{name}"),
            rows_added: count,
            millis: started.elapsed().as_millis() as u64,
            ..Summary::default()
        };
        match place {
            Place::Table { table, .. } => transaction.append(table.id, extents)?,
            Place::New { columns, spec, replaces } => {
                if replaces {
                    transaction.drop_table(&schema, &name)?;
                }
                let table = transaction.create_table(&schema, &name, columns, spec)?;
                transaction.append(table, extents)?;
            }
        }
        transaction.describe(summary);
        Ok(())
    };
    session.transactions.write(change).await?;
    Ok(count)
}

/// The columns of rows for a table that is there, in the order in which they are named; if none
/// are, all of them.
pub(crate) async fn columns(
    session: &Inner,
    schema: Option<String>,
    table: String,
    names: &[String],
) -> Result<SchemaRef> {
    let state = session.context.state();
    let (snapshot, viewer) = statement::begin(session, &state).await?;
    let named = names.iter().map(|name| Field::new(name, DataType::Null, true));
    let named = Schema::new(named.collect::<Vec<_>>());
    let ingest = Ingest::append(schema, table, Arc::new(named));
    let place = Place::find(session, &snapshot, &ingest)?;
    place.check(&viewer, &ingest)?;
    let Place::Table { table, .. } = place else {
        return Err(Error::internal("rows of a table that is not there"));
    };
    let all = &table.arrow_schema;
    if names.is_empty() {
        return Ok(Arc::clone(all));
    }
    let positions = names.iter().map(|name| all.index_of(name)).collect::<Result<Vec<_>, _>>();
    let projected = positions.and_then(|positions| all.project(&positions));
    projected.map(Arc::new).map_err(|e| from_arrow(&e))
}

enum Place {
    Table { table: Arc<Table>, sources: Vec<Source> },
    New { columns: SchemaRef, spec: TableSpec, replaces: bool },
}

/// Where a column of the table has its values from.
enum Source {
    /// A column of the rows.
    Column(usize),
    /// One value, for every row.
    Default(ArrayRef),
}

impl Place {
    fn find(session: &Inner, snapshot: &Snapshot, ingest: &Ingest) -> Result<Place> {
        let (schema, name) = (ingest.schema(), ingest.table.as_str());
        names::check_not_system(schema)?;
        let relations = snapshot.schemas.get(schema).ok_or_else(|| {
            Error::user(format!("schema {} does not exist", quoted(schema)))
                .code("3F000")
                .hint("CREATE SCHEMA makes it; SHOW SCHEMAS lists those that there are")
        })?;
        match (relations.relation(name), ingest.if_present, ingest.if_absent) {
            (Some(_), IfPresent::Fail, _) => Err(names::already_exists(schema, name).code("42P07")),
            (None, _, IfAbsent::Fail) => Err(names::no_table(&full_name(schema, name))),
            (Some(RelationKind::Table), IfPresent::Append, _) => {
                let table = Arc::clone(&relations.tables[name]);
                let sources = sources(session, &table, ingest)?;
                Ok(Place::Table { table, sources })
            }
            (Some(RelationKind::Table), IfPresent::Replace, _) | (None, _, IfAbsent::Create) => {
                let columns = ddl::table_schema(&ingest.columns, false)?;
                let spec = TableSpec::default();
                check_schema(name, &columns, &spec)?;
                Ok(Place::New { columns, spec, replaces: relations.relation(name).is_some() })
            }
            (Some(kind), ..) => Err(Error::unsupported(format!(
                "{} is a {}",
                quoted(&full_name(schema, name)),
                kind.name()
            ))
            .hint("rows can be sent to stored tables only, those of CREATE TABLE and load")),
        }
    }

    fn check(&self, viewer: &Viewer, ingest: &Ingest) -> Result<()> {
        let schema = Object::Schema(ingest.schema().into());
        let table = Object::relation(ingest.schema(), &ingest.table);
        viewer.check(Privilege::Usage, &schema)?;
        match self {
            Place::Table { .. } => viewer.check(Privilege::Insert, &table),
            Place::New { replaces, .. } => {
                viewer.check(Privilege::Create, &schema)?;
                if *replaces { viewer.check_owner(&table) } else { Ok(()) }
            }
        }
    }

    async fn write(
        &self,
        session: &Inner,
        ingest: &Ingest,
        rows: impl Stream<Item = Result<RecordBatch>> + Send,
    ) -> Result<(Vec<NewExtent>, u64)> {
        let engine = &session.engine;
        let layout = match self {
            Place::Table { table, .. } => Layout::of(table),
            Place::New { columns, spec, .. } => Layout::of_new(Arc::clone(columns), spec),
        };
        let schema = Arc::clone(&layout.schema);
        let target = Target { database: engine.database().clone(), layout };
        let mut writers = Writers::new(target, engine.config().threads);
        let mut rows = std::pin::pin!(rows);
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            check_columns(&batch, &ingest.columns)?;
            // A client's batch may be of any size; a poll is to be short.
            for start in (0..batch.num_rows()).step_by(BATCH_ROWS) {
                let part = batch.slice(start, BATCH_ROWS.min(batch.num_rows() - start));
                let columns = self.columns(&part)?;
                writers.push(ddl::conform(&columns, &schema)?).await?;
                checkpoint().await;
            }
        }
        writers.finish().await
    }

    fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let Place::Table { sources, .. } = self else { return Ok(batch.columns().to_vec()) };
        let column = |source: &Source| match source {
            Source::Column(i) => Ok(Arc::clone(batch.column(*i))),
            Source::Default(value) => {
                let zeros = UInt64Array::from(vec![0; batch.num_rows()]);
                take(value, &zeros, None).map_err(|e| from_arrow(&e))
            }
        };
        sources.iter().map(column).collect()
    }
}

fn sources(session: &Inner, table: &Table, ingest: &Ingest) -> Result<Vec<Source>> {
    let fields = table.arrow_schema.fields();
    let named = ingest.columns.fields();
    for (i, field) in named.iter().enumerate() {
        let name = quoted(field.name());
        if named[..i].iter().any(|other| other.name() == field.name()) {
            return Err(Error::user(format!("the rows have two columns {name}")).code("42701"));
        }
        if table.arrow_schema.index_of(field.name()).is_err() {
            let all: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
            let table = quoted(&full_name(ingest.schema(), &table.name));
            return Err(Error::user(format!("table {table} has no column {name}"))
                .code("42703")
                .hint(format!("its columns are {}", all.join(", "))));
        }
    }
    let state = session.context.state();
    let sources = fields.iter().zip(table.columns.iter()).map(|(field, column)| {
        if let Some(i) = named.iter().position(|f| f.name() == field.name()) {
            return Ok(Source::Column(i));
        }
        let value = match &column.default {
            Some(text) => defaults::constant(&state, text, field.data_type())?,
            None => new_null_array(field.data_type(), 1),
        };
        Ok(Source::Default(value))
    });
    sources.collect()
}

/// Batches of another shape than they were announced with.
fn check_columns(batch: &RecordBatch, columns: &SchemaRef) -> Result<()> {
    let same = batch.num_columns() == columns.fields().len()
        && batch
            .columns()
            .iter()
            .zip(columns.fields())
            .all(|(c, f)| c.data_type() == f.data_type());
    if same {
        return Ok(());
    }
    Err(Error::user("a batch has other columns than the rows were announced with"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;
    use thalweg_base::Kind;

    use super::*;
    use crate::config::Config;
    use crate::engine::Engine;
    use crate::session::Session;

    fn session() -> Session {
        Engine::open(":memory:", Config { threads: 2, ..Config::default() }).unwrap().session()
    }

    fn batch(names: [&str; 2], ids: Vec<i64>) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new(names[0], DataType::Int64, true),
            Field::new(names[1], DataType::Utf8, true),
        ]);
        let text: StringArray = ids.iter().map(|id| Some(format!("text {id}"))).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids)), Arc::new(text)];
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    async fn send(
        session: &Session,
        (if_absent, if_present): (IfAbsent, IfPresent),
        batches: Vec<Result<RecordBatch>>,
    ) -> Result<u64> {
        let columns = batches.iter().flatten().next().unwrap().schema();
        let ingest = Ingest { schema: None, table: "t".into(), columns, if_absent, if_present };
        session.ingest(ingest, futures::stream::iter(batches)).await
    }

    async fn number(session: &Session, sql: &str) -> i64 {
        let batches = session.query(sql).await.unwrap().collect().await.unwrap();
        batches[0].column(0).as_primitive::<Int64Type>().value(0)
    }

    const CREATE: (IfAbsent, IfPresent) = (IfAbsent::Create, IfPresent::Fail);
    const APPEND: (IfAbsent, IfPresent) = (IfAbsent::Fail, IfPresent::Append);
    const REPLACE: (IfAbsent, IfPresent) = (IfAbsent::Create, IfPresent::Replace);

    #[test]
    fn rows_arrive_in_every_mode() {
        let session = session();
        session.engine().block_on(async {
            let rows = |n: i64| Ok(batch(["id", "text"], (0..n).collect()));
            let absent = send(&session, APPEND, vec![rows(1)]).await.unwrap_err();
            assert_eq!(absent.sqlstate(), "42P01");
            assert_eq!(send(&session, CREATE, vec![rows(20_000), rows(3)]).await.unwrap(), 20_003);
            let present = send(&session, CREATE, vec![rows(1)]).await.unwrap_err();
            assert_eq!(present.sqlstate(), "42P07");
            assert_eq!(send(&session, APPEND, vec![rows(7)]).await.unwrap(), 7);
            assert_eq!(number(&session, "SELECT count(*) FROM t").await, 20_010);
            assert_eq!(number(&session, "SELECT count(DISTINCT text) FROM t").await, 20_000);
            assert_eq!(send(&session, REPLACE, vec![rows(2)]).await.unwrap(), 2);
            assert_eq!(number(&session, "SELECT count(*) FROM t").await, 2);
            assert_eq!(send(&session, APPEND, vec![rows(0)]).await.unwrap(), 0);
        });
    }

    #[test]
    fn columns_are_found_by_name_and_the_others_have_their_defaults() {
        let session = session();
        session.engine().block_on(async {
            let create = "CREATE TABLE t (text VARCHAR, n INT NOT NULL DEFAULT 42, id INT, z INT)";
            session.query(create).await.unwrap();
            let rows = || Ok(batch(["id", "text"], vec![1, 2]));
            send(&session, APPEND, vec![rows()]).await.unwrap();
            let sql = "SELECT count(*) FROM t WHERE n = 42 AND z IS NULL AND text = 'text ' || id";
            assert_eq!(number(&session, sql).await, 2);
            let unknown = batch(["id", "texd"], vec![1]);
            let unknown = send(&session, APPEND, vec![Ok(unknown)]).await.unwrap_err();
            assert_eq!(unknown.sqlstate(), "42703");
            let large = batch(["id", "text"], vec![1 << 40]);
            let large = send(&session, APPEND, vec![rows(), Ok(large)]).await.unwrap_err();
            assert_eq!(large.sqlstate(), "22003");
            assert_eq!(number(&session, "SELECT count(*) FROM t").await, 2);
        });
    }

    #[test]
    fn it_is_part_of_the_transaction_that_is_open() {
        let session = session();
        session.engine().block_on(async {
            session.query("BEGIN").await.unwrap();
            let rows = || Ok(batch(["id", "text"], vec![1, 2, 3]));
            send(&session, CREATE, vec![rows()]).await.unwrap();
            assert_eq!(number(&session, "SELECT count(*) FROM t").await, 3);
            session.query("ROLLBACK").await.unwrap();
            let gone = session.query("SELECT * FROM t").await;
            assert!(gone.is_err());
            // A client that breaks off leaves nothing.
            let broken = vec![rows(), Err(Error::new(Kind::Io, "the client is gone"))];
            let error = send(&session, CREATE, broken).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Io);
            assert!(session.query("SELECT * FROM t").await.is_err());
        });
    }

    #[test]
    fn a_client_that_goes_away_ends_it() {
        let session = session();
        session.engine().block_on(async {
            let rows = batch(["id", "text"], vec![1]);
            let columns = rows.schema();
            let stalled = futures::stream::iter([Ok(rows)]).chain(futures::stream::pending());
            let ingest = Ingest {
                schema: None,
                table: "t".into(),
                columns,
                if_absent: IfAbsent::Create,
                if_present: IfPresent::Fail,
            };
            let wait = std::time::Duration::from_millis(100);
            assert!(tokio::time::timeout(wait, session.ingest(ingest, stalled)).await.is_err());
            // The session has its turn again.
            assert_eq!(number(&session, "SELECT 1::BIGINT").await, 1);
            assert!(session.query("SELECT * FROM t").await.is_err());
        });
    }
}
