//! A database on a disk that fails: after whatever went wrong, it opens and holds exactly what was
//! committed; of a commit that ended in an error, all or nothing.
//!
//! Each seed is one story: statements run one after another, each on a disk where any call may
//! fail; after an error the process ends, or the power goes. Compared is a list of numbers.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema, SchemaRef};
use thalweg_base::{Prng, TableId};

use super::*;
use crate::RowSet;
use crate::Table;
use crate::extent::Layout;
use crate::store::fault::FaultDisk;
use crate::table::TableSpec;

/// What a unit test has the time for; `THALWEG_SEEDS=2000..5000` tells others.
const SEEDS: Range<u64> = 0..60;
const STATEMENTS: usize = 25;

struct Story {
    random: Prng,
    disk: FaultDisk,
    clock_ms: Arc<AtomicU64>,
    /// What the table holds, sorted.
    rows: Vec<i64>,
    /// Not there before the first commit.
    exists: bool,
    next: i64,
    seed: u64,
}

fn schema() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![Field::new("n", DataType::Int64, true)]))
}

impl Story {
    fn new(seed: u64) -> Self {
        Story {
            random: Prng::new(seed),
            disk: FaultDisk::new(seed),
            clock_ms: Arc::new(AtomicU64::new(1_000_000)),
            rows: Vec::new(),
            exists: false,
            next: 0,
            seed,
        }
    }

    fn open(&mut self) -> Result<Database> {
        let clock = self.clock_ms.clone();
        let options = Options {
            cache_bytes_max: 1 << 20,
            lock_wait: Duration::ZERO,
            now_ms: Arc::new(move || clock.load(Ordering::Relaxed)),
            seed: self.random.next_u64(),
            ..Options::default()
        };
        let store = LocalStore::on(self.disk.clone(), Path::new("/shop"));
        Database::on(Arc::new(store), None, options)
    }

    /// Runs a statement; returns what the table holds if it commits.
    fn statement(&mut self, db: &Database) -> (Vec<i64>, Result<()>) {
        self.clock_ms.fetch_add(self.random.below(10_000), Ordering::Relaxed);
        match self.random.below(if self.exists { 8 } else { 1 }) {
            0 if !self.exists => self.insert(db, true),
            0..4 => self.insert(db, false),
            4 | 5 => self.delete(db),
            6 => {
                let truncate = || {
                    let mut tx = db.begin();
                    tx.truncate(table(db))?;
                    tx.commit().map(drop)
                };
                (Vec::new(), truncate())
            }
            _ => {
                let retention = self.random.below(20_000).to_string();
                let vacuum = || {
                    let mut tx = db.begin();
                    tx.set_property(RETENTION_PROPERTY, Some(retention))?;
                    tx.commit()?;
                    db.vacuum().map(drop)
                };
                (self.rows.clone(), vacuum())
            }
        }
    }

    fn insert(&mut self, db: &Database, create: bool) -> (Vec<i64>, Result<()>) {
        let numbers: Vec<i64> = (self.next..self.next + 50).collect();
        self.next += 50;
        let mut after = self.rows.clone();
        after.extend(&numbers);
        let run = || {
            let mut tx = db.begin();
            let (id, layout) = match create {
                true => {
                    let spec = TableSpec::default();
                    let layout = Layout::of_new(schema(), &spec);
                    (tx.create_table("public", "t", schema(), spec)?, layout)
                }
                false => {
                    let snapshot = tx.snapshot().clone();
                    let table = snapshot.table("public", "t").unwrap();
                    (table.id, Layout::of(table))
                }
            };
            let mut writer = db.extent_writer(layout);
            let column = Arc::new(Int64Array::from(numbers));
            writer.push(&RecordBatch::try_new(schema(), vec![column]).unwrap())?;
            writer.flush()?;
            while writer.step()? {}
            tx.append(id, writer.finish()?)?;
            tx.commit().map(drop)
        };
        let done = run();
        (after, done)
    }

    /// Some of the rows.
    fn delete(&mut self, db: &Database) -> (Vec<i64>, Result<()>) {
        let keep = self.random.below(5) as i64;
        let after: Vec<i64> = self.rows.iter().copied().filter(|n| n % 5 == keep).collect();
        let run = || {
            let mut tx = db.begin();
            let version = tx.snapshot().table("public", "t").unwrap().clone();
            let mut rows = RowSet::default();
            for_each_row(db, &version, |n, row_id| {
                if n % 5 != keep {
                    rows.insert(&[row_id]);
                }
            })?;
            tx.delete(&version, &rows)?;
            tx.commit().map(drop)
        };
        (after, run())
    }

    /// What is there must be one of `legal`; it is what later statements build on.
    fn check(&mut self, db: &Database, legal: &[Vec<i64>], story: &str) {
        let snapshot = db.snapshot();
        let Some(table) = snapshot.table("public", "t") else {
            assert!(legal.contains(&Vec::new()) && !self.exists, "the table is gone, {story}");
            return;
        };
        let mut found = Vec::new();
        for_each_row(db, table, |n, _| found.push(n)).unwrap_or_else(|e| panic!("{e:#}, {story}"));
        found.sort_unstable();
        let legal_rows: Vec<usize> = legal.iter().map(Vec::len).collect();
        assert!(legal.contains(&found), "{} rows, legal are {legal_rows:?}, {story}", found.len());
        self.rows = found;
        self.exists = true;
    }

    fn run(mut self) {
        let seed = self.seed;
        let mut legal = vec![Vec::new()];
        let mut steps = 0;
        while steps < STATEMENTS {
            // Opening must succeed on a disk that works.
            let story = format!("opening before statement {steps}, seed {seed}");
            let db = self.open().unwrap_or_else(|e| panic!("{e:#}, {story}"));
            self.check(&db, &legal, &story);
            legal = vec![self.rows.clone()];
            if self.random.below(4) == 0 {
                // Nothing that was read may be lost again.
                drop(db);
                self.disk = self.disk.power_cut();
                continue;
            }
            self.disk.fail_randomly(60);
            let mut statements = 1 + self.random.below(8);
            while statements > 0 && steps < STATEMENTS {
                statements -= 1;
                steps += 1;
                let (after, done) = self.statement(&db);
                if let Err(e) = done {
                    assert!(
                        [Kind::Io, Kind::Resources].contains(&e.kind()),
                        "{e:#}, statement {steps}, seed {seed}"
                    );
                    legal.push(after);
                    break;
                }
                self.exists = true;
                self.rows = after.clone();
                legal = vec![after];
                // Reading fails only if the power is off.
                if !self.disk.is_off() {
                    let legal = legal.clone();
                    self.check(&db, &legal, &format!("after statement {steps}, seed {seed}"));
                }
            }
            drop(db);
            self.disk = match self.disk.is_off() || self.random.below(2) == 0 {
                true => self.disk.power_cut(),
                false => {
                    self.disk.stop_failing();
                    self.disk.clone()
                }
            };
        }
        self.leaves_no_orphan();
    }

    fn leaves_no_orphan(&mut self) {
        let db = self.open().unwrap();
        let mut tx = db.begin();
        tx.set_property(RETENTION_PROPERTY, Some("0".to_owned())).unwrap();
        tx.commit().unwrap();
        self.clock_ms.fetch_add(1, Ordering::Relaxed);
        db.vacuum().unwrap();
        let named = db.snapshot().extents().count();
        let store = &db.0.home.store;
        assert_eq!(store.list("extents/").unwrap().len(), named, "seed {}", self.seed);
        assert_eq!(self.disk.temporary_files(), 0, "seed {}", self.seed);
    }
}

fn table(db: &Database) -> TableId {
    db.snapshot().table("public", "t").unwrap().id
}

fn for_each_row(db: &Database, table: &Table, mut f: impl FnMut(i64, u64)) -> Result<()> {
    let contents = table.contents()?;
    for i in 0..contents.chunks() {
        let chunk = contents.chunk(i);
        let array = match db.cached(&chunk, 0) {
            Some(array) => array,
            None => {
                let segment = db.read(&chunk, &[0])?.pop().unwrap();
                db.decode(segment)?
            }
        };
        let array = crate::expand(&array, &DataType::Int64)?;
        let (live, ids) = (chunk.live(), chunk.row_ids());
        let numbers = array.as_primitive::<Int64Type>().values().iter().zip(ids.values());
        for (row, (n, id)) in numbers.enumerate() {
            if live.as_ref().is_none_or(|live| live.value(row)) {
                f(*n, *id);
            }
        }
    }
    Ok(())
}

#[test]
fn whatever_fails_exactly_what_was_committed_is_there() {
    let named = std::env::var("THALWEG_SEEDS").ok().and_then(|seeds| {
        let (first, last) = seeds.split_once("..")?;
        Some(first.parse().ok()?..last.parse().ok()?)
    });
    named.unwrap_or(SEEDS).for_each(|seed| Story::new(seed).run());
}
