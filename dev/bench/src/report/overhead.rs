//! What the scheduler costs one stream: the model and its text.

use serde::{Deserialize, Serialize};

use super::figures::{ms, ratio, timing};
use super::interleaved::{SumRatio, sums_of_medians};
use super::model::{Timing, geometric_mean, quotient};
use super::text::{Options, Table, titled};

/// One suite, each query with the scheduler and without it, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// `TPC-H SF 1`.
    pub data: String,
    pub runs: usize,
    pub queries: Vec<QueryOverhead>,
    /// Sums of the medians.
    pub scheduled_ms: f64,
    pub unscheduled_ms: f64,
    /// Below 1, the scheduler costs time.
    #[serde(flatten)]
    pub sum: SumRatio,
    pub geometric_mean_ratio: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryOverhead {
    pub query: String,
    pub scheduled: Timing,
    pub unscheduled: Timing,
    /// Median without the scheduler divided by that with it.
    pub ratio: f64,
}

impl QueryOverhead {
    pub fn new(query: &str, scheduled: Timing, unscheduled: Timing) -> QueryOverhead {
        let ratio = quotient(unscheduled.median_ms, scheduled.median_ms);
        QueryOverhead { query: query.to_string(), scheduled, unscheduled, ratio }
    }
}

impl Overhead {
    pub fn new(data: String, runs: usize, queries: Vec<QueryOverhead>) -> Overhead {
        let times: Vec<_> = queries.iter().map(|q| [&q.scheduled, &q.unscheduled]).collect();
        let [scheduled_ms, unscheduled_ms] = sums_of_medians(&times);
        Overhead {
            data,
            runs,
            scheduled_ms,
            unscheduled_ms,
            sum: SumRatio::new(&times, runs),
            geometric_mean_ratio: geometric_mean(queries.iter().map(|q| q.ratio)).unwrap_or(0.0),
            queries,
        }
    }

    pub fn title(&self) -> String {
        format!("{}, one stream, with the scheduler and without it", self.data)
    }

    pub fn legend(&self) -> String {
        "Ratio: below 1, the scheduler costs time; above 1, the query is faster with it".to_string()
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |q: &QueryOverhead| {
            vec![q.query.clone(), timing(&q.scheduled), timing(&q.unscheduled), ratio(q.ratio)]
        };
        self.queries.iter().map(row).collect()
    }

    pub fn totals(&self) -> [Vec<String>; 2] {
        [
            vec![
                "Sum of medians".into(),
                ms(self.scheduled_ms),
                ms(self.unscheduled_ms),
                ratio(self.sum.ratio),
            ],
            vec![
                "Geometric mean".into(),
                String::new(),
                String::new(),
                ratio(self.geometric_mean_ratio),
            ],
        ]
    }

    pub fn remark(&self) -> String {
        self.sum.remark(self.runs)
    }
}

pub const HEADER: [&str; 4] = ["Query", "Scheduled (ms)", "Unscheduled (ms)", "Ratio"];

pub fn text(overhead: &Overhead, options: Options) -> String {
    let mut table = Table::new(&HEADER);
    overhead.rows().into_iter().for_each(|row| table.row(row));
    table.rule();
    overhead.totals().into_iter().for_each(|row| table.row(row));
    let title = format!("{}\n{}", overhead.title(), overhead.legend());
    titled(&title, table, options) + &format!("* {}\n", overhead.remark())
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
}
