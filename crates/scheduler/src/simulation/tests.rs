use super::*;

fn sum_of_reports(seeds: std::ops::Range<u64>) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        let report = simulate(seed, None).unwrap_or_else(|e| panic!("{e}"));
        total.grants += report.grants;
        total.cancels += report.cancels;
        total.notified += report.notified;
        total.stale += report.stale;
    }
    total
}

#[test]
fn thousands_of_schedules_hold_all_promises() {
    let total = sum_of_reports(0..1_200);
    // A simulator that does nothing finds nothing: every kind of event must have happened.
    assert!(total.grants > 50_000, "{total:?}");
    assert!(total.cancels > 1_000, "{total:?}");
    assert!(total.notified > 5_000, "{total:?}");
    assert!(total.stale > 5_000, "{total:?}");
}

/// A second test, so that two cores share the time.
#[test]
fn thousands_more() {
    sum_of_reports(1_200..2_400);
}

#[test]
fn equal_seeds_give_equal_traces() {
    let mut traces = Vec::new();
    for seed in 0..50 {
        let first = simulate(seed, None).unwrap();
        assert_eq!(first, simulate(seed, None).unwrap());
        traces.push(first.trace);
    }
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 50, "different seeds give different schedules");
}

/// How many of 100 seeds notice the fault.
fn caught(fault: Fault, compare: bool) -> usize {
    (0..100).filter(|seed| run(*seed, Some(fault), compare).is_err()).count()
}

#[test]
fn a_lost_wake_is_caught_even_without_the_model() {
    assert!(caught(Fault::LostWake, true) > 30, "{}", caught(Fault::LostWake, true));
    assert!(caught(Fault::LostWake, false) > 30, "{}", caught(Fault::LostWake, false));
}

#[test]
fn a_leaked_slot_is_caught_even_without_the_model() {
    assert!(caught(Fault::LeakedSlot, true) > 5, "{}", caught(Fault::LeakedSlot, true));
    assert!(caught(Fault::LeakedSlot, false) > 5, "{}", caught(Fault::LeakedSlot, false));
}

#[test]
fn a_stale_rank_is_caught() {
    assert!(caught(Fault::StaleRank, true) > 5, "{}", caught(Fault::StaleRank, true));
}

#[test]
fn a_stale_id_that_is_believed_is_caught() {
    assert!(caught(Fault::StaleId, true) > 5, "{}", caught(Fault::StaleId, true));
}

const MS: u64 = 1_000_000;

fn job(arrival_ms: u64, tasks: u64, quanta: u64) -> Job {
    let mut job =
        Job { arrival_ns: arrival_ms * MS, tasks, quanta, quantum_ns: 2 * MS, estimate_ns: 0 };
    job.estimate_ns = job.work_ns();
    job
}

fn mean(times: &[u64]) -> u64 {
    times.iter().sum::<u64>() / times.len() as u64
}

/// The reason to have policies: two reports of two seconds each, then six lookups of 16 ms.
#[test]
fn short_queries_end_much_earlier_under_small_first() {
    let mut jobs = vec![job(0, 4, 250), job(0, 4, 250)];
    jobs.extend((1..=6).map(|n| job(n, 2, 4)));
    let [fifo, round_robin, small_first] = PolicyKind::ALL.map(|policy| replay(policy, 2, &jobs));
    assert!(mean(&fifo[2..]) > 3 * mean(&small_first[2..]), "{fifo:?} {small_first:?}");
    assert!(mean(&fifo[2..]) > 3 * mean(&round_robin[2..]), "{fifo:?} {round_robin:?}");
    assert!(mean(&round_robin[2..]) > mean(&small_first[2..]), "{round_robin:?} {small_first:?}");
    // All the work is done in the same time: no slot was ever idle.
    for times in [&fifo, &round_robin, &small_first] {
        let end = (0..jobs.len()).map(|j| jobs[j].arrival_ns + times[j]).max();
        let work: u64 = jobs.iter().map(Job::work_ns).sum();
        assert!(end.unwrap() - work / 2 <= 2 * MS, "{times:?}");
    }
}

#[test]
fn a_heavy_query_with_a_small_estimate_sinks() {
    let mut jobs = vec![job(0, 4, 250)];
    jobs[0].estimate_ns = 4 * MS;
    jobs.extend((1..=6).map(|n| job(40 * n, 2, 4)));
    let times = replay(PolicyKind::SmallFirst, 2, &jobs);
    // 16 ms of work on two slots, and at most one foreign quantum per slot before it.
    assert!(times[1..].iter().all(|t| *t <= 12 * MS), "{times:?}");
}
