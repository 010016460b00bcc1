//! The memory ledger: who holds how many bytes, and who may have more.
//!
//! Queries reserve before they allocate and say when they have freed. The ledger knows three
//! limits: the server's, each class's, and each query's. Below all of them lies a query's
//! *share*, which it is guaranteed:
//!
//! ```text
//!   share = what it was promised on admission
//!         + (15/16 of the server's limit − all promises) / queries admitted
//! ```
//!
//! and the same within its class, whichever is less. It shrinks as queries are admitted and
//! grows as they end. If a limit is lowered below what was promised, promises shrink alike. What
//! others leave free may be used beyond the share.
//!
//! *Guarantees.* Growth within the share is never refused for good: if the memory is held by
//! queries above theirs, each of these is told to spill ([`Action::Spill`]), is refused any
//! growth until it is below its share again, and the one that waits is told when there is room
//! ([`Action::MemoryFreed`]). As the shares add up to less than the limit, any number of queries
//! that can work within their shares all make progress, provided that those above theirs can
//! spill. No growth ever takes what is held above a limit.
//!
//! The last sixteenth of the server's memory is for queries that hold little, a 64th of it or
//! less, or are within their share: a short query need not wait until a long one has spilled.
//!
//! *Promises.* A query is promised memory on its admission, or once it is planned and knows how
//! much it will want ([`Ledger::promise`]): up to a quarter of what is shared, as more than a few
//! queries that want a lot only make each other spill. While it cannot be promised the query
//! waits, first come first served, and is told when there is room ([`Action::MemoryFreed`]). One
//! that wants little needs no promise and never waits behind one that does.

use std::collections::BTreeMap;

use thalweg_base::{Error, QueryId, text};

use crate::action::Action;
use crate::class::{Class, ClassId};
use crate::memory_limit::{Holder, MemoryLimit};

#[cfg(test)]
mod tests;

/// One part in so many of the server's memory is kept for small queries.
const KEPT_PART: u64 = 16;

/// A query is small up to one part in so many of the server's memory.
const SMALL_PART: u64 = 64;

/// A query that is already admitted is promised no more than one part in so many of what is
/// shared.
const PROMISE_PART: u64 = 4;

/// Holders that a refusal names.
const HOLDERS_NAMED: usize = 3;

/// What a query that was refused memory can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It is above its share or at its own limit: free some of its own.
    Spill,
    /// It is within its share: others were told to spill, and an [`Action::MemoryFreed`] will
    /// say when to ask again. It may spill instead.
    Wait,
}

/// Why memory was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRefusal {
    pub query: QueryId,
    pub asked_bytes: u64,
    pub held_bytes: u64,
    /// What it is guaranteed at the moment.
    pub share_bytes: u64,
    pub limit: MemoryLimit,
    pub limit_bytes: u64,
    /// The largest under that limit, largest first.
    pub holders: Vec<Holder>,
    pub advice: Advice,
}

impl From<&MemoryRefusal> for Error {
    fn from(r: &MemoryRefusal) -> Error {
        let holders: Vec<String> = r
            .holders
            .iter()
            .map(|h| format!("{} by query {}", text::bytes(h.bytes), h.query))
            .collect();
        let held = match holders.is_empty() {
            true => String::new(),
            false => format!(", of which {} are held", holders.join(", ")),
        };
        Error::resources(format!(
            "query {} holds {} and cannot have {} more",
            r.query,
            text::bytes(r.held_bytes),
            text::bytes(r.asked_bytes)
        ))
        .detail(format!("{} has {}{held}", r.limit, text::bytes(r.limit_bytes)))
        .hint(r.limit.hint())
    }
}

struct ClassAccount {
    name: String,
    limit: u64,
    query_limit: u64,
    held: u64,
    promised: u64,
    queries: u64,
}

#[derive(Clone, Copy)]
struct Account {
    class: ClassId,
    held: u64,
    promised: u64,
    /// It was told to spill, and is still above its share.
    told: bool,
    /// Bytes it waits for, within its share; 0 if it does not.
    awaited: u64,
    /// It was told that there is room for them.
    freed: bool,
    /// Bytes that it waits to be promised; 0 if it does not.
    wished: u64,
    /// It was told to ask for them again.
    invited: bool,
}

pub(crate) struct Ledger {
    limit: u64,
    held: u64,
    promised: u64,
    waiting: usize,
    wishing: usize,
    classes: BTreeMap<ClassId, ClassAccount>,
    /// Ordered, so that equal seeds give equal answers.
    accounts: BTreeMap<QueryId, Account>,
}

/// What [`SMALL_PART`] says of a server with this limit.
pub fn small_bytes(server_limit_bytes: u64) -> u64 {
    server_limit_bytes / SMALL_PART
}

/// What all shares add up to under a server's limit.
fn shared_bytes(server_limit_bytes: u64) -> u64 {
    server_limit_bytes - server_limit_bytes / KEPT_PART
}

impl Ledger {
    pub fn new() -> Self {
        Ledger {
            limit: u64::MAX,
            held: 0,
            promised: 0,
            waiting: 0,
            wishing: 0,
            classes: BTreeMap::new(),
            accounts: BTreeMap::new(),
        }
    }

    pub fn set_limit(&mut self, limit: Option<u64>, actions: &mut Vec<Action>) {
        self.limit = limit.unwrap_or(u64::MAX);
        self.after_change(actions);
    }

    pub fn set_class(&mut self, id: ClassId, class: &Class, actions: &mut Vec<Action>) {
        let account = self.classes.entry(id).or_insert(ClassAccount {
            name: String::new(),
            limit: 0,
            query_limit: 0,
            held: 0,
            promised: 0,
            queries: 0,
        });
        account.name.clone_from(&class.name);
        account.limit = class.memory_bytes.unwrap_or(u64::MAX);
        account.query_limit = class.query_memory_bytes.unwrap_or(u64::MAX);
        self.after_change(actions);
    }

    /// The class must be empty.
    pub fn drop_class(&mut self, id: ClassId) {
        let gone = self.classes.remove(&id);
        assert!(gone.is_none_or(|c| c.queries == 0), "a class was dropped under its queries");
    }

    // Queries.

    /// Whether a promise of so many bytes to a query of this class could be kept now; if not,
    /// whose limit is in the way.
    pub fn can_promise(&self, id: ClassId, bytes: u64) -> Result<(), (MemoryLimit, u64)> {
        let class = &self.classes[&id];
        if class.promised.saturating_add(bytes) > class.limit {
            return Err((MemoryLimit::Class(class.name.clone()), class.limit));
        }
        if self.promised.saturating_add(bytes) > shared_bytes(self.limit) {
            return Err((MemoryLimit::Server, self.limit));
        }
        Ok(())
    }

    /// Whether it could be kept if nobody else were there.
    pub fn could_ever_promise(&self, id: ClassId, bytes: u64) -> Result<(), (MemoryLimit, u64)> {
        let class = &self.classes[&id];
        if bytes > class.query_limit {
            return Err((MemoryLimit::Query(class.name.clone()), class.query_limit));
        }
        if bytes > class.limit {
            return Err((MemoryLimit::Class(class.name.clone()), class.limit));
        }
        if bytes > shared_bytes(self.limit) {
            return Err((MemoryLimit::Server, self.limit));
        }
        Ok(())
    }

    /// The query is admitted; from now on the others' shares are smaller.
    pub fn open(&mut self, query: QueryId, id: ClassId, promised: u64, actions: &mut Vec<Action>) {
        let account = Account {
            class: id,
            held: 0,
            promised,
            told: false,
            awaited: 0,
            freed: false,
            wished: 0,
            invited: false,
        };
        let before = self.accounts.insert(query, account);
        assert!(before.is_none(), "query {query} has two accounts");
        self.promised += promised;
        let class = self.classes.get_mut(&id).expect("a query has a living class");
        class.promised += promised;
        class.queries += 1;
        // Whom the server's limit held up, his class's may now: then he holds up no other class.
        self.invite(actions);
    }

    /// The query, which is planned by now, will want so many bytes: whether they are promised to
    /// it from now on, or as many as one query may be promised. If not, it waits, and asks again
    /// when it is told to.
    pub fn promise(&mut self, query: QueryId, bytes: u64, actions: &mut Vec<Action>) -> bool {
        if !self.accounts.contains_key(&query) {
            // Not admitted, or over: nothing of it runs.
            return true;
        }
        let wished = if bytes <= small_bytes(self.limit) { 0 } else { bytes };
        self.set_wish(query, wished);
        if self.next_promised() == Some(query) {
            let more = self.wanted(&self.accounts[&query]);
            self.set_wish(query, 0);
            let account = self.accounts.get_mut(&query).expect("found above");
            account.promised += more;
            self.promised += more;
            let class = self.classes.get_mut(&account.class).expect("a query has a living class");
            class.promised += more;
            self.after_change(actions);
        } else {
            self.invite(actions);
        }
        self.accounts[&query].wished == 0
    }

    /// The query and all its tasks are gone. Returns what it had not given back, which the
    /// ledger takes as freed.
    pub fn close(&mut self, query: QueryId, actions: &mut Vec<Action>) -> u64 {
        let Some(account) = self.accounts.remove(&query) else { return 0 };
        self.waiting -= usize::from(account.awaited > 0);
        self.wishing -= usize::from(account.wished > 0);
        self.held -= account.held;
        self.promised -= account.promised;
        let class = self.classes.get_mut(&account.class).expect("a query has a living class");
        class.held -= account.held;
        class.promised -= account.promised;
        class.queries -= 1;
        self.after_change(actions);
        account.held
    }

    pub fn set_class_of(&mut self, query: QueryId, id: ClassId, actions: &mut Vec<Action>) {
        let Some(account) = self.accounts.get_mut(&query) else { return };
        let (from, account) = (std::mem::replace(&mut account.class, id), *account);
        let old = self.classes.get_mut(&from).expect("a query has a living class");
        old.held -= account.held;
        old.promised -= account.promised;
        old.queries -= 1;
        let new = self.classes.get_mut(&id).expect("a query has a living class");
        new.held += account.held;
        new.promised += account.promised;
        new.queries += 1;
        self.after_change(actions);
    }

    pub fn try_grow(
        &mut self,
        query: QueryId,
        bytes: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), MemoryRefusal> {
        // A query that is over has nothing left that could use it.
        let Some(account) = self.accounts.get(&query) else { return Ok(()) };
        let class = &self.classes[&account.class];
        let share = self.share(account);
        let wanted = account.held.saturating_add(bytes);
        let within = wanted <= share;
        let kept = match within || wanted <= small_bytes(self.limit) {
            true => 0,
            false => self.limit / KEPT_PART,
        };
        let above = |held: u64, limit: u64| held.saturating_add(bytes) > limit;
        let limit = if wanted > class.query_limit {
            Some((MemoryLimit::Query(class.name.clone()), class.query_limit))
        } else if above(class.held, class.limit) {
            Some((MemoryLimit::Class(class.name.clone()), class.limit))
        } else if above(self.held, self.limit - kept) || (!within && self.waiting > 0) {
            Some((MemoryLimit::Server, self.limit))
        } else {
            None
        };
        let Some((limit, limit_bytes)) = limit else {
            self.settle_wait(query, 0);
            self.change(query, bytes, true);
            return Ok(());
        };
        let refusal = MemoryRefusal {
            query,
            asked_bytes: bytes,
            held_bytes: account.held,
            share_bytes: share,
            holders: self.holders(&limit, query),
            limit,
            limit_bytes,
            advice: if within { Advice::Wait } else { Advice::Spill },
        };
        if within {
            self.settle_wait(query, bytes);
            self.tell_to_spill(actions);
        }
        Err(refusal)
    }

    /// Never more than it holds.
    pub fn shrink(&mut self, query: QueryId, bytes: u64, actions: &mut Vec<Action>) {
        let Some(account) = self.accounts.get(&query) else { return };
        let bytes = bytes.min(account.held);
        if bytes == 0 {
            return;
        }
        self.settle_wait(query, 0);
        self.change(query, bytes, false);
        let account = self.accounts[&query];
        if account.told && account.held <= self.share(&account) {
            self.accounts.get_mut(&query).expect("found above").told = false;
        }
        self.tell_waiters(actions);
    }

    // Questions.

    pub fn held(&self) -> u64 {
        self.held
    }

    pub fn held_by(&self, query: QueryId) -> u64 {
        self.accounts.get(&query).map_or(0, |a| a.held)
    }

    pub fn held_by_class(&self, id: ClassId) -> u64 {
        self.classes.get(&id).map_or(0, |c| c.held)
    }

    pub fn share_of(&self, query: QueryId) -> Option<u64> {
        self.accounts.get(&query).map(|a| self.share(a))
    }

    pub fn must_spill(&self, query: QueryId) -> bool {
        self.accounts.get(&query).is_some_and(|a| a.told)
    }

    pub fn anyone_waits(&self) -> bool {
        self.waiting + self.wishing > 0
    }

    pub fn awaits(&self, query: QueryId) -> bool {
        self.accounts.get(&query).is_some_and(|a| a.awaited > 0 || a.wished > 0)
    }

    /// What a query that waits for memory waits for.
    pub fn awaited_limit(&self, query: QueryId) -> Option<(MemoryLimit, u64)> {
        let account = self.accounts.get(&query).filter(|a| a.awaited > 0 || a.wished > 0)?;
        if account.wished > 0 {
            let promised = self.can_promise(account.class, self.wanted(account));
            return Some(promised.err().unwrap_or((MemoryLimit::Server, self.limit)));
        }
        let class = &self.classes[&account.class];
        match class.held.saturating_add(account.awaited) > class.limit {
            true => Some((MemoryLimit::Class(class.name.clone()), class.limit)),
            false => Some((MemoryLimit::Server, self.limit)),
        }
    }

    /// The largest holders under a limit. For a query's own limit that is the query.
    pub fn holders(&self, limit: &MemoryLimit, query: QueryId) -> Vec<Holder> {
        let under = |id: &QueryId, a: &Account| match limit {
            MemoryLimit::Server => true,
            MemoryLimit::Class(name) => self.classes[&a.class].name == *name,
            MemoryLimit::Query(_) => *id == query,
        };
        let mut holders: Vec<Holder> = self
            .accounts
            .iter()
            .filter(|(id, a)| under(id, a) && a.held + a.promised > 0)
            .map(|(id, a)| Holder { query: *id, bytes: a.held.max(a.promised) })
            .collect();
        holders.sort_by_key(|h| (std::cmp::Reverse(h.bytes), h.query));
        holders.truncate(HOLDERS_NAMED);
        holders
    }

    // Common parts.

    fn share(&self, account: &Account) -> u64 {
        let class = &self.classes[&account.class];
        let part = |limit: u64, promised: u64, queries: u64| match limit.checked_sub(promised) {
            Some(spare) => account.promised + spare / queries.max(1),
            // The limit was lowered after they were made.
            None => {
                let part = u128::from(account.promised) * u128::from(limit) / u128::from(promised);
                part as u64
            }
        };
        let of_server = part(shared_bytes(self.limit), self.promised, self.accounts.len() as u64);
        let of_class = part(class.limit, class.promised, class.queries);
        of_server.min(of_class).min(class.query_limit)
    }

    fn change(&mut self, query: QueryId, bytes: u64, grow: bool) {
        let account = self.accounts.get_mut(&query).expect("the caller found it");
        let class = self.classes.get_mut(&account.class).expect("a query has a living class");
        for held in [&mut account.held, &mut class.held, &mut self.held] {
            *held = if grow { *held + bytes } else { *held - bytes };
        }
    }

    /// From now on the query waits for so many bytes.
    fn settle_wait(&mut self, query: QueryId, bytes: u64) {
        let account = self.accounts.get_mut(&query).expect("the caller found it");
        self.waiting -= usize::from(account.awaited > 0);
        self.waiting += usize::from(bytes > 0);
        (account.awaited, account.freed) = (bytes, false);
    }

    fn set_wish(&mut self, query: QueryId, bytes: u64) {
        let account = self.accounts.get_mut(&query).expect("the caller found it");
        self.wishing -= usize::from(account.wished > 0);
        self.wishing += usize::from(bytes > 0);
        (account.wished, account.invited) = (bytes, false);
    }

    /// What it would be promised in addition.
    fn wanted(&self, account: &Account) -> u64 {
        let class = &self.classes[&account.class];
        let most =
            (shared_bytes(self.limit) / PROMISE_PART).min(class.limit).min(class.query_limit);
        account.wished.min(most).saturating_sub(account.promised)
    }

    /// The first of those that wait for a promise that can have it. Whom his class holds up does
    /// not hold up those of others.
    fn next_promised(&self) -> Option<QueryId> {
        let mut full: Vec<ClassId> = Vec::new();
        for (query, account) in self.accounts.iter().filter(|(_, a)| a.wished > 0) {
            if full.contains(&account.class) {
                continue;
            }
            match self.can_promise(account.class, self.wanted(account)) {
                Ok(()) => return Some(*query),
                Err((MemoryLimit::Server, _)) => return None,
                Err(_) => full.push(account.class),
            }
        }
        None
    }

    /// Tells the next one to ask again; when he has, the one after him.
    fn invite(&mut self, actions: &mut Vec<Action>) {
        if self.wishing == 0 {
            return;
        }
        let Some(query) = self.next_promised() else { return };
        let account = self.accounts.get_mut(&query).expect("listed");
        if !std::mem::replace(&mut account.invited, true) {
            actions.push(Action::MemoryFreed(query));
        }
    }

    /// Shares or limits have changed.
    fn after_change(&mut self, actions: &mut Vec<Action>) {
        self.invite(actions);
        self.tell_waiters(actions);
        let relieved: Vec<QueryId> = self
            .accounts
            .iter()
            .filter(|(_, a)| a.told && a.held <= self.share(a))
            .map(|(query, _)| *query)
            .collect();
        for query in relieved {
            self.accounts.get_mut(&query).expect("listed above").told = false;
        }
        let full = |c: &ClassAccount| c.held > c.limit;
        if self.waiting > 0 || self.held > self.limit || self.classes.values().any(full) {
            self.tell_to_spill(actions);
        }
    }

    fn tell_to_spill(&mut self, actions: &mut Vec<Action>) {
        let above: Vec<QueryId> = self
            .accounts
            .iter()
            .filter(|(_, a)| !a.told && a.held > self.share(a))
            .map(|(query, _)| *query)
            .collect();
        for query in above {
            self.accounts.get_mut(&query).expect("listed above").told = true;
            actions.push(Action::Spill(query));
        }
    }

    fn tell_waiters(&mut self, actions: &mut Vec<Action>) {
        if self.waiting == 0 {
            return;
        }
        for (query, account) in &mut self.accounts {
            let class = &self.classes[&account.class];
            let fits = self.held.saturating_add(account.awaited) <= self.limit
                && class.held.saturating_add(account.awaited) <= class.limit;
            if account.awaited > 0 && fits && !account.freed {
                account.freed = true;
                actions.push(Action::MemoryFreed(*query));
            }
        }
    }

    /// Sums agree, and nobody is left waiting beside free memory.
    #[cfg(any(test, feature = "simulation"))]
    pub fn check(&self) -> Result<(), String> {
        let held: u64 = self.accounts.values().map(|a| a.held).sum();
        let promised: u64 = self.accounts.values().map(|a| a.promised).sum();
        let waiting = self.accounts.values().filter(|a| a.awaited > 0).count();
        let wishing = self.accounts.values().filter(|a| a.wished > 0).count();
        if let Some(query) = self.next_promised().filter(|q| !self.accounts[q].invited) {
            return Err(format!("query {query} waits for a promise that could be made"));
        }
        if (held, promised, waiting, wishing)
            != (self.held, self.promised, self.waiting, self.wishing)
        {
            return Err(format!("queries hold {held} B; the ledger says {} B", self.held));
        }
        for (id, class) in &self.classes {
            let mine = || self.accounts.values().filter(|a| a.class == *id);
            let held: u64 = mine().map(|a| a.held).sum();
            let promised: u64 = mine().map(|a| a.promised).sum();
            if (held, promised, mine().count() as u64)
                != (class.held, class.promised, class.queries)
            {
                return Err(format!("class {id} holds {held} B; its account says {}", class.held));
            }
        }
        for (query, account) in &self.accounts {
            let class = &self.classes[&account.class];
            let fits = self.held.saturating_add(account.awaited) <= self.limit
                && class.held.saturating_add(account.awaited) <= class.limit;
            if account.awaited > 0 && fits && !account.freed {
                return Err(format!("query {query} was not told that memory is free"));
            }
            if account.told && account.held <= self.share(account) {
                return Err(format!("query {query} is told to spill within its share"));
            }
        }
        Ok(())
    }
}
