//! Who there is, and what they may, as PostgreSQL's catalog shows it.

use thalweg_pgcatalog::database::Role;
use thalweg_pgcatalog::{Oid, Privilege as On};

use super::database::{find, schema_oid};
use crate::access::{Object, Privilege, Viewer};
use crate::session::Inner;

/// The role that the session runs as.
pub fn current(session: &Inner) -> String {
    session.identity.current().1.to_string()
}

pub fn all(session: &Inner) -> Vec<Role> {
    // If what is stored of them cannot be read, no statement of theirs begins.
    let Ok(access) = session.access() else { return vec![] };
    let role = |role: &crate::access::Role| Role {
        oid: role.id.0,
        name: role.name.clone(),
        superuser: role.superuser,
        can_login: role.login,
        member_of: role.member_of.keys().map(|id| id.0).collect(),
    };
    access.roles().map(|r| role(r)).collect()
}

/// Whether a role may do something with an object. `user`: the session's role, if nobody else is
/// asked about.
pub fn may(session: &Inner, user: Option<&str>, what: On, on: Oid, privilege: &str) -> bool {
    let viewer = match user {
        None => session.viewer().ok(),
        Some(name) => session.access().ok().and_then(|access| {
            let id = access.named(name)?.id;
            Viewer::of(&access, id)
        }),
    };
    let Some(viewer) = viewer else { return false };
    if viewer.is_superuser() {
        return true;
    }
    let snapshot = session.catalog.snapshot();
    let object = match what {
        On::Relation => find(&snapshot, on).map(|(schema, name)| Object::relation(schema, name)),
        On::Schema => {
            let name = snapshot.schemas.keys().find(|name| schema_oid(name) == on);
            name.map(|name| Object::Schema(name.clone()))
        }
        On::Database => Some(Object::Database),
        On::Other => None,
    };
    // What is nobody's may be looked at by all.
    let Some(object) = object else { return true };
    let mut words = privilege.split(',').filter_map(|p| p.split_whitespace().next());
    words.any(|word| match Privilege::named(word) {
        Some(privilege) => viewer.may(privilege, &object),
        None => matches!(object, Object::Database),
    })
}
