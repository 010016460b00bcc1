//! The command line as its users meet it: bytes on stdout, messages on stderr, exit codes.

mod backup;
mod bench;
mod calibrate;
mod check;
mod crash;
mod help;
mod inspect;
mod load;
mod replay;
mod serve;
mod shell;
mod sql;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of its own for every test, gone when the test ends.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Runs `thalweg` in this folder, with nothing on stdin.
    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        let mut child = command(self.folder.path())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // A command that fails early does not read its input.
        let _ = pipe.write_all(stdin.as_bytes());
        drop(pipe);
        Ran::new(args, child.wait_with_output().unwrap())
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.current_dir(folder).env("XDG_STATE_HOME", folder.join("state"));
    // What whoever runs the tests has set is not for the commands under test.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("THALWEG_")) {
            command.env_remove(name);
        }
    }
    command
}

#[derive(Debug)]
struct Ran {
    args: String,
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn new(args: &[&str], output: Output) -> Ran {
        Ran {
            args: args.join(" "),
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Exactly this on stdout, nothing on stderr, exit code 0.
    #[track_caller]
    fn prints(&self, want: &str) {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "thalweg {}", self.args);
        assert_eq!(self.out, want, "thalweg {}", self.args);
    }

    #[track_caller]
    fn succeeds(self) -> Ran {
        assert_eq!(self.code, 0, "thalweg {}: {}", self.args, self.err);
        self
    }

    /// This exit code, and an error that contains all of `words`.
    #[track_caller]
    fn fails(self, code: i32, words: &[&str]) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.starts_with("error: "), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {}", self.err);
        }
        self
    }
}
