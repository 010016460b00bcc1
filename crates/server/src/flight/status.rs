//! Our errors as gRPC's.

use arrow::error::ArrowError;
use arrow_flight::error::FlightError;
use thalweg_base::{Error, Kind};
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue};
use tonic::{Code, Status};

/// Trailers of a call that failed, besides gRPC's own.
pub const SQLSTATE: &str = "x-thalweg-sqlstate";
pub const DETAIL: &str = "x-thalweg-detail-bin";
pub const HINT: &str = "x-thalweg-hint-bin";

/// Bytes of one of these, and of the message: clients take headers of some KiB only.
const TEXT_BYTES_MAX: usize = 2048;

/// Message, detail and hint are all in the message: most clients show nothing else. The trailers
/// are for programs.
pub fn status(error: &Error) -> Status {
    let text = cut(&format!("{error:#}\nsqlstate: {}", error.sqlstate()), 2 * TEXT_BYTES_MAX);
    let mut status = Status::new(code(error), text);
    let trailers = status.metadata_mut();
    trailers.insert(SQLSTATE, AsciiMetadataValue::from_static(error.sqlstate()));
    for (name, text) in [(DETAIL, error.detail_text()), (HINT, error.hint_text())] {
        if let Some(text) = text {
            let text = cut(text, TEXT_BYTES_MAX);
            trailers.insert_bin(name, BinaryMetadataValue::from_bytes(text.as_bytes()));
        }
    }
    status
}

fn code(error: &Error) -> Code {
    match (error.sqlstate(), error.kind()) {
        ("28000" | "28P01", _) => Code::Unauthenticated,
        ("42501", _) => Code::PermissionDenied,
        ("42P01" | "3F000" | "26000", _) => Code::NotFound,
        ("42P07" | "42P06", _) => Code::AlreadyExists,
        (_, Kind::User) => Code::InvalidArgument,
        (_, Kind::Unsupported) => Code::Unimplemented,
        (_, Kind::Resources) => Code::ResourceExhausted,
        (_, Kind::Cancelled) => Code::Cancelled,
        (_, Kind::Conflict) => Code::Aborted,
        (_, Kind::Corrupt) => Code::DataLoss,
        // Not `Unavailable`: clients would send the statement again by themselves.
        (_, Kind::Io | Kind::Internal) => Code::Internal,
    }
}

fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_string();
    }
    let end = (0..=most).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// A message of a client that is not what it should be.
pub fn malformed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::user(format!("{what} cannot be read: {error}")).code("08P01")
}

/// Of arrays that we made.
pub fn from_arrow(error: ArrowError) -> Error {
    Error::internal(format!("a result cannot be sent: {error}"))
}

pub fn from_flight(error: FlightError) -> Error {
    Error::internal(format!("a result cannot be sent: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sees_all_of_an_error() {
        let error = Error::user("table \"t\" does not exist").code("42P01").hint("SHOW TABLES");
        let status = status(&error);
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(
            status.message(),
            "table \"t\" does not exist\nhint: SHOW TABLES\nsqlstate: 42P01"
        );
        assert_eq!(status.metadata().get(SQLSTATE).unwrap(), "42P01");
        let hint = status.metadata().get_bin(HINT).unwrap().to_bytes().unwrap();
        assert_eq!(&hint[..], b"SHOW TABLES");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("über", 1), "…");
        assert_eq!(cut("über", 2), "ü…");
        assert_eq!(cut("über", 5), "über");
    }
}
