//! Settings, all of them live.

use thalweg_base::{Error, Result, text};

use super::Scheduler;
use crate::action::Action;
use crate::class::{Class, ClassId, ServerLimits, WEIGHT_MAX};
use crate::policy::PolicyKind;
use crate::query::Place;

impl Scheduler {
    /// Fewer slots than are in use: the running quanta end, and are not replaced.
    ///
    /// # Panics
    /// If `slots` is 0.
    pub fn set_slots(&mut self, slots: usize, now_ns: u64, actions: &mut Vec<Action>) {
        assert!(slots > 0, "a scheduler needs at least one slot");
        self.slots = slots;
        self.grant(now_ns, actions);
    }

    /// So many slots more for queries that are not [long](crate::Age), as many again for those that are
    /// brief, and again for those that are fresh, granted only while a task of an older one holds a slot
    /// for each that is in use beyond those there are, or for as many as there are: then a quantum that
    /// does not end is not waited for. A task of one that is not older counts too once it is
    /// [overdue](crate::OVERDUE_NS). A driver with a reserve has threads for all of them, and lets
    /// quanta of older queries ([`query_of`](Self::query_of)) run at a lower priority, or they would slow
    /// down those that they were to make room for.
    pub fn set_reserve(&mut self, reserve: usize, now_ns: u64, actions: &mut Vec<Action>) {
        self.reserve = reserve;
        self.grant(now_ns, actions);
    }

    /// All that wait go on waiting, in the order of the new policy; the queries join it in
    /// order of arrival. What the old one had learnt is lost.
    pub fn set_policy(&mut self, policy: PolicyKind, now_ns: u64, actions: &mut Vec<Action>) {
        let mut waiting: Vec<u32> = self.order.entries().map(|(_, q)| q).collect();
        waiting.sort_by_key(|q| self.query(*q).state.arrival_order);
        self.policy = policy.build();
        self.order.clear();
        self.deadlines.clear();
        for query in self.queries.iter_mut().flatten() {
            query.state.place = Place::default();
        }
        for q in waiting {
            self.join_order(q);
        }
        // Another may be the first to be admitted now, and ask for less.
        self.admit(None, now_ns, actions);
    }

    pub fn set_limits(&mut self, limits: ServerLimits, now_ns: u64, actions: &mut Vec<Action>) {
        self.classes.limits = limits;
        self.memory.set_limit(limits.memory_bytes, actions);
        self.after_limits(now_ns, actions);
    }

    /// The class of queries that name none; [`ClassId::DEFAULT`] at first.
    pub fn set_default_class(&mut self, id: ClassId) -> Result<()> {
        self.living_class(id)?;
        self.classes.default = id;
        Ok(())
    }

    pub fn create_class(&mut self, class: Class) -> Result<ClassId> {
        self.check_class(&class, None)?;
        let id = self.classes.add(class.clone());
        // A class without queries tells nobody anything.
        self.memory.set_class(id, &class, &mut Vec::new());
        Ok(id)
    }

    /// Puts new settings in place of the old. They hold for the queries that run and wait too:
    /// of more running queries than may be, all go on and none is admitted until there are
    /// fewer; a query above a limit of memory is told to spill and gets no more until it is
    /// below; one that has taken longer than it may is stopped by the next
    /// [`tick`](Self::tick). A queue that is longer than it may be takes nobody in.
    pub fn alter_class(
        &mut self,
        id: ClassId,
        class: Class,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> Result<()> {
        self.living_class(id)?;
        self.check_class(&class, Some(id))?;
        self.memory.set_class(id, &class, actions);
        self.classes[id].class = class;
        for q in 0..self.queries.len() as u32 {
            if self.queries[q as usize].as_ref().is_some_and(|q| q.state.class == id) {
                self.reweigh(q);
                self.note_timeout(q);
            }
        }
        self.after_limits(now_ns, actions);
        Ok(())
    }

    /// Its queries go on in the default class.
    pub fn drop_class(
        &mut self,
        id: ClassId,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> Result<()> {
        let name = text::quoted(&self.living_class(id)?.name);
        if id == ClassId::DEFAULT {
            return Err(Error::user(format!("workload {name} cannot be dropped")).hint(
                "it is where queries run that belong to no other; ALTER WORKLOAD changes it",
            ));
        }
        if self.classes.default == id {
            self.classes.default = ClassId::DEFAULT;
        }
        let to = self.classes.default;
        for q in 0..self.queries.len() as u32 {
            if self.queries[q as usize].as_ref().is_some_and(|q| q.state.class == id) {
                self.move_to_class(q, to, actions);
                self.note_timeout(q);
            }
        }
        self.memory.drop_class(id);
        self.classes.entries[id.0 as usize] = None;
        self.after_limits(now_ns, actions);
        Ok(())
    }

    fn after_limits(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        self.refuse_what_never_fits(now_ns, actions);
        self.admit(None, now_ns, actions);
        self.grant(now_ns, actions);
    }

    fn living_class(&self, id: ClassId) -> Result<&Class> {
        let entry = self.classes.get(id);
        entry.map(|e| &e.class).ok_or_else(|| Error::user(format!("workload {id} was dropped")))
    }

    fn check_class(&self, class: &Class, id: Option<ClassId>) -> Result<()> {
        if self.class_named(&class.name).is_some_and(|other| Some(other) != id) {
            return Err(Error::user(format!("workload {} exists", text::quoted(&class.name)))
                .hint("ALTER WORKLOAD changes it"));
        }
        if !(1..=WEIGHT_MAX).contains(&class.weight) {
            let name = text::quoted(&class.name);
            return Err(Error::user(format!(
                "workload {name} cannot have weight {}",
                class.weight
            ))
            .hint(format!("weights are from 1 to {WEIGHT_MAX}, and 100 is normal")));
        }
        Ok(())
    }
}
