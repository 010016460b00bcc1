//! Figures as they are printed, the same in the terminal and on the page.

use thalweg_base::text::count;

use super::model::Timing;

/// Milliseconds with one decimal: `1,234.5`.
pub fn ms(value: f64) -> String {
    let tenths = (value * 10.0).round().max(0.0) as u64;
    format!("{}.{}", count(tenths / 10), tenths % 10)
}

/// Seconds with two decimals, as the published reports have them: `3,229.64`.
pub fn seconds(value: f64) -> String {
    let hundredths = (value * 100.0).round().max(0.0) as u64;
    format!("{}.{:02}", count(hundredths / 100), hundredths % 100)
}

/// A percentage without its sign: `10.96`, `-3.20`.
pub fn percent(value: f64) -> String {
    let text = format!("{value:.2}");
    if text == "-0.00" { "0.00".to_string() } else { text }
}

/// `4.81×`: three digits that matter, above 1 and below it.
pub fn ratio(value: f64) -> String {
    match value {
        v if v >= 999.5 => format!("{}×", count(v.round() as u64)),
        v if v >= 99.95 => format!("{v:.0}×"),
        v if v >= 9.995 => format!("{v:.1}×"),
        v if v >= 0.0995 => format!("{v:.2}×"),
        v => format!("{v:.3}×"),
    }
}

/// The ± of a median: `4 %`.
pub fn spread(percent: f64) -> String {
    format!("±{percent:.0} %")
}

/// A median and its ±, which stand below one another in a column: `50.0  ±5 %`.
pub fn timing(timing: &Timing) -> String {
    format!("{} {:>5}", ms(timing.median_ms), spread(timing.spread_percent))
}

/// A policy as people read it; what is no policy of ours stays as it is.
pub fn policy(name: &str) -> &str {
    match name {
        "fifo" => "FIFO",
        "round_robin" => "Round Robin",
        "small_first" => "Small Queries First",
        "fair" => "Fair",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(ms(0.04), "0.0");
        assert_eq!(ms(12345.67), "12,345.7");
        assert_eq!(seconds(3229.638), "3,229.64");
        assert_eq!(seconds(0.999), "1.00");
        assert_eq!((percent(-3.2), percent(-0.001)), ("-3.20".to_string(), "0.00".to_string()));
        let ratios = [0.0421, 0.0999, 0.5, 1.0, 9.994, 9.996, 12.34, 123.4, 1234.0];
        let expected =
            ["0.042×", "0.10×", "0.50×", "1.00×", "9.99×", "10.0×", "12.3×", "123×", "1,234×"];
        assert_eq!(ratios.map(ratio), expected);
        assert_eq!(spread(3.6), "±4 %");
        assert_eq!(
            (policy("small_first"), policy("DuckDB 2.0.0")),
            ("Small Queries First", "DuckDB 2.0.0")
        );
    }
}
