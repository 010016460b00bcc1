//! `CREATE WORKLOAD`, `ALTER WORKLOAD`, `DROP WORKLOAD`: classes of queries with a weight and
//! limits. They are properties of the database, so that they are there again when it is opened.

mod change;

use std::fmt;
use std::sync::Arc;

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_base::text::{parse_bytes, parse_duration, quoted};
use thalweg_base::{Error, Result};
use thalweg_scheduler::Class;
use thalweg_storage::Database;

pub(crate) use self::change::run;
use crate::names;
use thalweg_runtime::{Driver, no_workload};

/// Before the name of each workload's property.
const PROPERTY: &str = "workload.";

/// A statement about a workload.
#[derive(Debug, PartialEq)]
pub enum Command {
    Create { name: String, if_not_exists: bool, settings: Vec<Setting> },
    Alter { name: String, settings: Vec<Setting> },
    Drop { name: String, if_exists: bool },
}

/// One `key = value`; no value is no limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    key: String,
    value: Option<String>,
}

/// Whether a statement begins like one about a workload.
pub fn is_command(tokens: &[TokenWithSpan]) -> bool {
    let mut words = tokens.iter().filter_map(|t| match &t.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word),
        _ => None,
    });
    let verb = words.next().map(|w| w.keyword);
    matches!(verb, Some(Keyword::CREATE | Keyword::ALTER | Keyword::DROP))
        && words.next().is_some_and(|w| w.value.eq_ignore_ascii_case("workload"))
}

/// The parser's errors are of syntax; the other ones say what is wrong with a setting.
pub fn parse(parser: &mut Parser) -> std::result::Result<Result<Command>, ParserError> {
    let verb = parser.expect_one_of_keywords(&[Keyword::CREATE, Keyword::ALTER, Keyword::DROP])?;
    parser.next_token();
    let optional = match verb {
        Keyword::CREATE => parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]),
        Keyword::DROP => parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]),
        _ => false,
    };
    let name = names::ident(&parser.parse_identifier()?);
    let mut settings = vec![];
    if verb != Keyword::DROP {
        let _ = parser.parse_one_of_keywords(&[Keyword::WITH, Keyword::SET]);
        if parser.consume_token(&Token::LParen) {
            settings = parser.parse_comma_separated(setting)?;
            parser.expect_token(&Token::RParen)?;
        }
    }
    let _ = parser.consume_token(&Token::SemiColon);
    parser.expect_token(&Token::EOF)?;
    // So that a mistake is an error of the statement, whatever else stands in its way.
    let checked = class(Class::new(&name), &settings);
    Ok(checked.map(|_| match verb {
        Keyword::CREATE => Command::Create { name, if_not_exists: optional, settings },
        Keyword::ALTER => Command::Alter { name, settings },
        _ => Command::Drop { name, if_exists: optional },
    }))
}

fn setting(parser: &mut Parser) -> std::result::Result<Setting, ParserError> {
    let key = parser.parse_identifier()?.value.to_lowercase();
    let _ = parser.consume_token(&Token::Eq);
    let token = parser.next_token();
    let value = match token.token {
        Token::Word(word) if word.quote_style.is_none() => {
            match word.value.to_lowercase().as_str() {
                "none" | "null" | "default" | "unlimited" => None,
                _ => return parser.expected("a number, a text or NONE", parser.peek_token()),
            }
        }
        Token::Number(digits, _) => Some(digits),
        Token::SingleQuotedString(text) => Some(text),
        _ => return parser.expected("a number, a text or NONE", token),
    };
    Ok(Setting { key, value })
}

/// `class` with these settings in place of its own.
fn class(mut class: Class, settings: &[Setting]) -> Result<Class> {
    let defaults = Class::new("");
    for Setting { key, value } in settings {
        let of = |what: &str| {
            let value = value.as_deref().unwrap_or("NONE");
            Error::user(format!("{key} of workload {} is {what}, not {value}", quoted(&class.name)))
        };
        let number = |what: &str| match value {
            None => Ok(None),
            Some(text) => text.parse::<u32>().map(Some).map_err(|_| of(what)),
        };
        let size = || match value {
            None => Ok(None),
            Some(text) => parse_bytes(text).map(Some).ok_or_else(|| of("a size such as '2GiB'")),
        };
        let time = || match value {
            None => Ok(None),
            Some(text) => parse_duration(text)
                .map(|d| Some(d.as_nanos().try_into().unwrap_or(u64::MAX)))
                .ok_or_else(|| of("a time such as '30s', '500ms' or '5min'")),
        };
        match key.as_str() {
            "weight" => {
                class.weight = number("a number, and 100 is normal")?.unwrap_or(defaults.weight)
            }
            "max_running" => {
                let most = number("a number of queries")?;
                if most == Some(0) {
                    return Err(of("1 or more").hint("DROP WORKLOAD if nothing is to run in it"));
                }
                class.max_running = most;
            }
            "queue" => {
                class.queue_max = number("a number of queries")?.unwrap_or(defaults.queue_max)
            }
            "queue_timeout" => class.queue_timeout_ns = time()?,
            "statement_timeout" | "timeout" => class.statement_timeout_ns = time()?,
            "memory" => class.memory_bytes = size()?,
            "query_memory" => class.query_memory_bytes = size()?,
            _ => {
                return Err(Error::user(format!("a workload has no setting {}", quoted(key))).hint(
                    "it has weight, max_running, queue, queue_timeout, statement_timeout, memory \
                     and query_memory",
                ));
            }
        }
    }
    Ok(class)
}

/// Settings as text that [`stored`] reads.
struct Text<'a>(&'a Class);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Class { name: _, weight, max_running, queue_max, .. } = self.0;
        write!(f, "weight={weight} queue={queue_max}")?;
        if let Some(n) = max_running {
            write!(f, " max_running={n}")?;
        }
        let times = [
            ("queue_timeout", self.0.queue_timeout_ns),
            ("statement_timeout", self.0.statement_timeout_ns),
        ];
        for (key, ns) in times {
            if let Some(ns) = ns {
                write!(f, " {key}={}ms", ns as f64 / 1e6)?;
            }
        }
        for (key, bytes) in
            [("memory", self.0.memory_bytes), ("query_memory", self.0.query_memory_bytes)]
        {
            if let Some(bytes) = bytes {
                write!(f, " {key}={bytes}")?;
            }
        }
        Ok(())
    }
}

fn stored(name: &str, text: &str) -> Result<Class> {
    let settings = text.split_whitespace().map(|setting| {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        Setting { key: key.to_owned(), value: Some(value.to_owned()) }
    });
    class(Class::new(name), &settings.collect::<Vec<_>>())
        .map_err(|e| e.context("a workload stored in this database"))
}

/// Makes the workloads of a database that has just been opened.
pub fn restore(database: &Database, driver: &Arc<Driver>) -> Result<()> {
    for (property, text) in &database.snapshot().properties {
        let Some(name) = property.strip_prefix(PROPERTY) else { continue };
        put(driver, stored(name, text)?)?;
    }
    Ok(())
}

/// Gives the workload these settings, from now on; makes it if it is not there.
fn put(driver: &Driver, class: Class) -> Result<()> {
    driver.event(|s, now, actions| match s.class_named(&class.name) {
        Some(id) => s.alter_class(id, class, now, actions),
        None => s.create_class(class).map(drop),
    })
}

fn drop_class(driver: &Driver, name: &str) -> Result<()> {
    driver.event(|s, now, actions| match s.class_named(name) {
        Some(id) => s.drop_class(id, now, actions),
        None => Err(no_workload(name)),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::dialect::Thalweg;

    fn parsed(sql: &str) -> Result<Command> {
        let tokens = Tokenizer::new(&Thalweg, sql).tokenize_with_location().unwrap();
        assert!(is_command(&tokens));
        let mut parser = Parser::new(&Thalweg).with_tokens_with_locations(tokens);
        parse(&mut parser).map_err(|e| Error::user(e.to_string()))?
    }

    #[test]
    fn settings_are_read_written_and_read_again() {
        let sql = "CREATE WORKLOAD Reports (weight = 300, max_running 2, queue = 5, \
                   queue_timeout = '30s', timeout = '0.25ms', memory = '2GiB', query_memory = '512MB')";
        let Command::Create { name, if_not_exists: false, settings } = parsed(sql).unwrap() else {
            panic!("not a CREATE")
        };
        assert_eq!(name, "reports");
        let made = class(Class::new(&name), &settings).unwrap();
        let expected = Class {
            weight: 300,
            max_running: Some(2),
            queue_max: 5,
            queue_timeout_ns: Some(30_000_000_000),
            statement_timeout_ns: Some(250_000),
            memory_bytes: Some(2 << 30),
            query_memory_bytes: Some(512_000_000),
            ..Class::new("reports")
        };
        assert_eq!(made, expected);
        assert_eq!(stored("reports", &Text(&made).to_string()).unwrap(), expected);
        let Command::Alter { settings, .. } =
            parsed("ALTER WORKLOAD reports SET (memory = NONE, queue = DEFAULT)").unwrap()
        else {
            panic!("not an ALTER")
        };
        let altered = class(made, &settings).unwrap();
        assert_eq!((altered.memory_bytes, altered.queue_max), (None, Class::new("").queue_max));
    }

    #[test]
    fn what_is_wrong_with_a_setting_is_said() {
        for (setting, message) in [
            ("weigth = 1", "a workload has no setting \"weigth\""),
            ("memory = 'much'", "memory of workload \"w\" is a size such as '2GiB', not much"),
            ("max_running = 0", "max_running of workload \"w\" is 1 or more, not 0"),
            ("queue = -1", "sql parser error"),
            ("timeout = 'soon'", "timeout of workload \"w\" is a time"),
        ] {
            let error = parsed(&format!("CREATE WORKLOAD w ({setting})")).unwrap_err();
            assert!(error.message().starts_with(message), "{error}");
        }
    }
}
