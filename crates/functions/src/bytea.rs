//! Bytes as PostgreSQL reads and writes them: `\x0102`, and the older form with octal escapes.

use arrow::array::{
    ArrayRef, AsArray, BinaryBuilder, BinaryViewBuilder, LargeBinaryBuilder, StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result, Subject};

use thalweg_errors::from_arrow;

/// The bytes that a text spells.
///
/// # Errors
/// It has digits that are none, an odd number of them, or a backslash that begins no escape.
pub fn parse(text: &str) -> Result<Vec<u8>> {
    let wrong = |message: String| {
        Error::user(message).code("22023").about(Subject::Literal(text.to_string()))
    };
    if let Some(hex) = text.strip_prefix("\\x") {
        let mut digits = vec![];
        for c in hex.chars().filter(|c| !c.is_ascii_whitespace()) {
            let digit = c.to_digit(16);
            digits.push(digit.ok_or_else(|| wrong(format!("invalid hexadecimal digit: \"{c}\"")))?);
        }
        if digits.len() % 2 != 0 {
            return Err(wrong("invalid hexadecimal data: odd number of digits".into()));
        }
        return Ok(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match (first, tail) {
            (b'\\', [b'\\', ..]) => {
                bytes.push(b'\\');
                rest = &tail[1..];
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &tail[3..];
            }
            (b'\\', _) => {
                let e = wrong("invalid input syntax for type bytea".into());
                return Err(e
                    .code("22P02")
                    .hint("write bytes as '\\x00ff', and a backslash as '\\\\'"));
            }
            _ => bytes.push(*first),
        }
    }
    Ok(bytes)
}

/// `\x0102`
pub fn print(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Texts as the bytes that they spell, of a type of bytes. `lenient`: what spells none is NULL.
pub fn from_texts(texts: &ArrayRef, to: &DataType, lenient: bool) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View).map_err(|e| from_arrow(&e))?;
    let texts = texts.as_string_view();
    let read = |text: Option<&str>| match text.map(parse).transpose() {
        Err(_) if lenient => Ok(None),
        read => read,
    };
    macro_rules! build {
        ($builder:expr) => {{
            let mut builder = $builder;
            for text in texts {
                builder.append_option(read(text)?);
            }
            Ok(std::sync::Arc::new(builder.finish()))
        }};
    }
    match to {
        DataType::BinaryView => build!(BinaryViewBuilder::new()),
        DataType::LargeBinary => build!(LargeBinaryBuilder::new()),
        _ => build!(BinaryBuilder::new()),
    }
}

/// Bytes as texts that spell them.
pub fn to_texts(bytes: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let bytes = cast(bytes, &DataType::BinaryView).map_err(|e| from_arrow(&e))?;
    let mut texts = StringBuilder::new();
    for bytes in bytes.as_binary_view() {
        texts.append_option(bytes.map(print));
    }
    let texts: ArrayRef = std::sync::Arc::new(texts.finish());
    cast(&texts, to).map_err(|e| from_arrow(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL 15 answers.
    #[test]
    fn texts_spell_bytes() {
        let check =
            |text: &str, expected: &[u8]| assert_eq!(parse(text).unwrap(), expected, "{text}");
        check("\\x", b"");
        check("\\x00fF", &[0, 255]);
        check("\\x00 ff\n10", &[0, 255, 16]);
        check("abc", b"abc");
        check("a\\001\\\\", b"a\x01\\");
        check("", b"");
        for (wrong, state, message) in [
            ("\\x1", "22023", "invalid hexadecimal data: odd number of digits"),
            ("\\xq1", "22023", "invalid hexadecimal digit: \"q\""),
            ("a\\", "22P02", "invalid input syntax for type bytea"),
            ("a\\400", "22P02", "invalid input syntax for type bytea"),
        ] {
            let e = parse(wrong).unwrap_err();
            assert_eq!((e.message(), e.sqlstate()), (message, state), "{wrong}");
        }
        assert_eq!(print(&[0, 255]), "\\x00ff");
    }
}
