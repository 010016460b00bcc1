//! What queries read of a large table, why not the rest, and how long it takes to find that out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::array_value_to_string;
use serde::{Deserialize, Serialize};
use thalweg_base::text::count;
use thalweg_base::{Error, Result};
use thalweg_engine::storage::{Layout, NewExtent, TableSpec};
use thalweg_engine::{Config, Engine, Session};

use crate::report::figures::{ms, percent, spread};
use crate::report::model::Timing;
use crate::report::text::{Options as Look, Table, titled};
use crate::run::{save, say};

/// Rows of the fact table at scale factor 1: 256 chunks. A power of two, so that multiplying by
/// an odd number shuffles them.
const FACT_ROWS: u64 = 1 << 24;
/// Chunks of the table for look-ups at scale factor 1.
const CHUNKS: u64 = 1_000_000;
const CHUNKS_PER_EXTENT: u64 = 100;
/// 1992 to 1998, as TPC-H and SSB have them.
const FIRST_DAY: u64 = 8035;
const DAYS: u64 = 2557;
const LOOKUPS: usize = 200;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipping {
    /// As the rows were written: each writer's runs over all dates.
    pub queries: Vec<Read>,
    /// After `OPTIMIZE TABLE` has merged the runs.
    pub optimized: Vec<Read>,
    pub lookup: Lookup,
}

/// What one query read of the fact table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Read {
    pub query: String,
    pub chunks_total: u64,
    pub chunks_read: u64,
    pub share_percent: f64,
    /// Reasons, each with the number of chunks it ruled out.
    pub pruned_by: Vec<(String, u64)>,
    pub timing: Timing,
}

/// A point query on a table of very many chunks, from its text to its row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lookup {
    pub chunks: u64,
    pub extents: u64,
    /// The first one gathers the statistics of all extents; they are kept with the snapshot.
    pub first_ms: f64,
    pub median_ms: f64,
    pub p99_ms: f64,
}

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    pub scale_factor: f64,
    pub runs: usize,
    pub threads: usize,
    /// Where the database is kept; `None`: in memory.
    pub database: Option<PathBuf>,
    pub json: Option<PathBuf>,
}

/// Makes the tables in an empty database, runs everything, and prints it.
pub fn run(options: &Options) -> Result<()> {
    let location = match &options.database {
        Some(path) => path.to_string_lossy().into_owned(),
        None => ":memory:".to_owned(),
    };
    let config = Config { threads: options.threads, ..Config::default() };
    let engine = Engine::open(&location, config)?;
    let found = measure(&engine, options.scale_factor, options.runs)?;
    println!("{}", found.text(Look::stdout()));
    save(options.json.as_deref(), None, &found, String::new)
}

impl Skipping {
    fn text(&self, look: Look) -> String {
        let look_up = &self.lookup;
        let mut lookups =
            Table::new(&["Chunks", "Extents", "First ms", "Median ms", "99th percentile ms"]);
        lookups.row(vec![
            count(look_up.chunks),
            count(look_up.extents),
            ms(look_up.first_ms),
            ms(look_up.median_ms),
            ms(look_up.p99_ms),
        ]);
        format!(
            "{}\n{}\n{}",
            titled("What is read of a table clustered by date", reads(&self.queries), look),
            titled("The same after OPTIMIZE TABLE", reads(&self.optimized), look),
            titled("A point look-up, from its text to its row", lookups, look)
        )
    }
}

fn reads(queries: &[Read]) -> Table {
    let mut table = Table::new(&["Query", "Chunks", "Read", "%", "Pruned by", "Median ms", "±"]);
    for read in queries {
        let reasons = read.pruned_by.iter().map(|(by, n)| format!("{by} {}", count(*n)));
        table.row(vec![
            read.query.clone(),
            count(read.chunks_total),
            count(read.chunks_read),
            percent(read.share_percent),
            reasons.collect::<Vec<_>>().join(", "),
            ms(read.timing.median_ms),
            spread(read.timing.spread_percent),
        ]);
    }
    table
}

fn measure(engine: &Arc<Engine>, scale_factor: f64, runs: usize) -> Result<Skipping> {
    let session = engine.session();
    let rows = ((FACT_ROWS as f64 * scale_factor) as u64).max(2).next_power_of_two();
    say(&format!("loading {rows} rows, clustered by date"));
    for statement in tables(rows) {
        execute(engine, &session, &statement)?;
    }
    let ask = || {
        let questions = questions(rows).into_iter();
        questions
            .map(|(name, sql)| read(engine, &session, name, &sql, runs))
            .collect::<Result<Vec<Read>>>()
    };
    let queries = ask()?;
    say("merging its runs");
    execute(engine, &session, "OPTIMIZE TABLE fact")?;
    let optimized = ask()?;
    let chunks = ((CHUNKS as f64 * scale_factor) as u64).max(CHUNKS_PER_EXTENT);
    say(&format!("making a table of {chunks} chunks"));
    make_chunks(engine, chunks)?;
    Ok(Skipping { queries, optimized, lookup: lookup(engine, &session, chunks)? })
}

fn tables(rows: u64) -> Vec<String> {
    vec![
        format!(
            "CREATE TABLE dates AS SELECT (DATE '1970-01-01' + day::INT) AS d, \
             extract(year FROM (DATE '1970-01-01' + day::INT)) AS year, extract(week FROM (DATE '1970-01-01' + day::INT)) AS week \
             FROM (SELECT value + {FIRST_DAY} AS day FROM range(0, {DAYS}))"
        ),
        "CREATE TABLE fact (d DATE, k BIGINT, id VARCHAR, city VARCHAR, price DECIMAL(12, 2)) \
         CLUSTER BY (d, k)"
            .to_owned(),
        format!(
            "INSERT INTO fact SELECT DATE '1970-01-01' + ({FIRST_DAY} + k * {DAYS} / {rows})::INT, k, \
             md5(k::VARCHAR), 'city ' || k % 250, (k % 100000)::DECIMAL(12, 2) \
             FROM (SELECT value * 7919 % {rows} AS k FROM range(0, {rows}))"
        ),
    ]
}

fn questions(rows: u64) -> Vec<(&'static str, String)> {
    let star = "SELECT sum(price) FROM fact JOIN dates ON fact.d = dates.d WHERE";
    let half = rows / 2;
    vec![
        ("point look-up, clustered key", format!("SELECT price FROM fact WHERE k = {half}")),
        (
            "1 % range, clustered key",
            format!("SELECT sum(price) FROM fact WHERE k BETWEEN {half} AND {}", half + rows / 100),
        ),
        ("one day", "SELECT sum(price) FROM fact WHERE d = DATE '1994-02-07'".to_owned()),
        ("star join, one week", format!("{star} year = 1994 AND week = 6")),
        (
            "star join, two weeks six years apart",
            format!("{star} year = 1992 AND week = 10 OR year = 1998 AND week = 40"),
        ),
        ("point look-up, random text", format!("SELECT k FROM fact WHERE id = md5('{half}')")),
        (
            "five random texts",
            format!(
                "SELECT k FROM fact WHERE id IN ({})",
                (1..6).map(|i| format!("md5('{}')", i * rows / 7)).collect::<Vec<_>>().join(", ")
            ),
        ),
        ("text that is not there", "SELECT k FROM fact WHERE city = 'city 77b'".to_owned()),
        ("last ten", "SELECT k FROM fact ORDER BY d DESC, k DESC LIMIT 10".to_owned()),
        ("COUNT, MIN, MAX", "SELECT count(*), min(d), max(k), count(id) FROM fact".to_owned()),
    ]
}

fn read(
    engine: &Arc<Engine>,
    session: &Session,
    name: &str,
    sql: &str,
    runs: usize,
) -> Result<Read> {
    let plan = execute(engine, session, &format!("EXPLAIN ANALYZE {sql}"))?;
    let scan = plan.lines().find(|line| line.contains("table=fact")).unwrap_or_default();
    let total = match metric(scan, "chunks_total=") {
        Some(total) => total,
        // Answered without a scan.
        None => {
            engine.database().snapshot().table("public", "fact").map_or(0, |t| t.chunks()) as u64
        }
    };
    let chunks_read = metric(scan, "chunks_read=").unwrap_or(0);
    let mut pruned_by = vec![];
    for (at, found) in scan.match_indices("chunks_pruned_") {
        let (reason, rest) = scan[at + found.len()..].split_once('=').unwrap_or_default();
        pruned_by.push((reason.replace("by_", ""), number(rest).unwrap_or(0)));
    }
    let mut times = vec![];
    for _ in 0..runs {
        let started = Instant::now();
        execute(engine, session, sql)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Read {
        query: name.to_owned(),
        chunks_total: total,
        chunks_read,
        share_percent: chunks_read as f64 / total.max(1) as f64 * 100.0,
        pruned_by,
        timing: Timing::new(times).ok_or_else(|| Error::internal("a query without a run"))?,
    })
}

/// All cells of the answer as text.
fn execute(engine: &Arc<Engine>, session: &Session, sql: &str) -> Result<String> {
    let batches = engine.block_on(async { session.query(sql).await?.collect().await })?;
    let mut text = String::new();
    for batch in &batches {
        for column in batch.columns() {
            for row in 0..column.len() {
                text += &array_value_to_string(column, row).unwrap_or_default();
                text.push('\n');
            }
        }
    }
    Ok(text)
}

fn metric(line: &str, name: &str) -> Option<u64> {
    number(&line[line.find(name)? + name.len()..])
}

/// The leading digits, which `EXPLAIN ANALYZE` may shorten: `1.05 K`.
fn number(text: &str) -> Option<u64> {
    let end = text.find([',', ']']).unwrap_or(text.len());
    let (digits, unit) = text[..end].split_once(' ').unwrap_or((&text[..end], ""));
    let scale = match unit {
        "K" => 1e3,
        "M" => 1e6,
        _ => 1.0,
    };
    Some((digits.parse::<f64>().ok()? * scale).round() as u64)
}

/// A table `many` of chunks of one row each: what it costs to tell chunks apart does not depend
/// on their rows.
fn make_chunks(engine: &Arc<Engine>, chunks: u64) -> Result<()> {
    let field = |name| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field("k"), field("v")]));
    let spec = TableSpec::default();
    let extents = chunks.div_ceil(CHUNKS_PER_EXTENT);
    let threads = engine.config().threads as u64;
    let part = |thread: u64| -> Result<Vec<NewExtent>> {
        let mut made = vec![];
        for extent in (thread * extents / threads)..((thread + 1) * extents / threads) {
            let layout = Layout::of_new(schema.clone(), &spec);
            let mut writer = engine.database().extent_writer(layout);
            for k in (extent * CHUNKS_PER_EXTENT)..((extent + 1) * CHUNKS_PER_EXTENT).min(chunks) {
                let value = |v: u64| Arc::new(Int64Array::from(vec![v as i64]));
                let row = RecordBatch::try_new(schema.clone(), vec![value(k), value(k * 7)])
                    .map_err(|e| Error::internal("a row makes no batch").source(e))?;
                writer.push(&row)?;
                writer.flush()?;
                while writer.step()? {}
            }
            made.extend(writer.finish()?);
        }
        Ok(made)
    };
    let parts: Vec<Result<Vec<NewExtent>>> = std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> = (0..threads).map(|t| scope.spawn(move || part(t))).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|_| Err(Error::internal("a writer's thread panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    let mut transaction = engine.database().begin();
    let table = transaction.create_table("public", "many", schema.clone(), spec.clone())?;
    for part in parts {
        transaction.append(table, part?)?;
    }
    transaction.commit().map(drop)
}

fn lookup(engine: &Arc<Engine>, session: &Session, chunks: u64) -> Result<Lookup> {
    let mut times = vec![];
    for i in 0..=LOOKUPS as u64 {
        let k = i * 7919 % chunks;
        let sql = format!("SELECT v FROM many WHERE k = {k}");
        let started = Instant::now();
        let answer = execute(engine, session, &sql)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        if answer.trim() != (k * 7).to_string() {
            return Err(Error::internal(format!("{sql} gave {answer:?}")));
        }
    }
    let first_ms = times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok(Lookup {
        chunks,
        extents: chunks.div_ceil(CHUNKS_PER_EXTENT),
        first_ms,
        median_ms: times[times.len() / 2],
        p99_ms: times[times.len() * 99 / 100],
    })
}
