//! One stream on two variants of the engine, in turn: the model and its text.

use serde::{Deserialize, Serialize};

use super::figures::{ms, ratio, timing};
use super::interleaved::{SumRatio, sums_of_medians};
use super::model::{Timing, geometric_mean, median, quotient};
use super::text::{Options, Table, titled};

/// Of what takes longer on one thread, more threads are to make something.
const LONG_MS: f64 = 20.0;

/// Cores that share a cache pass a line in less.
const NEAR_NS: f64 = 80.0;

/// Cores are near in some runs and far in others only if a line takes so many times as long; else they
/// are always the one or the other, and the line's time varies.
const APART_MIN: f64 = 2.0;

/// Runs of each query, at least, for a table to tell those apart in which cores were near or far.
const RUNS_APART_MIN: usize = 3;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Tasks that the scheduler grants slots to, and tasks that run as soon as they can.
    Scheduler,
    /// So many threads, and one.
    Threads { threads: usize },
    /// So many engines of one thread each at the same time, and one alone. A time of the former is
    /// the mean of theirs, divided by their number.
    Engines { count: usize },
}

/// One suite, each query on both variants, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variants {
    /// `TPC-H SF 1`.
    pub data: String,
    pub what: What,
    pub runs: usize,
    pub queries: Vec<QueryVariants>,
    /// Sums of the medians.
    pub first_ms: f64,
    pub second_ms: f64,
    #[serde(flatten)]
    pub sum: SumRatio,
    pub geometric_mean_ratio: f64,
    /// What the machine gave plain loops meanwhile, of `What::Threads`.
    #[serde(default)]
    pub machine: Vec<Yardstick>,
}

/// How many times as fast a plain loop was on all threads, each of which did all of its work, as on one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yardstick {
    /// `reading in a row`.
    pub name: String,
    pub ratio: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryVariants {
    pub query: String,
    pub first: Timing,
    pub second: Timing,
    /// Median of the second variant divided by that of the first.
    pub ratio: f64,
    /// What a cache line took from core to core before each run, of `What::Threads` and
    /// `What::Engines`.
    #[serde(default)]
    pub distances_ns: Vec<f64>,
}

impl QueryVariants {
    pub fn new(query: &str, [first, second]: [Timing; 2], distances_ns: Vec<f64>) -> QueryVariants {
        let ratio = quotient(second.median_ms, first.median_ms);
        QueryVariants { query: query.to_string(), first, second, ratio, distances_ns }
    }

    /// Medians of both variants in the runs in which cores were near, or far, if these are enough.
    fn at(&self, near: bool) -> Option<[f64; 2]> {
        let runs = self.distances_ns.iter().map(|ns| (*ns < NEAR_NS) == near);
        let of = |timing: &Timing| {
            let runs = timing.runs_ms.iter().zip(runs.clone()).filter(|(_, at)| *at);
            let ms: Vec<f64> = runs.map(|(ms, _)| *ms).collect();
            median(&ms).filter(|_| ms.len() >= RUNS_APART_MIN)
        };
        Some([of(&self.first)?, of(&self.second)?])
    }

    fn ratio_at(&self, near: bool) -> Option<f64> {
        self.at(near).map(|[first, second]| quotient(second, first))
    }
}

/// The queries in the runs in which cores were near, or far.
struct Apart {
    name: &'static str,
    distance_ns: f64,
    /// Of all runs.
    share: f64,
    ratio: f64,
}

impl Variants {
    pub fn new(data: String, what: What, runs: usize, queries: Vec<QueryVariants>) -> Variants {
        let times: Vec<_> = queries.iter().map(|q| [&q.first, &q.second]).collect();
        let [first_ms, second_ms] = sums_of_medians(&times);
        Variants {
            data,
            what,
            runs,
            first_ms,
            second_ms,
            sum: SumRatio::new(&times, runs),
            geometric_mean_ratio: geometric_mean(queries.iter().map(|q| q.ratio)).unwrap_or(0.0),
            queries,
            machine: Vec::new(),
        }
    }

    pub fn title(&self) -> String {
        match self.what {
            What::Scheduler => {
                format!("{}, one stream, with the scheduler and without it", self.data)
            }
            What::Threads { threads } => {
                format!("{}, one stream, on {threads} threads and on one", self.data)
            }
            What::Engines { count } => {
                format!("{}, {count} engines of one thread each at once, and one alone", self.data)
            }
        }
    }

    pub fn intro(&self) -> &'static str {
        match self.what {
            What::Scheduler => {
                "The same queries on two engines over one database, query by query in turn; in one \
                 of them tasks run as soon as they can."
            }
            What::Threads { .. } => {
                "The same queries on two engines over one database, query by query in turn; one of \
                 them has one thread."
            }
            What::Engines { .. } => {
                "The same queries on one engine with one thread, and on some at the same time, query \
                 by query in turn. These share nothing but the machine: what they gain is what it \
                 gives."
            }
        }
    }

    /// What is divided by what.
    pub fn quotient(&self) -> &'static str {
        match self.what {
            What::Scheduler => "Without the scheduler ÷ with it",
            What::Threads { .. } => "On one thread ÷ on all",
            What::Engines { .. } => "Alone ÷ at once",
        }
    }

    /// What a ratio below 1 means, and one above.
    pub fn sides(&self) -> [&'static str; 2] {
        match self.what {
            What::Scheduler => ["slower with it", "faster with it"],
            What::Threads { .. } => ["slower on all", "faster on all"],
            What::Engines { .. } => ["slower at once", "faster at once"],
        }
    }

    pub fn legend(&self) -> &'static str {
        match self.what {
            What::Scheduler => {
                "Ratio: below 1, the scheduler costs time; above 1, the query is faster with it"
            }
            What::Threads { .. } => "Ratio: how many times as long the query takes on one thread",
            What::Engines { .. } => {
                "Times on several engines: their mean, divided by how many of them run the query"
            }
        }
    }

    pub fn header(&self) -> Vec<String> {
        let [first, second] = match self.what {
            What::Scheduler => ["Scheduled".to_string(), "Unscheduled".to_string()],
            What::Threads { threads } => [format!("{threads} threads"), "1 thread".to_string()],
            What::Engines { count } => [format!("{count} engines"), "1 engine".to_string()],
        };
        let apart = self.apart();
        ["Query".into(), format!("{first} (ms)"), format!("{second} (ms)"), "Ratio".into()]
            .into_iter()
            .chain(apart.iter().map(|apart| apart.name.into()))
            .collect()
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        let apart = !self.apart().is_empty();
        let row = |q: &QueryVariants| {
            let mut row =
                vec![q.query.clone(), timing(&q.first), timing(&q.second), ratio(q.ratio)];
            let at = |near| q.ratio_at(near).map_or(String::new(), ratio);
            row.extend([true, false].into_iter().filter(|_| apart).map(at));
            row
        };
        self.queries.iter().map(row).collect()
    }

    pub fn totals(&self) -> [Vec<String>; 2] {
        let apart = self.apart();
        let sums =
            ["Sum of medians".into(), ms(self.first_ms), ms(self.second_ms), ratio(self.sum.ratio)];
        let means = [
            "Geometric mean".into(),
            String::new(),
            String::new(),
            ratio(self.geometric_mean_ratio),
        ];
        [
            sums.into_iter().chain(apart.iter().map(|apart| ratio(apart.ratio))).collect(),
            means.into_iter().chain(apart.iter().map(|_| String::new())).collect(),
        ]
    }

    /// Near and far, if cores were both and there were enough runs of each; else nothing.
    fn apart(&self) -> Vec<Apart> {
        let all: Vec<f64> =
            self.queries.iter().flat_map(|q| q.distances_ns.iter().copied()).collect();
        let of = |near: bool| {
            let times = self.queries.iter().map(|q| q.at(near)).collect::<Option<Vec<_>>>()?;
            let [first, second] = [0, 1].map(|which| times.iter().map(|ms| ms[which]).sum::<f64>());
            let own: Vec<f64> = all.iter().copied().filter(|ns| (*ns < NEAR_NS) == near).collect();
            Some(Apart {
                name: if near { "Near" } else { "Far" },
                distance_ns: median(&own)?,
                share: own.len() as f64 / all.len() as f64,
                ratio: quotient(second, first),
            })
        };
        match [of(true), of(false)] {
            [Some(near), Some(far)] if far.distance_ns >= APART_MIN * near.distance_ns => {
                vec![near, far]
            }
            _ => Vec::new(),
        }
    }

    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = vec![self.sum.remark(self.runs)];
        if self.what != What::Scheduler {
            let long = self.queries.iter().filter(|q| q.second.median_ms > LONG_MS);
            let least = long.clone().min_by(|a, b| a.ratio.total_cmp(&b.ratio));
            remarks.extend(least.map(|q| {
                let count = long.count();
                format!(
                    "{count} of {} take more than {LONG_MS} ms on one thread; of these the least \
                     ratio is {} ({})",
                    self.queries.len(),
                    ratio(q.ratio),
                    q.query
                )
            }));
        }
        let all = self.queries.iter().flat_map(|q| q.distances_ns.iter().copied());
        let distance = match &self.apart()[..] {
            [near, far] => Some(format!("{}, and {}", near.remark(), far.remark())),
            _ => median(&all.collect::<Vec<_>>()).map(|ns| format!("in {ns:.0} ns, by the median")),
        };
        remarks.extend(distance.map(|ns| format!("a cache line passed from core to core {ns}")));
        if !self.machine.is_empty() {
            let each = self.machine.iter().map(|y| format!("{} {}", y.name, ratio(y.ratio)));
            let each: Vec<_> = each.collect();
            remarks
                .push(format!("what the machine gave plain loops meanwhile: {}", each.join(", ")));
        }
        remarks
    }
}

impl Apart {
    fn remark(&self) -> String {
        let Apart { name, distance_ns, share, .. } = self;
        let (name, percent) = (name.to_lowercase(), share * 100.0);
        format!("in {distance_ns:.0} ns before {percent:.0} % of the runs ({name})")
    }
}

pub fn text(variants: &Variants, options: Options) -> String {
    let header = variants.header();
    let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>());
    variants.rows().into_iter().for_each(|row| table.row(row));
    table.rule();
    variants.totals().into_iter().for_each(|row| table.row(row));
    let title = format!("{}\n{}", variants.title(), variants.legend());
    let remarks = variants.remarks().into_iter().map(|remark| format!("* {remark}\n"));
    titled(&title, table, options) + &remarks.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_ratio_is_of_sums_and_its_range_of_single_runs() {
        let expected = "\
TPC-H SF 1, one stream, with the scheduler and without it
Ratio: below 1, the scheduler costs time; above 1, the query is faster with it
Query          | Scheduled (ms) | Unscheduled (ms) | Ratio
---------------|----------------|------------------|------
Q1             |    200.0  ±5 % |      190.0 ±10 % | 0.95×
Q6             |     50.0  ±5 % |       55.0 ±10 % | 1.10×
---------------|----------------|------------------|------
Sum of medians |          250.0 |            245.0 | 0.98×
Geometric mean |                |                  | 1.02×
* ratio of the sums in single runs: 0.93× to 1.03×, 3 runs
";
        assert_eq!(text(&sample::overhead(), Options::default()), expected);
    }

    #[test]
    fn of_threads_the_least_gain_of_a_long_query_is_named() {
        let expected = "\
TPC-H SF 1, one stream, on 2 threads and on one
Ratio: how many times as long the query takes on one thread
Query          | 2 threads (ms) | 1 thread (ms) | Ratio
---------------|----------------|---------------|------
Q1             |    100.0  ±5 % |   190.0 ±10 % | 1.90×
Q6             |     50.0  ±5 % |    80.0 ±10 % | 1.60×
Q11            |     10.0  ±5 % |    11.0 ±10 % | 1.10×
---------------|----------------|---------------|------
Sum of medians |          160.0 |         281.0 | 1.76×
Geometric mean |                |               | 1.50×
* ratio of the sums in single runs: 1.66× to 1.84×, 3 runs
* 2 of 3 take more than 20 ms on one thread; of these the least ratio is 1.60× (Q6)
* what the machine gave plain loops meanwhile: multiplying 1.99×, reading 256 MiB in a row 1.60×
";
        assert_eq!(text(&sample::scaling(), Options::default()), expected);
    }

    #[test]
    fn runs_with_cores_near_each_other_are_told_from_those_with_cores_far() {
        let found = text(&sample::near_or_far([35.0, 170.0]), Options::default());
        let expected = "\
TPC-H SF 1, one stream, on 2 threads and on one
Ratio: how many times as long the query takes on one thread
Query          | 2 threads (ms) | 1 thread (ms) | Ratio |  Near |   Far
---------------|----------------|---------------|-------|-------|------
Q1             |    110.0  ±9 % |   190.0  ±0 % | 1.73× | 1.90× | 1.58×
Q6             |     55.0  ±9 % |    90.0  ±0 % | 1.64× | 1.80× | 1.50×
Q11            |     11.0  ±9 % |    11.0  ±0 % | 1.00× | 1.10× | 0.92×
---------------|----------------|---------------|-------|-------|------
Sum of medians |          176.0 |         291.0 | 1.65× | 1.82× | 1.52×
Geometric mean |                |               | 1.41× |       |
* ratio of the sums in single runs: 1.52× to 1.82×, 6 runs
* 2 of 3 take more than 20 ms on one thread; of these the least ratio is 1.64× (Q6)
* a cache line passed from core to core in 35 ns before 50 % of the runs (near), and in 170 ns before \
50 % of the runs (far)
";
        assert_eq!(found, expected);
        let found = text(&sample::near_or_far([70.0, 86.0]), Options::default());
        assert!(found.contains("| 1 thread (ms) | Ratio\n"), "{found}");
        assert!(found.contains("passed from core to core in 78 ns, by the median"), "{found}");
    }

    #[test]
    fn engines_that_share_nothing_have_the_same_table() {
        let expected = "\
TPC-H SF 1, 2 engines of one thread each at once, and one alone
Times on several engines: their mean, divided by how many of them run the query
Query          | 2 engines (ms) | 1 engine (ms) | Ratio
---------------|----------------|---------------|------
Q1             |    100.0  ±5 % |   190.0 ±10 % | 1.90×
Q11            |     10.0  ±5 % |    11.0 ±10 % | 1.10×
---------------|----------------|---------------|------
Sum of medians |          110.0 |         201.0 | 1.83×
Geometric mean |                |               | 1.45×
* ratio of the sums in single runs: 1.73× to 1.91×, 3 runs
* 1 of 2 take more than 20 ms on one thread; of these the least ratio is 1.90× (Q1)
";
        assert_eq!(text(&sample::engines(), Options::default()), expected);
    }
}
