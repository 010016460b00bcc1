//! `thalweg serve`: a database for many clients.
//!
//! `serve/settings.rs` lists what can be set; `value.rs` says how, `file.rs` and this file from
//! where, `reference.rs` makes the page of the documentation. `logs.rs` and `signals.rs` are what
//! a process that stays needs.

mod file;
mod logs;
mod reference;
mod settings;
mod signals;
mod value;

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Command};
use thalweg_base::{Error, Result, text};
use thalweg_bench::peers::VENV_VARIABLE;
use thalweg_server::Server;

use self::settings::{ALL, DATABASE, Setting, Settings};
use crate::database;
use crate::failure::{self, Outcome};

/// What the command line says: each setting as it was written.
pub struct Args {
    config: Option<PathBuf>,
    given: Vec<(&'static Setting, String)>,
    print_reference: bool,
}

const CONFIG: &str = "config";
const CONFIG_VARIABLE: &str = "THALWEG_CONFIG";
const OTLP_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PRINT_REFERENCE: &str = "print-reference";

const ABOUT: &str = "Serve a database to clients: PostgreSQL protocol, Arrow Flight SQL, metrics";

const LONG: &str = "\
Serve a database to clients: the PostgreSQL protocol, Arrow Flight SQL, metrics over HTTP

One process, one database, any number of connections. Without further settings it listens on this \
machine only and asks for no password. Settings come from flags, the environment (THALWEG_PG for \
--pg, and so on) and a file, in that order; docs/configuration.md lists them all.

SIGTERM or Ctrl-C lets the statements that run end, for --drain-timeout at the most; a second one \
ends the process at once.";

const AFTER: &str = "\
Examples:
  thalweg serve shop.db
  thalweg serve shop.db --pg 127.0.0.1:5433 --flight off --http off
  thalweg serve s3://warehouse/shop --config thalweg.toml
  THALWEG_MAX_CONNECTIONS=200 thalweg serve shop.db
  thalweg serve shop.db --pg 0.0.0.0:5432 --auth scram --tls-cert c.pem --tls-key k.pem";

impl clap::FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let given = ALL.iter().filter_map(|setting| {
            let value = matches.get_one::<String>(setting.flag)?;
            Some((setting, value.clone()))
        });
        Ok(Args {
            config: matches.get_one::<PathBuf>(CONFIG).cloned(),
            given: given.collect(),
            print_reference: matches.get_flag(PRINT_REFERENCE),
        })
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(format!("File of settings (TOML) [env: {CONFIG_VARIABLE}]"));
        let print = Arg::new(PRINT_REFERENCE)
            .long(PRINT_REFERENCE)
            .action(ArgAction::SetTrue)
            .hide(true)
            .help("Print the page of the documentation that lists the settings");
        let command = command.about(ABOUT).long_about(LONG).after_long_help(AFTER);
        command.args(ALL.iter().map(flag)).arg(config).arg(print)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(setting: &'static Setting) -> Arg {
    let takes =
        |text: &str| (setting.set)(&mut Settings::default(), text).map(|()| text.to_owned());
    let arg = Arg::new(setting.flag).value_parser(takes);
    if setting.key == DATABASE {
        return arg.value_name("DB").help("Folder or object-store prefix of the database");
    }
    let (default, variable) = (setting.default(), setting.variable());
    let arg = arg.long(setting.flag).value_name("VALUE").help(format!(
        "{} [{}; default: {default}; env: {variable}]",
        setting.about, setting.takes
    ));
    match setting.is_switch() {
        true => arg.num_args(0..=1).require_equals(true).default_missing_value("on"),
        false => arg,
    }
}

pub fn run(args: Args) -> Outcome {
    if args.print_reference {
        std::io::stdout().write_all(reference::page().as_bytes())?;
        return Ok(());
    }
    let settings = resolve(&args, |name| std::env::var_os(name))?;
    let unknown = unknown_variables(std::env::vars_os().map(|(name, _)| name));
    unknown.iter().for_each(failure::warn);
    let location = settings.database.clone().ok_or_else(|| {
        Error::user("no database is named").hint(
            "thalweg serve DB; or the key database of the configuration file, or THALWEG_DATABASE",
        )
    })?;
    let logs = logs::start(&settings.log)?;
    let stop = signals::listen(logs)?;
    let engine = database::open(&location, settings.create, &engine_settings(&settings))?;
    let server = Server::start(Arc::clone(&engine), settings.server.clone())?;
    tracing::info!(
        database = location,
        pg = server.pg().map(tracing::field::display),
        flight = server.flight().map(tracing::field::display),
        http = server.http().map(tracing::field::display),
        "listening"
    );
    announce(&location, &server)?;
    let ready = settings.ready_file.as_deref().map(|path| Ready::write(path, &server));
    let _ready = ready.transpose()?;
    signals::notify("READY=1");
    // The sender lives as long as the process.
    let signal = stop.recv().unwrap_or("a lost thread");
    tracing::info!(signal, timeout = ?settings.server.drain_timeout, "draining");
    signals::notify("STOPPING=1");
    server.shutdown();
    tracing::info!("stopped");
    Ok(())
}

fn engine_settings(settings: &Settings) -> database::Settings {
    database::Settings {
        threads: settings.threads,
        policy: Some(settings.policy),
        memory: settings.memory,
        cache: settings.cache,
        direct_io: Some(settings.direct_io),
        stays: true,
    }
}

/// Flags go before the environment, that before the file.
fn resolve(args: &Args, variable: impl Fn(&str) -> Option<OsString>) -> Result<Settings> {
    let variable = |name: &str| match variable(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => value
            .into_string()
            .map(Some)
            .map_err(|_| Error::user(format!("{name} in the environment is not UTF-8"))),
    };
    let mut settings = Settings::default();
    let config = match &args.config {
        Some(path) => Some(path.clone()),
        None => variable(CONFIG_VARIABLE)?.map(PathBuf::from),
    };
    if let Some(path) = config {
        file::read(&path, &mut settings)?;
    }
    for setting in ALL {
        let name = setting.variable();
        let mut names = vec![name.as_str()];
        if setting.key == "trace.endpoint" {
            names.push(OTLP_VARIABLE);
        }
        for name in names {
            let Some(value) = variable(name)? else { continue };
            (setting.set)(&mut settings, &value).map_err(|why| {
                Error::user(format!("{name} in the environment: {why}, not {value:?}"))
            })?;
            break;
        }
    }
    for (setting, value) in &args.given {
        (setting.set)(&mut settings, value)
            .map_err(|why| Error::user(format!("--{}: {why}", setting.flag)))?;
    }
    if settings.server.tls_certificate.is_some() != settings.server.tls_key.is_some() {
        return Err(Error::user("a certificate needs its key, and a key its certificate")
            .hint("give both tls.certificate and tls.key"));
    }
    Ok(settings)
}

/// Variables that are nearly a setting.
fn unknown_variables(names: impl Iterator<Item = OsString>) -> Vec<Error> {
    let known: Vec<String> = ALL.iter().map(Setting::variable).collect();
    // Read elsewhere.
    let elsewhere = [CONFIG_VARIABLE, VENV_VARIABLE];
    let names = names.filter_map(|name| name.into_string().ok());
    let unknown = names.filter(|name| {
        let ours = name.starts_with("THALWEG_") && !elsewhere.contains(&name.as_str());
        ours && !known.contains(name)
    });
    let warnings = unknown.filter_map(|name| {
        let nearest = settings::nearest(&name, known.iter().map(String::as_str))?;
        let warning = Error::user(format!("{name} in the environment is no setting"));
        Some(warning.hint(format!("perhaps {nearest} is meant")))
    });
    warnings.collect()
}

/// For whoever started it by hand.
fn announce(location: &str, server: &Server) -> Outcome {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} is open to clients:", text::quoted(location))?;
    if let Some(at) = server.pg() {
        let (host, port) = (at.ip(), at.port());
        writeln!(out, "  PostgreSQL  psql -h {host} -p {port}")?;
    }
    if let Some(at) = server.flight() {
        writeln!(out, "  Flight SQL  grpc://{at}")?;
    }
    if let Some(at) = server.http() {
        writeln!(out, "  metrics     http://{at}/metrics")?;
    }
    writeln!(out, "Ctrl-C ends it.")?;
    out.flush()?;
    Ok(())
}

/// A file that is there while the server listens: one line for each address, `pg 127.0.0.1:5432`.
struct Ready<'a>(&'a Path);

impl Ready<'_> {
    fn write<'a>(path: &'a Path, server: &Server) -> Result<Ready<'a>> {
        let line = |name: &str, at: Option<SocketAddr>| {
            at.map(|at| format!("{name} {at}\n")).unwrap_or_default()
        };
        let content =
            [line("pg", server.pg()), line("flight", server.flight()), line("http", server.http())];
        // Whoever sees it sees all of it.
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let written =
            std::fs::write(&beside, content.concat()).and_then(|()| std::fs::rename(&beside, path));
        let name = text::quoted(&path.display().to_string());
        written.map_err(|e| Error::io(format!("cannot write {name}"), e))?;
        Ok(Ready(path))
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(given: &[(&str, &str)], config: Option<PathBuf>) -> Args {
        let setting = |flag: &str| ALL.iter().find(|s| s.flag == flag).unwrap();
        let given = given.iter().map(|(flag, value)| (setting(flag), (*value).to_owned()));
        Args { config, given: given.collect(), print_reference: false }
    }

    #[test]
    fn a_flag_goes_before_the_environment_and_that_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.toml");
        let content = "limits.connections = 1\nlimits.message_size = '1MiB'\nlog.level = 'warn'\n";
        std::fs::write(&path, content).unwrap();
        let environment = |name: &str| match name {
            "THALWEG_MAX_CONNECTIONS" => Some("2".into()),
            "THALWEG_MAX_MESSAGE_SIZE" => Some("2MiB".into()),
            "THALWEG_LOG_LEVEL" => Some("".into()),
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://127.0.0.1:4318".into()),
            _ => None,
        };
        let s = resolve(&args(&[("max-connections", "3")], Some(path)), environment).unwrap();
        assert_eq!(s.server.connections_max, 3);
        assert_eq!(s.server.message_bytes_max, 2 << 20);
        assert_eq!(s.log.level, "warn");
        assert_eq!(s.server.traces.as_deref(), Some("http://127.0.0.1:4318"));
        assert_eq!(s.server.http.unwrap().port(), 8080);
    }

    #[test]
    fn mistakes_say_where_they_are() {
        let none = |_: &str| None;
        let bad = |name: &str| (name == "THALWEG_PG").then(|| "here".into());
        let error = resolve(&args(&[], None), bad).err().unwrap();
        assert!(error.message().contains("THALWEG_PG"), "{error:?}");
        let error = resolve(&args(&[("tls-key", "k.pem")], None), none).err().unwrap();
        assert!(error.message().contains("certificate"), "{error:?}");
        let missing = resolve(&args(&[], Some("/no/such.toml".into())), none).err().unwrap();
        assert!(missing.message().contains("/no/such.toml"), "{missing:?}");
    }

    #[test]
    fn a_variable_that_means_nothing_is_told_of() {
        let fine = ["PATH", "THALWEG_PG", "THALWEG_CONFIG", "THALWEG_VENV"];
        let names = fine.iter().chain(&["THALWEG_MAX_CONECTIONS"]);
        let warnings = unknown_variables(names.map(OsString::from));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].hint_text().unwrap().contains("THALWEG_MAX_CONNECTIONS"));
    }
}
