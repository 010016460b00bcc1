//! Queries that need far more memory than there is: the model and its text.

use serde::{Deserialize, Serialize};
use thalweg_base::text::{bytes, count};

use super::figures::{ratio, seconds};
use super::model::quotient;
use super::text::{Options, Table, titled};

/// The part of a limit that the cache of decoded chunks gets.
const CACHE_SHARE: u64 = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryRun {
    pub limits: Limits,
    #[serde(flatten)]
    pub totals: Totals,
    /// All of the queries', and as a multiple of the limit.
    pub working_sets_bytes: u64,
    pub working_sets_to_limit: f64,
    /// The process's peak as a multiple of the limit.
    pub rss_to_limit: f64,
    pub right: usize,
    pub wrong: usize,
    pub failed: usize,
    pub queries: Vec<MemoryQuery>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// In all.
    pub bytes: u64,
    /// Of that, for the cache of decoded chunks; the rest is for joins, groups and sorts.
    pub cache_bytes: u64,
}

impl Limits {
    /// Of what an engine is allowed in all.
    pub fn new(bytes: u64) -> Limits {
        Limits { bytes, cache_bytes: bytes / CACHE_SHARE }
    }

    pub fn query_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.cache_bytes)
    }

    pub fn remark(&self) -> String {
        format!(
            "limit {}: {} for joins, groups and sorts, {} for the cache of decoded chunks; the \
             program and batches on their way are not in it",
            bytes(self.bytes),
            bytes(self.query_bytes()),
            bytes(self.cache_bytes)
        )
    }
}

/// Of the run of all queries at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Until the last query ended.
    pub seconds: f64,
    /// Of the process, before the first query.
    pub rss_before_bytes: u64,
    /// Of the process, while they ran.
    pub rss_peak_bytes: u64,
    /// The most that was reserved at a time.
    pub held_peak_bytes: u64,
    /// The most that lay in spill files at a time.
    pub spill_peak_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Aggregate,
    Join,
    Sort,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Aggregate, Kind::Join, Kind::Sort];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Aggregate => "aggregate",
            Kind::Join => "join",
            Kind::Sort => "sort",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryQuery {
    pub kind: Kind,
    pub sql: String,
    /// The most that it had reserved when it ran alone, without a limit.
    pub working_set_bytes: u64,
    pub rows: u64,
    pub alone_seconds: f64,
    /// Beside the others, from the common start.
    pub seconds: f64,
    /// Its answer is that of the run alone.
    pub right: bool,
    /// Why it has no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl MemoryRun {
    pub fn new(limits: Limits, totals: Totals, queries: Vec<MemoryQuery>) -> MemoryRun {
        let working_sets_bytes = queries.iter().map(|q| q.working_set_bytes).sum();
        let to_limit = |value: u64| quotient(value as f64, limits.bytes as f64);
        let right = queries.iter().filter(|q| q.right).count();
        let failed = queries.iter().filter(|q| q.error.is_some()).count();
        MemoryRun {
            limits,
            totals,
            working_sets_bytes,
            working_sets_to_limit: to_limit(working_sets_bytes),
            rss_to_limit: to_limit(totals.rss_peak_bytes),
            right,
            wrong: queries.len() - right - failed,
            failed,
            queries,
        }
    }

    pub fn title(&self) -> String {
        format!(
            "{} queries at once whose working sets are {} the limit",
            self.queries.len(),
            ratio(self.working_sets_to_limit)
        )
    }

    /// One for each kind of query, and all together.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |name: &str, queries: Vec<&MemoryQuery>| {
            let sum = |f: &dyn Fn(&MemoryQuery) -> f64| queries.iter().map(|q| f(q)).sum::<f64>();
            let slowest = queries.iter().map(|q| q.seconds).fold(0.0, f64::max);
            let right = queries.iter().filter(|q| q.right).count();
            let failed = queries.iter().filter(|q| q.error.is_some()).count();
            vec![
                name.to_string(),
                queries.len().to_string(),
                bytes(queries.iter().map(|q| q.working_set_bytes).sum()),
                seconds(sum(&|q| q.alone_seconds)),
                seconds(slowest),
                right.to_string(),
                (queries.len() - right - failed).to_string(),
                failed.to_string(),
            ]
        };
        let of = |kind| self.queries.iter().filter(|q| q.kind == kind).collect::<Vec<_>>();
        let kinds = Kind::ALL.into_iter().map(|kind| (kind.name(), of(kind)));
        let kinds = kinds.filter(|(_, queries)| !queries.is_empty());
        let all = ("all", self.queries.iter().collect());
        kinds.chain([all]).map(|(name, queries)| row(name, queries)).collect()
    }

    pub fn remarks(&self) -> Vec<String> {
        let t = &self.totals;
        let mut remarks = vec![
            "working set: the most that a query had reserved when it ran alone without a limit"
                .into(),
            self.limits.remark(),
            format!(
                "resident memory of the process: {} before, {} at most: {} the limit",
                bytes(t.rss_before_bytes),
                bytes(t.rss_peak_bytes),
                ratio(self.rss_to_limit)
            ),
            format!(
                "reserved at most {}; in spill files at most {}",
                bytes(t.held_peak_bytes),
                bytes(t.spill_peak_bytes)
            ),
        ];
        remarks.extend(
            self.errors()
                .into_iter()
                .map(|(text, times)| format!("failed, {}: {text}", count(times as u64))),
        );
        remarks
    }

    /// The first line of each error, and how many queries have it. Errors that differ in numbers
    /// alone are one: when memory runs out, no two ask for as much. The JSON has all texts.
    fn errors(&self) -> Vec<(&str, usize)> {
        let mut errors: Vec<(String, &str, usize)> = vec![];
        for error in self.queries.iter().filter_map(|q| q.error.as_deref()) {
            let line = error.lines().next().unwrap_or_default();
            let key: String = line.chars().filter(|c| !c.is_ascii_digit()).collect();
            match errors.iter_mut().find(|(known, ..)| *known == key) {
                Some((.., times)) => *times += 1,
                None => errors.push((key, line, 1)),
            }
        }
        errors.into_iter().map(|(_, line, times)| (line, times)).collect()
    }
}

pub const HEADER: [&str; 8] =
    ["Queries", "", "Working sets", "Alone (s)", "At once (s)", "Right", "Wrong", "Failed"];

pub fn text(run: &MemoryRun, options: Options) -> String {
    let mut table = Table::new(&HEADER);
    let mut rows = run.rows();
    let all = rows.pop();
    rows.into_iter().for_each(|row| table.row(row));
    table.rule();
    all.into_iter().for_each(|row| table.row(row));
    let remarks: String = run.remarks().iter().map(|line| format!("* {line}\n")).collect();
    titled(&run.title(), table, options) + &remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn failures_and_wrong_answers_are_told_apart() {
        let run = sample::memory();
        assert_eq!((run.right, run.wrong, run.failed), (3, 1, 2));
        let expected = "\
6 queries at once whose working sets are 12.0× the limit
Queries   |   | Working sets | Alone (s) | At once (s) | Right | Wrong | Failed
----------|---|--------------|-----------|-------------|-------|-------|-------
aggregate | 2 |    200.0 MiB |      2.00 |       10.00 |     2 |     0 |      0
join      | 2 |    200.0 MiB |      2.00 |       10.00 |     0 |     0 |      2
sort      | 2 |    200.0 MiB |      2.00 |       10.00 |     1 |     1 |      0
----------|---|--------------|-----------|-------------|-------|-------|-------
all       | 6 |    600.0 MiB |      6.00 |       10.00 |     3 |     1 |      2
* working set: the most that a query had reserved when it ran alone without a limit
* limit 50.0 MiB: 37.5 MiB for joins, groups and sorts, 12.5 MiB for the cache of decoded chunks; the program and batches on their way are not in it
* resident memory of the process: 20.0 MiB before, 55.0 MiB at most: 1.10× the limit
* reserved at most 37.0 MiB; in spill files at most 400.0 MiB
* failed, 2: 1 MB of memory are <not> left
";
        let text = text(&run, Options::default());
        assert!(text == expected, "{text}");
    }
}
