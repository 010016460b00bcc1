//! Columns of chunks on their way into the cache: what several tasks want at the same time is read
//! once and decoded once.
//!
//! Nobody waits for a slot that another task must get. A read is done when a thread without one has
//! done it, whether or not the task that asked for it is still there; and who waits for a decoder
//! waits for a poll that is running.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::Result;
use thalweg_base::Error;
use thalweg_storage::{ChunkColumn, ChunkRef, Database, Segment};

use crate::error::into_datafusion;
use crate::runtime::blocking;
use crate::share::{Flights, Landed, Part};

#[derive(Default)]
pub struct Loading {
    reads: Arc<Flights<ChunkColumn, Segment>>,
    decodes: Arc<Flights<ChunkColumn, ArrayRef>>,
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
                let read = move || {
                    let read = database.read(&chunk, &asked)?;
                    let done = leaders.into_iter().zip(read).map(|((at, leader), segment)| {
                        leader.done(segment.clone());
                        (at, segment)
                    });
                    Ok(done.collect::<Vec<_>>())
                };
                for (at, segment) in blocking(read).await? {
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

fn key(database: &Database, chunk: &ChunkRef, column: usize) -> Result<Arc<ChunkColumn>> {
    let key = database.chunk_column(chunk, column);
    let missing = || into_datafusion(Error::internal("a column that the chunk has not"));
    key.map(Arc::new).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use arrow::array::Int64Array;
    use futures::FutureExt;

    use super::*;
    use crate::config::Config;
    use crate::engine::Engine;

    /// Of a table of one chunk and two columns, nothing of which is in the cache.
    fn cold(engine: &Arc<Engine>) -> (Database, ChunkRef) {
        let (session, database) = (engine.session(), engine.database().clone());
        let sql = "CREATE TABLE t AS SELECT value AS a, value * 7 AS b FROM range(0, 1000)";
        engine.block_on(session.query(sql)).unwrap();
        let snapshot = database.snapshot();
        let (_, table) = snapshot.named_tables().next().unwrap();
        let chunk = table.contents().unwrap().chunk(0);
        (database, chunk)
    }

    fn engine() -> Arc<Engine> {
        Engine::open(":memory:", Config { threads: 1, ..Config::default() }).unwrap()
    }

    #[test]
    fn what_another_task_reads_is_not_read_again() {
        let engine = engine();
        let (database, chunk) = cold(&engine);
        let loading = Loading::default();
        let key = |column| key(&database, &chunk, column).unwrap();
        let Part::Leads(other) = loading.reads.board(&key(1)) else { panic!("joins") };
        engine.block_on(async {
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
        let engine = engine();
        let (database, chunk) = cold(&engine);
        let loading = Loading::default();
        let key = key(&database, &chunk, 0).unwrap();
        let Part::Leads(other) = loading.reads.board(&key) else { panic!("joins") };
        engine.block_on(async {
            let mut read = pin!(loading.read(&database, &chunk, &[0]));
            assert!(read.as_mut().now_or_never().is_none());
            drop(other);
            assert_eq!(read.await.unwrap().len(), 1);
        });
    }

    #[test]
    fn what_another_task_decodes_is_not_decoded_again() {
        let engine = engine();
        let (database, chunk) = cold(&engine);
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
