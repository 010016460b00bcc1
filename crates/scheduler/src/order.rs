//! The order of the queries that wait: a binary heap that knows where each query sits, so that
//! a rank can change, or a query leave, in O(log n). Allocates only to grow.

use crate::policy::Rank;
use crate::task::NONE;

#[derive(Default)]
pub(crate) struct Order {
    heap: Vec<(Rank, u32)>,
    /// By query index: its place in `heap`, or `NONE`.
    place: Vec<u32>,
}

impl Order {
    pub fn first(&self) -> Option<u32> {
        self.heap.first().map(|(_, query)| *query)
    }

    pub fn contains(&self, query: u32) -> bool {
        self.place.get(query as usize).is_some_and(|p| *p != NONE)
    }

    pub fn rank(&self, query: u32) -> Rank {
        self.heap[self.place[query as usize] as usize].0
    }

    pub fn insert(&mut self, query: u32, rank: Rank) {
        assert!(!self.contains(query), "a query joined the order twice");
        if self.place.len() <= query as usize {
            self.place.resize(query as usize + 1, NONE);
        }
        self.heap.push((rank, query));
        self.place[query as usize] = (self.heap.len() - 1) as u32;
        self.rise(self.heap.len() - 1);
    }

    pub fn remove(&mut self, query: u32) {
        let at = std::mem::replace(&mut self.place[query as usize], NONE) as usize;
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.place[self.heap[at].1 as usize] = at as u32;
            self.settle(at);
        }
    }

    pub fn set_rank(&mut self, query: u32, rank: Rank) {
        let at = self.place[query as usize] as usize;
        if self.heap[at].0 != rank {
            self.heap[at].0 = rank;
            self.settle(at);
        }
    }

    pub fn clear(&mut self) {
        self.heap.clear();
        self.place.fill(NONE);
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn entries(&self) -> impl Iterator<Item = (Rank, u32)> {
        self.heap.iter().copied()
    }

    fn settle(&mut self, at: usize) {
        let at = self.rise(at);
        self.sink(at);
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            if left < self.heap.len() && self.heap[left].0 < self.heap[least].0 {
                least = left;
            }
            if right < self.heap.len() && self.heap[right].0 < self.heap[least].0 {
                least = right;
            }
            if least == at {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a].1 as usize] = a as u32;
        self.place[self.heap[b].1 as usize] = b as u32;
    }

    /// Heap order and places agree.
    #[cfg(any(test, feature = "simulation"))]
    pub fn check(&self) -> Result<(), String> {
        for (at, (rank, query)) in self.heap.iter().enumerate() {
            if self.place[*query as usize] as usize != at {
                return Err(format!("the order lost the place of query entry {query}"));
            }
            if at > 0 && *rank < self.heap[(at - 1) / 2].0 {
                return Err(format!("rank {rank:?} lies below a larger one"));
            }
        }
        let placed = self.place.iter().filter(|p| **p != NONE).count();
        if placed != self.heap.len() {
            return Err(format!("{placed} places for {} waiting queries", self.heap.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::Prng;

    #[test]
    fn agrees_with_a_sorted_list() {
        let mut random = Prng::new(7);
        let mut order = Order::default();
        let mut model: Vec<(Rank, u32)> = Vec::new();
        for _ in 0..20_000 {
            let query = random.below(40) as u32;
            let rank = (random.below(30), u64::from(query));
            match model.iter().position(|(_, q)| *q == query) {
                None => {
                    order.insert(query, rank);
                    model.push((rank, query));
                }
                Some(i) if random.below(2) == 0 => {
                    order.remove(query);
                    model.remove(i);
                }
                Some(i) => {
                    order.set_rank(query, rank);
                    model[i].0 = rank;
                }
            }
            order.check().unwrap();
            assert_eq!(order.first(), model.iter().min().map(|(_, q)| *q));
            assert_eq!(order.contains(query), model.iter().any(|(_, q)| *q == query));
        }
        order.clear();
        assert_eq!(order.first(), None);
        order.check().unwrap();
    }
}
