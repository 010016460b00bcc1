//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), as PostgreSQL's clients speak it: a
//! state machine over texts. It knows no socket, no clock, no roles and no random numbers.
//!
//! ```text
//!   client-first   n,,n=,r=<client's nonce>
//!   server-first   r=<client's nonce><ours>,s=<salt>,i=<rounds>
//!   client-final   c=<binding>,r=<both nonces>,p=<proof>
//!   server-final   v=<signature>
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac};
use thalweg_engine::access::Verifier;

/// Of a message of the client: nothing in one is long but its nonce.
pub const MESSAGE_BYTES_MAX: usize = 2048;

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not speak the protocol.
    Message(&'static str),
    /// It does not know the password.
    Proof,
}

use Refusal::Message;

/// One exchange, up to the client's proof.
pub struct Exchange {
    verifier: Verifier,
    /// Ours.
    nonce: String,
    /// What TLS is bound to, if the server offers that: `tls-server-end-point` of RFC 5929.
    binding: Option<Vec<u8>>,
    begun: Option<Begun>,
}

struct Begun {
    /// What client-final must repeat.
    binding: Vec<u8>,
    nonce: String,
    /// What both sides sign, so far.
    messages: String,
}

impl Exchange {
    /// `nonce`: random, printable, without commas.
    pub fn new(verifier: Verifier, nonce: String, binding: Option<Vec<u8>>) -> Exchange {
        Exchange { verifier, nonce, binding, begun: None }
    }

    /// Server-first. `plus`: by the mechanism that binds to TLS.
    pub fn client_first(&mut self, message: &[u8], plus: bool) -> Result<String, Refusal> {
        if self.begun.is_some() {
            return Err(Message("a second first message"));
        }
        let message = text(message)?;
        let (flag, rest) = message.split_once(',').ok_or(Message("no binding flag"))?;
        let (authzid, bare) = rest.split_once(',').ok_or(Message("no authorization identity"))?;
        if !authzid.is_empty() {
            return Err(Message("an authorization identity is not supported"));
        }
        let mut binding = message.as_bytes()[..message.len() - bare.len()].to_vec();
        match (flag, &self.binding) {
            ("n", _) if !plus => {}
            ("y", None) if !plus => {}
            // It was told otherwise: somebody between has changed the list.
            ("y", Some(_)) => return Err(Message("the offer of channel binding was suppressed")),
            ("p=tls-server-end-point", Some(bytes)) if plus => binding.extend(bytes),
            _ => return Err(Message("this channel binding is not supported")),
        }
        // The name is the one that the client gave before: as in PostgreSQL, this one is ignored.
        let (name, rest) = bare.split_once(',').ok_or(Message("no nonce"))?;
        if !name.starts_with("n=") {
            return Err(Message("an extension that must be understood"));
        }
        let nonce = rest.split(',').next().and_then(|r| r.strip_prefix("r="));
        let nonce = nonce.ok_or(Message("no nonce"))?;
        if nonce.is_empty() || !nonce.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Message("a nonce that cannot be printed"));
        }
        let nonce = format!("{nonce}{}", self.nonce);
        let salt = STANDARD.encode(&self.verifier.salt);
        let first = format!("r={nonce},s={salt},i={}", self.verifier.iterations);
        let messages = format!("{bare},{first}");
        self.begun = Some(Begun { binding, nonce, messages });
        Ok(first)
    }

    /// Server-final.
    pub fn client_final(self, message: &[u8]) -> Result<String, Refusal> {
        let begun = self.begun.ok_or(Message("no first message"))?;
        let message = text(message)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(Message("no proof"))?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|c| c.strip_prefix("c="));
        let binding = binding.and_then(|c| STANDARD.decode(c).ok());
        if binding.ok_or(Message("no channel binding"))? != begun.binding {
            return Err(Message("another channel binding than at first"));
        }
        if attributes.next().and_then(|r| r.strip_prefix("r=")) != Some(&begun.nonce) {
            return Err(Message("another nonce than at first"));
        }
        let proof = STANDARD.decode(proof).map_err(|_| Message("a proof that is not base64"))?;
        if proof.len() != digest::SHA256_OUTPUT_LEN {
            return Err(Message("a proof of another length"));
        }
        let signed = format!("{},{without_proof}", begun.messages);
        let signature = sign(&self.verifier.stored_key, &signed);
        let client_key: Vec<u8> =
            proof.iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        if !same(stored_key.as_ref(), &self.verifier.stored_key) {
            return Err(Refusal::Proof);
        }
        let signature = sign(&self.verifier.server_key, &signed);
        Ok(format!("v={}", STANDARD.encode(signature.as_ref())))
    }
}

fn text(message: &[u8]) -> Result<&str, Refusal> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(Message("a message that is too long"));
    }
    std::str::from_utf8(message).map_err(|_| Message("a message that is no text"))
}

fn sign(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// In a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    let different = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && std::hint::black_box(different) == 0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use thalweg_engine::access::normalized;

    /// A client's side, for tests.
    pub(crate) fn answer(
        password: &str,
        first_bare: &str,
        gs2: &[u8],
        server_first: &str,
    ) -> String {
        let field = |name: &str| {
            server_first.split(',').find_map(|f| f.strip_prefix(name)).unwrap().to_owned()
        };
        let salt = STANDARD.decode(field("s=")).unwrap();
        let rounds = std::num::NonZeroU32::new(field("i=").parse().unwrap()).unwrap();
        let mut salted = [0; 32];
        ring::pbkdf2::derive(
            ring::pbkdf2::PBKDF2_HMAC_SHA256,
            rounds,
            &salt,
            normalized(password).as_bytes(),
            &mut salted,
        );
        let client_key = sign(&salted, "Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let without_proof = format!("c={},r={}", STANDARD.encode(gs2), field("r="));
        let signed = format!("{first_bare},{server_first},{without_proof}");
        let signature = sign(stored_key.as_ref(), &signed);
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        format!("{without_proof},p={}", STANDARD.encode(proof))
    }

    fn pencil() -> Verifier {
        Verifier::derive("pencil", &STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(), 4096)
    }

    fn exchange(binding: Option<&[u8]>) -> Exchange {
        let nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        Exchange::new(pencil(), nonce.into(), binding.map(<[u8]>::to_vec))
    }

    const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";

    #[test]
    fn the_exchange_of_rfc_7677() {
        let mut exchange = exchange(None);
        assert_eq!(
            exchange.client_first(FIRST, false).unwrap(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(
            exchange.client_final(last.as_bytes()).unwrap(),
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }

    #[test]
    fn a_wrong_password_has_no_proof() {
        for (password, expected) in [("pencil", true), ("Pencil", false), ("", false)] {
            let mut exchange = exchange(None);
            let first = exchange.client_first(FIRST, false).unwrap();
            let last = answer(password, "n=user,r=rOprNGfwEbeRWgbNEkqO", b"n,,", &first);
            let result = exchange.client_final(last.as_bytes());
            assert_eq!(result.is_ok(), expected, "{password}");
            assert!(expected || result == Err(Refusal::Proof));
        }
    }

    #[test]
    fn what_is_bound_to_tls_is_bound_to_this_one() {
        let gs2: &[u8] = b"p=tls-server-end-point,,";
        let first = [gs2, b"n=,r=abc"].concat();
        for (seen, expected) in [(&b"hash"[..], true), (b"other", false)] {
            let mut exchange = exchange(Some(b"hash"));
            let server_first = exchange.client_first(&first, true).unwrap();
            let last = answer("pencil", "n=,r=abc", &[gs2, seen].concat(), &server_first);
            assert_eq!(exchange.client_final(last.as_bytes()).is_ok(), expected);
        }
        for (message, plus, binding) in [
            ("y,,n=,r=abc", false, Some(&b"hash"[..])),
            ("n,,n=,r=abc", true, Some(b"hash")),
            ("p=tls-server-end-point,,n=,r=abc", false, Some(b"hash")),
            ("p=tls-server-end-point,,n=,r=abc", true, None),
            ("p=tls-unique,,n=,r=abc", true, Some(b"hash")),
        ] {
            let refused = exchange(binding).client_first(message.as_bytes(), plus);
            assert!(matches!(refused, Err(Refusal::Message(_))), "{message} {plus}");
        }
        assert!(exchange(Some(b"hash")).client_first(b"n,,n=,r=abc", false).is_ok());
        assert!(exchange(None).client_first(b"y,,n=,r=abc", false).is_ok());
    }

    #[test]
    fn what_is_no_scram_is_refused() {
        let long = vec![b'a'; MESSAGE_BYTES_MAX + 1];
        for message in [
            &b""[..],
            b"n",
            b"n,",
            b"n,,",
            b"n,,n=user",
            b"n,,n=user,r=",
            b"n,,n=user,r=a b",
            b"n,,n=user,r=\xc3\xa4",
            b"n,,m=x,n=user,r=abc",
            b"n,a=other,n=user,r=abc",
            b"n,,n=user,x=abc",
            b"\xff,,n=user,r=abc",
            &long,
        ] {
            assert!(exchange(None).client_first(message, false).is_err(), "{message:?}");
        }
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        for message in [
            String::new(),
            format!("c=biws,r={nonce}"),
            format!("c=biws,r=x{nonce},p={proof}"),
            format!("c=biws,r=rOprNGfwEbeRWgbNEkqO,p={proof}"),
            format!("c=eSws,r={nonce},p={proof}"),
            format!("c=???,r={nonce},p={proof}"),
            format!("c=biws,r={nonce},p=AAAA"),
            format!("c=biws,r={nonce},p=???"),
            format!("c=biws,r={nonce},x=1,p={proof}"),
        ] {
            let mut exchange = exchange(None);
            exchange.client_first(FIRST, false).unwrap();
            assert!(exchange.client_final(message.as_bytes()).is_err(), "{message}");
        }
        assert_eq!(
            exchange(None).client_final(b"c=biws,r=a,p=AAAA"),
            Err(Message("no first message"))
        );
    }
}
