//! The report as one HTML page that needs nothing else: style and charts are inside it, there is
//! no script, and every text from outside is escaped. Each chart has its figures in a table below
//! it, for those who cannot see it and those who want the digits.

mod coverage;
mod latency;
mod rates;
pub mod replay;
mod scheduler;

use std::fmt::Write;

use thalweg_base::text::{bytes, count};

use super::chart::{self, escape};
use super::figures::{ms, percent, policy, ratio, seconds, spread};
use super::model::*;

const STYLE: &str = include_str!("report.css");
/// A longer table is folded up at first, on paper it never is.
const OPEN_ROWS_MAX: usize = 30;
/// The colours that the style sheet has for series; more series begin again.
const COLOURS: usize = 5;

pub fn render(report: &Report) -> String {
    let mut page = Page::default();
    page.tiles(report);
    if let Some(peers) = &report.peers {
        page.peers(peers);
    }
    if let Some(power) = &report.power {
        page.power(power);
    }
    if !report.concurrency.is_empty() {
        page.concurrency(&report.concurrency, report.power.as_ref());
    }
    if let Some(mixed) = &report.mixed {
        page.mixed(mixed);
    }
    if let Some(latency) = &report.latency {
        page.latency(latency);
    }
    report.throughput.iter().for_each(|throughput| page.throughput(throughput));
    report.variants.iter().for_each(|variants| page.variants(variants));
    report.out_of_core.iter().for_each(|run| page.out_of_core(run));
    report.coverage.iter().for_each(|coverage| page.coverage(coverage));
    if let Some(cancels) = &report.cancels {
        page.cancels(cancels);
    }
    if let Some(memory) = &report.memory {
        page.memory(memory);
    }
    if let Some(load) = &report.load {
        page.load(load);
    }
    if let Some(rates) = &report.load_rates {
        page.load_rates(rates);
    }
    if let Some(scan) = &report.cold_scan {
        page.cold_scan(scan);
    }
    if !report.notes.is_empty() {
        let notes: String =
            report.notes.iter().map(|n| format!("<li>{}</li>", escape(n))).collect();
        page.add(format_args!(
            "<section><h2>Notes</h2><ul class=\"notes\">{notes}</ul></section>\n"
        ));
    }

    let (engine, machine) = (&report.engine, &report.machine);
    let lines = [
        format!(
            "{}, {} cores, {}, {}",
            machine.cpu,
            machine.cores,
            bytes(machine.memory_bytes),
            machine.os
        ),
        format!("{} engine threads · {} UTC", engine.threads, report.started),
    ];
    let on = format!("on {} {}", engine.name, engine.version);
    let footer = "Written by <code>thalweg bench</code>. All times are of this machine, measured in \
                  this run; losses are shown as wins are.";
    page.html(&report.subject(), &on, &lines, footer)
}

const RIVER: &str = "<svg class=\"river\" viewBox=\"0 0 132 26\" aria-hidden=\"true\">\
    <path d=\"M2 18C18 2 30 2 44 13s28 11 42 0 28-11 44-3\"/>\
    <path d=\"M2 24C18 8 30 8 44 19s28 11 42 0 28-11 44-3\"/></svg>";

#[derive(Default)]
struct Page(String);

impl Page {
    fn add(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(arguments);
    }

    /// The whole page. All but the footer are texts, not HTML.
    fn html(&self, subject: &str, on: &str, lines: &[String], footer: &str) -> String {
        let (subject, on) = (escape(subject), escape(on));
        let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{subject} {on}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header>{RIVER}<h1>{subject} <small>{on}</small></h1>\n<p>{}</p></header>\n\
             <main>\n{}</main>\n<footer>{footer}</footer>\n</body>\n</html>\n",
            lines.join("<br>"),
            self.0,
        )
    }

    /// `heading` and `lead` are texts, not HTML.
    fn section(&mut self, heading: &str, lead: &str) {
        self.add(format_args!(
            "<section><h2>{}</h2>\n<p class=\"lead\">{}</p>\n",
            escape(heading),
            escape(lead)
        ));
    }

    fn end_section(&mut self) {
        self.0.push_str("</section>\n");
    }

    fn figure(&mut self, caption: &str, svg: &str) {
        let caption = match caption {
            "" => String::new(),
            text => format!("<figcaption>{}</figcaption>", escape(text)),
        };
        self.add(format_args!(
            "<figure>{caption}<div class=\"scroll\" tabindex=\"0\">{svg}</div></figure>\n"
        ));
    }

    fn legend(&mut self, entries: &[(String, String)]) {
        let entries: String = entries
            .iter()
            .map(|(class, text)| format!("<li><i class=\"{class}\"></i>{}</li>", escape(text)))
            .collect();
        self.add(format_args!("<ul class=\"legend\">{entries}</ul>\n"));
    }

    /// `folded`: the chart above it says nearly all.
    fn table(&mut self, summary: &str, table: &Table, folded: bool) {
        let open = if !folded && table.body.len() <= OPEN_ROWS_MAX { " open" } else { "" };
        self.add(format_args!(
            "<details{open}><summary>{}</summary><div class=\"scroll\" tabindex=\"0\">{}</div></details>\n",
            escape(summary),
            table.html()
        ));
    }

    fn tiles(&mut self, report: &Report) {
        let mut tiles: Vec<(String, String)> = Vec::new();
        if let Some(power) = &report.power {
            tiles.push((
                format!("{} s", seconds(power.seconds)),
                format!("power run: {} queries in turn", power.queries.len()),
            ));
        }
        let shown =
            report.concurrency.iter().find(|c| c.policy == "fair").or(report.concurrency.first());
        if let Some(run) = shown {
            let n = run.streams.len();
            tiles.push((
                format!("{} %", signed(run.average_percent_better)),
                format!(
                    "{n} streams at once against {n} power runs in turn, {}",
                    policy(&run.policy)
                ),
            ));
        }
        if let Some(run) =
            report.mixed.as_ref().and_then(|m| m.runs.iter().find(|r| r.policy == "fair"))
            && let Some(times) = run.short_times_sooner_than_fifo
        {
            tiles.push((ratio(times), "short queries behind heavy ones: FIFO ÷ Fair".to_string()));
        }
        if let Some(peers) = &report.peers {
            for peer in peers.engines.iter().skip(1) {
                if let Some(mean) = peer.geometric_mean_ratio {
                    tiles.push((
                        ratio(mean),
                        format!(
                            "{}\u{a0}{} ÷ {}, mean of\u{a0}{}",
                            peer.name, peer.version, report.engine.name, peer.compared
                        ),
                    ));
                }
            }
        }
        if let Some(load) = &report.load {
            tiles.push((
                format!("{:.0} MB/s", load.total.mb_per_s),
                format!("load, stored {:.2}\u{a0}:\u{a0}1", load.total.ratio),
            ));
        }
        for set in report.load_rates.iter().flat_map(|rates| &rates.data_sets) {
            let (t, data) = (&set.total, &set.data);
            tiles.push((
                format!("{:.0} MB/s", t.mb_per_s),
                format!(
                    "{data}: {} the peer's rate, {} its size",
                    ratio(t.rate_to_peer),
                    ratio(t.size_to_peer)
                ),
            ));
        }
        if let Some(scan) = &report.cold_scan {
            tiles.push((ratio(scan.ratio), "scan ÷ the files alone, in bytes per second".into()));
        }
        let tiles: String = tiles
            .iter()
            .map(|(value, label)| {
                format!("<li><b>{}</b><span>{}</span></li>", escape(value), escape(label))
            })
            .collect();
        if !tiles.is_empty() {
            self.add(format_args!("<ul class=\"tiles\">{tiles}</ul>\n"));
        }
    }

    fn power(&mut self, power: &PowerRun) {
        let runs = match power.runs {
            1 => "once".to_string(),
            n => format!("{n} times; a bar is the median, a line the range"),
        };
        self.section(
            "Power run",
            &format!(
                "One query after the other, nobody else on the machine, each {runs}. {} s in all; geometric mean {} ms.",
                seconds(power.seconds),
                ms(power.geometric_mean_ms)
            ),
        );
        let columns: Vec<chart::Column> = power
            .queries
            .iter()
            .map(|q| chart::Column {
                label: q.query.clone(),
                value: q.timing.median_ms,
                low: q.timing.best_ms,
                high: q.timing.worst_ms,
                tip: format!(
                    "{}: {} ms ({} to {}), {} rows",
                    q.query,
                    ms(q.timing.median_ms),
                    ms(q.timing.best_ms),
                    ms(q.timing.worst_ms),
                    count(q.rows)
                ),
            })
            .collect();
        self.figure("", &chart::columns("Run time of each query, in milliseconds", "ms", &columns));
        let mut table = Table::new(&["Query", "Median (ms)", "Best (ms)", "Rows"]);
        for q in &power.queries {
            table.row(vec![
                q.query.clone(),
                timing(&q.timing),
                ms(q.timing.best_ms),
                count(q.rows),
            ]);
        }
        table.foot(vec![
            "Sum of medians".into(),
            format!("{} ", ms(power.seconds * 1e3)),
            String::new(),
            String::new(),
        ]);
        table.foot(vec![
            "Geometric mean".into(),
            ms(power.geometric_mean_ms),
            String::new(),
            String::new(),
        ]);
        self.table("Power run, all figures", &table, true);
        self.end_section();
    }

    fn concurrency(&mut self, runs: &[Concurrency], power: Option<&PowerRun>) {
        let streams = runs.iter().map(|r| r.streams.len()).max().unwrap_or(0);
        self.section(
            "Streams at once",
            &format!(
                "{streams} streams start together; each runs every query in an order of its own. \
                 Better than {streams} power runs in turn means that sharing the machine pays."
            ),
        );
        let common = runs.first().map(|r| r.power_times_n_seconds);
        let common = common.filter(|&t| runs.iter().all(|r| r.power_times_n_seconds == t));
        let mut groups: Vec<(String, Vec<chart::Bar>)> = Vec::new();
        for number in 1..=streams + 1 {
            let average = number > streams;
            let label = if average { "Average".to_string() } else { format!("Stream {number}") };
            let bars = runs.iter().enumerate().filter_map(|(i, run)| {
                let (value, better) = match run.streams.get(number - 1) {
                    Some(stream) => (stream.seconds, stream.percent_better),
                    None if average => (run.average_seconds, run.average_percent_better),
                    None => return None,
                };
                let tip = format!(
                    "{label}, {}: {} s, {} % better",
                    policy(&run.policy),
                    seconds(value),
                    percent(better)
                );
                Some(chart::Bar { class: colour(i), value, tip })
            });
            let bars = bars.collect();
            groups.push((label, bars));
        }
        self.legend(&legend_of(runs.iter().map(|r| policy(&r.policy))));
        let reference = common.map(|t| (t, format!("power run × {streams} = {} s", seconds(t))));
        let reference = reference.as_ref().map(|(t, label)| (*t, label.as_str()));
        self.figure(
            "Run time of each stream, in seconds",
            &chart::grouped(
                "Run time of each stream under each policy, in seconds",
                "s",
                &groups,
                reference,
            ),
        );

        let mut header = vec!["Concurrency Stream".to_string()];
        for run in runs {
            header.extend([
                "Runtime (s)".to_string(),
                format!("% Better than Power Run × {}", run.streams.len()),
            ]);
        }
        let groups = runs.iter().map(|r| policy(&r.policy).to_string()).collect();
        let mut table = Table { groups, header, ..Table::default() };
        for number in 1..=streams {
            let mut row = vec![number.to_string()];
            for run in runs {
                let stream = run.streams.get(number - 1);
                row.push(stream.map_or_else(String::new, |s| seconds(s.seconds)));
                row.push(stream.map_or_else(String::new, |s| percent(s.percent_better)));
            }
            table.row(row);
        }
        let mut row = vec!["Average".to_string()];
        for run in runs {
            row.extend([seconds(run.average_seconds), percent(run.average_percent_better)]);
        }
        table.foot(row);
        self.table("Streams, all figures", &table, false);

        self.add(format_args!("<h3>What ran when</h3>\n"));
        if power.is_some() {
            let steps = ["up to 1.5×", "up to 3×", "up to 6×", "more than 6×"];
            let entries: Vec<(String, String)> = steps
                .iter()
                .enumerate()
                .map(|(i, text)| (format!("s{i}"), format!("{text} as long as alone")))
                .collect();
            self.legend(&entries);
        }
        let end = runs.iter().flat_map(|r| &r.streams).flat_map(|s| &s.queries).map(|q| q.end_s);
        let end = end.fold(0.0, f64::max);
        for run in runs {
            // Another engine's streams have their own power run, which is not in this report.
            let alone = power.filter(|p| p.seconds == run.power_seconds);
            let tracks: Vec<chart::Track> = run.streams.iter().map(|s| track(s, alone)).collect();
            let alt = format!("Time line of the queries of each stream, {}", policy(&run.policy));
            let caption =
                format!("{}: all done after {} s", policy(&run.policy), seconds(run.wall_seconds));
            self.figure(&caption, &chart::timeline(&alt, &tracks, end));
        }
        self.end_section();
    }

    fn mixed(&mut self, mixed: &Mixed) {
        let Some(first) = mixed.runs.first() else { return };
        let of = |weight| first.queries.iter().filter(|q| q.weight == weight).count();
        self.section(
            "Short queries behind heavy ones",
            &format!(
                "{} heavy queries are given first, {} short ones right after them. \
                 How long do the short ones take under each policy?",
                of(Weight::Heavy),
                of(Weight::Short)
            ),
        );
        let rows: Vec<chart::Row> = mixed
            .runs
            .iter()
            .enumerate()
            .map(|(i, run)| {
                let times = match run.short_times_sooner_than_fifo {
                    Some(times) if run.policy != BASE_POLICY => format!(" · {}", ratio(times)),
                    _ => String::new(),
                };
                chart::Row {
                    label: policy(&run.policy).to_string(),
                    class: colour(i),
                    value: run.short_average_seconds,
                    worst: run.short_worst_seconds,
                    note: format!("{} s{times}", seconds(run.short_average_seconds)),
                    tip: format!(
                        "{}: short queries take {} s on average, {} s at worst; heavy ones {} s on average",
                        policy(&run.policy),
                        seconds(run.short_average_seconds),
                        seconds(run.short_worst_seconds),
                        seconds(run.heavy_average_seconds)
                    ),
                }
            })
            .collect();
        self.figure(
            "Completion of the short queries: a bar is the average, the line ends at the slowest; × is FIFO ÷ policy",
            &chart::rows(
                "Average completion time of the short queries under each policy",
                "s",
                &rows,
            ),
        );
        let mut table = Table::new(&[
            "Policy",
            "Short average (s)",
            "FIFO ÷ policy",
            "Short worst (s)",
            "Heavy average (s)",
            "All done (s)",
        ]);
        for run in &mixed.runs {
            table.row(vec![
                policy(&run.policy).to_string(),
                seconds(run.short_average_seconds),
                run.short_times_sooner_than_fifo.map_or_else(String::new, ratio),
                seconds(run.short_worst_seconds),
                seconds(run.heavy_average_seconds),
                seconds(run.wall_seconds),
            ]);
        }
        self.table("Policies, all figures", &table, false);

        self.add(format_args!("<h3>What ran when</h3>\n"));
        self.legend(&[("c2".into(), "heavy".into()), ("c1".into(), "short".into())]);
        let end =
            mixed.runs.iter().flat_map(|r| &r.queries).map(|q| q.span.end_s).fold(0.0, f64::max);
        for run in &mixed.runs {
            let tracks: Vec<chart::Track> = run
                .queries
                .iter()
                .map(|q| {
                    let class = if q.weight == Weight::Heavy { "c2" } else { "c1" };
                    let bar = interval(&q.span, class, String::new(), "");
                    chart::Track { label: q.span.query.clone(), bars: vec![bar] }
                })
                .collect();
            let alt = format!("Time line of heavy and short queries, {}", policy(&run.policy));
            self.figure(policy(&run.policy), &chart::timeline(&alt, &tracks, end));
        }
        self.end_section();
    }

    fn peers(&mut self, peers: &Peers) {
        let Some((ours, others)) = peers.engines.split_first() else { return };
        self.section(
            "Against other engines",
            &format!(
                "The same queries on the same data, engine by engine in turn, query by query. \
                 A ratio is the other engine's median divided by {}'s: above 1, {0} is faster; below 1, the other is.",
                ours.name
            ),
        );
        self.legend(&legend_of_from(1, others.iter().map(|e| format!("{} {}", e.name, e.version))));
        let mut rows: Vec<(String, Vec<chart::Dot>)> = Vec::new();
        for q in &peers.queries {
            let dots = q.results.iter().zip(&peers.engines).enumerate().skip(1).filter_map(
                |(i, (result, engine))| {
                    let value = result.ratio?;
                    let (low, high) =
                        (result.ratio_low.unwrap_or(value), result.ratio_high.unwrap_or(value));
                    let tip = format!(
                        "{}, {} ÷ {}: {} ({} to {})",
                        q.query,
                        engine.name,
                        ours.name,
                        ratio(value),
                        ratio(low),
                        ratio(high)
                    );
                    Some(chart::Dot { class: colour(i), value, low, high, tip })
                },
            );
            let dots = dots.collect();
            rows.push((q.query.clone(), dots));
        }
        let means = others.iter().enumerate().filter_map(|(i, engine)| {
            let value = engine.geometric_mean_ratio?;
            let tip = format!(
                "{} ÷ {}, geometric mean of {} queries: {}",
                engine.name,
                ours.name,
                engine.compared,
                ratio(value)
            );
            Some(chart::Dot { class: colour(i + 1), value, low: value, high: value, tip })
        });
        let means = means.collect();
        rows.push(("Geometric mean".to_string(), means));
        self.figure(
            "A dot is the ratio of medians, the line reaches to the extremes of all runs",
            &chart::ratios(
                "Ratio of each other engine's time to ours per query, on a logarithmic scale",
                &format!("{} slower", ours.name),
                &format!("{} faster", ours.name),
                &rows,
            ),
        );

        let mut header = vec!["Query".to_string(), format!("{} (ms)", ours.name)];
        for engine in others {
            header.extend([format!("{} (ms)", engine.name), format!("÷ {}", ours.name)]);
        }
        let mut table = Table { header, ..Table::default() };
        let mut remarks = String::new();
        for q in &peers.queries {
            let mut row = vec![q.query.clone()];
            for (i, (result, engine)) in q.results.iter().zip(&peers.engines).enumerate() {
                row.push(result.timing.as_ref().map_or_else(|| "failed".to_string(), timing));
                if i > 0 {
                    row.push(result.ratio.map_or_else(String::new, ratio));
                }
                for (what, text) in
                    [("failed", &result.error), ("has another answer", &result.differs)]
                {
                    if let Some(text) = text {
                        let text = escape(&format!("{}: {} {what}: {text}", q.query, engine.name));
                        remarks += &format!("<li>{text}</li>");
                    }
                }
            }
            table.row(row);
        }
        let mut mean = vec!["Geometric mean".to_string(), String::new()];
        let mut total = vec!["Sum of medians".to_string(), String::new()];
        let mut sooner = vec![format!("{} faster : slower", ours.name), String::new()];
        for engine in others {
            mean.extend([
                format!("{} queries", engine.compared),
                engine.geometric_mean_ratio.map_or_else(String::new, ratio),
            ]);
            total.extend([ms(engine.total_ms), engine.total_ratio.map_or_else(String::new, ratio)]);
            sooner.extend([String::new(), format!("{} : {}", engine.wins, engine.losses)]);
        }
        for row in [mean, total, sooner] {
            table.foot(row);
        }
        self.table("Engines, all figures", &table, false);
        if !remarks.is_empty() {
            self.add(format_args!("<ul class=\"notes\">{remarks}</ul>\n"));
        }
        self.end_section();
    }

    fn load(&mut self, load: &Load) {
        let t = &load.total;
        self.section(
            "Load",
            &format!(
                "{} of raw data, {} rows, became {} in {} s: {:.1} MB/s, {:.2} : 1.",
                bytes(t.raw_bytes),
                count(t.rows),
                bytes(t.stored_bytes),
                seconds(t.seconds),
                t.mb_per_s,
                t.ratio
            ),
        );
        let mut table = Table::new(&[
            "Table", "Rows", "Raw", "Stored", "Ratio", "Seconds", "MB/s", "Extents", "Chunks",
        ]);
        let row = |t: &LoadTable| {
            vec![
                t.table.clone(),
                count(t.rows),
                bytes(t.raw_bytes),
                bytes(t.stored_bytes),
                format!("{:.2} : 1", t.ratio),
                seconds(t.seconds),
                format!("{:.1}", t.mb_per_s),
                count(t.extents),
                count(t.chunks),
            ]
        };
        load.tables.iter().for_each(|t| table.row(row(t)));
        table.foot(row(t));
        self.table("Load, all figures", &table, false);
        self.end_section();
    }
}

fn track(stream: &Stream, alone: Option<&PowerRun>) -> chart::Track {
    let bars = stream.queries.iter().map(|span| {
        let stretch = alone
            .and_then(|p| p.query(&span.query))
            .filter(|q| q.timing.median_ms > 0.0)
            .map(|q| span.seconds() * 1e3 / q.timing.median_ms);
        let class = match stretch {
            None => "s1",
            Some(s) if s <= 1.5 => "s0",
            Some(s) if s <= 3.0 => "s1",
            Some(s) if s <= 6.0 => "s2",
            Some(_) => "s3",
        };
        let tip = stretch.map_or_else(String::new, |s| format!(", {} as long as alone", ratio(s)));
        interval(span, class, span.query.clone(), &tip)
    });
    chart::Track { label: format!("Stream {}", stream.number), bars: bars.collect() }
}

fn interval(span: &Span, class: &'static str, label: String, more: &str) -> chart::Interval {
    let tip = format!(
        "{}: {} s, from {} to {} s{more}",
        span.query,
        seconds(span.seconds()),
        seconds(span.start_s),
        seconds(span.end_s)
    );
    chart::Interval { start: span.start_s, end: span.end_s, class, label, tip }
}

fn colour(series: usize) -> String {
    format!("c{}", series % COLOURS + 1)
}

fn legend_of<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    legend_of_from(0, names.map(str::to_string))
}

fn legend_of_from(first: usize, names: impl Iterator<Item = String>) -> Vec<(String, String)> {
    names.enumerate().map(|(i, name)| (colour(first + i), name)).collect()
}

fn timing(t: &Timing) -> String {
    format!("{} {}", ms(t.median_ms), spread(t.spread_percent))
}

/// With its sign, the typographic one.
fn signed(value: f64) -> String {
    let text = percent(value);
    match text.strip_prefix('-') {
        Some(digits) => format!("−{digits}"),
        None => format!("+{text}"),
    }
}

/// Cells are texts; the first of a row is its heading, and a ± in a cell is set apart.
#[derive(Default)]
struct Table {
    /// Headings above two columns each, the first column left out; empty for none.
    groups: Vec<String>,
    header: Vec<String>,
    body: Vec<Vec<String>>,
    foot: Vec<Vec<String>>,
}

impl Table {
    fn new(header: &[&str]) -> Table {
        Table { header: header.iter().map(|h| h.to_string()).collect(), ..Table::default() }
    }

    fn row(&mut self, row: Vec<String>) {
        self.body.push(row);
    }

    fn foot(&mut self, row: Vec<String>) {
        self.foot.push(row);
    }

    fn html(&self) -> String {
        let header: String =
            self.header.iter().map(|h| format!("<th scope=\"col\">{}</th>", escape(h))).collect();
        let groups = match self.groups.as_slice() {
            [] => String::new(),
            groups => {
                let group =
                    |g: &String| format!("<th scope=\"colgroup\" colspan=\"2\">{}</th>", escape(g));
                format!(
                    "<tr class=\"groups\"><td></td>{}</tr>",
                    groups.iter().map(group).collect::<String>()
                )
            }
        };
        let part = |tag: &str, rows: &[Vec<String>]| match rows {
            [] => String::new(),
            rows => format!(
                "<{tag}>\n{}</{tag}>",
                rows.iter().map(|r| Self::row_html(r)).collect::<String>()
            ),
        };
        format!(
            "<table><thead>{groups}<tr>{header}</tr></thead>{}{}</table>",
            part("tbody", &self.body),
            part("tfoot", &self.foot)
        )
    }

    fn row_html(row: &[String]) -> String {
        let cells = row.iter().enumerate().map(|(i, cell)| match (i, cell.split_once(" ±")) {
            (0, _) => format!("<th scope=\"row\">{}</th>", escape(cell)),
            (_, Some((value, spread))) => {
                format!("<td>{} <small>±{}</small></td>", escape(value), escape(spread))
            }
            _ => format!("<td>{}</td>", escape(cell)),
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    }
}

#[cfg(test)]
mod tests;
