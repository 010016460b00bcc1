//! Identical work in flight is computed once.
//!
//! ```text
//!   query 7  leads ──▶ computes ─────────▶ done ──▶ its client
//!   query 8  joins ──▶ waits, without a slot └────▶ its client
//! ```
//! The first with a key *leads*: as long as it computes, its key is registered with [`Flights`],
//! and whoever has an equal one *joins* it. They get all of the result or nothing, so that each can
//! still compute for itself if the leader fails, is cancelled, or has more than is worth keeping.
//!
//! This is no cache of results. The key is gone from the registry before the first who joined has
//! anything, and whoever comes then computes anew.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

/// What is being computed, by key.
pub struct Flights<K, T> {
    open: Mutex<HashMap<Arc<K>, Flight<T>>>,
    shared: AtomicU64,
}

type Flight<T> = watch::Receiver<Outcome<T>>;

/// A sender that goes without another word says that its computation failed.
#[derive(Clone)]
enum Outcome<T> {
    Open,
    Done(T),
    TooLarge,
}

/// What somebody has to do with a flight.
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
    /// The leader's.
    key: Arc<K>,
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
    pub fn board(self: &Arc<Self>, key: &Arc<K>) -> Part<K, T> {
        let flights = Arc::clone(self);
        let mut open = self.open.lock();
        if let Some((key, flight)) = open.get_key_value(key) {
            let (key, flight) = (Arc::clone(key), flight.clone());
            return Part::Joins(Joiner { flights, key, flight });
        }
        let (sender, flight) = watch::channel(Outcome::Open);
        open.insert(Arc::clone(key), flight);
        Part::Leads(Leader { flights, key: Arc::clone(key), outcome: Some(sender) })
    }

    /// How many ever got what another computed.
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
    /// The leader's.
    pub fn key(&self) -> &K {
        &self.key
    }

    pub async fn landed(mut self) -> Landed<T> {
        let outcome = self.flight.wait_for(|o| !matches!(o, Outcome::Open)).await;
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
