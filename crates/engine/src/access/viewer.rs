//! Who a statement runs for, and what they may.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::{RelationKind, Snapshot};

use super::grant::{Object, Privilege};
use super::needs::Need;
use super::role::{
    OWNER_ID, PG_MAINTAIN, PG_MONITOR, PG_READ_ALL_DATA, PG_SIGNAL_BACKEND, PG_WRITE_ALL_DATA,
    Role, RoleId, SUPERUSER,
};
use super::store::{Access, Registry};

/// Whose session it is, and who it acts as.
#[derive(Debug)]
pub struct Identity {
    session: (RoleId, Arc<str>),
    /// By SET ROLE.
    current: Mutex<Option<(RoleId, Arc<str>)>>,
}

impl Default for Identity {
    fn default() -> Self {
        Identity::of(OWNER_ID, SUPERUSER)
    }
}

impl Identity {
    pub fn of(id: RoleId, name: &str) -> Identity {
        Identity { session: (id, name.into()), current: Mutex::default() }
    }

    /// The role that logged in, as it was called then.
    pub fn session(&self) -> (RoleId, Arc<str>) {
        self.session.clone()
    }

    pub fn current(&self) -> (RoleId, Arc<str>) {
        self.current.lock().clone().unwrap_or_else(|| self.session.clone())
    }

    /// `None`: the role that logged in.
    pub fn become_role(&self, role: Option<&Role>) {
        *self.current.lock() = role.map(|r| (r.id, r.name.as_str().into()));
    }

    /// Who the next statement runs for. `changed`: the open transaction, before and after its own
    /// changes.
    ///
    /// # Errors
    /// The role is gone.
    pub fn viewer(
        &self,
        registry: &Registry,
        changed: Option<(&Snapshot, &Snapshot)>,
    ) -> Result<Viewer> {
        let (id, name) = self.current();
        if id == OWNER_ID {
            return Ok(Viewer::superuser());
        }
        let access = match changed {
            Some((base, work)) => registry.within(base, work)?,
            None => registry.newest()?,
        };
        Viewer::of(&access, id).ok_or_else(|| {
            Error::user(format!("role {} was dropped", quoted(&name)))
                .code("42704")
                .hint("RESET ROLE goes back to the role that logged in")
        })
    }
}

/// The rights of one role at one moment.
#[derive(Clone, Debug)]
pub struct Viewer {
    role: RoleId,
    /// `None`: a superuser's.
    rights: Option<Arc<Rights>>,
}

#[derive(Debug)]
struct Rights {
    access: Arc<Access>,
    role: Arc<Role>,
    /// With those that it is a member of.
    roles: BTreeSet<RoleId>,
}

/// How much of a table of the schema `system` somebody sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    All,
    /// What is their own.
    Own,
}

impl Viewer {
    pub fn superuser() -> Viewer {
        Viewer { role: OWNER_ID, rights: None }
    }

    /// `None`: there is no such role.
    pub fn of(access: &Arc<Access>, id: RoleId) -> Option<Viewer> {
        let role = access.role(id)?;
        let rights = (!role.superuser).then(|| {
            let (access, role) = (Arc::clone(access), Arc::clone(role));
            let roles = access.roles_of(id);
            Arc::new(Rights { access, role, roles })
        });
        Some(Viewer { role: id, rights })
    }

    pub fn role(&self) -> RoleId {
        self.role
    }

    pub fn is_superuser(&self) -> bool {
        self.rights.is_none()
    }

    /// A statement's text, with whose rights it was checked against: a plan that is kept under it
    /// is for nobody else. No text has a NUL.
    pub fn plan_key<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        match self.is_superuser() {
            true => Cow::Borrowed(sql),
            false => Cow::Owned(format!("{}\0{sql}", self.role.0)),
        }
    }

    pub fn is_member(&self, role: RoleId) -> bool {
        self.rights.as_ref().is_none_or(|r| r.roles.contains(&role))
    }

    pub fn owns(&self, object: &Object) -> bool {
        self.rights.as_ref().is_none_or(|r| r.roles.contains(&r.access.owner(object)))
    }

    pub fn may(&self, privilege: Privilege, on: &Object) -> bool {
        let Some(rights) = &self.rights else { return true };
        rights.access.has(&rights.roles, privilege, on)
            || self.owns_for_all(on)
            || self.is_member_for(privilege, on)
    }

    /// Of what has an owner, who may everything with it.
    fn owns_for_all(&self, on: &Object) -> bool {
        matches!(on, Object::Relation(..) | Object::Schema(_)) && self.owns(on)
    }

    fn is_member_for(&self, privilege: Privilege, on: &Object) -> bool {
        use {Object as O, Privilege as P};
        match (on, privilege) {
            (O::Relation(..), P::Select) => self.is_member(PG_READ_ALL_DATA),
            (O::Relation(..), P::Insert | P::Update | P::Delete) => {
                self.is_member(PG_WRITE_ALL_DATA)
            }
            (O::Relation(..), P::Maintain) => self.is_member(PG_MAINTAIN),
            (O::Schema(_), P::Usage) => [PG_READ_ALL_DATA, PG_WRITE_ALL_DATA, PG_MAINTAIN]
                .iter()
                .any(|role| self.is_member(*role)),
            _ => false,
        }
    }

    pub fn may_grant(&self, privilege: Privilege, on: &Object) -> bool {
        let Some(rights) = &self.rights else { return true };
        self.owns_for_all(on) || rights.access.may_grant(&rights.roles, privilege, on)
    }

    /// For who has it to grant.
    fn hint(&self, what: &str) -> String {
        let name = self.rights.as_ref().map_or(SUPERUSER, |r| &r.role.name);
        format!("GRANT {what} TO {} would allow it", quoted(name))
    }

    fn denied(&self, word: &str, privilege: Privilege, on: &Object) -> Error {
        let grant = format!("{} ON {}", privilege.name(), on.sql());
        denied(word, &on.name()).hint(self.hint(&grant))
    }

    pub fn check(&self, privilege: Privilege, on: &Object) -> Result<()> {
        self.check_as(on.word(), privilege, on)
    }

    /// Of a relation whose kind is known. Who may not use its schema may not use what is in it.
    pub fn check_relation(
        &self,
        privilege: Privilege,
        schema: &str,
        name: &str,
        kind: RelationKind,
    ) -> Result<()> {
        if self.is_superuser() {
            return Ok(());
        }
        self.check(Privilege::Usage, &Object::Schema(schema.into()))?;
        self.check_as(kind.name(), privilege, &Object::relation(schema, name))
    }

    fn check_as(&self, word: &str, privilege: Privilege, on: &Object) -> Result<()> {
        if self.may(privilege, on) { Ok(()) } else { Err(self.denied(word, privilege, on)) }
    }

    /// A role that stands for a right of the whole server.
    pub fn check_member(&self, role: RoleId, what: &str) -> Result<()> {
        let Some(rights) = &self.rights else { return Ok(()) };
        if rights.roles.contains(&role) {
            return Ok(());
        }
        let name = rights.access.name_of(role);
        Err(Error::user(format!("permission denied to {what}"))
            .code("42501")
            .hint(self.hint(&name)))
    }

    pub fn check_superuser(&self, what: &str) -> Result<()> {
        if self.is_superuser() {
            return Ok(());
        }
        Err(Error::user(format!("permission denied to {what}"))
            .code("42501")
            .hint("only a superuser may"))
    }

    pub fn check_owner(&self, object: &Object) -> Result<()> {
        if self.owns(object) {
            return Ok(());
        }
        // Who owns a schema may drop what others have made in it.
        Err(Error::user(format!("must be owner of {} {}", object.word(), quoted(&object.name())))
            .code("42501")
            .hint("only its owner and superusers may change what it is"))
    }

    /// Whether the queries of a role may be looked at and stopped.
    pub fn may_stop(&self, whose: Option<RoleId>) -> bool {
        let Some(rights) = &self.rights else { return true };
        let Some(whose) = whose else { return false };
        let superuser = rights.access.role(whose).is_some_and(|r| r.superuser);
        rights.roles.contains(&whose) || (self.is_member(PG_SIGNAL_BACKEND) && !superuser)
    }

    /// `None`: nothing.
    pub fn sees(&self, system: &str) -> Option<Seen> {
        let Some(rights) = &self.rights else { return Some(Seen::All) };
        if rights.roles.contains(&PG_MONITOR) {
            return Some(Seen::All);
        }
        if rights.access.has(&rights.roles, Privilege::Select, &Object::System(system.into())) {
            return Some(Seen::All);
        }
        // What others did, and how many rows their tables have, is theirs.
        (!matches!(system, "snapshots" | "loads")).then_some(Seen::Own)
    }

    /// Whether the text of a query of that role is shown.
    pub fn reads_queries_of(&self, whose: Option<RoleId>) -> bool {
        let Some(rights) = &self.rights else { return true };
        whose.is_some_and(|role| rights.roles.contains(&role))
    }

    /// Who a view's query runs for.
    ///
    /// # Errors
    /// Its owner is gone.
    pub fn of_view(
        &self,
        registry: &Registry,
        snapshot: &Snapshot,
        schema: &str,
        name: &str,
    ) -> Result<Viewer> {
        let access = match &self.rights {
            Some(rights) => Arc::clone(&rights.access),
            None if !has_owner(snapshot, schema, name) => return Ok(Viewer::superuser()),
            None => registry.of(snapshot)?,
        };
        let owner = access.owner(&Object::relation(schema, name));
        Viewer::of(&access, owner).ok_or_else(|| {
            Error::user(format!("the owner of view {} was dropped", quoted(name)))
                .code("42704")
                .hint("ALTER VIEW … OWNER TO gives it another")
        })
    }

    pub fn meets(&self, need: &Need) -> Result<()> {
        match need {
            Need::Privilege(privilege, on) => {
                if let Object::Relation(schema, _) = on {
                    self.check(Privilege::Usage, &Object::Schema(schema.clone()))?;
                }
                self.check(*privilege, on)
            }
            Need::Owner(object) => {
                if let Object::Relation(schema, _) = object
                    && !self.owns(object)
                    && self.owns(&Object::Schema(schema.clone()))
                {
                    return Ok(());
                }
                self.check_owner(object)
            }
            Need::Member(role, what) => self.check_member(*role, what),
        }
    }
}

/// `permission denied for table "t"`
fn denied(word: &str, name: &str) -> Error {
    Error::user(format!("permission denied for {word} {}", quoted(name))).code("42501")
}

fn has_owner(snapshot: &Snapshot, schema: &str, name: &str) -> bool {
    let prefix = thalweg_storage::properties::of_relation(schema, name);
    snapshot.properties.contains_key(&format!("{prefix}{}", super::OWNER_KEY))
}
