//! The log as objects in a store: reading it, appending to it, cutting its old end off.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use thalweg_base::{Error, Result, SnapshotId};

use super::record::{Change, Checkpoint, Commit, FrameKind, damaged, frame, unframe};
use super::replay::History;
use crate::extent::Home;
use crate::snapshot::PUBLIC;

/// The folder of the log in a store.
pub(crate) const FOLDER: &str = "log/";
const COMMIT: &str = "commit";
const CHECKPOINT: &str = "checkpoint";

/// Times that a log is listed anew before what is missing is taken for damage.
const LISTINGS_MAX: usize = 5;

pub(crate) struct Log {
    home: Arc<Home>,
}

/// What a log held when it was opened.
pub(crate) struct Opened {
    pub history: History,
    pub checkpoint: SnapshotId,
    /// Bytes of commits since it.
    pub bytes_since: u64,
}

/// The numbers of the objects that are there, ascending.
#[derive(Debug, Default)]
struct Listing {
    checkpoints: Vec<u64>,
    commits: Vec<u64>,
}

fn name(id: u64, kind: &str) -> String {
    format!("{FOLDER}{id:020}.{kind}")
}

/// Of the state as of commit `id`.
pub(crate) fn checkpoint_name(id: u64) -> String {
    name(id, CHECKPOINT)
}

impl Log {
    pub fn new(home: Arc<Home>) -> Self {
        Log { home }
    }

    /// What was read is built on: it must not be lost by a crash of whoever wrote it.
    pub fn settle(&self) -> Result<()> {
        self.home.store.sync(FOLDER)
    }

    fn listing(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        for object in self.home.store.list(FOLDER)? {
            let Some((id, kind)) = object.name.strip_prefix(FOLDER).and_then(|n| n.split_once('.'))
            else {
                continue;
            };
            let Ok(id) = id.parse::<u64>() else { continue };
            match kind {
                COMMIT => listing.commits.push(id),
                CHECKPOINT => listing.checkpoints.push(id),
                _ => {}
            }
        }
        listing.checkpoints.sort_unstable();
        listing.commits.sort_unstable();
        Ok(listing)
    }

    /// Begins a log; `false`: somebody else did.
    pub fn create(&self, time_ms: u64) -> Result<bool> {
        let checkpoint = Checkpoint {
            id: 0,
            time_ms,
            changes: vec![Change::PutSchema(PUBLIC.to_owned())],
            history: Vec::new(),
            removed: Vec::new(),
        };
        let bytes = frame(FrameKind::Checkpoint, &checkpoint)?;
        self.home.store.put_new(&name(0, CHECKPOINT), &bytes)
    }

    /// Reads it to its end; `None`: there is none.
    pub fn open(&self) -> Result<Option<Opened>> {
        let mut listing = self.listing()?;
        // Whoever cuts off the old end may do so while it is being read.
        let mut again = LISTINGS_MAX;
        loop {
            let Some(&checkpoint) = listing.checkpoints.last() else {
                return match listing.commits.first() {
                    None => Ok(None),
                    Some(&first) => Err(damaged(
                        &self.locate(first, COMMIT),
                        "it is there, and no checkpoint to begin from",
                    )),
                };
            };
            match self.replay(checkpoint, u64::MAX, &listing.commits)? {
                Some((history, bytes_since)) => {
                    let last = listing.commits.last().copied().unwrap_or(0);
                    let id = history.snapshot.id.0;
                    if last > id && again > 0 {
                        again -= 1;
                        listing = self.listing()?;
                        continue;
                    }
                    if last > id {
                        return Err(damaged(
                            &self.locate(id + 1, COMMIT),
                            "it is missing, and later ones are there",
                        ));
                    }
                    self.settle()?;
                    let checkpoint = SnapshotId(checkpoint);
                    return Ok(Some(Opened { history, checkpoint, bytes_since }));
                }
                // It was removed since it was listed: there is a newer one.
                None if again > 0 => {
                    again -= 1;
                    listing = self.listing()?;
                }
                None => {
                    return Err(damaged(
                        &self.locate(checkpoint, CHECKPOINT),
                        "it is listed and cannot be read",
                    ));
                }
            }
        }
    }

    /// From a checkpoint to commit `last`, or the last there is. `None`: it is not there. The
    /// commits that were `listed` are fetched together.
    fn replay(&self, checkpoint: u64, last: u64, listed: &[u64]) -> Result<Option<(History, u64)>> {
        let object = self.locate(checkpoint, CHECKPOINT);
        let Some((record, _)) =
            self.read(FrameKind::Checkpoint, &name(checkpoint, CHECKPOINT), None)?
        else {
            return Ok(None);
        };
        let ids: Vec<u64> =
            listed.iter().copied().filter(|&id| id > checkpoint && id <= last).collect();
        let names: Vec<String> = ids.iter().map(|&id| name(id, COMMIT)).collect();
        let mut fetched: HashMap<u64, Option<Vec<u8>>> =
            ids.into_iter().zip(self.home.store.get_many(&names)?).collect();
        let mut history =
            guarded(&object, || History::from_checkpoint(record, &self.home, &object))?;
        if history.snapshot.id.0 != checkpoint {
            return Err(damaged(&object, "it is another checkpoint"));
        }
        let mut bytes = 0;
        while history.snapshot.id.0 < last {
            let next = fetched.remove(&(history.snapshot.id.0 + 1)).flatten();
            let Some(read) = self.advance_by(&mut history, next)? else { break };
            bytes += read;
        }
        Ok(Some((history, bytes)))
    }

    /// Moves on by one commit, if there is one; returns its bytes.
    pub fn advance(&self, history: &mut History) -> Result<Option<u64>> {
        self.advance_by(history, None)
    }

    fn advance_by(&self, history: &mut History, fetched: Option<Vec<u8>>) -> Result<Option<u64>> {
        let id = history.snapshot.id.0 + 1;
        let object = self.locate(id, COMMIT);
        let Some((commit, bytes)) =
            self.read::<Commit>(FrameKind::Commit, &name(id, COMMIT), fetched)?
        else {
            return Ok(None);
        };
        if commit.id != id {
            return Err(damaged(&object, "it is another commit"));
        }
        guarded(&object, || history.advance(commit, &self.home, &object))?;
        Ok(Some(bytes))
    }

    pub fn has(&self, id: SnapshotId) -> Result<bool> {
        self.home.store.exists(&name(id.0, COMMIT))
    }

    /// Makes a commit; `false`: another one has its number. Returns its bytes beside.
    pub fn append(&self, commit: &Commit) -> Result<(bool, u64)> {
        let bytes = frame(FrameKind::Commit, commit)?;
        let made = self.home.store.put_new(&name(commit.id, COMMIT), &bytes)?;
        Ok((made, bytes.len() as u64))
    }

    /// Writes the state down as a whole, so that opening need not replay all commits.
    pub fn checkpoint(&self, history: &History) -> Result<()> {
        let bytes = frame(FrameKind::Checkpoint, &history.to_checkpoint()?)?;
        self.home.store.put_new(&name(history.snapshot.id.0, CHECKPOINT), &bytes).map(drop)
    }

    /// The state as of snapshot `id`; `None`: the log no longer reaches back to it.
    pub fn at(&self, id: SnapshotId) -> Result<Option<History>> {
        let listing = self.listing()?;
        let Some(checkpoint) = listing.checkpoints.iter().copied().rfind(|&c| c <= id.0) else {
            return Ok(None);
        };
        let state = self.replay(checkpoint, id.0, &listing.commits)?.map(|(history, _)| history);
        Ok(state.filter(|history| history.snapshot.id == id))
    }

    /// Removes what is not needed for snapshots from `oldest` on; returns how many objects.
    pub fn trim(&self, oldest: SnapshotId) -> Result<usize> {
        let listing = self.listing()?;
        let Some(keep) = listing.checkpoints.iter().copied().rfind(|&c| c <= oldest.0) else {
            return Ok(0);
        };
        let checkpoints = listing.checkpoints.iter().filter(|&&c| c < keep);
        let commits = listing.commits.iter().filter(|&&c| c <= keep);
        let mut removed = 0;
        for object in
            checkpoints.map(|&c| name(c, CHECKPOINT)).chain(commits.map(|&c| name(c, COMMIT)))
        {
            self.home.store.remove(&object)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Verifies every object; returns their number and bytes, and what is wrong.
    pub fn check(&self) -> Result<(usize, u64, Vec<Error>)> {
        let listing = self.listing()?;
        let (mut objects, mut total, mut faults) = (0, 0, Vec::new());
        let mut see = |read: Result<Option<u64>>| match read {
            Ok(bytes) => {
                objects += 1;
                total += bytes.unwrap_or(0);
            }
            Err(e) => faults.push(e),
        };
        for id in listing.checkpoints {
            let read = self.read::<Checkpoint>(FrameKind::Checkpoint, &name(id, CHECKPOINT), None);
            see(read.map(|r| r.map(|(_, bytes)| bytes)));
        }
        for id in listing.commits {
            let read = self.read::<Commit>(FrameKind::Commit, &name(id, COMMIT), None);
            see(read.map(|r| r.map(|(_, bytes)| bytes)));
        }
        Ok((objects, total, faults))
    }

    /// Reads an object, unless it is `fetched` already, and verifies it.
    fn read<T: DeserializeOwned>(
        &self,
        kind: FrameKind,
        name: &str,
        fetched: Option<Vec<u8>>,
    ) -> Result<Option<(T, u64)>> {
        let found = fetched.map_or_else(|| self.home.store.get(name), |bytes| Ok(Some(bytes)));
        let Some(mut bytes) = found? else { return Ok(None) };
        let object = self.home.store.locate(name);
        let record = match unframe(kind, &bytes, &object) {
            Err(_) if self.home.store.forget(name) => {
                let Some(original) = self.home.store.get(name)? else { return Ok(None) };
                bytes = original;
                unframe(kind, &bytes, &object)
            }
            record => record,
        };
        Ok(Some((record?, bytes.len() as u64)))
    }

    fn locate(&self, id: u64, kind: &str) -> String {
        self.home.store.locate(&name(id, kind))
    }
}

/// A record that passes its checksum and yet is not sound is met with assertions of Arrow or
/// Roaring; they must not reach the user as a crash.
fn guarded<T>(object: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|_| Err(damaged(object, "its content is malformed")))
}
