//! How fast a query's priority falls with the CPU time it has used, and how `fair` finds out
//! what is best for the queries it sees.
//!
//! After Wagner, Kohn and Neumann, *Self-Tuning Query Scheduling for Analytical Workloads*,
//! SIGMOD 2021: keep a record of the queries that ended, replay it with other parameters, and
//! take those under which the mean slowdown is least. Theirs runs the search on one worker from
//! time to time; here each 16th query that ends tries one step, so that no event is ever long.

/// The priority of a query that has used no CPU.
pub const FULL: u64 = 1 << 14;

/// What it never falls below, a hundredth: this is what keeps long queries from starving.
pub const LEAST: u64 = FULL / 100;

/// Full priority for the first `start_ns` of a query's CPU time; then half as much after each
/// `half_life_ns`, down to `LEAST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decay {
    pub start_ns: u64,
    pub half_life_ns: u64,
}

const MS: u64 = 1_000_000;

/// A query keeps its full priority for most of what people call short, 100 ms, and loses it
/// within as much again. In replays of short queries of 20 and 80 ms beside 2 to 16 long ones,
/// this was the best or near it everywhere; the paper's (14 and 13 ms) served those of 80 worse.
const FIRST: Decay = Decay { start_ns: 64 * MS, half_life_ns: 16 * MS };

/// How far the search may lead, as a factor: the record lacks the queries that still run, so
/// what looks best on it may be far from it. And as these are mostly the long ones, it shows too
/// little of what a query loses whose priority falls: the full one never ends before `FIRST` says,
/// or a query of 50 ms would get a 17th of the machine beside 16 long ones as soon as it had used
/// the first 16.
const REACH: u64 = 4;

impl Decay {
    /// The priority of a query that has used `cpu_ns`, `LEAST` to `FULL`. Between halvings
    /// it is a straight line, so that it needs no floating point and is the same everywhere.
    pub fn at(self, cpu_ns: u64) -> u64 {
        let Some(over_ns) = cpu_ns.checked_sub(self.start_ns) else { return FULL };
        let halvings = over_ns / self.half_life_ns;
        if halvings > 7 {
            return LEAST;
        }
        let before = FULL >> halvings;
        let part_ns = over_ns % self.half_life_ns;
        (before - before / 2 * part_ns / self.half_life_ns).max(LEAST)
    }

    /// One parameter twice or four times as large or small; `None` if it would be out of reach.
    /// The long steps lead away from where neighbours are all alike, which is often so: a record
    /// has few queries.
    fn step(self, step: usize) -> Option<Decay> {
        let mut decay = self;
        let (parameter, least_ns, most_ns) = match step & 1 {
            0 => {
                let first_ns = FIRST.half_life_ns;
                (&mut decay.half_life_ns, first_ns / REACH, first_ns * REACH)
            }
            _ => (&mut decay.start_ns, FIRST.start_ns, FIRST.start_ns * REACH),
        };
        let factor = if step & 4 == 0 { 2 } else { 4 };
        *parameter = if step & 2 == 0 { *parameter / factor } else { *parameter * factor };
        (least_ns..=most_ns).contains(parameter).then_some(decay)
    }
}

const STEPS: usize = 8;

/// A query that ended.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    arrival_ns: u64,
    cpu_ns: u64,
}

/// Queries on record: the last so many.
const RECORD: usize = 64;

/// A step is tried each time that so many have ended.
const TRY_EVERY: u64 = 16;

/// In a replay of the record quanta are as long as our own, and then this part of what the query
/// has used: so each takes few of them, which bounds the time of a replay, and the first ones,
/// which decide over short queries, are as they would be.
const QUANTUM_NS: u64 = 2 * MS;
const QUANTUM_PART: u64 = 8;

/// A step must make the slowdown so much less, or the parameters would wander.
const GAIN: f64 = 0.95;

pub struct Tuner {
    decay: Decay,
    record: [Past; RECORD],
    ended: u64,
    /// The step to try next.
    step: usize,
}

impl Default for Tuner {
    fn default() -> Self {
        Tuner { decay: FIRST, record: [Past::default(); RECORD], ended: 0, step: 0 }
    }
}

impl Tuner {
    pub fn decay(&self) -> Decay {
        self.decay
    }

    /// A query ended. May change the decay, by one step.
    pub fn ended(&mut self, arrival_ns: u64, cpu_ns: u64, slots: usize) {
        if cpu_ns == 0 {
            return;
        }
        self.record[(self.ended % RECORD as u64) as usize] = Past { arrival_ns, cpu_ns };
        self.ended += 1;
        if self.ended >= RECORD as u64 && self.ended.is_multiple_of(TRY_EVERY) {
            self.try_step(slots);
        }
    }

    fn try_step(&mut self, slots: usize) {
        let step = self.step;
        self.step = (step + 1) % STEPS;
        if let Some(other) = self.decay.step(step)
            && self.slowdown(other, slots) < GAIN * self.slowdown(self.decay, slots)
        {
            self.decay = other;
            // What was right once is likely right again.
            self.step = step;
        }
    }

    /// The mean, over the queries on record, of the time each would have taken over the time it
    /// would have taken alone. Stride scheduling on one processor as fast as all slots: that
    /// every query can use them all is taken for granted, as nothing else is known.
    fn slowdown(&self, decay: Decay, slots: usize) -> f64 {
        struct Active {
            arrival_ns: u64,
            cpu_ns: u64,
            used_ns: u64,
            pass: f64,
        }
        let mut record = self.record;
        record.sort_unstable_by_key(|p| p.arrival_ns);
        let slots = slots as u64;
        let mut active: Vec<Active> = Vec::with_capacity(RECORD);
        let mut arrivals = record.iter().peekable();
        let (mut now_ns, mut pass, mut sum) = (0u64, 0.0, 0.0);
        loop {
            while let Some(past) = arrivals.next_if(|p| active.is_empty() || p.arrival_ns <= now_ns)
            {
                now_ns = now_ns.max(past.arrival_ns);
                let Past { arrival_ns, cpu_ns } = *past;
                active.push(Active { arrival_ns, cpu_ns, used_ns: 0, pass });
            }
            let next =
                active.iter_mut().enumerate().min_by(|(_, a), (_, b)| a.pass.total_cmp(&b.pass));
            let Some((at, query)) = next else { break };
            // Long quanta end when somebody comes.
            let until_ns =
                arrivals.peek().map_or(u64::MAX, |p| (p.arrival_ns - now_ns).saturating_mul(slots));
            let quantum_ns = (query.used_ns / QUANTUM_PART).min(until_ns).max(QUANTUM_NS);
            let work_ns = quantum_ns.min(query.cpu_ns - query.used_ns);
            pass = query.pass;
            query.pass += work_ns as f64 / decay.at(query.used_ns) as f64;
            query.used_ns += work_ns;
            now_ns += work_ns / slots;
            if query.used_ns == query.cpu_ns {
                let alone_ns = (query.cpu_ns / slots).max(1);
                sum += (now_ns - query.arrival_ns).max(alone_ns) as f64 / alone_ns as f64;
                active.swap_remove(at);
            }
        }
        sum / RECORD as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_falls_from_full_to_least() {
        let decay = Decay { start_ns: 100, half_life_ns: 50 };
        assert_eq!([0, 99, 100].map(|cpu| decay.at(cpu)), [FULL; 3]);
        assert_eq!(decay.at(125), FULL - FULL / 4);
        assert_eq!([150, 200, 250].map(|cpu| decay.at(cpu)), [FULL / 2, FULL / 4, FULL / 8]);
        assert_eq!([500, 10_000, u64::MAX].map(|cpu| decay.at(cpu)), [LEAST; 3]);
        let falling: Vec<u64> = (0..700).map(|cpu| decay.at(cpu)).collect();
        assert!(falling.is_sorted_by(|a, b| a >= b));
    }

    const FAR_OFF: Decay = Decay { start_ns: 256 * MS, half_life_ns: 64 * MS };

    /// Feeds lookups of 20 ms beside queries of 250, at nine tenths of what the slots can do.
    fn tuned(slots: usize) -> Tuner {
        let mut tuner = Tuner { decay: FAR_OFF, ..Tuner::default() };
        for n in 0..3_000 {
            let cpu_ns = if n % 4 == 0 { 250 * MS } else { 20 * MS };
            tuner.ended(n * 86 * MS / slots as u64, cpu_ns, slots);
        }
        tuner
    }

    #[test]
    fn the_decay_moves_to_where_the_record_is_served_best() {
        let tuner = tuned(2);
        let best = tuner.slowdown(tuner.decay(), 2);
        assert!(best < 0.8 * tuner.slowdown(FAR_OFF, 2), "{:?}: {best}", tuner.decay());
        for step in 0..STEPS {
            if let Some(neighbour) = tuner.decay().step(step) {
                assert!(tuner.slowdown(neighbour, 2) >= GAIN * best, "{neighbour:?}");
            }
        }
        assert_eq!(tuned(2).decay(), tuner.decay(), "the same record gives the same decay");
    }

    #[test]
    fn a_short_query_keeps_its_priority_whatever_is_on_record() {
        // Look-ups and queries of 45 ms in turns, beside 16 streams of long ones.
        let short = (0..300).map(|n| (n * 50 * MS, if n % 2 == 0 { 2 * MS } else { 45 * MS }));
        let mut ended: Vec<_> = short.map(|(at, cpu)| (at + cpu, at, cpu)).collect();
        for stream in 0..16 {
            let mut arrival_ns = stream * 10 * MS;
            for n in 0..8 {
                let cpu_ns = (150 + (stream * 37 + n * 61) % 200) * MS;
                ended.push((arrival_ns + 8 * cpu_ns, arrival_ns, cpu_ns));
                arrival_ns += 8 * cpu_ns;
            }
        }
        ended.sort_unstable();
        let mut tuner = Tuner::default();
        for (_, arrival_ns, cpu_ns) in ended {
            tuner.ended(arrival_ns, cpu_ns, 2);
            assert_eq!(tuner.decay().at(FIRST.start_ns), FULL);
        }
    }

    #[test]
    fn equal_queries_leave_the_decay_alone_or_lose_nothing() {
        let mut tuner = Tuner::default();
        (0..640).for_each(|n| tuner.ended(n * 10 * MS, 5 * MS, 2));
        assert_eq!(tuner.decay(), FIRST);
    }
}
