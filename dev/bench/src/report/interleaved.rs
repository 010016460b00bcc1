//! The same queries on two engines, in turn: how the times of all of them compare.

use serde::{Deserialize, Serialize};

use super::figures::ratio;
use super::model::{Timing, quotient};

/// The second engine's time of all queries divided by the first's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SumRatio {
    /// Of the sums of the medians.
    pub ratio: f64,
    /// Of the sums of single runs, the lowest and the highest.
    pub ratio_low: f64,
    pub ratio_high: f64,
}

impl SumRatio {
    /// `queries`: of each its times on both engines.
    pub fn new(queries: &[[&Timing; 2]], runs: usize) -> SumRatio {
        let of = |[first, second]: [f64; 2]| quotient(second, first);
        let of_run = |run: usize| of(sums(queries, |t| t.runs_ms.get(run).copied().unwrap_or(0.0)));
        let ratios: Vec<f64> = (0..runs).map(of_run).collect();
        SumRatio {
            ratio: of(sums_of_medians(queries)),
            ratio_low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratio_high: ratios.iter().copied().fold(0.0, f64::max),
        }
    }

    /// How far the runs are apart.
    pub fn remark(&self, runs: usize) -> String {
        format!(
            "ratio of the sums in single runs: {} to {}, {runs} runs",
            ratio(self.ratio_low),
            ratio(self.ratio_high)
        )
    }
}

/// Of each engine.
pub fn sums_of_medians(queries: &[[&Timing; 2]]) -> [f64; 2] {
    sums(queries, |t| t.median_ms)
}

fn sums(queries: &[[&Timing; 2]], ms: impl Fn(&Timing) -> f64) -> [f64; 2] {
    [0, 1].map(|engine| queries.iter().map(|times| ms(times[engine])).sum())
}
