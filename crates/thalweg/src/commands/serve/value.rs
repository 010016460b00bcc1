//! How the values of settings are written: the same in the file, the environment and the flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_base::limits::MEMORY_LIMIT_BYTES_MIN;
use thalweg_base::text::{parse_bytes, parse_duration};
use thalweg_engine::access::Audit;
use thalweg_engine::{DirectIo, PolicyKind};
use thalweg_server::Authentication;
use tracing_subscriber::EnvFilter;

use super::logs::Format;

const OFF: &str = "off";
const ON: &str = "on";
const AUTO: &str = "auto";

/// The longest time that can be set: what is longer is a mistake in a unit.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// One way of writing values of `T`.
pub trait Codec<T> {
    /// For the reference page and `--help`.
    const TAKES: &'static str;

    fn parse(text: &str) -> Result<T, String>;
    fn show(value: &T) -> String;
}

pub struct Text;
pub struct Address;
pub struct Switch;
pub struct Count;
pub struct Size;
pub struct Memory;
pub struct Threads;
pub struct Time;
pub struct Limit;
pub struct File;
pub struct Url;
pub struct Method;
pub struct Policy;
pub struct Direct;
pub struct Level;
pub struct LogFormat;
pub struct AuditLevel;

impl Codec<Option<String>> for Text {
    const TAKES: &'static str = "text";

    fn parse(text: &str) -> Result<Option<String>, String> {
        Ok(Some(text.to_owned()).filter(|t| !t.is_empty()))
    }
    fn show(value: &Option<String>) -> String {
        value.clone().unwrap_or_default()
    }
}

impl Codec<Option<SocketAddr>> for Address {
    const TAKES: &'static str = "address:port, or off";

    fn parse(text: &str) -> Result<Option<SocketAddr>, String> {
        if text == OFF {
            return Ok(None);
        }
        let address = text.parse();
        address.map(Some).map_err(|_| {
            "expected an address with a port, such as 127.0.0.1:5432 or [::1]:5432, or off".into()
        })
    }
    fn show(value: &Option<SocketAddr>) -> String {
        value.map_or(OFF.into(), |a| a.to_string())
    }
}

impl Codec<bool> for Switch {
    const TAKES: &'static str = "on or off";

    fn parse(text: &str) -> Result<bool, String> {
        match text {
            ON => Ok(true),
            OFF => Ok(false),
            _ => Err("expected on or off".into()),
        }
    }
    fn show(value: &bool) -> String {
        if *value { ON } else { OFF }.into()
    }
}

impl Codec<usize> for Count {
    const TAKES: &'static str = "number";

    fn parse(text: &str) -> Result<usize, String> {
        let number = text.parse().ok().filter(|n| (1..=1_000_000).contains(n));
        number.ok_or_else(|| "expected a number from 1 to 1000000".into())
    }
    fn show(value: &usize) -> String {
        value.to_string()
    }
}

impl Codec<usize> for Size {
    const TAKES: &'static str = "size";

    fn parse(text: &str) -> Result<usize, String> {
        let bytes = parse_bytes(text).filter(|b| (64 << 10..=1 << 30).contains(b));
        let bytes = bytes.and_then(|b| usize::try_from(b).ok());
        bytes.ok_or_else(|| "expected a size from 64KiB to 1GiB, such as 64MiB".into())
    }
    fn show(value: &usize) -> String {
        size(*value as u64)
    }
}

impl Codec<Option<u64>> for Memory {
    const TAKES: &'static str = "size, or auto";

    fn parse(text: &str) -> Result<Option<u64>, String> {
        if text == AUTO {
            return Ok(None);
        }
        let bytes = parse_bytes(text).filter(|b| *b >= MEMORY_LIMIT_BYTES_MIN);
        bytes.map(Some).ok_or_else(|| {
            format!("expected a size of at least {}, or auto", size(MEMORY_LIMIT_BYTES_MIN))
        })
    }
    fn show(value: &Option<u64>) -> String {
        value.map_or(AUTO.into(), size)
    }
}

impl Codec<Option<usize>> for Threads {
    const TAKES: &'static str = "number, or auto";

    fn parse(text: &str) -> Result<Option<usize>, String> {
        match text {
            AUTO => Ok(None),
            _ => crate::commands::sql::threads(text).map(Some).map_err(|e| format!("{e}, or auto")),
        }
    }
    fn show(value: &Option<usize>) -> String {
        value.map_or(AUTO.into(), |n| n.to_string())
    }
}

impl Codec<Duration> for Time {
    const TAKES: &'static str = "time";

    fn parse(text: &str) -> Result<Duration, String> {
        let time = parse_duration(text).filter(|t| !t.is_zero() && *t <= TIME_MAX);
        time.ok_or_else(|| "expected a time above 0, such as 500ms, 30s, 5min or 1h".into())
    }
    fn show(value: &Duration) -> String {
        time(*value)
    }
}

impl Codec<Option<Duration>> for Limit {
    const TAKES: &'static str = "time, or off";

    fn parse(text: &str) -> Result<Option<Duration>, String> {
        match text {
            OFF => Ok(None),
            _ => Time::parse(text).map(Some).map_err(|e| format!("{e}, or off")),
        }
    }
    fn show(value: &Option<Duration>) -> String {
        value.map_or(OFF.into(), time)
    }
}

impl Codec<Option<PathBuf>> for File {
    const TAKES: &'static str = "path, or off";

    fn parse(text: &str) -> Result<Option<PathBuf>, String> {
        match text {
            "" => Err("expected a path, or off".into()),
            OFF => Ok(None),
            _ => Ok(Some(text.into())),
        }
    }
    fn show(value: &Option<PathBuf>) -> String {
        value.as_ref().map_or(OFF.into(), |path| path.display().to_string())
    }
}

impl Codec<Option<String>> for Url {
    const TAKES: &'static str = "URL, or off";

    fn parse(text: &str) -> Result<Option<String>, String> {
        let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        match (text, host) {
            (OFF, _) => Ok(None),
            (_, Some(host)) if !host.is_empty() => Ok(Some(text.to_owned())),
            _ => Err("expected a URL such as http://127.0.0.1:4318, or off".into()),
        }
    }
    fn show(value: &Option<String>) -> String {
        value.clone().unwrap_or(OFF.into())
    }
}

impl Codec<Authentication> for Method {
    const TAKES: &'static str = "trust or scram";

    fn parse(text: &str) -> Result<Authentication, String> {
        match text {
            "trust" => Ok(Authentication::Trust),
            "scram" => Ok(Authentication::Scram),
            _ => Err("expected trust or scram".into()),
        }
    }
    fn show(value: &Authentication) -> String {
        match value {
            Authentication::Trust => "trust",
            Authentication::Scram => "scram",
        }
        .into()
    }
}

impl Codec<PolicyKind> for Policy {
    const TAKES: &'static str = "fair, small_first, round_robin or fifo";

    fn parse(text: &str) -> Result<PolicyKind, String> {
        text.parse().map_err(|_| format!("expected {}", <Self as Codec<PolicyKind>>::TAKES))
    }
    fn show(value: &PolicyKind) -> String {
        value.name().into()
    }
}

impl Codec<DirectIo> for Direct {
    const TAKES: &'static str = "on, off or auto";

    fn parse(text: &str) -> Result<DirectIo, String> {
        match text {
            ON => Ok(DirectIo::On),
            OFF => Ok(DirectIo::Off),
            AUTO => Ok(DirectIo::Auto),
            _ => Err(format!("expected {}", Self::TAKES)),
        }
    }
    fn show(value: &DirectIo) -> String {
        match value {
            DirectIo::On => ON,
            DirectIo::Off => OFF,
            DirectIo::Auto => AUTO,
        }
        .into()
    }
}

impl Codec<String> for Level {
    const TAKES: &'static str = "off, error, warn, info, debug or trace; or filters";

    fn parse(text: &str) -> Result<String, String> {
        let known = ["off", "error", "warn", "info", "debug", "trace"].contains(&text);
        // A single word that is no level would be taken for the name of a module.
        match EnvFilter::try_new(text) {
            Ok(_) if known || text.contains('=') => Ok(text.to_owned()),
            _ => Err("expected off, error, warn, info, debug or trace, or filters such as \
                      info,thalweg_server::pg=debug"
                .into()),
        }
    }
    fn show(value: &String) -> String {
        value.clone()
    }
}

impl Codec<Format> for LogFormat {
    const TAKES: &'static str = "text or json";

    fn parse(text: &str) -> Result<Format, String> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            _ => Err("expected text or json".into()),
        }
    }
    fn show(value: &Format) -> String {
        match value {
            Format::Text => "text",
            Format::Json => "json",
        }
        .into()
    }
}

impl Codec<Audit> for AuditLevel {
    const TAKES: &'static str = "none, ddl, write or all";

    fn parse(text: &str) -> Result<Audit, String> {
        match text {
            "none" => Ok(Audit::None),
            "ddl" => Ok(Audit::Ddl),
            "write" => Ok(Audit::Write),
            "all" => Ok(Audit::All),
            _ => Err("expected none, ddl, write or all".into()),
        }
    }
    fn show(value: &Audit) -> String {
        match value {
            Audit::None => "none",
            Audit::Ddl => "ddl",
            Audit::Write => "write",
            Audit::All => "all",
        }
        .into()
    }
}

/// As `parse_bytes` takes it back.
fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// As `parse_duration` takes it back.
fn time(time: Duration) -> String {
    let (ms, s) = (time.as_millis(), time.as_secs());
    match () {
        () if ms % 1000 != 0 => format!("{ms}ms"),
        () if s % 3600 == 0 => format!("{}h", s / 3600),
        () if s % 60 == 0 => format!("{}min", s / 60),
        () => format!("{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_understood() {
        for text in ["500ms", "10s", "90s", "2min", "3h"] {
            assert_eq!(Time::show(&Time::parse(text).unwrap()), text);
        }
        for text in ["64KiB", "65537", "64MiB", "1GiB"] {
            assert_eq!(Size::show(&Size::parse(text).unwrap()), text);
        }
        for text in ["127.0.0.1:5432", "[::1]:0", "off"] {
            assert_eq!(Address::show(&Address::parse(text).unwrap()), text);
        }
        assert_eq!(Limit::parse("off"), Ok(None));
        assert_eq!(Memory::parse("auto"), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(Time::parse("0").is_err());
        assert!(Time::parse("400d").is_err());
        assert!(Size::parse("3").is_err());
        assert!(Memory::parse("1MiB").is_err());
        assert!(Address::parse("localhost").is_err());
        assert!(Url::parse("127.0.0.1:4318").is_err());
        assert!(Url::parse("http://").is_err());
        assert!(Level::parse("loud").is_err());
        assert!(Level::parse("info,thalweg_server=debug").is_ok());
        assert!(Count::parse("0").is_err());
    }
}
