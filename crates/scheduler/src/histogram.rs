//! How many times were how long: counts by powers of two.

use std::fmt;

/// Bucket `b` counts values in `2^(b + FIRST_BIT) .. 2^(b + FIRST_BIT + 1)`; the first also takes
/// what is smaller, the last what is larger: below 2 µs to above 30 minutes, to a factor of two.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u32; BUCKETS],
}

const BUCKETS: usize = 32;
const FIRST_BIT: u32 = 10;

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: [0; BUCKETS] }
    }
}

impl Histogram {
    pub fn add(&mut self, ns: u64) {
        let bucket = (ns | 1).ilog2().saturating_sub(FIRST_BIT) as usize;
        let count = &mut self.counts[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(1);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine = mine.saturating_add(theirs);
        }
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(|c| u64::from(*c)).sum()
    }

    /// The buckets that are not empty: the time that all of it lies below, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> {
        let ends = (0..BUCKETS as u32).map(|b| match b as usize {
            b if b + 1 == BUCKETS => u64::MAX,
            _ => 1 << (b + FIRST_BIT + 1),
        });
        ends.zip(self.counts).filter(|(_, count)| *count > 0)
    }

    /// A time that `percent` of the values lie below, no more than twice too long; 0 if there
    /// are none.
    pub fn percentile_ns(&self, percent: u64) -> u64 {
        let wanted = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (end, count) in self.buckets() {
            seen += u64::from(count);
            if seen >= wanted {
                return end;
            }
        }
        0
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn values_fall_between_powers_of_two() {
        let mut h = Histogram::default();
        assert_eq!((h.count(), h.percentile_ns(50)), (0, 0));
        for ns in [0, 1, 2_047, 2_048, 4_095, 4_096, u64::MAX] {
            h.add(ns);
        }
        let buckets: Vec<(u64, u32)> = h.buckets().collect();
        assert_eq!(buckets, [(2_048, 3), (4_096, 2), (8_192, 1), (u64::MAX, 1)]);
        assert_eq!((h.percentile_ns(40), h.percentile_ns(50)), (2_048, 4_096));
        h.merge(&h.clone());
        assert_eq!((h.count(), h.percentile_ns(100)), (14, u64::MAX));
    }
}
