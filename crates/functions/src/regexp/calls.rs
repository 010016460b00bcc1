//! The functions and operators that take regular expressions.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Expr, Operator};
use thalweg_base::{Error, Result};

use super::parse::{Flags, basic};
use super::search::{Found, Regexp};
use super::{Known, kept};
use crate::rowwise::{Arg, Function, Gives, Value, function};

pub const FUNCTIONS: [Function; 10] = [
    // The operators: a text, an expression, and letters.
    Function {
        rewrite: Some(as_operator),
        ..function("regexp_is_match", "ttt", Gives::Truth, like)
    },
    Function {
        rewrite: Some(as_operator),
        ..function("regexp_like", "tt ttt", Gives::Truth, like)
    },
    function("regexp_replace", "ttt tttt tttn tttnn tttnnt", Gives::Text, replace),
    function("regexp_match", "tt ttt", Gives::Texts, first_match),
    function("regexp_matches", "tt ttt", Gives::Lists, matches),
    function("regexp_count", "tt ttn ttnt", Gives::Number, count),
    function("regexp_instr", "tt ttn ttnn ttnnn ttnnnt ttnnntn", Gives::Number, instr),
    function("regexp_substr", "tt ttn ttnn ttnnt ttnntn", Gives::Text, substr),
    function("regexp_split_to_array", "tt ttt", Gives::Texts, split),
    // `substring(text FROM expression)`
    function("regexp_part", "tt", Gives::Text, part),
];

fn wrong(message: String) -> Error {
    Error::user(message).code("22023")
}

/// The letters of a function's flags, and whether `g` is among them.
fn flags(letters: &str) -> Result<(Flags, bool)> {
    let mut flags = Flags::default();
    let mut all = false;
    for letter in letters.chars() {
        match letter {
            'g' => all = true,
            'b' => return Err(basic()),
            letter if flags.take(letter) => {}
            letter => {
                let error = wrong(format!("invalid regular expression option: \"{letter}\""));
                let hint = "g, i, c, n, m, p, w, s, x, t and q are known";
                return Err(match letter.is_ascii_digit() {
                    true => {
                        error.hint("a start is a number and no text: cast the argument to integer")
                    }
                    false => error.hint(hint),
                });
            }
        }
    }
    Ok((flags, all))
}

/// The flags of a function that does with one match or with all what it does.
fn flags_without_all(function: &str, arg: Option<&Arg<'_>>) -> Result<Flags> {
    let (flags, all) = flags(arg.map_or("", |arg| arg.text()))?;
    match all {
        false => Ok(flags),
        true => {
            let error = wrong(format!("{function}() does not support the \"global\" option"));
            Err(match function {
                "regexp_match" => error.hint("regexp_matches gives all"),
                _ => error.hint("leave the g out"),
            })
        }
    }
}

fn positive(name: &str, arg: Option<&Arg<'_>>) -> Result<usize> {
    match arg.map_or(1, |arg| arg.number()) {
        n @ 1.. => Ok(n as usize),
        n => Err(wrong(format!("invalid value for parameter \"{name}\": {n}"))),
    }
}

fn not_negative(name: &str, arg: Option<&Arg<'_>>) -> Result<usize> {
    match arg.map_or(0, |arg| arg.number()) {
        n @ 0.. => Ok(n as usize),
        n => Err(wrong(format!("invalid value for parameter \"{name}\": {n}"))),
    }
}

/// Where the characters from the `start`th on begin; `None`: behind the end.
fn place_of(text: &str, start: usize) -> Option<usize> {
    let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    places.nth(start - 1)
}

/// The place behind a match from which the next one is looked for.
fn after(text: &str, begin: usize, end: usize) -> Option<usize> {
    match begin == end {
        false => Some(end),
        true => text[end..].chars().next().map(|c| end + c.len_utf8()),
    }
}

/// The matches from a place on, one after the other.
fn each_match(
    regexp: &Regexp,
    text: &str,
    from: usize,
    groups: bool,
    mut take: impl FnMut(&Found) -> bool,
) -> Result<()> {
    let mut from = from;
    while let Some(found) = regexp.find(text, from, groups)? {
        let Some(Some((begin, end))) = found.first().copied() else { break };
        if !take(&found) {
            break;
        }
        match after(text, begin, end) {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(())
}

fn like(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let flags = flags_without_all("regexp_like", args.get(2))?;
    let regexp = known.get(args[1].text(), flags)?;
    Ok(Value::Truth(regexp.is_match(args[0].text())?))
}

/// A match of an expression that is written, in the words of the regex library: the optimizer makes
/// comparisons of the simple ones.
fn as_operator(args: &[Expr]) -> Result<Option<Expr>> {
    let text = |expr: &Expr| match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(String::from),
        _ => None,
    };
    let [left, pattern, letters @ ..] = args else { return Ok(None) };
    let letters = match letters {
        [] => Some(String::new()),
        [letters, ..] => text(letters),
    };
    let (Some(pattern), Some(letters)) = (text(pattern), letters) else { return Ok(None) };
    let flags = flags_without_all("regexp_like", Some(&Arg::Text(&letters)))?;
    let regexp = kept(&(pattern, flags))?;
    // The optimizer makes a LIKE of them, in which a backslash escapes what follows.
    let words = regexp.plain().filter(|words| !words.contains(r"\\") && !words.contains(r"\x"));
    Ok(words.map(|words| {
        let right = Expr::Literal(ScalarValue::Utf8View(Some(words.to_string())), None);
        let op = Operator::RegexMatch;
        Expr::BinaryExpr(BinaryExpr::new(Box::new(left.clone()), op, Box::new(right)))
    }))
}

/// A piece of what stands in the place of a match.
enum Piece {
    Text(String),
    Group(usize),
}

fn pieces(replacement: &str) -> Vec<Piece> {
    let mut all = vec![];
    let mut text = String::new();
    let mut rest = replacement.chars().peekable();
    while let Some(c) = rest.next() {
        let group = match (c, rest.peek().copied()) {
            ('\\', Some(digit @ '1'..='9')) => digit.to_digit(10).map(|digit| digit as usize),
            ('\\', Some('&')) => Some(0),
            ('\\', Some('\\')) => {
                rest.next();
                text.push('\\');
                continue;
            }
            _ => None,
        };
        match group {
            Some(group) => {
                rest.next();
                all.push(Piece::Text(std::mem::take(&mut text)));
                all.push(Piece::Group(group));
            }
            None => text.push(c),
        }
    }
    all.push(Piece::Text(text));
    all
}

fn replace(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let (text, pattern) = (args[0].text(), args[1].text());
    let (letters, start, nth) = match args.get(3) {
        Some(Arg::Number(_)) => (args.get(5), args.get(3), args.get(4)),
        letters => (letters, None, None),
    };
    let (flags, all) = flags(letters.map_or("", |letters| letters.text()))?;
    let start = positive("start", start)?;
    let nth = match nth {
        Some(_) => not_negative("n", nth)?,
        None => usize::from(!all),
    };
    let regexp = known.get(pattern, flags)?;
    let pieces = pieces(args[2].text());
    let needs_groups = pieces.iter().any(|piece| matches!(piece, Piece::Group(1..)));
    let Some(from) = place_of(text, start) else { return Ok(Value::Text(text.into())) };
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut count) = (0, 0);
    each_match(&regexp, text, from, needs_groups, |found| {
        count += 1;
        if nth > 0 && count != nth {
            return true;
        }
        let Some(Some((begin, end))) = found.first().copied() else { return false };
        out.push_str(&text[copied..begin]);
        for piece in &pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Group(group) => {
                    if let Some(Some((from, to))) = found.get(*group) {
                        out.push_str(&text[*from..*to]);
                    }
                }
            }
        }
        copied = end;
        nth == 0
    })?;
    out.push_str(&text[copied..]);
    Ok(Value::Text(out))
}

/// The groups of a match, or itself if there are none.
fn groups_of(regexp: &Regexp, text: &str, found: &Found) -> Vec<Option<String>> {
    let from = usize::from(regexp.groups > 0);
    let one = |place: &Option<(usize, usize)>| place.map(|(from, to)| text[from..to].to_string());
    found[from..].iter().map(one).collect()
}

fn first_match(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let flags = flags_without_all("regexp_match", args.get(2))?;
    let regexp = known.get(args[1].text(), flags)?;
    let text = args[0].text();
    let found = regexp.find(text, 0, true)?;
    Ok(found.map_or(Value::Null, |found| Value::Texts(groups_of(&regexp, text, &found))))
}

fn matches(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let (flags, all) = flags(args.get(2).map_or("", |arg| arg.text()))?;
    let regexp = known.get(args[1].text(), flags)?;
    let text = args[0].text();
    let mut lists = vec![];
    each_match(&regexp, text, 0, true, |found| {
        lists.push(groups_of(&regexp, text, found));
        all
    })?;
    Ok(Value::Lists(lists))
}

fn count(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let text = args[0].text();
    let start = positive("start", args.get(2))?;
    let flags = flags_without_all("regexp_count", args.get(3))?;
    let regexp = known.get(args[1].text(), flags)?;
    let mut count = 0;
    if let Some(from) = place_of(text, start) {
        each_match(&regexp, text, from, false, |_| {
            count += 1;
            true
        })?;
    }
    Ok(Value::Number(count))
}

/// A group of the `nth` match from the `start`th character on.
fn nth_match(
    regexp: &Regexp,
    text: &str,
    start: usize,
    nth: usize,
    group: usize,
) -> Result<Option<(usize, usize)>> {
    let Some(from) = place_of(text, start) else { return Ok(None) };
    let (mut count, mut place) = (0, None);
    each_match(regexp, text, from, group > 0, |found| {
        count += 1;
        if count == nth {
            place = found.get(group).copied().flatten();
        }
        count < nth
    })?;
    Ok(place)
}

fn instr(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let text = args[0].text();
    let (start, nth) = (positive("start", args.get(2))?, positive("n", args.get(3))?);
    let behind = not_negative("endoption", args.get(4))?;
    if behind > 1 {
        return Err(wrong(format!("invalid value for parameter \"endoption\": {behind}")));
    }
    let flags = flags_without_all("regexp_instr", args.get(5))?;
    let group = not_negative("subexpr", args.get(6))?;
    let regexp = known.get(args[1].text(), flags)?;
    let place = nth_match(&regexp, text, start, nth, group)?;
    Ok(Value::Number(place.map_or(0, |(begin, end)| {
        let at = if behind == 1 { end } else { begin };
        text[..at].chars().count() as i32 + 1
    })))
}

fn substr(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let text = args[0].text();
    let (start, nth) = (positive("start", args.get(2))?, positive("n", args.get(3))?);
    let flags = flags_without_all("regexp_substr", args.get(4))?;
    let group = not_negative("subexpr", args.get(5))?;
    let regexp = known.get(args[1].text(), flags)?;
    let place = nth_match(&regexp, text, start, nth, group)?;
    Ok(place.map_or(Value::Null, |(begin, end)| Value::Text(text[begin..end].into())))
}

fn split(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let flags = flags_without_all("regexp_split_to_array", args.get(2))?;
    let regexp = known.get(args[1].text(), flags)?;
    let text = args[0].text();
    let mut parts = vec![];
    let mut copied = 0;
    let mut last = 0;
    each_match(&regexp, text, 0, false, |found| {
        let Some(Some((begin, end))) = found.first().copied() else { return false };
        // Nothing at the ends and right behind another match parts nothing.
        if begin < text.len() && end > last {
            parts.push(Some(text[copied..begin].to_string()));
            copied = end;
        }
        last = end;
        true
    })?;
    parts.push(Some(text[copied..].to_string()));
    Ok(Value::Texts(parts))
}

fn part(args: &[Arg<'_>], known: &mut Known) -> Result<Value> {
    let regexp = known.get(args[1].text(), Flags::default())?;
    let text = args[0].text();
    let place = match regexp.find(text, 0, true)? {
        Some(found) => found[usize::from(regexp.groups > 0)],
        None => None,
    };
    Ok(place.map_or(Value::Null, |(from, to)| Value::Text(text[from..to].to_string())))
}
