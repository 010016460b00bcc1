//! Where in a statement's text an error is: from the name that it is about to the character.
//!
//! The planner says what is wrong, not where. The place is the first at which the statement names
//! the thing as what it is missed as: a column is no alias, and a function has a parenthesis.

use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use thalweg_base::text::nearest;
use thalweg_base::{Error, Place, Subject};

use crate::access::Privilege;
use crate::dialect::Thalweg;
use crate::dml::target::full_name;
use crate::session::Inner;

/// The error with the character of `sql` that it is at, if that can be told.
pub(crate) fn located(sql: &str, error: Error) -> Error {
    let position = match error.place() {
        None | Some(Place::At(_)) => return error,
        Some(Place::Line(line, column)) => offset(sql, u64::from(*line), u64::from(*column)),
        Some(Place::Of(subject)) => find(sql, subject, (0, 0)),
        Some(Place::From(line, column, subject)) => {
            let start = (u64::from(*line), u64::from(*column));
            find(sql, subject, start).or_else(|| offset(sql, start.0, start.1))
        }
    };
    match position {
        Some(position) => error.at(Place::At(position)),
        None => error.nowhere(),
    }
}

/// For a relation that is not there: the one that may have been meant, of those the role may read.
pub(crate) fn suggest(session: &Inner, error: Error) -> Error {
    let Some(Subject::Relation(name)) = error.subject() else { return error };
    if error.sqlstate() != "42P01" {
        return error;
    }
    let snapshot = session.catalog.snapshot();
    let viewer = session.catalog.viewer();
    let mut known = vec![];
    for (schema, relations) in &snapshot.schemas {
        let names = relations.tables.keys().chain(relations.views.keys());
        for relation in names.chain(relations.externals.keys()) {
            let kind = relations.relation(relation);
            let may =
                |kind| viewer.check_relation(Privilege::Select, schema, relation, kind).is_ok();
            if kind.is_some_and(may) {
                known.push(full_name(schema, relation));
            }
        }
    }
    let near = nearest(name, known.iter().map(String::as_str));
    // Of the same name in another schema, before one that is only like it.
    let same = known.iter().find(|full| full.rsplit('.').next() == Some(name.as_str()));
    match same.map(String::as_str).or(near).map(String::from) {
        Some(near) => error.hint(format!("did you mean {near}? SHOW TABLES lists the tables")),
        None => error,
    }
}

/// The character after the last: where a statement that breaks off is wrong.
pub(crate) fn end(sql: &str) -> u32 {
    u32::try_from(sql.trim_end().chars().count() + 1).unwrap_or(u32::MAX)
}

/// Lines and columns are counted from 1, and so is the result.
fn offset(sql: &str, line: u64, column: u64) -> Option<u32> {
    if line == 0 {
        return Some(end(sql));
    }
    let mut before = 0;
    for text in sql.split_inclusive('\n').take(line as usize - 1) {
        before += text.chars().count() as u64;
    }
    u32::try_from(before + column).ok()
}

/// The first place from this line and character on where the statement names the subject.
fn find(sql: &str, subject: &Subject, start: (u64, u64)) -> Option<u32> {
    let tokens = Tokenizer::new(&Thalweg, sql).tokenize_with_location().ok()?;
    let tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
    let before = |t: &TokenWithSpan| (t.span.start.line, t.span.start.column) < start;
    let first = tokens.partition_point(before);
    let Location { line, column } = Text(&tokens).find(subject, first)?;
    offset(sql, line, column)
}

/// A statement's tokens without blanks and comments.
struct Text<'a>(&'a [TokenWithSpan]);

impl Text<'_> {
    fn find(&self, subject: &Subject, first: usize) -> Option<Location> {
        let all = first..self.0.len();
        let found = match subject {
            Subject::Column(Some(table), name) => {
                let name = [table.as_str(), name.as_str()];
                all.clone()
                    .find(|i| self.is_name(*i, &name))
                    .or_else(|| {
                        let parts: Vec<&str> = table.split('.').chain([name[1]]).collect();
                        all.clone().find(|i| self.is_name(*i, &parts))
                    })
                    .or_else(|| all.clone().find(|i| self.is_column(*i, name[1])))
            }
            Subject::Qualifier(name) => {
                all.clone().find(|i| self.is_word(*i, name) && self.is(*i + 1, &Token::Period))
            }
            Subject::Column(None, name) => all.clone().find(|i| self.is_column(*i, name)),
            Subject::Relation(name) => {
                let parts: Vec<&str> = name.split('.').collect();
                let is = |i: &usize| self.is_name(*i, &parts) || self.is_name(*i, &[name]);
                let mut places = all.clone().filter(is);
                places.clone().find(|i| self.is_of_relation(*i)).or_else(|| places.next())
            }
            Subject::Function(name) => {
                all.clone().find(|i| self.is_word(*i, name) && self.is(*i + 1, &Token::LParen))
            }
            Subject::Operator(text) => {
                all.clone().find(|i| self.0[*i].token.to_string().eq_ignore_ascii_case(text))
            }
            Subject::Literal(text) => {
                let quoted = all.clone().find(|i| match &self.0[*i].token {
                    Token::SingleQuotedString(t) | Token::EscapedStringLiteral(t) => t == text,
                    _ => false,
                });
                // A number is most likely the position of a column, in a clause at the end.
                let is_number = |i: &usize| matches!(&self.0[*i].token, Token::Number(number, _) if number == text);
                quoted.or_else(|| all.clone().rev().find(is_number))
            }
            Subject::Word(text) => all.clone().find(|i| self.is_keyword(*i, text)),
            Subject::After(text) => {
                let found = all.clone().find(|i| self.is_keyword(*i, text)).map(|i| i + 1);
                found.filter(|i| *i < self.0.len())
            }
        };
        found.map(|i| self.0[i].span.start)
    }

    fn is(&self, i: usize, token: &Token) -> bool {
        self.0.get(i).is_some_and(|t| t.token == *token)
    }

    fn is_keyword(&self, i: usize, text: &str) -> bool {
        matches!(&self.0[i].token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
    }

    /// Whether the token is a word that means `name`.
    fn is_word(&self, i: usize, name: &str) -> bool {
        match self.0.get(i).map(|t| &t.token) {
            Some(Token::Word(word)) => match word.quote_style {
                Some(_) => word.value == name,
                None => word.value.to_lowercase() == name.to_lowercase(),
            },
            _ => false,
        }
    }

    /// Whether `a.b.c` begins there, as a name of its own.
    fn is_name(&self, i: usize, parts: &[&str]) -> bool {
        let after = i + 2 * parts.len() - 1;
        let words = parts.iter().enumerate().all(|(n, part)| self.is_word(i + 2 * n, part));
        let points = (1..parts.len()).all(|n| self.is(i + 2 * n - 1, &Token::Period));
        let inside = i > 0 && self.is(i - 1, &Token::Period);
        words && points && !inside && !self.is(after, &Token::LParen)
    }

    fn is_column(&self, i: usize, name: &str) -> bool {
        self.is_name(i, &[name]) && !self.is(i + 1, &Token::Period) && !self.is_alias(i)
    }

    /// Whether the name there is given by the statement: after AS, or after an expression.
    fn is_alias(&self, i: usize) -> bool {
        let Some(before) = i.checked_sub(1).map(|i| &self.0[i].token) else { return false };
        match before {
            Token::Word(word) => {
                word.quote_style.is_some()
                    || !BEFORE_COLUMNS.contains(&word.value.to_uppercase().as_str())
            }
            Token::RParen | Token::RBracket | Token::Number(..) | Token::SingleQuotedString(_) => {
                true
            }
            _ => false,
        }
    }

    fn is_of_relation(&self, i: usize) -> bool {
        match i.checked_sub(1).map(|i| &self.0[i].token) {
            Some(Token::Word(word)) => {
                BEFORE_RELATIONS.contains(&word.value.to_uppercase().as_str())
            }
            _ => false,
        }
    }
}

/// Words that an expression may follow.
const BEFORE_COLUMNS: [&str; 38] = [
    "SELECT",
    "DISTINCT",
    "ALL",
    "WHERE",
    "AND",
    "OR",
    "NOT",
    "BY",
    "HAVING",
    "QUALIFY",
    "ON",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "IN",
    "LIKE",
    "ILIKE",
    "TO",
    "SIMILAR",
    "BETWEEN",
    "FROM",
    "IS",
    "SET",
    "RETURNING",
    "VALUES",
    "OVER",
    "LIMIT",
    "OFFSET",
    "ANY",
    "SOME",
    "ESCAPE",
    "FOR",
    "USING",
    "ROW",
    "COLUMN",
    "DIV",
    "INTERVAL",
];

const BEFORE_RELATIONS: [&str; 9] =
    ["FROM", "JOIN", "INTO", "UPDATE", "TABLE", "VIEW", "USING", "ONLY", "EXISTS"];

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sql: &str, subject: Subject) -> Option<u32> {
        located(sql, Error::user("x").about(subject)).position()
    }

    #[test]
    fn names_are_found_where_they_are_used() {
        let column = |name: &str| Subject::Column(None, name.into());
        let of = |table: &str, name: &str| Subject::Column(Some(table.into()), name.into());
        let check = |sql: &str, subject: Subject, place: &str| {
            let (before, _) = place.split_once('^').expect("a caret");
            let expected = before.chars().count() as u32 + 1;
            assert_eq!(at(sql, subject), Some(expected), "{sql}");
        };
        check("SELECT a FROM t", column("a"), "       ^");
        check("SELECT a AS b FROM t WHERE b = 1", column("b"), "                           ^");
        check("SELECT a b FROM t WHERE b = 1", column("b"), "                        ^");
        check(
            "SELECT b(1), t.b, 'b', \"B\" FROM t ORDER BY B",
            column("b"),
            &" ".repeat(43).add("^"),
        );
        check("SELECT größe, x FROM t", column("x"), "              ^");
        check("SELECT t.x\n  FROM t", of("t", "x"), "       ^");
        check(
            "SELECT 1\n  FROM nosuch",
            Subject::Relation("nosuch".into()),
            &" ".repeat(16).add("^"),
        );
        check("SELECT t FROM s.t", Subject::Relation("s.t".into()), "              ^");
        check("SELECT f, f(1)", Subject::Function("f".into()), "          ^");
        check("SELECT 1 + 'x'", Subject::Operator("+".into()), "         ^");
        check("SELECT 1 + 'x'", Subject::Literal("x".into()), "           ^");
        assert_eq!(at("SELECT 1", column("a")), None);
    }

    #[test]
    fn names_are_found_from_a_place_on() {
        let at = |sql: &str, line, column, subject| {
            located(sql, Error::user("x").about(subject).within(line, column)).position()
        };
        let plus = || Subject::Operator("+".into());
        assert_eq!(at("SELECT 1 + 2,\n 'a' + b", 2, 5, plus()), Some(20));
        let f = || Subject::Function("f".into());
        assert_eq!(at("SELECT f(1), f('a')", 1, 14, f()), Some(14));
        assert_eq!(at("SELECT f(1), a", 1, 14, f()), Some(14), "the start, where it is not named");
    }

    #[test]
    fn lines_are_counted() {
        let at = |sql: &str, line, column| {
            located(sql, Error::user("x").at(Place::Line(line, column))).position()
        };
        assert_eq!(at("SELECT\n1 x y", 2, 5), Some(12));
        assert_eq!(at("SELECT ", 0, 0), Some(7));
        assert_eq!(at("ü x", 1, 3), Some(3));
    }

    use std::ops::Add;
}
