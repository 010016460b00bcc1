//! The grammar of JSON: one value at a time, as bytes.

/// A value of an object, as bytes; strings are unescaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Null,
    Boolean(&'a [u8]),
    Number(&'a [u8]),
    Text(&'a [u8]),
    /// An array or object, by its balanced brackets; what is between them has not been looked at, which
    /// is up to [`object`], [`array`] or [`check`].
    Nested(Nested<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nested<'a> {
    pub bytes: &'a [u8],
    /// Where it begins in what it is a part of.
    pub at: usize,
}

impl Nested<'_> {
    pub fn is_array(&self) -> bool {
        self.bytes.first() == Some(&b'[')
    }
}

/// What is wrong with a line, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub at: usize,
    pub what: &'static str,
}

impl Wrong {
    /// The same, seen from what `nested` is a part of.
    pub(super) fn within(self, nested: Nested<'_>) -> Wrong {
        Wrong { at: self.at + nested.at, ..self }
    }
}

/// Reads the object that `line` is, which may have line ends in it, and calls `each` for its members in order.
pub(super) fn object<E: From<Wrong>>(
    line: &[u8],
    scratch: &mut Scratch,
    mut each: impl FnMut(&[u8], Value<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = blanks(line, 0);
    expect(line, &mut at, b'{', "an object is expected")?;
    at = blanks(line, at);
    if line.get(at) == Some(&b'}') {
        return end(line, at + 1).map_err(E::from);
    }
    loop {
        at = blanks(line, at);
        expect(line, &mut at, b'"', "a key in double quotes is expected")?;
        let key = string(line, &mut at, &mut scratch.key)?;
        at = blanks(line, at);
        expect(line, &mut at, b':', "a colon is expected")?;
        at = blanks(line, at);
        let value = value(line, &mut at, &mut scratch.value)?;
        each(key, value)?;
        at = blanks(line, at);
        match line.get(at) {
            Some(b',') => at += 1,
            Some(b'}') => return end(line, at + 1).map_err(E::from),
            Some(_) => {
                return Err(Wrong { at, what: "a comma or a closing brace is expected" }.into());
            }
            None => return Err(Wrong { at, what: "the object does not end on its line" }.into()),
        }
    }
}

/// Room for strings that need unescaping.
#[derive(Default)]
pub(super) struct Scratch {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Reads the array that `text` is and calls `each` for its elements in order.
pub(super) fn array<E: From<Wrong>>(
    text: &[u8],
    scratch: &mut Scratch,
    mut each: impl FnMut(Value<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = blanks(text, 0);
    expect(text, &mut at, b'[', "an array is expected")?;
    at = blanks(text, at);
    if text.get(at) == Some(&b']') {
        return end(text, at + 1).map_err(E::from);
    }
    loop {
        at = blanks(text, at);
        each(value(text, &mut at, &mut scratch.value)?)?;
        at = blanks(text, at);
        match text.get(at) {
            Some(b',') => at += 1,
            Some(b']') => return end(text, at + 1).map_err(E::from),
            _ => return Err(Wrong { at, what: "a comma or a closing bracket is expected" }.into()),
        }
    }
}

/// Reads the one value that `text` is.
pub(super) fn lone<E: From<Wrong>>(
    text: &[u8],
    scratch: &mut Scratch,
    each: impl FnOnce(Value<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = blanks(text, 0);
    let value = value(text, &mut at, &mut scratch.value)?;
    end(text, at)?;
    each(value)
}

/// Whether all that is between the brackets of `nested` is JSON too. However deep it is, this does not
/// call itself.
pub(super) fn check(nested: Nested<'_>) -> Result<(), Wrong> {
    let text = nested.bytes;
    let mut scratch = Vec::new();
    let mut open: Vec<u8> = Vec::new();
    let mut at = 0;
    let wrong = |at: usize, what: &'static str| Err(Wrong { at, what }.within(nested));
    // A value is due, unless the bracket that was opened last is closed at once.
    let mut opened = false;
    loop {
        at = blanks(text, at);
        if !(opened && open.last() == text.get(at)) {
            if open.last() == Some(&b'}') {
                if text.get(at) != Some(&b'"') {
                    return wrong(at, "a key in double quotes is expected");
                }
                at += 1;
                string(text, &mut at, &mut scratch).map_err(|w| w.within(nested))?;
                at = blanks(text, at);
                if text.get(at) != Some(&b':') {
                    return wrong(at, "a colon is expected");
                }
                at = blanks(text, at + 1);
            }
            match text.get(at) {
                Some(&bracket @ (b'{' | b'[')) => {
                    // In ASCII the bracket that closes is two beyond the one that opens.
                    open.push(bracket + 2);
                    (opened, at) = (true, at + 1);
                    continue;
                }
                _ => {
                    value(text, &mut at, &mut scratch).map_err(|w| w.within(nested))?;
                }
            }
        }
        opened = false;
        loop {
            at = blanks(text, at);
            match (text.get(at), open.last()) {
                (Some(b','), Some(_)) => {
                    at += 1;
                    break;
                }
                (Some(byte), Some(close)) if byte == close => {
                    open.pop();
                    at += 1;
                    if open.is_empty() {
                        return Ok(());
                    }
                }
                _ => return wrong(at, "a comma or a closing bracket is expected"),
            }
        }
    }
}

fn blanks(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')).count()
}

fn end(line: &[u8], at: usize) -> Result<(), Wrong> {
    let at = blanks(line, at);
    if at == line.len() { Ok(()) } else { Err(Wrong { at, what: "text follows the value" }) }
}

fn expect(line: &[u8], at: &mut usize, byte: u8, what: &'static str) -> Result<(), Wrong> {
    match line.get(*at) {
        Some(&b) if b == byte => {
            *at += 1;
            Ok(())
        }
        Some(_) => Err(Wrong { at: *at, what }),
        None => Err(Wrong { at: *at, what: "the object does not end on its line" }),
    }
}

/// The string whose opening quote is just before `at`.
fn string<'a>(line: &'a [u8], at: &mut usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Wrong> {
    let start = *at;
    let unclosed = Wrong { at: start, what: "a string is not closed" };
    let next =
        |from: usize| memchr::memchr2(b'"', b'\\', &line[from..]).map(|n| from + n).ok_or(unclosed);
    let mut stop = next(start)?;
    if line[stop] == b'"' {
        *at = stop + 1;
        return Ok(&line[start..stop]);
    }
    scratch.clear();
    let mut from = start;
    while line[stop] == b'\\' {
        scratch.extend_from_slice(&line[from..stop]);
        from = stop + 2;
        let plain = match line.get(stop + 1) {
            Some(&b @ (b'"' | b'\\' | b'/')) => b,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let (char, length) =
                    unicode(&line[stop..]).ok_or(Wrong { at: stop, what: "a bad \\u escape" })?;
                scratch.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                from = stop + length;
                stop = next(from)?;
                continue;
            }
            Some(_) => return Err(Wrong { at: stop, what: "an unknown escape" }),
            None => return Err(unclosed),
        };
        scratch.push(plain);
        stop = next(from)?;
    }
    scratch.extend_from_slice(&line[from..stop]);
    *at = stop + 1;
    Ok(scratch)
}

/// The character of a `\uXXXX` escape, or of a surrogate pair of them, and its length.
fn unicode(escape: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| -> Option<u32> {
        let digits = escape.get(at..at + 6)?.strip_prefix(b"\\u")?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    match unit(0)? {
        high @ 0xd800..=0xdbff => {
            let low = unit(6).filter(|low| (0xdc00..=0xdfff).contains(low))?;
            Some((char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?, 12))
        }
        unit => Some((char::from_u32(unit)?, 6)),
    }
}

fn value<'a>(line: &'a [u8], at: &mut usize, scratch: &'a mut Vec<u8>) -> Result<Value<'a>, Wrong> {
    let start = *at;
    match line.get(start) {
        Some(b'"') => {
            *at += 1;
            string(line, at, scratch).map(Value::Text)
        }
        Some(b'{' | b'[') => {
            nested(line, at).map(|bytes| Value::Nested(Nested { bytes, at: start }))
        }
        Some(_) => {
            let ends = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
            let token = &line[start..];
            let token = &token[..token.iter().position(ends).unwrap_or(token.len())];
            *at = start + token.len();
            match token {
                b"null" => Ok(Value::Null),
                b"true" | b"false" => Ok(Value::Boolean(token)),
                _ if number(token) => Ok(Value::Number(token)),
                _ => Err(Wrong { at: start, what: "not a JSON value" }),
            }
        }
        None => Err(Wrong { at: start, what: "the object does not end on its line" }),
    }
}

/// RFC 8259's grammar: `-? int frac? exp?`.
fn number(token: &[u8]) -> bool {
    let digits = |t: &[u8]| t.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut rest = token.strip_prefix(b"-").unwrap_or(token);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent =
            exponent.strip_prefix(b"+").or(exponent.strip_prefix(b"-")).unwrap_or(exponent);
        return digits(exponent) > 0 && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

/// An array or object by its balanced brackets; what is between them is taken as it is.
fn nested<'a>(line: &'a [u8], at: &mut usize) -> Result<&'a [u8], Wrong> {
    let start = *at;
    let mut open: Vec<u8> = Vec::new();
    let mut unused = Vec::new();
    while let Some(&byte) = line.get(*at) {
        *at += 1;
        match byte {
            b'"' => {
                string(line, at, &mut unused)?;
            }
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' => {
                if open.pop() != Some(byte) {
                    return Err(Wrong { at: *at - 1, what: "brackets do not match" });
                }
                if open.is_empty() {
                    return Ok(&line[start..*at]);
                }
            }
            _ => {}
        }
    }
    Err(Wrong { at: *at, what: "the object does not end on its line" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(line: &str) -> Result<Vec<(String, String)>, Wrong> {
        let mut out = Vec::new();
        object(line.as_bytes(), &mut Scratch::default(), |key, value| {
            let value = match value {
                Value::Null => "null".into(),
                Value::Boolean(b) => format!("b:{}", String::from_utf8_lossy(b)),
                Value::Number(b) => format!("n:{}", String::from_utf8_lossy(b)),
                Value::Text(b) => format!("t:{}", String::from_utf8_lossy(b)),
                Value::Nested(nested) => {
                    check(nested)?;
                    format!("x:{}", String::from_utf8_lossy(nested.bytes))
                }
            };
            out.push((String::from_utf8_lossy(key).into_owned(), value));
            Ok::<(), Wrong>(())
        })?;
        Ok(out)
    }

    #[test]
    fn reads_objects() {
        let check = |line: &str, expected: &[(&str, &str)]| {
            let expected = expected.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            assert_eq!(members(line), Ok(expected), "{line}");
        };
        check("{}", &[]);
        check(" { \"a\" : 1 , \"b\":null}\r", &[("a", "n:1"), ("b", "null")]);
        check(
            r#"{"a":"x\n\"\u00e9\ud83d\ude00\\","b":true}"#,
            &[("a", "t:x\n\"é😀\\"), ("b", "b:true")],
        );
        check(
            r#"{"a":{"b":["}",1]},"c":-1.5e+3}"#,
            &[("a", r#"x:{"b":["}",1]}"#), ("c", "n:-1.5e+3")],
        );
    }

    #[test]
    fn nested_values_are_checked_however_deep() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(members(&deep).unwrap().len(), 1);
        for good in
            ["[]", "[{}]", "[[],[1, {\"k\":[]}], \"]\", null]", "{\"k\" : {\"l\":1} , \"m\":2 }"]
        {
            assert!(members(&format!("{{\"a\":{good}}}")).is_ok(), "{good}");
        }
        let at = members("{\"a\":[1,{\"b\":x}]}").unwrap_err();
        assert_eq!(at, Wrong { at: 13, what: "not a JSON value" });
    }

    #[test]
    fn reads_arrays_and_lone_values() {
        let items = |text: &str| {
            let mut items = Vec::new();
            array(text.as_bytes(), &mut Scratch::default(), |item| {
                items.push(format!("{item:?}").chars().take(4).collect::<String>());
                Ok::<(), Wrong>(())
            })?;
            Ok::<_, Wrong>(items.len())
        };
        assert_eq!(items("[]"), Ok(0));
        assert_eq!(items("[1, \"x\",null,{\"a\":[2]} ]"), Ok(4));
        for bad in ["[1 2]", "[1,]", "[", "[1", "[1] 2"] {
            assert!(items(bad).is_err(), "{bad}");
        }
        let lone =
            |text: &str| lone(text.as_bytes(), &mut Scratch::default(), |_| Ok::<(), Wrong>(()));
        assert!(lone(" 12 ").is_ok() && lone("\"x\"").is_ok() && lone("[1]").is_ok());
        assert!(lone("1 2").is_err() && lone("").is_err() && lone("hello").is_err());
    }

    #[test]
    fn refuses_what_is_not_an_object() {
        for line in [
            "",
            "[1]",
            "1",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,}",
            "{\"a\":01}",
            "{\"a\":1.}",
            "{\"a\":+1}",
            "{\"a\":tru}",
            "{\"a\":\"x}",
            "{\"a\":[1}",
            "{\"a\":[1 2]}",
            "{\"a\":[1,]}",
            "{\"a\":[,1]}",
            "{\"a\":[tru]}",
            "{\"a\":{\"b\" 1}}",
            "{\"a\":{\"b\":1,}}",
            "{\"a\":{\"b\":}}",
            "{\"a\":{1}}",
            "{\"a\":[{}{}]}",
            "{\"a\":\"\\q\"}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":1} x",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":\"\\",
            "{\"a\":\"\\u12",
        ] {
            assert!(members(line).is_err(), "{line}");
        }
    }
}
