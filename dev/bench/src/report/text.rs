//! The report in the terminal: plain tables of at most about 100 columns.
//!
//! The concurrency tables have the form that Theseus published (see `model::Concurrency`), so
//! that the two can be laid side by side.

use std::io::IsTerminal;

use thalweg_base::text::{bytes, count};

use super::figures::{ms, percent, policy, ratio, seconds, spread, timing};
use super::model::*;
use super::{
    cancel, cold_scan, coverage, latency, load_rate, memory, out_of_core, throughput, variants,
};

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Headings in bold.
    pub colour: bool,
}

impl Options {
    /// Colour where somebody looks on: a terminal, and no `NO_COLOR` (<https://no-color.org>).
    pub fn stdout() -> Options {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Options { colour: std::io::stdout().is_terminal() && !refused }
    }
}

/// All sections that the report has.
pub fn render(report: &Report, options: Options) -> String {
    let mut sections = vec![head(report, options)];
    sections.extend(report.load.as_ref().map(|s| load(s, options)));
    sections.extend(report.power.as_ref().map(|s| power(s, options)));
    sections.extend(report.concurrency.iter().map(|s| concurrency(s, options)));
    if report.concurrency.len() > 1 {
        sections.push(policies(&report.concurrency, options));
    }
    sections.extend(report.mixed.as_ref().map(|s| mixed(s, options)));
    sections.extend(report.latency.as_ref().map(|s| latency::text(s, options)));
    sections.extend(report.throughput.iter().map(|s| throughput::text(s, options)));
    sections.extend(report.variants.iter().map(|s| variants::text(s, options)));
    sections.extend(report.out_of_core.iter().map(|s| out_of_core::text(s, options)));
    sections.extend(report.coverage.iter().map(|s| coverage::text(s, options)));
    sections.extend(report.cancels.as_ref().map(|s| cancel::text(s, options)));
    sections.extend(report.memory.as_ref().map(|s| memory::text(s, options)));
    sections.extend(report.peers.as_ref().map(|s| peers(s, options)));
    if let Some(rates) = &report.load_rates {
        sections.extend(rates.data_sets.iter().map(|set| load_rate::text(set, rates, options)));
    }
    sections.extend(report.cold_scan.as_ref().map(|s| cold_scan::text(s, options)));
    if !report.notes.is_empty() {
        sections.push(report.notes.iter().map(|note| format!("* {note}\n")).collect());
    }
    sections.join("\n")
}

pub fn head(report: &Report, options: Options) -> String {
    let (engine, machine) = (&report.engine, &report.machine);
    format!(
        "{} · {} threads · {} UTC\n{}, {} cores, {} · {}\n",
        bold(&format!("{} · {} {}", report.subject(), engine.name, engine.version), options),
        engine.threads,
        report.started,
        machine.cpu,
        machine.cores,
        bytes(machine.memory_bytes),
        machine.os,
    )
}

pub fn load(load: &Load, options: Options) -> String {
    let mut table = Table::new(&[
        "Table", "Rows", "Raw", "Stored", "Ratio", "Seconds", "MB/s", "Extents", "Chunks",
    ]);
    for (i, t) in load.tables.iter().chain([&load.total]).enumerate() {
        if i == load.tables.len() {
            table.rule();
        }
        table.row(vec![
            t.table.clone(),
            count(t.rows),
            bytes(t.raw_bytes),
            bytes(t.stored_bytes),
            format!("{:.2} : 1", t.ratio),
            seconds(t.seconds),
            format!("{:.1}", t.mb_per_s),
            count(t.extents),
            count(t.chunks),
        ]);
    }
    titled("Load", table, options)
}

pub fn power(power: &PowerRun, options: Options) -> String {
    let title = match power.runs {
        1 => "Power run, one run per query".to_string(),
        runs => format!("Power run, {runs} runs per query"),
    };
    let mut table = Table::new(&["Query", "Median (ms)", "±", "Best (ms)", "Rows"]);
    for q in &power.queries {
        table.row(vec![
            q.query.clone(),
            ms(q.timing.median_ms),
            spread(q.timing.spread_percent),
            ms(q.timing.best_ms),
            count(q.rows),
        ]);
    }
    table.rule();
    let blank = String::new;
    table.row(vec!["Sum of medians".into(), ms(power.seconds * 1e3), blank(), blank(), blank()]);
    table.row(vec![
        "Geometric mean".into(),
        ms(power.geometric_mean_ms),
        blank(),
        blank(),
        blank(),
    ]);
    titled(&title, table, options)
}

/// *Concurrency Stream | Runtime (s) | % Better than Power Run × N*.
pub fn concurrency(run: &Concurrency, options: Options) -> String {
    let n = run.streams.len();
    let better = format!("% Better than Power Run × {n}");
    let mut table = Table::new(&["Concurrency Stream", "Runtime (s)", &better]);
    for stream in &run.streams {
        table.row(vec![
            stream.number.to_string(),
            seconds(stream.seconds),
            percent(stream.percent_better),
        ]);
    }
    table.rule();
    table.row(vec![
        "Average".into(),
        seconds(run.average_seconds),
        percent(run.average_percent_better),
    ]);
    let title = format!(
        "{} streams at once, {}\n{}",
        n,
        policy(&run.policy),
        format_args!(
            "Power run {} s, × {n} = {} s",
            seconds(run.power_seconds),
            seconds(run.power_times_n_seconds)
        )
    );
    titled(&title, table, options)
}

/// One line per policy.
pub fn policies(runs: &[Concurrency], options: Options) -> String {
    let mut table = Table::new(&[
        "Policy",
        "Average (s)",
        "Fastest (s)",
        "Slowest (s)",
        "All done (s)",
        "% Better",
    ]);
    for run in runs {
        let times = || run.streams.iter().map(|s| s.seconds);
        table.row(vec![
            policy(&run.policy).to_string(),
            seconds(run.average_seconds),
            seconds(times().fold(f64::INFINITY, f64::min)),
            seconds(times().fold(0.0, f64::max)),
            seconds(run.wall_seconds),
            percent(run.average_percent_better),
        ]);
    }
    titled("Streams under each policy", table, options)
}

pub fn mixed(mixed: &Mixed, options: Options) -> String {
    let of = |weight| {
        mixed
            .runs
            .first()
            .map_or(0, |run| run.queries.iter().filter(|q| q.weight == weight).count())
    };
    let title = format!(
        "{} heavy queries, and {} short ones behind them\nFIFO ÷ policy: above 1, short queries are done sooner than under FIFO; below 1, later",
        of(Weight::Heavy),
        of(Weight::Short),
    );
    let mut table = Table::new(&[
        "Policy",
        "Short avg (s)",
        "FIFO ÷ policy",
        "Short worst (s)",
        "Heavy avg (s)",
        "Wall (s)",
    ]);
    for run in &mixed.runs {
        table.row(vec![
            policy(&run.policy).to_string(),
            seconds(run.short_average_seconds),
            run.short_times_sooner_than_fifo.map_or("-".into(), ratio),
            seconds(run.short_worst_seconds),
            seconds(run.heavy_average_seconds),
            seconds(run.wall_seconds),
        ]);
    }
    titled(&title, table, options)
}

pub fn peers(peers: &Peers, options: Options) -> String {
    let Some((ours, others)) = peers.engines.split_first() else { return String::new() };
    let mut header = vec!["Query".to_string(), format!("{} (ms)", ours.name)];
    for peer in others {
        header.extend([format!("{} (ms)", peer.name), format!("÷ {}", ours.name)]);
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut remarks = String::new();
    for q in &peers.queries {
        let mut row = vec![q.query.clone()];
        for (i, (result, engine)) in q.results.iter().zip(&peers.engines).enumerate() {
            row.push(match &result.timing {
                Some(t) => timing(t),
                None => "failed".to_string(),
            });
            if i > 0 {
                row.push(result.ratio.map_or("-".into(), ratio));
            }
            for (what, text) in [("failed", &result.error), ("has another answer", &result.differs)]
            {
                if let Some(text) = text {
                    remarks += &format!("! {}: {} {what}: {text}\n", q.query, engine.name);
                }
            }
        }
        table.row(row);
    }
    table.rule();
    let mut mean = vec!["Geometric mean".to_string(), String::new()];
    let mut total = vec!["Sum of medians".to_string(), String::new()];
    let mut sooner = vec![format!("{} faster : slower", ours.name), String::new()];
    for peer in others {
        mean.extend([
            format!("{} queries", peer.compared),
            peer.geometric_mean_ratio.map_or("-".into(), ratio),
        ]);
        total.extend([ms(peer.total_ms), peer.total_ratio.map_or("-".into(), ratio)]);
        sooner.extend([String::new(), format!("{} : {}", peer.wins, peer.losses)]);
    }
    table.row(mean);
    table.row(total);
    table.row(sooner);
    let names: Vec<String> =
        peers.engines.iter().map(|e| format!("{} {}", e.name, e.version)).collect();
    let title = format!(
        "{}, interleaved\nRatio: above 1, {} is faster; below 1, the peer is",
        names.join(", "),
        ours.name
    );
    titled(&title, table, options) + &remarks
}

fn bold(text: &str, options: Options) -> String {
    if options.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() }
}

/// The first line of a title is the heading, the rest explains.
pub(crate) fn titled(title: &str, table: Table, options: Options) -> String {
    let (heading, rest) = title.split_once('\n').unwrap_or((title, ""));
    let rest = if rest.is_empty() { String::new() } else { format!("{rest}\n") };
    format!("{}\n{rest}{}", bold(heading, options), table.render())
}

/// First column to the left, figures to the right.
pub(crate) struct Table {
    header: Vec<String>,
    /// None: a rule.
    rows: Vec<Option<Vec<String>>>,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Table {
        Table { header: header.iter().map(|h| h.to_string()).collect(), rows: Vec::new() }
    }

    /// Of a header that is not known in advance.
    pub(crate) fn of(header: Vec<String>, rows: Vec<Vec<String>>) -> Table {
        let mut table = Table { header, rows: Vec::new() };
        rows.into_iter().for_each(|row| table.row(row));
        table
    }

    pub(crate) fn row(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.header.len());
        self.rows.push(Some(row));
    }

    pub(crate) fn rule(&mut self) {
        self.rows.push(None);
    }

    fn render(&self) -> String {
        let lines = || self.rows.iter().flatten().chain([&self.header]);
        let widths: Vec<usize> = (0..self.header.len())
            .map(|i| lines().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or(0))
            .collect();
        let line = |cells: &Vec<String>| {
            let cells: Vec<String> = cells
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(i, (cell, &width))| match i {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            cells.join(" | ").trim_end().to_string() + "\n"
        };
        let rule = widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>().join("-|-") + "\n";
        let mut out = line(&self.header) + &rule;
        for row in &self.rows {
            out += &row.as_ref().map_or_else(|| rule.clone(), line);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    const PLAIN: Options = Options { colour: false };

    #[test]
    fn the_concurrency_table_has_the_published_form() {
        let runtimes =
            [3379.99, 3077.37, 3608.19, 3365.73, 3598.78, 3370.95, 2757.30, 2572.95, 3335.45];
        let span = |end_s| vec![Span { query: "1".into(), start_s: 0.0, end_s, rows: 0 }];
        let run = Concurrency::new("fifo", 403.0, runtimes.map(span).to_vec());
        let expected = "\
9 streams at once, FIFO
Power run 403.00 s, × 9 = 3,627.00 s
Concurrency Stream | Runtime (s) | % Better than Power Run × 9
-------------------|-------------|----------------------------
1                  |    3,379.99 |                        6.81
2                  |    3,077.37 |                       15.15
3                  |    3,608.19 |                        0.52
4                  |    3,365.73 |                        7.20
5                  |    3,598.78 |                        0.78
6                  |    3,370.95 |                        7.06
7                  |    2,757.30 |                       23.98
8                  |    2,572.95 |                       29.06
9                  |    3,335.45 |                        8.04
-------------------|-------------|----------------------------
Average            |    3,229.63 |                       10.96
";
        assert_eq!(concurrency(&run, PLAIN), expected);
    }

    #[test]
    fn a_loss_is_printed_like_a_win() {
        let measured = |ms: f64| PeerResult::measured(vec![ms, ms * 1.1, ms * 0.9], None);
        let query =
            |name: &str, results: Vec<PeerResult>| PeerQuery { query: name.into(), results };
        let peers_section = Peers::new(
            vec![("Thalweg".into(), "0.1.0".into()), ("DuckDB".into(), "2.0.0".into())],
            vec![
                query("Q1", vec![measured(100.0), measured(250.0)]),
                query("Q2", vec![measured(50.0), measured(20.0)]),
                query("Q3", vec![measured(50.0), PeerResult::failed("out of memory".to_string())]),
            ],
        );
        let expected = "\
Thalweg 0.1.0, DuckDB 2.0.0, interleaved
Ratio: above 1, Thalweg is faster; below 1, the peer is
Query                   | Thalweg (ms) | DuckDB (ms) | ÷ Thalweg
------------------------|--------------|-------------|----------
Q1                      |  100.0 ±10 % | 250.0 ±10 % |     2.50×
Q2                      |   50.0 ±10 % |  20.0 ±10 % |     0.40×
Q3                      |   50.0 ±10 % |      failed |         -
------------------------|--------------|-------------|----------
Geometric mean          |              |   2 queries |     1.00×
Sum of medians          |              |       270.0 |     1.80×
Thalweg faster : slower |              |             |     1 : 1
! Q3: DuckDB failed: out of memory
";
        assert_eq!(peers(&peers_section, PLAIN), expected);
    }

    #[test]
    fn everything_fits_a_terminal_and_stays_plain() {
        let text = render(&sample::report(), PLAIN);
        for line in text.lines().filter(|l| l.contains('|')) {
            assert!(line.chars().count() <= 104, "{} columns: {line}", line.chars().count());
        }
        assert!(!text.contains('\x1b'));
        assert!(render(&sample::report(), Options { colour: true }).contains("\x1b[1mLoad\x1b[0m"));
    }
}
