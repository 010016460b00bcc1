//! `system.roles` and `system.grants`: never what a password or a token is checked with.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMillisecondArray, UInt32Array,
    UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use thalweg_base::Result;

use thalweg_errors::from_arrow;

use super::grant::{Object, Privilege, Privileges};
use super::role::Role;
use super::store::{Access, Grantee};
use super::viewer::Viewer;

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn switches(values: impl Iterator<Item = Option<bool>>) -> ArrayRef {
    Arc::new(values.collect::<BooleanArray>())
}

pub fn roles_schema() -> SchemaRef {
    schema(&[
        ("role_name", DataType::Utf8),
        ("role_id", DataType::UInt32),
        ("can_login", DataType::Boolean),
        ("is_superuser", DataType::Boolean),
        ("connection_limit", DataType::UInt32),
        ("valid_until", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("has_password", DataType::Boolean),
        ("tokens", DataType::UInt64),
        ("workload", DataType::Utf8),
        ("member_of", DataType::Utf8),
    ])
}

/// Whether somebody has a password is for superusers, and for themselves.
pub fn roles(access: &Access, viewer: &Viewer) -> Result<RecordBatch> {
    let all: Vec<&Arc<Role>> = access.roles().collect();
    let secret = |r: &Role| viewer.is_superuser() || viewer.role() == r.id;
    let member_of: Vec<String> = all
        .iter()
        .map(|r| r.member_of.keys().map(|id| access.name_of(*id)).collect::<Vec<_>>().join(", "))
        .collect();
    let until = all.iter().map(|r| r.valid_until_ms.and_then(|ms| i64::try_from(ms).ok()));
    let columns: Vec<ArrayRef> = vec![
        texts(all.iter().map(|r| Some(r.name.as_str()))),
        Arc::new(UInt32Array::from_iter_values(all.iter().map(|r| r.id.0))),
        switches(all.iter().map(|r| Some(r.login))),
        switches(all.iter().map(|r| Some(r.superuser))),
        Arc::new(all.iter().map(|r| r.connections_max).collect::<UInt32Array>()),
        Arc::new(until.collect::<TimestampMillisecondArray>()),
        switches(all.iter().map(|r| secret(r).then_some(r.verifier.is_some()))),
        Arc::new(
            all.iter().map(|r| secret(r).then_some(r.tokens.len() as u64)).collect::<UInt64Array>(),
        ),
        texts(all.iter().map(|r| r.workload.as_deref())),
        texts(member_of.iter().map(|m| Some(m.as_str()).filter(|m| !m.is_empty()))),
    ];
    RecordBatch::try_new(roles_schema(), columns).map_err(|e| from_arrow(&e))
}

pub fn grants_schema() -> SchemaRef {
    schema(&[
        ("grantee", DataType::Utf8),
        ("object_type", DataType::Utf8),
        ("schema_name", DataType::Utf8),
        ("object_name", DataType::Utf8),
        ("privilege", DataType::Utf8),
        ("is_grantable", DataType::Boolean),
    ])
}

struct Line {
    grantee: String,
    kind: &'static str,
    schema: Option<String>,
    name: String,
    privilege: &'static str,
    grantable: bool,
}

fn line(access: &Access, object: &Object, to: Grantee) -> Line {
    let (schema, name) = match object {
        Object::Relation(schema, name) => (Some(schema.clone()), name.clone()),
        Object::System(name) => (Some(crate::names::SYSTEM.into()), name.clone()),
        other => (None, other.name()),
    };
    Line {
        grantee: to.map_or("public".into(), |id| access.name_of(id)),
        kind: object.word(),
        schema,
        name,
        privilege: "",
        grantable: false,
    }
}

/// Of roles that are there, to all who ask: owners, grants, and who is a member of what.
pub fn grants(access: &Access) -> Result<RecordBatch> {
    let mut lines = vec![];
    for (object, owner) in access.owned().filter(|(_, id)| access.role(*id).is_some()) {
        lines.push(Line {
            privilege: "OWNER",
            grantable: true,
            ..line(access, object, Some(owner))
        });
    }
    let mut push = |object: &Object, to: Grantee, granted: Privileges| {
        for (privilege, grantable) in granted.list() {
            let privilege = Privilege::name(privilege);
            lines.push(Line { privilege, grantable, ..line(access, object, to) });
        }
    };
    for object in [Object::Schema(crate::names::PUBLIC.into()), Object::Workload("default".into())]
    {
        if access.stored(&object, None).is_none() {
            push(&object, None, object.default_of_public());
        }
    }
    for (object, to, granted) in access.grants() {
        if to.is_none_or(|id| access.role(id).is_some()) {
            push(object, to, granted);
        }
    }
    for role in access.roles() {
        for (of, admin) in role.member_of.iter().filter(|(of, _)| access.role(**of).is_some()) {
            lines.push(Line {
                grantee: role.name.clone(),
                kind: "role",
                schema: None,
                name: access.name_of(*of),
                privilege: "MEMBER",
                grantable: *admin,
            });
        }
    }
    let columns = vec![
        texts(lines.iter().map(|l| Some(l.grantee.as_str()))),
        texts(lines.iter().map(|l| Some(l.kind))),
        texts(lines.iter().map(|l| l.schema.as_deref())),
        texts(lines.iter().map(|l| Some(l.name.as_str()))),
        texts(lines.iter().map(|l| Some(l.privilege))),
        switches(lines.iter().map(|l| Some(l.grantable))),
    ];
    RecordBatch::try_new(grants_schema(), columns).map_err(|e| from_arrow(&e))
}
