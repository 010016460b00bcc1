//! `thalweg bench` from end to end where it needs no other engine; what it measures is not looked at.

use crate::Place;

#[test]
fn a_cold_scan_loads_its_table_once_and_reports_in_three_forms() {
    let place = Place::new();
    let scan = ["bench", "scan", "--cold", "--sf", "0.001", "--data", "data", "--db", "scan.db"];
    let run = |more: &[&str]| place.run(&[&scan[..], &["--runs", "1"], more].concat()).succeeds();
    let report = run(&["--json", "scan.json", "--report", "scan.html"]).out;
    for text in ["Cold scan of all columns of lineorder", "The files alone", "O_DIRECT"] {
        assert!(report.contains(text), "{text}\n{report}");
    }
    let json = std::fs::read_to_string(place.path("scan.json")).unwrap();
    assert!(json.contains("\"column_bytes\"") && json.contains("\"ratio_low\""), "{json}");
    let page = std::fs::read_to_string(place.path("scan.html")).unwrap();
    assert!(page.contains("<h2>Cold scan of all columns of lineorder"), "{page}");
    run(&[]);
}

#[test]
fn a_load_is_refused_before_anything_is_made() {
    let place = Place::new();
    place.run(&["bench", "load", "--data-sets", "ssb,nosuch"]).fails(1, &["nosuch", "flights"]);
    place.run(&["bench", "load", "--runs", "0"]).fails(1, &["--runs"]);
    let python = place.write("not-a-folder", "").join("venv");
    let ran = crate::command(&place.path("."))
        .args(["bench", "load", "--sf", "0.001"])
        .env("THALWEG_VENV", python)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(error.contains("Python 3.10 or later"), "{error}");
    assert!(!place.path(".cache").exists());
}

#[test]
fn latency_is_measured_with_and_without_streams_and_reported_in_three_forms() {
    let place = Place::new();
    let report = place
        .run(
            &[
                &["bench", "latency", "--sf", "0.001", "--data", "data", "--seconds", "1"][..],
                &["--streams", "2", "--policy", "fifo,small_first", "--runs", "1"],
                &["--json", "latency.json", "--report", "latency.html"],
            ]
            .concat(),
        )
        .succeeds()
        .out;
    for text in [
        "No stream of heavy queries: short ones in ms since due, 10 of each",
        "2 streams of heavy queries: short ones in ms since due, 10 of each",
        "Small Queries First | look-up",
        "Heavy queries per second beside the short ones",
    ] {
        assert!(report.contains(text), "{text}\n{report}");
    }
    let json = std::fs::read_to_string(place.path("latency.json")).unwrap();
    assert!(json.contains("\"p99_to_solo\"") && json.contains("\"heavy_to_fifo\": 1.0"), "{json}");
    let page = std::fs::read_to_string(place.path("latency.html")).unwrap();
    assert!(page.contains("<h2>Short queries beside heavy streams"), "{page}");
}

#[test]
fn latency_is_in_the_help_and_only_it_runs_without_a_stream() {
    let place = Place::new();
    let help = place.run(&["bench", "--help"]).succeeds().out;
    for text in ["latency", "--seconds", "thalweg bench latency --streams 0,8"] {
        assert!(help.contains(text), "{text}\n{help}");
    }
    place.run(&["bench", "tpch", "--streams", "0"]).fails(1, &["--streams", "bench latency"]);
}

#[test]
fn the_worker_is_not_for_people() {
    let place = Place::new();
    place.run_with(&["bench", "worker"], "{}").fails(1, &["this is no task", "bench load"]);
    let help = place.run(&["bench", "--help"]).succeeds().out;
    assert!(!help.contains("worker"), "{help}");
}
