//! How long a query that is stopped goes on holding slots and memory: the model and its text.

use serde::{Deserialize, Serialize};

use super::figures::ms;
use super::model::percentile;
use super::text::{Options, Table, titled};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cancels {
    /// In the order they were made.
    pub cancels: Vec<Cancelled>,
    /// Queries that had ended before their moment came; another moment was tried.
    pub missed: usize,
    /// Between two looks: no time is more exact.
    pub sample_ms: f64,
    pub ways: Vec<WayCancelled>,
    /// All ways together.
    pub all: WayCancelled,
    pub queries: Vec<QueryCancelled>,
}

/// How a query is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The client leaves: the answer is dropped.
    Drop,
    /// The client asks, as Ctrl-C does.
    Cancel,
    /// Another session's `KILL`; its own run is counted.
    Kill,
    Timeout,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::Drop, Way::Cancel, Way::Kill, Way::Timeout];

    pub fn name(self) -> &'static str {
        match self {
            Way::Drop => "drop",
            Way::Cancel => "cancel",
            Way::Kill => "KILL",
            Way::Timeout => "timeout",
        }
    }
}

/// One query that was stopped. The times are from then on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cancelled {
    pub query: String,
    pub way: Way,
    /// Since the query began.
    pub at_ms: f64,
    /// Until it held no slot any more.
    pub slots_ms: f64,
    /// Until it was gone and had returned all memory.
    pub memory_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WayCancelled {
    pub way: String,
    pub count: usize,
    pub slots: Quantiles,
    pub memory: Quantiles,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryCancelled {
    pub query: String,
    pub solo_ms: f64,
    pub count: usize,
    pub slots_max_ms: f64,
    pub memory_max_ms: f64,
}

impl Quantiles {
    fn new(mut values: Vec<f64>) -> Quantiles {
        values.sort_by(f64::total_cmp);
        let of = |percent| percentile(&values, percent).unwrap_or(0.0);
        Quantiles { p50_ms: of(50), p90_ms: of(90), p99_ms: of(99), max_ms: of(100) }
    }

    fn cells(&self) -> [String; 4] {
        [self.p50_ms, self.p90_ms, self.p99_ms, self.max_ms].map(ms)
    }
}

impl Cancels {
    /// `solo`: each query's name and time alone.
    pub fn new(
        cancels: Vec<Cancelled>,
        missed: usize,
        sample_ms: f64,
        solo: Vec<(String, f64)>,
    ) -> Cancels {
        let group = |name: &str, of: &dyn Fn(&&Cancelled) -> bool| {
            let chosen = || cancels.iter().filter(of);
            WayCancelled {
                way: name.to_string(),
                count: chosen().count(),
                slots: Quantiles::new(chosen().map(|c| c.slots_ms).collect()),
                memory: Quantiles::new(chosen().map(|c| c.memory_ms).collect()),
            }
        };
        let ways = Way::ALL.map(|way| group(way.name(), &|c| c.way == way)).to_vec();
        let all = group("All", &|_| true);
        let queries = solo.into_iter().map(|(query, solo_ms)| {
            let WayCancelled { count, slots, memory, .. } = group("", &|c| c.query == query);
            let (slots_max_ms, memory_max_ms) = (slots.max_ms, memory.max_ms);
            QueryCancelled { query, solo_ms, count, slots_max_ms, memory_max_ms }
        });
        let queries = queries.collect();
        Cancels { missed, sample_ms, ways, all, queries, cancels }
    }

    pub fn title(&self) -> String {
        "Queries stopped at random moments: ms until nothing is held".to_string()
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        let ways = self.ways.iter().filter(|way| way.count > 0);
        ways.map(WayCancelled::row).collect()
    }

    pub fn query_rows(&self) -> Vec<Vec<String>> {
        let row = |q: &QueryCancelled| {
            vec![
                q.query.clone(),
                ms(q.solo_ms),
                q.count.to_string(),
                ms(q.slots_max_ms),
                ms(q.memory_max_ms),
            ]
        };
        self.queries.iter().filter(|q| q.count > 0).map(row).collect()
    }

    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = vec![format!(
            "slots: until the last is free; memory: until all is returned; looked at every {} ms",
            self.sample_ms
        )];
        if self.missed > 0 {
            remarks.push(format!(
                "{} queries ended before their moment; another was tried",
                self.missed
            ));
        }
        remarks
    }
}

impl WayCancelled {
    pub fn row(&self) -> Vec<String> {
        let mut row = vec![self.way.clone(), self.count.to_string()];
        row.extend(self.slots.cells());
        row.extend(self.memory.cells());
        row
    }
}

pub const HEADER: [&str; 10] =
    ["Stopped by", "Times", "Slots p50", "p90", "p99", "Max", "Memory p50", "p90", "p99", "Max"];

pub const QUERY_HEADER: [&str; 5] = ["Query", "Alone (ms)", "Times", "Slots max", "Memory max"];

pub fn text(cancels: &Cancels, options: Options) -> String {
    let mut ways = Table::new(&HEADER);
    cancels.rows().into_iter().for_each(|row| ways.row(row));
    ways.rule();
    ways.row(cancels.all.row());
    let mut queries = Table::new(&QUERY_HEADER);
    cancels.query_rows().into_iter().for_each(|row| queries.row(row));
    let remarks: String = cancels.remarks().iter().map(|line| format!("* {line}\n")).collect();
    format!(
        "{}{remarks}\n{}",
        titled(&cancels.title(), ways, options),
        titled("The longest of each query, in ms", queries, options)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn each_way_has_its_percentiles_and_each_query_its_worst() {
        let expected = "\
Queries stopped at random moments: ms until nothing is held
Stopped by | Times | Slots p50 |  p90 |  p99 |  Max | Memory p50 |  p90 |  p99 |  Max
-----------|-------|-----------|------|------|------|------------|------|------|-----
drop       |   100 |       5.0 |  9.0 |  9.9 | 10.0 |       10.0 | 18.0 | 19.8 | 20.0
KILL       |   100 |       6.0 | 10.0 | 10.9 | 11.0 |       12.0 | 20.0 | 21.8 | 22.0
-----------|-------|-----------|------|------|------|------------|------|------|-----
All        |   200 |       5.5 |  9.5 | 10.8 | 11.0 |       11.0 | 19.0 | 21.6 | 22.0
* slots: until the last is free; memory: until all is returned; looked at every 0.1 ms
* 3 queries ended before their moment; another was tried

The longest of each query, in ms
Query | Alone (ms) | Times | Slots max | Memory max
------|------------|-------|-----------|-----------
Q1    |      100.0 |   100 |      10.0 |       20.0
Q9    |      300.0 |   100 |      11.0 |       22.0
";
        let text = text(&sample::cancels(), Options::default());
        assert!(text == expected, "{text}");
    }
}
