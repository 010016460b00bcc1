//! The client proves its password: SASL's messages around those of SCRAM.

use std::net::IpAddr;

use bytes::{Buf, Bytes};
use thalweg_base::{Error, Result};

use super::message::{self, Message};
use super::socket::{Input, Output};
use crate::auth::{Authenticator, SASL_MESSAGE_BYTES_MAX, User};

/// Who the client is, once it has proven it.
pub async fn prove(
    input: &mut Input,
    output: &mut Output,
    authenticator: &Authenticator,
    name: &str,
    from: Option<IpAddr>,
    encrypted: bool,
) -> Result<User> {
    let mut scram = authenticator.scram(name, from, encrypted)?;
    output.out.sasl_mechanisms(scram.mechanisms());
    flush(output).await?;
    let (mechanism, first) = initial(receive(input).await?)?;
    output.out.sasl(&scram.first(&mechanism, &first)?, false);
    flush(output).await?;
    let last = receive(input).await?;
    let (answer, user) = scram.last(&last)?;
    output.out.sasl(&answer, true);
    Ok(user)
}

async fn flush(output: &mut Output) -> Result<()> {
    output.flush().await.map_err(|e| Error::io("the client has left", e))
}

async fn receive(input: &mut Input) -> Result<Bytes> {
    loop {
        // Nobody who is not known yet makes the server hold more.
        match message::message(&mut input.buffer, SASL_MESSAGE_BYTES_MAX)? {
            Some(Message::Password(data)) => return Ok(data),
            Some(_) => return Err(malformed("a proof of the password is expected")),
            None => {}
        }
        if !input.fill().await {
            return Err(Error::user("the client has left").code("08006"));
        }
    }
}

/// The mechanism that the client has chosen, and its first message.
fn initial(mut data: Bytes) -> Result<(String, Bytes)> {
    let end = data.iter().position(|b| *b == 0).ok_or_else(|| malformed("no mechanism"))?;
    let mechanism = data.split_to(end);
    let mechanism = std::str::from_utf8(&mechanism).map_err(|_| malformed("no mechanism"))?;
    data.advance(1);
    let length = data.try_get_i32().map_err(|_| malformed("no first message"))?;
    if usize::try_from(length) != Ok(data.len()) {
        return Err(malformed("a first message of another length"));
    }
    Ok((mechanism.to_owned(), data))
}

fn malformed(what: &str) -> Error {
    Error::user(format!("malformed authentication: {what}")).code("08P01")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_is_taken_apart() {
        let all = Bytes::from_static(b"SCRAM-SHA-256\0\0\0\0\x03n,,");
        let expected = ("SCRAM-SHA-256".to_owned(), Bytes::from_static(b"n,,"));
        assert_eq!(initial(all).unwrap(), expected);
        for broken in [
            &b""[..],
            b"SCRAM",
            b"X\0",
            b"X\0\0\0\0\x04n,,",
            b"X\0\xff\xff\xff\xff",
            b"\xff\0\0\0\0\0",
        ] {
            assert_eq!(initial(Bytes::from_static(broken)).unwrap_err().sqlstate(), "08P01");
        }
    }
}
