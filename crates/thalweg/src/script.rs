//! Where a statement ends, as far as the shell's prompt and `-f` need to know.
//!
//! The engine splits scripts by its own grammar; this looks only at quotes, comments and `;`, to
//! decide whether Enter runs what was typed or asks for another line.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Blanks and comments only.
    Empty,
    /// The last thing outside comments is a `;`.
    Complete,
    /// More must follow: an open quote or comment, or no `;` yet.
    Partial,
}

pub fn state(text: &str) -> State {
    let bytes = text.as_bytes();
    let mut state = State::Empty;
    let mut i = 0;
    while i < bytes.len() {
        let next = bytes.get(i + 1).copied();
        match bytes[i] {
            quote @ (b'\'' | b'"' | b'`') => {
                // A doubled quote closes and opens again, which comes to the same.
                match bytes[i + 1..].iter().position(|b| *b == quote) {
                    Some(length) => i += length + 2,
                    None => return State::Partial,
                }
                state = State::Partial;
            }
            b'-' if next == Some(b'-') => match bytes[i..].iter().position(|b| *b == b'\n') {
                Some(length) => i += length + 1,
                None => return state,
            },
            b'/' if next == Some(b'*') => match comment_end(bytes, i) {
                Some(end) => i = end,
                None => return State::Partial,
            },
            b'$' => match dollar_quote_end(bytes, i) {
                Some(end) => (i, state) = (end, State::Partial),
                None => return State::Partial,
            },
            b';' => {
                // A stray `;` is no statement.
                if state == State::Partial {
                    state = State::Complete;
                }
                i += 1;
            }
            b if b.is_ascii_whitespace() => i += 1,
            _ => {
                state = State::Partial;
                i += 1;
            }
        }
    }
    state
}

/// Block comments nest in SQL.
fn comment_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0;
    let mut i = start;
    while i + 1 < bytes.len() {
        match &bytes[i..i + 2] {
            b"/*" => (depth, i) = (depth + 1, i + 2),
            b"*/" if depth == 1 => return Some(i + 2),
            b"*/" => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    None
}

/// Past `$tag$ … $tag$`; a `$` that opens no tag, as in `$1`, is one byte.
fn dollar_quote_end(bytes: &[u8], start: usize) -> Option<usize> {
    let word = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
    let close = start + 1 + bytes[start + 1..].iter().take_while(word).count();
    let digit = bytes.get(start + 1).is_some_and(u8::is_ascii_digit);
    if digit || bytes.get(close) != Some(&b'$') {
        return Some(start + 1);
    }
    let (tag, body) = (&bytes[start..=close], close + 1);
    let at = bytes[body..].windows(tag.len()).position(|w| w == tag)?;
    Some(body + at + tag.len())
}

/// The first word of a statement in lower case, past blanks, comments and opening parentheses.
pub fn first_word(sql: &str) -> String {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
        if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if rest.starts_with("/*") {
            rest = comment_end(rest.as_bytes(), 0).map_or("", |end| &rest[end..]);
        } else {
            let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
            return rest[..end].to_lowercase();
        }
    }
}

/// The line (from 1) each statement of a script begins on; 0 where it is not found verbatim.
pub fn lines(script: &str, statements: &[String]) -> Vec<usize> {
    let mut from = 0;
    statements
        .iter()
        .map(|statement| match script[from..].find(statement.trim()) {
            Some(at) => {
                let start = from + at;
                from = start + statement.trim().len();
                1 + script[..start].matches('\n').count()
            }
            None => 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_at_its_semicolon() {
        let check = |text, want| assert_eq!(state(text), want, "{text}");
        check("", State::Empty);
        check("  -- only words", State::Empty);
        check(" ; ", State::Empty);
        check("select 1", State::Partial);
        check("select 1;", State::Complete);
        check("select 1; -- done; really", State::Complete);
        check("select 1; select", State::Partial);
        check("select ';", State::Partial);
        check("select ';'", State::Partial);
        check("select 'it''s;';", State::Complete);
        check("select \"a;b\" /* ; /* nested */ ; */", State::Partial);
        check("/* open ;", State::Partial);
        check("select 'ü漢';", State::Complete);
        check("select $1;", State::Complete);
        check("select $q$ ; $$ ; $q$", State::Partial);
        check("select $q$ ;", State::Partial);
        check("select $$;$$;", State::Complete);
    }

    #[test]
    fn the_first_word_is_behind_comments() {
        assert_eq!(first_word("-- a\n /* b /* c */ */ (EXPLAIN select"), "explain");
        assert_eq!(first_word("  "), "");
        assert_eq!(first_word("-- only"), "");
    }

    #[test]
    fn statements_are_found_in_their_script() {
        let script = "select 1;\n\n-- two\nselect 1;\nselect 3";
        let statements = ["select 1", "select 1", "SELECT 3"].map(String::from);
        assert_eq!(lines(script, &statements), [1, 4, 0]);
    }
}
