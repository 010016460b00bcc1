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

/// What the three forms of a report have to hold.
#[track_caller]
fn reports(args: &[&str], text: &[&str], json: &[&str], page: &[&str]) {
    let place = Place::new();
    let files = ["--json", "report.json", "--report", "report.html", "--data", "data"];
    let out = place.run(&[&["bench"], args, &files[..]].concat()).succeeds().out;
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    for (content, words) in [(out, text), (read("report.json"), json), (read("report.html"), page)]
    {
        for word in words {
            assert!(content.contains(word), "{word}\n{content}");
        }
    }
}

#[test]
fn streams_are_measured_beside_power_runs_in_turn() {
    reports(
        &["streams", "--suite", "ssb", "--sf", "0.001", "--streams", "1,2", "--queries", "1.1,4.1"],
        &["SSB SF 0.001, Fair: N streams at once", "2 streams, one by one"],
        &["\"average_ratio\"", "\"slowest_ratio\"", "\"shared\""],
        &["<h2>SSB SF 0.001, Fair: N streams at once"],
    );
}

#[test]
fn out_of_core_compares_answers_within_a_limit_and_without_it() {
    let args = ["out-of-core", "--sf", "0.001", "--queries", "1,9", "--runs", "1"];
    reports(
        &[&args[..], &["--memory", "64MiB"]].concat(),
        &["TPC-H SF 0.001, one stream, within 64.0 MiB", "Times as long", "2 of 2 answers"],
        &["\"spill_peak_bytes\"", "\"ratio_low\"", "\"equal\": 2"],
        &["<h2>TPC-H SF 0.001, one stream, within 64.0 MiB"],
    );
}

#[test]
fn overhead_is_measured_with_and_without_the_scheduler() {
    reports(
        &["overhead", "--suite", "tpch", "--sf", "0.001", "--queries", "1,6", "--runs", "2"],
        &["TPC-H SF 0.001, one stream", "Q6 ", "Sum of medians", "in single runs"],
        &["\"what\": \"scheduler\"", "\"second_ms\"", "\"geometric_mean_ratio\""],
        &["<h2>TPC-H SF 0.001, one stream"],
    );
}

#[test]
fn scaling_is_from_one_thread_to_more() {
    let args = ["scaling", "--suite", "ssb", "--sf", "0.001", "--queries", "1.1", "--threads"];
    reports(
        &[&args[..], &["2", "--runs", "2", "--share-nothing"]].concat(),
        &[
            "SSB SF 0.001, one stream, on 2 threads and on one",
            "1 thread (ms)",
            "1.1 ",
            "2 engines of one thread each at once, and one alone",
        ],
        &["\"threads\": 2", "\"geometric_mean_ratio\"", "\"engines\""],
        &["<h2>SSB SF 0.001, one stream, on 2 threads and on one"],
    );
    let place = Place::new();
    place
        .run(&[&["bench"], &args[..], &["1"]].concat())
        .fails(1, &["--threads must be at least 2"]);
}

#[test]
fn coverage_counts_the_queries_that_run_wholly_on_pipelines() {
    reports(
        &["coverage", "--suite", "tpcds", "--queries", "3,28"],
        &["TPC-DS SF 0.001: what runs on pipelines", "CrossJoinExec", "1 of 2 wholly on pipelines"],
        &["\"whole\": 1", "\"others\""],
        &["<h2>TPC-DS SF 0.001: what runs on pipelines"],
    );
}

#[test]
fn queries_are_cancelled_in_each_way() {
    reports(
        &["cancel", "--sf", "0.01", "--queries", "1,9,18", "--times", "12", "--runs", "1"],
        &["drop       |     3", "KILL       |     3", "timeout    |     3", "All        |    12"],
        &["\"slots_ms\"", "\"memory_ms\"", "\"missed\""],
        &["<h2>Queries stopped at random moments"],
    );
    Place::new().run(&["bench", "cancel", "--times", "0"]).fails(1, &["--times"]);
}

/// With enough for all: what happens under a limit depends on the machine.
#[test]
fn many_queries_run_at_once_in_a_process_of_their_own() {
    reports(
        &["memory", "--sf", "0.01", "--streams", "6", "--memory", "1GiB"],
        &["6 queries at once", "sort      | 2", "limit 1.0 GiB: 768.0 MiB for joins", "resident"],
        &["\"working_sets_to_limit\"", "\"rss_to_limit\"", "\"right\": 6"],
        &["<h2>Memory that is short"],
    );
}

#[test]
fn the_worker_is_not_for_people() {
    let place = Place::new();
    place.run_with(&["bench", "worker"], "{}").fails(1, &["this is no task", "bench load"]);
    let help = place.run(&["bench", "--help"]).succeeds().out;
    assert!(!help.contains("worker"), "{help}");
}
