//! The patterns of `LIKE … ESCAPE` and `SIMILAR TO`, written in those that are matched: of LIKE with
//! a backslash, and regular expressions.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::{Error, Result};

use thalweg_errors::into_datafusion;

/// The character that an ESCAPE gives; `None`: nothing is escaped.
pub fn escape(text: &str) -> Result<Option<char>> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (first, None) => Ok(first),
        _ => Err(Error::user("ESCAPE takes one character, or none").code("22025")),
    }
}

/// A pattern of LIKE in which `\` escapes, and nothing else.
pub fn like(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        if Some(c) == escape {
            match characters.next() {
                Some(next @ ('%' | '_' | '\\')) => out.extend(['\\', next]),
                Some(next) => out.push(next),
                None => return Err(cut_off()),
            }
        } else if c == '\\' {
            out.push_str("\\\\");
        } else {
            out.push(c);
        }
    }
    Ok(out)
}

fn cut_off() -> Error {
    Error::user("the pattern of LIKE or SIMILAR TO ends in its escape character").code("22025")
}

/// A pattern of SIMILAR TO as a regular expression of PostgreSQL that the whole text must match.
pub fn similar(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut out = String::from("^(?:");
    let mut characters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = characters.next() {
        if Some(c) == escape {
            let next = characters.next().ok_or_else(cut_off)?;
            // Also a letter, which may be that of a class: `\d`.
            out.extend(['\\', next]);
        } else if in_class {
            match c {
                ']' => {
                    in_class = false;
                    out.push(']');
                }
                // `[:alpha:]`
                '[' if characters.peek() == Some(&':') => {
                    out.push('[');
                    for c in characters.by_ref() {
                        out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                }
                '\\' => out.push_str("\\\\"),
                c => out.push(c),
            }
        } else {
            match c {
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '[' => {
                    in_class = true;
                    out.push('[');
                    // A bracket right after the beginning, or its negation, is one of the class.
                    out.extend(characters.next_if_eq(&'^'));
                    out.extend(characters.next_if_eq(&']'));
                }
                '\\' | '.' | '^' | '$' => out.extend(['\\', c]),
                c => out.push(c),
            }
        }
    }
    out.push_str(")$");
    Ok(out)
}

/// `like_escape(pattern, escape)` and `similar_to_escape(pattern [, escape])`, as PostgreSQL has
/// them, for patterns that are no literals.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    similar: bool,
    signature: Signature,
}

impl Pattern {
    pub fn new(similar: bool) -> Pattern {
        let signature = match similar {
            false => Signature::string(2, Volatility::Immutable),
            true => Signature::one_of(
                vec![
                    datafusion::logical_expr::TypeSignature::String(1),
                    datafusion::logical_expr::TypeSignature::String(2),
                ],
                Volatility::Immutable,
            ),
        };
        Pattern { similar, signature }
    }
}

impl ScalarUDFImpl for Pattern {
    fn name(&self) -> &str {
        if self.similar { "similar_to_escape" } else { "like_escape" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let texts = args.args.into_iter().map(|arg| {
            let array = arg.into_array(rows)?;
            Ok(arrow::compute::cast(&array, &DataType::Utf8)?)
        });
        let texts = texts.collect::<DfResult<Vec<_>>>()?;
        let (pattern, escapes) = match &texts[..] {
            [pattern] => (pattern.as_string::<i32>(), None),
            [pattern, escapes] => (pattern.as_string::<i32>(), Some(escapes.as_string::<i32>())),
            _ => return exec_err!("{} takes a pattern and an escape", self.name()),
        };
        let mut out = Vec::with_capacity(rows);
        for row in 0..rows {
            if pattern.is_null(row) || escapes.is_some_and(|e| e.is_null(row)) {
                out.push(None);
                continue;
            }
            let character = escapes.map_or(Ok(Some('\\')), |e| escape(e.value(row)));
            let written = character.and_then(|character| match self.similar {
                true => similar(pattern.value(row), character),
                false => like(pattern.value(row), character),
            });
            out.push(Some(written.map_err(into_datafusion)?));
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(out))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_written_anew() {
        for (pattern, escape, expected) in [
            ("a!%b%", Some('!'), "a\\%b%"),
            ("a!!b", Some('!'), "a!b"),
            ("a\\b", Some('!'), "a\\\\b"),
            ("a\\%", None, "a\\\\%"),
            ("a!_\\_", Some('!'), "a\\_\\\\_"),
        ] {
            assert_eq!(like(pattern, escape).unwrap(), expected, "{pattern}");
        }
        assert!(like("a!", Some('!')).is_err());
        for (pattern, expected) in [
            ("foo%", "^(?:foo.*)$"),
            ("(a|b)_", "^(?:(?:a|b).)$"),
            ("a.c", "^(?:a\\.c)$"),
            ("a\\%", "^(?:a\\%)$"),
            ("[a-c]%", "^(?:[a-c].*)$"),
            ("[^[:alpha:]%]", "^(?:[^[:alpha:]%])$"),
            ("a{2,3}", "^(?:a{2,3})$"),
        ] {
            assert_eq!(similar(pattern, Some('\\')).unwrap(), expected, "{pattern}");
        }
        assert!(escape("ab").is_err());
        assert_eq!(escape("").unwrap(), None);
    }
}
