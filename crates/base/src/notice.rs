//! What a client is told beside the answer of its statement: that a hint was accepted and does nothing,
//! or that there was nothing to do.

use std::borrow::Cow;

/// How much a client should care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Notice,
    Warning,
}

impl Severity {
    /// In PostgreSQL's words.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
        }
    }

    /// Whether a session wants to hear of it whose `client_min_messages` is `least`.
    pub fn is_told(self, least: &str) -> bool {
        match least.to_ascii_lowercase().as_str() {
            "error" => false,
            "warning" => self >= Severity::Warning,
            _ => true,
        }
    }
}

/// One message. It never changes what the statement did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub severity: Severity,
    /// The SQLSTATE.
    pub code: &'static str,
    pub message: String,
    pub hint: Option<Cow<'static, str>>,
}

impl Notice {
    pub fn new(message: impl Into<String>) -> Self {
        Notice { severity: Severity::Notice, code: "00000", message: message.into(), hint: None }
    }

    pub fn warning(message: impl Into<String>) -> Self {
        Notice { severity: Severity::Warning, code: "01000", ..Notice::new(message) }
    }

    pub fn code(self, code: &'static str) -> Self {
        Notice { code, ..self }
    }

    pub fn hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Notice { hint: Some(hint.into()), ..self }
    }
}
