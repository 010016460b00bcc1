//! Who a call is from, and which session it belongs to.
//!
//! ```text
//! authorization: Basic …     a user's name and password; of a handshake: a token comes back
//! authorization: Bearer …    a token of a handshake, which is a session, or one of the user's own
//! cookie: arrow_flight_session_id=…   a session that SetSessionOptions has opened
//! x-session-id: …                     a session by a name that the client has made up
//! ```

use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::{HandshakeRequest, HandshakeResponse};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use futures::{Stream, stream};
use thalweg_base::{Error, Result};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::accept::Peer;
use super::service::State;
use super::sessions::{Client, SessionId};
use super::status::malformed;
use crate::auth::User;
use crate::config::Authentication;

/// Go's client sends it without padding, others with.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const AUTHORIZATION: &str = "authorization";
const SESSION_HEADER: &str = "x-session-id";
pub const SESSION_COOKIE: &str = "arrow_flight_session_id";

/// Who calls without saying so, where nobody need.
const ANYBODY: &str = "thalweg";

pub type HandshakeStream =
    Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send + 'static>>;

/// Who a call is from.
pub struct Caller {
    pub user: User,
    /// What lasts longer than the call.
    pub session: Option<(SessionId, Arc<Client>)>,
}

impl Caller {
    /// # Errors
    /// It does not say who it is, or it is not true.
    pub async fn of(
        state: &State,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<Caller> {
        let authenticator = &state.context.authenticator;
        let from = extensions.get::<Peer>().and_then(|peer| peer.from);
        let mut session = None;
        let user = match credentials(metadata)? {
            Some(Credentials::Basic(name, password)) => {
                state.check_password(name, password, from).await?
            }
            Some(Credentials::Bearer(token)) => match state.sessions.of_token(&token)? {
                Some(client) => {
                    let user = client.user.clone();
                    session = Some((SessionId::token(&token), client));
                    user
                }
                None => authenticator.token(&token, from)?,
            },
            None if authenticator.mode() == Authentication::Trust => {
                authenticator.trusted(ANYBODY, from)?
            }
            None => {
                return Err(Error::user("this server has to know who you are").code("28000").hint(
                    "connect with user and password, or send a token as `authorization: Bearer …`",
                ));
            }
        };
        if let Some(peer) = extensions.get::<Peer>() {
            peer.let_in();
        }
        if let Some(name) = metadata.get(SESSION_HEADER) {
            let name = name.to_str().map_err(|e| malformed(SESSION_HEADER, e))?;
            let client = state.sessions.named(&user, name)?;
            session = Some((SessionId::named(&user, name), client));
        } else if let Some(name) = cookie(metadata) {
            let client = state.sessions.of_cookie(&user, &name).ok_or_else(|| {
                Error::user("the session has ended: its cookie is no longer known")
                    .code("08003")
                    .hint("leave the cookie out, or connect again")
            })?;
            session = Some((SessionId::cookie(&user, &name), client));
        }
        Ok(Caller { user, session })
    }
}

/// `Handshake`: user and password for a token.
pub async fn handshake(
    state: &State,
    request: Request<Streaming<HandshakeRequest>>,
) -> Result<Response<HandshakeStream>> {
    let user = match credentials(request.metadata())? {
        Some(Credentials::Basic(name, password)) => {
            let from = request.extensions().get::<Peer>().and_then(|peer| peer.from);
            state.check_password(name, password, from).await?
        }
        _ => {
            return Err(Error::user("a handshake takes a user's name and password")
                .code("28000")
                .hint("send them as `authorization: Basic …`"));
        }
    };
    if let Some(peer) = request.extensions().get::<Peer>() {
        peer.let_in();
    }
    let token = state.sessions.log_in(user)?;
    let value = AsciiMetadataValue::try_from(format!("Bearer {token}"))
        .map_err(|e| Error::internal(format!("a token is no header: {e}")))?;
    let answer = HandshakeResponse { protocol_version: 0, payload: token.into() };
    let mut response: Response<HandshakeStream> =
        Response::new(Box::pin(stream::iter([Ok(answer)])));
    response.metadata_mut().insert(AUTHORIZATION, value);
    Ok(response)
}

enum Credentials {
    Basic(String, String),
    Bearer(String),
}

/// `None`: there are none.
fn credentials(metadata: &MetadataMap) -> Result<Option<Credentials>> {
    let Some(value) = metadata.get(AUTHORIZATION) else { return Ok(None) };
    // What is in it is not repeated in errors.
    let unreadable = || {
        Error::user("the header `authorization` cannot be read")
            .code("28000")
            .hint("it is `Basic` and `user:password` in Base64, or `Bearer` and a token")
    };
    let value = value.to_str().map_err(|_| unreadable())?;
    let (scheme, rest) = value.split_once(' ').ok_or_else(unreadable)?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Some(Credentials::Bearer(rest.to_string())));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(unreadable());
    }
    let decoded = BASE64.decode(rest).map_err(|_| unreadable())?;
    let decoded = String::from_utf8(decoded).map_err(|_| unreadable())?;
    let (user, password) = decoded.split_once(':').ok_or_else(unreadable)?;
    Ok(Some(Credentials::Basic(user.to_string(), password.to_string())))
}

fn cookie(metadata: &MetadataMap) -> Option<String> {
    let headers = metadata.get_all("cookie");
    let mut pairs = headers.iter().filter_map(|h| h.to_str().ok()).flat_map(|h| h.split(';'));
    pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        let value = value.trim_matches('"');
        (name == SESSION_COOKIE && !value.is_empty()).then(|| value.to_string())
    })
}

/// The header by which a client that keeps cookies comes back to its session, or leaves it.
pub fn set_cookie(name: &str, ends: bool) -> Result<AsciiMetadataValue> {
    let age = if ends { "; Max-Age=0" } else { "" };
    AsciiMetadataValue::try_from(format!("{SESSION_COOKIE}={name}; Path=/{age}"))
        .map_err(|e| Error::internal(format!("a session's name is no cookie: {e}")))
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    fn metadata(name: &'static str, value: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert(name, value.parse().unwrap());
        metadata
    }

    #[test]
    fn passwords_may_have_colons() {
        let header = format!("basic {}", BASE64_STANDARD.encode("ada:one:two"));
        match credentials(&metadata(AUTHORIZATION, &header)).unwrap() {
            Some(Credentials::Basic(user, password)) => {
                assert_eq!((user.as_str(), password.as_str()), ("ada", "one:two"));
            }
            _ => panic!("no credentials"),
        }
    }

    #[test]
    fn errors_do_not_show_what_was_sent() {
        for value in ["Basic secret", "secret", "Digest secret", "Basic c2VjcmV0"] {
            let error = credentials(&metadata(AUTHORIZATION, value)).err().unwrap();
            assert_eq!(error.sqlstate(), "28000");
            assert!(!format!("{error:#}").contains("secret"), "{error}");
        }
    }

    #[test]
    fn one_cookie_of_several() {
        let header = format!("a=b; {SESSION_COOKIE}=\"xyz\"; c=d");
        assert_eq!(cookie(&metadata("cookie", &header)).as_deref(), Some("xyz"));
        assert_eq!(cookie(&metadata("cookie", "a=b")), None);
        assert_eq!(cookie(&metadata("cookie", &format!("{SESSION_COOKIE}="))), None);
    }
}
