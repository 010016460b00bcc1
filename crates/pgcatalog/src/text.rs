//! Values as PostgreSQL writes them, and back.

use std::sync::Arc;

use thalweg_base::{Error, Result};

use crate::relation::{Environment, Lookup};
use crate::types::{self, Class, Oid};
use crate::value::Value;
use crate::{Column, Row};

/// What stands in a column of the type; `None` if the text is none. Names of objects are not
/// looked up.
pub fn parse_plain(text: &str, oid: Oid) -> Option<Value> {
    match types::class(oid) {
        Class::Bool => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "yes" | "on" | "1" | "y" => Some(Value::Bool(true)),
            "f" | "false" | "no" | "off" | "0" | "n" => Some(Value::Bool(false)),
            _ => None,
        },
        Class::Int if matches!(oid, types::TIMESTAMP | types::TIMESTAMPTZ) => {
            parse_time(text).map(Value::Int)
        }
        Class::Int => text.trim().parse().ok().map(Value::Int),
        Class::Float => text.trim().parse().ok().map(Value::Float),
        Class::Array => {
            let element = types::element(oid)?;
            if matches!(oid, types::INT2VECTOR | types::OIDVECTOR) {
                let values = text.split_whitespace().map(|t| parse_plain(t, element));
                return values.collect::<Option<Arc<[Value]>>>().map(Value::Array);
            }
            let parse = |item: Option<String>| match item {
                None => Some(Value::Null),
                Some(item) => parse_plain(&item, element),
            };
            let items = array_items(text)?;
            items.into_iter().map(parse).collect::<Option<Arc<[Value]>>>().map(Value::Array)
        }
        Class::Text | Class::Unknown => Some(Value::text(text)),
        Class::Record => None,
    }
}

/// The elements of `{a,"b c",NULL}`; one dimension.
pub fn array_items(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = vec![];
    if inner.trim().is_empty() {
        return Some(items);
    }
    let mut chars = inner.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let (mut item, mut is_quoted) = (String::new(), false);
        if chars.next_if_eq(&'"').is_some() {
            is_quoted = true;
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => item.push(chars.next()?),
                    c => item.push(c),
                }
            }
            while chars.next_if(|c| c.is_whitespace()).is_some() {}
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                match c {
                    '\\' => item.push(chars.next()?),
                    '{' | '}' => return None,
                    c => item.push(c),
                }
            }
            item.truncate(item.trim_end().len());
        }
        let is_null = !is_quoted && item.eq_ignore_ascii_case("null");
        items.push((!is_null).then_some(item));
        match chars.next() {
            None => return Some(items),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

/// `2026-01-31 12:00:00+00` in microseconds since 1970.
fn parse_time(text: &str) -> Option<i64> {
    let text = text.trim();
    let (date, rest) = text.split_at_checked(10)?;
    let mut parts = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let clock = rest.trim_start_matches([' ', 'T']).trim_end_matches("+00").trim_end_matches('Z');
    let mut seconds = 0.0;
    let mut unit = 3600.0;
    for part in clock.split(':').filter(|p| !p.is_empty()) {
        seconds += part.parse::<f64>().ok()? * unit;
        unit /= 60.0;
    }
    Some(days(year, month, day) * 86_400_000_000 + (seconds * 1e6).round() as i64)
}

/// Days since 1970 of a date of the Gregorian calendar (Hinnant's algorithm).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * years + years / 4 - years / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    (years + era * 400 + i64::from(month <= 2), month, day)
}

fn print_time(us: i64, zone: &str) -> String {
    let (day, rest) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000));
    let (year, month, day) = date(day);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    if fraction > 0 {
        text += format!(".{fraction:06}").trim_end_matches('0');
    }
    text + zone
}

/// A value as text; `None`: NULL.
pub fn print<E: Environment + ?Sized>(value: &Value, oid: Oid, env: &E) -> Result<Option<String>> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(b) => if *b { "t" } else { "f" }.into(),
        Value::Int(us) if oid == types::TIMESTAMP => print_time(*us, ""),
        Value::Int(us) if oid == types::TIMESTAMPTZ => print_time(*us, "+00"),
        Value::Int(n) if types::is_alias(oid) => alias_name(*n, oid, env)?,
        Value::Int(n) => n.to_string(),
        Value::Float(n) => float(*n),
        Value::Text(text) => text.to_string(),
        Value::Array(values) => {
            let element = types::element(oid).unwrap_or(types::TEXT);
            let texts = values.iter().map(|v| print(v, element, env));
            let texts = texts.collect::<Result<Vec<_>>>()?;
            if matches!(oid, types::INT2VECTOR | types::OIDVECTOR) {
                texts.into_iter().flatten().collect::<Vec<_>>().join(" ")
            } else {
                let items = texts.iter().map(|t| t.as_deref().map_or("NULL".into(), array_item));
                format!("{{{}}}", items.collect::<Vec<_>>().join(","))
            }
        }
        Value::Row(values) => {
            let text =
                |value: &Value| print(value, types::UNKNOWN, env).map(Option::unwrap_or_default);
            let texts = values.iter().map(text).collect::<Result<Vec<_>>>()?;
            format!("({})", texts.join(","))
        }
    }))
}

fn array_item(text: &str) -> String {
    let plain = !text.is_empty()
        && !text.eq_ignore_ascii_case("null")
        && !text.contains(|c: char| c.is_whitespace() || matches!(c, '{' | '}' | ',' | '"' | '\\'));
    if plain {
        return text.into();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn float(n: f64) -> String {
    if n.is_finite() {
        return n.to_string();
    }
    match (n.is_nan(), n > 0.0) {
        (true, _) => "NaN",
        (_, true) => "Infinity",
        _ => "-Infinity",
    }
    .into()
}

/// A name in quotes, if it needs them.
pub fn quote_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&name);
    if plain { name.into() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Words that are no names without quotes.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
];

/// `s.t`, or `t` where the search path finds it.
fn alias_name<E: Environment + ?Sized>(oid: i64, alias: Oid, env: &E) -> Result<String> {
    let value = Value::Int(oid);
    let (relation, column, schema) = match alias {
        types::REGCLASS => ("pg_class", "relname", "relnamespace"),
        types::REGPROC | types::REGPROCEDURE => ("pg_proc", "proname", "pronamespace"),
        types::REGOPER | types::REGOPERATOR => ("pg_operator", "oprname", "oprnamespace"),
        types::REGNAMESPACE => ("pg_namespace", "nspname", ""),
        types::REGROLE => ("pg_authid", "rolname", ""),
        types::REGCONFIG => ("pg_ts_config", "cfgname", "cfgnamespace"),
        types::REGDICTIONARY => ("pg_ts_dict", "dictname", "dictnamespace"),
        types::REGCOLLATION => ("pg_collation", "collname", "collnamespace"),
        _ => {
            return Ok(match oid {
                0 => "-".into(),
                _ => type_name(oid, -1, env)?.unwrap_or(oid.to_string()),
            });
        }
    };
    if oid == 0 {
        return Ok("-".into());
    }
    let name = env.find(relation, "oid", &value, column)?;
    let Some(name) = name.as_text() else { return Ok(oid.to_string()) };
    let is_operator = matches!(alias, types::REGOPER | types::REGOPERATOR);
    let shown = if is_operator { name.into() } else { quote_ident(name) };
    if schema.is_empty() {
        return Ok(shown);
    }
    let namespace = env.find(relation, "oid", &value, schema)?;
    let namespace = env.find("pg_namespace", "oid", &namespace, "nspname")?;
    Ok(match namespace.as_text() {
        Some(schema) if !is_on_path(schema, env) => format!("{}.{shown}", quote_ident(schema)),
        _ => shown,
    })
}

pub fn is_on_path<E: Environment + ?Sized>(schema: &str, env: &E) -> bool {
    schema == "pg_catalog" || env.search_path().iter().any(|s| s == schema)
}

/// As `format_type` shows it; `None` for a type that is not there.
pub fn type_name<E: Environment + ?Sized>(
    oid: i64,
    typmod: i32,
    env: &E,
) -> Result<Option<String>> {
    if let Some(shown) = u32::try_from(oid).ok().and_then(|oid| types::shown(oid, typmod)) {
        return Ok(Some(shown));
    }
    let name = env.find("pg_type", "oid", &Value::Int(oid), "typname")?;
    let Some(name) = name.as_text() else { return Ok(None) };
    let element = env.find("pg_type", "oid", &Value::Int(oid), "typelem")?;
    if let (Some(_), Some(element @ 1..)) = (name.strip_prefix('_'), element.as_int()) {
        return Ok(type_name(element, typmod, env)?.map(|name| name + "[]"));
    }
    let namespace = env.find("pg_type", "oid", &Value::Int(oid), "typnamespace")?;
    let namespace = env.find("pg_namespace", "oid", &namespace, "nspname")?;
    Ok(Some(match namespace.as_text() {
        Some(schema) if !is_on_path(schema, env) => {
            format!("{}.{}", quote_ident(schema), quote_ident(name))
        }
        _ => quote_ident(name),
    }))
}

/// The parts of a name as it is written: `a."B"` → `a`, `B`.
pub fn name_parts(text: &str) -> Option<Vec<String>> {
    let mut parts = vec![];
    let mut chars = text.trim().chars().peekable();
    loop {
        let mut part = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next()? {
                    '"' if chars.next_if_eq(&'"').is_some() => part.push('"'),
                    '"' => break,
                    c => part.push(c),
                }
            }
        } else {
            while let Some(c) = chars.next_if(|c| *c != '.') {
                part.extend(c.to_lowercase());
            }
            if part.is_empty() {
                return None;
            }
        }
        parts.push(part);
        match chars.next() {
            None => return Some(parts),
            Some('.') => {}
            Some(_) => return None,
        }
    }
}

/// The OID that a name stands for, such as `'s.t'::regclass`; `None`: there is no such object.
pub fn alias_oid<E: Environment + ?Sized>(
    text: &str,
    alias: Oid,
    env: &E,
) -> Result<Option<Value>> {
    if let Ok(number) = text.trim().parse::<u32>() {
        return Ok(Some(number.into()));
    }
    if text == "-" {
        return Ok(Some(Value::Int(0)));
    }
    let (relation, column, schema) = match alias {
        types::REGCLASS => ("pg_class", "relname", "relnamespace"),
        types::REGPROC | types::REGPROCEDURE => ("pg_proc", "proname", "pronamespace"),
        types::REGOPER | types::REGOPERATOR => ("pg_operator", "oprname", "oprnamespace"),
        types::REGTYPE => ("pg_type", "typname", "typnamespace"),
        types::REGCONFIG => ("pg_ts_config", "cfgname", "cfgnamespace"),
        types::REGDICTIONARY => ("pg_ts_dict", "dictname", "dictnamespace"),
        types::REGCOLLATION => ("pg_collation", "collname", "collnamespace"),
        types::REGNAMESPACE => ("pg_namespace", "nspname", ""),
        types::REGROLE => ("pg_authid", "rolname", ""),
        _ => return Ok(None),
    };
    let text = match alias {
        // Arguments are not told apart.
        types::REGPROCEDURE => text.split('(').next().unwrap_or(text),
        _ => text,
    };
    if alias == types::REGTYPE
        && let Some(oid) =
            types::named(text.trim().strip_prefix("pg_catalog.").unwrap_or(text.trim()))
    {
        return Ok(Some(oid.into()));
    }
    let (text, is_array) = match text.strip_suffix("[]").filter(|_| alias == types::REGTYPE) {
        Some(element) => (element, true),
        None => (text, false),
    };
    let Some(mut parts) = name_parts(text) else { return Ok(None) };
    let name = Value::from(parts.pop().unwrap_or_default());
    let wanted = if is_array { "typarray" } else { "oid" };
    let found = if schema.is_empty() {
        env.find(relation, column, &name, wanted)?
    } else {
        let schemas = match parts.pop() {
            Some(schema) => vec![schema],
            None => std::iter::once("pg_catalog".into()).chain(env.search_path()).collect(),
        };
        let mut found = Value::Null;
        for in_schema in schemas {
            let in_schema = env.find("pg_namespace", "nspname", &in_schema.into(), "oid")?;
            if !in_schema.is_null() {
                let keys = [(column, name.clone()), (schema, in_schema)];
                found = env.find_by(relation, keys, wanted)?;
            }
            if !found.is_null() {
                break;
            }
        }
        found
    };
    Ok(Some(found).filter(|found| !found.is_null()))
}

/// A cast, explicit or implied.
pub fn cast<E: Environment + ?Sized>(
    value: &Value,
    from: Oid,
    to: Oid,
    typmod: i32,
    env: &E,
) -> Result<Value> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let (source, target) = (types::class(from), types::class(to));
    if let (Class::Text | Class::Unknown, Value::Text(text)) = (source, value)
        && !matches!(target, Class::Text | Class::Unknown)
    {
        return parse(text, to, env);
    }
    match (target, value) {
        (Class::Text | Class::Unknown, Value::Bool(b)) => {
            Ok(if *b { "true" } else { "false" }.into())
        }
        (Class::Text | Class::Unknown, _) => {
            let text = print(value, from, env)?.unwrap_or_default();
            Ok(match (to, typmod) {
                (types::CHAR, _) => text.chars().take(1).collect::<String>().into(),
                (types::NAME, _) if text.len() > NAME_BYTES_MAX => {
                    let end = (0..=NAME_BYTES_MAX).rev().find(|i| text.is_char_boundary(*i));
                    text[..end.unwrap_or(0)].into()
                }
                (types::VARCHAR | types::BPCHAR, 4..) => {
                    text.chars().take(typmod as usize - 4).collect::<String>().into()
                }
                _ => text.into(),
            })
        }
        (Class::Int, Value::Float(n)) => Ok(Value::Int(n.round_ties_even() as i64)),
        (Class::Int, Value::Bool(b)) => Ok(Value::Int((*b).into())),
        (Class::Float, Value::Int(n)) => Ok(Value::Float(*n as f64)),
        (Class::Bool, Value::Int(n)) => Ok(Value::Bool(*n != 0)),
        (Class::Array, Value::Array(values)) => {
            let elements = (types::element(from), types::element(to));
            let (Some(from), Some(to)) = elements else { return Ok(value.clone()) };
            let values = values.iter().map(|v| cast(v, from, to, typmod, env));
            Ok(Value::Array(values.collect::<Result<_>>()?))
        }
        (Class::Int, Value::Int(_))
        | (Class::Float, Value::Float(_))
        | (Class::Bool, Value::Bool(_))
        | (Class::Record, Value::Row(_)) => Ok(value.clone()),
        _ => Err(Error::user(format!(
            "cannot cast type {} to {}",
            type_name(from.into(), -1, env)?.unwrap_or_default(),
            type_name(to.into(), -1, env)?.unwrap_or_default()
        ))
        .code("42846")),
    }
}

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 63;

/// Text that a value of the type is written as.
pub fn parse<E: Environment + ?Sized>(text: &str, to: Oid, env: &E) -> Result<Value> {
    if types::is_alias(to) {
        return match alias_oid(text, to, env)? {
            Some(oid) => Ok(oid),
            None => Err(no_object(text, to)),
        };
    }
    if let Some(element) = types::element(to).filter(|e| types::is_alias(*e)) {
        let items = array_items(text).ok_or_else(|| malformed(text, to))?;
        let parse = |item: Option<String>| match item {
            None => Ok(Value::Null),
            Some(item) => parse(&item, element, env),
        };
        return items.into_iter().map(parse).collect::<Result<_>>().map(Value::Array);
    }
    let value = parse_plain(text, to).ok_or_else(|| malformed(text, to))?;
    match (&value, to) {
        (Value::Int(n), types::OID) if u32::try_from(*n).is_err() => Err(malformed(text, to)),
        _ => Ok(value),
    }
}

fn malformed(text: &str, to: Oid) -> Error {
    let name = types::shown(to, -1).unwrap_or_default();
    Error::user(format!("invalid input syntax for type {name}: \"{text}\"")).code("22P02")
}

fn no_object(text: &str, alias: Oid) -> Error {
    let (what, code) = match alias {
        types::REGCLASS => ("relation", "42P01"),
        types::REGTYPE => ("type", "42704"),
        types::REGPROC | types::REGPROCEDURE => ("function", "42883"),
        types::REGOPER | types::REGOPERATOR => ("operator", "42883"),
        types::REGNAMESPACE => ("schema", "3F000"),
        types::REGROLE => ("role", "42704"),
        types::REGCOLLATION => ("collation", "42704"),
        _ => ("object", "42704"),
    };
    Error::user(format!("{what} \"{text}\" does not exist")).code(code)
}

/// Rows that are written as PostgreSQL writes them: `f`, `{1,2}`, `1 2`.
pub fn parse_rows<'a>(
    columns: &[Column],
    rows: impl IntoIterator<Item = Vec<Option<&'a str>>>,
) -> Vec<Row> {
    let parse = |column: &Column, text: Option<&str>| match text {
        None => Value::Null,
        Some(text) => parse_plain(text, column.oid).unwrap_or_else(|| {
            debug_assert!(types::class(column.oid) == Class::Text, "{text}");
            Value::text(text)
        }),
    };
    let row = |texts: Vec<Option<&str>>| {
        columns.iter().zip(texts).map(|(column, text)| parse(column, text)).collect()
    };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read() {
        let items = |text| array_items(text).map(|i| i.into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(items("{}").unwrap(), Vec::<String>::new());
        assert_eq!(items("{a, \"b,c\",\"d\\\"e\"}").unwrap(), ["a", "b,c", "d\"e"]);
        assert_eq!(array_items("{NULL,\"NULL\"}").unwrap(), [None, Some("NULL".into())]);
        assert!(array_items("a").is_none() && array_items("{\"a}").is_none());
    }

    #[test]
    fn times_are_read_and_written() {
        for text in ["1970-01-01 00:00:00+00", "2026-11-22 20:29:18.5+00", "1969-12-31 23:59:59+00"]
        {
            assert_eq!(print_time(parse_time(text).unwrap(), "+00"), text);
        }
    }

    #[test]
    fn names_have_parts() {
        assert_eq!(name_parts("A.\"B\"\"c\"").unwrap(), ["a", "B\"c"]);
        assert!(name_parts("a.").is_none() && name_parts("\"a").is_none());
        assert_eq!(quote_ident("select"), "\"select\"");
        assert_eq!(quote_ident("a_1"), "a_1");
    }
}
