//! The section of short queries beside heavy streams.

use super::super::latency::{
    Latency, STANDSTILLS_LEGEND, ShortLatency, StreamLoad, standstills_title,
};
use super::super::model::{geometric_mean, quotient};
use super::{Page, Table, chart, colour, legend_of, ms, policy, ratio};

impl Page {
    pub(super) fn latency(&mut self, latency: &Latency) {
        self.section(
            "Short queries beside heavy streams",
            &format!("{} A short query's time counts from when it was due.", latency.lead()),
        );
        let loads: Vec<&[StreamLoad]> = latency.by_streams().collect();
        let engines = || loads.iter().take(1).copied().flatten();
        self.legend(&legend_of(engines().map(|load| policy(&load.engine))));
        let mut rows = vec![];
        let mut ratios = vec![vec![]; engines().count()];
        for loads in loads.iter().filter(|loads| loads[0].streams > 0) {
            for kind in 0..loads[0].short.len() {
                let mut dots = vec![];
                for (i, load) in loads.iter().enumerate() {
                    let Some(short) = load.short.get(kind) else { continue };
                    let Some(to_solo) = short.p99_to_solo else { continue };
                    ratios[i].push(to_solo);
                    dots.push(dot(i, load, short, to_solo));
                }
                let of = &loads[0];
                rows.push((format!("{}, {} streams", of.short[kind].query, of.streams), dots));
            }
        }
        // With the short queries alone, there is nothing to compare.
        if !rows.is_empty() {
            let mean = |(i, (ratios, load)): (usize, (&Vec<f64>, &StreamLoad))| {
                let value = geometric_mean(ratios.iter().copied())?;
                let tip = format!("{}, geometric mean: {}", policy(&load.engine), ratio(value));
                Some(chart::Dot { class: colour(i), value, low: value, high: value, tip })
            };
            let means = ratios.iter().zip(engines()).enumerate().filter_map(mean).collect();
            rows.push(("Geometric mean".to_string(), means));
            self.figure(
                "99th percentile ÷ the same engine's without heavy streams; a line spans the runs",
                &chart::ratios(
                    "99th percentile of the short queries as a multiple of that alone, on a logarithmic scale",
                    "faster than alone",
                    "slower than alone",
                    &rows,
                ),
            );
        }
        for loads in &loads {
            let mut table = Table { header: latency.header(), ..Table::default() };
            loads.iter().flat_map(|load| latency.rows(load)).for_each(|row| table.row(row));
            self.table(&loads[0].title(), &table, false);
        }
        if loads.iter().any(|loads| loads[0].streams > 0) {
            let mut table = Table { header: latency.heavy_header(), ..Table::default() };
            latency.heavy_rows().into_iter().for_each(|row| table.row(row));
            self.table("Heavy queries per second beside the short ones", &table, false);
        }
        let standstills = latency.standstills_rows();
        let mut remarks = vec![latency.legend()];
        if !standstills.is_empty() {
            let mut table = Table { header: latency.standstills_header(), ..Table::default() };
            standstills.into_iter().for_each(|row| table.row(row));
            self.table(&standstills_title(), &table, false);
            remarks.push(STANDSTILLS_LEGEND.to_string());
        }
        self.remarks(&remarks);
        self.end_section();
    }
}

fn dot(i: usize, load: &StreamLoad, short: &ShortLatency, value: f64) -> chart::Dot {
    let solo_ms = quotient(short.p99_ms, value);
    let runs = &short.p99_of_runs;
    let tip = format!(
        "{}, {}, {} streams: {} ms, {} that alone ({} to {} ms)",
        policy(&load.engine),
        short.query,
        load.streams,
        ms(short.p99_ms),
        ratio(value),
        ms(runs.best_ms),
        ms(runs.worst_ms)
    );
    chart::Dot {
        class: colour(i),
        value,
        low: quotient(runs.best_ms, solo_ms),
        high: quotient(runs.worst_ms, solo_ms),
        tip,
    }
}
