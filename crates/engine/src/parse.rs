//! SQL text into one statement.

use datafusion::execution::SessionState;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use thalweg_base::{Error, Result};

use thalweg_errors::from_datafusion;

use crate::copy::{self, Copy};
use crate::ddl::Clauses;
use crate::dialect::Thalweg;
use crate::{access, attach, depth, plain_words, refuse, spelling, workload};

/// A statement, and what DataFusion's parser would not take of it.
pub(crate) enum Parsed {
    Sql(Statement, Clauses),
    Copy(Copy),
    Workload(workload::Command),
    Access(access::Command),
    Attach(attach::Command),
}

/// Exactly one statement of any kind.
pub(crate) fn parse(state: &SessionState, sql: &str) -> Result<Parsed> {
    depth::check(sql)?;
    let mut tokens = Tokenizer::new(&Thalweg, sql)
        .tokenize_with_location()
        .map_err(|e| syntax(ParserError::from(e)))?;
    plain_words::settle(&mut tokens);
    let limit = state.config_options().sql_parser.recursion_limit.get();
    if workload::is_command(&tokens) {
        let mut parser =
            Parser::new(&Thalweg).with_recursion_limit(limit).with_tokens_with_locations(tokens);
        return workload::parse(&mut parser).map_err(syntax)?.map(Parsed::Workload);
    }
    if attach::is_command(&tokens) {
        let mut parser =
            Parser::new(&Thalweg).with_recursion_limit(limit).with_tokens_with_locations(tokens);
        return attach::parse(&mut parser).map_err(syntax)?.map(Parsed::Attach);
    }
    if access::is_command(&tokens) {
        return access::parse(&tokens).map(Parsed::Access);
    }
    let first = words(&tokens).next().map(|(_, keyword)| keyword);
    if first == Some(Keyword::COPY) {
        let mut parser =
            Parser::new(&Thalweg).with_recursion_limit(limit).with_tokens_with_locations(tokens);
        let mut copy = copy::parse(&mut parser).map_err(syntax)?;
        if let Some(query) = copy.query_mut() {
            spelling::settle_all(query)?;
            refuse::check_all(state, query)?;
        }
        return Ok(Parsed::Copy(copy));
    }
    let mut clauses = Clauses::default();
    if first == Some(Keyword::CREATE) {
        clauses.partition_by = take_partition_by(&mut tokens)?;
    }
    let mut statements = DFParserBuilder::new(tokens)
        .with_dialect(&Thalweg)
        .with_recursion_limit(limit)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(from_datafusion)?;
    let mut statement = match statements.len() {
        0 => return Err(Error::user("the statement is empty")),
        1 => statements.pop_front().expect("one"),
        n => return Err(Error::user(format!("one statement is expected here, not {n}"))),
    };
    clauses.take(&mut statement)?;
    spelling::settle(&mut statement)?;
    refuse::check(state, &statement)?;
    Ok(Parsed::Sql(statement, clauses))
}

/// A statement of SQL alone, such as a view's.
pub(crate) fn statement(state: &SessionState, sql: &str) -> Result<Statement> {
    match parse(state, sql)? {
        Parsed::Sql(statement, _) => Ok(statement),
        Parsed::Copy(_) => Err(Error::user("COPY cannot stand here")),
        Parsed::Workload(_) => Err(Error::user("a statement about a workload cannot stand here")),
        Parsed::Access(_) => Err(Error::user("a statement about roles cannot stand here")),
        Parsed::Attach(_) => Err(Error::user("ATTACH and DETACH cannot stand here")),
    }
}

fn syntax(e: ParserError) -> Error {
    from_datafusion(datafusion::error::DataFusionError::SQL(Box::new(e), None))
}

/// The words of a statement and where they are.
fn words(tokens: &[TokenWithSpan]) -> impl Iterator<Item = (usize, Keyword)> {
    tokens.iter().enumerate().filter_map(|(i, t)| match &t.token {
        Token::Word(word) => Some((i, word.keyword)),
        _ => None,
    })
}

/// Cuts `PARTITION BY HASH (column) INTO n` out of a `CREATE TABLE`: no parser knows it. A window's
/// `PARTITION BY` has no `INTO`.
fn take_partition_by(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<(String, u32)>> {
    let seen: Vec<usize> =
        (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    let token = |at: usize| seen.get(at).map(|&i| &tokens[i].token);
    let is = |at: usize, word: &str| {
        matches!(token(at), Some(Token::Word(w))
            if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    };
    for at in 0..seen.len() {
        let head = is(at, "partition")
            && is(at + 1, "by")
            && is(at + 2, "hash")
            && token(at + 3) == Some(&Token::LParen);
        if !head {
            continue;
        }
        let (Some(Token::Word(column)), Some(Token::RParen), true, Some(Token::Number(buckets, _))) =
            (token(at + 4), token(at + 5), is(at + 6, "into"), token(at + 7))
        else {
            continue;
        };
        let name = match column.quote_style {
            Some(_) => column.value.clone(),
            None => column.value.to_lowercase(),
        };
        let buckets = buckets.parse().map_err(|_| {
            Error::user(format!("PARTITION BY HASH takes a number of buckets, not {buckets}"))
        })?;
        let (from, to) = (seen[at], seen[at + 7]);
        tokens.drain(from..=to);
        return Ok(Some((name, buckets)));
    }
    Ok(None)
}
