//! Runs `CREATE ROLE`, `GRANT` and their like: each a change of properties of the database, in the
//! transaction that is open.

use crate::names::{self, CATALOG, PUBLIC};
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::SessionState;
use ring::rand::{SecureRandom, SystemRandom};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::{Snapshot, Summary, Transaction};

use thalweg_errors::{from_arrow, from_datafusion};

use super::grant::{Object, Privilege};
use super::parse::{Command, On, Owned, Setting};
use super::role::{Role, RoleId, SUPERUSER, TOKENS_MAX, Token, check_name, token_hash};
use super::store::{self, Access, Grantee};
use super::verifier::Verifier;
use super::viewer::Viewer;
use crate::answer::Tag;
use crate::session::Inner;
use crate::statement::Started;
use crate::titles::Titles;
use crate::{as_of, system};

/// Every token begins so, for those who look for secrets where none may be.
const TOKEN_PREFIX: &str = "thalweg_";
const TOKEN_BYTES: usize = 32;

pub async fn run(
    session: &Inner,
    state: &SessionState,
    snapshot: &Arc<Snapshot>,
    command: Command,
) -> Result<Started> {
    let (tag, schema) = (command.tag(), answer(&command));
    if let Command::SetRole(role) = &command {
        set_role(session, role.as_deref())?;
        return Ok(Started::Done(Tag::Done(tag.into())));
    }
    session.transactions.check_writable()?;
    let viewer = session.viewer()?;
    let job = Job { session, state, snapshot, viewer: &viewer, access: session.access()? };
    let mut token = None;
    let changes = job.changes(&command, &mut token)?;
    let change = move |t: &mut Transaction| {
        for change in changes {
            change(t)?;
        }
        t.describe(Summary { operation: tag.into(), ..Summary::default() });
        Ok(())
    };
    session.transactions.write(change).await?;
    match token.zip(schema) {
        Some((token, schema)) => shown_once(state, schema, &token),
        None => Ok(Started::Done(Tag::Done(tag.into()))),
    }
}

/// The session acts as another role: one that who logged in is a member of.
fn set_role(session: &Inner, name: Option<&str>) -> Result<()> {
    let Some(name) = name else {
        session.identity.become_role(None);
        return Ok(());
    };
    let access = session.access()?;
    let (own, _) = session.identity.session();
    let role = access.existing(name)?;
    let is_superuser = access.role(own).is_some_and(|r| r.superuser);
    if !is_superuser && !access.roles_of(own).contains(&role.id) {
        return Err(Error::user(format!("permission denied to set role {}", quoted(name)))
            .code("42501")
            .hint(format!("GRANT {} TO … makes the session's role a member of it", quoted(name))));
    }
    session.identity.become_role(Some(role));
    Ok(())
}

/// The columns that a statement gives; `None`: no rows.
pub fn answer(command: &Command) -> Option<SchemaRef> {
    let token = Field::new("token", DataType::Utf8, false);
    matches!(command, Command::AddToken { .. }).then(|| Arc::new(Schema::new(vec![token])))
}

fn shown_once(state: &SessionState, schema: SchemaRef, token: &str) -> Result<Started> {
    let column = Arc::new(StringArray::from(vec![token])) as ArrayRef;
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]);
    let batch = batch.map_err(|e| from_arrow(&e))?;
    let exec = MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None);
    Ok(Started::Rows(exec.map_err(from_datafusion)?, Titles::default(), Box::new(state.clone())))
}

type Change = Box<dyn FnOnce(&mut Transaction) -> Result<()> + Send>;

fn put(role: Role) -> Change {
    Box::new(move |t| store::put_role(t, &role))
}

struct Job<'a> {
    session: &'a Inner,
    state: &'a SessionState,
    snapshot: &'a Snapshot,
    viewer: &'a Viewer,
    access: Arc<Access>,
}

impl Job<'_> {
    fn changes(&self, command: &Command, token: &mut Option<String>) -> Result<Vec<Change>> {
        match command {
            Command::CreateRole { name, if_not_exists, options } => {
                self.viewer.check_superuser("create a role")?;
                check_name(name)?;
                if self.access.named(name).is_some() {
                    if *if_not_exists {
                        return Ok(vec![]);
                    }
                    return Err(exists(name));
                }
                let role = Role::new(self.access.next_id(), name);
                let next = role.id.0 + 1;
                let role = self.with(role, options)?;
                Ok(vec![put(role), Box::new(move |t| store::put_next(t, next))])
            }
            Command::AlterRole { name, options } => {
                let role = self.role(name)?;
                let own_password = options.iter().all(|o| matches!(o, Setting::Password(_)));
                if !(own_password && role.id == self.viewer.role()) {
                    self.viewer.check_superuser(&format!("alter role {}", quoted(&role.name)))?;
                }
                self.with(role, options).map(|role| vec![put(role)])
            }
            Command::RenameRole { name, to } => {
                self.viewer.check_superuser("rename a role")?;
                let mut role = self.role(name)?;
                if role.is_predefined() {
                    return Err(always_there(&role.name));
                }
                check_name(to)?;
                if self.access.named(to).is_some() {
                    return Err(exists(to));
                }
                role.name.clone_from(to);
                // A number is skipped, so that nobody takes the name meanwhile.
                let next = self.access.next_id().0 + 1;
                Ok(vec![put(role), Box::new(move |t| store::put_next(t, next))])
            }
            Command::DropRole { names, if_exists } => self.drop_roles(names, *if_exists),
            Command::AddToken { role, name, valid_until } => {
                let mut role = self.role_of_token(role)?;
                if role.tokens.iter().any(|t| t.name == *name) {
                    return Err(Error::user(format!(
                        "role {} has a token {} already",
                        quoted(&role.name),
                        quoted(name)
                    ))
                    .code("42710")
                    .hint("ALTER ROLE … DROP TOKEN removes it"));
                }
                if role.tokens.len() >= TOKENS_MAX {
                    return Err(Error::resources(format!(
                        "a role has {TOKENS_MAX} tokens at most"
                    ))
                    .hint("ALTER ROLE … DROP TOKEN removes one"));
                }
                let new = random_token()?;
                let valid_until_ms = match valid_until {
                    Some(text) => self.time(text)?,
                    None => None,
                };
                role.tokens.push(Token {
                    name: name.clone(),
                    hash: token_hash(&new),
                    valid_until_ms,
                });
                *token = Some(new);
                Ok(vec![put(role)])
            }
            Command::DropToken { role, name } => {
                let mut role = self.role_of_token(role)?;
                let before = role.tokens.len();
                role.tokens.retain(|t| t.name != *name);
                if role.tokens.len() == before {
                    return Err(Error::user(format!(
                        "role {} has no token {}",
                        quoted(&role.name),
                        quoted(name)
                    ))
                    .code("42704"));
                }
                Ok(vec![put(role)])
            }
            Command::GrantRole { roles, to, admin } => self.members(roles, to, |member, of| {
                let held = member.member_of.entry(of).or_default();
                *held |= admin;
            }),
            Command::RevokeRole { roles, from, admin_only } => {
                self.members(roles, from, |member, of| {
                    if *admin_only {
                        member.member_of.entry(of).and_modify(|admin| *admin = false);
                    } else {
                        member.member_of.remove(&of);
                    }
                })
            }
            Command::Grant { privileges, on, to, option } => self.grants(
                privileges,
                on,
                to,
                "GRANT",
                |held, privilege| held.grant(privilege, *option),
                *option,
            ),
            Command::Revoke { privileges, on, from, option_only } => self.grants(
                privileges,
                on,
                from,
                "REVOKE",
                |held, privilege| held.revoke(privilege, *option_only),
                false,
            ),
            Command::ChangeOwner { of, to } => {
                let object = self.owned(of)?;
                self.viewer.check_owner(&object)?;
                let to = self.role(to)?;
                self.check_may_become(&to)?;
                Ok(vec![Box::new(move |t| store::put_owner(t, &object, to.id))])
            }
            Command::Reassign { from, to } => {
                let to = self.role(to)?;
                self.check_may_become(&to)?;
                let mut changes: Vec<Change> = vec![];
                for name in from {
                    let from = self.role(name)?;
                    self.check_may_become(&from)?;
                    for (object, _) in self.access.owned().filter(|(_, id)| *id == from.id) {
                        let object = object.clone();
                        changes.push(Box::new(move |t| store::put_owner(t, &object, to.id)));
                    }
                }
                Ok(changes)
            }
            Command::SetRole(_) => Err(Error::internal("SET ROLE changes no role")),
        }
    }

    /// A copy to be changed. `current_user` and `session_user` are roles here.
    fn role(&self, name: &str) -> Result<Role> {
        let (current, session) =
            (self.session.identity.current().0, self.session.identity.session().0);
        let id = match name {
            "current_user" | "current_role" => Some(current),
            "session_user" => Some(session),
            _ => None,
        };
        match id.and_then(|id| self.access.role(id)) {
            Some(role) => Ok(Role::clone(role)),
            None => self.access.existing(name).map(|r| Role::clone(r)),
        }
    }

    fn role_of_token(&self, name: &str) -> Result<Role> {
        let role = self.role(name)?;
        if role.id != self.viewer.role() {
            self.viewer.check_superuser("change the tokens of another role")?;
        }
        Ok(role)
    }

    fn check_may_become(&self, role: &Role) -> Result<()> {
        if self.viewer.is_member(role.id) {
            return Ok(());
        }
        Err(Error::user(format!("must be member of role {}", quoted(&role.name)))
            .code("42501")
            .hint("a superuser can do it, too"))
    }

    fn with(&self, mut role: Role, options: &[Setting]) -> Result<Role> {
        for option in options {
            match option {
                Setting::Login(on) => role.login = *on,
                Setting::Superuser(false) if role.name == SUPERUSER => {
                    return Err(always_there(SUPERUSER)
                        .hint("ALTER ROLE thalweg NOLOGIN keeps it from logging in"));
                }
                Setting::Superuser(on) => role.superuser = *on,
                Setting::Password(None) => role.verifier = None,
                Setting::Password(Some(secret)) => {
                    role.verifier = Some(verifier(&role.name, &secret.0)?);
                }
                Setting::Connections(most) => role.connections_max = *most,
                Setting::ValidUntil(text) => role.valid_until_ms = self.time(text)?,
                Setting::InRole(names) => {
                    for name in names {
                        role.member_of.insert(self.role(name)?.id, false);
                    }
                }
                Setting::Workload(workload) => {
                    if let Some(name) = workload {
                        self.session.engine.check_workload(name)?;
                    }
                    role.workload.clone_from(workload);
                }
            }
        }
        if role.is_predefined() && role.name != SUPERUSER {
            return Err(Error::user(format!("role {} cannot be changed", quoted(&role.name)))
                .code("42939")
                .hint(format!("GRANT {} TO … gives its rights to another", quoted(&role.name))));
        }
        Ok(role)
    }

    /// Milliseconds since 1970; `None`: for ever.
    fn time(&self, text: &str) -> Result<Option<u64>> {
        if text.trim().eq_ignore_ascii_case("infinity") {
            return Ok(None);
        }
        as_of::time_ms(self.state, text).map(Some)
    }

    fn drop_roles(&self, names: &[String], if_exists: bool) -> Result<Vec<Change>> {
        self.viewer.check_superuser("drop a role")?;
        let mut changes: Vec<Change> = vec![];
        for name in names {
            if if_exists && self.access.named(name).is_none() {
                continue;
            }
            let role = self.role(name)?;
            if role.is_predefined() {
                return Err(always_there(&role.name));
            }
            let (session, current) = (self.session.identity.session().0, self.viewer.role());
            if [session, current].contains(&role.id) {
                return Err(Error::user("the current user cannot be dropped")
                    .code("55006")
                    .hint("another superuser can drop it"));
            }
            let mut owned = self.access.owned().filter(|(_, id)| *id == role.id);
            if let Some((first, _)) = owned.next() {
                let more = owned.count();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                return Err(Error::user(format!(
                    "role {} cannot be dropped: it owns {} {}{more}",
                    quoted(name),
                    first.word(),
                    quoted(&first.name())
                ))
                .code("2BP01")
                .hint(format!("REASSIGN OWNED BY {} TO … gives them to another", quoted(name))));
            }
            let (access, id) = (Arc::clone(&self.access), role.id);
            changes.push(Box::new(move |t| store::remove_role(t, &access, id)));
        }
        Ok(changes)
    }

    fn members(
        &self,
        roles: &[String],
        members: &[String],
        change: impl Fn(&mut Role, RoleId),
    ) -> Result<Vec<Change>> {
        let mut changes: Vec<Change> = vec![];
        let roles = roles.iter().map(|name| self.role(name)).collect::<Result<Vec<_>>>()?;
        for role in &roles {
            if !self.viewer.is_superuser() && !self.is_admin(role.id) {
                return Err(Error::user(format!(
                    "permission denied to grant role {}",
                    quoted(&role.name)
                ))
                .code("42501")
                .hint("a superuser may, and who has it WITH ADMIN OPTION"));
            }
            // Else who administers it could become one.
            if role.superuser {
                self.viewer.check_superuser("grant the role of a superuser")?;
            }
        }
        for name in members {
            let mut member = self.role(name)?;
            for role in &roles {
                if self.access.roles_of(role.id).contains(&member.id) {
                    return Err(Error::user(format!(
                        "role {} is a member of role {} already",
                        quoted(&role.name),
                        quoted(&member.name)
                    ))
                    .code("0LP01")
                    .hint("a role cannot be a member of itself, also through others"));
                }
                change(&mut member, role.id);
            }
            if member.is_predefined() && member.name != SUPERUSER {
                return Err(
                    Error::user(format!("role {} cannot be changed", quoted(name))).code("42939")
                );
            }
            changes.push(put(member));
        }
        Ok(changes)
    }

    /// Whether the statement's role may make others members of it.
    fn is_admin(&self, role: RoleId) -> bool {
        let own = self.access.roles_of(self.viewer.role());
        own.iter()
            .any(|id| self.access.role(*id).is_some_and(|r| r.member_of.get(&role) == Some(&true)))
    }

    fn grants(
        &self,
        privileges: &[Privilege],
        on: &On,
        grantees: &[String],
        verb: &str,
        change: impl Fn(&mut super::grant::Privileges, Privilege),
        with_option: bool,
    ) -> Result<Vec<Change>> {
        let mut changes: Vec<Change> = vec![];
        let mut to: BTreeSet<Grantee> = BTreeSet::new();
        for name in grantees {
            to.insert(if name == "public" { None } else { Some(self.role(name)?.id) });
        }
        if with_option && to.contains(&None) {
            return Err(Error::user("what all have cannot be granted WITH GRANT OPTION")
                .code("0LP01")
                .hint("leave WITH GRANT OPTION out, or name a role"));
        }
        for object in self.objects(on)? {
            let all: &[Privilege] =
                if privileges.is_empty() { object.privileges() } else { privileges };
            for privilege in all {
                if !object.privileges().contains(privilege) {
                    let known: Vec<&str> = object.privileges().iter().map(|p| p.name()).collect();
                    return Err(Error::user(format!(
                        "there is no privilege {} on a {}",
                        privilege.name(),
                        object.word()
                    ))
                    .code("0LP01")
                    .hint(format!("there is {}", known.join(", "))));
                }
                if !self.viewer.may_grant(*privilege, &object) {
                    return Err(Error::user(format!(
                        "permission denied to {verb} {} on {} {}",
                        privilege.name(),
                        object.word(),
                        quoted(&object.name())
                    ))
                    .code("42501")
                    .hint("its owner may, and who has it WITH GRANT OPTION"));
                }
            }
            for grantee in &to {
                let mut held = self.access.granted(&object, *grantee);
                all.iter().for_each(|privilege| change(&mut held, *privilege));
                let (object, grantee) = (object.clone(), *grantee);
                changes.push(Box::new(move |t| store::put_grant(t, &object, grantee, held)));
            }
        }
        Ok(changes)
    }

    fn objects(&self, on: &On) -> Result<Vec<Object>> {
        match on {
            On::Tables(names) => names.iter().map(|parts| self.relation(parts)).collect(),
            On::AllTables(schemas) => {
                let mut all = vec![];
                for schema in schemas {
                    if schema == names::SYSTEM {
                        all.extend(system::names().map(|n| Object::System(n.into())));
                        continue;
                    }
                    let found =
                        self.snapshot.schemas.get(schema).ok_or_else(|| no_schema(schema))?;
                    let names = found.tables.keys().chain(found.views.keys());
                    let names = names.chain(found.externals.keys());
                    all.extend(names.map(|name| Object::relation(schema, name)));
                }
                Ok(all)
            }
            On::Schemas(names) => names.iter().map(|name| self.schema(name)).collect(),
            On::Workloads(names) => names
                .iter()
                .map(|name| {
                    self.session.engine.check_workload(name)?;
                    Ok(Object::Workload(name.clone()))
                })
                .collect(),
            On::Parameters(names) => names
                .iter()
                .map(|name| {
                    if !crate::config::SHARED_SETTINGS.contains(&name.as_str()) {
                        return Err(Error::user(format!(
                            "{} is not granted to anybody",
                            quoted(name)
                        ))
                        .code("42704")
                        .hint(format!(
                            "SET is granted on {}",
                            crate::config::SHARED_SETTINGS.join(", ")
                        )));
                    }
                    Ok(Object::Parameter(name.clone()))
                })
                .collect(),
            On::Database(name) if name == CATALOG => Ok(vec![Object::Database]),
            On::Database(name) => {
                Err(Error::user(format!("there is no database {}", quoted(name)))
                    .code("3D000")
                    .hint(format!("the one database is {CATALOG}")))
            }
        }
    }

    fn schema(&self, name: &str) -> Result<Object> {
        if self.snapshot.schemas.contains_key(name) {
            return Ok(Object::Schema(name.into()));
        }
        if name == names::SYSTEM {
            return Err(Error::user("schema \"system\" may be used by all").hint(
                "GRANT SELECT ON ALL TABLES IN SCHEMA system, or GRANT pg_monitor, shows all of it",
            ));
        }
        Err(no_schema(name))
    }

    fn relation(&self, parts: &[String]) -> Result<Object> {
        let (schema, name) = match parts {
            [name] => (PUBLIC, name),
            [schema, name] => (schema.as_str(), name),
            [catalog, schema, name] if catalog == CATALOG => (schema.as_str(), name),
            _ => return Err(Error::user("a table is called schema.table").code("42602")),
        };
        if schema == names::SYSTEM && system::names().any(|n| n == name) {
            return Ok(Object::System(name.clone()));
        }
        let found = self.snapshot.schemas.get(schema);
        match found.and_then(|s| s.relation(name)) {
            Some(_) => Ok(Object::relation(schema, name)),
            None => Err(crate::names::no_table(&parts.join("."))),
        }
    }

    fn owned(&self, of: &Owned) -> Result<Object> {
        match of {
            Owned::Relation(parts) => match self.relation(parts)? {
                Object::System(name) => {
                    Err(Error::user(format!("system.{name} has no owner")).code("42501"))
                }
                object => Ok(object),
            },
            Owned::Schema(name) => self.schema(name),
        }
    }
}

/// Of a password, or of its verifier made elsewhere: then the server never sees it.
fn verifier(role: &str, secret: &str) -> Result<Verifier> {
    if secret.is_empty() {
        return Err(Error::user("a password has at least one character")
            .code("28P01")
            .hint("PASSWORD NULL removes it: then nobody logs in with one"));
    }
    if let Some(verifier) = Verifier::parse(secret) {
        return Ok(verifier);
    }
    if secret.starts_with("SCRAM-SHA-256$") || is_md5(secret) {
        return Err(Error::user(format!(
            "the password of role {} is a verifier that cannot be used",
            quoted(role)
        ))
        .code("22023")
        .hint("give a password, or SCRAM-SHA-256$iterations:salt$stored key:server key"));
    }
    Verifier::of(secret)
}

/// PostgreSQL's older verifiers: stored as a password they would let in whoever has read them.
fn is_md5(text: &str) -> bool {
    text.strip_prefix("md5")
        .is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn random_token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Error::internal("the system gave no random numbers"))?;
    Ok(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn exists(name: &str) -> Error {
    Error::user(format!("role {} already exists", quoted(name)))
        .code("42710")
        .hint("ALTER ROLE changes it")
}

fn always_there(name: &str) -> Error {
    Error::user(format!("role {} is always there, as it is", quoted(name))).code("42939")
}

fn no_schema(name: &str) -> Error {
    Error::user(format!("schema {} does not exist", quoted(name)))
        .code("3F000")
        .hint("CREATE SCHEMA makes one")
}
