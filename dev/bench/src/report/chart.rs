//! Charts as inline SVG. Colours and fonts are classes that the page's style sheet defines, so a
//! chart follows the page into dark mode and onto paper.

use std::fmt::Write;

/// Width of every chart in its own units; the page scales it.
const WIDTH: f64 = 960.0;
/// Columns that fit side by side with a readable label; more go into another panel.
const COLUMNS_MAX: usize = 34;

/// Makes a text safe inside an element and inside a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// One column: its value, the range it was measured in, and what the tooltip says.
pub struct Column {
    pub label: String,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub tip: String,
}

/// Columns from a common zero, with a whisker each, in as many panels as needed.
pub fn columns(alt: &str, unit: &str, columns: &[Column]) -> String {
    const PANEL: f64 = 240.0;
    const LEFT: f64 = 66.0;
    let panels = columns.len().div_ceil(COLUMNS_MAX).max(1);
    let per_panel = columns.len().div_ceil(panels).max(1);
    let max = columns.iter().map(|c| c.high.max(c.value)).fold(0.0, f64::max);
    let scale = Scale::linear(max);
    let mut svg = Svg::open(alt, PANEL * panels as f64);
    for (p, panel) in columns.chunks(per_panel).enumerate() {
        let (top, bottom) = (p as f64 * PANEL + 12.0, p as f64 * PANEL + PANEL - 26.0);
        let y = |v: f64| bottom - scale.part(v) * (bottom - top);
        svg.grid_rows(&scale, unit, LEFT, y);
        let step = (WIDTH - LEFT) / per_panel as f64;
        let width = (step * 0.62).min(46.0);
        for (i, c) in panel.iter().enumerate() {
            let x = LEFT + step * (i as f64 + 0.5);
            svg.begin(&c.tip);
            svg.bar("c1", x - width / 2.0, y(c.value), width, bottom - y(c.value));
            svg.line("whisker", x, y(c.low), x, y(c.high));
            svg.end();
            svg.text(x, bottom + 17.0, "middle", &c.label);
        }
        svg.line("base", LEFT, bottom, WIDTH, bottom);
    }
    svg.close()
}

/// A bar of a group: `class` is its colour.
pub struct Bar {
    pub class: String,
    pub value: f64,
    pub tip: String,
}

/// Groups of bars side by side; `reference` draws a line across with its label.
pub fn grouped(
    alt: &str,
    unit: &str,
    groups: &[(String, Vec<Bar>)],
    reference: Option<(f64, &str)>,
) -> String {
    const HEIGHT: f64 = 300.0;
    const LEFT: f64 = 66.0;
    let values = groups.iter().flat_map(|(_, bars)| bars.iter().map(|b| b.value));
    let scale = Scale::linear(values.chain(reference.map(|r| r.0)).fold(0.0, f64::max));
    let (top, bottom) = (20.0, HEIGHT - 28.0);
    let y = |v: f64| bottom - scale.part(v) * (bottom - top);
    let mut svg = Svg::open(alt, HEIGHT);
    svg.grid_rows(&scale, unit, LEFT, y);
    let step = (WIDTH - LEFT) / groups.len().max(1) as f64;
    for (g, (label, bars)) in groups.iter().enumerate() {
        let left = LEFT + step * g as f64;
        let width = (step * 0.78 / bars.len().max(1) as f64).min(44.0);
        let start = left + (step - width * bars.len() as f64) / 2.0;
        for (i, bar) in bars.iter().enumerate() {
            let x = start + width * i as f64;
            svg.begin(&bar.tip);
            svg.bar(
                &bar.class,
                x + 1.0,
                y(bar.value),
                (width - 2.0).max(1.0),
                bottom - y(bar.value),
            );
            svg.end();
            if width >= 34.0 {
                svg.text(
                    x + width / 2.0,
                    y(bar.value) - 5.0,
                    "middle value",
                    &format!("{:.2}", bar.value),
                );
            }
        }
        svg.text(left + step / 2.0, bottom + 19.0, "middle", label);
    }
    svg.line("base", LEFT, bottom, WIDTH, bottom);
    if let Some((value, label)) = reference {
        svg.line("reference", LEFT, y(value), WIDTH, y(value));
        svg.text(WIDTH, y(value) - 6.0, "end reference-label", label);
    }
    svg.close()
}

/// A row of a timeline: its label and its bars.
pub struct Track {
    pub label: String,
    pub bars: Vec<Interval>,
}

pub struct Interval {
    pub start: f64,
    pub end: f64,
    pub class: &'static str,
    pub label: String,
    pub tip: String,
}

/// What ran when, from 0 to `max` seconds (given, so that several charts share one scale).
pub fn timeline(alt: &str, tracks: &[Track], max: f64) -> String {
    const TRACK: f64 = 23.0;
    const LEFT: f64 = 84.0;
    let scale = Scale::to(max);
    let bottom = 8.0 + TRACK * tracks.len() as f64;
    let x = |v: f64| LEFT + scale.part(v) * (WIDTH - LEFT - 12.0);
    let mut svg = Svg::open(alt, bottom + 26.0);
    for &tick in &scale.ticks {
        svg.line("grid", x(tick), 4.0, x(tick), bottom);
        let label = if tick == 0.0 { "0 s".to_string() } else { scale.label(tick) };
        svg.text(x(tick), bottom + 18.0, "middle axis", &label);
    }
    for (t, track) in tracks.iter().enumerate() {
        let y = 8.0 + TRACK * t as f64;
        svg.text(LEFT - 10.0, y + 14.0, "end", &track.label);
        for bar in &track.bars {
            let width = (x(bar.end) - x(bar.start)).max(1.0);
            svg.begin(&bar.tip);
            svg.bar(&format!("span {}", bar.class), x(bar.start), y + 1.0, width, TRACK - 5.0);
            // About 6.6 units per character at the style sheet's size, and some air.
            if width > bar.label.chars().count() as f64 * 6.6 + 6.0 {
                let class = format!("middle in-{}", bar.class);
                svg.text(x(bar.start) + width / 2.0, y + 14.0, &class, &bar.label);
            }
            svg.end();
        }
    }
    svg.close()
}

/// A horizontal bar with a mark further out: an average and its worst case.
pub struct Row {
    pub label: String,
    pub class: String,
    pub value: f64,
    pub worst: f64,
    /// Printed at the end of the row.
    pub note: String,
    pub tip: String,
}

pub fn rows(alt: &str, unit: &str, rows: &[Row]) -> String {
    const ROW: f64 = 38.0;
    const LEFT: f64 = 160.0;
    const RIGHT: f64 = 150.0;
    let scale = Scale::to(rows.iter().map(|r| r.value.max(r.worst)).fold(0.0, f64::max));
    let bottom = 6.0 + ROW * rows.len() as f64;
    let x = |v: f64| LEFT + scale.part(v) * (WIDTH - LEFT - RIGHT);
    let mut svg = Svg::open(alt, bottom + 26.0);
    for &tick in &scale.ticks {
        svg.line("grid", x(tick), 4.0, x(tick), bottom);
        let label = if tick == 0.0 { format!("0 {unit}") } else { scale.label(tick) };
        svg.text(x(tick), bottom + 18.0, "middle axis", &label);
    }
    for (i, row) in rows.iter().enumerate() {
        let y = 6.0 + ROW * i as f64;
        svg.text(LEFT - 12.0, y + 23.0, "end", &row.label);
        svg.begin(&row.tip);
        svg.bar(&row.class, LEFT, y + 7.0, x(row.value) - LEFT, ROW - 14.0);
        svg.line("whisker", x(row.value), y + ROW / 2.0, x(row.worst), y + ROW / 2.0);
        svg.line("whisker", x(row.worst), y + 12.0, x(row.worst), y + ROW - 12.0);
        svg.end();
        svg.text(x(row.value.max(row.worst)) + 10.0, y + 23.0, "start value", &row.note);
    }
    svg.line("base", LEFT, 4.0, LEFT, bottom);
    svg.close()
}

/// One engine's ratio on one query.
pub struct Dot {
    pub class: String,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub tip: String,
}

/// Ratios on a logarithmic scale around 1; `below` and `above` say what they mean there. The last
/// row stands apart: it is of all.
pub fn ratios(alt: &str, below: &str, above: &str, rows: &[(String, Vec<Dot>)]) -> String {
    const ROW: f64 = 23.0;
    const LEFT: f64 = 146.0;
    const TOP: f64 = 44.0;
    let all = || rows.iter().flat_map(|(_, dots)| dots).filter(|d| d.value > 0.0);
    // Room for at least a factor of two on both sides, so that 1 is never at the border.
    let min = all().map(|d| if d.low > 0.0 { d.low } else { d.value }).fold(0.5, f64::min).log2();
    let max = all().map(|d| d.high.max(d.value)).fold(2.0, f64::max).log2();
    let (min, max) = (min - 0.15, max + 0.15);
    let x = |v: f64| {
        let part = (v.max(f64::MIN_POSITIVE).log2() - min) / (max - min);
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - 14.0)
    };
    let bottom = TOP + ROW * rows.len() as f64 + 10.0;
    let mut svg = Svg::open(alt, bottom + 24.0);
    // At most about ten lines: every power of 2, of 4, of 16, …
    let every = ((max - min) / 10.0).ceil().max(1.0) as i32;
    for power in (min.ceil() as i32..=max.floor() as i32).filter(|p| p % every == 0) {
        let v = 2f64.powi(power);
        let class = if power == 0 { "base" } else { "grid" };
        svg.line(class, x(v), TOP - 8.0, x(v), bottom);
        let label =
            if power >= 0 { format!("{v}×") } else { format!("1/{}×", 2f64.powi(-power)) };
        svg.text(x(v), bottom + 17.0, "middle axis", &label);
    }
    svg.text(x(1.0) - 12.0, 20.0, "end heading", &format!("← {below}"));
    svg.text(x(1.0) + 12.0, 20.0, "start heading", &format!("{above} →"));
    for (i, (label, dots)) in rows.iter().enumerate() {
        let last = i + 1 == rows.len();
        let y = TOP + ROW * (i as f64 + 0.5) + if last { 8.0 } else { 0.0 };
        if last {
            svg.line("base", 0.0, y - ROW / 2.0 - 3.0, WIDTH, y - ROW / 2.0 - 3.0);
        } else {
            svg.line("row", LEFT, y, WIDTH - 14.0, y);
        }
        svg.text(LEFT - 14.0, y + 4.0, if last { "end strong" } else { "end" }, label);
        for dot in dots {
            svg.begin(&dot.tip);
            if last {
                svg.diamond(&dot.class, x(dot.value), y, 7.5);
            } else {
                svg.line(&format!("stem {}", dot.class), x(dot.low), y, x(dot.high), y);
                svg.dot(&dot.class, x(dot.value), y, 5.0);
            }
            svg.end();
        }
    }
    svg.close()
}

/// A linear axis from zero with round ticks.
struct Scale {
    max: f64,
    step: f64,
    ticks: Vec<f64>,
}

impl Scale {
    /// Ends at the first tick above `max`.
    fn linear(max: f64) -> Scale {
        let mut scale = Scale::to(max);
        if scale.ticks.last().is_some_and(|&last| last < max) {
            scale.ticks.push(scale.ticks.len() as f64 * scale.step);
        }
        scale.max = scale.ticks.last().copied().unwrap_or(1.0).max(scale.step);
        scale
    }

    /// Ends at `max` itself.
    fn to(max: f64) -> Scale {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let raw = max / 5.0;
        let magnitude = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|m| m * magnitude)
            .find(|&step| step >= raw * 0.999)
            .unwrap_or(10.0 * magnitude);
        let ticks = (0..=(max / step + 1e-9).floor() as usize).map(|i| i as f64 * step).collect();
        Scale { max, step, ticks }
    }

    fn part(&self, value: f64) -> f64 {
        (value / self.max).clamp(0.0, 1.0)
    }

    /// As many decimals as the step has.
    fn label(&self, tick: f64) -> String {
        let decimals = (0..6)
            .find(|&d| {
                let shifted = self.step * 10f64.powi(d);
                (shifted - shifted.round()).abs() < 1e-6
            })
            .unwrap_or(6);
        format!("{tick:.*}", decimals as usize)
    }
}

struct Svg {
    text: String,
}

impl Svg {
    fn open(alt: &str, height: f64) -> Svg {
        let text = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\" xmlns=\"http://www.w3.org/2000/svg\">\n",
            escape(alt)
        );
        Svg { text }
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.text.write_fmt(arguments);
    }

    /// Opens a group whose tooltip is `tip`.
    fn begin(&mut self, tip: &str) {
        self.push(format_args!("<g class=\"mark\"><title>{}</title>", escape(tip)));
    }

    fn end(&mut self) {
        self.text.push_str("</g>\n");
    }

    fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    fn bar(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let radius = (width / 2.0).min(2.0);
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{radius:.1}\"/>",
            width.max(0.0),
            height.max(0.0)
        ));
    }

    fn dot(&mut self, class: &str, x: f64, y: f64, r: f64) {
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\"/>"
        ));
    }

    fn diamond(&mut self, class: &str, x: f64, y: f64, r: f64) {
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{x:.1} {:.1}l{r:.1} {r:.1}l-{r:.1} {r:.1}l-{r:.1} -{r:.1}z\"/>",
            y - r
        ));
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
            escape(text)
        ));
    }

    /// The topmost line has the unit.
    fn grid_rows(&mut self, scale: &Scale, unit: &str, left: f64, y: impl Fn(f64) -> f64) {
        for (i, &tick) in scale.ticks.iter().enumerate() {
            self.line("grid", left, y(tick), WIDTH, y(tick));
            let mut label = scale.label(tick);
            if i + 1 == scale.ticks.len() {
                label = format!("{label} {unit}");
            }
            self.text(left - 10.0, y(tick) + 4.0, "end axis", &label);
        }
    }

    fn close(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let labels = |max| {
            let scale = Scale::linear(max);
            scale.ticks.iter().map(|&t| scale.label(t)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(602.0), "0 200 400 600 800");
        assert_eq!(labels(0.47), "0.0 0.1 0.2 0.3 0.4 0.5");
        assert_eq!(labels(10.0), "0 2 4 6 8 10");
        assert_eq!(labels(12.0), "0.0 2.5 5.0 7.5 10.0 12.5");
        assert_eq!(labels(0.0), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(Scale::to(11.0).part(11.0), 1.0);
    }

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(
            escape("<a href='x' & \"y\">"),
            "&lt;a href=&#39;x&#39; &amp; &quot;y&quot;&gt;"
        );
        let column = Column {
            label: "<b>".into(),
            value: 1.0,
            low: 0.5,
            high: 2.0,
            tip: "</title><script>".into(),
        };
        let svg = columns("\"><script>", "ms", &[column]);
        assert!(!svg.contains("<script>") && !svg.contains("<b>"), "{svg}");
    }

    #[test]
    fn many_columns_become_panels_and_none_is_no_division_by_zero() {
        let column = |i: usize| Column {
            label: format!("{i}"),
            value: i as f64,
            low: 0.0,
            high: i as f64,
            tip: String::new(),
        };
        let many: Vec<Column> = (0..99).map(column).collect();
        assert!(columns("", "ms", &many).starts_with("<svg viewBox=\"0 0 960 720\""));
        for svg in [
            columns("", "ms", &[]),
            grouped("", "s", &[], None),
            timeline("", &[], 0.0),
            rows("", "s", &[]),
            ratios("", "slower", "faster", &[]),
        ] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
