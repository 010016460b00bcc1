use super::*;
use crate::report::sample;

#[test]
fn the_page_stands_alone() {
    let page = render(&sample::report());
    for outside in ["http:", "https:", "url(", "@import", "<script", "src=", "<link"] {
        let found = page.replace("http://www.w3.org/2000/svg", "").find(outside);
        assert_eq!(found, None, "{outside}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf "));
    for tag in ["section", "figure", "table", "details", "svg", "ul", "g"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("aria-label=").count() + 1);
}

#[test]
fn the_page_has_the_figures_of_the_text() {
    let report = sample::report();
    let page = render(&report);
    let table = super::super::text::concurrency(&report.concurrency[0], Default::default());
    for line in table.lines().filter(|l| l.starts_with(|c: char| c.is_ascii_digit() || c == 'A')) {
        for figure in line.split('|').skip(1) {
            assert!(page.contains(&format!("<td>{}</td>", figure.trim())), "{figure}");
        }
    }
}

#[test]
fn what_comes_from_outside_is_escaped() {
    let evil = "<script>alert('x')</script>\"&";
    let mut report = sample::report();
    report.benchmark = evil.into();
    report.engine.name = evil.into();
    report.machine.cpu = evil.into();
    report.notes.push(evil.into());
    for run in &mut report.concurrency {
        run.policy = evil.into();
        run.streams[0].queries[0].query = evil.into();
    }
    for run in &mut report.mixed.as_mut().unwrap().runs {
        run.queries[0].span.query = evil.into();
    }
    let peers = report.peers.as_mut().unwrap();
    peers.engines[1].name = evil.into();
    peers.queries[0].query = evil.into();
    peers.queries[0].results[1].differs = Some(evil.into());
    report.power.as_mut().unwrap().queries[0].query = evil.into();
    report.load.as_mut().unwrap().tables[0].table = evil.into();
    report.load_rates.as_mut().unwrap().data_sets[0].data = evil.into();
    report.cold_scan.as_mut().unwrap().measured.sql = evil.into();
    report.throughput[0].data = evil.into();
    report.variants[0].queries[0].query = evil.into();
    report.out_of_core[0].queries[0].query = evil.into();
    report.out_of_core[0].wrong[0] = evil.into();
    report.coverage[0].queries[0].query = evil.into();
    report.cancels.as_mut().unwrap().queries[0].query = evil.into();
    report.memory.as_mut().unwrap().queries[1].error = Some(evil.into());
    let load = &mut report.latency.as_mut().unwrap().loads[1];
    load.engine = evil.into();
    load.short[0].query = evil.into();
    let page = render(&report);
    assert!(!page.contains("<script"));
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"));
}

#[test]
fn a_report_of_nothing_is_a_page() {
    let mut report = sample::report();
    (report.load, report.power, report.mixed, report.peers) = (None, None, None, None);
    (report.load_rates, report.cold_scan, report.latency) = (None, None, None);
    (report.cancels, report.memory) = (None, None);
    (report.throughput, report.variants) = (vec![], vec![]);
    report.out_of_core.clear();
    report.coverage.clear();
    report.concurrency.clear();
    report.notes.clear();
    let page = render(&report);
    assert!(page.contains("<h1>TPC-H SF 10") && !page.contains("<section>"));
}
