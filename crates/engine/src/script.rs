//! Cuts a script into statements, so that each runs before the next is looked at, and finds the
//! parameters in one.

use std::ops::Range;

/// The statements of `sql` in order, trimmed, without the semicolons that end them. Semicolons
/// in strings, quoted names, dollar quotes and comments (nested as in PostgreSQL) end nothing.
pub fn split(sql: &str) -> Vec<String> {
    let bytes = sql.as_bytes();
    let mut statements = vec![];
    let (mut start, mut i) = (0, 0);
    // Whether anything but blanks and comments was seen since `start`.
    let mut content = false;
    while i < bytes.len() {
        if let Some((end, comment)) = opaque(bytes, i) {
            content |= !comment;
            i = end;
            continue;
        }
        let b = bytes[i];
        i += 1;
        if b != b';' {
            content |= !b.is_ascii_whitespace();
            continue;
        }
        if content {
            statements.push(sql[start..i - 1].trim().to_string());
        }
        (start, content) = (i, false);
    }
    if content {
        statements.push(sql[start..].trim().to_string());
    }
    statements
}

/// A parameter of a statement, such as `$1`.
#[derive(Debug, PartialEq)]
pub struct Placeholder {
    pub place: Range<usize>,
    pub number: usize,
    /// It begins an item of ORDER BY, GROUP BY or DISTINCT ON, where a number that stands alone is the
    /// position of a column.
    pub begins_key: bool,
    /// It stands behind FETCH FIRST, which takes no expression.
    pub is_fetched: bool,
}

/// The parameters of a statement in order.
pub fn placeholders(sql: &str) -> Vec<Placeholder> {
    let bytes = sql.as_bytes();
    let mut found = vec![];
    let mut keys = Keys::default();
    let mut i = 0;
    while i < bytes.len() {
        if let Some((end, is_comment)) = opaque(bytes, i) {
            if !is_comment {
                keys.value();
            }
            i = end;
            continue;
        }
        let digits = bytes[i + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if bytes[i] == b'$' && digits > 0 {
            let end = i + 1 + digits;
            if let Ok(number) = sql[i + 1..end].parse() {
                let Keys { begins_key, is_fetched, .. } = keys;
                found.push(Placeholder { place: i..end, number, begins_key, is_fetched });
            }
            keys.value();
            i = end;
            continue;
        }
        // `a$1` is a name.
        let in_name = |b: &&u8| is_of_word(**b) || **b == b'$';
        let length = match is_of_word(bytes[i]) {
            true => bytes[i..].iter().take_while(in_name).count(),
            false => 0,
        };
        match length {
            0 => keys.sign(bytes[i]),
            _ => keys.word(&sql[i..i + length]),
        }
        i += length.max(1);
    }
    found
}

/// Follows a statement from the left, to know where items of ORDER BY, GROUP BY and DISTINCT ON begin.
#[derive(Default)]
struct Keys {
    begins_key: bool,
    is_fetched: bool,
    /// Whether what stands between commas is such an item: here, and around each of the parentheses that
    /// are open.
    listed: bool,
    around: Vec<bool>,
    /// The word that was read last opens a list of keys with the parenthesis that follows it.
    opens_list: bool,
    after_distinct: bool,
}

impl Keys {
    fn word(&mut self, word: &str) {
        let is = |words: &[&str]| words.iter().any(|w| word.eq_ignore_ascii_case(w));
        if is(&["by"]) {
            self.listed = true;
        } else if is(&["select", "values", "having", "limit"]) {
            self.listed = false;
        }
        self.begins_key = is(&["by"]);
        self.is_fetched = is(&["first", "next"]);
        let is_set = self.listed && is(&["sets", "rollup", "cube"]);
        self.opens_list = is_set || (self.after_distinct && is(&["on"]));
        self.after_distinct = is(&["distinct"]);
    }

    fn sign(&mut self, sign: u8) {
        match sign {
            b'(' => {
                self.around.push(self.listed);
                self.listed = self.opens_list || self.begins_key;
                self.begins_key = self.listed;
            }
            b')' => {
                self.listed = self.around.pop().unwrap_or_default();
                self.begins_key = false;
            }
            b',' => self.begins_key = self.listed,
            blank if blank.is_ascii_whitespace() => return,
            _ => self.begins_key = false,
        }
        (self.opens_list, self.after_distinct, self.is_fetched) = (false, false, false);
    }

    /// What is in quotes, or a parameter.
    fn value(&mut self) {
        (self.begins_key, self.is_fetched) = (false, false);
    }
}

/// Where the first parentheses after the word `VALUES` stand, which are in no others themselves: the bytes
/// from the opening to the closing one, both included. `None`: there are none.
pub(crate) fn first_row(sql: &str) -> Option<Range<usize>> {
    let bytes = sql.as_bytes();
    let (mut depth, mut i) = (0, 0);
    let mut after_values = false;
    let mut open = None;
    while i < bytes.len() {
        if let Some((end, _)) = opaque(bytes, i) {
            i = end;
            continue;
        }
        let length = bytes[i..].iter().take_while(|b| is_of_word(**b)).count();
        if length > 0 {
            after_values |= depth == 0 && sql[i..i + length].eq_ignore_ascii_case("values");
            i += length;
            continue;
        }
        match bytes[i] {
            b'(' => {
                if depth == 0 && after_values {
                    open = Some(i);
                }
                depth += 1;
            }
            b')' => {
                depth -= 1;
                if let (0, Some(open)) = (depth, open) {
                    return Some(open..i + 1);
                }
            }
            _ => {}
        }
        i += 1;
    }
    None
}

/// A statement without the blanks and comments that it begins with.
pub fn trim_start(sql: &str) -> &str {
    let bytes = sql.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match opaque(bytes, i) {
            Some((end, true)) => i = end,
            None if bytes[i].is_ascii_whitespace() => i += 1,
            _ => break,
        }
    }
    &sql[i..]
}

/// The words of a statement in order: neither comments nor what is in quotes.
pub fn words(sql: &str) -> impl Iterator<Item = &str> {
    let bytes = sql.as_bytes();
    let mut i = 0;
    std::iter::from_fn(move || {
        while i < bytes.len() {
            if let Some((end, _)) = opaque(bytes, i) {
                i = end;
                continue;
            }
            let length = bytes[i..].iter().take_while(|b| is_of_word(**b)).count();
            let begun = i;
            i += length.max(1);
            if length > 0 {
                return Some(&sql[begun..i]);
            }
        }
        None
    })
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | 128..)
}

/// What begins at `i` and hides what is in it: where it ends, and whether it is a comment.
pub fn opaque(bytes: &[u8], i: usize) -> Option<(usize, bool)> {
    let rest = &bytes[i..];
    match bytes[i] {
        b'\'' if is_escaped(bytes, i) => Some((end_of_escaped(bytes, i), false)),
        b'\'' | b'"' | b'`' => Some((end_of_quoted(bytes, i), false)),
        b'-' if rest.starts_with(b"--") => {
            Some((i + memchr(rest, b'\n').unwrap_or(rest.len()), true))
        }
        b'/' if rest.starts_with(b"/*") => Some((end_of_comment(bytes, i), true)),
        b'$' => end_of_dollar_quoted(bytes, i).map(|end| (end, false)),
        _ => None,
    }
}

fn memchr(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().position(|b| *b == wanted)
}

/// Past the closing quote; a doubled quote goes on. Unclosed: the end, and the parser complains.
fn end_of_quoted(bytes: &[u8], open: usize) -> usize {
    let quote = bytes[open];
    let mut i = open + 1;
    while let Some(at) = memchr(&bytes[i..], quote) {
        i += at + 1;
        if bytes.get(i) != Some(&quote) {
            return i;
        }
        i += 1;
    }
    bytes.len()
}

/// Whether the quote opens a string that an `E` stands before, in which a backslash escapes what follows.
fn is_escaped(bytes: &[u8], open: usize) -> bool {
    match &bytes[..open] {
        [.., before, b'e' | b'E'] => !is_of_word(*before) && *before != b'$',
        [b'e' | b'E'] => true,
        _ => false,
    }
}

/// The same as `end_of_quoted` of such a string.
fn end_of_escaped(bytes: &[u8], open: usize) -> usize {
    let mut i = open + 1;
    while let Some(byte) = bytes.get(i) {
        match byte {
            b'\\' => i += 2,
            b'\'' if bytes.get(i + 1) == Some(&b'\'') => i += 2,
            b'\'' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

fn end_of_comment(bytes: &[u8], open: usize) -> usize {
    let (mut depth, mut i) = (1, open + 2);
    while i < bytes.len() && depth > 0 {
        if bytes[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if bytes[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
        } else {
            i += 1;
        }
    }
    i
}

/// `$tag$ … $tag$`; `None` for a `$` that opens no tag, as in `$1`.
fn end_of_dollar_quoted(bytes: &[u8], open: usize) -> Option<usize> {
    let name = bytes[open + 1..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_');
    let close = open + 1 + name.count();
    let digit = bytes.get(open + 1).is_some_and(u8::is_ascii_digit);
    if digit || bytes.get(close) != Some(&b'$') {
        return None;
    }
    let tag = &bytes[open..=close];
    let body = close + 1;
    Some(match bytes[body..].windows(tag.len()).position(|w| w == tag) {
        Some(at) => body + at + tag.len(),
        None => bytes.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::{placeholders, split, trim_start, words};

    #[test]
    fn statements_end_at_semicolons_that_count() {
        let check = |sql: &str, expected: &[&str]| assert_eq!(split(sql), expected, "{sql}");
        check("", &[]);
        check(" ;; -- only a comment\n ; /* and /* this */ ; */ ", &[]);
        check("select 1", &["select 1"]);
        check("select 1; select 2;", &["select 1", "select 2"]);
        check("select ';', 'it''s;', \"a;\"\"b\"; x", &["select ';', 'it''s;', \"a;\"\"b\"", "x"]);
        check("select 1 -- one; two\n, 2; y", &["select 1 -- one; two\n, 2", "y"]);
        check("a /* ; /* ; */ ; */ b; c", &["a /* ; /* ; */ ; */ b", "c"]);
        check("f($1); $q$ ; $q$; $$;$$", &["f($1)", "$q$ ; $q$", "$$;$$"]);
        check("select 'unclosed; x", &["select 'unclosed; x"]);
        check(r"select E'a\'; b', e'\\'; 'c\'; d", &[r"select E'a\'; b', e'\\'", r"'c\'", "d"]);
        check(
            r"E'a''; \';'; name'\'; E'unclosed; \",
            &[r"E'a''; \';'", r"name'\'", r"E'unclosed; \"],
        );
        check("größe;ü", &["größe", "ü"]);
    }

    #[test]
    fn placeholders_count_where_they_are_code() {
        let check = |sql: &str, expected: &[(&str, usize)]| {
            let found: Vec<_> =
                placeholders(sql).into_iter().map(|p| (&sql[p.place], p.number)).collect();
            assert_eq!(found, expected, "{sql}");
        };
        check("SELECT $1, $23 + $1", &[("$1", 1), ("$23", 23), ("$1", 1)]);
        check("SELECT '$1', \"$2\", $q$ $3 $q$ -- $4\n, /* $5 */ $6", &[("$6", 6)]);
        check("SELECT a$1, ü$2, (a)$3", &[("$3", 3)]);
        check("SELECT $, $$ $1 $$, $99999999999999999999999", &[]);
        check("$1", &[("$1", 1)]);
        check(r"SELECT E'it\'s $1', $2, E'\\', $3", &[("$2", 2), ("$3", 3)]);
    }

    #[test]
    fn keys_begin_in_lists_of_them() {
        let check = |sql: &str, expected: &[usize]| {
            let keys = placeholders(sql).into_iter().filter(|p| p.begins_key);
            assert_eq!(keys.map(|p| p.number).collect::<Vec<_>>(), expected, "{sql}");
        };
        check("SELECT $1, f($2, a) FROM t WHERE a IN ($3, $4) LIMIT $5 OFFSET $6", &[]);
        check(
            "SELECT $1 FROM t GROUP BY $2, /* x */ $3 HAVING a > $4 ORDER BY $5 DESC, $6",
            &[2, 3, 5, 6],
        );
        check("SELECT DISTINCT ON ($1, a, $2) $3, $4", &[1, 2]);
        check(
            "SELECT a GROUP BY a, ROLLUP ($1, ($2, $3)), GROUPING SETS (($4), ()), f($5)",
            &[1, 2, 3, 4],
        );
        check("SELECT a ORDER BY a + $1, f(a, $2), $3 + a LIMIT $4", &[3]);
        check("(SELECT a ORDER BY a), $1, by$2, 'x' $3 UNION SELECT $4, $5", &[]);
        check("SELECT a GROUP BY a UNION SELECT $1, $2 FETCH FIRST $3 ROWS ONLY", &[]);
    }

    #[test]
    fn words_are_what_is_neither_quoted_nor_a_comment() {
        let check = |sql: &str, expected: &[&str]| {
            assert_eq!(words(sql).collect::<Vec<_>>(), expected, "{sql}");
        };
        check(
            " -- x\n/* a /* b */ */\t(copy(SELECT 1) TO STDOUT",
            &["copy", "SELECT", "1", "TO", "STDOUT"],
        );
        check("SET thalweg.policy = 'fair'", &["SET", "thalweg", "policy"]);
        check("'a' \"b\" $$ c $$ größe_1, d", &["größe_1", "d"]);
        check(r"SELECT E'it\'s', x", &["SELECT", "E", "x"]);
        check("/* unclosed", &[]);
        check("", &[]);
    }

    #[test]
    fn statements_begin_after_comments() {
        assert_eq!(trim_start(" -- x\n/* y */\tFETCH -- z"), "FETCH -- z");
        assert_eq!(trim_start("'a'"), "'a'");
        assert_eq!(trim_start("-- x"), "");
    }
}
