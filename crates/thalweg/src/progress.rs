//! How far a load has come: a bar on a terminal, a line now and then in a log.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use thalweg_base::text;

const BAR_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(3);

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

/// Shows samples until it is dropped.
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub fn start(sample: impl Fn() -> Sample + Send + 'static) -> Progress {
        let (stop, stopped) = channel::<()>();
        let bar = std::io::stderr().is_terminal().then(bar);
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || {
            let mut start = Instant::now();
            let mut looking = false;
            let every = if bar.is_some() { BAR_EVERY } else { LINE_EVERY };
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let sample = sample();
                if std::mem::replace(&mut looking, sample.looking) != sample.looking {
                    // The bytes are counted anew.
                    start = Instant::now();
                }
                let line = describe(&sample, start.elapsed());
                match &bar {
                    Some(bar) => {
                        bar.set_length(sample.bytes_total.max(1));
                        bar.set_position(sample.bytes_done);
                        bar.set_message(line);
                    }
                    None => {
                        let _ = writeln!(std::io::stderr(), "{}% {line}", percent(&sample));
                    }
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        // A load without its bar is still a load.
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
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("{bar:24.cyan} {percent:>3}%  {wide_msg}") {
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    }
    bar
}

fn percent(sample: &Sample) -> u64 {
    (sample.bytes_done * 100).checked_div(sample.bytes_total).unwrap_or(0).min(100)
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
        assert_eq!(left(61.2), "1 min 02 s");
        assert_eq!(left(7300.0), "2 h 01 min");
        assert_eq!(percent(&Sample::default()), 0);
    }
}
