//! What a statement needs besides reading: from its text and the names there are, and from nothing
//! else. What it reads, the catalog checks where each name is looked up, also those inside views.

use datafusion::sql::parser::{CreateExternalTable, Statement};
use datafusion::sql::sqlparser::ast::{
    self, Delete, Expr, FromTable, Insert, Merge, MergeAction, ObjectName, ObjectType, SetExpr,
    TableFactor, TableObject, TableWithJoins, Update,
};
use thalweg_storage::{RelationKind, Snapshot};

use super::grant::{Object, Privilege as P};
use super::role::{PG_MAINTAIN, PG_READ_SERVER_FILES, PG_WRITE_SERVER_FILES, RoleId};
use crate::names::{self, CATALOG, PUBLIC};

/// One thing that somebody must be allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    Privilege(P, Object),
    Owner(Object),
    /// A role that stands for a right of the whole server, and what for.
    Member(RoleId, &'static str),
}

pub const READ_FILES: Need = Need::Member(PG_READ_SERVER_FILES, "read files of the server");
pub const WRITE_FILES: Need = Need::Member(PG_WRITE_SERVER_FILES, "write files of the server");

/// Names that are not there need nothing: that they are not is another error.
pub fn needs(statement: &Statement, snapshot: &Snapshot) -> Vec<Need> {
    let mut all = Needs { snapshot, all: vec![] };
    all.statement(statement);
    all.all
}

struct Needs<'a> {
    snapshot: &'a Snapshot,
    all: Vec<Need>,
}

impl Needs<'_> {
    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Statement(inner) => self.sql(inner),
            Statement::Explain(explain) => self.statement(&explain.statement),
            Statement::CreateExternalTable(create) => self.create_external(create),
            Statement::CopyTo(_) => self.all.push(WRITE_FILES),
            Statement::Reset(_) => {}
        }
    }

    fn sql(&mut self, statement: &ast::Statement) {
        use ast::Statement as S;
        match statement {
            S::Query(query) => match query.body.as_ref() {
                SetExpr::Insert(inner)
                | SetExpr::Update(inner)
                | SetExpr::Delete(inner)
                | SetExpr::Merge(inner) => self.sql(inner),
                _ => {}
            },
            S::Explain { statement, .. } => self.sql(statement),
            S::Insert(insert) => self.insert(insert),
            S::Update(update) => self.update(update),
            S::Delete(delete) => self.delete(delete),
            S::Merge(merge) => self.merge(merge),
            S::Truncate(truncate) => {
                truncate.table_names.iter().for_each(|t| self.on(P::Truncate, &t.name));
            }
            S::CreateTable(create) => self.create(&create.name, create.or_replace),
            S::CreateView(create) => self.create(&create.name, create.or_replace),
            S::AlterTable(alter) => self.owner(&alter.name),
            S::CreateIndex(create) => self.owner(&create.table_name),
            S::Analyze(analyze) => {
                analyze.table_name.iter().for_each(|table| self.owner(table));
            }
            S::Drop { object_type: ObjectType::Index, .. } => {}
            S::CreateSchema { .. } => {
                self.all.push(Need::Privilege(P::Create, Object::Database));
            }
            S::Drop { object_type, names, .. } => {
                for name in names {
                    match object_type {
                        ObjectType::Schema => self.owner_of_schema(name),
                        _ => self.owner(name),
                    }
                }
            }
            // Of all tables, whichever it names.
            S::Vacuum(_) => self.all.push(Need::Member(PG_MAINTAIN, "VACUUM the database")),
            S::OptimizeTable { name, .. } => self.on(P::Maintain, name),
            _ => {}
        }
    }

    /// Schema, name and kind; `None`: there is none of that name.
    fn find(&self, name: &ObjectName) -> Option<(String, String, RelationKind)> {
        let (schema, name) = split(name)?;
        let kind = self.snapshot.schemas.get(&schema)?.relation(&name)?;
        Some((schema, name, kind))
    }

    fn on(&mut self, privilege: P, name: &ObjectName) {
        if let Some((schema, name, _)) = self.find(name) {
            self.all.push(Need::Privilege(privilege, Object::Relation(schema, name)));
        }
    }

    fn owner(&mut self, name: &ObjectName) {
        if let Some((schema, name, _)) = self.find(name) {
            self.all.push(Need::Owner(Object::Relation(schema, name)));
        }
    }

    fn owner_of_schema(&mut self, name: &ObjectName) {
        let Some(part) = name.0.last().and_then(|p| p.as_ident()) else { return };
        let schema = names::ident(part);
        if self.snapshot.schemas.contains_key(&schema) {
            self.all.push(Need::Owner(Object::Schema(schema)));
        }
    }

    fn create(&mut self, name: &ObjectName, or_replace: bool) {
        let Some((schema, _)) = split(name) else { return };
        if self.snapshot.schemas.contains_key(&schema) {
            self.all.push(Need::Privilege(P::Create, Object::Schema(schema)));
        }
        if or_replace {
            self.owner(name);
        }
    }

    fn create_external(&mut self, create: &CreateExternalTable) {
        self.all.push(READ_FILES);
        self.create(&create.name, create.or_replace);
    }

    fn insert(&mut self, insert: &Insert) {
        let TableObject::TableName(name) = &insert.table else { return };
        self.on(P::Insert, name);
        if insert.overwrite {
            self.on(P::Delete, name);
        }
        if insert.returning.is_some() {
            self.on(P::Select, name);
        }
        if matches!(self.find(name), Some((.., RelationKind::External))) {
            self.all.push(WRITE_FILES);
        }
    }

    /// Who only writes need not be allowed to read.
    fn update(&mut self, update: &Update) {
        let Some(name) = name_of(&update.table) else { return };
        self.on(P::Update, name);
        let reads = update.selection.is_some()
            || update.from.is_some()
            || update.returning.is_some()
            || !update.assignments.iter().all(|a| is_constant(&a.value));
        if reads {
            self.on(P::Select, name);
        }
    }

    fn delete(&mut self, delete: &Delete) {
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        for name in from.iter().filter_map(name_of) {
            self.on(P::Delete, name);
            if delete.selection.is_some() || delete.using.is_some() || delete.returning.is_some() {
                self.on(P::Select, name);
            }
        }
    }

    fn merge(&mut self, merge: &Merge) {
        let TableFactor::Table { name, .. } = &merge.table else { return };
        self.on(P::Select, name);
        for clause in &merge.clauses {
            match &clause.action {
                MergeAction::Insert(_) => self.on(P::Insert, name),
                MergeAction::Update(_) => self.on(P::Update, name),
                MergeAction::Delete { .. } => self.on(P::Delete, name),
            }
        }
    }
}

fn name_of(table: &TableWithJoins) -> Option<&ObjectName> {
    match &table.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

/// Whether its value is of no row.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => is_constant(expr),
        other => crate::dml::target::is_default(other),
    }
}

/// `None`: it names no relation of the one catalog.
pub fn split(name: &ObjectName) -> Option<(String, String)> {
    let parts: Option<Vec<String>> =
        name.0.iter().map(|p| p.as_ident().map(names::ident)).collect();
    match parts?.as_slice() {
        [name] => Some((PUBLIC.into(), name.clone())),
        [schema, name] => Some((schema.clone(), name.clone())),
        [catalog, schema, name] if catalog == CATALOG => Some((schema.clone(), name.clone())),
        _ => None,
    }
}
