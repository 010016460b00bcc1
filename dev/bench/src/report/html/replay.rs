//! The page of a replayed workload.

use super::super::replay::{CLASS_HEADER, Class, HEADER, Replay, Replayed};
use super::{Page, Table, chart, colour, ms};

pub fn render(replay: &Replay) -> String {
    let mut page = Page::default();
    for (title, found) in replay.classes() {
        page.section(&title, "From arrival to end, under each policy.");
        let row = |(i, (policy, class)): (usize, &(&Replayed, &Class))| chart::Row {
            label: policy.name().to_string(),
            class: colour(i),
            value: class.p50_ms,
            worst: class.p99_ms,
            note: format!("{} ms", ms(class.p99_ms)),
            tip: format!(
                "{}: p50 {} ms, p99 {} ms, at most {} ms",
                policy.name(),
                ms(class.p50_ms),
                ms(class.p99_ms),
                ms(class.max_ms)
            ),
        };
        let rows: Vec<chart::Row> = found.iter().enumerate().map(row).collect();
        page.figure(
            "A bar is the median, the line ends at the 99th percentile, in milliseconds",
            &chart::rows(&format!("{title}: latency under each policy"), "ms", &rows),
        );
        let mut table = Table::new(&CLASS_HEADER);
        Replay::class_rows(&found).into_iter().for_each(|row| table.row(row));
        page.table("All figures", &table, false);
        page.end_section();
    }
    page.section("All queries", "How far queries were slowed down, and how much was done.");
    let mut table = Table::new(&HEADER);
    replay.rows().into_iter().for_each(|row| table.row(row));
    page.table("All policies", &table, false);
    page.remarks(&replay.remarks());
    page.end_section();
    let footer = "Written by <code>thalweg replay</code>. The policies' times are simulated.";
    page.html("Replay", &format!("of {}", replay.file), &[replay.lead()], footer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::escape;
    use crate::report::sample;

    #[test]
    fn the_page_has_a_chart_for_each_class_and_nothing_from_outside_runs() {
        let mut replay = sample::replay();
        replay.file = "<script>.csv".into();
        replay.policies[1].policy = "<script>".into();
        let page = render(&replay);
        assert!(!page.contains("<script"));
        assert!(page.contains(&escape("of <script>.csv")));
        assert_eq!(page.matches("<figure>").count(), 2);
        assert!(page.contains("<td>1.33×</td>") && page.contains("thalweg replay"), "{page}");
    }
}
