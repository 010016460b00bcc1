//! The sections of loads and cold scans.

use super::super::cold_scan::{self, ColdScan};
use super::super::load_rate::{self, LoadRates, TableRate, megabytes};
use super::super::model::geometric_mean;
use super::{Page, Table, chart, colour, legend_of_from, ratio};

impl Page {
    pub(super) fn load_rates(&mut self, rates: &LoadRates) {
        let LoadRates { peer, runs, write_limit, data_sets } = rates;
        self.section(
            "Load",
            &format!(
                "The same CSV files into Thalweg and into native tables of {peer}, in turn, {runs} times each, \
                 every load in a process of its own and durable at its end. \
                 The disk's limit is {} MB/s: {}.",
                megabytes(write_limit.mb_per_s),
                write_limit.method
            ),
        );
        let names = [
            format!("load rate, Thalweg ÷ {peer}"),
            format!("stored size, {peer} ÷ Thalweg"),
            "stored size, Parquet with zstd ÷ Thalweg".to_string(),
        ];
        self.legend(&legend_of_from(1, names.iter().cloned()));
        let mut rows: Vec<(String, Vec<chart::Dot>)> = data_sets
            .iter()
            .map(|set| (set.data.clone(), dots(&set.data, figures(&set.total), &names)))
            .collect();
        let mean = |i: usize| {
            let values = data_sets.iter().map(|set| figures(&set.total)[i][0]);
            [geometric_mean(values).unwrap_or(0.0); 3]
        };
        let title = "Geometric mean";
        rows.push((title.into(), dots(title, [mean(0), mean(1), mean(2)], &names)));
        self.figure(
            "Above 1, Thalweg is the faster or the smaller",
            &chart::ratios(
                "Load rates and stored sizes beside the peer's, on a logarithmic scale",
                "Thalweg slower, larger",
                "Thalweg faster, smaller",
                &rows,
            ),
        );
        for set in data_sets {
            self.add(format_args!("<h3>{}</h3>\n", chart::escape(&set.data)));
            let tables: [(&str, &[&str], load_rate::Row); 2] = [
                ("Load", &load_rate::STORED_HEADER, load_rate::stored_row),
                ("Beside the peer", &load_rate::BESIDE_HEADER, load_rate::beside_row),
            ];
            for (what, header, row) in tables {
                let mut table = Table::new(header);
                set.tables.iter().for_each(|t| table.row(row(t)));
                table.foot(row(&set.total));
                self.table(&format!("{what}, {}", set.data), &table, false);
            }
            self.remarks(&set.remarks(peer, write_limit));
        }
        self.end_section();
    }

    pub(super) fn cold_scan(&mut self, scan: &ColdScan) {
        self.section(&scan.title(), &scan.measured.sql);
        let mut table = Table::new(&cold_scan::HEADER);
        scan.rows().into_iter().for_each(|row| table.row(row));
        self.table("Scan, all figures", &table, false);
        self.remarks(&scan.remarks());
        self.end_section();
    }

    pub(super) fn remarks(&mut self, remarks: &[String]) {
        let items: String =
            remarks.iter().map(|line| format!("<li>{}</li>", chart::escape(line))).collect();
        self.add(format_args!("<ul class=\"notes\">{items}</ul>\n"));
    }
}

/// Load rate, size beside the peer's and beside Parquet's, each with its lowest and highest: all
/// turned so that above 1 is better.
fn figures(t: &TableRate) -> [[f64; 3]; 3] {
    let smaller = |size: f64| [if size > 0.0 { 1.0 / size } else { 0.0 }; 3];
    [[t.rate_to_peer, t.rate_low, t.rate_high], smaller(t.size_to_peer), smaller(t.size_to_parquet)]
}

fn dots(label: &str, figures: [[f64; 3]; 3], names: &[String; 3]) -> Vec<chart::Dot> {
    let dot = |(i, ([value, low, high], name)): (usize, ([f64; 3], &String))| {
        let mut tip = format!("{label}, {name}: {}", ratio(value));
        if low < high {
            tip += &format!(" ({} to {})", ratio(low), ratio(high));
        }
        chart::Dot { class: colour(i + 1), value, low, high, tip }
    };
    figures.into_iter().zip(names).enumerate().map(dot).collect()
}
