//! Where what the server tells goes: lines of text or JSON, to stderr or to a file; and the audit
//! log, which may have a file of its own.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_base::{Error, Result, text};
use thalweg_engine::access::audit::TARGET as AUDIT_TARGET;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, layer};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Clone)]
pub struct Settings {
    /// Filters, as `tracing_subscriber` understands them.
    pub level: String,
    pub format: Format,
    /// `None`: stderr.
    pub file: Option<PathBuf>,
    /// Of who did what; `None`: it is a part of the log.
    pub audit: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { level: "info".into(), format: Format::Text, file: None, audit: None }
    }
}

/// Statements are in it: not for everybody's eyes.
const MODE: u32 = 0o640;

/// The files that are being written.
#[derive(Clone, Default)]
pub struct Logs {
    files: Vec<Arc<LogFile>>,
}

struct LogFile {
    path: PathBuf,
    file: Mutex<File>,
}

/// From now on, what is told is written down.
pub fn start(settings: &Settings) -> Result<Logs> {
    let filter = EnvFilter::try_new(&settings.level)
        .map_err(|e| Error::user(format!("log.level {:?}: {e}", settings.level)))?;
    let file = settings.file.as_deref().map(LogFile::open).transpose()?.map(Arc::new);
    let audit = settings.audit.as_deref().map(LogFile::open).transpose()?.map(Arc::new);
    let layer = match (&file, settings.format) {
        (Some(file), Format::Text) => {
            layer().with_ansi(false).with_writer(Arc::clone(file)).boxed()
        }
        (Some(file), Format::Json) => layer().json().with_writer(Arc::clone(file)).boxed(),
        (None, Format::Text) => layer().with_ansi(false).with_writer(io::stderr).boxed(),
        (None, Format::Json) => layer().json().with_writer(io::stderr).boxed(),
    };
    let apart = audit.is_some();
    // Without the hints, whatever our libraries trace would be looked at while it runs.
    let other = filter_fn(move |event| !apart || event.target() != AUDIT_TARGET);
    let filter = filter.and(other.with_max_level_hint(LevelFilter::TRACE));
    let audited = audit.clone().map(|file| {
        let only = filter_fn(|event| event.target() == AUDIT_TARGET);
        let only = only.with_max_level_hint(LevelFilter::INFO);
        tracing_subscriber::fmt::layer().event_format(Audited).with_writer(file).with_filter(only)
    });
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .with(audited)
        .try_init()
        .map_err(|e| Error::internal(format!("the log cannot be started: {e}")))?;
    Ok(Logs { files: file.into_iter().chain(audit).collect() })
}

impl Logs {
    /// Goes on in a new file of the same name: somebody has moved the old one away.
    pub fn reopen(&self) {
        for log in &self.files {
            match open(&log.path) {
                Ok(file) => *log.file() = file,
                Err(error) => tracing::error!("{error}"),
            }
        }
    }
}

impl LogFile {
    fn open(path: &Path) -> Result<LogFile> {
        Ok(LogFile { path: path.to_owned(), file: Mutex::new(open(path)?) })
    }

    fn file(&self) -> MutexGuard<'_, File> {
        // Replaced as a whole: a panic elsewhere leaves a file.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path);
    let name = text::quoted(&path.display().to_string());
    file.map_err(|e| Error::io(format!("cannot write the log {name}"), e))
}

/// One event is one call, so that lines of two threads do not mix.
impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.file().write_all(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = &'a LogFile;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// An event of the audit log is an object of JSON already, and wants only the time.
struct Audited;

impl<S, N> FormatEvent<S, N> for Audited
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        let Some(rest) = message.0.strip_prefix('{') else { return Ok(()) };
        writer.write_str("{\"time\":\"")?;
        SystemTime.format_time(&mut writer)?;
        writeln!(writer, "\",{rest}")
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
