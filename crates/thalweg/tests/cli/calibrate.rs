//! `thalweg calibrate`, and what it changes; the figures themselves are not looked at.

use crate::Place;

const EXPLAIN: [&str; 4] = [
    "sql",
    ":memory:",
    "-c",
    "CREATE TABLE t AS SELECT value AS a, value % 7 AS b FROM range(0, 20000); \
     EXPLAIN ANALYZE SELECT b, sum(a) FROM t GROUP BY b",
];

#[test]
fn what_is_measured_is_kept_and_shown_by_explain_analyze() {
    let place = Place::new();
    place.run(&["calibrate", "--show"]).fails(1, &["nothing was measured", "thalweg calibrate"]);
    let before = place.run(&EXPLAIN).succeeds();
    assert!(
        before.out.contains("bytes_in=") && !before.out.contains("bandwidth"),
        "{}",
        before.out
    );

    let measured = place.run(&["calibrate", "--size", "2MiB", "--threads", "2"]).succeeds().out;
    let words =
        ["2.0 MiB", "1 thread ", "2 threads ", "/s", "chained", "batched", " ns", "kept in"];
    for word in words {
        assert!(measured.contains(word), "{word} is not in {measured}");
    }
    let after = place.run(&EXPLAIN).succeeds();
    assert!(after.out.contains("of_memory_bandwidth="), "{}", after.out);

    let shown = place.run(&["calibrate", "--show", "--json"]).succeeds().out;
    place.run(&["calibrate", "--show"]).succeeds();
    let path = place.path("state/thalweg/calibration.json");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), shown);
    let figures: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&figures["array_bytes"], &figures["threads"]), (&(2 << 20).into(), &2.into()));
    assert!(figures["one_thread_bytes_per_s"].as_u64() > Some(0), "{shown}");
}

#[test]
fn a_file_of_its_own_changes_no_queries() {
    let place = Place::new();
    let args = ["calibrate", "--size", "1MiB", "--threads", "1", "--json", "--file", "here.json"];
    let printed = place.run(&args).succeeds().out;
    assert_eq!(std::fs::read_to_string(place.path("here.json")).unwrap(), printed);
    let shown = place.run(&["calibrate", "--show", "--file", "here.json"]).succeeds().out;
    assert!(shown.contains("measured 20") && !shown.contains("threads"), "{shown}");
    assert!(!place.path("state").exists());
    let plan = place.run(&EXPLAIN).succeeds().out;
    assert!(!plan.contains("bandwidth"), "{plan}");
}

#[test]
fn damaged_figures_are_ignored_with_a_warning() {
    let place = Place::new();
    place.write("state/thalweg/calibration.json", "{\"version\": 1,");
    let ran = place.run(&["sql", ":memory:", "-c", "SELECT 1 AS a", "--format", "csv"]).succeeds();
    assert_eq!(ran.out, "a\n1\n");
    for word in ["warning: ", "calibration.json", "hint: `thalweg calibrate`"] {
        assert!(ran.err.contains(word), "{word} is not in {}", ran.err);
    }
    place.run(&["calibrate", "--show"]).fails(4, &["calibration.json"]);
    place.run(&["calibrate", "--size", "1MiB"]).succeeds();
    place.run(&["sql", ":memory:", "-c", "SELECT 1 AS a", "--format", "csv"]).prints("a\n1\n");
}

#[test]
fn what_cannot_be_measured_with_is_refused() {
    let place = Place::new();
    place.run(&["calibrate", "--size", "1KiB"]).fails(2, &["1MiB"]);
    place.run(&["calibrate", "--size", "1000000TiB"]).fails(1, &["too large", "hint: "]);
}
