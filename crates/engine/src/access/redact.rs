//! Statements without the secrets in them, for all who keep or show a text.

use std::borrow::Cow;
use std::path::Path;

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use thalweg_base::Error;
use thalweg_storage::load;

use crate::dialect::Thalweg;

const HIDDEN: &str = "'***'";

/// The text with every secret in it replaced: passwords, and in statements about roles every
/// string but a time, in case PASSWORD was misspelt; of addresses what may be a signature. A text that
/// cannot be read is cut short.
pub fn redact(sql: &str) -> Cow<'_, str> {
    if !may_have_secrets(sql) {
        return Cow::Borrowed(sql);
    }
    let Ok(tokens) = Tokenizer::new(&Thalweg, sql).tokenize_with_location() else {
        return Cow::Owned(format!("{} …", before_secret(sql)));
    };
    let secrets = secrets(&tokens);
    if secrets.is_empty() {
        return Cow::Borrowed(sql);
    }
    let mut text = String::new();
    for (i, token) in tokens.iter().enumerate() {
        match secrets.contains(&i) {
            true => text += &hidden(&token.token),
            false => text += &token.token.to_string(),
        }
    }
    Cow::Owned(text)
}

/// Of a secret that is looked for without its quotes.
const BARE_CHARS_MIN: usize = 4;

/// The error of a statement, without the secrets of the statement.
pub fn without_secrets(sql: &str, error: Error) -> Error {
    if !may_have_secrets(sql) {
        return error;
    }
    let Ok(tokens) = Tokenizer::new(&Thalweg, sql).tokenize_with_location() else {
        // Which the parser could not read, either: its message names a place and no text.
        return error;
    };
    let secrets: Vec<(String, String)> = secrets(&tokens)
        .into_iter()
        .flat_map(|i| {
            let token = &tokens[i].token;
            // Without its quotes, a short one is a part of many words, and says little.
            let bare = Some(value(token)).filter(|v| v.chars().count() >= BARE_CHARS_MIN);
            let hidden = hidden(token);
            [Some(token.to_string()), bare].into_iter().flatten().map(move |s| (s, hidden.clone()))
        })
        .collect();
    error.map_text(|text| {
        secrets.iter().fold(text.to_owned(), |text, (secret, hidden)| text.replace(secret, hidden))
    })
}

/// Cheap, for all the statements that have none.
fn may_have_secrets(sql: &str) -> bool {
    contains(sql, b"password")
        || is_about_roles(sql)
        || contains(sql, b"attach")
        || contains(sql, b"://") && sql.contains(['?', '#', '@'])
}

/// What stands in the place of a secret.
fn hidden(token: &Token) -> String {
    signed(&value(token)).unwrap_or_else(|| HIDDEN.to_owned())
}

/// The address of a file without what may be secret, if it has any such.
fn signed(text: &str) -> Option<String> {
    let address = load::address(Path::new(text))?;
    let bare = load::shown_address(address);
    (bare != address).then(|| format!("'{bare}?***'"))
}

fn contains(sql: &str, word: &[u8]) -> bool {
    sql.as_bytes().windows(word.len()).any(|w| w.eq_ignore_ascii_case(word))
}

/// By its first words, wherever they stand: also behind EXPLAIN or PREPARE.
fn is_about_roles(sql: &str) -> bool {
    let head: String = sql.chars().take(HEAD_CHARS).collect();
    ["role", "user"].iter().any(|word| contains(&head, word.as_bytes()))
        && ["create", "alter"].iter().any(|word| contains(&head, word.as_bytes()))
}

/// Of a text, in which the words that say what it is must stand.
const HEAD_CHARS: usize = 1000;

fn before_secret(sql: &str) -> &str {
    let at = sql.find(['\'', '$']).unwrap_or(sql.len());
    sql[..at].trim_end()
}

/// The tokens that are secrets.
fn secrets(tokens: &[TokenWithSpan]) -> Vec<usize> {
    let seen: Vec<usize> =
        (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    let is = |at: usize, words: &[&str]| {
        seen.get(at).is_some_and(|&i| match &tokens[i].token {
            Token::Word(word) => words.iter().any(|w| word.value.eq_ignore_ascii_case(w)),
            _ => false,
        })
    };
    let about_roles =
        (0..seen.len()).any(|at| is(at, &["create", "alter"]) && is(at + 1, &["role", "user"]));
    // Also behind EXPLAIN or PREPARE, where it cannot stand.
    let attaches = (0..seen.len()).any(|at| {
        let is_text = seen.get(at + 1).is_some_and(|&i| is_string(&tokens[i].token));
        is(at, &["attach"]) && (is_text || is(at + 1, &["database", "if"]))
    });
    let mut secrets = vec![];
    let mut after_password = false;
    for (at, &i) in seen.iter().enumerate() {
        let is_connection = || may_be_connection(&value(&tokens[i].token));
        if attaches && is_string(&tokens[i].token) && is_connection()
            || signed(&value(&tokens[i].token)).is_some()
        {
            secrets.push(i);
            continue;
        }
        // In the wrong quotes, or in none.
        let is_misquoted = about_roles && after_password && !is(at, &["null"]);
        if is_string(&tokens[i].token) || is_misquoted {
            let is_time = at > 0 && is(at - 1, &["until"]);
            let is_name = at > 0 && is(at - 1, &["token"]);
            if after_password || about_roles && !is_time && !is_name {
                secrets.push(i);
            }
            after_password &= !is_misquoted;
            continue;
        }
        after_password = match &tokens[i].token {
            Token::Word(word) => word.value.eq_ignore_ascii_case("password"),
            Token::Eq | Token::Colon => after_password,
            _ => false,
        };
    }
    secrets
}

/// Whether a text of ATTACH may be a connection string, with a password in it, and not a path alone.
fn may_be_connection(text: &str) -> bool {
    text.contains(['=', '@']) || text.contains("://")
}

fn is_string(token: &Token) -> bool {
    !matches!(
        token,
        Token::Word(_)
            | Token::Number(..)
            | Token::Whitespace(_)
            | Token::EOF
            | Token::Comma
            | Token::Eq
            | Token::Colon
            | Token::SemiColon
            | Token::Period
            | Token::LParen
            | Token::RParen
    )
}

/// What stands in its quotes.
fn value(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text)
        | Token::NationalStringLiteral(text)
        | Token::DoubleQuotedString(text) => text.clone(),
        Token::DollarQuotedString(text) => text.value.clone(),
        Token::Word(word) => word.value.clone(),
        Token::Number(digits, _) => digits.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_left() {
        for (sql, expected) in [
            ("CREATE ROLE a PASSWORD 's3cret'", "CREATE ROLE a PASSWORD '***'"),
            (
                "create user a with encrypted password /* s */ 's3cret' login",
                "create user a with encrypted password /* s */ '***' login",
            ),
            ("ALTER ROLE a PASWORD 's3cret'", "ALTER ROLE a PASWORD '***'"),
            (
                "ALTER ROLE a PASSWORD E's3cret' VALID UNTIL '2030-01-01'",
                "ALTER ROLE a PASSWORD '***' VALID UNTIL '2030-01-01'",
            ),
            ("ALTER USER a PASSWORD $x$s3cret$x$", "ALTER USER a PASSWORD '***'"),
            (
                "PREPARE p AS CREATE ROLE a PASSWORD 's3cret'",
                "PREPARE p AS CREATE ROLE a PASSWORD '***'",
            ),
            ("EXPLAIN CREATE ROLE a 's3cret'", "EXPLAIN CREATE ROLE a '***'"),
            ("ALTER ROLE a PASSWORD \"s3cret\" LOGIN", "ALTER ROLE a PASSWORD '***' LOGIN"),
            ("ALTER ROLE a PASSWORD s3cret", "ALTER ROLE a PASSWORD '***'"),
            ("ALTER ROLE a PASSWORD NULL", "ALTER ROLE a PASSWORD NULL"),
            ("ALTER ROLE a ADD TOKEN 'ci'", "ALTER ROLE a ADD TOKEN 'ci'"),
            ("SET PASSWORD = 's3cret'", "SET PASSWORD = '***'"),
            ("ALTER ROLE a PASSWORD 's3cret", "ALTER ROLE a PASSWORD …"),
            (
                "ATTACH 'host=h password=s3cret' AS p (TYPE postgres)",
                "ATTACH '***' AS p (TYPE postgres)",
            ),
            ("attach /* s */ 'postgresql://u:s3cret@h/d'", "attach /* s */ '***'"),
            (
                "ATTACH DATABASE IF NOT EXISTS $$user=u pwd=s3cret$$ AS p",
                "ATTACH DATABASE IF NOT EXISTS '***' AS p",
            ),
            ("PREPARE p AS ATTACH 'host=h user=u'", "PREPARE p AS ATTACH '***'"),
            ("ATTACH 'a/b.db' AS s", "ATTACH 'a/b.db' AS s"),
            (
                "SELECT * FROM 'https://h/a.csv?sig=s3cret' WHERE x = '?'",
                "SELECT * FROM 'https://h/a.csv?***' WHERE x = '?'",
            ),
            (
                "SELECT * FROM read_csv(['http://u:s3cret@h/a.csv', 's3://b/a.csv'])",
                "SELECT * FROM read_csv(['http://h/a.csv?***', 's3://b/a.csv'])",
            ),
            ("SELECT * FROM \"https://h/a.csv?s3cret\"", "SELECT * FROM 'https://h/a.csv?***'"),
            ("SELECT 'attach', 'a=b'", "SELECT 'attach', 'a=b'"),
            ("SELECT password, 'x' FROM t", "SELECT password, 'x' FROM t"),
            ("SELECT 'user', 'create'", "SELECT 'user', 'create'"),
        ] {
            assert_eq!(redact(sql), expected);
        }
    }

    #[test]
    fn nor_in_an_error() {
        let sql = "CREATE ROLE a PASSWORD 's3cret' FOO";
        let error = Error::user("found: 's3cret'").detail("s3cret is short").hint("not s3cret");
        let error = without_secrets(sql, error);
        let all = format!("{error:#}");
        assert!(!all.contains("s3cret") && all.contains("found: '***'"), "{all}");
    }
}
