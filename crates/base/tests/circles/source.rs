//! Rust's text as tokens: as much of the language as tells which paths a file names.

/// A word, `::`, or one character of anything else, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub fn is_word(&self) -> bool {
        self.text.starts_with(begins_word)
    }
}

/// The tokens of a text without its comments, its literals, and what is compiled for tests alone.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let passed_over = if rest.starts_with("//") {
            Some(rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            Some(comment_length(rest))
        } else {
            string_length(rest).or_else(|| character_length(rest))
        };
        let length = passed_over.unwrap_or_else(|| {
            if continues_word(first) {
                rest.find(|c| !continues_word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            }
        });
        let (token, after) = rest.split_at(length);
        if passed_over.is_none() && !first.is_whitespace() && !first.is_ascii_digit() {
            found.push(Token { text: token.to_owned(), line });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    without_tests(&found)
}

fn begins_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn comment_length(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of the string at the beginning, of any kind; none if there is no string.
fn string_length(rest: &str) -> Option<usize> {
    let prefix =
        rest.find(|c: char| !matches!(c, 'b' | 'c' | 'r')).filter(|length| *length <= 2)?;
    let hashes = rest[prefix..].bytes().take_while(|b| *b == b'#').count();
    let inside = prefix + hashes + 1;
    if !rest[prefix + hashes..].starts_with('"') {
        return None;
    }
    if rest[..prefix].ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(rest[inside..].find(&end).map_or(rest.len(), |at| inside + at + end.len()));
    }
    let mut escaped = false;
    let end = rest[inside..].find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    (hashes == 0).then(|| end.map_or(rest.len(), |at| inside + at + 1))
}

/// The length of the character or of the lifetime at the beginning; none if there is neither.
fn character_length(rest: &str) -> Option<usize> {
    let from = if rest.starts_with("b'") { 1 } else { 0 };
    let inside = rest[from..].strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        return inside[2..].find('\'').map(|at| from + 1 + 2 + at + 1);
    }
    let after = &inside[first.len_utf8()..];
    let name = || inside.find(|c| !continues_word(c)).unwrap_or(inside.len());
    Some(from + 1 + if after.starts_with('\'') { first.len_utf8() + 1 } else { name() })
}

/// The tokens without each item, field or arm below `#[cfg(test)]` or `#[test]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Some(end) = attribute_end(tokens, at) else {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        };
        let words: Vec<&str> = tokens[at + 2..end - 1].iter().map(|t| t.text.as_str()).collect();
        if words != ["test"] && words != ["cfg", "(", "test", ")"] {
            kept.extend_from_slice(&tokens[at..end]);
            at = end;
            continue;
        }
        at = end;
        while let Some(end) = attribute_end(tokens, at) {
            at = end;
        }
        at = item_end(tokens, at);
    }
    kept
}

/// Where the attribute that begins here ends; none if none begins.
fn attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    let begins = tokens.get(at)?.is("#") && tokens.get(at + 1)?.is("[");
    begins.then(|| group_end(tokens, at + 1))
}

/// Where the group of brackets that begins here ends.
pub fn group_end(tokens: &[Token], from: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn item_end(tokens: &[Token], from: usize) -> usize {
    const BLOCKS: [&str; 6] = ["fn", "mod", "impl", "struct", "enum", "trait"];
    const LINES: [&str; 5] = ["use", "const", "static", "type", "let"];
    let head = tokens[from..].iter().take_while(|t| !matches!(t.text.as_str(), "{" | ";" | ","));
    let words: Vec<&str> = head.map(|t| t.text.as_str()).collect();
    let is_block = words.iter().any(|word| BLOCKS.contains(word));
    let is_line = !is_block && words.iter().any(|word| LINES.contains(word));
    let mut at = from;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            ";" => return at + 1,
            "," if !is_block && !is_line => return at + 1,
            "{" if !is_line => return group_end(tokens, at),
            "(" | "[" | "{" => at = group_end(tokens, at),
            ")" | "]" | "}" => return at,
            _ => at += 1,
        }
    }
    at
}

#[test]
fn comments_literals_and_tests_are_passed_over() {
    let text = r##"
        // crate::a
        /* crate::b /* nested */ crate::c */
        use x::Y; const S: &str = "crate::d \" crate::e"; const C: char = '"';
        fn f<'a>(b: &'a u8) { g(r#"crate::f"#, b"crate::g", '\'', b'\\', 1_000) }
        #[cfg(test)] #[allow(dead_code)] use h::{i, j};
        #[cfg(test)] mod tests { use k::l; }
        struct T { #[cfg(test)] m: n::O, p: Q }
    "##;
    let found: Vec<String> = tokens(text).into_iter().map(|token| token.text).collect();
    let wanted = "use x :: Y ; const S : & str = ; const C : char = ; fn f < > ( b : & u8 ) { g ( , , , , ) } struct T { p : Q }";
    assert_eq!(found.join(" "), wanted);
}
