//! Roles and grants as properties of the database.
//!
//! ```text
//!   roles                       = 1 next=16386
//!   role secret                 = 1 5e884898da…       of salts for names without a password
//!   role 16385                  = 1 name="ann" login verifier="SCRAM-SHA-256$…" in=3373
//!   of "public" owner           = 1 16385             of "public" grant 16385     = 1 USAGE CREATE*
//!   of "public"."t" owner       = 1 16385             of "public"."t" grant public = 1 SELECT
//!   grant workload "w" 16385    = 1 USAGE             grant system "queries" 16385 = 1 SELECT
//!   grant parameter "thalweg.policy" 16385 = 1 SET    grant database "thalweg" 16385 = 1 CREATE
//! ```
//! Every value begins with the version of its form. What nobody says an owner of is the
//! [`SUPERUSER`](super::SUPERUSER)'s. A grant to a number that is no role's any more says nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::properties::{self, of_relation, of_schema, take_quoted};
use thalweg_storage::{Database, Snapshot, Transaction};

use super::grant::{Object, Privilege, Privileges};
use super::role::{self, FIRST_ID, OWNER_ID, Role, RoleId, to_hex};

use crate::names::CATALOG;

/// The property, of what is made, that says who owns it.
pub const OWNER_KEY: &str = "owner";
const ROLES: &str = "roles";
const MOCK: &str = "role secret";
const ROLE: &str = "role ";
const GRANT: &str = "grant ";
const VERSION: &str = "1 ";

/// To whom something is granted; `None`: to all.
pub type Grantee = Option<RoleId>;

type Properties = BTreeMap<String, String>;

/// All roles and grants of a snapshot.
#[derive(Debug)]
pub struct Access {
    roles: BTreeMap<RoleId, Arc<Role>>,
    by_name: HashMap<String, RoleId>,
    /// Hashes of tokens.
    by_token: HashMap<String, RoleId>,
    owners: BTreeMap<Object, RoleId>,
    grants: BTreeMap<Object, BTreeMap<Grantee, Privileges>>,
    /// The number of the next role.
    next: u32,
    mock_secret: Option<[u8; 32]>,
}

impl Access {
    /// # Errors
    /// Something stored is damaged, or of a later version: better nobody in than anybody.
    pub fn parse<'a>(all: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<Access> {
        let mut access = Access {
            roles: role::predefined().map(|r| (r.id, Arc::new(r))).collect(),
            by_name: HashMap::new(),
            by_token: HashMap::new(),
            owners: BTreeMap::new(),
            grants: BTreeMap::new(),
            next: FIRST_ID,
            mock_secret: None,
        };
        for (name, value) in all {
            access.take(name, value).ok_or_else(|| {
                Error::corrupt(format!(
                    "the stored property {} of roles cannot be read",
                    quoted(name)
                ))
                .hint("it is damaged, or was written by a later version")
            })?;
        }
        access.by_name = access.roles.values().map(|r| (r.name.clone(), r.id)).collect();
        for role in access.roles.values() {
            access.by_token.extend(role.tokens.iter().map(|t| (t.hash.clone(), role.id)));
        }
        Ok(access)
    }

    /// `None`: it cannot be read. Properties of other things are none of ours.
    fn take(&mut self, name: &str, value: &str) -> Option<()> {
        if name == ROLES {
            self.next = value.strip_prefix(VERSION)?.strip_prefix("next=")?.parse().ok()?;
        } else if name == MOCK {
            self.mock_secret = Some(from_hex(value.strip_prefix(VERSION)?)?);
        } else if let Some(id) = name.strip_prefix(ROLE) {
            let role = Role::parse(RoleId(id.parse().ok()?), value)?;
            self.roles.insert(role.id, Arc::new(role));
        } else if let Some((schema, relation, key)) = properties::owner(name) {
            let object = match relation {
                Some(relation) => Object::Relation(schema, relation),
                None => Object::Schema(schema),
            };
            if key == OWNER_KEY {
                let id = value.strip_prefix(VERSION)?.parse().ok()?;
                self.owners.insert(object, RoleId(id));
            } else {
                self.take_grant(object, key.strip_prefix(GRANT)?, value)?;
            }
        } else if let Some(rest) = name.strip_prefix(GRANT) {
            let (kind, rest) = rest.split_once(' ')?;
            let (name, grantee) = take_quoted(rest)?;
            let object = match kind {
                "workload" => Object::Workload(name),
                "system" => Object::System(name),
                "parameter" => Object::Parameter(name),
                "database" => Object::Database,
                _ => return None,
            };
            self.take_grant(object, grantee.strip_prefix(' ')?, value)?;
        }
        Some(())
    }

    fn take_grant(&mut self, object: Object, grantee: &str, value: &str) -> Option<()> {
        let grantee = match grantee {
            "public" => None,
            id => Some(RoleId(id.parse().ok()?)),
        };
        let privileges = Privileges::parse(value.strip_prefix(VERSION)?)?;
        self.grants.entry(object).or_default().insert(grantee, privileges);
        Some(())
    }

    pub fn role(&self, id: RoleId) -> Option<&Arc<Role>> {
        self.roles.get(&id)
    }

    pub fn named(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.get(self.by_name.get(name)?)
    }

    /// # Errors
    /// There is none of that name.
    pub fn existing(&self, name: &str) -> Result<&Arc<Role>> {
        self.named(name).ok_or_else(|| {
            Error::user(format!("role {} does not exist", quoted(name)))
                .code("42704")
                .hint("SELECT * FROM system.roles lists them; CREATE ROLE makes one")
        })
    }

    /// Whose token that is, by its [hash](super::token_hash).
    pub fn with_token(&self, hash: &str) -> Option<&Arc<Role>> {
        self.roles.get(self.by_token.get(hash)?)
    }

    /// In the order of their numbers.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    /// Whether anybody has made one.
    pub fn has_roles(&self) -> bool {
        self.roles.keys().any(|id| id.0 >= FIRST_ID)
    }

    /// How a role is called; one that is gone, by its number.
    pub fn name_of(&self, id: RoleId) -> String {
        self.role(id).map_or_else(|| id.0.to_string(), |r| r.name.clone())
    }

    /// What salts are made of for names without a password: the same after each start. `None`: no
    /// role has one yet.
    pub fn mock_secret(&self) -> Option<&[u8; 32]> {
        self.mock_secret.as_ref()
    }

    pub(super) fn next_id(&self) -> RoleId {
        RoleId(self.next)
    }

    /// The role, and those that it is a member of, of these and so on.
    pub(super) fn roles_of(&self, id: RoleId) -> BTreeSet<RoleId> {
        let mut all = BTreeSet::new();
        let mut left = vec![id];
        while let Some(id) = left.pop() {
            if all.insert(id)
                && let Some(role) = self.role(id)
            {
                left.extend(role.member_of.keys().copied());
            }
        }
        all
    }

    pub(super) fn owner(&self, object: &Object) -> RoleId {
        self.owners.get(object).copied().unwrap_or(OWNER_ID)
    }

    pub(super) fn owned(&self) -> impl Iterator<Item = (&Object, RoleId)> {
        self.owners.iter().map(|(object, id)| (object, *id))
    }

    /// What is stored, and what nobody has said otherwise about.
    pub(super) fn granted(&self, object: &Object, to: Grantee) -> Privileges {
        let stored = self.stored(object, to);
        match (stored, to) {
            (Some(privileges), _) => privileges,
            (None, None) => object.default_of_public(),
            (None, Some(_)) => Privileges::default(),
        }
    }

    pub(super) fn stored(&self, object: &Object, to: Grantee) -> Option<Privileges> {
        self.grants.get(object)?.get(&to).copied()
    }

    pub(super) fn grants(&self) -> impl Iterator<Item = (&Object, Grantee, Privileges)> {
        let all = self.grants.iter();
        all.flat_map(|(object, of)| of.iter().map(move |(to, p)| (object, *to, *p)))
    }

    pub(super) fn has(&self, roles: &BTreeSet<RoleId>, privilege: Privilege, on: &Object) -> bool {
        self.any(roles, on, |granted| granted.has(privilege))
    }

    pub(super) fn may_grant(
        &self,
        roles: &BTreeSet<RoleId>,
        privilege: Privilege,
        on: &Object,
    ) -> bool {
        self.any(roles, on, |granted| granted.may_grant(privilege))
    }

    fn any(
        &self,
        roles: &BTreeSet<RoleId>,
        on: &Object,
        holds: impl Fn(Privileges) -> bool,
    ) -> bool {
        let each = roles.iter().map(|id| Some(*id)).chain([None]);
        each.into_iter().any(|to| holds(self.granted(on, to)))
    }
}

/// The value of [`OWNER_KEY`].
pub fn owner_text(role: RoleId) -> String {
    format!("{VERSION}{}", role.0)
}

fn grant_property(object: &Object, to: Grantee) -> String {
    let to = to.map_or("public".into(), |id| id.0.to_string());
    match object {
        Object::Relation(schema, name) => format!("{}{GRANT}{to}", of_relation(schema, name)),
        Object::Schema(name) => format!("{}{GRANT}{to}", of_schema(name)),
        Object::Workload(name) => format!("{GRANT}workload {} {to}", quoted(name)),
        Object::System(name) => format!("{GRANT}system {} {to}", quoted(name)),
        Object::Parameter(name) => format!("{GRANT}parameter {} {to}", quoted(name)),
        Object::Database => format!("{GRANT}database {} {to}", quoted(CATALOG)),
    }
}

pub fn put_role(t: &mut Transaction, role: &Role) -> Result<()> {
    if role.verifier.is_some() && !t.snapshot().properties.contains_key(MOCK) {
        let mut secret = [0; 32];
        SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| Error::internal("the system gave no random numbers"))?;
        t.set_property(MOCK, Some(format!("{VERSION}{}", to_hex(&secret))))?;
    }
    t.set_property(&format!("{ROLE}{}", role.id.0), Some(role.text()))
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() || !text.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Takes the number of the next role, or makes sure that no role is made or renamed meanwhile.
pub fn put_next(t: &mut Transaction, next: u32) -> Result<()> {
    t.set_property(ROLES, Some(format!("{VERSION}next={next}")))
}

/// Removes a role with all that is granted to it.
pub fn remove_role(t: &mut Transaction, access: &Access, id: RoleId) -> Result<()> {
    t.set_property(&format!("{ROLE}{}", id.0), None)?;
    for (object, to, _) in access.grants().filter(|(_, to, _)| *to == Some(id)) {
        t.set_property(&grant_property(object, to), None)?;
    }
    for member in access.roles().filter(|r| r.member_of.contains_key(&id)) {
        let mut member = Role::clone(member);
        member.member_of.remove(&id);
        put_role(t, &member)?;
    }
    Ok(())
}

pub fn put_grant(t: &mut Transaction, object: &Object, to: Grantee, all: Privileges) -> Result<()> {
    let default = if to.is_none() { object.default_of_public() } else { Privileges::default() };
    let value = (all != default).then(|| format!("{VERSION}{all}"));
    t.set_property(&grant_property(object, to), value)
}

pub fn put_owner(t: &mut Transaction, object: &Object, owner: RoleId) -> Result<()> {
    let prefix = match object {
        Object::Relation(schema, name) => of_relation(schema, name),
        Object::Schema(name) => of_schema(name),
        _ => return Err(Error::internal("what has no owner gets one")),
    };
    let value = (owner != OWNER_ID).then(|| owner_text(owner));
    t.set_property(&format!("{prefix}{OWNER_KEY}"), value)
}

/// A workload is dropped: one that is made later by its name is another.
pub fn remove_grants_on_workload(t: &mut Transaction, name: &str) -> Result<()> {
    let prefix = format!("{GRANT}workload {} ", quoted(name));
    let snapshot = Arc::clone(t.snapshot());
    for (property, _) in properties::with_prefix(&snapshot.properties, &prefix) {
        t.set_property(property, None)?;
    }
    Ok(())
}

/// The rights that hold now, read once for each snapshot.
pub struct Registry {
    database: Database,
    kept: Mutex<Option<(Weak<Snapshot>, Arc<Access>)>>,
}

impl Registry {
    pub fn new(database: Database) -> Registry {
        Registry { database, kept: Mutex::default() }
    }

    /// What is committed, whatever older snapshot a statement reads: what is revoked is revoked.
    pub fn newest(&self) -> Result<Arc<Access>> {
        let snapshot = self.database.snapshot();
        let mut kept = self.kept.lock();
        if let Some((of, access)) = &*kept
            && std::ptr::eq(of.as_ptr(), Arc::as_ptr(&snapshot))
        {
            return Ok(Arc::clone(access));
        }
        let access = Arc::new(Access::parse(&snapshot.properties)?);
        // Weak: rights must not keep an old snapshot's files. As long as it is there no other
        // snapshot gets its address.
        *kept = Some((Arc::downgrade(&snapshot), Arc::clone(&access)));
        Ok(access)
    }

    /// What a snapshot says, which may be of an open transaction.
    pub fn of(&self, snapshot: &Snapshot) -> Result<Arc<Access>> {
        if std::ptr::eq(Arc::as_ptr(&self.database.snapshot()), snapshot) {
            return self.newest();
        }
        Access::parse(&snapshot.properties).map(Arc::new)
    }

    /// That, with what an open transaction has changed from `base` to `work`.
    pub fn within(&self, base: &Snapshot, work: &Snapshot) -> Result<Arc<Access>> {
        if base.properties == work.properties {
            return self.newest();
        }
        let newest = self.database.snapshot();
        let mut all: Properties = newest.properties.clone();
        for name in base.properties.keys().chain(work.properties.keys()) {
            let (before, now) = (base.properties.get(name), work.properties.get(name));
            if before != now {
                match now {
                    Some(value) => all.insert(name.clone(), value.clone()),
                    None => all.remove(name),
                };
            }
        }
        Access::parse(&all).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(all: &[(&str, &str)]) -> Result<Access> {
        let all: Properties = all.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Access::parse(&all)
    }

    #[test]
    fn what_is_stored_is_what_the_page_above_shows() {
        let access = access(&[
            ("roles", "1 next=16387"),
            ("role 16385", "1 name=\"ann\" login in=3373 in=16386"),
            ("role 16386", "1 name=\"readers\""),
            ("of \"public\".\"t\" owner", "1 16385"),
            ("of \"public\".\"t\" grant 16386", "1 SELECT INSERT*"),
            ("of \"public\" grant public", "1 "),
            ("grant workload \"w\" 16386", "1 USAGE"),
            ("grant system \"queries\" public", "1 SELECT"),
            ("workload.w", "weight=100 queue=5"),
        ])
        .unwrap();
        let ann = access.named("ann").unwrap().id;
        let roles = access.roles_of(ann);
        assert_eq!(roles, [RoleId(3373), RoleId(16_385), RoleId(16_386)].into());
        let t = Object::relation("public", "t");
        assert_eq!((access.owner(&t), access.next_id()), (ann, RoleId(16_387)));
        assert_eq!(access.owner(&Object::relation("public", "u")), OWNER_ID);
        assert!(access.has(&roles, Privilege::Select, &t));
        assert!(!access.has(&roles, Privilege::Delete, &t));
        assert!(access.may_grant(&roles, Privilege::Insert, &t));
        assert!(!access.may_grant(&roles, Privilege::Select, &t));
        // Which all have, unless it is taken from them.
        assert!(!access.has(&roles, Privilege::Usage, &Object::Schema("public".into())));
        assert!(access.has(&roles, Privilege::Usage, &Object::Workload("default".into())));
        let nobody = BTreeSet::new();
        assert!(access.has(&nobody, Privilege::Select, &Object::System("queries".into())));
        assert!(!access.has(&nobody, Privilege::Usage, &Object::Workload("w".into())));
    }

    #[test]
    fn what_cannot_be_read_lets_nobody_in() {
        for (name, value) in [
            ("roles", "2 next=1"),
            ("role x", "1 name=\"a\""),
            ("role 16385", "3 name=\"a\""),
            ("of \"public\" owner", "ann"),
            ("of \"public\" grunt 7", "1 SELECT"),
            ("grant dragon \"x\" 7", "1 SELECT"),
            ("grant workload \"x\" 7", "1 FLY"),
        ] {
            assert_eq!(access(&[(name, value)]).unwrap_err().sqlstate(), "XX001", "{name}");
        }
    }
}
