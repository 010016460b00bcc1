//! How often a client may fail to log in: a state machine without a clock.
//!
//! After [`FREE_TRIES`] failures within [`WINDOW_NS`] the next ones have to wait, each twice as
//! long. They are counted by the address that they come from and by the name that they give, also
//! if there is no such user: who is refused learns nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// Failures that cost nothing.
const FREE_TRIES: u32 = 5;
/// After which a failure is forgotten, if no other follows.
const WINDOW_NS: u64 = 60_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// The longest that an address waits; and a name, which others could keep its owner from using.
const ADDRESS_WAIT_NS_MAX: u64 = 60 * SECOND_NS;
const NAME_WAIT_NS_MAX: u64 = 5 * SECOND_NS;
/// Names and addresses that are remembered, of each.
const ENTRIES_MAX: usize = 10_000;
/// Of a name that is remembered: one that is longer is no role's.
const NAME_BYTES_MAX: usize = 256;

#[derive(Default)]
pub struct Tries {
    names: Entries<String>,
    addresses: Entries<IpAddr>,
}

struct Entries<K>(HashMap<K, Entry>);

impl<K> Default for Entries<K> {
    fn default() -> Self {
        Entries(HashMap::new())
    }
}

#[derive(Clone, Copy)]
struct Entry {
    failures: u32,
    last_ns: u64,
}

impl Entry {
    /// Until when nobody may try.
    fn closed_until_ns(self, wait_ns_max: u64) -> u64 {
        let Some(over) = self.failures.checked_sub(FREE_TRIES) else { return 0 };
        let wait_ns = SECOND_NS.saturating_mul(1 << over.min(20)).min(wait_ns_max);
        self.last_ns + wait_ns
    }

    fn is_over(self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_ns) > WINDOW_NS + ADDRESS_WAIT_NS_MAX
    }
}

impl<K: Eq + Hash + Clone> Entries<K> {
    fn wait_ns(&self, key: &K, wait_ns_max: u64, now_ns: u64) -> u64 {
        let entry = self.0.get(key);
        entry.map_or(0, |e| e.closed_until_ns(wait_ns_max).saturating_sub(now_ns))
    }

    fn failed(&mut self, key: K, now_ns: u64) {
        if self.0.len() >= ENTRIES_MAX && !self.0.contains_key(&key) {
            self.make_room(now_ns);
        }
        let entry = self.0.entry(key).or_insert(Entry { failures: 0, last_ns: now_ns });
        if now_ns.saturating_sub(entry.last_ns) > WINDOW_NS {
            entry.failures = 0;
        }
        entry.failures = entry.failures.saturating_add(1);
        entry.last_ns = now_ns;
    }

    /// Forgets what is over; if that is nothing, the oldest.
    fn make_room(&mut self, now_ns: u64) {
        self.0.retain(|_, e| !e.is_over(now_ns));
        if self.0.len() >= ENTRIES_MAX {
            let mut times: Vec<u64> = self.0.values().map(|e| e.last_ns).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            self.0.retain(|_, e| e.last_ns > middle);
        }
    }
}

impl Tries {
    /// How long a try has to wait; 0: not at all.
    pub fn wait_ns(&self, name: &str, from: Option<IpAddr>, now_ns: u64) -> u64 {
        let of_name = self.names.wait_ns(&key(name), NAME_WAIT_NS_MAX, now_ns);
        of_name.max(self.address_wait_ns(from, now_ns))
    }

    pub fn address_wait_ns(&self, from: Option<IpAddr>, now_ns: u64) -> u64 {
        let wait = |ip| self.addresses.wait_ns(&network(ip), ADDRESS_WAIT_NS_MAX, now_ns);
        from.map_or(0, wait)
    }

    pub fn failed(&mut self, name: &str, from: Option<IpAddr>, now_ns: u64) {
        self.names.failed(key(name), now_ns);
        self.address_failed(from, now_ns);
    }

    pub fn address_failed(&mut self, from: Option<IpAddr>, now_ns: u64) {
        if let Some(ip) = from {
            self.addresses.failed(network(ip), now_ns);
        }
    }

    /// Of the name alone: who has an account of their own may still be guessing at others'.
    pub fn succeeded(&mut self, name: &str) {
        self.names.0.remove(&key(name));
    }
}

fn key(name: &str) -> String {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// One customer has a /64 of IPv6 at the least.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn waits_grow_and_end() {
        let mut tries = Tries::default();
        for _ in 0..FREE_TRIES {
            assert_eq!(tries.wait_ns("ann", ip(1), 0), 0);
            tries.failed("ann", ip(1), 0);
        }
        let mut waits = vec![];
        for _ in 0..9 {
            waits.push(tries.wait_ns("ann", ip(1), 0) / SECOND_NS);
            tries.failed("ann", ip(1), 0);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        // The name from elsewhere, and others from here.
        assert_eq!(tries.wait_ns("ann", ip(2), 0), NAME_WAIT_NS_MAX);
        assert_eq!(tries.wait_ns("bob", ip(1), 0), ADDRESS_WAIT_NS_MAX);
        assert_eq!(tries.wait_ns("bob", ip(2), 0), 0);
        assert_eq!(tries.wait_ns("bob", ip(1), 60 * SECOND_NS), 0);
        // Much later it begins anew.
        tries.failed("ann", ip(1), 200 * SECOND_NS);
        assert_eq!(tries.wait_ns("ann", ip(1), 200 * SECOND_NS), 0);
    }

    #[test]
    fn a_success_forgives_the_name_and_not_the_address() {
        let mut tries = Tries::default();
        (0..6).for_each(|_| tries.failed("ann", ip(1), 0));
        tries.succeeded("ann");
        assert_eq!(tries.wait_ns("ann", ip(2), 0), 0);
        assert_eq!(tries.wait_ns("ann", ip(1), 0), 2 * SECOND_NS);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut tries = Tries::default();
        for i in 0..3 * ENTRIES_MAX as u64 {
            let address = IpAddr::from([0x2001, (i >> 16) as u16, i as u16, 0, 0, 0, 0, 1]);
            tries.failed(&format!("{i}{}", "x".repeat(1000)), Some(address), i);
        }
        assert!(tries.names.0.len() <= ENTRIES_MAX && tries.addresses.0.len() <= ENTRIES_MAX);
        assert!(tries.names.0.keys().all(|k| k.len() <= NAME_BYTES_MAX));
        // The last ones are known still.
        let last = 3 * ENTRIES_MAX as u64 - 1;
        let name = format!("{last}{}", "x".repeat(1000));
        (0..5).for_each(|_| tries.failed(&name, None, last));
        assert_eq!(tries.wait_ns(&name, None, last), 2 * SECOND_NS);
    }

    #[test]
    fn a_network_is_one() {
        let a: IpAddr = "2001:db8:1:2::1".parse().unwrap();
        let b: IpAddr = "2001:db8:1:2:ffff::2".parse().unwrap();
        assert_eq!(network(a), network(b));
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), ip(1).unwrap());
    }
}
