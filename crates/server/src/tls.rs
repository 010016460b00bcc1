//! Certificates: PEM files into what both protocols are encrypted with.

use std::path::Path;
use std::sync::Arc;

use ring::digest;
use thalweg_base::{Error, Result};
use tokio_rustls::rustls;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Of a certificate's chain and of a key: they are a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a server shows of itself.
pub struct Tls {
    pub config: Arc<ServerConfig>,
    /// Of its certificate, for SCRAM that binds to it; `None`: it was signed in a way for which
    /// that is not defined.
    pub end_point: Option<Vec<u8>>,
}

/// The chain, the server's own certificate first, and its key.
///
/// # Errors
/// A file cannot be read or is no PEM, or the key is not that of the certificate.
pub fn load(certificate: &Path, key: &Path) -> Result<Tls> {
    let chain = read(certificate, "certificate")?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&chain)
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| wrong(certificate, &format!("it is no PEM file: {e}")))?;
    if chain.is_empty() {
        return Err(wrong(certificate, "there is no certificate in it")
            .hint("it begins with -----BEGIN CERTIFICATE-----"));
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key, "key")?).map_err(|e| match e {
        pem::Error::NoItemsFound => wrong(key, "there is no private key in it").hint(
            "it begins with -----BEGIN PRIVATE KEY-----; one that is encrypted cannot be used",
        ),
        e => wrong(key, &format!("it is no PEM file: {e}")),
    })?;
    let end_point = end_point(&chain[0]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::internal(format!("TLS cannot be set up: {e}")))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => wrong(
                key,
                &format!("it is not the key of the certificate in {}", certificate.display()),
            )
            .hint("the server's own certificate comes first in its file"),
            e => wrong(certificate, &format!("it cannot be used with its key: {e}")),
        })?;
    // Flight's clients speak HTTP/2; those of PostgreSQL name no protocol, or their own.
    config.alpn_protocols = vec![b"h2".to_vec(), b"postgresql".to_vec()];
    Ok(Tls { config: Arc::new(config), end_point })
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>> {
    let cannot = |e| Error::io(format!("cannot read the {what} {}", path.display()), e);
    let bytes = std::fs::metadata(path).map_err(cannot)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(wrong(path, &format!("it is too large for a {what}")));
    }
    std::fs::read(path).map_err(cannot)
}

fn wrong(path: &Path, what: &str) -> Error {
    Error::user(format!("{}: {what}", path.display()))
}

/// `tls-server-end-point` of RFC 5929: the certificate's hash, by the function that its signature
/// uses; SHA-256 in place of those that are too weak.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // Certificate ::= SEQUENCE { what is signed SEQUENCE, algorithm SEQUENCE { OID, … }, … }
    let (certificate_, _) = der(certificate, SEQUENCE)?;
    let (_, rest) = der(certificate_, SEQUENCE)?;
    let (algorithm, _) = der(rest, SEQUENCE)?;
    let (oid, _) = der(algorithm, OID)?;
    let hash = match oid {
        // ecdsa-with-SHA256, sha256WithRSAEncryption; SHA-1 and MD5 with RSA.
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]
        | [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b | 0x05 | 0x04] => &digest::SHA256,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03]
        | [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c] => &digest::SHA384,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04]
        | [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d] => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;

/// The content of the first element, which has that tag, and what is behind it.
fn der(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [first, length, rest @ ..] = bytes else { return None };
    if *first != tag {
        return None;
    }
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
            (digits.iter().fold(0, |n, d| n << 8 | usize::from(*d)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(certificate: &str, key: &str) -> (tempfile::TempDir, Result<Tls>) {
        let folder = tempfile::tempdir().unwrap();
        let (c, k) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
        std::fs::write(&c, certificate).unwrap();
        std::fs::write(&k, key).unwrap();
        let loaded = load(&c, &k);
        (folder, loaded)
    }

    fn pair() -> (String, String, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem(), made.cert.der().to_vec())
    }

    #[test]
    fn a_certificate_and_its_key() {
        let (certificate, key, der) = pair();
        let (_folder, tls) = files(&certificate, &key);
        // rcgen signs with ECDSA and SHA-256.
        let hash = digest::digest(&digest::SHA256, &der);
        assert_eq!(tls.unwrap().end_point.as_deref(), Some(hash.as_ref()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let (certificate, key, _) = pair();
        let (_, other, _) = pair();
        for (c, k, message) in [
            (certificate.as_str(), other.as_str(), "it is not the key of the certificate"),
            ("", &key, "there is no certificate in it"),
            (&key, &certificate, "there is no certificate in it"),
            (&certificate, "", "there is no private key in it"),
            (
                &certificate,
                "-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----\n",
                "k.pem: ",
            ),
        ] {
            let error = files(c, k).1.err().expect(message);
            assert!(error.message().contains(message), "{error}");
            assert!(!error.message().contains(&key), "{error}");
        }
        let missing = load(Path::new("/nosuch/c.pem"), Path::new("/nosuch/k.pem")).err().unwrap();
        assert!(missing.message().contains("cannot read the certificate /nosuch/c.pem"));
    }

    #[test]
    fn what_is_no_certificate_has_no_end_point() {
        let (.., der) = pair();
        for length in 0..der.len().min(400) {
            let _ = end_point(&der[..length]);
        }
        assert_eq!(end_point(b"\x30\x84\xff\xff\xff\xff"), None);
        assert_eq!(end_point(b""), None);
    }
}
