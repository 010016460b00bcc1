//! `SetSessionOptions`, `GetSessionOptions`, `CloseSession`: settings by their names in SQL. The
//! messages are here because the crate of Flight has not got them.

use std::collections::HashMap;
use std::fmt;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use prost::Message;
use thalweg_base::{Error, Kind, Result};
use thalweg_engine::Session;
use tonic::metadata::AsciiMetadataValue;

use super::auth::{Caller, set_cookie};
use super::metadata::CATALOG;
use super::service::State;
use super::status::{from_arrow, malformed};

/// Options of one call.
const OPTIONS_MAX: usize = 100;

/// `SetSessionOptionsResult.ErrorValue` and `CloseSessionResult.Status`
const INVALID_NAME: i32 = 1;
const INVALID_VALUE: i32 = 2;
const CLOSED: i32 = 1;
const NOT_CLOSEABLE: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub struct SetSessionOptionsRequest {
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SessionOptionValue {
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub option_value: Option<OptionValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum OptionValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Texts(StringListValue),
}

#[derive(Clone, PartialEq, Message)]
pub struct StringListValue {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, OptionError>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OptionError {
    #[prost(int32, tag = "1")]
    pub value: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CloseSessionResult {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// A caller without a session gets one, and with it a cookie.
pub async fn set(
    state: &State,
    caller: &Caller,
    body: &[u8],
) -> Result<(Vec<u8>, Option<AsciiMetadataValue>)> {
    let request =
        SetSessionOptionsRequest::decode(body).map_err(|e| malformed("the options", e))?;
    if request.session_options.len() > OPTIONS_MAX {
        return Err(Error::user(format!("a call sets at most {OPTIONS_MAX} options")));
    }
    let (client, cookie) = match &caller.session {
        Some((_, client)) => (std::sync::Arc::clone(client), None),
        None => {
            let (name, client) = state.sessions.open(&caller.user)?;
            (client, Some(set_cookie(&name, false)?))
        }
    };
    let session = client.session(&state.context.authenticator)?;
    let mut errors = HashMap::new();
    for (name, value) in request.session_options {
        if let Err(value) = set_one(&session, &name, value.option_value.as_ref()).await? {
            errors.insert(name, OptionError { value });
        }
    }
    Ok((SetSessionOptionsResult { errors }.encode_to_vec(), cookie))
}

/// The inner error is one that the client is told per option.
async fn set_one(
    session: &Session,
    name: &str,
    value: Option<&OptionValue>,
) -> Result<Result<(), i32>> {
    // Options that every server of Flight SQL may have.
    let name = match name {
        "catalog" => {
            let is_ours = matches!(value, Some(OptionValue::Text(text)) if text == CATALOG);
            return Ok(if is_ours { Ok(()) } else { Err(INVALID_VALUE) });
        }
        "schema" => "datafusion.catalog.default_schema",
        other => other,
    };
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !name.split('.').all(is_name) {
        return Ok(Err(INVALID_NAME));
    }
    let sql = match value {
        Some(OptionValue::Texts(_)) => return Ok(Err(INVALID_VALUE)),
        Some(value) => format!("SET {name} = '{}'", value.to_string().replace('\'', "''")),
        None => format!("RESET {name}"),
    };
    match session.query(&sql).await {
        Ok(_) => Ok(Ok(())),
        Err(e) if matches!(e.kind(), Kind::User | Kind::Unsupported) => {
            let known = read(session).await?.contains_key(name);
            Ok(Err(if known { INVALID_VALUE } else { INVALID_NAME }))
        }
        Err(e) => Err(e),
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Text(text) => f.write_str(text),
            OptionValue::Bool(value) => value.fmt(f),
            OptionValue::Integer(value) => value.fmt(f),
            OptionValue::Double(value) => value.fmt(f),
            OptionValue::Texts(list) => f.write_str(&list.values.join(", ")),
        }
    }
}

pub async fn get(state: &State, caller: &Caller) -> Result<Vec<u8>> {
    let authenticator = &state.context.authenticator;
    let session = match &caller.session {
        Some((_, client)) => client.session(authenticator)?,
        None => authenticator.session(&caller.user)?,
    };
    let text = |text: String| SessionOptionValue { option_value: Some(OptionValue::Text(text)) };
    let mut session_options: HashMap<_, _> =
        read(&session).await?.into_iter().map(|(name, value)| (name, text(value))).collect();
    session_options.insert("catalog".into(), text(CATALOG.into()));
    Ok(GetSessionOptionsResult { session_options }.encode_to_vec())
}

/// The settings that are ours, and the schema of names without one.
async fn read(session: &Session) -> Result<HashMap<String, String>> {
    const SCHEMA: &str = "datafusion.catalog.default_schema";
    let sql = format!(
        "SELECT name, coalesce(value, '') FROM information_schema.df_settings \
         WHERE name LIKE 'thalweg.%' OR name = '{SCHEMA}'"
    );
    let mut settings = HashMap::new();
    for batch in session.query(&sql).await?.collect().await? {
        let text = |i: usize| cast(batch.column(i), &DataType::Utf8).map_err(from_arrow);
        let (names, values) = (text(0)?, text(1)?);
        let (names, values) = (names.as_string::<i32>(), values.as_string::<i32>());
        for (name, value) in names.iter().flatten().zip(values.iter().flatten()) {
            if name == SCHEMA {
                settings.insert("schema".to_string(), value.to_string());
            }
            settings.insert(name.to_string(), value.to_string());
        }
    }
    Ok(settings)
}

pub fn close(state: &State, caller: &Caller) -> Result<(Vec<u8>, Option<AsciiMetadataValue>)> {
    let closed = caller.session.as_ref().is_some_and(|(id, _)| state.sessions.close(id));
    let status = if closed { CLOSED } else { NOT_CLOSEABLE };
    let cookie = closed.then(|| set_cookie("", true)).transpose()?;
    Ok((CloseSessionResult { status }.encode_to_vec(), cookie))
}
