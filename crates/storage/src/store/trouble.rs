//! What is wrong when an object store refuses, and what to do about it.

use std::error::Error as _;

use object_store::client::{HttpError, HttpErrorKind};
use thalweg_base::{Error, Kind};

pub(super) const CREDENTIALS: &str = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and what they may do in this bucket; a public bucket is read with AWS_SKIP_SIGNATURE=true";
const NO_BUCKET: &str = "create the bucket, or check its name, AWS_ENDPOINT and AWS_REGION";
const UNREACHABLE: &str = "check AWS_ENDPOINT and the network";
const BUSY: &str = "try again later: it was tried as often as the limits allow";

/// `action` is what was to be done with the object at `located`.
pub(super) fn failed(action: &str, located: &str, e: object_store::Error) -> Error {
    let text = e.to_string();
    let reason = reason(&e, &text);
    let message = format!("cannot {action} {located}: {reason}");
    let hint = hint(&e, &text);
    let error = Error::new(Kind::Io, message).source(e);
    hint.into_iter().fold(error, Error::hint)
}

/// Whether it is the connection that failed, and nobody has tried again: the words are of
/// `object_store`, whose type for it is private.
pub(super) fn broke_off(e: &object_store::Error) -> bool {
    http_kind(e).is_some() && !e.to_string().contains("retries, max_retries")
}

/// Whether a request may have been carried out though it failed: such that change something
/// `object_store` does not make again.
pub(super) fn answer_lost(e: &object_store::Error) -> bool {
    http_kind(e).is_some_and(|kind| kind != HttpErrorKind::Connect)
}

/// In the server's words if it answered in S3's way, else in those of the deepest cause: the ones
/// above it say that a request failed.
fn reason(e: &object_store::Error, text: &str) -> String {
    if let Some(code) = element(text, "Code") {
        return match element(text, "Message") {
            Some(message) if !message.is_empty() => format!("{message} ({code})"),
            _ => code.to_owned(),
        };
    }
    let mut cause: &dyn std::error::Error = e;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let words = cause.to_string();
    let words = words.trim().trim_end_matches(':');
    match words.strip_prefix("Server returned non-2xx status code: ") {
        Some(status) => format!("the server answered {status}"),
        None => words.to_owned(),
    }
}

fn hint(e: &object_store::Error, text: &str) -> Option<&'static str> {
    use object_store::Error as E;
    let status = |code: &str| text.contains(&format!("status code: {code}"));
    if text.contains("NoSuchBucket") {
        return Some(NO_BUCKET);
    }
    // Without credentials in the environment, the cloud's machines are asked for theirs.
    let asked_machine = text.contains("169.254.") || text.contains("metadata");
    let denied = matches!(e, E::PermissionDenied { .. } | E::Unauthenticated { .. });
    if denied || asked_machine || status("403") || status("401") {
        return Some(CREDENTIALS);
    }
    match http_kind(e) {
        Some(HttpErrorKind::Connect | HttpErrorKind::Request) => return Some(UNREACHABLE),
        Some(_) => return Some(BUSY),
        None => {}
    }
    if text.contains("redirect") || status("301") || status("400") {
        return Some("check AWS_REGION and AWS_ENDPOINT");
    }
    if status("5") || status("429") { Some(BUSY) } else { None }
}

fn http_kind(e: &object_store::Error) -> Option<HttpErrorKind> {
    let mut cause = e.source();
    while let Some(this) = cause {
        if let Some(http) = this.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        cause = this.source();
    }
    None
}

/// The content of an XML element without attributes.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.trim())
}
