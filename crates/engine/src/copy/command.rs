//! `COPY` as it is parsed.

use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Query};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{IsOptional, Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use crate::dialect::Thalweg;
use crate::names;
use crate::script;

#[derive(Debug)]
pub(crate) struct Copy {
    pub(super) source: Source,
    /// Out of the database, not into it.
    pub to: bool,
    /// From or to the client, not files.
    pub(super) client: bool,
    pub(super) files: Vec<String>,
    pub(super) options: Vec<Setting>,
}

/// `COPY … FROM STDIN` or `… TO STDOUT`: the client sends the rows, or gets them. Whoever speaks
/// with it does what is asked for.
#[derive(Clone, Debug)]
pub struct ClientCopy {
    pub to: bool,
    /// Schema, if one is named, and name. `None`: the rows of a query.
    pub table: Option<(Option<String>, String)>,
    /// Of the table; empty: all.
    pub columns: Vec<String>,
    /// What gives the rows, of `TO`.
    pub query: String,
    /// In lower case, with their values.
    pub options: Vec<(String, Vec<String>)>,
}

impl ClientCopy {
    /// `None`: the statement is another, perhaps a broken one.
    pub fn parse(sql: &str) -> Option<ClientCopy> {
        // Asked of every statement of a client: most are none by their first word.
        if !script::words(sql).next().is_some_and(|word| word.eq_ignore_ascii_case("copy")) {
            return None;
        }
        let mut parser = Parser::new(&Thalweg).try_with_sql(sql).ok()?;
        let copy = parse(&mut parser).ok().filter(|copy| copy.client)?;
        let (table, columns, query) = match copy.source {
            Source::Query(query) => (None, vec![], query.to_string()),
            Source::Table(name, columns) => {
                let list = match columns.is_empty() {
                    true => "*".to_string(),
                    false => columns.iter().map(Ident::to_string).collect::<Vec<_>>().join(", "),
                };
                let query = format!("SELECT {list} FROM {name}");
                let mut parts = name.0.iter().rev().filter_map(|p| p.as_ident()).map(names::ident);
                let table = parts.next()?;
                let columns = columns.iter().map(names::ident).collect();
                (Some((parts.next(), table)), columns, query)
            }
        };
        let options = copy.options.into_iter().map(|o| (o.name, o.values)).collect();
        Some(ClientCopy { to: copy.to, table, columns, query, options })
    }
}

#[derive(Debug)]
pub(super) enum Source {
    Table(ObjectName, Vec<Ident>),
    Query(Box<Query>),
}

/// `name value value …`; a name alone has no value.
#[derive(Debug)]
pub(super) struct Setting {
    pub name: String,
    pub values: Vec<String>,
}

impl Copy {
    /// The query whose rows are written.
    pub fn query_mut(&mut self) -> Option<&mut Query> {
        match &mut self.source {
            Source::Query(query) => Some(query),
            Source::Table(..) => None,
        }
    }

    /// The table that is read or filled, if it is one.
    pub fn table(&self) -> Option<&ObjectName> {
        match &self.source {
            Source::Table(name, _) => Some(name),
            Source::Query(_) => None,
        }
    }
}

pub(crate) fn parse(parser: &mut Parser) -> Result<Copy, ParserError> {
    parser.expect_keyword_is(Keyword::COPY)?;
    let source = if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        Source::Query(query)
    } else {
        let name = parser.parse_object_name(false)?;
        Source::Table(name, parser.parse_parenthesized_column_list(IsOptional::Optional, false)?)
    };
    let to = parser.expect_one_of_keywords(&[Keyword::FROM, Keyword::TO])? == Keyword::TO;
    if parser.peek_keyword(Keyword::PROGRAM) {
        return Err(ParserError::ParserError("COPY runs no program".into()));
    }
    let client = parser.parse_one_of_keywords(&[Keyword::STDIN, Keyword::STDOUT]).is_some();
    let files = match client {
        true => vec![],
        false => parser.parse_comma_separated(Parser::parse_literal_string)?,
    };
    let mut options = vec![];
    loop {
        if parser.parse_keywords(&[Keyword::STORED, Keyword::AS]) {
            options.push(Setting { name: "format".into(), values: vec![value(parser)?] });
        } else if parser.parse_keywords(&[Keyword::PARTITIONED, Keyword::BY]) {
            options.push(Setting { name: "partition_by".into(), values: values(parser)? });
        } else {
            let _ = parser.parse_one_of_keywords(&[Keyword::WITH, Keyword::OPTIONS]);
            if !parser.consume_token(&Token::LParen) {
                while let Some(option) = bare_setting(parser)? {
                    options.push(option);
                }
                break;
            }
            loop {
                options.push(setting(parser)?);
                if !parser.consume_token(&Token::Comma) {
                    break;
                }
            }
            parser.expect_token(&Token::RParen)?;
        }
    }
    let _ = parser.consume_token(&Token::SemiColon);
    parser.expect_token(&Token::EOF)?;
    Ok(Copy { source, to, client, files, options })
}

/// `CSV HEADER DELIMITER AS ';'`, as PostgreSQL had options before they had parentheses.
fn bare_setting(parser: &mut Parser) -> Result<Option<Setting>, ParserError> {
    let Token::Word(word) = &parser.peek_token_ref().token else { return Ok(None) };
    let name = word.value.to_lowercase();
    parser.advance_token();
    Ok(Some(match name.as_str() {
        "csv" | "text" | "binary" => Setting { name: "format".into(), values: vec![name] },
        "header" => Setting { name, values: vec![] },
        "delimiter" | "null" | "quote" | "escape" | "encoding" => {
            let _ = parser.parse_keyword(Keyword::AS);
            Setting { name, values: vec![value(parser)?] }
        }
        _ => return parser.expected("an option of COPY", parser.peek_token()),
    }))
}

/// `DELIMITER ';'`, `'format.delimiter' ';'`, `HEADER`, `PARTITION_BY (a, b)`
fn setting(parser: &mut Parser) -> Result<Setting, ParserError> {
    let mut name = value(parser)?;
    while parser.consume_token(&Token::Period) {
        name = format!("{name}.{}", value(parser)?);
    }
    let _ = parser.consume_token(&Token::Eq);
    let ends = matches!(parser.peek_token_ref().token, Token::Comma | Token::RParen);
    let values = if ends { vec![] } else { values(parser)? };
    Ok(Setting { name: name.to_lowercase(), values })
}

fn values(parser: &mut Parser) -> Result<Vec<String>, ParserError> {
    if !parser.consume_token(&Token::LParen) {
        return Ok(vec![value(parser)?]);
    }
    let values = parser.parse_comma_separated(value)?;
    parser.expect_token(&Token::RParen)?;
    Ok(values)
}

fn value(parser: &mut Parser) -> Result<String, ParserError> {
    let token = parser.next_token();
    Ok(match token.token {
        Token::Word(word) => word.value,
        Token::Number(digits, _) => digits,
        Token::SingleQuotedString(text) => text,
        Token::EscapedStringLiteral(text) => text,
        Token::Minus => format!("-{}", value(parser)?),
        _ => return parser.expected("a word, a number or a string", token),
    })
}

impl Setting {
    pub fn text(&self) -> Result<&str> {
        match &self.values[..] {
            [value] => Ok(value),
            _ => Err(Error::user(format!("COPY: {} takes one value", self.name.to_uppercase()))),
        }
    }

    /// A name alone is true.
    pub fn flag(&self) -> Result<bool> {
        if self.values.is_empty() {
            return Ok(true);
        }
        match self.text()?.to_lowercase().as_str() {
            "true" | "on" | "1" | "match" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            other => Err(Error::user(format!(
                "COPY: {} is true or false, not {}",
                self.name.to_uppercase(),
                quoted(other)
            ))),
        }
    }

    pub fn number(&self) -> Result<u64> {
        let text = self.text()?;
        text.parse().map_err(|_| {
            let name = self.name.to_uppercase();
            Error::user(format!("COPY: {name} is a whole number, not {}", quoted(text)))
        })
    }

    pub fn byte(&self) -> Result<u8> {
        let text = self.text()?;
        match text.as_bytes() {
            [byte] => Ok(*byte),
            br"\t" => Ok(b'\t'),
            _ => Err(Error::user(format!(
                "COPY: {} is one character of ASCII, not {}",
                self.name.to_uppercase(),
                quoted(text)
            ))),
        }
    }

    pub fn unknown(&self, known: &str) -> Error {
        Error::user(format!("COPY has no option {}", quoted(&self.name))).hint(known)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::dialect::Thalweg;

    fn parsed(sql: &str) -> Copy {
        let tokens = Tokenizer::new(&Thalweg, sql).tokenize_with_location().unwrap();
        parse(&mut Parser::new(&Thalweg).with_tokens_with_locations(tokens)).unwrap()
    }

    #[test]
    fn options_are_read_in_every_spelling() {
        let check = |sql: &str, expected: &[(&str, &[&str])]| {
            let copy = parsed(sql);
            let found: Vec<(&str, Vec<&str>)> = copy
                .options
                .iter()
                .map(|o| (o.name.as_str(), o.values.iter().map(String::as_str).collect()))
                .collect();
            let expected: Vec<(&str, Vec<&str>)> =
                expected.iter().map(|(n, v)| (*n, v.to_vec())).collect();
            assert_eq!(found, expected, "{sql}");
        };
        check("COPY t TO 'f'", &[]);
        check("COPY t TO 'f' STORED AS CSV", &[("format", &["CSV"])]);
        check(
            "COPY t FROM 'f', 'g' WITH (FORMAT csv, HEADER, DELIMITER ';', NULL ('', 'NA'))",
            &[("format", &["csv"]), ("header", &[]), ("delimiter", &[";"]), ("null", &["", "NA"])],
        );
        check(
            "COPY (SELECT 1) TO 'f/' PARTITIONED BY (a, b) OPTIONS ('format.compression' 'zstd(3)', format.x 1)",
            &[
                ("partition_by", &["a", "b"]),
                ("format.compression", &["zstd(3)"]),
                ("format.x", &["1"]),
            ],
        );
    }
}
