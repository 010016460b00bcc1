//! `--help` is the manual: it must not fall behind the options.

use crate::Place;

#[test]
fn help_names_every_option_and_gives_examples() {
    let commands: [(&str, &[&str]); 11] = [
        (
            "load",
            &[
                "--each",
                "--manifest",
                "--dry-run",
                "--format",
                "--delimiter",
                "--quote",
                "--escape",
                "--header",
                "--no-header",
                "--null",
                "--columns",
                "--type",
                "--cluster-by",
                "--partition-by",
                "--new-columns",
                "--max-errors",
                "--rejects",
                "--commit-every",
                "--resume",
                "--follow",
                "--every",
                "--memory",
                "--threads",
                "--quiet",
            ],
        ),
        ("check", &["--decode", "--quiet"]),
        (
            "sql",
            &[
                "--command",
                "--file",
                "--format",
                "--output",
                "--expanded",
                "--timing",
                "--timeout",
                "--policy",
                "--threads",
                "--create",
            ],
        ),
        ("shell", &["--create", "--policy", "--threads"]),
        ("inspect", &["--extents", "--chunks", "--column", "--format"]),
        (
            "bench",
            &[
                "--sf",
                "--streams",
                "--policy",
                "--queries",
                "--peers",
                "--report",
                "--json",
                "--threads",
                "--runs",
                "--db",
                "--data",
                "--format",
                "--check",
                "--data-sets",
                "--cold",
                "--suite",
                "--share-work",
                "--times",
                "--memory",
            ],
        ),
        (
            "serve",
            &[
                "--config",
                "--create",
                "--pg",
                "--flight",
                "--http",
                "--auth",
                "--tls-cert",
                "--max-connections",
                "--drain-timeout",
                "--threads",
                "--memory",
                "--log-level",
                "--ready-file",
            ],
        ),
        ("backup", &["--verify", "--quiet"]),
        ("restore", &["--snapshot", "--list", "--check", "--quiet"]),
        ("replay", &["--policy", "--slots", "--report", "--json"]),
        ("calibrate", &["--show", "--json", "--file", "--threads", "--size"]),
    ];
    let place = Place::new();
    let all = place.run(&["--help"]).succeeds().out;
    for (command, options) in commands {
        assert!(all.contains(command), "{all}");
        let help = place.run(&[command, "--help"]).succeeds().out;
        for option in options {
            assert!(help.contains(option), "{option} is not in the help of {command}:\n{help}");
        }
        assert!(help.contains(&format!("Examples:\n  thalweg {command} ")), "{help}");
    }
}

#[test]
fn the_version_is_one_line() {
    let version = format!("thalweg {}\n", env!("CARGO_PKG_VERSION"));
    Place::new().run(&["--version"]).prints(&version);
}

#[test]
fn a_command_line_that_is_not_understood_exits_with_2() {
    let place = Place::new();
    place.run(&["sql", ":memory:", "--formt", "csv"]).fails(2, &["--format"]);
    place.run(&["nosuch"]).fails(2, &["nosuch"]);
    place.run(&["sql"]).fails(2, &["DB"]);
}
