//! Columns of chunks on their way into the cache: what several tasks want at the same time is read
//! once and decoded once. What a scan will want next is [read ahead](Ahead).
//!
//! Nobody waits for a slot that another task must get. A read is done when a thread without one has
//! done it, whether or not the task that asked for it is still there; and who waits for a decoder
//! waits for a poll that is running.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::ArrayRef;
use datafusion::common::Result;
use parking_lot::Mutex;
use thalweg_base::Error;
use thalweg_base::limits::READ_AHEAD_BYTES_MAX;
use thalweg_storage::{ChunkColumn, ChunkRef, Database, Segment};
use tokio::task::JoinHandle;

use crate::flights::{Flights, Landed, Leader, Part};
use thalweg_errors::into_datafusion;
use thalweg_runtime::blocking;

#[derive(Default)]
pub struct Loading {
    reads: Arc<Flights<ChunkColumn, Segment>>,
    decodes: Arc<Flights<ChunkColumn, ArrayRef>>,
    /// Of all scans.
    ahead_bytes: AtomicU64,
}

/// Chunks that are read ahead of the one in hand: a megabyte or so each, which together keep a disk busy.
pub const CHUNKS_AHEAD: usize = 4;

/// What one scan reads before it comes to it: of each chunk, until its reader takes it, or it is clear
/// that none will, or the scan ends.
#[derive(Default)]
pub struct Ahead(Mutex<VecDeque<(Place, Coming)>>);

/// An extent of the table and a chunk of it.
type Place = (usize, usize);

pub type Coming = JoinHandle<Early>;

/// Stored columns of a chunk, by their numbers, that were read early: maybe not all that were asked
/// for.
pub struct Early {
    pub segments: Vec<(usize, Segment)>,
    bytes: u64,
    loading: Arc<Loading>,
}

impl Drop for Early {
    fn drop(&mut self) {
        self.loading.ahead_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Ahead {
    /// Has columns of chunks brought into memory, each chunk once. Nobody waits for it, and nothing
    /// fails: who wants the column tries again.
    pub fn begin(
        &self,
        loading: &Arc<Loading>,
        database: &Database,
        chunks: Vec<ChunkRef>,
        columns: &[usize],
    ) {
        let mut coming = self.0.lock();
        for chunk in chunks {
            let (loading, database) = (Arc::clone(loading), database.clone());
            let (place, columns) = (place(&chunk), columns.to_vec());
            let begin = move || loading.read_early(&database, &chunk, &columns);
            coming.push_back((place, tokio::task::spawn_blocking(begin)));
        }
        // Filters have changed meanwhile, and the first have been passed over. Others may be about to
        // be taken.
        let passed = coming.len().saturating_sub(2 * CHUNKS_AHEAD);
        coming.drain(..passed);
    }

    /// What was begun of a chunk.
    pub fn take(&self, chunk: &ChunkRef) -> Option<Coming> {
        let mut coming = self.0.lock();
        let at = coming.iter().position(|(p, _)| *p == place(chunk))?;
        coming.remove(at).map(|(_, coming)| coming)
    }
}

fn place(chunk: &ChunkRef) -> Place {
    (chunk.extent, chunk.chunk)
}

impl Loading {
    /// The compressed bytes of stored columns, in the order asked for.
    pub async fn read(
        &self,
        database: &Database,
        chunk: &ChunkRef,
        columns: &[usize],
    ) -> Result<Vec<Segment>> {
        let mut segments: Vec<Option<Segment>> = vec![None; columns.len()];
        while segments.iter().any(Option::is_none) {
            let (mut leaders, mut joiners) = (vec![], vec![]);
            for at in (0..columns.len()).filter(|at| segments[*at].is_none()) {
                match self.reads.board(&key(database, chunk, columns[at])?) {
                    Part::Leads(leader) => leaders.push((at, leader)),
                    Part::Joins(joiner) => joiners.push((at, joiner)),
                }
            }
            if !leaders.is_empty() {
                let asked: Vec<usize> = leaders.iter().map(|(at, _)| columns[*at]).collect();
                let (database, chunk) = (database.clone(), chunk.clone());
                let read = blocking(move || lead(&database, &chunk, &asked, leaders));
                for (at, segment) in read.await? {
                    segments[at] = Some(segment);
                }
            }
            for (at, joiner) in joiners {
                // If that read failed, this task tries for itself.
                if let Landed::Done(segment) = joiner.landed().await {
                    segments[at] = Some(segment);
                }
            }
        }
        Ok(segments.into_iter().flatten().collect())
    }

    /// What the system does not bring into memory by itself and nobody else is reading, unless there
    /// is too much of it already. Blocks.
    fn read_early(
        self: Arc<Self>,
        database: &Database,
        chunk: &ChunkRef,
        columns: &[usize],
    ) -> Early {
        let columns = database.read_ahead(chunk, columns);
        let bytes = columns.iter().map(|&c| chunk.stored_bytes(c)).sum();
        let ahead = self.ahead_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if ahead > READ_AHEAD_BYTES_MAX {
            self.ahead_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Early { segments: vec![], bytes: 0, loading: self };
        }
        let mut early = Early { segments: vec![], bytes, loading: self };
        let flights = &early.loading.reads;
        let leaders = columns.into_iter().filter_map(|column| {
            match flights.board(&key(database, chunk, column).ok()?) {
                Part::Leads(leader) => Some((column, leader)),
                Part::Joins(_) => None,
            }
        });
        let leaders: Vec<_> = leaders.collect();
        let asked: Vec<usize> = leaders.iter().map(|(column, _)| *column).collect();
        if !asked.is_empty() {
            early.segments = lead(database, chunk, &asked, leaders).unwrap_or_default();
        }
        early
    }

    /// The column, and whether `decode` was called for it: only if no other task has decoded or is
    /// decoding it now.
    pub async fn decode(
        &self,
        database: &Database,
        chunk: &ChunkRef,
        column: usize,
        decode: impl Fn() -> Result<ArrayRef>,
    ) -> Result<(ArrayRef, bool)> {
        let key = key(database, chunk, column)?;
        loop {
            match self.decodes.board(&key) {
                Part::Leads(leader) => {
                    // Maybe since this task looked. Who leads cannot miss it: what is decoded is
                    // in the cache before its flight ends.
                    let cached = database.cached(chunk, column);
                    let decoded = cached.is_none();
                    let array = cached.map_or_else(&decode, Ok)?;
                    leader.done(Arc::clone(&array));
                    return Ok((array, decoded));
                }
                Part::Joins(joiner) => {
                    if let Landed::Done(array) = joiner.landed().await {
                        return Ok((array, false));
                    }
                }
            }
        }
    }
}

/// Reads columns for all who want them: blocks. What each is for comes with its leader.
fn lead<T>(
    database: &Database,
    chunk: &ChunkRef,
    columns: &[usize],
    leaders: Vec<(T, Leader<ChunkColumn, Segment>)>,
) -> thalweg_base::Result<Vec<(T, Segment)>> {
    let read = database.read(chunk, columns)?;
    let done = leaders.into_iter().zip(read).map(|((what, leader), segment)| {
        leader.done(segment.clone());
        (what, segment)
    });
    Ok(done.collect())
}

fn key(database: &Database, chunk: &ChunkRef, column: usize) -> Result<Arc<ChunkColumn>> {
    let key = database.chunk_column(chunk, column);
    let missing = || into_datafusion(Error::internal("a column that the chunk has not"));
    key.map(Arc::new).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use futures::FutureExt;
    use thalweg_storage::{DirectIo, Layout, Options, TableSpec};

    use super::*;

    /// Of a table of one chunk and two columns, nothing of which is in the cache.
    fn cold(database: &Database) -> ChunkRef {
        let columns = ["a", "b"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(columns.to_vec()));
        let values = |by: i64| Int64Array::from_iter_values((0..1000).map(|a| by * a));
        let arrays: Vec<ArrayRef> = vec![Arc::new(values(1)), Arc::new(values(7))];
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
        let mut transaction = database.begin();
        let spec = TableSpec::default();
        let layout = Layout::of_new(Arc::clone(&schema), &spec);
        let id = transaction.create_table("public", "t", schema, spec).unwrap();
        let mut writer = database.extent_writer(layout);
        writer.push(&batch).unwrap();
        transaction.append(id, writer.finish().unwrap()).unwrap();
        let snapshot = transaction.commit().unwrap();
        let (_, table) = snapshot.named_tables().next().unwrap();
        table.contents().unwrap().chunk(0)
    }

    fn in_memory() -> Database {
        Database::memory(Options::default()).unwrap()
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Runtime::new().unwrap().block_on(future)
    }

    #[test]
    fn what_another_task_reads_is_not_read_again() {
        let database = in_memory();
        let chunk = cold(&database);
        let loading = Loading::default();
        let key = |column| key(&database, &chunk, column).unwrap();
        let Part::Leads(other) = loading.reads.board(&key(1)) else { panic!("joins") };
        block_on(async {
            let mut read = pin!(loading.read(&database, &chunk, &[0, 1]));
            // It reads the first column itself, and waits for the second.
            while matches!(loading.reads.board(&key(0)), Part::Joins(_)) {
                assert!(read.as_mut().now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            assert!(read.as_mut().now_or_never().is_none());
            other.done(database.read(&chunk, &[1]).unwrap().remove(0));
            let segments = read.await.unwrap();
            assert_eq!(segments.len(), 2);
            assert_eq!(loading.reads.shared(), 1);
            for (column, segment) in segments.into_iter().enumerate() {
                let array = database.decode(segment).unwrap();
                let array =
                    thalweg_storage::expand(&array, &arrow::datatypes::DataType::Int64).unwrap();
                let values = (0..1000).map(|a| if column == 0 { a } else { 7 * a });
                assert_eq!(array.as_ref(), &Int64Array::from_iter_values(values));
            }
        });
    }

    #[test]
    fn a_read_that_fails_is_tried_by_who_waited() {
        let database = in_memory();
        let chunk = cold(&database);
        let loading = Loading::default();
        let key = key(&database, &chunk, 0).unwrap();
        let Part::Leads(other) = loading.reads.board(&key) else { panic!("joins") };
        block_on(async {
            let mut read = pin!(loading.read(&database, &chunk, &[0]));
            assert!(read.as_mut().now_or_never().is_none());
            drop(other);
            assert_eq!(read.await.unwrap().len(), 1);
        });
    }

    /// Bytes on their way ahead of all scans.
    fn ahead(loading: &Loading) -> u64 {
        loading.ahead_bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn what_is_read_ahead_is_there_when_its_chunk_is_and_gone_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { direct_io: DirectIo::On, ..Options::default() };
        let database = Database::open(&folder.path().join("db"), options).unwrap();
        let chunk = cold(&database);
        let (loading, scan) = (Arc::new(Loading::default()), Ahead::default());
        let column = |number| key(&database, &chunk, number).unwrap();
        block_on(async {
            // Somebody else is reading the second one.
            let Part::Leads(other) = loading.reads.board(&column(1)) else { panic!("joins") };
            scan.begin(&loading, &database, vec![chunk.clone()], &[0, 1]);
            let coming = scan.take(&chunk).unwrap();
            assert!(scan.take(&chunk).is_none(), "each chunk has one reader");
            let early = coming.await.unwrap();
            drop(other);
            let columns: Vec<usize> = early.segments.iter().map(|(column, _)| *column).collect();
            assert_eq!(columns, [0]);
            assert!(ahead(&loading) > 0);
            let array = database.decode(early.segments[0].1.clone()).unwrap();
            assert_eq!(array.len(), 1000);
            drop(early);
            assert_eq!(ahead(&loading), 0);

            // What is decoded is not read again.
            scan.begin(&loading, &database, vec![chunk.clone()], &[0, 1]);
            let early = scan.take(&chunk).unwrap().await.unwrap();
            assert_eq!(early.segments.iter().map(|(c, _)| *c).collect::<Vec<_>>(), [1]);
            drop(early);

            // What nobody comes for is gone when enough others came, or with the scan.
            for _ in 0..100 {
                scan.begin(&loading, &database, vec![chunk.clone()], &[1]);
            }
            assert_eq!(scan.0.lock().len(), 2 * CHUNKS_AHEAD);
            scan.0.lock().clear();
            while ahead(&loading) > 0 {
                tokio::task::yield_now().await;
            }

            loading.ahead_bytes.store(READ_AHEAD_BYTES_MAX, Ordering::Relaxed);
            scan.begin(&loading, &database, vec![chunk.clone()], &[1]);
            let early = scan.take(&chunk).unwrap().await.unwrap();
            assert!(early.segments.is_empty(), "there is too much of it already");
            drop(early);
            assert_eq!(ahead(&loading), READ_AHEAD_BYTES_MAX);
        });
    }

    #[test]
    fn what_another_task_decodes_is_not_decoded_again() {
        let database = in_memory();
        let chunk = cold(&database);
        let loading = Loading::default();
        let key = key(&database, &chunk, 0).unwrap();
        let segment = database.read(&chunk, &[0]).unwrap().remove(0);
        let decodes = Cell::new(0);
        let decode = || {
            decodes.set(decodes.get() + 1);
            database.decode(segment.clone()).map_err(into_datafusion)
        };
        let run = || loading.decode(&database, &chunk, 0, decode);

        let Part::Leads(other) = loading.decodes.board(&key) else { panic!("joins") };
        let mut waiting = pin!(run());
        assert!(waiting.as_mut().now_or_never().is_none());
        other.done(Arc::new(Int64Array::from(vec![5])));
        let (array, decoded) = waiting.now_or_never().unwrap().unwrap();
        assert_eq!((array.len(), decoded, decodes.get()), (1, false, 0));

        let Part::Leads(other) = loading.decodes.board(&key) else { panic!("joins") };
        let mut waiting = pin!(run());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(other);
        let (array, decoded) = waiting.now_or_never().unwrap().unwrap();
        assert_eq!((array.len(), decoded, decodes.get()), (1000, true, 1));

        // By now it is in the cache.
        let (array, decoded) = run().now_or_never().unwrap().unwrap();
        assert_eq!((array.len(), decoded, decodes.get()), (1000, false, 1));
    }
}
