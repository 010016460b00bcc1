//! Random interleavings of readers, writers, compaction and VACUUM against a model that is a map:
//! every read equals its snapshot, and what a commit says it did is what was done.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema, SchemaRef};
use tempfile::TempDir;
use thalweg_base::{Kind, Prng, TableId};

use super::*;
use crate::compact::{Compaction, CompactionScope};
use crate::extent::Layout;
use crate::table::{PartitionBy, TableSpec};
use crate::transaction::{RowSet, Transaction};

/// Key and value; keys are used once.
type Rows = BTreeMap<i64, i64>;

fn schema() -> SchemaRef {
    let field = |name: &str| Field::new(name, DataType::Int64, false);
    Arc::new(ArrowSchema::new(vec![field("k"), field("v")]))
}

/// A transaction under way, and what the model thinks of it.
struct Open {
    transaction: Transaction,
    /// What it sees.
    rows: Rows,
    added: Rows,
    removed: Vec<i64>,
    truncated: bool,
    /// Commits of others since its base.
    overtaken: bool,
}

struct World {
    dir: TempDir,
    db: Database,
    clock: Arc<std::sync::atomic::AtomicU64>,
    table: TableId,
    random: Prng,
    next_key: i64,
    current: Rows,
    /// By snapshot.
    past: BTreeMap<u64, (u64, Rows)>,
    pinned: Vec<(Arc<Snapshot>, Rows)>,
    open: Vec<Open>,
    compactions: Vec<(Compaction, bool)>,
    conflicts: usize,
    commits: usize,
}

const RETENTION: u64 = 1_000;

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Prng::new(seed);
        let dir = TempDir::new().unwrap();
        let clock = Arc::new(std::sync::atomic::AtomicU64::new(1_000_000));
        let db = open(&dir, &clock, seed);
        let spec = TableSpec {
            cluster_by: if random.below(2) == 0 { vec![1] } else { vec![] },
            partition_by: (random.below(2) == 0).then_some(PartitionBy { column: 0, buckets: 2 }),
            ..TableSpec::default()
        };
        let mut tx = db.begin();
        let table = tx.create_table("public", "t", schema(), spec).unwrap();
        tx.set_property(RETENTION_PROPERTY, Some(RETENTION.to_string())).unwrap();
        let first = tx.commit().unwrap();
        World {
            dir,
            db,
            clock,
            table,
            random,
            next_key: 0,
            current: Rows::new(),
            past: BTreeMap::from([(first.id.0, (first.time_ms, Rows::new()))]),
            pinned: vec![],
            open: vec![],
            compactions: vec![],
            conflicts: 0,
            commits: 0,
        }
    }

    fn pick(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }

    fn step(&mut self) {
        self.clock.fetch_add(self.random.below(100), Ordering::Relaxed);
        match self.pick(100) {
            0..12 if self.open.len() < 4 => self.open.push(Open {
                transaction: self.db.begin(),
                rows: self.current.clone(),
                added: Rows::new(),
                removed: vec![],
                truncated: false,
                overtaken: false,
            }),
            0..35 => self.append(),
            35..55 => self.delete(),
            55..57 => self.truncate(),
            57..70 => self.commit(),
            70..72 if !self.open.is_empty() => {
                let at = self.pick(self.open.len());
                self.open.swap_remove(at);
            }
            72..80 => self.pinned.push((self.db.snapshot(), self.current.clone())),
            80..85 if !self.pinned.is_empty() => {
                let at = self.pick(self.pinned.len());
                let (snapshot, rows) = self.pinned.swap_remove(at);
                assert_eq!(read(&self.db, &snapshot), rows, "a pinned snapshot");
            }
            85..88 => self.ask_for_the_past(),
            88..93 => self.compact(),
            93..97 => {
                self.db.vacuum().unwrap();
            }
            97 => self.reopen(),
            _ => assert_eq!(read(&self.db, &self.db.snapshot()), self.current),
        }
    }

    fn append(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.pick(self.open.len());
        let count = 1 + self.pick(300);
        let new: Rows =
            (0..count as i64).map(|i| (self.next_key + i, self.random.range(0, 50))).collect();
        self.next_key += count as i64;
        let open = &mut self.open[at];
        let table = open.transaction.snapshot().table_by_id(self.table).unwrap().clone();
        let limits = Limits { chunk_rows: 64, ..Limits::default() };
        let mut writer = self.db.small_writer(Layout::of(&table), limits);
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(new.keys().copied()));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(new.values().copied()));
        writer.push(&RecordBatch::try_new(schema(), vec![keys, values]).unwrap()).unwrap();
        open.transaction.append(self.table, writer.finish().unwrap()).unwrap();
        open.rows.extend(&new);
        open.added.extend(new);
        assert_eq!(read(&self.db, open.transaction.snapshot()), open.rows, "own rows");
    }

    fn delete(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.pick(self.open.len());
        let (modulus, rest) = (2 + self.pick(40) as i64, self.pick(40) as i64);
        let open = &mut self.open[at];
        let version = open.transaction.snapshot().table_by_id(self.table).unwrap().clone();
        let contents = version.contents().unwrap();
        let mut gone = RowSet::default();
        for i in 0..contents.chunks() {
            let chunk = contents.chunk(i);
            let keys = self.db.read(&chunk, &[0]).unwrap().remove(0).decode_plain().unwrap();
            let live = chunk.live();
            for (row, id) in chunk.row_ids().values().iter().enumerate() {
                let key = keys.as_primitive::<Int64Type>().value(row);
                if live.as_ref().is_none_or(|l| l.value(row)) && key % modulus == rest {
                    gone.insert(&[*id]);
                    assert!(open.rows.remove(&key).is_some(), "key {key} was not there");
                    if open.added.remove(&key).is_none() {
                        open.removed.push(key);
                    }
                }
            }
        }
        assert_eq!(open.transaction.delete(&version, &gone).unwrap(), gone.len());
        assert_eq!(read(&self.db, open.transaction.snapshot()), open.rows, "own deletes");
    }

    fn truncate(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.pick(self.open.len());
        let open = &mut self.open[at];
        open.transaction.truncate(self.table).unwrap();
        open.rows.clear();
        open.added.clear();
        open.truncated = true;
    }

    fn commit(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.pick(self.open.len());
        let open = self.open.swap_remove(at);
        let empty = open.transaction.is_empty();
        let gone = open.removed.iter().any(|key| !self.current.contains_key(key));
        match open.transaction.commit() {
            Err(e) => {
                assert_eq!(e.kind(), Kind::Conflict, "{e:?}");
                assert!(open.overtaken, "a conflict with nobody: {e:?}");
                self.conflicts += 1;
            }
            Ok(snapshot) => {
                if empty {
                    return;
                }
                assert!(!gone, "a row was deleted twice");
                if open.truncated {
                    self.current.clear();
                }
                for key in &open.removed {
                    self.current.remove(key);
                }
                self.current.extend(open.added);
                self.committed(&snapshot);
            }
        }
        assert_eq!(read(&self.db, &self.db.snapshot()), self.current, "after a commit");
    }

    fn committed(&mut self, snapshot: &Snapshot) {
        self.commits += 1;
        self.past.insert(snapshot.id.0, (snapshot.time_ms, self.current.clone()));
        self.open.iter_mut().for_each(|o| o.overtaken = true);
        self.compactions.iter_mut().for_each(|c| c.1 = true);
    }

    /// Begins one, or does some of one, or ends it.
    fn compact(&mut self) {
        if self.compactions.len() < 2 && self.pick(2) == 0 {
            let scope = match self.pick(2) {
                0 => CompactionScope::Worthwhile,
                _ => CompactionScope::Everything,
            };
            let table = self.db.snapshot().table_by_id(self.table).unwrap().clone();
            if let Some(compaction) = Compaction::begin(&self.db, &table, scope).unwrap() {
                self.compactions.push((compaction, false));
            }
            return;
        }
        let Some((mut compaction, overtaken)) = self.compactions.pop() else { return };
        for _ in 0..=self.pick(10) {
            if let Some(piece) = compaction.fetch().unwrap() {
                compaction.take(piece).unwrap();
                while compaction.work().unwrap() {}
                continue;
            }
            match compaction.finish(false) {
                Ok(_) => {
                    let snapshot = self.db.snapshot();
                    self.committed(&snapshot);
                }
                Err(e) => {
                    assert!(e.kind() == Kind::Conflict && overtaken, "{e:?}");
                    self.conflicts += 1;
                }
            }
            assert_eq!(read(&self.db, &self.db.snapshot()), self.current, "after compacting");
            return;
        }
        self.compactions.push((compaction, overtaken));
    }

    fn ask_for_the_past(&mut self) {
        let ids: Vec<u64> = self.past.keys().copied().collect();
        let id = ids[self.pick(ids.len())];
        let (time_ms, rows) = &self.past[&id];
        match self.db.snapshot_at(AsOf::Snapshot(SnapshotId(id))) {
            Ok(snapshot) => assert_eq!(&read(&self.db, &snapshot), rows, "snapshot {id}"),
            Err(e) => {
                let replaced = self.past.range(id + 1..).next().map(|(_, (time, _))| *time);
                let age = self.clock.load(Ordering::Relaxed) - replaced.unwrap();
                assert!(age >= RETENTION, "snapshot {id} of {time_ms} is refused: {e:?}");
            }
        }
    }

    /// As after a crash: what was not committed is gone.
    fn reopen(&mut self) {
        self.open.clear();
        self.pinned.clear();
        self.compactions.clear();
        let seed = self.random.next_u64();
        self.db = open(&self.dir, &self.clock, seed);
        assert_eq!(read(&self.db, &self.db.snapshot()), self.current, "after reopening");
    }
}

fn open(dir: &TempDir, clock: &Arc<std::sync::atomic::AtomicU64>, seed: u64) -> Database {
    let clock = clock.clone();
    let now_ms = Arc::new(move || clock.load(Ordering::Relaxed));
    let options = Options { cache_bytes_max: 1 << 20, now_ms, seed, ..Options::default() };
    Database::open(&dir.path().join("db"), options).unwrap()
}

fn read(db: &Database, snapshot: &Snapshot) -> Rows {
    let contents = snapshot.table("public", "t").unwrap().contents().unwrap();
    let mut rows = Rows::new();
    for i in 0..contents.chunks() {
        let chunk = contents.chunk(i);
        let column = |c: usize| {
            let array = match db.cached(&chunk, c) {
                Some(array) => array,
                None => db.decode(db.read(&chunk, &[c]).unwrap().remove(0)).unwrap(),
            };
            crate::expand(&array, &DataType::Int64).unwrap()
        };
        let (keys, values) = (column(0), column(1));
        let (keys, values) = (keys.as_primitive::<Int64Type>(), values.as_primitive::<Int64Type>());
        let live = chunk.live();
        for row in (0..chunk.rows).filter(|&r| live.as_ref().is_none_or(|l| l.value(r))) {
            let twice = rows.insert(keys.value(row), values.value(row));
            assert!(twice.is_none(), "key {} twice", keys.value(row));
        }
    }
    assert_eq!(rows.len() as u64, contents.rows());
    rows
}

#[test]
fn every_read_equals_its_snapshot() {
    let seeds = std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let (mut conflicts, mut commits) = (0, 0);
    for seed in 0..seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            (0..400).for_each(|_| world.step());
            let World { pinned, db, .. } = &world;
            pinned.iter().for_each(|(snapshot, rows)| assert_eq!(&read(db, snapshot), rows));
            (world.conflicts, world.commits)
        });
        let run = run.unwrap_or_else(|_| panic!("seed {seed}"));
        conflicts += run.0;
        commits += run.1;
    }
    assert!(
        conflicts > 2 * seeds as usize && commits > 10 * seeds as usize,
        "{conflicts} {commits}"
    );
}

/// A flipped bit anywhere in an extent or in the log is found, and never comes back as data.
#[test]
fn no_flipped_bit_is_returned_as_data() {
    let dir = TempDir::new().unwrap();
    let clock = Arc::new(std::sync::atomic::AtomicU64::new(1_000_000));
    let mut world = World::new(7);
    while world.commits < 12 || world.current.is_empty() {
        world.step();
    }
    let expected = world.current.clone();
    let original = world.dir.path().join("db");
    let path = dir.path().join("db");
    for folder in ["log", "extents"] {
        fs::create_dir_all(path.join(folder)).unwrap();
    }
    // Only what the current snapshot needs: a flip in anything else need not be noticed.
    let kept: HashSet<PathBuf> =
        world.db.snapshot().extents().filter_map(|e| e.extent.path()).collect();
    let mut files: Vec<(PathBuf, Vec<u8>)> = vec![];
    for folder in ["log", "extents"] {
        for entry in fs::read_dir(original.join(folder)).unwrap() {
            let from = entry.unwrap().path();
            if folder == "extents" && !kept.contains(&from) {
                continue;
            }
            let to = path.join(folder).join(from.file_name().unwrap());
            fs::copy(&from, &to).unwrap();
            files.push((to, fs::read(&from).unwrap()));
        }
    }
    drop(world);
    let flips = std::env::var("FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let mut random = Prng::new(1);
    for flip in 0..flips {
        // Every file as often as another: the log's are small.
        let (file, bytes) = &files[random.below(files.len() as u64) as usize];
        let (at, bit) = (random.below(bytes.len() as u64) as usize, random.below(8));
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << bit;
        fs::write(file, &damaged).unwrap();
        let now = clock.clone();
        let options = Options {
            cache_bytes_max: 1 << 20,
            now_ms: Arc::new(move || now.load(Ordering::Relaxed)),
            ..Options::default()
        };
        let what = format!("flip {flip}: bit {bit} of byte {at} of {}", file.display());
        let name = file.file_name().unwrap().to_str().unwrap();
        let found = match Database::open(&path, options) {
            Err(e) => vec![e],
            Ok(db) => {
                match read_or_error(&db) {
                    Ok(rows) => assert_eq!(rows, expected, "{what}"),
                    Err(e) => assert_eq!(e.kind(), Kind::Corrupt, "{what}: {e:?}"),
                }
                db.check(false, &crate::CheckProgress::default()).unwrap().faults
            }
        };
        let named = found.iter().any(|e| e.message().contains(name));
        assert!(named && found[0].kind() == Kind::Corrupt, "{what}: {found:?}");
        fs::write(file, bytes).unwrap();
    }
}

fn read_or_error(db: &Database) -> Result<Rows> {
    let snapshot = db.snapshot();
    let Some(table) = snapshot.table("public", "t") else {
        return Ok(Rows::new());
    };
    let contents = table.contents()?;
    for i in 0..contents.chunks() {
        let segments = db.read(&contents.chunk(i), &[0, 1])?;
        for segment in segments {
            db.decode(segment)?;
        }
    }
    Ok(read(db, &snapshot))
}
