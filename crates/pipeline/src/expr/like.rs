//! Patterns of LIKE.
//!
//! Most are a beginning, an end or a part of a text, which Arrow's kernels find. Of the others those
//! with several parts that come in their order are looked for part by part, and the rest is a regular
//! expression of Arrow's.

use arrow::array::{ArrayRef, AsArray, BooleanArray, Scalar, StringViewArray};
use arrow::compute::kernels::comparison::{ilike, like, nilike, nlike};
use memchr::memmem::Finder;
use std::sync::Arc;
use thalweg_base::{Error, Result};

/// See the module's documentation.
#[derive(Debug)]
pub struct Matcher {
    pattern: StringViewArray,
    negated: bool,
    any_case: bool,
    parts: Option<Parts>,
}

/// `start%part%…%end`
#[derive(Debug)]
struct Parts {
    start: Box<[u8]>,
    inner: Vec<Finder<'static>>,
    end: Box<[u8]>,
}

impl Matcher {
    pub fn new(pattern: &str, negated: bool, any_case: bool) -> Matcher {
        let parts = if any_case { None } else { Parts::new(pattern) };
        let pattern = StringViewArray::from(vec![pattern]);
        Matcher { pattern, negated, any_case, parts }
    }

    /// For each text whether it is as the pattern says.
    pub fn matches(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        if let Some(parts) = &self.parts {
            let texts = texts.as_string_view();
            let is_like = |text: &str| parts.are_in(text.as_bytes()) != self.negated;
            return Ok(Arc::new(BooleanArray::from_unary(texts, is_like)));
        }
        let pattern = Scalar::new(&self.pattern);
        let found = match (self.negated, self.any_case) {
            (false, false) => like(texts, &pattern),
            (true, false) => nlike(texts, &pattern),
            (false, true) => ilike(texts, &pattern),
            (true, true) => nilike(texts, &pattern),
        };
        let found: BooleanArray = found.map_err(|e| Error::user(e.to_string()))?;
        Ok(Arc::new(found))
    }
}

impl Parts {
    /// `None`: the pattern has other parts, or so few that Arrow's kernels know it.
    fn new(pattern: &str) -> Option<Parts> {
        if pattern.contains(['_', '\\']) {
            return None;
        }
        let all: Vec<&str> = pattern.split('%').collect();
        let [start, inner @ .., end] = all.as_slice() else { return None };
        let inner: Vec<&str> = inner.iter().copied().filter(|part| !part.is_empty()).collect();
        let known = [start, end].into_iter().filter(|part| !part.is_empty()).count() + inner.len();
        if known < 2 {
            return None;
        }
        let finder = |part: &str| Finder::new(part.as_bytes()).into_owned();
        let inner = inner.into_iter().map(finder).collect();
        Some(Parts { start: start.as_bytes().into(), inner, end: end.as_bytes().into() })
    }

    /// Each part where it is first found leaves the most for those after it.
    fn are_in(&self, text: &[u8]) -> bool {
        let mut rest = text;
        // To compare with no bytes costs more than with some: it reads where an empty box points to, where
        // no memory is.
        if !self.start.is_empty() {
            match rest.strip_prefix(self.start.as_ref()) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        if !self.end.is_empty() {
            match rest.strip_suffix(self.end.as_ref()) {
                Some(before) => rest = before,
                None => return false,
            }
        }
        for part in &self.inner {
            match part.find(rest) {
                Some(at) => rest = &rest[at + part.needle().len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_arrow_says_they_do() {
        let texts = StringViewArray::from(vec![
            Some(""),
            Some("a"),
            Some("ab"),
            Some("aba"),
            Some("abab"),
            Some("xaby bc"),
            Some("a line\nand b"),
            Some("50%"),
            Some("50_%\\"),
            Some("ÄB äb"),
            None,
            Some("special packages among requests"),
        ]);
        let texts: ArrayRef = Arc::new(texts);
        for pattern in [
            "",
            "%",
            "%%",
            "a",
            "a%",
            "%a",
            "%a%",
            "a%b",
            "a%a",
            "ab%ab",
            "%a%b%",
            "a%b%",
            "%b%c",
            "%%a%%b%%",
            "a_%",
            "50\\%",
            "%\\\\",
            "%ä%",
            "%ä%b",
            "%special%requests%",
            "aba%ba",
        ] {
            let scalar = StringViewArray::from(vec![pattern]);
            for (negated, any_case) in [(false, false), (true, false), (false, true), (true, true)]
            {
                let found = Matcher::new(pattern, negated, any_case).matches(&texts).unwrap();
                let scalar = Scalar::new(&scalar);
                let expected = match (negated, any_case) {
                    (false, false) => like(&texts, &scalar),
                    (true, false) => nlike(&texts, &scalar),
                    (false, true) => ilike(&texts, &scalar),
                    (true, true) => nilike(&texts, &scalar),
                };
                assert_eq!(
                    found.as_boolean(),
                    &expected.unwrap(),
                    "{pattern} {negated} {any_case}"
                );
            }
        }
    }
}
