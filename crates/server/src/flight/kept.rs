//! What the server keeps until its client comes back for it, under names that nobody guesses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use thalweg_base::{Error, Result};

use crate::auth::User;

/// Bytes of a name.
const HANDLE_BYTES: usize = 32;

/// Things of one kind. One that nobody uses for a while is dropped, but not while it is in use:
/// somebody has its `Arc`.
pub struct Kept<T> {
    /// What they are called in errors.
    what: &'static str,
    /// After which an unused one is dropped.
    idle: Duration,
    most: usize,
    /// Whether an unused one may be dropped to make room.
    may_go: fn(&T) -> bool,
    entries: Mutex<HashMap<Bytes, Entry<T>>>,
}

struct Entry<T> {
    owner: String,
    used: Instant,
    value: Arc<T>,
}

impl<T> Kept<T> {
    pub fn new(what: &'static str, idle: Duration, most: usize) -> Self {
        Kept { what, idle, most, may_go: |_| false, entries: Mutex::default() }
    }

    /// The one that is unused for longest, of those for which `may_go` holds, makes room for a new
    /// one.
    pub fn giving_way(self, may_go: fn(&T) -> bool) -> Self {
        Kept { may_go, ..self }
    }

    /// # Errors
    /// There are as many as there may be.
    pub fn keep(&self, owner: &User, value: Arc<T>) -> Result<Bytes> {
        let handle = random()?;
        self.keep_as(handle.clone(), owner, value)?;
        Ok(handle)
    }

    pub fn keep_as(&self, handle: Bytes, owner: &User, value: Arc<T>) -> Result<()> {
        let mut dropped = self.take_expired();
        let mut entries = self.entries.lock();
        if entries.len() >= self.most {
            let unused = entries.iter().filter(|(_, e)| !e.in_use() && (self.may_go)(&e.value));
            let oldest = unused.min_by_key(|(_, e)| e.used).map(|(handle, _)| handle.clone());
            let oldest = oldest.ok_or_else(|| {
                Error::resources(format!("the server keeps {} {}s already", self.most, self.what))
                    .code("53300")
                    .hint(format!("close those that are not needed, or wait until they expire, {} s after their last use", self.idle.as_secs()))
            })?;
            dropped.extend(entries.remove(&oldest));
        }
        entries.insert(handle, Entry { owner: owner.name.clone(), used: Instant::now(), value });
        drop(entries);
        // Here, where the lock is free: it may take a while to end a query.
        drop(dropped);
        Ok(())
    }

    /// # Errors
    /// There is none of that name that belongs to `owner`.
    pub fn find(&self, owner: &User, handle: &[u8]) -> Result<Arc<T>> {
        let found = self.of_any(handle, Some(&owner.name));
        found.ok_or_else(|| {
            Error::user(format!("there is no such {}", self.what))
                .code("26000")
                .hint(format!("it was closed, or nobody used it for {} s", self.idle.as_secs()))
        })
    }

    /// Whoever it belongs to: of a name that proves who its bearer is.
    pub fn get(&self, handle: &[u8]) -> Option<Arc<T>> {
        self.of_any(handle, None)
    }

    fn of_any(&self, handle: &[u8], owner: Option<&str>) -> Option<Arc<T>> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(handle)?;
        let is_due = !entry.in_use() && entry.used.elapsed() > self.idle;
        if is_due || owner.is_some_and(|owner| owner != entry.owner) {
            return None;
        }
        entry.used = Instant::now();
        Some(Arc::clone(&entry.value))
    }

    pub fn forget(&self, handle: &[u8]) -> Option<Arc<T>> {
        let entry = self.entries.lock().remove(handle);
        entry.map(|entry| entry.value)
    }

    pub fn sweep(&self) {
        drop(self.take_expired());
    }

    fn take_expired(&self) -> Vec<Entry<T>> {
        let mut entries = self.entries.lock();
        let due = |e: &Entry<T>| !e.in_use() && e.used.elapsed() > self.idle;
        let expired: Vec<Bytes> =
            entries.iter().filter(|(_, e)| due(e)).map(|(handle, _)| handle.clone()).collect();
        expired.iter().filter_map(|handle| entries.remove(handle)).collect()
    }
}

impl<T> Entry<T> {
    fn in_use(&self) -> bool {
        Arc::strong_count(&self.value) > 1
    }
}

/// A name that nobody guesses.
pub fn random() -> Result<Bytes> {
    let mut bytes = [0; HANDLE_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::internal("the system gives no random numbers"))?;
    Ok(Bytes::copy_from_slice(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> User {
        User::named(name)
    }

    #[test]
    fn only_its_owner_finds_it() {
        let kept = Kept::new("thing", Duration::from_secs(60), 2);
        let handle = kept.keep(&user("ada"), Arc::new(7)).unwrap();
        assert_eq!(*kept.find(&user("ada"), &handle).unwrap(), 7);
        assert!(kept.find(&user("bob"), &handle).is_err());
        assert!(kept.find(&user("ada"), b"guessed").is_err());
        assert!(kept.forget(&handle).is_some());
        assert!(kept.find(&user("ada"), &handle).is_err());
    }

    #[test]
    fn there_are_no_more_than_there_may_be() {
        let ada = user("ada");
        let kept = Kept::new("thing", Duration::from_secs(60), 2);
        kept.keep(&ada, Arc::new(1)).unwrap();
        kept.keep(&ada, Arc::new(2)).unwrap();
        assert_eq!(kept.keep(&ada, Arc::new(3)).unwrap_err().sqlstate(), "53300");

        let kept = Kept::new("thing", Duration::from_secs(60), 2).giving_way(|n| *n < 10);
        let (used, unused) = (Arc::new(1), Arc::new(2));
        let first = kept.keep(&ada, Arc::clone(&used)).unwrap();
        let second = kept.keep(&ada, unused).unwrap();
        kept.keep(&ada, Arc::new(30)).unwrap();
        assert!(kept.get(&first).is_some() && kept.get(&second).is_none());
        assert!(kept.keep(&ada, Arc::new(4)).is_err());
    }

    #[test]
    fn what_nobody_uses_is_dropped() {
        let ada = user("ada");
        let kept = Kept::new("thing", Duration::ZERO, 10);
        let used = Arc::new(1);
        let first = kept.keep(&ada, Arc::clone(&used)).unwrap();
        let second = kept.keep(&ada, Arc::new(2)).unwrap();
        kept.sweep();
        assert!(kept.get(&first).is_some() && kept.get(&second).is_none());
        drop(used);
        assert!(kept.get(&first).is_none());
    }
}
