//! N streams at once against N power runs in turn, for several N: the model and its text.

use serde::{Deserialize, Serialize};

use super::figures::{policy, ratio, seconds, spread};
use super::model::{Concurrency, PowerRun, Timing};
use super::text::{Options, Table, titled};

/// One suite under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// `TPC-H SF 1`.
    pub data: String,
    pub policy: String,
    pub runs: usize,
    /// By number of streams, then without and with sharing.
    pub loads: Vec<Load>,
}

/// So many streams at once, and the power runs beside them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Whether queries that run at the same time did common work once; `None`: the engine cannot be
    /// told.
    pub shared: Option<bool>,
    /// The average over the streams of every run.
    pub averages: Timing,
    /// Of all runs.
    pub power: PowerRun,
    /// The one with the median ratio of the average stream; its power runs are those beside it.
    pub run: Concurrency,
}

impl Load {
    fn streams(&self) -> usize {
        self.run.streams.len()
    }
}

/// `sharing off`; None where it cannot be told.
pub fn shared(shared: Option<bool>) -> Option<&'static str> {
    shared.map(|on| if on { "sharing on" } else { "sharing off" })
}

const RATIO: &str = "Power × N ÷";

impl Throughput {
    pub fn new(data: String, policy: &str, runs: usize, loads: Vec<Load>) -> Throughput {
        Throughput { data, policy: policy.to_string(), runs, loads }
    }

    pub fn title(&self) -> String {
        format!("{}, {}: N streams at once", self.data, policy(&self.policy))
    }

    pub fn legend(&self) -> String {
        format!("{RATIO}: above 1, sooner than N power runs in turn; below 1, later")
    }

    /// The loads of each number of streams, in the order they were measured.
    pub fn by_streams(&self) -> impl Iterator<Item = &[Load]> {
        self.loads.chunk_by(|a, b| a.streams() == b.streams())
    }

    pub fn header(&self) -> Vec<String> {
        let header = [
            "Streams",
            "Sharing",
            "Power (s)",
            "Average (s)",
            RATIO,
            "Slowest (s)",
            RATIO,
            "All (s)",
        ];
        header.map(String::from).to_vec()
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |load: &Load| {
            let run = &load.run;
            let average = seconds(run.average_seconds);
            vec![
                load.streams().to_string(),
                load.shared.map_or("-", |on| if on { "on" } else { "off" }).to_string(),
                seconds(run.power_seconds),
                // One run has no spread.
                match self.runs {
                    0 | 1 => average,
                    _ => format!("{average} {:>5}", spread(load.averages.spread_percent)),
                },
                ratio(run.average_ratio),
                seconds(run.slowest_seconds),
                ratio(run.slowest_ratio),
                seconds(run.wall_seconds),
            ]
        };
        self.loads.iter().map(row).collect()
    }

    /// `loads` have one number of streams.
    pub fn stream_header(loads: &[Load]) -> Vec<String> {
        let mut header = vec!["Stream".to_string()];
        for load in loads {
            let unit =
                shared(load.shared).map_or("Runtime (s)".to_string(), |s| format!("{s} (s)"));
            header.extend([unit, RATIO.to_string()]);
        }
        header
    }

    pub fn stream_rows(loads: &[Load]) -> Vec<Vec<String>> {
        let streams = loads.first().map_or(0, Load::streams);
        let row = |i: usize| {
            let mut row = vec![(i + 1).to_string()];
            for stream in loads.iter().filter_map(|load| load.run.streams.get(i)) {
                row.extend([seconds(stream.seconds), ratio(stream.ratio)]);
            }
            row
        };
        (0..streams).map(row).collect()
    }
}

/// `8 streams, one by one`.
pub fn stream_title(loads: &[Load]) -> String {
    match loads.first().map_or(0, Load::streams) {
        1 => "1 stream".to_string(),
        n => format!("{n} streams, one by one"),
    }
}

pub fn text(throughput: &Throughput, options: Options) -> String {
    let title = format!("{}\n{}", throughput.title(), throughput.legend());
    let all = Table::of(throughput.header(), throughput.rows());
    let mut sections = vec![titled(&title, all, options)];
    for loads in throughput.by_streams().filter(|loads| loads[0].streams() > 1) {
        let table = Table::of(Throughput::stream_header(loads), Throughput::stream_rows(loads));
        sections.push(titled(&stream_title(loads), table, options));
    }
    sections.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_tables_have_a_line_for_each_load_and_each_stream() {
        let expected = "\
SSB SF 1, Fair: N streams at once
Power × N ÷: above 1, sooner than N power runs in turn; below 1, later
Streams | Sharing | Power (s) | Average (s) | Power × N ÷ | Slowest (s) | Power × N ÷ | All (s)
--------|---------|-----------|-------------|-------------|-------------|-------------|--------
1       |     off |      1.00 |  1.00  ±5 % |       1.00× |        1.00 |       1.00× |    1.00
1       |      on |      1.00 |  1.00  ±5 % |       1.00× |        1.00 |       1.00× |    1.00
2       |     off |      1.00 |  2.25  ±5 % |       0.89× |        2.50 |       0.80× |    2.50
2       |      on |      1.00 |  1.00  ±5 % |       2.00× |        1.25 |       1.60× |    1.25

2 streams, one by one
Stream | sharing off (s) | Power × N ÷ | sharing on (s) | Power × N ÷
-------|-----------------|-------------|----------------|------------
1      |            2.00 |       1.00× |           0.75 |       2.67×
2      |            2.50 |       0.80× |           1.25 |       1.60×
";
        assert_eq!(text(&sample::throughput(), Options::default()), expected);
    }

    #[test]
    fn a_build_without_the_setting_has_one_line_and_no_word_of_it() {
        let mut throughput = sample::throughput();
        throughput.loads.retain(|load| load.shared == Some(false));
        throughput.loads.iter_mut().for_each(|load| load.shared = None);
        let text = text(&throughput, Options::default());
        assert!(text.contains("2       |       - |"), "{text}");
        assert!(text.contains("Stream | Runtime (s) | Power × N ÷\n"), "{text}");
    }
}
