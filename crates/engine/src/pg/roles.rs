//! Who there is, and what they may: one role, which may do everything.

use thalweg_pgcatalog::database::{OWNER_OID, Role};
use thalweg_pgcatalog::{Oid, Privilege};

use crate::session::Inner;

const OWNER: &str = "thalweg";

/// The role that the session runs as.
pub fn current(_session: &Inner) -> String {
    OWNER.into()
}

pub fn all(_session: &Inner) -> Vec<Role> {
    vec![Role {
        oid: OWNER_OID,
        name: OWNER.into(),
        superuser: true,
        can_login: true,
        member_of: vec![],
    }]
}

/// Whether a role may do something with an object. `user`: the session's role, if nobody else is
/// asked about.
pub fn may(
    _session: &Inner,
    _user: Option<&str>,
    _what: Privilege,
    _on: Oid,
    _privilege: &str,
) -> bool {
    true
}
