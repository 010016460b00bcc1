//! How far a load, a query or a measurement has come: a bar on a terminal, and for a load a line now and then in
//! a log.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use thalweg_base::text;
use thalweg_engine::{QueryProgress, Session};

const BAR_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(3);
/// A query that takes less shows no bar.
const QUERY_SHOWN_AFTER: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Sample {
    /// The table being loaded, where there are several.
    pub table: Option<String>,
    /// The columns are being found out: there are no rows yet.
    pub looking: bool,
    pub rows: u64,
    pub rejected: u64,
    pub bytes_done: u64,
    /// 0 while it is not known yet.
    pub bytes_total: u64,
}

/// What is drawn.
struct Shown {
    done: u64,
    total: u64,
    line: String,
}

/// Shows how far it is until it is dropped.
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Of a load.
    pub fn start(sample: impl Fn() -> Sample + Send + 'static) -> Progress {
        let (mut start, mut looking) = (Instant::now(), false);
        Progress::show(move || {
            let sample = sample();
            if std::mem::replace(&mut looking, sample.looking) != sample.looking {
                // The bytes are counted anew.
                start = Instant::now();
            }
            let line = describe(&sample, start.elapsed());
            Some(Shown { done: sample.bytes_done, total: sample.bytes_total, line })
        })
    }

    /// Of what goes through bytes and knows no rows.
    pub fn of_bytes(verb: &'static str, sample: impl Fn() -> Sample + Send + 'static) -> Progress {
        let start = Instant::now();
        Progress::show(move || {
            let Sample { bytes_done: done, bytes_total: total, .. } = sample();
            let line = describe_bytes(verb, done, total, start.elapsed());
            (total > 0).then_some(Shown { done, total, line })
        })
    }

    /// Of what `session` runs, once it has run for a moment; on a terminal only.
    pub fn of_query(session: &Session) -> Option<Progress> {
        let session = session.clone();
        let shown = move || {
            let progress = session.progress().filter(|p| p.elapsed >= QUERY_SHOWN_AFTER)?;
            let done = (progress.share * 100.0) as u64;
            Some(Shown { done, total: 100, line: describe_query(&progress) })
        };
        std::io::stderr().is_terminal().then(|| Progress::show(shown))
    }

    /// Of what takes a known course, in percent.
    pub fn of_percent(what: &'static str, done: impl Fn() -> u64 + Send + 'static) -> Progress {
        Progress::show(move || Some(Shown { done: done(), total: 100, line: what.to_string() }))
    }

    fn show(mut shown: impl FnMut() -> Option<Shown> + Send + 'static) -> Progress {
        let (stop, stopped) = channel::<()>();
        let bar = std::io::stderr().is_terminal().then(bar);
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || {
            let every = if bar.is_some() { BAR_EVERY } else { LINE_EVERY };
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let Some(shown) = shown() else { continue };
                match &bar {
                    Some(bar) => {
                        if bar.is_hidden() {
                            bar.set_draw_target(ProgressDrawTarget::stderr());
                        }
                        bar.set_length(shown.total.max(1));
                        bar.set_position(shown.done);
                        bar.set_message(shown.line);
                    }
                    None => {
                        let percent = percent(shown.done, shown.total);
                        let _ = writeln!(std::io::stderr(), "{percent}% {}", shown.line);
                    }
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        // Work without its bar is still work.
        Progress { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It only draws: a panic in there must not become the load's.
            let _ = thread.join();
        }
    }
}

fn bar() -> ProgressBar {
    // Not drawn before there is something to say.
    let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("{bar:24.cyan} {percent:>3}%  {wide_msg}") {
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    }
    bar
}

fn percent(done: u64, total: u64) -> u64 {
    (done * 100).checked_div(total).unwrap_or(0).min(100)
}

/// `running  3 s  about 12 s left`, `waiting for memory of the server, …  3 s`
fn describe_query(progress: &QueryProgress) -> String {
    let elapsed = left(progress.elapsed.as_secs_f64());
    match (&progress.waits_for, progress.left) {
        (Some(what), _) => format!("waiting for {what}  {elapsed}"),
        (_, Some(rest)) => format!("{elapsed}  about {} left", left(rest.as_secs_f64())),
        (_, None) => elapsed,
    }
}

fn describe(sample: &Sample, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let rate = sample.bytes_done as f64 / seconds;
    let table = sample.table.as_ref().map(|t| format!("{t}  ")).unwrap_or_default();
    let rejected = match sample.rejected {
        0 => String::new(),
        n => format!("  {} rejected", text::count(n)),
    };
    let what = match sample.looking {
        true => "finding the columns".to_owned(),
        false => format!("{} rows{rejected}", text::count(sample.rows)),
    };
    let mut line = format!("{table}{what}  {}/s", text::bytes(rate as u64));
    let rest = sample.bytes_total.saturating_sub(sample.bytes_done);
    if sample.bytes_done == 0 || sample.bytes_total == 0 {
        line
    } else if rest == 0 {
        // Everything is read; the last chunks are being encoded and made durable.
        line.push_str(if sample.looking { "" } else { "  finishing" });
        line
    } else {
        line.push_str(&format!("  {} left", left(rest as f64 / rate)));
        line
    }
}

/// `copied 1.0 GiB of 3.2 GiB  200.0 MiB/s  12 s left`
fn describe_bytes(verb: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let mut line = format!(
        "{verb} {} of {}  {}/s",
        text::bytes(done),
        text::bytes(total),
        text::bytes(rate as u64)
    );
    if done > 0 && total > done {
        line.push_str(&format!("  {} left", left((total - done) as f64 / rate)));
    }
    line
}

/// Whole seconds: the estimate is no better than that.
fn left(seconds: f64) -> String {
    let s = seconds.ceil() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_rows_rate_and_time_left() {
        let check = |rows, bytes_done, bytes_total, want| {
            let sample = Sample { rows, bytes_done, bytes_total, ..Sample::default() };
            assert_eq!(describe(&sample, Duration::from_secs(2)), want);
        };
        check(0, 0, 0, "0 rows  0 B/s");
        check(1000, 2 << 20, 10 << 20, "1,000 rows  1.0 MiB/s  8 s left");
        check(1000, 2 << 20, 2 << 20, "1,000 rows  1.0 MiB/s  finishing");
        let sample = Sample { rows: 10, rejected: 1200, ..Sample::default() };
        assert_eq!(describe(&sample, Duration::from_secs(1)), "10 rows  1,200 rejected  0 B/s");
        let sample = Sample { looking: true, bytes_done: 1, bytes_total: 3, ..Sample::default() };
        let line = describe(&sample, Duration::from_secs(1));
        assert_eq!(line, "finding the columns  1 B/s  2 s left");
        let line = describe_bytes("copied", 1 << 20, 3 << 20, Duration::from_secs(1));
        assert_eq!(line, "copied 1.0 MiB of 3.0 MiB  1.0 MiB/s  2 s left");
        assert_eq!(left(61.2), "1 min 02 s");
        assert_eq!(left(7300.0), "2 h 01 min");
        assert_eq!((percent(0, 0), percent(1, 3)), (0, 33));
    }
}
