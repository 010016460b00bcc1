//! What is stored of a password: enough to check it, and not to pass for who has it.
//!
//! The text is PostgreSQL's: `SCRAM-SHA-256$4096:salt$stored key:server key`, in base64. The keys
//! are those of RFC 5802, section 3.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use thalweg_base::{Error, Result};

/// Rounds of the derivation of new verifiers: PostgreSQL's default.
pub const ITERATIONS: u32 = 4096;
/// A verifier made elsewhere may have more: each try at a password in clear costs so many.
const ITERATIONS_MAX: u32 = 1_000_000;
const SALT_BYTES: usize = 16;
const SALT_BYTES_MAX: usize = 64;
const PREFIX: &str = "SCRAM-SHA-256$";

type Key = [u8; digest::SHA256_OUTPUT_LEN];

#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub iterations: u32,
    pub salt: Vec<u8>,
    pub stored_key: Key,
    pub server_key: Key,
}

/// Never shown: with it a password can be guessed at.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(…)")
    }
}

impl Verifier {
    /// With a salt of its own.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn of(password: &str) -> Result<Verifier> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new()
            .fill(&mut salt)
            .map_err(|_| Error::internal("the system gave no random numbers"))?;
        Ok(Self::derive(password, &salt, ITERATIONS))
    }

    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Verifier {
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        let mut salted: Key = [0; _];
        let password = normalized(password);
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            iterations,
            salt,
            password.as_bytes(),
            &mut salted,
        );
        let salted = hmac::Key::new(hmac::HMAC_SHA256, &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let server_key = hmac::sign(&salted, b"Server Key");
        Verifier {
            iterations: iterations.get(),
            salt: salt.to_vec(),
            stored_key: key(digest::digest(&digest::SHA256, client_key.as_ref()).as_ref()),
            server_key: key(server_key.as_ref()),
        }
    }

    /// The text of a verifier; `None`: it is none, and so a password.
    pub fn parse(text: &str) -> Option<Verifier> {
        let (head, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let bytes = |text: &str| STANDARD.decode(text).ok();
        let iterations = iterations.parse().ok().filter(|n| (1..=ITERATIONS_MAX).contains(n))?;
        let salt = bytes(salt).filter(|s| (1..=SALT_BYTES_MAX).contains(&s.len()))?;
        Some(Verifier {
            iterations,
            salt,
            stored_key: bytes(stored_key)?.try_into().ok()?,
            server_key: bytes(server_key)?.try_into().ok()?,
        })
    }

    /// Whether a password is the one it was made of. Takes the same time either way.
    pub fn matches(&self, password: &str) -> bool {
        let other = Self::derive(password, &self.salt, self.iterations);
        let mut different = 0;
        for (a, b) in self.stored_key.iter().zip(other.stored_key) {
            different |= a ^ b;
        }
        std::hint::black_box(different) == 0
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verifier { iterations, salt, stored_key, server_key } = self;
        let text = |bytes: &[u8]| STANDARD.encode(bytes);
        write!(f, "{PREFIX}{iterations}:{}${}:{}", text(salt), text(stored_key), text(server_key))
    }
}

fn key(bytes: &[u8]) -> Key {
    let mut key = [0; _];
    key.copy_from_slice(bytes);
    key
}

/// By SASLprep (RFC 4013), so that a password is the same however it was typed. As PostgreSQL and
/// its clients do, what that refuses is taken as it is.
pub fn normalized(password: &str) -> String {
    stringprep::saslprep(password).map_or_else(|_| password.to_owned(), |text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_of_rfc_7677() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::derive("pencil", &salt, 4096);
        // As PostgreSQL writes it.
        assert_eq!(
            verifier.to_string(),
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
             WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
        assert!(verifier.matches("pencil") && !verifier.matches("Pencil"));
    }

    #[test]
    fn a_text_is_read_as_it_was_written() {
        let verifier = Verifier::of("größe").unwrap();
        assert_eq!(Verifier::parse(&verifier.to_string()), Some(verifier.clone()));
        assert_ne!(Verifier::of("größe").unwrap(), verifier);
        // The same letters, composed in another way.
        assert!(verifier.matches("gro\u{308}ße"));
        let text = verifier.to_string();
        for wrong in [
            "",
            "pencil",
            "SCRAM-SHA-256$",
            &text[..text.len() - 4],
            &text.replace("4096", "0"),
            &text.replace("4096", "100000000"),
            &text.replace("SHA-256", "SHA-1"),
        ] {
            assert_eq!(Verifier::parse(wrong), None, "{wrong}");
        }
        assert_eq!(format!("{verifier:?}"), "Verifier(…)");
    }
}
