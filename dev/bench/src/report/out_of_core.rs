//! What it costs to have little memory: the model and its text.

use serde::{Deserialize, Serialize};
use thalweg_base::text::bytes;

use super::figures::{ms, ratio, timing};
use super::interleaved::{SumRatio, sums_of_medians};
use super::memory::Limits;
use super::model::{Timing, quotient};
use super::text::{Options, Table, titled};

/// One suite, each query within a limit and without it, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutOfCore {
    /// `TPC-H SF 1`.
    pub data: String,
    pub runs: usize,
    pub limits: Limits,
    /// Those that have an answer within the limit.
    pub queries: Vec<QueryOutOfCore>,
    /// Sums of the medians.
    pub limited_ms: f64,
    pub unlimited_ms: f64,
    /// How many times as long they take within the limit.
    #[serde(flatten)]
    pub sum: SumRatio,
    /// Queries, and how many of their answers are equal within the limit and without it.
    pub asked: usize,
    pub equal: usize,
    /// A line for each query whose answer differs or is missing.
    pub wrong: Vec<String>,
    /// The most memory that the process of each engine held at a time, whatever for; 0 where the
    /// system does not say.
    pub unlimited_resident_bytes: u64,
    pub limited_resident_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryOutOfCore {
    pub query: String,
    pub limited: Timing,
    pub unlimited: Timing,
    /// Median within the limit divided by that without it.
    pub ratio: f64,
    /// The most that was reserved within the limit at a time.
    pub held_peak_bytes: u64,
    /// The most that lay in spill files at a time.
    pub spill_peak_bytes: u64,
}

impl QueryOutOfCore {
    pub fn new(
        query: &str,
        limited: Timing,
        unlimited: Timing,
        held_peak_bytes: u64,
        spill_peak_bytes: u64,
    ) -> QueryOutOfCore {
        QueryOutOfCore {
            query: query.to_string(),
            ratio: quotient(limited.median_ms, unlimited.median_ms),
            limited,
            unlimited,
            held_peak_bytes,
            spill_peak_bytes,
        }
    }
}

impl OutOfCore {
    /// `wrong`: a line for each of the `asked` queries whose answer differs or is missing.
    pub fn new(
        data: String,
        runs: usize,
        limits: Limits,
        queries: Vec<QueryOutOfCore>,
        asked: usize,
        wrong: Vec<String>,
        [unlimited_resident_bytes, limited_resident_bytes]: [u64; 2],
    ) -> OutOfCore {
        let times: Vec<_> = queries.iter().map(|q| [&q.unlimited, &q.limited]).collect();
        let [unlimited_ms, limited_ms] = sums_of_medians(&times);
        OutOfCore {
            data,
            runs,
            limits,
            limited_ms,
            unlimited_ms,
            sum: SumRatio::new(&times, runs),
            asked,
            equal: asked - wrong.len(),
            wrong,
            queries,
            unlimited_resident_bytes,
            limited_resident_bytes,
        }
    }

    pub fn title(&self) -> String {
        let limit = bytes(self.limits.bytes);
        format!("{}, one stream, within {limit} and without that limit", self.data)
    }

    pub fn legend(&self) -> String {
        "Times as long: within the limit ÷ without it; held and spilled: the most at a time within \
         the limit"
            .to_string()
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |q: &QueryOutOfCore| {
            vec![
                q.query.clone(),
                timing(&q.limited),
                timing(&q.unlimited),
                ratio(q.ratio),
                bytes(q.held_peak_bytes),
                bytes(q.spill_peak_bytes),
            ]
        };
        self.queries.iter().map(row).collect()
    }

    pub fn total(&self) -> Vec<String> {
        vec![
            "Sum of medians".into(),
            ms(self.limited_ms),
            ms(self.unlimited_ms),
            ratio(self.sum.ratio),
            String::new(),
            String::new(),
        ]
    }

    pub fn remarks(&self) -> Vec<String> {
        vec![
            self.sum.remark(self.runs),
            self.limits.remark(),
            format!(
                "resident at most: {} within the limit, {} without it; each in a process of its own",
                bytes(self.limited_resident_bytes),
                bytes(self.unlimited_resident_bytes)
            ),
            "held: reserved for joins, groups and sorts; spilled: in spill files".into(),
            format!(
                "{} of {} answers are equal within the limit and without it",
                self.equal, self.asked
            ),
        ]
    }
}

pub const HEADER: [&str; 6] =
    ["Query", "Limited (ms)", "Unlimited (ms)", "Times as long", "Held", "Spilled"];

pub fn text(run: &OutOfCore, options: Options) -> String {
    let mut table = Table::new(&HEADER);
    run.rows().into_iter().for_each(|row| table.row(row));
    table.rule();
    table.row(run.total());
    let remarks = run.remarks().into_iter().map(|line| format!("* {line}\n"));
    let wrong = run.wrong.iter().map(|line| format!("! {line}\n"));
    let lines: String = remarks.chain(wrong).collect();
    titled(&format!("{}\n{}", run.title(), run.legend()), table, options) + &lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_query_without_an_answer_has_no_times_but_is_named() {
        let expected = "\
TPC-H SF 1, one stream, within 1.0 GiB and without that limit
Times as long: within the limit ÷ without it; held and spilled: the most at a time within the limit
Query          | Limited (ms) | Unlimited (ms) | Times as long |      Held | Spilled
---------------|--------------|----------------|---------------|-----------|--------
Q1             |  100.0 ±10 % |    100.0  ±5 % |         1.00× |   2.0 MiB |     0 B
Q9             |  600.0 ±10 % |    300.0  ±5 % |         2.00× | 700.0 MiB | 2.0 GiB
---------------|--------------|----------------|---------------|-----------|--------
Sum of medians |        700.0 |          400.0 |         1.75× |           |
* ratio of the sums in single runs: 1.66× to 1.83×, 3 runs
* limit 1.0 GiB: 768.0 MiB for joins, groups and sorts, 256.0 MiB for the cache of decoded chunks; the program and batches on their way are not in it
* resident at most: 1.2 GiB within the limit, 4.0 GiB without it; each in a process of its own
* held: reserved for joins, groups and sorts; spilled: in spill files
* 2 of 3 answers are equal within the limit and without it
! Q18: no answer within the limit: <not> enough memory
";
        let text = text(&sample::out_of_core(), Options::default());
        assert!(text == expected, "{text}");
    }

    #[test]
    fn no_answer_at_all_is_no_infinity() {
        let wrong = vec!["Q1: no answer within the limit".into()];
        let limits = Limits::new(1 << 30);
        let run = OutOfCore::new("SSB SF 1".into(), 3, limits, vec![], 1, wrong, [0; 2]);
        let SumRatio { ratio, ratio_low, ratio_high } = run.sum;
        assert_eq!((run.equal, ratio, ratio_low, ratio_high), (0, 0.0, 0.0, 0.0));
    }
}
