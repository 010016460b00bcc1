//! Cuts a script into statements, so that each runs before the next is looked at.

/// The statements of `sql` in order, trimmed, without the semicolons that end them. Semicolons
/// in strings, quoted names, dollar quotes and comments (nested as in PostgreSQL) end nothing.
pub fn split(sql: &str) -> Vec<String> {
    let bytes = sql.as_bytes();
    let mut statements = vec![];
    let (mut start, mut i) = (0, 0);
    // Whether anything but blanks and comments was seen since `start`.
    let mut content = false;
    while i < bytes.len() {
        let rest = &sql.as_bytes()[i..];
        match bytes[i] {
            b'\'' | b'"' | b'`' => {
                content = true;
                i = end_of_quoted(bytes, i);
            }
            b'-' if rest.starts_with(b"--") => {
                i += memchr(rest, b'\n').unwrap_or(rest.len());
            }
            b'/' if rest.starts_with(b"/*") => i = end_of_comment(bytes, i),
            b'$' => {
                content = true;
                i = end_of_dollar_quoted(bytes, i);
            }
            b';' => {
                if content {
                    statements.push(sql[start..i].trim().to_string());
                }
                i += 1;
                (start, content) = (i, false);
            }
            b => {
                content |= !b.is_ascii_whitespace();
                i += 1;
            }
        }
    }
    if content {
        statements.push(sql[start..].trim().to_string());
    }
    statements
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

/// `$tag$ … $tag$`; a `$` that opens no tag (as in `$1`) is one byte.
fn end_of_dollar_quoted(bytes: &[u8], open: usize) -> usize {
    let name = bytes[open + 1..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_');
    let close = open + 1 + name.count();
    let digit = bytes.get(open + 1).is_some_and(u8::is_ascii_digit);
    if digit || bytes.get(close) != Some(&b'$') {
        return open + 1;
    }
    let tag = &bytes[open..=close];
    let body = close + 1;
    match bytes[body..].windows(tag.len()).position(|w| w == tag) {
        Some(at) => body + at + tag.len(),
        None => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

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
        check("größe;ü", &["größe", "ü"]);
    }
}
