//! Arrays.

use thalweg_base::Result;

use super::{ANY, ARRAY_OF_SECOND, Form, SAME, form, integer, string, text_of};
use crate::query::expr::Context;
use crate::types::{INT4, Oid, TEXT, element, first_subscript};
use crate::value::Value;

pub(super) const FORMS: &[Form] = &[
    form("array_to_string", &[ANY, TEXT, TEXT], TEXT, array_to_string).required(2),
    form("array_length", &[ANY, INT4], INT4, |_, a, _| {
        Ok(match values(&a[0]).len() as i64 {
            0 => Value::Null,
            length => only_dimension(&a[1], length),
        })
    }),
    form("array_lower", &[ANY, INT4], INT4, |_, a, t| {
        Ok(if values(&a[0]).is_empty() {
            Value::Null
        } else {
            only_dimension(&a[1], first_subscript(t[0]))
        })
    }),
    form("array_upper", &[ANY, INT4], INT4, |_, a, t| {
        Ok(match values(&a[0]).len() as i64 {
            0 => Value::Null,
            length => only_dimension(&a[1], first_subscript(t[0]) + length - 1),
        })
    }),
    form("cardinality", &[ANY], INT4, |_, a, _| Ok(Value::Int(values(&a[0]).len() as i64))),
    form("array_ndims", &[ANY], INT4, |_, a, _| {
        Ok(if values(&a[0]).is_empty() { Value::Null } else { Value::Int(1) })
    }),
    form("array_position", &[ANY, ANY], INT4, |_, a, t| {
        let at = values(&a[0]).iter().position(|v| *v == a[1]);
        Ok(at.map(|at| at as i64 + first_subscript(t[0])).into())
    }),
    form("array_append", &[ANY, ANY], SAME, |_, a, _| {
        Ok(Value::array(values(&a[0]).iter().chain([&a[1]]).cloned()))
    })
    .with_nulls(),
    form("array_prepend", &[ANY, ANY], ARRAY_OF_SECOND, |_, a, _| {
        Ok(Value::array([&a[0]].into_iter().chain(values(&a[1])).cloned()))
    })
    .with_nulls(),
    form("array_cat", &[ANY, ANY], SAME, |_, a, _| {
        Ok(Value::array(values(&a[0]).iter().chain(values(&a[1])).cloned()))
    })
    .with_nulls(),
    form("array_remove", &[ANY, ANY], SAME, |_, a, _| {
        Ok(Value::array(values(&a[0]).iter().filter(|v| **v != a[1]).cloned()))
    }),
];

fn values(value: &Value) -> &[Value] {
    value.as_array().unwrap_or(&[])
}

/// Arrays have one dimension.
fn only_dimension(dimension: &Value, value: i64) -> Value {
    if integer(dimension) == 1 { Value::Int(value) } else { Value::Null }
}

fn array_to_string(ctx: &Context, arguments: &[Value], types: &[Oid]) -> Result<Value> {
    let of = element(types[0]).unwrap_or(TEXT);
    let null = arguments.get(2).map(string);
    let mut parts = vec![];
    for value in values(&arguments[0]) {
        match (value.is_null(), null) {
            (true, Some(null)) => parts.push(null.to_string()),
            (true, None) => {}
            _ => parts.push(text_of(ctx, value, of)?),
        }
    }
    Ok(parts.join(string(&arguments[1])).into())
}
