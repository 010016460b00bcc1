//! Words that PostgreSQL does not reserve, where they are names.
//!
//! The parser knows more than a thousand words, and takes some of them for the beginning of a clause where
//! PostgreSQL has a name: a column `index`, an alias `view`. Their tokens are told to be no keywords there,
//! by what stands beside them. Where a word is an alias without AS, [the dialect](crate::dialect) is asked.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// Makes plain words of the keywords of a statement that are names where they stand.
pub fn settle(tokens: &mut [TokenWithSpan]) {
    let seen: Vec<usize> =
        (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    let first = seen.first().map_or(Keyword::NoKeyword, |&i| keyword(&tokens[i].token));
    let mut depth = 0;
    for (at, &i) in seen.iter().enumerate() {
        match tokens[i].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        let beside = |at: Option<usize>| {
            at.and_then(|at| seen.get(at)).map_or(&Token::EOF, |&i| &tokens[i].token)
        };
        let place =
            Place { first, depth, previous: beside(at.checked_sub(1)), next: beside(Some(at + 1)) };
        if is_name(keyword(&tokens[i].token), &place)
            && let Token::Word(word) = &mut tokens[i].token
        {
            word.keyword = Keyword::NoKeyword;
        }
    }
    without_hints(tokens, &seen);
}

/// `WITH a AS MATERIALIZED (…)` and `AS NOT MATERIALIZED (…)` say how a query is to be planned, which
/// changes no answer.
fn without_hints(tokens: &mut [TokenWithSpan], seen: &[usize]) {
    for at in 1..seen.len() {
        let word =
            |at: usize| seen.get(at).map_or(Keyword::NoKeyword, |&i| keyword(&tokens[i].token));
        let is_query = seen.get(at + 1).is_some_and(|&i| tokens[i].token == Token::LParen);
        if word(at) != Keyword::MATERIALIZED || !is_query {
            continue;
        }
        let negated = word(at - 1) == Keyword::NOT;
        let first = if negated { at - 1 } else { at };
        if first == 0 || word(first - 1) != Keyword::AS {
            continue;
        }
        for &i in &seen[first..=at] {
            tokens[i].token = Token::Whitespace(Whitespace::Space);
        }
    }
}

/// Where a word stands.
struct Place<'a> {
    /// The word that the statement begins with.
    first: Keyword,
    /// Parentheses around it.
    depth: i32,
    previous: &'a Token,
    next: &'a Token,
}

/// Of a word without quotes.
fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn is_name(word: Keyword, place: &Place<'_>) -> bool {
    let Place { first, depth, previous, next } = *place;
    let (before, after) = (keyword(previous), keyword(next));
    let begins = matches!(previous, Token::LParen | Token::Comma);
    match word {
        // A column of CREATE TABLE; MySQL's indexes are not made there.
        Keyword::INDEX | Keyword::KEY => {
            first == Keyword::CREATE && depth == 1 && begins && *next != Token::LParen
        }
        // Casts and columns of that type have another word before it; in what is defined or prepared, types
        // stand in parentheses.
        Keyword::INTERVAL => {
            let has_types = matches!(first, Keyword::CREATE | Keyword::ALTER | Keyword::PREPARE);
            is_operand(previous) && ends_operand(next) && !(has_types && begins)
        }
        Keyword::EXISTS | Keyword::TRIM => ends_operand(next) && before != Keyword::IF,
        Keyword::CUBE | Keyword::ROLLUP => *next != Token::LParen && before != Keyword::WITH,
        // A foreign key has `MATCH FULL`.
        Keyword::MATCH | Keyword::OPERATOR => {
            *next != Token::LParen && !matches!(first, Keyword::CREATE | Keyword::ALTER)
        }
        // `FROM t PARTITION (p)` is MySQL's.
        Keyword::PARTITION => {
            let is_defined = matches!(first, Keyword::CREATE | Keyword::ALTER | Keyword::INSERT);
            *next != Token::LParen && after != Keyword::BY && !is_defined
        }
        // `INSERT INTO TABLE t`, `INSERT LOCAL DIRECTORY` and `UPDATE OR REPLACE t` are other systems'.
        Keyword::LOCAL => before == Keyword::INTO && after != Keyword::DIRECTORY,
        Keyword::REPLACE => before == Keyword::UPDATE && after == Keyword::SET,
        // `SELECT TOP 3 a` is T-SQL's.
        Keyword::TOP => !matches!(next, Token::Number(..) | Token::LParen),
        // Kinds of joins, and aliases where none follows.
        Keyword::SEMI | Keyword::ANTI | Keyword::ASOF => {
            let joins =
                [Keyword::JOIN, Keyword::INNER, Keyword::LEFT, Keyword::RIGHT, Keyword::FULL];
            is_named(next) && !joins.contains(&after)
        }
        // `FROM t SAMPLE 0.1` and `SELECT 1 FORMAT JSON` are ClickHouse's.
        Keyword::SAMPLE => {
            let methods = [Keyword::BERNOULLI, Keyword::SYSTEM, Keyword::ROW, Keyword::BLOCK];
            !matches!(next, Token::Number(..) | Token::LParen) && !methods.contains(&after)
        }
        Keyword::FORMAT => is_named(next),
        Keyword::RECURSIVE => before == Keyword::WITH && after == Keyword::AS,
        _ => false,
    }
}

/// Whether what stands before the token may be a table's alias.
fn is_named(next: &Token) -> bool {
    ends_operand(next)
        || *next == Token::Period
        || matches!(
            keyword(next),
            Keyword::JOIN
                | Keyword::INNER
                | Keyword::LEFT
                | Keyword::RIGHT
                | Keyword::FULL
                | Keyword::CROSS
                | Keyword::NATURAL
                | Keyword::ON
                | Keyword::USING
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
        )
}

/// Whether an operand follows the token.
fn is_operand(previous: &Token) -> bool {
    match previous {
        Token::LParen | Token::Minus => true,
        token if is_between_operands(token) => true,
        token => matches!(
            keyword(token),
            Keyword::SELECT
                | Keyword::DISTINCT
                | Keyword::WHERE
                | Keyword::BY
                | Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::ON
                | Keyword::SET
                | Keyword::HAVING
                | Keyword::RETURNING
                | Keyword::CASE
                | Keyword::WHEN
                | Keyword::THEN
                | Keyword::ELSE
                | Keyword::COLUMN
        ),
    }
}

/// Whether the token stands between two operands. A minus may belong to the second.
fn is_between_operands(token: &Token) -> bool {
    matches!(
        token,
        Token::Comma
            | Token::Period
            | Token::Eq
            | Token::Neq
            | Token::Lt
            | Token::LtEq
            | Token::Gt
            | Token::GtEq
            | Token::Plus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
    )
}

/// Whether the token follows an operand, so that nothing more belongs to this.
fn ends_operand(next: &Token) -> bool {
    match next {
        Token::EOF | Token::SemiColon | Token::RParen | Token::DoubleColon => true,
        token if is_between_operands(token) => true,
        token => matches!(
            keyword(token),
            Keyword::FROM
                | Keyword::AS
                | Keyword::IS
                | Keyword::IN
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::BETWEEN
                | Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::ASC
                | Keyword::DESC
                | Keyword::WHEN
                | Keyword::THEN
                | Keyword::ELSE
                | Keyword::END
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::ORDER
                | Keyword::HAVING
                | Keyword::LIMIT
                | Keyword::OFFSET
                | Keyword::TO
        ),
    }
}
