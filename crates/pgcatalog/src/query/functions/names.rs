//! Names of objects, into numbers and with quotes.

use thalweg_base::{Error, Result};

use super::{Form, form, string};
use crate::query::expr::Context;
use crate::text::{alias_oid, name_parts, quote_ident};
use crate::types::*;
use crate::value::Value;

pub(super) const FORMS: &[Form] = &[
    form("to_regclass", &[TEXT], REGCLASS, |c, a, _| to(c, a, REGCLASS)),
    form("to_regtype", &[TEXT], REGTYPE, |c, a, _| to(c, a, REGTYPE)),
    form("to_regproc", &[TEXT], REGPROC, |c, a, _| to(c, a, REGPROC)),
    form("to_regprocedure", &[TEXT], REGPROCEDURE, |c, a, _| to(c, a, REGPROCEDURE)),
    form("to_regnamespace", &[TEXT], REGNAMESPACE, |c, a, _| to(c, a, REGNAMESPACE)),
    form("to_regrole", &[TEXT], REGROLE, |c, a, _| to(c, a, REGROLE)),
    form("to_regoper", &[TEXT], REGOPER, |c, a, _| to(c, a, REGOPER)),
    form("to_regcollation", &[TEXT], REGCOLLATION, |c, a, _| to(c, a, REGCOLLATION)),
    form("quote_ident", &[TEXT], TEXT, |_, a, _| Ok(quote_ident(string(&a[0])).into())),
    form("quote_literal", &[TEXT], TEXT, |_, a, _| Ok(literal(string(&a[0])).into())),
    form("quote_nullable", &[TEXT], TEXT, |_, a, _| {
        Ok(a[0].as_text().map_or("NULL".into(), literal).into())
    })
    .with_nulls(),
    form("parse_ident", &[TEXT, BOOL], 1009, |_, a, _| {
        let parts = name_parts(string(&a[0])).ok_or_else(|| {
            Error::user(format!("string is not a valid identifier: \"{}\"", string(&a[0])))
                .code("22023")
        })?;
        Ok(Value::array(parts.into_iter().map(Value::from)))
    })
    .required(1),
];

fn to(ctx: &Context, arguments: &[Value], alias: Oid) -> Result<Value> {
    Ok(alias_oid(string(&arguments[0]), alias, ctx.env)?.unwrap_or(Value::Null))
}

fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    match text.contains('\\') {
        true => format!("E'{}'", quoted.replace('\\', "\\\\")),
        false => format!("'{quoted}'"),
    }
}
