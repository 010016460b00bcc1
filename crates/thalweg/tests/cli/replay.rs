//! `thalweg replay`: a record in, a report in three forms out.

use crate::Place;

/// Two reports, then look-ups behind them; one was refused before it used any CPU time.
const LOG: &str = "\
query,session,text,workload,state,arrived,cpu_us,quanta,tasks,wall_us,slot_wait_us
1,1,report,default,done,2026-01-31T12:00:00.000,2000000,1000,4,1900000,10
2,2,report,default,done,2026-01-31T12:00:00.001,2000000,1000,4,2000000,10
3,3,look-up,default,done,2026-01-31T12:00:00.100,16000,8,2,900000,10
4,3,look-up,default,cancelled,2026-01-31T12:00:00.200,16000,8,2,900000,10
5,3,\"look-up, refused\",default,failed,2026-01-31T12:00:00.300,0,0,0,10,0
";

#[test]
fn a_record_is_played_under_each_policy() {
    let place = Place::new();
    place.write("log.csv", LOG);
    let reports = ["--json", "replay.json", "--report", "replay.html"];
    let ran = place.run(&[&["replay", "log.csv", "--slots", "2"], &reports[..]].concat());
    let out = ran.succeeds().out;
    for text in [
        "4 queries that came within 0.20 s and used 4.03 s of CPU time, on 2 slots",
        "Queries of less than 100 ms of CPU: 2\n",
        "Queries of 100 ms of CPU and more: 2\n",
        "As recorded         |     900.0 |",
        "Small Queries First |",
        "* left out, because they used no CPU time: 1",
    ] {
        assert!(out.contains(text), "{text}\n{out}");
    }
    let json = std::fs::read_to_string(place.path("replay.json")).unwrap();
    assert!(json.contains("\"p99_ms\"") && json.contains("\"makespan_seconds\""), "{json}");
    let page = std::fs::read_to_string(place.path("replay.html")).unwrap();
    assert!(page.contains("<h1>Replay") && page.contains("<svg"), "{page}");
}

/// The formats that `COPY … TO` writes, read back by the engine's own readers.
#[test]
fn a_record_may_be_of_any_format_that_copy_writes() {
    let place = Place::new();
    place.write("log.csv", LOG);
    let replay = |file: &str| {
        let out = place.run(&["replay", file, "--slots", "2", "--policy", "fifo"]).succeeds().out;
        assert!(!out.contains("Fair"), "{out}");
        out
    };
    let expected = replay("log.csv");
    for file in ["log.parquet", "log.json"] {
        let copy = format!("COPY (SELECT * FROM 'log.csv' ORDER BY query) TO '{file}'");
        place.run(&["sql", ":memory:", "-c", &copy]).succeeds();
        assert_eq!(replay(file), expected, "{file}");
    }
}

#[test]
fn what_is_no_record_is_refused() {
    let place = Place::new();
    place.write("other.csv", "arrived,tasks\n2026-01-31T12:00:00,1\n");
    place.run(&["replay", "other.csv"]).fails(1, &["other.csv", "\"cpu_us\"", "system.query_log"]);
    place.run(&["replay", "nosuch.csv"]).fails(1, &["nosuch.csv"]);
    place.run(&["replay", "other.txt"]).fails(1, &["other.txt"]);
    place.run(&["replay", "log.csv", "--policy", "best"]).fails(2, &["--policy"]);
}
