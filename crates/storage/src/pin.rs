//! Keeps a snapshot's extents from being removed by any process while somebody copies them.
//!
//! A pin is an object without content, `pins/FROM-UNTIL-NONCE.pin`: until the second time nobody
//! removes extents that left their tables at the first or later. All is in the name, so one listing
//! tells; it is made only when something is about to be removed. Whoever dies leaves a pin that
//! ends by itself.
//!
//! It holds because of the order. Who pins makes the object *before* looking for the newest
//! snapshot; who removes has committed that the extents are gone *before* listing the pins. So
//! either the pin is seen, or the snapshot that was looked up no longer names them.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_base::limits::PIN_LEASE_MS;
use thalweg_base::{Error, Result};

use crate::store::Store;

const FOLDER: &str = "pins/";
const ENDING: &str = ".pin";

pub(crate) type Now = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Held while it lives, and renewed by [`Pin::renew`].
pub(crate) struct Pin {
    store: Arc<dyn Store>,
    now_ms: Now,
    from_ms: u64,
    held: Mutex<Held>,
}

struct Held {
    name: String,
    until_ms: u64,
}

impl Pin {
    pub fn new(store: Arc<dyn Store>, now_ms: Now, from_ms: u64) -> Result<Pin> {
        let held = put(&*store, from_ms, now_ms() + PIN_LEASE_MS)?;
        Ok(Pin { store, now_ms, from_ms, held: Mutex::new(held) })
    }

    /// To be called often: does something only when a third of the lease has passed.
    ///
    /// # Errors
    /// It could not be renewed in time: what it was to keep may be gone.
    pub fn renew(&self) -> Result<()> {
        // Another thread is at it.
        let Some(mut held) = self.held.try_lock() else { return Ok(()) };
        let now = (self.now_ms)();
        let left = held.until_ms.saturating_sub(now);
        if left > PIN_LEASE_MS / 3 * 2 {
            return Ok(());
        }
        if left == 0 {
            return Err(Error::resources(
                "the snapshot was not kept while this process stood still",
            )
            .hint("run the command again: what is copied stays copied"));
        }
        match put(&*self.store, self.from_ms, now + PIN_LEASE_MS) {
            Ok(renewed) => {
                let old = std::mem::replace(&mut *held, renewed);
                let _ = self.store.remove(&old.name);
                Ok(())
            }
            // There is time to try again.
            Err(_) if left > PIN_LEASE_MS / 3 => Ok(()),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // If that fails it ends by itself.
        let _ = self.store.remove(&self.held.get_mut().name);
    }
}

fn put(store: &dyn Store, from_ms: u64, until_ms: u64) -> Result<Held> {
    let nonce = RandomState::new().hash_one(until_ms);
    let name = format!("{FOLDER}{from_ms:020}-{until_ms:020}-{nonce:016x}{ENDING}");
    match store.put_new(&name, b"")? {
        true => Ok(Held { name, until_ms }),
        false => Err(Error::internal(format!("{} is there already", store.locate(&name)))),
    }
}

/// The time from which on what left its table is kept, by any pin; `None`: there is none. Those
/// that have ended are removed.
pub(crate) fn oldest(store: &dyn Store, now_ms: u64) -> Result<Option<u64>> {
    let mut oldest: Option<u64> = None;
    for object in store.list(FOLDER)? {
        let Some((from_ms, until_ms)) = times(&object.name) else { continue };
        if until_ms < now_ms {
            let _ = store.remove(&object.name);
            continue;
        }
        oldest = Some(oldest.map_or(from_ms, |o| o.min(from_ms)));
    }
    Ok(oldest)
}

fn times(name: &str) -> Option<(u64, u64)> {
    let name = name.strip_prefix(FOLDER)?.strip_suffix(ENDING)?;
    let mut parts = name.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::store::MemoryStore;

    fn clock(start_ms: u64) -> (Arc<AtomicU64>, Now) {
        let clock = Arc::new(AtomicU64::new(start_ms));
        let now = clock.clone();
        (clock, Arc::new(move || now.load(Ordering::Relaxed)))
    }

    #[test]
    fn the_oldest_of_those_that_hold_counts() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (clock, now) = clock(1000);
        assert_eq!(oldest(&*store, 1000).unwrap(), None);
        let a = Pin::new(store.clone(), now.clone(), 700).unwrap();
        let b = Pin::new(store.clone(), now.clone(), 900).unwrap();
        assert_eq!(oldest(&*store, 1000).unwrap(), Some(700));
        drop(a);
        assert_eq!(oldest(&*store, 1000).unwrap(), Some(900));
        // Its holder has died: it ends by itself.
        std::mem::forget(b);
        clock.store(1001 + PIN_LEASE_MS, Ordering::Relaxed);
        assert_eq!(oldest(&*store, now()).unwrap(), None);
        assert!(store.list(FOLDER).unwrap().is_empty());
    }

    #[test]
    fn it_is_renewed_in_time_or_says_that_it_was_not() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (clock, now) = clock(1000);
        let pin = Pin::new(store.clone(), now.clone(), 700).unwrap();
        for _ in 0..20 {
            clock.fetch_add(PIN_LEASE_MS / 4, Ordering::Relaxed);
            pin.renew().unwrap();
            assert_eq!(oldest(&*store, now()).unwrap(), Some(700));
            assert_eq!(store.list(FOLDER).unwrap().len(), 1);
        }
        clock.fetch_add(2 * PIN_LEASE_MS, Ordering::Relaxed);
        assert!(pin.renew().is_err());
    }
}
