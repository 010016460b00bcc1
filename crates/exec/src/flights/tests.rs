use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use futures::task::{ArcWake, waker};

use super::*;

type Numbers = Flights<&'static str, u32>;

fn board(flights: &Arc<Numbers>, key: &'static str) -> Part<&'static str, u32> {
    flights.board(&Arc::new(key))
}

fn leads(part: Part<&'static str, u32>) -> Leader<&'static str, u32> {
    match part {
        Part::Leads(leader) => leader,
        Part::Joins(joiner) => panic!("joins {}", joiner.key()),
    }
}

fn joins(part: Part<&'static str, u32>) -> Waiting<Landed<u32>> {
    match part {
        Part::Joins(joiner) => Waiting::new(joiner.landed()),
        Part::Leads(_) => panic!("leads"),
    }
}

/// A future that is polled by hand, only when it was woken.
struct Waiting<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    wakes: Arc<Wakes>,
}

struct Wakes(AtomicUsize);

impl ArcWake for Wakes {
    fn wake_by_ref(wakes: &Arc<Self>) {
        wakes.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<T> Waiting<T> {
    fn new(future: impl Future<Output = T> + 'static) -> Self {
        Waiting { future: Box::pin(future), wakes: Arc::new(Wakes(AtomicUsize::new(1))) }
    }

    /// `None`: it waits, or nobody woke it.
    fn run(&mut self) -> Option<T> {
        while self.wakes.0.swap(0, Ordering::Relaxed) > 0 {
            let waker = waker(Arc::clone(&self.wakes));
            if let Poll::Ready(value) = self.future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Some(value);
            }
        }
        None
    }
}

#[test]
fn who_joins_gets_what_the_leader_computes() {
    let flights = Arc::new(Numbers::default());
    let leader = leads(board(&flights, "a"));
    let mut waiting: Vec<_> = (0..3).map(|_| joins(board(&flights, "a"))).collect();
    assert!(waiting.iter_mut().all(|w| w.run().is_none()));
    assert_eq!(leader.joiners(), 3);
    leader.done(42);
    for mut joiner in waiting {
        assert!(matches!(joiner.run(), Some(Landed::Done(42))));
    }
    assert_eq!(flights.shared(), 3);
    // Nothing is left of it: the next one computes.
    leads(board(&flights, "a"));
}

#[test]
fn another_key_is_another_flight() {
    let flights = Arc::new(Numbers::default());
    let a = leads(board(&flights, "a"));
    let b = leads(board(&flights, "b"));
    let mut joined = joins(board(&flights, "b"));
    a.done(1);
    assert!(joined.run().is_none());
    b.done(2);
    assert!(matches!(joined.run(), Some(Landed::Done(2))));
}

#[test]
fn a_leader_that_goes_is_followed_by_one_who_waited() {
    let flights = Arc::new(Numbers::default());
    let leader = leads(board(&flights, "a"));
    let mut second = joins(board(&flights, "a"));
    let mut third = joins(board(&flights, "a"));
    assert!(second.run().is_none() && third.run().is_none());
    drop(leader);
    assert!(matches!(third.run(), Some(Landed::Lost)));
    let leader = leads(board(&flights, "a"));
    // It looks late, and joins who was faster.
    assert!(matches!(second.run(), Some(Landed::Lost)));
    let mut second = joins(board(&flights, "a"));
    assert!(second.run().is_none());
    leader.done(9);
    assert!(matches!(second.run(), Some(Landed::Done(9))));
    assert_eq!(flights.shared(), 1);
}

#[test]
fn who_joined_may_go() {
    let flights = Arc::new(Numbers::default());
    let leader = leads(board(&flights, "a"));
    let mut second = joins(board(&flights, "a"));
    let mut third = joins(board(&flights, "a"));
    assert!(second.run().is_none() && third.run().is_none());
    drop(second);
    assert_eq!(leader.joiners(), 1);
    leader.done(5);
    assert!(matches!(third.run(), Some(Landed::Done(5))));
}

#[test]
fn what_is_too_large_is_left_to_each() {
    let flights = Arc::new(Numbers::default());
    let leader = leads(board(&flights, "a"));
    let mut second = joins(board(&flights, "a"));
    leader.too_large();
    assert!(matches!(second.run(), Some(Landed::TooLarge)));
    assert_eq!(flights.shared(), 0);
    // A later flight is not ended by the end of an earlier one.
    let leader = leads(board(&flights, "a"));
    let mut fourth = joins(board(&flights, "a"));
    leader.done(1);
    assert!(matches!(fourth.run(), Some(Landed::Done(1))));
}

/// Done, before anybody who joined has been polled at all.
#[test]
fn what_is_done_before_anyone_looks_is_not_missed() {
    let flights = Arc::new(Numbers::default());
    let leader = leads(board(&flights, "a"));
    let mut second = joins(board(&flights, "a"));
    leader.done(3);
    assert!(matches!(second.run(), Some(Landed::Done(3))));
}
