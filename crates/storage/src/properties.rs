//! Settings of the database as a whole, by name; and those of one schema or relation, which go when
//! it goes and follow it when it is renamed.
//!
//! The names of the latter begin with what they belong to: `of "public"."t" owner`, `of "public" owner`.

use std::collections::BTreeMap;

use thalweg_base::text::quoted;

use crate::snapshot::Snapshot;

const OF: &str = "of ";

/// What the names of a schema's properties begin with.
pub fn of_schema(schema: &str) -> String {
    format!("{OF}{} ", quoted(schema))
}

/// What the names of a relation's properties begin with.
pub fn of_relation(schema: &str, name: &str) -> String {
    format!("{OF}{}.{} ", quoted(schema), quoted(name))
}

/// Takes a name in quotes, with quotes in it doubled, from the front of `text`.
pub fn take_quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut name = String::new();
    let mut rest = inner;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Some((name, rest)),
        }
    }
}

/// The schema and, unless it is the schema's own, the relation that a property belongs to, and its
/// name without them. `None`: it is the database's.
pub fn owner(property: &str) -> Option<(String, Option<String>, &str)> {
    let (schema, rest) = take_quoted(property.strip_prefix(OF)?)?;
    match rest.strip_prefix('.') {
        None => Some((schema, None, rest.strip_prefix(' ')?)),
        Some(rest) => {
            let (name, rest) = take_quoted(rest)?;
            Some((schema, Some(name), rest.strip_prefix(' ')?))
        }
    }
}

/// Whether there is what a property belongs to.
pub(crate) fn has_owner(snapshot: &Snapshot, property: &str) -> bool {
    match owner(property) {
        None => !property.starts_with(OF),
        Some((schema, relation, _)) => snapshot
            .schemas
            .get(&schema)
            .is_some_and(|s| relation.is_none_or(|name| s.relation(&name).is_some())),
    }
}

/// Removes the properties whose names begin with `prefix`, and returns them without it.
pub(crate) fn take(
    properties: &mut BTreeMap<String, String>,
    prefix: &str,
) -> Vec<(String, String)> {
    let names: Vec<String> =
        with_prefix(properties, prefix).map(|(name, _)| name.clone()).collect();
    let taken = names.into_iter().filter_map(|name| {
        let value = properties.remove(&name)?;
        Some((name[prefix.len()..].to_owned(), value))
    });
    taken.collect()
}

/// The properties whose names begin with `prefix`.
pub fn with_prefix<'a>(
    properties: &'a BTreeMap<String, String>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    properties.range(prefix.to_owned()..).take_while(move |(name, _)| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_kind_are_told_apart() {
        for (schema, relation) in [
            ("public", Some("t")),
            ("a\".\"b", Some("c")),
            ("a", None),
            ("a\"", Some("\" ")),
            (".", None),
        ] {
            let prefix = relation.map_or_else(|| of_schema(schema), |r| of_relation(schema, r));
            let property = format!("{prefix}grant 12");
            assert_eq!(
                owner(&property).map(|(s, r, name)| (s, r, name.to_owned())),
                Some((schema.into(), relation.map(str::to_owned), "grant 12".into()))
            );
        }
        assert_eq!(owner("workload.of"), None);
        assert_eq!(owner("of \"open"), None);
    }
}
