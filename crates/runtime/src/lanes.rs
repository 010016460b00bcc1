//! Which thread polls a task, and what the operating system is told about that thread.
//!
//! A young query does not wait for the end of an older one's quantum: it runs in the scheduler's
//! reserve, and then there are more threads than cores. Which of them get a core is the operating
//! system's to say. So the threads are of two *lanes*: those in `Front` are threads like any other;
//! those in `Back` have the policy `SCHED_IDLE`. Linux takes a core that polls for the back to be
//! idle: any other thread that wakes up is put there, rather than where another one runs, and begins
//! at once. Nice values and slices do not do that: a thread that wakes up beside one with the least
//! weight may still wait for a slice of it, 1.4 ms and more.
//!
//! That is not all of it. Linux also owes a thread of the back its part of a core, if a small one, and
//! for as long as it does, a thread that has just run there waits: until the next tick, which may be
//! 4 ms away. So it met clients whose answers were ready, and threads of the front that slept between
//! two polls. Hence polls in the back offer their core every so often, which gives up what they are
//! owed (`sched_yield`, measured with Linux 6.18: look-ups beside eight streams of heavy queries took
//! 2.5 ms at the 95th percentile, and then 0.9).
//!
//! Among themselves, threads of the back would share the cores evenly. So while there are more polls
//! than cores, those of older queries [pause](super::threads::Threads::pause).
//!
//! Queries that are no longer fresh are polled in the back once they have *met* a fresh one, which is
//! granted a slot while they hold theirs: for a second, as queries that come in numbers come again, and
//! for as long as others are there: these would get nothing beside them, and keep their slots and locks.
//! Short ones are polled there as well: in front, a steady stream of them would leave long ones nothing,
//! while a pause ends. A lane is chosen for each poll, by the age of its query, and a thread never changes
//! its lane; an ordinary user's process would lack the right to go back.
//!
//! What gives way to our own young queries gives way to all other threads of the machine (of its
//! control group: a service or a container has one of its own), and may hold what these wait for:
//! beside a program that never rests `SCHED_IDLE` leaves a thread 3 ms of a second, and there is no
//! way back from it. So nobody gives way while threads that do not poll for this engine use a good part
//! of the machine; nor a task that has had a long quantum; nor anybody for a while after a poll was left
//! no core by them. A quantum in the back ends then.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_scheduler::Age;

use super::cpu_time::{process_cpu_ns, thread_cpu_ns};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Front,
    Back,
}

thread_local! {
    static CURRENT: Cell<Option<Lane>> = const { Cell::new(None) };
}

/// So often a poll in the back offers its core, or pauses. That costs half a microsecond if nobody
/// wants it.
const LETS_BY_EVERY: Duration = Duration::from_micros(200);
/// For so long it leaves its core to younger queries, at most.
pub const PAUSE_MAX: Duration = Duration::from_millis(10);
/// For so long it does not pause after that: it keeps a part of that core, a tenth or so, however many
/// of them there are; and caches are filled again once in a stretch.
pub const STRETCH: Duration = Duration::from_millis(2);
/// For so long a query gives way once a younger one has met it.
const MET_NS: u64 = 1_000_000_000;

/// A poll without a core for so long is starved.
const STARVED_NS: u64 = 50_000_000;
/// Unless this process had this part of all cores meanwhile: then it was left none by our own.
const OURS_PART: (u64, u64) = (3, 4);
/// So long nobody gives way after that. With `SCHED_IDLE` a quantum may take most of a second beside a
/// program that never rests; this keeps what is lost by it below a tenth.
const FIRM_NS: u64 = 10_000_000_000;
/// A task that has had a longer quantum does not give way.
const LONG_NS: u64 = 25_000_000;
/// How often it is looked what other threads use, and for how long that holds.
const RIVALS_LOOK_NS: u64 = 200_000_000;
const RIVALS_HOLD_NS: u64 = 300_000_000;
/// Of the cores that the system has: what the others may use before nobody gives way to them.
const RIVALS_PART: u64 = 4;
/// Of the counters in `/proc/stat`: Linux shows 100 a second on every machine.
const TICK_NS: u64 = 10_000_000;

impl Lane {
    pub const ALL: [Lane; 2] = [Lane::Front, Lane::Back];

    /// Threads of it: as many as queries polled there may hold slots.
    pub fn threads(self, slots: usize, reserve: usize) -> usize {
        let youngest = match self {
            Lane::Front => Age::Fresh,
            Lane::Back => Age::Brief,
        };
        slots + youngest.reserves() * reserve
    }

    pub fn thread_name(self) -> &'static str {
        match self {
            Lane::Front => "thalweg",
            Lane::Back => "thalweg-back",
        }
    }

    /// Of the calling thread, if it polls.
    pub fn current() -> Option<Lane> {
        CURRENT.get()
    }

    /// How often a poll offers its core to whoever waits for it, if it does.
    pub fn lets_by_every(self) -> Option<Duration> {
        (self == Lane::Back).then_some(LETS_BY_EVERY)
    }

    /// The calling thread is of this lane from now on. Where the system refuses it, nothing is lost but
    /// time; and a process that was started with another policy than the usual one keeps that.
    pub fn enter(self) {
        CURRENT.set(Some(self));
        // SAFETY: numbers, and a structure of one that lives until the call is over; 0 is the calling
        // thread.
        unsafe {
            if self == Lane::Back && libc::sched_getscheduler(0) == libc::SCHED_OTHER {
                libc::sched_setscheduler(
                    0,
                    libc::SCHED_IDLE,
                    &libc::sched_param { sched_priority: 0 },
                );
            }
        }
    }
}

/// Who gives way.
#[derive(Default)]
pub struct Lanes {
    /// When a fresh query last met another.
    met_ns: Option<u64>,
    firm: Firm,
    in_back: InBack,
}

/// How many polls are in the back: under way, or about to be.
#[derive(Clone, Default)]
pub struct InBack(Arc<AtomicUsize>);

impl InBack {
    pub fn begins(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn ended(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Until when nobody gives way.
#[derive(Clone, Default)]
pub struct Firm(Arc<Starved>);

#[derive(Default)]
struct Starved {
    until_ns: AtomicU64,
    polls: AtomicU64,
}

/// What has been used up to a moment, by one clock each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub wall_ns: u64,
    /// CPU time of the thread.
    pub thread_ns: u64,
    /// CPU time of all threads of the process.
    pub process_ns: u64,
}

impl Used {
    pub fn now(wall_ns: u64) -> Self {
        Used { wall_ns, thread_ns: thread_cpu_ns(), process_ns: process_cpu_ns() }
    }

    fn since(self, began: Used) -> Self {
        Used {
            wall_ns: self.wall_ns.saturating_sub(began.wall_ns),
            thread_ns: self.thread_ns.saturating_sub(began.thread_ns),
            process_ns: self.process_ns.saturating_sub(began.process_ns),
        }
    }
}

impl Firm {
    /// A poll has lasted from one moment to the other and paused for a part of that; the process may use
    /// so many cores.
    pub fn note(&self, began: Used, ended: Used, paused_ns: u64, cores: u64) {
        let Used { wall_ns, thread_ns, process_ns } = ended.since(began);
        let starved = wall_ns.saturating_sub(thread_ns + paused_ns) >= STARVED_NS;
        let ours = process_ns * OURS_PART.1 >= wall_ns * cores * OURS_PART.0;
        if starved && !ours {
            self.0.until_ns.fetch_max(ended.wall_ns + FIRM_NS, Ordering::Relaxed);
            self.0.polls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls that others left no core, so far.
    pub fn starved(&self) -> u64 {
        self.0.polls.load(Ordering::Relaxed)
    }

    /// Others use much.
    pub fn hold(&self, now_ns: u64) {
        self.0.until_ns.fetch_max(now_ns + RIVALS_HOLD_NS, Ordering::Relaxed);
    }

    pub fn is_firm(&self, now_ns: u64) -> bool {
        now_ns < self.0.until_ns.load(Ordering::Relaxed)
    }
}

impl Lanes {
    pub fn firm(&self) -> &Firm {
        &self.firm
    }

    pub fn in_back(&self) -> &InBack {
        &self.in_back
    }

    /// A task whose query is of this age, and whose longest quantum so far is known, is granted a slot
    /// while others are `held`.
    pub fn granted(
        &mut self,
        age: Age,
        longest_ns: u64,
        mut held: impl Iterator<Item = Age>,
        now_ns: u64,
    ) -> Lane {
        if age == Age::Fresh {
            if held.any(|other| other > Age::Fresh) {
                self.met_ns = Some(now_ns);
            }
            return Lane::Front;
        }
        // In front it would leave those in the back nothing.
        let met = self.met_ns.is_some_and(|at| now_ns < at + MET_NS) || self.in_back.any();
        let gives_way = met && longest_ns <= LONG_NS && !self.firm.is_firm(now_ns);
        if gives_way { Lane::Back } else { Lane::Front }
    }
}

/// What all threads of the system use but for those that poll.
#[derive(Default)]
pub struct Rivals {
    last: Option<Look>,
}

struct Look {
    at_ns: u64,
    /// For how long all cores of the system together had been busy.
    busy_ns: u64,
    /// For how long our polls had been.
    polled_ns: u64,
}

impl Rivals {
    /// For the next look.
    pub fn is_time(&self, now_ns: u64) -> bool {
        self.last.as_ref().is_none_or(|last| now_ns >= last.at_ns + RIVALS_LOOK_NS)
    }

    /// Whether that has been much since the last look, or is not known: that was long ago. Polls have had
    /// so much CPU time so far.
    pub fn use_much(&mut self, polled_ns: u64, now_ns: u64) -> bool {
        let Some((busy_ns, cores)) = cores_busy() else { return false };
        self.used_much(Look { at_ns: now_ns, busy_ns, polled_ns }, cores)
    }

    fn used_much(&mut self, now: Look, cores: u64) -> bool {
        let Look { at_ns, busy_ns, polled_ns } = now;
        let Some(last) = self.last.replace(now) else { return true };
        let elapsed_ns = at_ns.saturating_sub(last.at_ns);
        let ours_ns = polled_ns.saturating_sub(last.polled_ns);
        let others_ns = busy_ns.saturating_sub(last.busy_ns).saturating_sub(ours_ns);
        elapsed_ns > 5 * RIVALS_LOOK_NS || others_ns * RIVALS_PART > elapsed_ns * cores
    }
}

/// For how long all cores of the system together have been busy, and how many there are. `None`: it
/// does not say.
fn cores_busy() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let cores = text.lines().skip(1).take_while(|line| line.starts_with("cpu")).count() as u64;
    let ticks: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
    // User, nice, system, then idle and waiting for a disk, then interrupts.
    let [user, nice, system, _, _, hard, soft, ..] = ticks[..] else { return None };
    Some(((user + nice + system + hard + soft) * TICK_NS, cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_meets_a_fresh_query_gives_way_for_a_while() {
        let mut lanes = Lanes::default();
        let mut granted = |age, held: &[Age], at| lanes.granted(age, 0, held.iter().copied(), at);
        assert_eq!(granted(Age::Fresh, &[Age::Fresh], 0), Lane::Front);
        assert_eq!(granted(Age::Long, &[Age::Short, Age::Fresh], MS), Lane::Front);
        assert_eq!(granted(Age::Short, &[Age::Long, Age::Fresh], MS), Lane::Front);
        assert_eq!(granted(Age::Fresh, &[Age::Fresh, Age::Short], 2 * MS), Lane::Front);
        assert_eq!(granted(Age::Long, &[], 3 * MS), Lane::Back);
        assert_eq!(granted(Age::Short, &[Age::Long], 3 * MS), Lane::Back);
        assert_eq!(granted(Age::Fresh, &[], 3 * MS), Lane::Front);
        assert_eq!(granted(Age::Short, &[], 2 * MS + MET_NS - 1), Lane::Back);
        assert_eq!(granted(Age::Long, &[], 2 * MS + MET_NS), Lane::Front);
    }

    #[test]
    fn who_would_leave_those_in_the_back_nothing_goes_there_too() {
        let mut lanes = Lanes::default();
        let in_back = lanes.in_back().clone();
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), 0), Lane::Front);
        in_back.begins();
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), 0), Lane::Back);
        assert_eq!(lanes.granted(Age::Fresh, 0, [].into_iter(), 0), Lane::Front);
        lanes.firm().hold(0);
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), 0), Lane::Front);
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), RIVALS_HOLD_NS), Lane::Back);
        in_back.ended();
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), RIVALS_HOLD_NS), Lane::Front);
    }

    #[test]
    fn who_is_starved_gives_way_no_longer() {
        let mut lanes = Lanes::default();
        lanes.granted(Age::Fresh, 0, [Age::Long].into_iter(), 0);
        let firm = lanes.firm().clone();
        // What polls took that began after a millisecond, and all threads of this process.
        let polled = |wall_ns, thread_ns, process_ns, paused_ns| {
            let began = Used { wall_ns: MS, ..Used::default() };
            let ended = Used { wall_ns: MS + wall_ns, thread_ns, process_ns };
            firm.note(began, ended, paused_ns, 2);
        };
        polled(STARVED_NS, 1, 1, 0);
        polled(STARVED_NS * 2, STARVED_NS * 2, STARVED_NS * 2, 0);
        polled(STARVED_NS * 2, 1, 1, STARVED_NS);
        polled(STARVED_NS * 2, 1, STARVED_NS * 3, 0);
        assert_eq!(
            (lanes.granted(Age::Long, 0, [].into_iter(), 2 * MS), firm.starved()),
            (Lane::Back, 0)
        );
        polled(STARVED_NS * 2, 1, STARVED_NS * 3 - 1, 0);
        assert_eq!(firm.starved(), 1);
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), 2 * MS), Lane::Front);
        let later = MS + STARVED_NS * 2 + FIRM_NS;
        lanes.granted(Age::Fresh, 0, [Age::Long].into_iter(), later);
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), later), Lane::Back);
    }

    #[test]
    fn nobody_gives_way_to_other_programs() {
        let mut lanes = Lanes::default();
        lanes.granted(Age::Fresh, 0, [Age::Long].into_iter(), 0);
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), MS), Lane::Back);
        lanes.firm().hold(MS);
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), 2 * MS), Lane::Front);
        let ended = Used { wall_ns: STARVED_NS, ..Used::default() };
        lanes.firm().note(Used::default(), ended, 0, 1);
        lanes.firm().hold(2 * MS);
        let later = STARVED_NS + FIRM_NS;
        lanes.granted(Age::Fresh, 0, [Age::Long].into_iter(), later);
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), later - 1), Lane::Front);
        assert_eq!(lanes.granted(Age::Long, 0, [].into_iter(), later), Lane::Back);
    }

    #[test]
    fn what_others_use_is_what_polls_do_not() {
        let mut rivals = Rivals::default();
        // Of four cores, busy for so long, of which polls had so much.
        let mut look = |at, busy, polled| {
            let look = Look { at_ns: at * MS, busy_ns: busy * MS, polled_ns: polled * MS };
            rivals.used_much(look, 4)
        };
        assert!(look(0, 70_000, 0), "nothing is known");
        assert!(!look(200, 70_800, 800), "all of it is ours");
        assert!(!look(400, 71_600, 1_401), "a core less a little is theirs");
        assert!(look(600, 72_400, 2_000));
        assert!(!look(800, 72_400, 4_000), "a long poll has ended");
        assert!(look(60_800, 72_400, 4_000), "a minute ago is no longer known");
        assert!(!look(61_000, 72_400, 4_000));
        let Some((busy_ns, cores)) = cores_busy() else { return };
        assert!(busy_ns > 0 && cores > 0);
    }

    #[test]
    fn who_may_take_long_does_not_give_way() {
        let mut lanes = Lanes::default();
        lanes.granted(Age::Fresh, 0, [Age::Long].into_iter(), 0);
        assert_eq!(lanes.granted(Age::Long, LONG_NS, [].into_iter(), MS), Lane::Back);
        assert_eq!(lanes.granted(Age::Long, LONG_NS + 1, [].into_iter(), MS), Lane::Front);
    }

    #[test]
    fn threads_of_the_back_say_that_they_give_way() {
        // SAFETY: a number only; 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        if policy() != libc::SCHED_OTHER {
            return;
        }
        let of = |lane: Lane| {
            let entered = move || {
                lane.enter();
                policy()
            };
            std::thread::spawn(entered).join().unwrap()
        };
        assert_eq!(of(Lane::Front), libc::SCHED_OTHER);
        assert_eq!(of(Lane::Back), libc::SCHED_IDLE);
    }
}
