use super::*;

fn sum_of_reports(seeds: std::ops::Range<u64>) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        let report = simulate(seed, None).unwrap_or_else(|e| panic!("{e}"));
        total.add(&report);
    }
    total
}

#[test]
fn thousands_of_schedules_hold_all_promises() {
    let total = sum_of_reports(0..700);
    // A simulator that does nothing finds nothing: every kind of event must have happened.
    let counts = [
        ("grants", total.grants, 20_000),
        ("cancels", total.cancels, 1_000),
        ("wakes of running tasks", total.notified, 5_000),
        ("events of past tasks", total.stale, 5_000),
        ("quanta that went on", total.went_on, 500),
        ("steps with the reserve in use", total.reserved, 500),
        ("admissions", total.admitted, 200),
        ("refusals", total.refused, 100),
        ("stops", total.stopped, 100),
        ("refusals of memory", total.memory_refused, 500),
        ("waits for memory that ended", total.memory_freed, 10),
        ("waits for a promise", total.promises_awaited, 20),
        ("waits compared to a bound", total.bounds, 3_000),
        ("turns in a line", total.exchanges, 200),
    ];
    for (what, count, least) in counts {
        assert!(count > least, "{count} {what}, {least} expected: {total:?}");
    }
}

#[test]
fn seeds_that_found_something_hold_all_promises() {
    // Memory promised to one query fills its class, which then holds up nobody else: of those, one
    // could be admitted, or be promised memory, and was not.
    sum_of_reports(97_579..97_580);
    sum_of_reports(134_039..134_040);
    // A query that lagged behind was given a larger priority, and took that much more time.
    sum_of_reports(146_035..146_036);
}

/// A second test, so that two cores share the time.
#[test]
fn thousands_more() {
    sum_of_reports(700..1_300);
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
    // A mistake may also trip over an assertion.
    let holds = |seed| std::panic::catch_unwind(|| run(seed, Some(fault), compare));
    (0..100).filter(|seed| !matches!(holds(*seed), Ok(Ok(_)))).count()
}

#[track_caller]
fn is_caught(fault: Fault, compare: bool, least: usize) {
    let times = caught(fault, compare);
    assert!(times >= least, "{fault:?} was caught {times} times in 100, expected {least}");
}

#[test]
fn a_lost_wake_is_caught_even_without_the_model() {
    is_caught(Fault::LostWake, true, 30);
    is_caught(Fault::LostWake, false, 30);
}

#[test]
fn a_leaked_slot_is_caught_even_without_the_model() {
    is_caught(Fault::LeakedSlot, true, 5);
    is_caught(Fault::LeakedSlot, false, 5);
}

#[test]
fn leaked_memory_and_a_lost_admission_are_caught_even_without_the_model() {
    is_caught(Fault::LeakedMemory, false, 20);
    is_caught(Fault::LostAdmission, false, 10);
}

#[test]
fn a_stale_rank_is_caught() {
    is_caught(Fault::StaleRank, true, 5);
}

#[test]
fn a_stale_id_that_is_believed_is_caught() {
    is_caught(Fault::StaleId, true, 5);
}

#[test]
fn credit_for_rest_is_caught() {
    is_caught(Fault::CreditForRest, true, 5);
}

#[test]
fn a_line_served_from_its_end_is_caught() {
    is_caught(Fault::BackToFront, true, 3);
}

#[test]
fn long_queries_in_the_reserve_are_caught() {
    is_caught(Fault::ReserveForAll, true, 3);
}

#[test]
fn deadlines_without_end_are_caught() {
    is_caught(Fault::EndlessDeadlines, true, 5);
}

#[test]
fn a_cap_that_is_not_kept_is_caught() {
    is_caught(Fault::OverAdmitted, true, 3);
}

#[test]
fn a_quantum_that_is_not_charged_for_is_caught() {
    is_caught(Fault::FreeQuantum, true, 5);
}
