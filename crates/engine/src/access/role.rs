//! Roles: who logs in, and what privileges are granted to.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ring::digest;
use thalweg_base::limits::NAME_BYTES_MAX;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::properties::take_quoted;

pub use thalweg_base::RoleId;

use super::verifier::Verifier;

/// The role that is always there and may do everything: that of sessions inside the process.
pub const SUPERUSER: &str = "thalweg";
pub const OWNER_ID: RoleId = RoleId(10);

/// The first number of a role that somebody made.
pub const FIRST_ID: u32 = 16_384;

// What is of the whole server, by PostgreSQL's names and numbers.
pub const PG_MONITOR: RoleId = RoleId(3373);
pub const PG_SIGNAL_BACKEND: RoleId = RoleId(4200);
pub const PG_READ_SERVER_FILES: RoleId = RoleId(4569);
pub const PG_WRITE_SERVER_FILES: RoleId = RoleId(4570);
pub const PG_READ_ALL_DATA: RoleId = RoleId(6181);
pub const PG_WRITE_ALL_DATA: RoleId = RoleId(6182);
pub const PG_MAINTAIN: RoleId = RoleId(6337);

const PREDEFINED: [(RoleId, &str); 8] = [
    (OWNER_ID, SUPERUSER),
    (PG_MONITOR, "pg_monitor"),
    (PG_SIGNAL_BACKEND, "pg_signal_backend"),
    (PG_READ_SERVER_FILES, "pg_read_server_files"),
    (PG_WRITE_SERVER_FILES, "pg_write_server_files"),
    (PG_READ_ALL_DATA, "pg_read_all_data"),
    (PG_WRITE_ALL_DATA, "pg_write_all_data"),
    (PG_MAINTAIN, "pg_maintain"),
];

/// Tokens of one role.
pub const TOKENS_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub id: RoleId,
    pub name: String,
    pub login: bool,
    pub superuser: bool,
    /// Connections that it may have at a time.
    pub connections_max: Option<u32>,
    /// When its password ends, in milliseconds since 1970.
    pub valid_until_ms: Option<u64>,
    pub verifier: Option<Verifier>,
    /// Where its sessions begin.
    pub workload: Option<String>,
    pub tokens: Vec<Token>,
    /// Roles whose rights it has; true: it may grant them on.
    pub member_of: BTreeMap<RoleId, bool>,
}

/// What a program logs in with in place of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub name: String,
    /// SHA-256 of the token, in hexadecimal digits.
    pub hash: String,
    pub valid_until_ms: Option<u64>,
}

/// What is stored of a token. One is random and long: no salt, no rounds.
pub fn token_hash(token: &str) -> String {
    to_hex(digest::digest(&digest::SHA256, token.as_bytes()).as_ref())
}

pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub fn predefined() -> impl Iterator<Item = Role> {
    PREDEFINED.iter().map(|(id, name)| Role::new(*id, name))
}

impl Role {
    pub fn new(id: RoleId, name: &str) -> Role {
        let is_owner = id == OWNER_ID;
        Role {
            id,
            name: name.into(),
            login: is_owner,
            superuser: is_owner,
            connections_max: None,
            valid_until_ms: None,
            verifier: None,
            workload: None,
            tokens: vec![],
            member_of: BTreeMap::new(),
        }
    }

    /// Whether it is always there.
    pub fn is_predefined(&self) -> bool {
        self.id.0 < FIRST_ID
    }

    /// As [`Role::parse`] reads it.
    pub fn text(&self) -> String {
        let mut text = format!("1 name={}", quoted(&self.name));
        if self.login {
            text += " login";
        }
        if self.superuser {
            text += " superuser";
        }
        if let Some(n) = self.connections_max {
            text += &format!(" connections={n}");
        }
        if let Some(ms) = self.valid_until_ms {
            text += &format!(" until={ms}");
        }
        if let Some(verifier) = &self.verifier {
            text += &format!(" verifier={}", quoted(&verifier.to_string()));
        }
        if let Some(workload) = &self.workload {
            text += &format!(" workload={}", quoted(workload));
        }
        for (id, admin) in &self.member_of {
            text += &format!(" {}={}", if *admin { "admin" } else { "in" }, id.0);
        }
        for Token { name, hash, valid_until_ms } in &self.tokens {
            let until = valid_until_ms.map_or(String::new(), |ms| format!(":{ms}"));
            text += &format!(" token={}:{hash}{until}", quoted(name));
        }
        text
    }

    /// `None`: it is damaged, or of a later version.
    pub fn parse(id: RoleId, text: &str) -> Option<Role> {
        let mut role = Role { login: false, superuser: false, ..Role::new(id, "") };
        let mut rest = text.strip_prefix("1 ")?;
        while !rest.is_empty() {
            let end = rest.find([' ', '=']).unwrap_or(rest.len());
            let key = &rest[..end];
            rest = &rest[end..];
            let mut value = String::new();
            if let Some(after) = rest.strip_prefix('=') {
                rest = after;
                if rest.starts_with('"') {
                    (value, rest) = take_quoted(rest)?;
                }
                let end = rest.find(' ').unwrap_or(rest.len());
                let more = &rest[..end];
                rest = &rest[end..];
                if key == "token" {
                    let mut parts = more.strip_prefix(':')?.split(':');
                    let hash = parts.next()?.to_owned();
                    let valid_until_ms = parts.next().map(str::parse).transpose().ok()?;
                    role.tokens.push(Token { name: value.clone(), hash, valid_until_ms });
                } else {
                    value += more;
                }
            }
            rest = rest.trim_start_matches(' ');
            match key {
                "name" => role.name = value,
                "login" => role.login = true,
                "superuser" => role.superuser = true,
                "connections" => role.connections_max = Some(value.parse().ok()?),
                "until" => role.valid_until_ms = Some(value.parse().ok()?),
                "verifier" => role.verifier = Some(Verifier::parse(&value)?),
                "workload" => role.workload = Some(value),
                "in" | "admin" => {
                    role.member_of.insert(RoleId(value.parse().ok()?), key == "admin");
                }
                "token" => {}
                _ => return None,
            }
        }
        (!role.name.is_empty()).then_some(role)
    }
}

/// Refuses names that mean something else, or that nobody could type.
pub fn check_name(name: &str) -> Result<()> {
    let wrong = |what: String| Err(Error::user(what).code("42939"));
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::user(format!("the name of a role has 1 to {NAME_BYTES_MAX} bytes"))
            .code("42602"));
    }
    if name.starts_with("pg_") {
        return wrong(format!("role name {} is reserved: it begins with pg_", quoted(name)));
    }
    if ["public", "none", "current_user", "session_user", "current_role"].contains(&name) {
        return wrong(format!("role name {} is reserved", quoted(name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_as_it_was_written() {
        let mut role = Role::new(RoleId(FIRST_ID), "a \"b\" c=d");
        assert_eq!(Role::parse(role.id, &role.text()), Some(role.clone()));
        role.login = true;
        role.superuser = true;
        role.connections_max = Some(3);
        role.valid_until_ms = Some(1_700_000_000_000);
        role.verifier = Some(Verifier::derive("x", b"salt", 1));
        role.workload = Some("night shift".into());
        role.member_of = BTreeMap::from([(PG_MONITOR, false), (RoleId(16_390), true)]);
        role.tokens = vec![
            Token { name: "ci".into(), hash: token_hash("a"), valid_until_ms: None },
            Token { name: "the \" other".into(), hash: token_hash("b"), valid_until_ms: Some(7) },
        ];
        assert_eq!(Role::parse(role.id, &role.text()), Some(role.clone()));
        for damaged in
            ["", "2 name=\"a\"", "1 login", "1 name=\"a", "1 name=\"a\" wings", "1 name=\"a\" in=x"]
        {
            assert_eq!(Role::parse(role.id, damaged), None, "{damaged}");
        }
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        // Of FIPS 180-2, appendix B.1.
        assert_eq!(
            token_hash("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
