//! Statements about PostgreSQL's settings and session: `SET`, `SHOW`, `RESET`, `DISCARD`, `LISTEN`.
//! They are read here, as PostgreSQL reads them; those about other settings are left to the planner.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use thalweg_base::{Error, Result};
use thalweg_pgcatalog::types;

use thalweg_errors::from_datafusion;

use super::answer::field;
use super::settings;
use crate::answer::Tag;
use crate::config;
use crate::dialect::Thalweg;
use crate::names::PUBLIC;
use crate::session::Inner;
use crate::transaction::TransactionStatus;

#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    Show(String),
    Reset(String),
    ResetAll,
    DiscardAll,
    /// `DISCARD PLANS` and its like, `UNLISTEN`: nothing there to forget.
    Nothing(&'static str),
    DeallocateAll,
    Refused {
        what: &'static str,
        hint: &'static str,
    },
}

/// A statement of this kind is at most so long.
const TEXT_BYTES_MAX: usize = 16 * 1024;

impl Command {
    /// The command, if the statement is one of those.
    pub fn of(sql: &str) -> Option<Command> {
        let first = sql.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next()?;
        let words = [
            "SET",
            "SHOW",
            "RESET",
            "DISCARD",
            "LISTEN",
            "UNLISTEN",
            "NOTIFY",
            "DEALLOCATE",
            "LOCK",
        ];
        if sql.len() > TEXT_BYTES_MAX || !words.iter().any(|w| w.eq_ignore_ascii_case(first)) {
            return None;
        }
        let tokens = Tokenizer::new(&Thalweg, sql).tokenize().ok()?;
        let tokens: Vec<Token> = tokens
            .into_iter()
            .filter(|t| !matches!(t, Token::Whitespace(_) | Token::SemiColon))
            .collect();
        parse(&tokens)
    }
}

fn word(token: Option<&Token>) -> Option<String> {
    match token {
        Some(Token::Word(word)) if word.quote_style.is_none() => {
            Some(word.value.to_ascii_lowercase())
        }
        _ => None,
    }
}

fn parse(tokens: &[Token]) -> Option<Command> {
    let at = |i: usize| word(tokens.get(i));
    let is = |i: usize, expected: &str| at(i).as_deref() == Some(expected);
    match at(0)?.as_str() {
        "show" => {
            let name = match tokens.len() {
                3 if is(1, "time") && is(2, "zone") => "timezone".into(),
                3 if is(1, "session") && is(2, "authorization") => "session_authorization".into(),
                _ => dotted(&tokens[1..])?,
            };
            settings::is_known(&name).then_some(Command::Show(name))
        }
        "reset" if tokens.len() == 2 && is(1, "all") => Some(Command::ResetAll),
        "reset" if is(1, "session") && is(2, "authorization") => Some(Command::Nothing("RESET")),
        "reset" if tokens.len() == 2 && is(1, "role") => None,
        "reset" if tokens.len() == 3 && is(1, "time") && is(2, "zone") => {
            Some(Command::Reset("timezone".into()))
        }
        "reset" => dotted(&tokens[1..]).filter(|name| is_ours(name)).map(Command::Reset),
        "discard" if tokens.len() == 2 => match at(1)?.as_str() {
            "all" => Some(Command::DiscardAll),
            "plans" => Some(Command::Nothing("DISCARD PLANS")),
            "sequences" => Some(Command::Nothing("DISCARD SEQUENCES")),
            "temp" | "temporary" => Some(Command::Nothing("DISCARD TEMP")),
            _ => None,
        },
        "deallocate" if is(1, "all") || (is(1, "prepare") && is(2, "all")) => {
            Some(Command::DeallocateAll)
        }
        "unlisten" => Some(Command::Nothing("UNLISTEN")),
        "listen" => Some(Command::Refused {
            what: "LISTEN",
            hint: "there are no channels; poll a table instead",
        }),
        "notify" => Some(Command::Refused {
            what: "NOTIFY",
            hint: "there are no channels; poll a table instead",
        }),
        "lock" => Some(Command::Refused {
            what: "LOCK",
            hint: "transactions run on snapshots: one that conflicts fails at its COMMIT",
        }),
        "set" => set(tokens),
        _ => None,
    }
}

/// Whether the name is of a setting that is kept here.
fn is_ours(name: &str) -> bool {
    !(name.starts_with("thalweg.") || name.starts_with("datafusion."))
}

fn set(tokens: &[Token]) -> Option<Command> {
    let at = |i: usize| word(tokens.get(i));
    let mut next = 1;
    let mut local = false;
    match at(1)?.as_str() {
        "session" if at(2).as_deref() == Some("characteristics") => return None,
        "session" if at(2).as_deref() == Some("authorization") => {
            return Some(Command::Refused {
                what: "SET SESSION AUTHORIZATION",
                hint: "connect as the other role",
            });
        }
        "session" => next = 2,
        "local" => (next, local) = (2, true),
        "transaction" | "constraints" => return None,
        _ => {}
    }
    if at(next).as_deref() == Some("transaction") {
        return None;
    }
    if at(next).as_deref() == Some("role") {
        // Who acts as whom is no setting: see `access`.
        return None;
    }
    if at(next).as_deref() == Some("time") && at(next + 1).as_deref() == Some("zone") {
        let value = values(&tokens[next + 2..])?;
        let value = value.filter(|v| !v.eq_ignore_ascii_case("local"));
        return Some(Command::Set { name: "timezone".into(), value, local });
    }
    if at(next).as_deref() == Some("names") {
        let value = values(&tokens[next + 1..])?;
        return Some(Command::Set { name: "client_encoding".into(), value, local });
    }
    let equals = tokens
        .iter()
        .position(|t| matches!(t, Token::Eq) || word(Some(t)).as_deref() == Some("to"))?;
    let name = dotted(tokens.get(next..equals)?)?;
    if !is_ours(&name) {
        return None;
    }
    Some(Command::Set { name, value: values(&tokens[equals + 1..])?, local })
}

/// `a.b`
fn dotted(tokens: &[Token]) -> Option<String> {
    let mut name = String::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Word(word) if at % 2 == 0 => name += &word.value.to_ascii_lowercase(),
            Token::Period if at % 2 == 1 => name.push('.'),
            _ => return None,
        }
    }
    (tokens.len() % 2 == 1).then_some(name)
}

/// What comes after `=`: words, strings and numbers; `Some(None)` is DEFAULT.
fn values(tokens: &[Token]) -> Option<Option<String>> {
    if let [Token::Word(word)] = tokens
        && word.quote_style.is_none()
        && word.value.eq_ignore_ascii_case("default")
    {
        return Some(None);
    }
    let mut parts: Vec<String> = vec![];
    let mut sign = "";
    let mut wants_value = true;
    for token in tokens {
        let part = match token {
            Token::Comma if !wants_value => {
                wants_value = true;
                continue;
            }
            Token::Minus if wants_value => {
                sign = "-";
                continue;
            }
            Token::Plus if wants_value => continue,
            Token::Word(word) => match word.quote_style {
                Some(_) => thalweg_pgcatalog::quote_ident(&word.value),
                None => word.value.clone(),
            },
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            Token::Number(number, _) => format!("{sign}{number}"),
            // `SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE` and other expressions.
            _ => return None,
        };
        if !wants_value {
            return None;
        }
        parts.push(part);
        wants_value = false;
    }
    (!parts.is_empty() && !wants_value).then(|| Some(parts.join(", ")))
}

/// What a command did: its word, or a row to show.
pub(crate) enum Done {
    Tag(Tag),
    Row(RecordBatch),
}

impl Command {
    /// The columns of what it gives; `None`: it gives no row.
    pub fn answer(&self) -> Option<SchemaRef> {
        let Command::Show(name) = self else { return None };
        Some(Arc::new(Schema::new(vec![field(&settings::spelled(name), types::TEXT, -1)])))
    }

    pub async fn run(self, session: &Inner) -> Result<Done> {
        let done = |word: &str| Ok(Done::Tag(Tag::Done(word.into())));
        match self {
            Command::Set { name, value: Some(value), local } => {
                set_value(session, &name, &value, local)?;
                done("SET")
            }
            Command::Set { name, value: None, .. } => {
                reset(session, &name)?;
                done("SET")
            }
            Command::Reset(name) => {
                reset(session, &name)?;
                done("RESET")
            }
            Command::ResetAll => {
                reset_all(session)?;
                done("RESET")
            }
            Command::DiscardAll => {
                session.transactions.check_idle("DISCARD ALL")?;
                session.identity.become_role(None);
                reset_all(session)?;
                session.prepared.lock().clear();
                done("DISCARD ALL")
            }
            Command::DeallocateAll => {
                session.prepared.lock().clear();
                done("DEALLOCATE ALL")
            }
            Command::Nothing(word) => done(word),
            Command::Refused { what, hint } => {
                Err(Error::unsupported(format!("{what} is not supported")).hint(hint))
            }
            Command::Show(ref name) => {
                let value = value(session, name).unwrap_or_default();
                let column: ArrayRef = Arc::new(StringArray::from(vec![value]));
                let schema = self.answer().unwrap_or_else(crate::answer::no_columns);
                let batch = RecordBatch::try_new(schema, vec![column]);
                batch.map(Done::Row).map_err(|e| thalweg_errors::from_arrow(&e))
            }
        }
    }
}

/// The value of a setting, PostgreSQL's or ours.
pub fn value(session: &Inner, name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let state = session.context.state_ref();
    let ours = |f: &dyn Fn(&config::Settings) -> String| {
        let state = state.read();
        state.config_options().extensions.get::<config::Settings>().map(f)
    };
    match lower.as_str() {
        "statement_timeout" => ours(&|s| match s.statement_timeout_ms {
            0 => "0".into(),
            ms if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
            ms => format!("{ms}ms"),
        }),
        "transaction_read_only" | "default_transaction_read_only" => {
            Some(if session.transactions.is_read_only() { "on" } else { "off" }.into())
        }
        "session_authorization" => Some(session.identity.session().1.to_string()),
        "is_superuser" => {
            let superuser = session.viewer().is_ok_and(|viewer| viewer.is_superuser());
            Some(if superuser { "on" } else { "off" }.into())
        }
        _ if lower.starts_with("thalweg.") || lower.starts_with("datafusion.") => {
            let entries = state.read().config_options().entries();
            entries.into_iter().find(|e| e.key == lower).and_then(|e| e.value)
        }
        _ => session.pg.lock().get(&lower),
    }
}

/// Sets a setting, and does what it is for.
pub fn set_value(session: &Inner, name: &str, value: &str, local: bool) -> Result<String> {
    let lower = name.to_ascii_lowercase();
    // Outside a transaction it is over at once.
    if local && session.transactions.status() == TransactionStatus::Idle {
        let mut tried = session.pg.lock().clone();
        return tried.set(&lower, value, true);
    }
    match lower.as_str() {
        "search_path" => check_path(value)?,
        "timezone" => check_zone(value)?,
        "default_transaction_read_only" => {
            let shown = session.pg.lock().set(&lower, value, false)?;
            session.transactions.set_read_only(shown == "on");
            return Ok(shown);
        }
        _ => {}
    }
    let shown = session.pg.lock().set(&lower, value, local)?;
    apply(session, &lower)?;
    Ok(shown)
}

/// Brings what depends on a setting to its value.
fn apply(session: &Inner, name: &str) -> Result<()> {
    let Some(value) = session.pg.lock().get(name) else { return Ok(()) };
    let (key, value) = match name {
        "timezone" => ("datafusion.execution.time_zone", zone(&value)),
        "statement_timeout" => {
            let ms = settings::milliseconds(&value).unwrap_or(0);
            ("thalweg.statement_timeout_ms", ms.to_string())
        }
        _ => return Ok(()),
    };
    let state = session.context.state_ref();
    let mut state = state.write();
    state.config_mut().options_mut().set(key, &value).map_err(from_datafusion)
}

fn reset(session: &Inner, name: &str) -> Result<()> {
    session.pg.lock().reset(name)?;
    if name == "default_transaction_read_only" {
        session.transactions.set_read_only(false);
    }
    apply(session, name)
}

fn reset_all(session: &Inner) -> Result<()> {
    session.pg.lock().reset_all();
    session.transactions.set_read_only(false);
    apply(session, "timezone")?;
    apply(session, "statement_timeout")
}

/// Ends what was set for the transaction that is over.
pub(crate) fn settle(session: &Inner) -> Result<()> {
    if !session.pg.lock().has_local() || session.transactions.status() != TransactionStatus::Idle {
        return Ok(());
    }
    session.pg.lock().end_transaction();
    apply(session, "timezone")?;
    apply(session, "statement_timeout")
}

/// Names without a schema are of `public`, whatever the path says: one that says otherwise would
/// mislead.
fn check_path(value: &str) -> Result<()> {
    let others = settings::path(value).into_iter().find(|schema| {
        !matches!(schema.as_str(), PUBLIC | "$user" | super::PG_CATALOG | "information_schema")
    });
    match others {
        None => Ok(()),
        Some(schema) => {
            Err(Error::unsupported(format!("search_path can only be public, not \"{schema}\""))
                .hint(format!("name the schema with the table: {schema}.t")))
        }
    }
}

/// The name as DataFusion takes it.
fn zone(value: &str) -> String {
    match value.to_ascii_uppercase().as_str() {
        "UTC" | "GMT" | "Z" | "ZULU" | "ETC/UTC" => "+00:00".into(),
        _ => match value.parse::<i32>() {
            Ok(hours) => format!("{hours:+03}:00"),
            Err(_) => value.into(),
        },
    }
}

fn check_zone(value: &str) -> Result<()> {
    use arrow::array::timezone::Tz;
    match zone(value).parse::<Tz>() {
        Ok(_) => Ok(()),
        Err(_) => {
            Err(Error::user(format!("invalid value for parameter \"TimeZone\": \"{value}\""))
                .code("22023")
                .hint("write a name such as Europe/Vienna, or an offset such as +02:00"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn commands_are_known() {
        let set = |name: &str, value: &str| {
            let value = Some(value.to_string());
            Some(Command::Set { name: name.into(), value, local: false })
        };
        assert_eq!(Command::of("SET client_encoding TO 'UTF8'"), set("client_encoding", "UTF8"));
        assert_eq!(Command::of("set Extra_Float_Digits = 3;"), set("extra_float_digits", "3"));
        assert_eq!(Command::of("SET SESSION a.b = -1"), set("a.b", "-1"));
        assert_eq!(
            Command::of("SET search_path = \"$user\", public"),
            set("search_path", "\"$user\", public")
        );
        assert_eq!(Command::of("SET TIME ZONE 'Europe/Vienna'"), set("timezone", "Europe/Vienna"));
        assert_eq!(Command::of("SET thalweg.policy = 'fair'"), None);
        assert_eq!(Command::of("SET TRANSACTION READ ONLY"), None);
        assert_eq!(Command::of("SHOW TABLES"), None);
        assert_eq!(
            Command::of("SHOW server_version"),
            Some(Command::Show("server_version".into()))
        );
        assert_eq!(Command::of("SELECT 1"), None);
        assert_eq!(Command::of("DISCARD ALL"), Some(Command::DiscardAll));
        assert_eq!(Command::of("UNLISTEN *"), Some(Command::Nothing("UNLISTEN")));
    }
}
