//! What each policy would have done to a recorded workload: the model and its text.

use serde::{Deserialize, Serialize};
use thalweg_base::text::count;
use thalweg_engine::SHORT_CPU_NS;

use super::figures::{ms, policy, ratio, seconds};
use super::model::{percentile, quotient};
use super::text::{Options, Table, titled};

/// In place of a policy: what really happened.
pub const AS_RECORDED: &str = "as recorded";

/// Version of the JSON form; raised when a field changes its meaning or goes away.
const FORMAT: u32 = 1;

/// A query of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Since the first one.
    pub arrived_ns: u64,
    pub cpu_ns: u64,
    /// The most that could run at a time.
    pub tasks: u32,
}

impl Query {
    fn is_short(&self) -> bool {
        self.cpu_ns < SHORT_CPU_NS
    }

    /// With all slots for itself.
    fn alone_ms(&self, slots: usize) -> f64 {
        self.cpu_ns as f64 / 1e6 / (self.tasks as usize).clamp(1, slots.max(1)) as f64
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    pub format: u32,
    /// Where the record is.
    pub file: String,
    pub slots: usize,
    pub quantum_ms: f64,
    pub queries: usize,
    /// Queries of the record that used no CPU time.
    pub left_out: usize,
    pub cpu_seconds: f64,
    /// From the first arrival to the last.
    pub arrivals_seconds: f64,
    /// What was recorded, if the record says so; then the policies.
    pub policies: Vec<Replayed>,
}

/// The workload under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    pub policy: String,
    pub short: Option<Class>,
    pub long: Option<Class>,
    /// Mean over all queries of the time taken divided by the time alone.
    pub slowdown: f64,
    pub queries_per_s: f64,
    /// From the first arrival to the last end.
    pub makespan_seconds: f64,
}

/// Short queries, or long ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    pub queries: usize,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub slowdown: f64,
}

impl Class {
    /// Of (time taken, time alone); None of nothing.
    fn new(times: &[(f64, f64)]) -> Option<Class> {
        let mut sorted: Vec<f64> = times.iter().map(|(taken, _)| *taken).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Class {
            queries: times.len(),
            mean_ms: quotient(sorted.iter().sum(), sorted.len() as f64),
            p50_ms: percentile(&sorted, 50)?,
            p99_ms: percentile(&sorted, 99)?,
            max_ms: percentile(&sorted, 100)?,
            slowdown: slowdown(times),
        })
    }
}

fn slowdown(times: &[(f64, f64)]) -> f64 {
    quotient(times.iter().map(|(taken, alone)| quotient(*taken, *alone)).sum(), times.len() as f64)
}

impl Replayed {
    /// `taken_ms`: of each query, from its arrival to its end.
    pub fn new(policy: &str, queries: &[Query], taken_ms: Vec<f64>, slots: usize) -> Replayed {
        let all: Vec<(&Query, f64)> = queries.iter().zip(taken_ms).collect();
        let times = |chosen: &dyn Fn(&Query) -> bool| -> Vec<(f64, f64)> {
            let chosen = all.iter().filter(|(query, _)| chosen(query));
            chosen.map(|(query, taken)| (*taken, query.alone_ms(slots))).collect()
        };
        let ends = all.iter().map(|(query, taken)| query.arrived_ns as f64 / 1e6 + taken);
        let makespan_seconds = ends.fold(0.0, f64::max) / 1e3;
        Replayed {
            policy: policy.to_string(),
            short: Class::new(&times(&Query::is_short)),
            long: Class::new(&times(&|query| !query.is_short())),
            slowdown: slowdown(&times(&|_| true)),
            queries_per_s: quotient(all.len() as f64, makespan_seconds),
            makespan_seconds,
        }
    }

    pub fn name(&self) -> &str {
        match self.policy.as_str() {
            AS_RECORDED => "As recorded",
            name => policy(name),
        }
    }
}

impl Replay {
    pub fn new(
        file: &str,
        slots: usize,
        quantum_ms: f64,
        queries: &[Query],
        left_out: usize,
        policies: Vec<Replayed>,
    ) -> Replay {
        let last_ns = queries.iter().map(|q| q.arrived_ns).max().unwrap_or(0);
        Replay {
            format: FORMAT,
            file: file.to_string(),
            slots,
            quantum_ms,
            queries: queries.len(),
            left_out,
            cpu_seconds: queries.iter().map(|q| q.cpu_ns as f64 / 1e9).sum(),
            arrivals_seconds: last_ns as f64 / 1e9,
            policies,
        }
    }

    pub fn lead(&self) -> String {
        format!(
            "{} queries that came within {} s and used {} s of CPU time, on {} slots",
            count(self.queries as u64),
            seconds(self.arrivals_seconds),
            seconds(self.cpu_seconds),
            self.slots
        )
    }

    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = vec![
            format!(
                "simulated in quanta of {} ms; no query waits for the disk or the client",
                self.quantum_ms
            ),
            "small_first is given the true CPU time as its estimate: what it can do at best".into(),
            "slowdown: mean of the time taken ÷ the time with all slots for itself".into(),
        ];
        if self.left_out > 0 {
            remarks.push(format!(
                "left out, because they used no CPU time: {}",
                count(self.left_out as u64)
            ));
        }
        remarks
    }

    /// Both classes with their titles, those that have queries.
    pub fn classes(&self) -> Vec<(String, Vec<(&Replayed, &Class)>)> {
        let short_ms = SHORT_CPU_NS / 1_000_000;
        let of = |class: fn(&Replayed) -> Option<&Class>| -> Vec<(&Replayed, &Class)> {
            self.policies.iter().filter_map(|p| Some((p, class(p)?))).collect()
        };
        let title = |what: String, found: &[(&Replayed, &Class)]| {
            format!("{what}: {}", count(found.first().map_or(0, |(_, class)| class.queries) as u64))
        };
        let (short, long) = (of(|p| p.short.as_ref()), of(|p| p.long.as_ref()));
        let short = (title(format!("Queries of less than {short_ms} ms of CPU"), &short), short);
        let long = (title(format!("Queries of {short_ms} ms of CPU and more"), &long), long);
        [short, long].into_iter().filter(|(_, found)| !found.is_empty()).collect()
    }

    pub fn class_rows(found: &[(&Replayed, &Class)]) -> Vec<Vec<String>> {
        let row = |(policy, class): &(&Replayed, &Class)| {
            vec![
                policy.name().to_string(),
                ms(class.mean_ms),
                ms(class.p50_ms),
                ms(class.p99_ms),
                ms(class.max_ms),
                ratio(class.slowdown),
            ]
        };
        found.iter().map(row).collect()
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |policy: &Replayed| {
            vec![
                policy.name().to_string(),
                ratio(policy.slowdown),
                format!("{:.2}", policy.queries_per_s),
                seconds(policy.makespan_seconds),
            ]
        };
        self.policies.iter().map(row).collect()
    }
}

pub const CLASS_HEADER: [&str; 6] =
    ["Policy", "Mean (ms)", "p50 (ms)", "p99 (ms)", "Max (ms)", "Slowdown"];
pub const HEADER: [&str; 4] = ["Policy", "Slowdown", "Queries per s", "All done (s)"];

pub fn text(replay: &Replay, options: Options) -> String {
    let table =
        |header: &[&str], rows| Table::of(header.iter().map(|h| h.to_string()).collect(), rows);
    let mut sections = vec![format!("{}\n", replay.lead())];
    for (title, found) in replay.classes() {
        let rows = Replay::class_rows(&found);
        sections.push(titled(&title, table(&CLASS_HEADER, rows), options));
    }
    sections.push(titled("All queries", table(&HEADER, replay.rows()), options));
    sections.push(replay.remarks().iter().map(|line| format!("* {line}\n")).collect());
    sections.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn short_and_long_queries_have_tables_of_their_own() {
        let expected = "\
3 queries that came within 0.20 s and used 2.04 s of CPU time, on 2 slots

Queries of less than 100 ms of CPU: 2
Policy      | Mean (ms) | p50 (ms) | p99 (ms) | Max (ms) | Slowdown
------------|-----------|----------|----------|----------|---------
As recorded |      30.0 |     20.0 |     40.0 |     40.0 |    2.50×
Fair        |      15.0 |     10.0 |     20.0 |     20.0 |    1.00×

Queries of 100 ms of CPU and more: 1
Policy      | Mean (ms) | p50 (ms) | p99 (ms) | Max (ms) | Slowdown
------------|-----------|----------|----------|----------|---------
As recorded |   1,000.0 |  1,000.0 |  1,000.0 |  1,000.0 |    1.00×
Fair        |   2,000.0 |  2,000.0 |  2,000.0 |  2,000.0 |    2.00×

All queries
Policy      | Slowdown | Queries per s | All done (s)
------------|----------|---------------|-------------
As recorded |    2.00× |          3.00 |         1.00
Fair        |    1.33× |          1.50 |         2.00

* simulated in quanta of 2 ms; no query waits for the disk or the client
* small_first is given the true CPU time as its estimate: what it can do at best
* slowdown: mean of the time taken ÷ the time with all slots for itself
* left out, because they used no CPU time: 1
";
        let text = text(&sample::replay(), Options::default());
        assert!(text == expected, "{text}");
    }

    #[test]
    fn a_record_of_short_queries_alone_has_no_table_of_long_ones() {
        let query = Query { arrived_ns: 0, cpu_ns: 1_000_000, tasks: 9 };
        let played = Replayed::new("fifo", &[query], vec![0.5], 2);
        assert_eq!((played.slowdown, played.long.as_ref()), (1.0, None));
        let replay = Replay::new("a", 2, 2.0, &[query], 0, vec![played]);
        assert_eq!(replay.classes().len(), 1);
    }
}
