//! PostgreSQL's advanced regular expressions, read into a tree.
//!
//! What is one character, or a condition on a place, is kept as the regex library writes it.

use thalweg_base::text::{one_lower, one_upper};
use thalweg_base::{Error, Result};

/// How an expression is read and matched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Without regard to case.
    pub any_case: bool,
    /// `.` and `[^…]` match no end of a line.
    pub dot_stops: bool,
    /// `^` and `$` match at each line.
    pub lines: bool,
    /// Blanks and comments mean nothing.
    pub expanded: bool,
    /// It is the text itself.
    pub literal: bool,
}

impl Flags {
    /// Takes one letter; `false` if it is none that is known.
    pub fn take(&mut self, letter: char) -> bool {
        match letter {
            'i' => self.any_case = true,
            'c' => self.any_case = false,
            'n' | 'm' => (self.dot_stops, self.lines) = (true, true),
            'p' => (self.dot_stops, self.lines) = (true, false),
            'w' => (self.dot_stops, self.lines) = (false, true),
            's' => (self.dot_stops, self.lines) = (false, false),
            'x' => self.expanded = true,
            't' => self.expanded = false,
            'q' => self.literal = true,
            'e' => {}
            _ => return false,
        }
        true
    }
}

/// Which of the places where a part may end is tried first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefers {
    Longest,
    Shortest,
    /// What the repeated part prefers.
    Same,
}

#[derive(Debug, Clone)]
pub enum Part {
    /// One character, as the regex library writes it.
    One(String),
    /// A condition on a place, as the regex library writes it.
    At(&'static str),
    Look {
        ahead: bool,
        negated: bool,
        inner: Box<Part>,
    },
    /// What a group matched; repeated.
    Back {
        group: usize,
        min: u32,
        max: Option<u32>,
    },
    Group {
        number: Option<usize>,
        inner: Box<Part>,
    },
    All(Vec<Part>),
    Any(Vec<Part>),
    Repeat {
        inner: Box<Part>,
        min: u32,
        max: Option<u32>,
        prefers: Prefers,
    },
}

/// An expression that was read.
#[derive(Debug)]
pub struct Parsed {
    pub part: Part,
    pub groups: usize,
    pub flags: Flags,
}

/// Times that a part can be asked for.
const REPEATED_MAX: u32 = 255;

/// Characters of a range whose other cases are listed.
const RANGE_MAX: u32 = 2000;

/// Groups within groups: PostgreSQL and we have a stack.
const DEPTH_MAX: usize = 200;

pub fn wrong(pattern: &str, what: &str) -> Error {
    Error::user(format!("invalid regular expression: {what}"))
        .code("2201B")
        .detail(format!("the expression is {}", shortened(pattern)))
}

fn shortened(pattern: &str) -> String {
    match pattern.char_indices().nth(200) {
        Some((at, _)) => format!("{}…", &pattern[..at]),
        None => pattern.to_string(),
    }
}

/// # Errors
/// It is none, or one of the older sorts.
pub fn parse(pattern: &str, flags: Flags) -> Result<Parsed> {
    let mut parser = Parser {
        pattern,
        rest: pattern,
        flags,
        groups: 0,
        closed: vec![],
        depth: 0,
        in_look: false,
    };
    if let Some(rest) = parser.rest.strip_prefix("***") {
        match rest.chars().next() {
            Some('=') => parser.flags.literal = true,
            Some(':') => {}
            _ => return Err(parser.wrong("quantifier operand invalid")),
        }
        parser.rest = &rest[1..];
    }
    if !parser.flags.literal {
        parser.embedded()?;
    }
    if parser.flags.literal {
        let all = parser.rest.chars().map(|c| parser.one(c)).collect();
        return Ok(Parsed { part: Part::All(all), groups: 0, flags: parser.flags });
    }
    let part = parser.alternatives()?;
    if !parser.rest.is_empty() {
        return Err(parser.wrong("parentheses () not balanced"));
    }
    Ok(Parsed { part, groups: parser.groups, flags: parser.flags })
}

struct Parser<'p> {
    pattern: &'p str,
    rest: &'p str,
    flags: Flags,
    groups: usize,
    /// The groups that are complete.
    closed: Vec<usize>,
    depth: usize,
    in_look: bool,
}

impl Parser<'_> {
    fn wrong(&self, what: &str) -> Error {
        wrong(self.pattern, what)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// `(?i)` at the beginning.
    fn embedded(&mut self) -> Result<()> {
        let Some(options) = self.rest.strip_prefix("(?") else { return Ok(()) };
        if !options.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Ok(());
        }
        let (letters, rest) =
            options.split_once(')').ok_or_else(|| self.wrong("invalid embedded option"))?;
        for letter in letters.chars() {
            if letter == 'b' {
                return Err(basic());
            }
            if !self.flags.take(letter) {
                return Err(self.wrong("invalid embedded option"));
            }
        }
        self.rest = rest;
        Ok(())
    }

    /// Blanks and comments, where they mean nothing.
    fn skip(&mut self) -> Result<()> {
        loop {
            if self.rest.starts_with("(?#") {
                match self.rest.find(')') {
                    Some(end) => self.rest = &self.rest[end + 1..],
                    None => self.rest = "",
                }
            } else if self.flags.expanded && self.peek().is_some_and(is_space) {
                self.next();
            } else if self.flags.expanded && self.rest.starts_with('#') {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            } else {
                return Ok(());
            }
        }
    }

    fn alternatives(&mut self) -> Result<Part> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("regular expression is too complex"));
        }
        let mut branches = vec![self.branch()?];
        while self.eat("|") {
            branches.push(self.branch()?);
        }
        self.depth -= 1;
        Ok(match branches.len() {
            1 => branches.remove(0),
            _ => Part::Any(branches),
        })
    }

    fn branch(&mut self) -> Result<Part> {
        let mut parts = vec![];
        loop {
            self.skip()?;
            match self.peek() {
                None | Some('|') => break,
                Some(')') if self.depth > 1 => break,
                _ => {
                    let atom = self.atom()?;
                    parts.push(self.quantified(atom)?);
                }
            }
        }
        Ok(Part::All(parts))
    }

    fn quantified(&mut self, atom: Part) -> Result<Part> {
        self.skip()?;
        // What follows a condition on a place is refused as what follows nothing.
        if matches!(atom, Part::At(_) | Part::Look { .. }) {
            return Ok(atom);
        }
        let (min, max, is_exact) = match self.peek() {
            Some('*') => (0, None, false),
            Some('+') => (1, None, false),
            Some('?') => (0, Some(1), false),
            Some('{') if self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                self.next();
                let min = self.count()?;
                let (max, is_exact) = match self.eat(",") {
                    true if self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                        (Some(self.count()?), false)
                    }
                    true => (None, false),
                    false => (Some(min), true),
                };
                if !self.rest.starts_with('}') {
                    let is_open = !self.rest.contains('}');
                    return Err(self.wrong(match is_open {
                        true => "braces {} not balanced",
                        false => "invalid repetition count(s)",
                    }));
                }
                if max.is_some_and(|max| max < min) {
                    return Err(self.wrong("invalid repetition count(s)"));
                }
                (min, max, is_exact)
            }
            _ => return Ok(atom),
        };
        self.next();
        let prefers = match self.eat("?") {
            _ if is_exact => Prefers::Same,
            true => Prefers::Shortest,
            false => Prefers::Longest,
        };
        Ok(match atom {
            Part::Back { group, .. } => Part::Back { group, min, max },
            atom => Part::Repeat { inner: Box::new(atom), min, max, prefers },
        })
    }

    fn count(&mut self) -> Result<u32> {
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let n = self.rest[..digits].parse::<u32>().ok().filter(|n| *n <= REPEATED_MAX);
        let n = n.ok_or_else(|| self.wrong("invalid repetition count(s)"))?;
        self.rest = &self.rest[digits..];
        Ok(n)
    }

    fn atom(&mut self) -> Result<Part> {
        match self.next() {
            Some('(') => self.group(),
            Some(')') => Err(self.wrong("parentheses () not balanced")),
            Some('*' | '+' | '?') => Err(self.wrong("quantifier operand invalid")),
            Some('{') if self.rest.starts_with(|c: char| c.is_ascii_digit()) => {
                Err(self.wrong("quantifier operand invalid"))
            }
            Some('^') => Ok(Part::At(if self.flags.lines { "(?m:^)" } else { "^" })),
            Some('$') => Ok(Part::At(if self.flags.lines { "(?m:$)" } else { "$" })),
            Some('.') => {
                Ok(Part::One(if self.flags.dot_stops { "[^\\n]" } else { "(?s:.)" }.into()))
            }
            Some('[') => self.brackets(),
            Some('\\') => self.escape(),
            Some(c) => Ok(self.one(c)),
            None => Ok(Part::All(vec![])),
        }
    }

    fn group(&mut self) -> Result<Part> {
        let looks = [("?=", true, false), ("?!", true, true), ("?<=", false, false)];
        let looks = looks.into_iter().chain([("?<!", false, true)]);
        for (text, ahead, negated) in looks {
            if self.eat(text) {
                let outer = std::mem::replace(&mut self.in_look, true);
                let inner = Box::new(self.alternatives()?);
                self.in_look = outer;
                self.close()?;
                return Ok(Part::Look { ahead, negated, inner });
            }
        }
        let is_plain = self.eat("?:");
        if !is_plain && self.rest.starts_with('?') {
            return Err(self.wrong("quantifier operand invalid"));
        }
        let number = (!is_plain && !self.in_look).then(|| {
            self.groups += 1;
            self.groups
        });
        let inner = Box::new(self.alternatives()?);
        self.close()?;
        self.closed.extend(number);
        Ok(Part::Group { number, inner })
    }

    fn close(&mut self) -> Result<()> {
        match self.eat(")") {
            true => Ok(()),
            false => Err(self.wrong("parentheses () not balanced")),
        }
    }

    fn one(&self, c: char) -> Part {
        let cases = if self.flags.any_case { cases(c) } else { vec![c] };
        Part::One(match &cases[..] {
            [one] => literal(*one),
            several => format!("[{}]", several.iter().map(|c| literal(*c)).collect::<String>()),
        })
    }

    /// What follows a backslash outside of brackets.
    fn escape(&mut self) -> Result<Part> {
        let Some(c) = self.next() else {
            return Err(self.wrong("invalid escape \\ sequence"));
        };
        Ok(match c {
            'A' => Part::At("^"),
            'Z' => Part::At("$"),
            'm' => Part::At("\\b{start}"),
            'M' => Part::At("\\b{end}"),
            'y' => Part::At("\\b"),
            'Y' => Part::At("\\B"),
            'd' | 's' | 'w' => Part::One(format!("[{}]", shorthand(c))),
            'D' | 'S' | 'W' => Part::One(format!("[^{}]", shorthand(c.to_ascii_lowercase()))),
            '1'..='9' => {
                let more = self.rest.bytes().take_while(u8::is_ascii_digit).count();
                let number = format!("{c}{}", &self.rest[..more]).parse::<usize>();
                match number {
                    Ok(group) if more == 0 || group <= self.groups => {
                        self.rest = &self.rest[more..];
                        if self.in_look || !self.closed.contains(&group) {
                            return Err(self.wrong("invalid backreference number"));
                        }
                        Part::Back { group, min: 1, max: Some(1) }
                    }
                    _ => {
                        let c = self.octal(c)?;
                        self.one(c)
                    }
                }
            }
            c => {
                let c = self.character(c)?;
                self.one(c)
            }
        })
    }

    /// A character that is written by an escape, in brackets and outside of them.
    fn character(&mut self, c: char) -> Result<char> {
        Ok(match c {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'B' => '\\',
            'c' => match self.next() {
                Some(c) => char::from((c as u32 & 0x1f) as u8),
                None => return Err(self.wrong("invalid escape \\ sequence")),
            },
            'e' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'u' => self.hexadecimal(4, 4)?,
            'U' => self.hexadecimal(8, 8)?,
            'x' => self.hexadecimal(1, 255)?,
            '0' => self.octal(c)?,
            c if c.is_ascii_alphanumeric() => {
                return Err(self.wrong("invalid escape \\ sequence"));
            }
            c => c,
        })
    }

    fn hexadecimal(&mut self, min: usize, max: usize) -> Result<char> {
        let digits = self.rest.bytes().take_while(u8::is_ascii_hexdigit).take(max).count();
        let text = self.rest[..digits].trim_start_matches('0');
        let code = if text.is_empty() { Ok(0) } else { u32::from_str_radix(text, 16) };
        match code.ok().and_then(char::from_u32) {
            Some(c) if digits >= min => {
                self.rest = &self.rest[digits..];
                Ok(c)
            }
            _ => Err(self.wrong("invalid escape \\ sequence")),
        }
    }

    /// Up to three digits, of which `first` is read.
    fn octal(&mut self, first: char) -> Result<char> {
        let mut code = first.to_digit(8);
        let mut taken = 1;
        while let (Some(so_far), Some(digit)) = (code, self.peek().and_then(|c| c.to_digit(8)))
            && taken < 3
            && so_far * 8 + digit <= 0xff
        {
            code = Some(so_far * 8 + digit);
            taken += 1;
            self.next();
        }
        code.and_then(char::from_u32).ok_or_else(|| self.wrong("invalid escape \\ sequence"))
    }

    /// `[…]`, whose first bracket is read.
    fn brackets(&mut self) -> Result<Part> {
        for (text, at) in [("[:<:]]", "\\b{start}"), ("[:>:]]", "\\b{end}")] {
            if self.eat(text) {
                return Ok(Part::At(at));
            }
        }
        let negated = self.eat("^");
        let mut items = String::new();
        let mut is_wide = false;
        let mut is_first = true;
        loop {
            let c = self.next().ok_or_else(|| self.wrong("brackets [] not balanced"))?;
            if c == ']' && !is_first {
                break;
            }
            is_first = false;
            // A hyphen is itself as the first and as the last, and where a range begins with another.
            if c == '-' && !items.is_empty() && !self.rest.starts_with(']') {
                return Err(self.wrong("invalid character range"));
            }
            let low = match self.item(c)? {
                Item::Class(class) => {
                    items.push_str(&class);
                    continue;
                }
                Item::One(c) => c,
            };
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            if !is_range {
                let cases = if self.flags.any_case { cases(low) } else { vec![low] };
                items.extend(cases.into_iter().map(literal));
                continue;
            }
            self.next();
            let c = self.next().ok_or_else(|| self.wrong("brackets [] not balanced"))?;
            let high = match self.item(c)? {
                Item::One(high) => high,
                Item::Class(_) => return Err(self.wrong("invalid character range")),
            };
            if low > high {
                return Err(self.wrong("invalid character range"));
            }
            items.push_str(&format!("{}-{}", literal(low), literal(high)));
            match u32::from(high) - u32::from(low) {
                // As PostgreSQL: what the regex library folds are more, such as the long s.
                0..RANGE_MAX if self.flags.any_case => {
                    let others = (low..=high).flat_map(cases);
                    items.extend(others.filter(|c| !(low..=high).contains(c)).map(literal));
                }
                0..RANGE_MAX => {}
                _ => is_wide = true,
            }
        }
        if negated && self.flags.dot_stops {
            items.push_str("\\n");
        }
        let sign = if negated { "^" } else { "" };
        Ok(Part::One(match is_wide && self.flags.any_case {
            true => format!("(?i:[{sign}{items}])"),
            false => format!("[{sign}{items}]"),
        }))
    }

    /// An item of brackets that begins with `c`.
    fn item(&mut self, c: char) -> Result<Item> {
        match c {
            '\\' => {
                let c = self.next().ok_or_else(|| self.wrong("invalid escape \\ sequence"))?;
                Ok(match c {
                    'd' | 's' | 'w' => Item::Class(shorthand(c).to_string()),
                    'D' | 'S' | 'W' => {
                        Item::Class(format!("[^{}]", shorthand(c.to_ascii_lowercase())))
                    }
                    '1'..='9' => Item::One(self.octal(c)?),
                    'A' | 'Z' | 'm' | 'M' | 'y' | 'Y' => {
                        return Err(self.wrong("invalid escape \\ sequence"));
                    }
                    c => Item::One(self.character(c)?),
                })
            }
            '[' if self.rest.starts_with(':') => {
                let name = self.named(':')?;
                let any_case = self.flags.any_case && matches!(name.as_str(), "upper" | "lower");
                let name = if any_case { "alpha" } else { &name };
                match class(name) {
                    Some(class) => Ok(Item::Class(class.to_string())),
                    None => Err(self.wrong("invalid character class")),
                }
            }
            '[' if self.rest.starts_with('.') || self.rest.starts_with('=') => {
                let sign = if self.rest.starts_with('.') { '.' } else { '=' };
                let name = self.named(sign)?;
                let mut characters = name.chars();
                match (characters.next(), characters.next()) {
                    (Some(c), None) => Ok(Item::One(c)),
                    _ => Err(self.wrong("invalid collating element")),
                }
            }
            c => Ok(Item::One(c)),
        }
    }

    /// `:alpha:]`
    fn named(&mut self, sign: char) -> Result<String> {
        self.next();
        let end = format!("{sign}]");
        let Some((name, rest)) = self.rest.split_once(end.as_str()) else {
            return Err(self.wrong("brackets [] not balanced"));
        };
        let name = name.to_string();
        self.rest = rest;
        Ok(name)
    }
}

enum Item {
    One(char),
    Class(String),
}

pub fn basic() -> Error {
    Error::unsupported("basic regular expressions are not supported")
        .hint("write an advanced one, without the flag b")
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// A character in both cases, as far as these are one character each.
fn cases(c: char) -> Vec<char> {
    let mut all = vec![c];
    for other in [one_lower(c), one_upper(c)] {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// A character as the regex library writes it, in brackets and outside of them.
fn literal(c: char) -> String {
    match c {
        '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$'
        | '#' | '&' | '-' | '~' => format!("\\{c}"),
        c if c.is_control() || c.is_whitespace() && c != ' ' => {
            format!("\\x{{{:x}}}", u32::from(c))
        }
        c => c.to_string(),
    }
}

/// The letters of glibc: also the digits of other scripts.
const ALPHA: &str = "\\p{Alphabetic}[\\p{Nd}--0-9]";
const SPACE: &str = "\\x{9}-\\x{d} \\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200a}\\x{2028}\\x{2029}\\x{205f}\\x{3000}";

/// `\d`, `\s` and `\w` in brackets.
fn shorthand(letter: char) -> &'static str {
    match letter {
        'd' => "0-9",
        's' => SPACE,
        _ => "\\p{Alphabetic}\\p{Nd}_",
    }
}

/// A class of POSIX in brackets.
fn class(name: &str) -> Option<&'static str> {
    Some(match name {
        "alpha" => ALPHA,
        "alnum" => "\\p{Alphabetic}\\p{Nd}",
        "word" => "\\p{Alphabetic}\\p{Nd}_",
        "digit" => "0-9",
        "xdigit" => "0-9A-Fa-f",
        "ascii" => "\\x{0}-\\x{7f}",
        "upper" => "\\p{Uppercase}\\p{Lt}",
        // With the digraphs that have a capital first letter.
        "lower" => "\\p{Lowercase}\\x{1c5}\\x{1c8}\\x{1cb}\\x{1f2}",
        "space" => SPACE,
        "blank" => "\\x{9} ",
        "cntrl" => "\\p{Cc}",
        "print" => "[^\\p{Cc}\\p{Cn}\\x{2028}\\x{2029}]",
        "graph" => {
            "[^\\p{Cc}\\p{Cn}\\x{2028}\\x{2029} \\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200a}\\x{205f}\\x{3000}]"
        }
        "punct" => {
            "[^\\p{Alphabetic}\\p{Nd}\\p{Cc}\\p{Cn}\\x{2028}\\x{2029} \\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200a}\\x{205f}\\x{3000}]"
        }
        _ => return None,
    })
}
