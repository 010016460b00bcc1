//! Errors of DataFusion and Arrow, sorted by who must act.

use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::parquet::errors::ParquetError;
use thalweg_base::{Error, Kind};

use crate::runtime::Run;

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
        D::SchemaError(inner, _) => {
            Error::user(without_settings(&inner.to_string())).code(match **inner {
                SchemaError::FieldNotFound { .. } => "42703",
                SchemaError::AmbiguousReference { .. } => "42702",
                SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::DuplicateUnqualifiedField { .. } => "42701",
            })
        }
        D::Plan(message) => plan(message),
        D::Configuration(message) | D::Execution(message) => {
            known(message).unwrap_or_else(|| Error::user(clean(message)))
        }
        D::NotImplemented(message) => {
            known(message).unwrap_or_else(|| Error::unsupported(clean(message)))
        }
        // An operator was refused memory and could not spill, or a disk to spill to is full.
        D::ResourcesExhausted(message) => {
            match Run::current().and_then(|run| run.memory_refusal()) {
                Some(refusal) if !message.contains("disk") => Error::from(&refusal),
                _ => Error::resources(clean(message)).hint(
                    "run fewer queries at once, or make the query's joins and groups smaller",
                ),
            }
        }
        D::ExecutionJoin(inner) if inner.is_cancelled() => {
            Error::cancelled("the query was cancelled")
        }
        D::Internal(_) | D::ExecutionJoin(_) | D::Substrait(_) | D::Ffi(_) => {
            Error::internal(clean(&e.to_string()))
        }
    }
}

/// Without the advice to change a setting of the planner.
fn without_settings(message: &str) -> String {
    let advice = message.find("\nColumn names are case sensitive.");
    let end = message.find("enable_ident_normalization configuration.");
    match (advice, end) {
        (Some(from), Some(to)) => {
            let to = to + "enable_ident_normalization configuration.".len();
            format!("{}{}", &message[..from], &message[to..])
        }
        _ => message.to_string(),
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
        ArrowError::NotYetImplemented(message) => Error::unsupported(clean(message)),
        ArrowError::MemoryError(message) => Error::resources(clean(message)),
        ArrowError::IoError(message, _) => Error::new(Kind::Io, clean(message)),
        ArrowError::ParquetError(message) => {
            Error::user(format!("not a readable Parquet file: {message}"))
        }
        ArrowError::DivideByZero => Error::user("division by zero").code("22012"),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => {
            Error::user(clean(message)).code("22P02")
        }
        ArrowError::ArithmeticOverflow(message) => Error::user(clean(message)).code("22003"),
        ArrowError::ComputeError(message)
        | ArrowError::CsvError(message)
        | ArrowError::JsonError(message)
        | ArrowError::IpcError(message)
        | ArrowError::SchemaError(message)
        | ArrowError::InvalidArgumentError(message) => Error::user(clean(message)),
        other => Error::internal(other.to_string()),
    }
}

fn from_parquet(e: &ParquetError) -> Error {
    if let ParquetError::External(inner) = e
        && let Some(nested) = inner.downcast_ref::<DataFusionError>()
    {
        return convert(nested);
    }
    Error::user(format!("not a readable Parquet file: {}", clean(&e.to_string())))
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

fn syntax(message: &str) -> Error {
    let message = message
        .trim_start_matches("sql parser error: ")
        .trim_start_matches("ParserError(")
        .to_string();
    if message.contains("recursion limit") {
        return Error::user("the statement is nested too deeply to parse")
            .hint("flatten it: use IN (…) for chains of OR, or split it with WITH");
    }
    Error::user(format!("syntax error: {message}")).code("42601")
}

/// The message for a scalar subquery that DataFusion cannot make a join of.
pub const MANY_ROWS: &str = "a correlated subquery that may give several rows is not supported";

/// What DataFusion says in terms of its own plans, in terms of the statement.
fn known(message: &str) -> Option<Error> {
    let has = |text: &str| message.contains(text);
    if has("does not support logical expression WindowFunction") {
        return Some(Error::user("a window function stands where none is allowed").hint(
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
        return Error::user(format!("not a regular expression: {message}"));
    }
    Error::internal(message)
}

fn plan(message: &str) -> Error {
    if let Some(error) = known(message) {
        return error;
    }
    let message = clean(message);
    let error = Error::user(message.clone());
    if message.contains("table '") && message.contains("not found") {
        let name = message.split('\'').nth(1).unwrap_or_default();
        let short = name.trim_start_matches("thalweg.").trim_start_matches("public.");
        return Error::user(format!("table {} does not exist", thalweg_base::text::quoted(short)))
            .code("42P01")
            .hint(
                "SHOW TABLES lists the tables; a file is queried as FROM 'path/to/file.parquet'",
            );
    }
    if message.starts_with("Invalid function") {
        return error.code("42883");
    }
    error
}

/// Drops the prefixes that repeat the error's kind, and the back-trace DataFusion may append.
fn clean(message: &str) -> String {
    let mut text = message.split("\n\nbacktrace:").next().unwrap_or(message);
    for prefix in [
        "Error during planning: ",
        "Execution error: ",
        "This feature is not implemented: ",
        "Schema error: ",
        "Arrow error: ",
        "Internal error: ",
        "Optimizer rule ",
        "External error: ",
    ] {
        text = text.trim_start_matches(prefix);
    }
    text.split(".\nThis issue was likely caused by").next().unwrap_or(text).to_string()
}
