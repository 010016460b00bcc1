//! Messages of clients, from bytes. Every length is checked against what is there: a client can
//! send anything, before it has said who it is.

use bytes::{Buf, Bytes, BytesMut};
use thalweg_base::{Error, Result};

/// What a connection begins with.
#[derive(Debug, PartialEq)]
pub enum Opening {
    /// It asks for TLS.
    Tls,
    /// It asks for encryption by GSSAPI.
    Gss,
    Cancel {
        process: i32,
        secret: i32,
    },
    Startup {
        minor: u16,
        parameters: Vec<(String, String)>,
    },
}

#[derive(Debug, PartialEq)]
pub enum Message {
    Query(String),
    Parse {
        name: String,
        sql: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe(Subject),
    Execute {
        portal: String,
        rows_max: usize,
    },
    Close(Subject),
    Flush,
    Sync,
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
    /// A password or a step of SASL: what it is depends on what was asked for.
    Password(Bytes),
    Terminate,
}

#[derive(Debug, PartialEq)]
pub struct Bind {
    pub portal: String,
    pub statement: String,
    pub formats: Vec<i16>,
    pub values: Vec<Option<Bytes>>,
    pub result_formats: Vec<i16>,
}

/// What is described or closed.
#[derive(Debug, PartialEq)]
pub enum Subject {
    Statement(String),
    Portal(String),
}

const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
const CANCEL: u32 = 80_877_102;
/// Of the first message, which comes from anybody; PostgreSQL's limit.
const OPENING_BYTES_MAX: usize = 10_000;

/// Takes the first message off the front; `None`: it is not all there.
pub fn opening(buffer: &mut BytesMut) -> Result<Option<Opening>> {
    let Some(length) = buffer.get(..4) else { return Ok(None) };
    let length = u32::from_be_bytes(length.try_into().map_err(|_| broken("its length"))?) as usize;
    if !(8..=OPENING_BYTES_MAX).contains(&length) {
        return Err(Error::user(format!(
            "the first message is said to have {length} bytes: this is no PostgreSQL client"
        ))
        .code("08P01"));
    }
    if buffer.len() < length {
        return Ok(None);
    }
    let mut body = Body(buffer.split_to(length).freeze());
    body.u32()?;
    let code = body.u32()?;
    let opening = match code {
        TLS => Opening::Tls,
        GSS => Opening::Gss,
        CANCEL => Opening::Cancel { process: body.u32()? as i32, secret: body.u32()? as i32 },
        _ if code >> 16 == 3 => {
            let mut parameters = vec![];
            loop {
                let name = body.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, body.text()?));
            }
            Opening::Startup { minor: (code & 0xffff) as u16, parameters }
        }
        _ => {
            return Err(Error::unsupported(format!(
                "protocol {}.{} is not supported",
                code >> 16,
                code & 0xffff
            ))
            .code("0A000")
            .hint("connect with protocol 3.0"));
        }
    };
    body.end()?;
    Ok(Some(opening))
}

/// Takes a message off the front; `None`: it is not all there.
///
/// # Errors
/// It is too long or malformed: nothing after it can be trusted.
pub fn message(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Message>> {
    let Some(&[kind, a, b, c, d]) = buffer.first_chunk::<5>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length < 4 {
        return Err(broken("its length"));
    }
    if length > bytes_max {
        return Err(Error::resources(format!(
            "a message of {length} bytes is longer than the {bytes_max} that one may have"
        ))
        .code("54000")
        .hint("raise the server's limit on messages, or send data by COPY, in pieces"));
    }
    if buffer.len() <= length {
        return Ok(None);
    }
    let mut body = Body(buffer.split_to(1 + length).freeze());
    body.0.advance(5);
    let message = match kind {
        b'Q' => Message::Query(body.text()?),
        b'P' => {
            Message::Parse { name: body.text()?, sql: body.text()?, types: body.list(Body::u32)? }
        }
        b'B' => Message::Bind(Bind {
            portal: body.text()?,
            statement: body.text()?,
            formats: body.list(Body::i16)?,
            values: body.list(Body::value)?,
            result_formats: body.list(Body::i16)?,
        }),
        b'D' => Message::Describe(body.subject()?),
        b'E' => Message::Execute {
            portal: body.text()?,
            // 0 and less: all.
            rows_max: usize::try_from(body.u32()? as i32).unwrap_or(0),
        },
        b'C' => Message::Close(body.subject()?),
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'd' => Message::CopyData(body.rest()),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(body.text()?),
        b'p' => Message::Password(body.rest()),
        b'X' => Message::Terminate,
        _ => {
            return Err(Error::user(format!("there is no message of type {:?}", char::from(kind)))
                .code("08P01"));
        }
    };
    body.end()?;
    Ok(Some(message))
}

/// What is left of one message.
pub struct Body(pub Bytes);

impl Body {
    fn take(&mut self, count: usize) -> Result<Bytes> {
        if count > self.0.len() {
            return Err(broken("it ends too early"));
        }
        Ok(self.0.split_to(count))
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn i16(&mut self) -> Result<i16> {
        Ok(self.take(2)?.get_i16())
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(self.take(4)?.get_u32())
    }

    /// Bytes with their number before them; −1 is NULL.
    pub fn value(&mut self) -> Result<Option<Bytes>> {
        match self.u32()? as i32 {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| broken("a length is negative"))?;
                self.take(length).map(Some)
            }
        }
    }

    /// Up to a zero.
    pub fn text(&mut self) -> Result<String> {
        let end = self.0.iter().position(|b| *b == 0).ok_or_else(|| broken("a text has no end"))?;
        let text = self.take(end)?;
        self.0.advance(1);
        match std::str::from_utf8(&text) {
            Ok(text) => Ok(text.to_string()),
            Err(_) => Err(Error::user("a text of the client is no UTF-8")
                .code("22021")
                .hint("SET client_encoding TO 'UTF8': there is no other")),
        }
    }

    fn list<T>(&mut self, item: impl Fn(&mut Body) -> Result<T>) -> Result<Vec<T>> {
        // Grows as items are there, not as the client says that there are.
        let count = self.i16()? as u16;
        let mut items = vec![];
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn subject(&mut self) -> Result<Subject> {
        match self.u8()? {
            b'S' => Ok(Subject::Statement(self.text()?)),
            b'P' => Ok(Subject::Portal(self.text()?)),
            _ => Err(broken("it is about neither a statement nor a portal")),
        }
    }

    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }

    pub fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(broken("it goes on after its end")) }
    }
}

fn broken(how: &str) -> Error {
    Error::user(format!("a message of the client is broken: {how}")).code("08P01")
}
