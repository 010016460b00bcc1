//! `ATTACH 'path' AS name (TYPE sqlite)` and `DETACH name`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_foreign::{Postgres, Sqlite};
use thalweg_storage::load;

use thalweg_errors::from_datafusion;
use thalweg_runtime::blocking;

use super::foreign::AskedToStop;
use super::own::Own;
use super::{Attached, check_reads};
use crate::access::Viewer;
use crate::answer::Tag;
use crate::names::{self, CATALOG, SYSTEM};
use crate::session::Inner;

/// Names that mean something else already.
const TAKEN: [&str; 4] = [CATALOG, SYSTEM, "pg_catalog", "information_schema"];

pub enum Command {
    Attach { text: String, name: Option<String>, if_not_exists: bool, options: Options },
    Detach { name: String, if_exists: bool },
}

#[derive(Default)]
pub struct Options {
    kind: Option<Kind>,
    /// Of SQLite.
    all_text: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Postgres,
    Thalweg,
}

/// Whether a statement begins like one of these.
pub fn is_command(tokens: &[TokenWithSpan]) -> bool {
    let first = tokens.iter().find_map(|t| match &t.token {
        Token::Whitespace(_) => None,
        other => Some(other),
    });
    matches!(first, Some(Token::Word(word)) if word.quote_style.is_none()
        && matches!(word.keyword, Keyword::ATTACH | Keyword::DETACH))
}

/// The parser's errors are of syntax; the other ones say what is wrong with an option.
pub fn parse(parser: &mut Parser) -> std::result::Result<Result<Command>, ParserError> {
    let verb = parser.expect_one_of_keywords(&[Keyword::ATTACH, Keyword::DETACH])?;
    let _ = parser.parse_keyword(Keyword::DATABASE);
    let command = if verb == Keyword::DETACH {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        Ok(Command::Detach { name: names::ident(&parser.parse_identifier()?), if_exists })
    } else {
        let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let text = parser.parse_literal_string()?;
        let name = match parser.parse_keyword(Keyword::AS) {
            true => Some(names::ident(&parser.parse_identifier()?)),
            false => None,
        };
        let mut options = Ok(Options::default());
        if parser.consume_token(&Token::LParen) {
            for (key, value) in parser.parse_comma_separated(option)? {
                options = options.and_then(|options| options.with(&key, value.as_deref()));
            }
            parser.expect_token(&Token::RParen)?;
        }
        options.map(|options| Command::Attach { text, name, if_not_exists, options })
    };
    let _ = parser.consume_token(&Token::SemiColon);
    parser.expect_token(&Token::EOF)?;
    Ok(command)
}

/// `TYPE sqlite`, `READ_ONLY`, `ALL_VARCHAR true`, also with `=` in between.
fn option(parser: &mut Parser) -> std::result::Result<(String, Option<String>), ParserError> {
    let key = parser.parse_identifier()?.value.to_lowercase();
    let _ = parser.consume_token(&Token::Eq);
    let value = match parser.peek_token().token {
        Token::Comma | Token::RParen => None,
        Token::SingleQuotedString(text) => Some(text),
        Token::Word(word) => Some(word.value),
        Token::Number(digits, _) => Some(digits),
        _ => return parser.expected("a word, a text or a number", parser.peek_token()),
    };
    if value.is_some() {
        parser.next_token();
    }
    Ok((key, value))
}

impl Options {
    fn with(mut self, key: &str, value: Option<&str>) -> Result<Self> {
        let lower = value.map(str::to_lowercase);
        let is_true = || match lower.as_deref() {
            None | Some("true" | "1" | "on") => Ok(true),
            Some("false" | "0" | "off") => Ok(false),
            Some(other) => {
                Err(Error::user(format!("{key} of ATTACH is true or false, not {}", quoted(other))))
            }
        };
        match key {
            "type" => {
                self.kind = Some(match lower.as_deref() {
                    Some("sqlite" | "sqlite3") => Kind::Sqlite,
                    Some("postgres" | "postgresql") => Kind::Postgres,
                    Some("thalweg") => Kind::Thalweg,
                    other => {
                        let other = quoted(other.unwrap_or_default());
                        return Err(Error::unsupported(format!("databases of type {other} cannot be attached"))
                            .hint("sqlite, postgres and thalweg can; rows of others come as files, best of Parquet"));
                    }
                });
            }
            "read_only" | "readonly" => {
                if !is_true()? {
                    return Err(only_read());
                }
            }
            "read_write" | "readwrite" => {
                if is_true()? {
                    return Err(only_read());
                }
            }
            "all_varchar" => self.all_text = is_true()?,
            _ => {
                return Err(Error::user(format!("ATTACH has no option {}", quoted(key)))
                    .code("42601")
                    .hint("known are TYPE, READ_ONLY, and of SQLite ALL_VARCHAR"));
            }
        }
        Ok(self)
    }
}

fn only_read() -> Error {
    Error::unsupported("attached databases are only read")
        .hint("leave the option out; CREATE TABLE … AS SELECT copies rows here")
}

pub async fn run(session: &Inner, viewer: &Viewer, command: Command) -> Result<Tag> {
    let attachments = session.catalog.attachments();
    let (text, name, if_not_exists, options) = match command {
        Command::Detach { name, if_exists } => {
            if !attachments.remove(&name) && !if_exists {
                return Err(Error::user(format!("no database is attached as {}", quoted(&name)))
                    .code("3D000")
                    .hint("SHOW DATABASES lists those that are"));
            }
            return Ok(Tag::Done("DETACH".into()));
        }
        Command::Attach { text, name, if_not_exists, options } => {
            (text, name, if_not_exists, options)
        }
    };
    check_reads(viewer)?;
    let kind = match options.kind {
        Some(kind) => kind,
        None => {
            let text = text.clone();
            blocking(move || guessed(&text)).await.map_err(from_datafusion)?
        }
    };
    let name = match name.or_else(|| default_name(kind, &text)) {
        Some(name) => name,
        None => {
            return Err(Error::user("the attached database needs a name")
                .code("42601")
                .hint("ATTACH '…' AS name"));
        }
    };
    if TAKEN.contains(&name.as_str()) || session.catalog.snapshot().schemas.contains_key(&name) {
        return Err(Error::user(format!("{} is the name of a schema", quoted(&name)))
            .code("42710")
            .hint("ATTACH '…' AS other_name"));
    }
    if attachments.has(&name) {
        return match if_not_exists {
            true => Ok(Tag::Done("ATTACH".into())),
            false => {
                Err(Error::user(format!("a database is attached as {} already", quoted(&name)))
                    .code("42710")
                    .hint(format!(
                        "DETACH {} first, or give the new one another name",
                        quoted(&name)
                    )))
            }
        };
    }
    if !viewer.is_superuser() {
        check_own_rights(kind, &text)?;
    }
    let all_text = options.all_text;
    if all_text && kind != Kind::Sqlite {
        return Err(Error::user("ALL_VARCHAR is an option of SQLite databases").code("42601"));
    }
    let stop = AskedToStop::default();
    let asked = stop.0.clone();
    let opened = blocking(move || {
        Ok(match kind {
            Kind::Sqlite => Attached::Foreign(Arc::new(Sqlite::open(&local(&text), all_text)?)),
            Kind::Postgres => Attached::Foreign(Arc::new(Postgres::open(&text, &asked)?)),
            Kind::Thalweg => Attached::Own(Own::open(&text)?),
        })
    });
    attachments.add(name, opened.await.map_err(from_datafusion)?);
    Ok(Tag::Done("ATTACH".into()))
}

/// What comes from another machine comes with this process's rights there, unless the statement has a
/// password of its own.
fn check_own_rights(kind: Kind, text: &str) -> Result<()> {
    let denied = |what: &str, hint: &str| {
        Err(Error::user(format!("permission denied to {what}")).code("42501").hint(hint))
    };
    match kind {
        Kind::Postgres if !Postgres::has_own_password(text)? => denied(
            "attach a PostgreSQL server without a password, or over a socket of this machine",
            "name host and password; only a superuser may come as the user who runs this process",
        ),
        Kind::Thalweg if text.contains("://") => denied(
            "attach a database in an object store",
            "only a superuser may use the credentials of this process",
        ),
        _ => Ok(()),
    }
}

/// What is meant by a text alone. Blocking.
fn guessed(text: &str) -> Result<Kind> {
    if Postgres::is_url(text) {
        return Ok(Kind::Postgres);
    }
    if text.contains("://") {
        return Ok(Kind::Thalweg);
    }
    let path = local(text);
    let named = quoted(text);
    let meta = match path.metadata() {
        Ok(meta) => meta,
        Err(_)
            if ["host", "dbname", "user"].iter().any(|key| text.contains(&format!("{key}="))) =>
        {
            return Err(Error::user("what is to be attached is no file")
                .code("58P01")
                .hint("for a connection string: ATTACH '…' AS name (TYPE postgres)"));
        }
        Err(e) => return Err(no_file(&named, e)),
    };
    if meta.is_dir() {
        return Ok(Kind::Thalweg);
    }
    if Sqlite::is_database(&path).map_err(|e| no_file(&named, e))? {
        return Ok(Kind::Sqlite);
    }
    Err(Error::unsupported(format!("file {named} is no database that can be attached")).hint(
        "files of SQLite can, and folders with a database of Thalweg; a DuckDB database can be written as \
         Parquet there: EXPORT DATABASE 'folder' (FORMAT parquet)",
    ))
}

fn no_file(named: &str, e: std::io::Error) -> Error {
    match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::user(format!("file {named} does not exist")).code("58P01")
        }
        _ => Error::io(format!("cannot open {named}"), e),
    }
}

/// A path with `~` for the home folder.
fn local(text: &str) -> PathBuf {
    load::home(text).into()
}

/// As the file is called, without its extension; as the database on the server is called.
fn default_name(kind: Kind, text: &str) -> Option<String> {
    match kind {
        Kind::Postgres => Postgres::database(text),
        Kind::Sqlite | Kind::Thalweg => {
            let stem = Path::new(text).file_stem()?.to_string_lossy();
            (!stem.is_empty()).then(|| stem.to_lowercase())
        }
    }
}
