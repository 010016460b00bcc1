//! Identical work in flight is computed once.
//!
//! ```text
//!   query 7  leads ──▶ computes ─────────▶ done ──▶ its client
//!   query 8  joins ──▶ waits, without a slot └────▶ its client
//! ```
//! The first query with a [`Key`] *leads*: as long as it computes, its key is registered with
//! [`Flights`], and queries with an equal one *join* it. They get all of its rows or none, so that
//! each can still compute for itself if the leader fails, is cancelled, or has more rows than are
//! worth keeping.
//!
//! This is no cache of results. The key is gone from the registry before the first who joined has
//! a row, and whoever comes then computes anew.

mod key;
mod kept;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_base::QueryId;
use tokio::sync::watch;

pub use kept::Kept;
pub use key::Key;

/// What is being computed, by key.
pub struct Flights<K, T> {
    open: Mutex<HashMap<Arc<K>, Flight<T>>>,
    /// Queries that ever got the result of another.
    shared: AtomicU64,
}

struct Flight<T> {
    leader: QueryId,
    outcome: watch::Receiver<Outcome<T>>,
}

/// A sender that goes without another word says that its query failed.
#[derive(Clone)]
enum Outcome<T> {
    Open,
    Done(T),
    TooLarge,
}

/// A query's part in a flight.
pub enum Part<K: Eq + Hash, T> {
    Leads(Leader<K, T>),
    Joins(Joiner<K, T>),
}

/// Who computes. Dropped before it is [`done`](Leader::done), it leaves the work to another.
pub struct Leader<K: Eq + Hash, T> {
    flights: Arc<Flights<K, T>>,
    key: Arc<K>,
    /// `None` once the flight has ended.
    outcome: Option<watch::Sender<Outcome<T>>>,
}

/// Who waits for the leader. May be dropped at any time.
pub struct Joiner<K, T> {
    flights: Arc<Flights<K, T>>,
    flight: Flight<T>,
}

/// What there is for those who joined.
pub enum Landed<T> {
    Done(T),
    /// There will be more than is kept: each computes for itself.
    TooLarge,
    /// The leader failed or is gone, for reasons that may be its own: the next one leads.
    Lost,
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Flights { open: Mutex::default(), shared: AtomicU64::new(0) }
    }
}

impl<K: Eq + Hash, T: Clone> Flights<K, T> {
    /// Takes part in the flight of that key, as its leader if there is none.
    pub fn board(self: &Arc<Self>, key: &Arc<K>, query: QueryId) -> Part<K, T> {
        let flights = Arc::clone(self);
        let mut open = self.open.lock();
        if let Some(Flight { leader, outcome }) = open.get(key) {
            let flight = Flight { leader: *leader, outcome: outcome.clone() };
            return Part::Joins(Joiner { flights, flight });
        }
        let (sender, outcome) = watch::channel(Outcome::Open);
        open.insert(Arc::clone(key), Flight { leader: query, outcome });
        Part::Leads(Leader { flights, key: Arc::clone(key), outcome: Some(sender) })
    }

    /// Queries that ever got the result of another.
    pub fn shared(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }
}

impl<K: Eq + Hash, T> Leader<K, T> {
    pub fn done(mut self, result: T) {
        self.end(Some(Outcome::Done(result)));
    }

    pub fn too_large(mut self) {
        self.end(Some(Outcome::TooLarge));
    }

    /// `None`: without a word.
    fn end(&mut self, outcome: Option<Outcome<T>>) {
        let Some(sender) = self.outcome.take() else { return };
        // First, so that nobody joins what has ended. Dropped outside the lock: it may hold the
        // last of a snapshot.
        let entry = self.flights.open.lock().remove_entry(&self.key);
        drop(entry);
        if let Some(outcome) = outcome {
            // Nobody may have joined.
            let _ = sender.send(outcome);
        }
    }

    #[cfg(test)]
    fn joiners(&self) -> usize {
        // All receivers but the registry's.
        self.outcome.as_ref().map_or(0, |sender| sender.receiver_count() - 1)
    }
}

impl<K: Eq + Hash, T> Drop for Leader<K, T> {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl<K, T: Clone> Joiner<K, T> {
    pub fn leader(&self) -> QueryId {
        self.flight.leader
    }

    pub async fn landed(mut self) -> Landed<T> {
        let outcome = self.flight.outcome.wait_for(|o| !matches!(o, Outcome::Open)).await;
        match outcome.as_deref() {
            Ok(Outcome::Done(result)) => {
                self.flights.shared.fetch_add(1, Ordering::Relaxed);
                Landed::Done(result.clone())
            }
            Ok(Outcome::TooLarge) => Landed::TooLarge,
            Ok(Outcome::Open) | Err(_) => Landed::Lost,
        }
    }
}
