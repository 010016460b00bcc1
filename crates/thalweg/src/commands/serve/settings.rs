//! Every setting of the server, once: from this table come the flags, the names in the
//! environment, what the file may say, and the reference page.

use std::path::PathBuf;

use super::logs;
use super::value::{
    Address, AuditLevel, Codec, Count, Direct, File, Level, Limit, LogFormat, Memory, Method,
    Policy, Size, Switch, Text, Threads, Time, Url,
};
use thalweg_engine::{DirectIo, PolicyKind};
use thalweg_server::Config;

/// What a server is started with.
#[derive(Clone)]
pub struct Settings {
    /// `None`: nobody has named one.
    pub database: Option<String>,
    pub create: bool,
    pub server: Config,
    pub threads: Option<usize>,
    pub memory: Option<u64>,
    pub cache: Option<u64>,
    pub direct_io: DirectIo,
    pub policy: PolicyKind,
    pub log: logs::Settings,
    pub ready_file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        let address = |port| Some(([127, 0, 0, 1], port).into());
        Settings {
            database: None,
            create: false,
            server: Config {
                pg: address(5432),
                flight: address(31337),
                http: address(8080),
                ..Config::default()
            },
            threads: None,
            memory: None,
            cache: None,
            direct_io: DirectIo::default(),
            policy: PolicyKind::default(),
            log: logs::Settings::default(),
            ready_file: None,
        }
    }
}

/// One of them.
pub struct Setting {
    /// In the file: the table and the name.
    pub key: &'static str,
    /// On the command line; in the environment with `THALWEG_` before it, in capitals.
    pub flag: &'static str,
    pub takes: &'static str,
    pub about: &'static str,
    pub show: fn(&Settings) -> String,
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
}

pub const DATABASE: &str = "database";

impl Setting {
    pub fn variable(&self) -> String {
        format!("THALWEG_{}", self.flag.replace('-', "_").to_uppercase())
    }

    /// Given without a value it is on.
    pub fn is_switch(&self) -> bool {
        self.takes == <Switch as Codec<bool>>::TAKES
    }

    pub fn default(&self) -> String {
        (self.show)(&Settings::default())
    }
}

macro_rules! table {
    ($($key:literal $flag:literal $codec:ident $($field:ident).+, $about:literal;)*) => {
        pub const ALL: &[Setting] = &[$(Setting {
            key: $key,
            flag: $flag,
            takes: $codec::TAKES,
            about: $about,
            show: |settings| $codec::show(&settings.$($field).+),
            set: |settings, text| {
                settings.$($field).+ = $codec::parse(text)?;
                Ok(())
            },
        }),*];
    };
}

table! {
    "database" "database" Text database,
        "Folder or object-store prefix of the database. On the command line it is the first \
         argument and has no flag.";
    "create" "create" Switch create,
        "Create the database if it is not there.";

    "listen.pg" "pg" Address server.pg,
        "Where the PostgreSQL protocol is spoken. Off loopback only with auth.method = \"scram\" and a \
         certificate.";
    "listen.flight" "flight" Address server.flight,
        "Where Arrow Flight SQL is spoken. Off loopback only with auth.method = \"scram\" and a \
         certificate.";
    "listen.http" "http" Address server.http,
        "Where metrics and health are shown, to whoever asks.";

    "auth.method" "auth" Method server.authentication,
        "How clients prove who they are: trust believes every name, scram asks for a password \
         (SCRAM-SHA-256).";
    "tls.certificate" "tls-cert" File server.tls_certificate,
        "PEM file of the certificate and its chain. With it both protocols are encrypted.";
    "tls.key" "tls-key" File server.tls_key,
        "PEM file of the certificate's private key.";
    "tls.insecure_plaintext" "insecure-plaintext" Switch server.insecure_plaintext,
        "Listen off loopback without a certificate, on a network that nobody listens to.";

    "limits.connections" "max-connections" Count server.connections_max,
        "Connections of clients that may be open at a time, of both protocols together.";
    "limits.message_size" "max-message-size" Size server.message_bytes_max,
        "Of one message of a client: a statement with its parameters, a batch of rows.";
    "limits.handshake_timeout" "handshake-timeout" Time server.handshake_timeout,
        "From connecting to being let in. Whoever takes longer is disconnected.";
    "limits.message_timeout" "message-timeout" Time server.message_timeout,
        "From the first byte of a message to its last. Whoever takes longer is disconnected.";
    "limits.idle_timeout" "idle-timeout" Limit server.idle_timeout,
        "Connections that ask for nothing so long are closed.";
    "limits.statement_timeout" "statement-timeout" Limit server.statement_timeout,
        "Statements that run longer are stopped. Sessions may change theirs: SET \
         thalweg.statement_timeout_ms.";
    "limits.drain_timeout" "drain-timeout" Time server.drain_timeout,
        "What statements that run get to end by themselves, after SIGTERM.";

    "engine.threads" "threads" Threads threads,
        "Threads that run queries. auto: the cores of this machine.";
    "engine.memory" "memory" Memory memory,
        "Memory that joins, groups and sorts of all queries may hold before they wait or spill to \
         disk. auto: 45 % of this machine's, or of the container's.";
    "engine.cache" "cache" Memory cache,
        "Memory for decoded chunks of tables. auto: 40 % of this machine's, or of the container's.";
    "engine.direct_io" "direct-io" Direct direct_io,
        "Whether chunks on a local disk are read past the page cache of the system. auto: as long as \
         engine.cache has room, for what is in it is not read again.";
    "engine.policy" "policy" Policy policy,
        "In which order the tasks of concurrent queries run. SET thalweg.policy changes it while \
         the server runs.";

    "log.level" "log-level" Level log.level,
        "What is logged: this level and those above it; or filters by module, such as \
         info,thalweg_server::pg=debug.";
    "log.format" "log-format" LogFormat log.format,
        "Lines for people, or one JSON object per line.";
    "log.file" "log-file" File log.file,
        "Where the log is written, instead of stderr. SIGHUP opens it anew, for logrotate.";
    "log.slow_statement" "log-slow-statement" Limit server.slow_statement,
        "Statements that take at least so long are logged, with their text and at level info.";
    "audit.statements" "audit" AuditLevel server.audit,
        "Which statements the audit log has: those that change the catalog or rights, also those \
         that write, or all. Logins and what was denied are in it unless it is none.";
    "audit.file" "audit-file" File log.audit,
        "Where the audit log is written, one JSON object per line, instead of into the log. SIGHUP \
         opens it anew.";
    "trace.endpoint" "trace-endpoint" Url server.traces,
        "Where a trace of each statement is sent, by OTLP over HTTP, as JSON; /v1/traces is added \
         to it. OTEL_EXPORTER_OTLP_ENDPOINT in the environment says it as well.";

    "service.ready_file" "ready-file" File ready_file,
        "A file that is written once the server listens, with its addresses, and removed when it \
         ends.";
}

/// The setting that is meant by a word that is none.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let closest = names.map(|name| (distance(word, name), name)).min_by_key(|(d, _)| *d);
    closest.filter(|(d, _)| *d <= word.len().max(3) / 2).map(|(_, name)| name)
}

/// Of Levenshtein: letters to add, remove or change.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let changed = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_used_once_and_defaults_are_valid() {
        for (i, setting) in ALL.iter().enumerate() {
            for other in &ALL[..i] {
                assert_ne!((setting.key, setting.flag), (other.key, other.flag));
                assert_ne!(setting.flag, other.flag);
            }
            let mut settings = Settings::default();
            (setting.set)(&mut settings, &setting.default()).unwrap();
            assert_eq!((setting.show)(&settings), setting.default(), "{}", setting.key);
        }
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!((distance("", "abc"), distance("kitten", "sitting")), (3, 3));
        let keys = || ALL.iter().map(|s| s.key);
        assert_eq!(nearest("limits.conections", keys()), Some("limits.connections"));
        assert_eq!(nearest("listen.postgres", keys()), Some("listen.pg"));
        assert_eq!(nearest("zzzzzzzzzzzzzzzzzzzzzzzzzzzz", keys()), None);
    }
}
