//! Functions of texts and bytes, one row after the other.

use thalweg_base::{Error, Result};
use unicode_normalization::UnicodeNormalization;

use super::quoting;
use super::regexp::Known;
use super::rowwise::{Arg, Function, Gives, Value, function};
use crate::bytea;

pub const FUNCTIONS: [Function; 26] = [
    function("quote_ident", "t", Gives::Text, |args, _| {
        Ok(Value::Text(quoting::identifier(args[0].text())))
    }),
    function("quote_literal", "t", Gives::Text, |args, _| {
        Ok(Value::Text(quoting::literal(args[0].text())))
    }),
    Function {
        of_nulls: true,
        ..function("quote_nullable", "t", Gives::Text, |args, _| {
            Ok(Value::Text(match args[0] {
                Arg::Text(text) => quoting::literal(text),
                _ => "NULL".into(),
            }))
        })
    },
    function("chr", "n", Gives::Text, chr),
    function("unistr", "t", Gives::Text, unistr),
    function("normalize", "t tt", Gives::Text, |args, _| {
        Ok(Value::Text(normalized(args[0].text(), form(args)?)))
    }),
    function("is_normalized", "t tt", Gives::Truth, |args, _| {
        Ok(Value::Truth(normalized(args[0].text(), form(args)?) == args[0].text()))
    }),
    function("parse_ident", "t", Gives::Texts, parse_ident),
    function("convert_to", "tt", Gives::Bytes, convert_to),
    function("convert_from", "bt", Gives::Text, convert_from),
    function("encode", "bt tt", Gives::Text, encode),
    function("decode", "tt", Gives::Bytes, decode),
    function("get_byte", "bn", Gives::Number, |args, _| {
        let bytes = args[0].bytes();
        Ok(Value::Number(bytes[place(args[1].number(), bytes.len())?].into()))
    }),
    function("set_byte", "bnn", Gives::Bytes, |args, _| {
        let mut bytes = args[0].bytes().to_vec();
        let at = place(args[1].number(), bytes.len())?;
        bytes[at] = args[2].number() as u8;
        Ok(Value::Bytes(bytes))
    }),
    function("get_bit", "bn", Gives::Number, |args, _| {
        let bytes = args[0].bytes();
        let at = place(args[1].number(), bytes.len() * 8)?;
        Ok(Value::Number((bytes[at / 8] >> (at % 8) & 1).into()))
    }),
    function("set_bit", "bnn", Gives::Bytes, |args, _| {
        let mut bytes = args[0].bytes().to_vec();
        let at = place(args[1].number(), bytes.len() * 8)?;
        let bit = 1 << (at % 8);
        match args[2].number() {
            0 => bytes[at / 8] &= !bit,
            1 => bytes[at / 8] |= bit,
            _ => return Err(wrong("new bit must be 0 or 1")),
        }
        Ok(Value::Bytes(bytes))
    }),
    // Of bytes, what the functions of texts of these names do.
    function("bytes_length", "b", Gives::Number, |args, _| {
        Ok(Value::Number(args[0].bytes().len() as i32))
    }),
    function("bytes_bit_length", "b", Gives::Number, |args, _| {
        Ok(Value::Number(args[0].bytes().len() as i32 * 8))
    }),
    function("bytes_substr", "bn bnn", Gives::Bytes, |args, _| {
        let bytes = args[0].bytes();
        let (from, to) = part(bytes.len(), args[1].number(), args.get(2).map(|n| n.number()))?;
        Ok(Value::Bytes(bytes[from..to].to_vec()))
    }),
    function("bytes_strpos", "bb", Gives::Number, |args, _| {
        let (bytes, what) = (args[0].bytes(), args[1].bytes());
        let found = match what.is_empty() {
            true => Some(0),
            false => bytes.windows(what.len()).position(|window| window == what),
        };
        Ok(Value::Number(found.map_or(0, |at| at as i32 + 1)))
    }),
    function("bytes_overlay", "bbn bbnn", Gives::Bytes, |args, _| {
        let (bytes, new) = (args[0].bytes(), args[1].bytes());
        let from = args[2].number();
        if from <= 0 {
            return Err(negative_length());
        }
        let count = args.get(3).map_or(new.len() as i64, |n| n.number());
        let at = |n: i64| usize::try_from(n.max(0)).unwrap_or(usize::MAX).min(bytes.len());
        let (before, behind) = (at(from - 1), at((from - 1).saturating_add(count)));
        Ok(Value::Bytes([&bytes[..before], new, &bytes[behind..]].concat()))
    }),
    function("bytes_concat", "bb", Gives::Bytes, |args, _| {
        Ok(Value::Bytes([args[0].bytes(), args[1].bytes()].concat()))
    }),
    function("bytes_btrim", "bb", Gives::Bytes, |args, _| Ok(trimmed(args, true, true))),
    function("bytes_ltrim", "bb", Gives::Bytes, |args, _| Ok(trimmed(args, true, false))),
    function("bytes_rtrim", "bb", Gives::Bytes, |args, _| Ok(trimmed(args, false, true))),
    function("bytes_reverse", "b", Gives::Bytes, |args, _| {
        Ok(Value::Bytes(args[0].bytes().iter().rev().copied().collect()))
    }),
];

fn wrong(message: impl Into<String>) -> Error {
    Error::user(message).code("22023")
}

fn negative_length() -> Error {
    Error::user("negative substring length not allowed").code("22011")
}

/// A place from 0 on.
fn place(at: i64, length: usize) -> Result<usize> {
    match usize::try_from(at) {
        Ok(at) if at < length => Ok(at),
        _ => Err(Error::user(format!("index {at} out of valid range, 0..{}", length as i64 - 1))
            .code("2202E")),
    }
}

/// Where the part from a place on, counted from 1, begins and ends.
fn part(length: usize, from: i64, count: Option<i64>) -> Result<(usize, usize)> {
    let end = match count {
        Some(count) if count < 0 => return Err(negative_length()),
        Some(count) => from.saturating_add(count).max(1),
        None => i64::MAX,
    };
    let at = |n: i64| usize::try_from(n - 1).unwrap_or(usize::MAX).min(length);
    let begin = at(from.max(1));
    Ok((begin, at(end).max(begin)))
}

fn trimmed(args: &[Arg<'_>], left: bool, right: bool) -> Value {
    let (mut bytes, what) = (args[0].bytes(), args[1].bytes());
    while let Some((first, rest)) = bytes.split_first()
        && left
        && what.contains(first)
    {
        bytes = rest;
    }
    while let Some((last, rest)) = bytes.split_last()
        && right
        && what.contains(last)
    {
        bytes = rest;
    }
    Value::Bytes(bytes.to_vec())
}

fn chr(args: &[Arg<'_>], _: &mut Known) -> Result<Value> {
    let number = args[0].number();
    let wrong = |message: String| Err(Error::user(message).code("54000"));
    match number {
        0 => wrong("null character not permitted".into()),
        ..0 => Err(self::wrong("character number must be positive")),
        _ => match u32::try_from(number).ok().and_then(char::from_u32) {
            Some(c) => Ok(Value::Text(c.to_string())),
            None => wrong(format!("requested character not valid for encoding: {number}")),
        },
    }
}

/// `\0061`, `\u0061`, `\+000061` and `\U00000061` as the characters of these numbers.
fn unistr(args: &[Arg<'_>], _: &mut Known) -> Result<Value> {
    let text = args[0].text();
    let invalid = |what: &str| {
        Error::user(format!("invalid Unicode {what}"))
            .code("42601")
            .hint("Unicode escapes are \\XXXX, \\+XXXXXX, \\uXXXX and \\UXXXXXXXX")
    };
    let mut out = String::with_capacity(text.len());
    let mut first: Option<u32> = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if c != '\\' || after.starts_with('\\') {
            if first.is_some() {
                return Err(invalid("surrogate pair"));
            }
            out.push(c);
            rest = if c == '\\' { &after[1..] } else { after };
            continue;
        }
        let (skipped, count) = match after.chars().next() {
            Some('u') => (1, 4),
            Some('U') => (1, 8),
            Some('+') => (1, 6),
            _ => (0, 4),
        };
        let digits = after.get(skipped..skipped + count);
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| invalid("escape"))?;
        rest = &after[skipped + count..];
        let code = match (first.take(), code) {
            (None, 0xd800..=0xdbff) => {
                first = Some(code);
                continue;
            }
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00),
            (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(invalid("surrogate pair")),
            (None, code) => code,
        };
        match char::from_u32(code).filter(|c| *c != '\0') {
            Some(c) => out.push(c),
            None => return Err(invalid("escape value")),
        }
    }
    match first {
        None => Ok(Value::Text(out)),
        Some(_) => Err(invalid("surrogate pair")),
    }
}

#[derive(Clone, Copy)]
enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

fn form(args: &[Arg<'_>]) -> Result<Form> {
    match args.get(1).map_or("NFC", |form| form.text()).to_ascii_uppercase().as_str() {
        "NFC" => Ok(Form::Nfc),
        "NFD" => Ok(Form::Nfd),
        "NFKC" => Ok(Form::Nfkc),
        "NFKD" => Ok(Form::Nfkd),
        other => Err(wrong(format!("invalid normalization form: {other}"))
            .hint("there are NFC, NFD, NFKC and NFKD")),
    }
}

fn normalized(text: &str, form: Form) -> String {
    match form {
        _ if text.is_ascii() => text.to_string(),
        Form::Nfc => text.nfc().collect(),
        Form::Nfd => text.nfd().collect(),
        Form::Nfkc => text.nfkc().collect(),
        Form::Nfkd => text.nfkd().collect(),
    }
}

/// `a."B".c` as a list of names.
fn parse_ident(args: &[Arg<'_>], _: &mut Known) -> Result<Value> {
    let text = args[0].text();
    let invalid = |detail: &str| {
        Err(wrong(format!("string is not a valid identifier: \"{text}\"")).detail(detail))
    };
    let blanks = |text: &'_ str| text.len() - text.trim_start().len();
    let mut names = vec![];
    let mut rest = &text[blanks(text)..];
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut name = String::new();
            let mut now = quoted;
            loop {
                let Some((before, after)) = now.split_once('"') else {
                    return invalid("String has unclosed double quotes.");
                };
                name.push_str(before);
                now = after;
                match after.strip_prefix('"') {
                    Some(after) => {
                        name.push('"');
                        now = after;
                    }
                    None => break,
                }
            }
            if name.is_empty() {
                return invalid("Quoted identifier must not be empty.");
            }
            names.push(Some(name));
            rest = now;
        } else {
            let is_first = |c: char| c == '_' || c.is_ascii_alphabetic() || !c.is_ascii();
            let is_next = |c: char| is_first(c) || c.is_ascii_digit() || c == '$';
            if !rest.starts_with(is_first) {
                return match rest.starts_with('.') {
                    true => invalid("No valid identifier before \".\"."),
                    false if !names.is_empty() => invalid("No valid identifier after \".\"."),
                    false => invalid(""),
                };
            }
            let end = rest.find(|c: char| !is_next(c)).unwrap_or(rest.len());
            names.push(Some(rest[..end].to_ascii_lowercase()));
            rest = &rest[end..];
        }
        rest = &rest[blanks(rest)..];
        match rest.strip_prefix('.') {
            Some(after) => rest = &after[blanks(after)..],
            None if rest.is_empty() => return Ok(Value::Texts(names)),
            None => return invalid(""),
        }
    }
}

enum Encoding {
    Utf8,
    Latin1,
}

fn encoding(which: &str, name: &str) -> Result<Encoding> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    match plain.to_ascii_lowercase().as_str() {
        "utf8" | "unicode" => Ok(Encoding::Utf8),
        "latin1" | "iso88591" => Ok(Encoding::Latin1),
        _ => Err(wrong(format!("invalid {which} encoding name \"{name}\""))
            .hint("UTF8 and LATIN1 are known")),
    }
}

fn convert_to(args: &[Arg<'_>], _: &mut Known) -> Result<Value> {
    let text = args[0].text();
    Ok(Value::Bytes(match encoding("destination", args[1].text())? {
        Encoding::Utf8 => text.as_bytes().to_vec(),
        Encoding::Latin1 => {
            let one = |c: char| {
                u8::try_from(u32::from(c)).map_err(|_| {
                    Error::user(format!(
                        "character \"{c}\" in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\""
                    ))
                    .code("22P05")
                })
            };
            text.chars().map(one).collect::<Result<_>>()?
        }
    }))
}

fn convert_from(args: &[Arg<'_>], _: &mut Known) -> Result<Value> {
    let bytes = args[0].bytes();
    let invalid = |at: usize| {
        Error::user(format!(
            "invalid byte sequence for encoding \"UTF8\": 0x{:02x}",
            bytes.get(at).copied().unwrap_or_default()
        ))
        .code("22021")
    };
    if let Some(at) = bytes.iter().position(|b| *b == 0) {
        return Err(invalid(at));
    }
    Ok(Value::Text(match encoding("source", args[1].text())? {
        Encoding::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_string(),
            Err(e) => return Err(invalid(e.valid_up_to())),
        },
        Encoding::Latin1 => bytes.iter().copied().map(char::from).collect(),
    }))
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Characters of base64 on one line.
const LINE: usize = 76;

fn unknown_encoding(name: &str) -> Error {
    wrong(format!("unrecognized encoding: \"{name}\"")).hint("there are hex, base64 and escape")
}

fn encode(args: &[Arg<'_>], _: &mut Known) -> Result<Value> {
    let bytes = match args[0] {
        Arg::Text(text) => text.as_bytes(),
        other => other.bytes(),
    };
    let mut out = String::new();
    match args[1].text().to_ascii_lowercase().as_str() {
        "hex" => {
            for byte in bytes {
                out.extend(
                    [byte >> 4, byte & 0xf]
                        .map(|digit| char::from_digit(digit.into(), 16).unwrap_or_default()),
                );
            }
        }
        "base64" => {
            let mut written = 0;
            for chunk in bytes.chunks(3) {
                if written == LINE {
                    out.push('\n');
                    written = 0;
                }
                let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
                let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
                for at in 0..4 {
                    let digit = bits >> (18 - 6 * at) & 0x3f;
                    out.push(match at <= chunk.len() {
                        true => char::from(BASE64[digit as usize]),
                        false => '=',
                    });
                }
                written += 4;
            }
        }
        "escape" => {
            for byte in bytes {
                match byte {
                    0 | 0x80.. => out.push_str(&format!("\\{byte:03o}")),
                    b'\\' => out.push_str("\\\\"),
                    byte => out.push(char::from(*byte)),
                }
            }
        }
        _ => return Err(unknown_encoding(args[1].text())),
    }
    Ok(Value::Text(out))
}

fn decode(args: &[Arg<'_>], _: &mut Known) -> Result<Value> {
    let text = args[0].text();
    Ok(Value::Bytes(match args[1].text().to_ascii_lowercase().as_str() {
        "hex" => bytea::parse(&format!("\\x{text}"))?,
        "base64" => from_base64(text)?,
        // What begins with `\x` would be read as hexadecimal digits.
        "escape" if text.starts_with("\\x") => {
            return Err(Error::user("invalid input syntax for type bytea").code("22P02"));
        }
        "escape" => bytea::parse(text)?,
        _ => return Err(unknown_encoding(args[1].text())),
    }))
}

fn from_base64(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count, mut padding) = (0_u32, 0, 0_usize);
    for c in text.chars() {
        let digit = match c {
            ' ' | '\t' | '\n' | '\r' => continue,
            '=' if padding > 0 || count == 2 || count == 3 => {
                padding += 1;
                0
            }
            '=' => return Err(wrong("unexpected \"=\" while decoding base64 sequence")),
            c => match BASE64.iter().position(|digit| char::from(*digit) == c) {
                Some(digit) if padding == 0 => digit as u32,
                _ => {
                    return Err(wrong(format!(
                        "invalid symbol \"{c}\" found while decoding base64 sequence"
                    )));
                }
            },
        };
        bits = bits << 6 | digit;
        count += 1;
        if count == 4 {
            let bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
            out.extend(&bytes[..3 - padding.min(2)]);
            (bits, count) = (0, 0);
            // Another group may follow, as PostgreSQL has it.
            padding = 0;
        }
    }
    match count {
        0 => Ok(out),
        _ => Err(wrong("invalid base64 end sequence")
            .hint("Input data is missing padding, is truncated, or is otherwise corrupted.")),
    }
}
