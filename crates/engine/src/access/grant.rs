//! Privileges, and what they are on.

use std::fmt;

use thalweg_base::text::quoted;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privilege {
    Select,
    Insert,
    Update,
    Delete,
    Truncate,
    /// `OPTIMIZE TABLE`
    Maintain,
    Usage,
    Create,
    Set,
}

use Privilege as P;

use crate::names::PUBLIC;

const PRIVILEGES: [(Privilege, &str); 9] = [
    (P::Select, "SELECT"),
    (P::Insert, "INSERT"),
    (P::Update, "UPDATE"),
    (P::Delete, "DELETE"),
    (P::Truncate, "TRUNCATE"),
    (P::Maintain, "MAINTAIN"),
    (P::Usage, "USAGE"),
    (P::Create, "CREATE"),
    (P::Set, "SET"),
];

impl Privilege {
    pub fn name(self) -> &'static str {
        PRIVILEGES.iter().find(|(p, _)| *p == self).map_or("", |(_, name)| name)
    }

    pub fn named(name: &str) -> Option<Privilege> {
        PRIVILEGES.iter().find(|(_, n)| n.eq_ignore_ascii_case(name)).map(|(p, _)| *p)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// What somebody is granted on one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    held: u16,
    /// Those that may be granted on.
    grantable: u16,
}

impl Privileges {
    pub fn of(all: &[Privilege]) -> Self {
        let held = all.iter().fold(0, |bits, p| bits | p.bit());
        Privileges { held, grantable: 0 }
    }

    pub fn has(self, privilege: Privilege) -> bool {
        self.held & privilege.bit() != 0
    }

    pub fn may_grant(self, privilege: Privilege) -> bool {
        self.grantable & privilege.bit() != 0
    }

    pub fn grant(&mut self, privilege: Privilege, with_option: bool) {
        self.held |= privilege.bit();
        if with_option {
            self.grantable |= privilege.bit();
        }
    }

    pub fn revoke(&mut self, privilege: Privilege, option_only: bool) {
        self.grantable &= !privilege.bit();
        if !option_only {
            self.held &= !privilege.bit();
        }
    }

    pub fn list(self) -> impl Iterator<Item = (Privilege, bool)> {
        let known = PRIVILEGES.iter().map(|(p, _)| *p);
        known.filter(move |p| self.has(*p)).map(move |p| (p, self.may_grant(p)))
    }

    /// `SELECT INSERT*`: a star may be granted on.
    pub fn parse(text: &str) -> Option<Privileges> {
        let mut all = Privileges::default();
        for word in text.split_whitespace() {
            let name = word.trim_end_matches('*');
            all.grant(Privilege::named(name)?, name.len() < word.len());
        }
        Some(all)
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (privilege, grantable)) in self.list().enumerate() {
            let (blank, star) = (if i == 0 { "" } else { " " }, if grantable { "*" } else { "" });
            write!(f, "{blank}{}{star}", privilege.name())?;
        }
        Ok(())
    }
}

/// What a privilege is on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// A table, a view or an external table: schema and name.
    Relation(String, String),
    Schema(String),
    Workload(String),
    /// A table of the schema `system`.
    System(String),
    /// A setting that holds for all sessions.
    Parameter(String),
    Database,
}

impl Object {
    pub fn relation(schema: &str, name: &str) -> Object {
        Object::Relation(schema.into(), name.into())
    }

    /// As GRANT calls it.
    pub fn word(&self) -> &'static str {
        match self {
            Object::Relation(..) | Object::System(_) => "table",
            Object::Schema(_) => "schema",
            Object::Workload(_) => "workload",
            Object::Parameter(_) => "parameter",
            Object::Database => "database",
        }
    }

    /// For people.
    pub fn name(&self) -> String {
        match self {
            Object::Relation(schema, name) if schema == PUBLIC => name.clone(),
            Object::Relation(schema, name) => format!("{schema}.{name}"),
            Object::System(name) => format!("system.{name}"),
            Object::Schema(name) | Object::Workload(name) | Object::Parameter(name) => name.clone(),
            Object::Database => crate::names::CATALOG.into(),
        }
    }

    /// As a statement names it after ON.
    pub fn sql(&self) -> String {
        match self {
            Object::Relation(schema, name) if schema == PUBLIC => quoted(name),
            Object::Relation(schema, name) => format!("{}.{}", quoted(schema), quoted(name)),
            Object::System(name) => format!("system.{name}"),
            Object::Parameter(name) => format!("PARAMETER {name}"),
            other => format!("{} {}", other.word().to_uppercase(), quoted(&other.name())),
        }
    }

    /// What there is to be granted on it.
    pub fn privileges(&self) -> &'static [Privilege] {
        match self {
            Object::Relation(..) => {
                &[P::Select, P::Insert, P::Update, P::Delete, P::Truncate, P::Maintain]
            }
            Object::Schema(_) => &[P::Usage, P::Create],
            Object::Workload(_) => &[P::Usage],
            Object::System(_) => &[P::Select],
            Object::Parameter(_) => &[P::Set],
            Object::Database => &[P::Create],
        }
    }

    /// What PUBLIC has on it if nobody has said otherwise.
    pub fn default_of_public(&self) -> Privileges {
        match self {
            Object::Schema(name) if name == PUBLIC => Privileges::of(&[P::Usage]),
            Object::Workload(name) if name == crate::config::DEFAULT_WORKLOAD => {
                Privileges::of(&[P::Usage])
            }
            _ => Privileges::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_written_and_read() {
        let mut all = Privileges::default();
        assert_eq!(all.to_string(), "");
        all.grant(P::Delete, false);
        all.grant(P::Select, true);
        assert_eq!(all.to_string(), "SELECT* DELETE");
        assert_eq!(Privileges::parse(&all.to_string()), Some(all));
        all.revoke(P::Select, true);
        assert_eq!(all.to_string(), "SELECT DELETE");
        all.revoke(P::Select, false);
        assert_eq!(all.to_string(), "DELETE");
        assert_eq!(Privileges::parse("SELECT FLY"), None);
    }
}
