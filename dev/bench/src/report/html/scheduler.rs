//! The sections about what the scheduler promises: throughput of streams, its own cost, queries
//! that are stopped, and memory that is short, of one query and of many.

use super::super::cancel::{self, Cancels};
use super::super::memory::{self, MemoryRun};
use super::super::model::Timing;
use super::super::out_of_core::{self, OutOfCore};
use super::super::throughput::{Load, Throughput, shared, stream_title};
use super::super::variants::Variants;
use super::{Page, Table, chart, colour, legend_of, ms, ratio, seconds};

impl Page {
    pub(super) fn throughput(&mut self, throughput: &Throughput) {
        self.section(
            &throughput.title(),
            &format!(
                "The streams start together; each runs every query in an order of its own. {}.",
                throughput.legend()
            ),
        );
        let counts: Vec<&[Load]> = throughput.by_streams().collect();
        let modes = counts.first().into_iter().copied().flatten();
        let names: Vec<&str> = modes.filter_map(|load| shared(load.shared)).collect();
        if !names.is_empty() {
            self.legend(&legend_of(names.into_iter()));
        }
        let group = |loads: &&[Load]| {
            let bar = |(i, load): (usize, &Load)| chart::Bar {
                class: colour(i),
                value: load.run.average_ratio,
                tip: format!(
                    "{} streams{}: {} s on average, {}; the slowest {} s, {}",
                    load.run.streams.len(),
                    shared(load.shared).map_or(String::new(), |s| format!(", {s}")),
                    seconds(load.run.average_seconds),
                    ratio(load.run.average_ratio),
                    seconds(load.run.slowest_seconds),
                    ratio(load.run.slowest_ratio)
                ),
            };
            let label = match loads[0].run.streams.len() {
                1 => "1 stream".to_string(),
                n => format!("{n} streams"),
            };
            (label, loads.iter().enumerate().map(bar).collect())
        };
        let groups: Vec<(String, Vec<chart::Bar>)> = counts.iter().map(group).collect();
        self.figure(
            "N power runs in turn ÷ the average of N streams at once",
            &chart::grouped(
                "N power runs in turn divided by the average of N streams at once",
                "×",
                &groups,
                Some((1.0, "in turn")),
            ),
        );
        self.table("All stream counts", &table(throughput.header(), throughput.rows()), false);
        for loads in counts.iter().filter(|loads| loads[0].run.streams.len() > 1) {
            let table = table(Throughput::stream_header(loads), Throughput::stream_rows(loads));
            self.table(&stream_title(loads), &table, true);
        }
        self.end_section();
    }

    pub(super) fn variants(&mut self, variants: &Variants) {
        self.section(&variants.title(), variants.intro());
        self.interleaved(
            variants.quotient(),
            variants.sides(),
            variants.queries.iter().map(|q| (&*q.query, q.ratio, [&q.first, &q.second])),
            variants.sum.ratio,
        );
        let mut table = table(variants.header(), variants.rows());
        variants.totals().into_iter().for_each(|row| table.foot(row));
        self.table("All figures", &table, true);
        self.remarks(&[vec![variants.legend().to_string()], variants.remarks()].concat());
        self.end_section();
    }

    pub(super) fn out_of_core(&mut self, run: &OutOfCore) {
        self.section(
            &run.title(),
            "The same queries on two engines over one database, query by query in turn; one of \
             them is allowed little memory.",
        );
        self.interleaved(
            "Within the limit ÷ without it",
            ["faster within it", "slower within it"],
            run.queries.iter().map(|q| (&*q.query, q.ratio, [&q.unlimited, &q.limited])),
            run.sum.ratio,
        );
        let mut table = table(out_of_core::HEADER.map(String::from).to_vec(), run.rows());
        table.foot(run.total());
        self.table("All figures", &table, false);
        self.remarks(&[vec![run.legend()], run.remarks(), run.wrong.clone()].concat());
        self.end_section();
    }

    /// How many times as long each query takes on the second engine, and all of them. `quotient`
    /// says what is divided by what, `sides` what a ratio below 1 means and one above.
    fn interleaved<'a>(
        &mut self,
        quotient: &str,
        sides: [&str; 2],
        queries: impl Iterator<Item = (&'a str, f64, [&'a Timing; 2])>,
        sum: f64,
    ) {
        let dot = |value: f64, low: f64, high: f64, name: &str| {
            let tip = format!("{name}: {}", ratio(value));
            vec![chart::Dot { class: colour(0), value, low, high, tip }]
        };
        let row = |(query, ratio, [first, second]): (&str, f64, [&Timing; 2])| {
            let low = second.best_ms / first.worst_ms.max(f64::MIN_POSITIVE);
            let high = second.worst_ms / first.best_ms.max(f64::MIN_POSITIVE);
            (query.to_string(), dot(ratio, low, high, query))
        };
        let mut rows: Vec<(String, Vec<chart::Dot>)> = queries.map(row).collect();
        rows.push(("Sum".to_string(), dot(sum, sum, sum, "Sum of medians")));
        self.figure(
            &format!("{quotient}; a line reaches to the extremes of all runs"),
            &chart::ratios(
                &format!("{quotient}: time of each query, on a logarithmic scale"),
                sides[0],
                sides[1],
                &rows,
            ),
        );
    }

    pub(super) fn cancels(&mut self, cancels: &Cancels) {
        self.section(
            "Queries stopped at random moments",
            &format!(
                "{} times a TPC-H query is stopped somewhere between its beginning and its end. \
                 How long until it holds no slot any more, and no memory?",
                cancels.cancels.len()
            ),
        );
        let ways = cancels.ways.iter().filter(|way| way.count > 0).chain([&cancels.all]);
        let row = |(i, (name, what, q)): (usize, (&str, &str, &cancel::Quantiles))| chart::Row {
            label: format!("{name}, {what}"),
            class: colour(i % 2),
            value: q.p99_ms,
            worst: q.max_ms,
            note: format!("{} ms", ms(q.p99_ms)),
            tip: format!(
                "{name}, {what}: p50 {} ms, p99 {} ms, at most {} ms",
                ms(q.p50_ms),
                ms(q.p99_ms),
                ms(q.max_ms)
            ),
        };
        let both = ways.flat_map(|way| {
            [(way.way.as_str(), "slots", &way.slots), (way.way.as_str(), "memory", &way.memory)]
        });
        let rows: Vec<chart::Row> = both.enumerate().map(row).collect();
        self.figure(
            "A bar is the 99th percentile, the line ends at the longest, in milliseconds",
            &chart::rows("Time until nothing is held, of each way to stop a query", "ms", &rows),
        );
        let mut all = table(cancel::HEADER.map(String::from).to_vec(), cancels.rows());
        all.foot(cancels.all.row());
        self.table("All ways, in ms", &all, false);
        let header = cancel::QUERY_HEADER.map(String::from).to_vec();
        self.table("The longest of each query, in ms", &table(header, cancels.query_rows()), true);
        self.remarks(&cancels.remarks());
        self.end_section();
    }

    pub(super) fn memory(&mut self, run: &MemoryRun) {
        self.section(
            "Memory that is short",
            &format!("{}: do all end, with the answers that they have alone?", run.title()),
        );
        let mut rows = run.rows();
        let all = rows.pop();
        let mut table = table(memory::HEADER.map(String::from).to_vec(), rows);
        all.into_iter().for_each(|row| table.foot(row));
        self.table("All kinds of queries", &table, false);
        self.remarks(&run.remarks());
        self.end_section();
    }
}

fn table(header: Vec<String>, body: Vec<Vec<String>>) -> Table {
    Table { header, body, ..Table::default() }
}
