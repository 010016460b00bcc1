//! Errors of DataFusion and Arrow, sorted by who must act. `words.rs` words them.

mod options;
mod words;

use std::sync::OnceLock;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::parquet::errors::ParquetError;
use thalweg_base::{Error, Kind, Place};

pub use options::{in_sql, in_sql_text};
pub use words::no_value;
pub use words::{no_relation, no_type};

/// Why the query of this task was refused memory, if it was; DataFusion's error only says that it was.
/// Whoever runs queries sets it once.
pub static REFUSAL: OnceLock<fn() -> Option<Error>> = OnceLock::new();

/// Our error inside DataFusion's, so that it comes back whole from [`from_datafusion`].
pub fn into_datafusion(e: Error) -> DataFusionError {
    DataFusionError::External(Box::new(e))
}

/// DataFusion's error as ours: the root cause decides the kind, the outer contexts are dropped
/// where they only name DataFusion's own operators.
pub fn from_datafusion(e: DataFusionError) -> Error {
    convert(&e)
}

fn convert(e: &DataFusionError) -> Error {
    use DataFusionError as D;
    match e {
        D::External(inner) => match inner.downcast_ref::<Error>() {
            Some(ours) => ours.again(),
            None => match inner.downcast_ref::<DataFusionError>() {
                Some(nested) => convert(nested),
                None => match inner.downcast_ref::<ArrowError>() {
                    Some(arrow) => from_arrow(arrow),
                    None => foreign(&inner.to_string()),
                },
            },
        },
        D::Context(_, inner) | D::Diagnostic(_, inner) => convert(inner),
        D::Shared(inner) => convert(inner),
        D::Collection(all) => match all.first() {
            Some(first) => convert(first),
            None => Error::internal("an empty collection of errors"),
        },
        D::ArrowError(inner, _) => from_arrow(inner),
        D::ParquetError(inner) => from_parquet(inner),
        D::ObjectStore(inner) => from_object_store(inner),
        D::IoError(inner) => {
            let copy = std::io::Error::new(inner.kind(), inner.to_string());
            Error::io("input or output failed", copy)
        }
        D::SQL(inner, _) => syntax(&inner.to_string()),
        D::SchemaError(inner, _) => words::of_schema(inner),
        D::Plan(message) => plan(message),
        D::Configuration(message) | D::Execution(message) => {
            let message = words::clean(message);
            known(&message)
                .or_else(|| words::of_message(&message))
                .unwrap_or_else(|| Error::user(words::plain(&message)))
        }
        D::NotImplemented(message) => known(message).unwrap_or_else(|| unsupported(message)),
        // An operator was refused memory and could not spill, or a disk to spill to is full.
        D::ResourcesExhausted(message) => match REFUSAL.get().and_then(|refusal| refusal()) {
            Some(refusal) if !message.contains("disk") => refusal,
            _ => Error::resources(words::clean(message))
                .hint("run fewer queries at once, or make the query's joins and groups smaller"),
        },
        D::ExecutionJoin(inner) if inner.is_cancelled() => {
            Error::cancelled("the query was cancelled")
        }
        D::Internal(_) | D::ExecutionJoin(_) | D::Substrait(_) | D::Ffi(_) => {
            Error::internal(words::clean(&e.to_string()))
        }
    }
}

pub fn from_arrow(e: &ArrowError) -> Error {
    match e {
        ArrowError::ExternalError(inner) => match inner.downcast_ref::<DataFusionError>() {
            Some(nested) => convert(nested),
            None => match inner.downcast_ref::<Error>() {
                Some(ours) => ours.again(),
                None => Error::internal(inner.to_string()),
            },
        },
        ArrowError::NotYetImplemented(message) => Error::unsupported(words::clean(message)),
        ArrowError::MemoryError(message) => Error::resources(words::clean(message)),
        ArrowError::IoError(message, _) => Error::new(Kind::Io, words::clean(message)),
        ArrowError::ParquetError(message) => {
            Error::user(format!("not a readable Parquet file: {message}"))
        }
        ArrowError::DivideByZero => Error::user("division by zero").code("22012"),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => {
            let message = words::clean(message);
            words::of_message(&message)
                .unwrap_or_else(|| Error::user(words::plain(&message)).code("22P02"))
        }
        ArrowError::ArithmeticOverflow(message) => Error::user(words::clean(message)).code("22003"),
        ArrowError::ComputeError(message)
        | ArrowError::CsvError(message)
        | ArrowError::JsonError(message)
        | ArrowError::IpcError(message)
        | ArrowError::SchemaError(message)
        | ArrowError::InvalidArgumentError(message) => Error::user(words::clean(message)),
        other => Error::internal(other.to_string()),
    }
}

fn from_parquet(e: &ParquetError) -> Error {
    if let ParquetError::External(inner) = e
        && let Some(nested) = inner.downcast_ref::<DataFusionError>()
    {
        return convert(nested);
    }
    Error::user(format!("not a readable Parquet file: {}", words::clean(&e.to_string())))
        .hint("the file may be truncated or of another format; write it again")
}

fn from_object_store(e: &datafusion::object_store::Error) -> Error {
    match e {
        datafusion::object_store::Error::NotFound { path, .. } => {
            Error::user(format!("file \"/{}\" does not exist", path.trim_start_matches('/')))
                .hint("check the path; relative paths start at the directory thalweg runs in")
        }
        other => Error::new(Kind::Io, other.to_string()),
    }
}

/// `Expected: …, found: x at Line: 1, Column: 7`, as PostgreSQL says it.
fn syntax(message: &str) -> Error {
    let message = message.trim_start_matches("sql parser error: ");
    if message.contains("recursion limit") {
        return Error::user("the statement is nested too deeply to parse")
            .code("54001")
            .hint("flatten it: use IN (…) for chains of OR, or split it with WITH");
    }
    let (text, place) = match message.rsplit_once(" at Line: ") {
        Some((text, place)) => {
            let place = place.split_once(", Column: ").and_then(|(line, column)| {
                Some(Place::Line(line.trim().parse().ok()?, column.trim().parse().ok()?))
            });
            (text, place)
        }
        None => (message, None),
    };
    let error = match text.strip_prefix("Expected: ").and_then(|rest| rest.rsplit_once(", found: "))
    {
        Some((expected, "EOF")) => Error::user("syntax error at end of input")
            .detail(format!("expected: {expected}"))
            .at(Place::Line(0, 0)),
        Some((expected, found)) => Error::user(format!("syntax error at or near \"{found}\""))
            .detail(format!("expected: {expected}")),
        None => Error::user(format!("syntax error: {}", words::plain(text))),
    };
    let error = error.code("42601");
    match place {
        Some(place) => error.at(place),
        None => error,
    }
}

/// DataFusion prints the parsed statement where it knows no way: that helps nobody.
fn unsupported(message: &str) -> Error {
    let message = words::clean(message);
    if let Some(name) = message.strip_prefix("Unsupported SQL type ") {
        return words::no_type(name);
    }
    let is_dump =
        message.contains(" { ") || message.contains("Span(") || message.contains("Ident {");
    if !is_dump {
        return Error::unsupported(words::plain(&message));
    }
    let head = message.split([':', '{']).next().unwrap_or_default().trim();
    let what = head.rsplit(' ').next().unwrap_or_default();
    let what = match head {
        _ if head.starts_with("Unsupported ast node") => between_words(&message),
        _ => what.to_string(),
    };
    Error::unsupported(format!("this form of SQL is not supported: {what}"))
        .hint("docs/sql.md lists what is there, with examples")
}

/// `ConnectByRoot(…)` as `connect by root`: the name of a node of the parser.
fn between_words(message: &str) -> String {
    let node = message.split(": ").nth(1).unwrap_or_default();
    let node: String = node.chars().take_while(|c| c.is_alphanumeric()).collect();
    let mut text = String::new();
    for c in node.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// The message for a scalar subquery that DataFusion cannot make a join of.
pub const MANY_ROWS: &str = "a correlated subquery that may give several rows is not supported";

/// What DataFusion says in terms of its own plans, in terms of the statement.
fn known(message: &str) -> Option<Error> {
    let has = |text: &str| message.contains(text);
    if has("does not support logical expression WindowFunction") {
        return Some(Error::user("a window function stands where none is allowed").code("42P20").hint(
            "it runs after WHERE, GROUP BY and HAVING: filter with QUALIFY, or in a query around this one",
        ));
    }
    if has("does not support logical expression") && (has("Subquery") || has("Exists")) {
        return Some(
            Error::unsupported("a subquery is not supported at this place")
                .hint("join its result instead, or move it into WHERE"),
        );
    }
    if has("Correlated scalar subquery must be aggregated") {
        return Some(
            Error::unsupported(MANY_ROWS)
                .hint("make it one row with max(…) or min(…), or use LEFT JOIN"),
        );
    }
    if has("null_aware anti join only supports") {
        return Some(
            Error::unsupported("NOT IN with a correlated subquery is not supported")
                .hint("use NOT EXISTS, and say there what NULL means"),
        );
    }
    if has("Temporary tables not supported") || has("Temporary views not supported") {
        return Some(
            Error::unsupported("temporary tables and views are not supported")
                .hint("create an ordinary one and drop it"),
        );
    }
    None
}

/// Errors of libraries below DataFusion, known by their text alone.
fn foreign(message: &str) -> Error {
    if message.contains("regex parse error") {
        let error = Error::user(format!("invalid regular expression: {message}"));
        return error.code("2201B");
    }
    Error::internal(message)
}

fn plan(message: &str) -> Error {
    let message = words::clean(message);
    known(&message)
        .or_else(|| words::of_message(&message))
        .unwrap_or_else(|| Error::user(words::plain(&message)))
}
