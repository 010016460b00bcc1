//! Text, numbers, JSON.

use thalweg_base::{Error, Result};

use super::{ANY, Form, SAME, form, integer, json, string, text_of};
use crate::query::expr::Context;
use crate::types::*;
use crate::value::Value;

const TEXTS: Oid = 1009;

pub(super) const FORMS: &[Form] = &[
    form("lower", &[TEXT], TEXT, |_, a, _| Ok(string(&a[0]).to_lowercase().into())),
    form("upper", &[TEXT], TEXT, |_, a, _| Ok(string(&a[0]).to_uppercase().into())),
    form("initcap", &[TEXT], TEXT, |_, a, _| Ok(initcap(string(&a[0])).into())),
    form("reverse", &[TEXT], TEXT, |_, a, _| {
        Ok(string(&a[0]).chars().rev().collect::<String>().into())
    }),
    form("length", &[TEXT], INT4, length),
    form("char_length", &[TEXT], INT4, length),
    form("character_length", &[TEXT], INT4, length),
    form("octet_length", &[TEXT], INT4, |_, a, _| Ok(Value::Int(string(&a[0]).len() as i64))),
    form("text", &[ANY], TEXT, |c, a, t| Ok(text_of(c, &a[0], t[0])?.into())),
    form("concat", &[ANY], TEXT, |c, a, t| Ok(joined(c, a, t, "")?.into())).more().with_nulls(),
    form("concat_ws", &[TEXT, ANY], TEXT, |c, a, t| {
        Ok(joined(c, &a[1..], &t[1..], string(&a[0]))?.into())
    })
    .more()
    .with_nulls(),
    form("substring", &[TEXT, INT4, INT4], TEXT, substring).required(2),
    form("substr", &[TEXT, INT4, INT4], TEXT, substring).required(2),
    form("left", &[TEXT, INT4], TEXT, |_, a, _| Ok(part(string(&a[0]), integer(&a[1]), true))),
    form("right", &[TEXT, INT4], TEXT, |_, a, _| Ok(part(string(&a[0]), integer(&a[1]), false))),
    form("replace", &[TEXT, TEXT, TEXT], TEXT, |_, a, _| {
        let (text, from) = (string(&a[0]), string(&a[1]));
        Ok(if from.is_empty() { text.into() } else { text.replace(from, string(&a[2])).into() })
    }),
    form("regexp_replace", &[TEXT, TEXT, TEXT, TEXT], TEXT, regexp_replace).required(3),
    form("split_part", &[TEXT, TEXT, INT4], TEXT, |_, a, _| {
        let at = usize::try_from(integer(&a[2]) - 1).ok();
        let part = at.and_then(|at| string(&a[0]).split(string(&a[1])).nth(at));
        Ok(part.unwrap_or("").into())
    }),
    form("strpos", &[TEXT, TEXT], INT4, |_, a, _| {
        let text = string(&a[0]);
        let at = text.find(string(&a[1])).map_or(0, |at| text[..at].chars().count() + 1);
        Ok(Value::Int(at as i64))
    }),
    form("starts_with", &[TEXT, TEXT], BOOL, |_, a, _| {
        Ok(string(&a[0]).starts_with(string(&a[1])).into())
    }),
    form("btrim", &[TEXT, TEXT], TEXT, |_, a, _| Ok(string(&a[0]).trim_matches(set(a)).into()))
        .required(1),
    form("ltrim", &[TEXT, TEXT], TEXT, |_, a, _| {
        Ok(string(&a[0]).trim_start_matches(set(a)).into())
    })
    .required(1),
    form("rtrim", &[TEXT, TEXT], TEXT, |_, a, _| Ok(string(&a[0]).trim_end_matches(set(a)).into()))
        .required(1),
    form("repeat", &[TEXT, INT4], TEXT, |_, a, _| {
        let (text, count) = (string(&a[0]), integer(&a[1]).max(0) as usize);
        match text.len().saturating_mul(count) {
            0..=TEXT_BYTES_MAX => Ok(text.repeat(count).into()),
            _ => Err(Error::resources("the text would be longer than 1 MiB")),
        }
    }),
    form("translate", &[TEXT, TEXT, TEXT], TEXT, |_, a, _| {
        let to: Vec<char> = string(&a[2]).chars().collect();
        let each = string(&a[0]).chars().filter_map(|c| {
            match string(&a[1]).chars().position(|from| from == c) {
                Some(at) => to.get(at).copied(),
                None => Some(c),
            }
        });
        Ok(each.collect::<String>().into())
    }),
    form("ascii", &[TEXT], INT4, |_, a, _| {
        Ok(Value::Int(string(&a[0]).chars().next().map_or(0, |c| i64::from(c as u32))))
    }),
    form("chr", &[INT4], TEXT, |_, a, _| {
        let c = u32::try_from(integer(&a[0])).ok().and_then(char::from_u32).filter(|c| *c != '\0');
        match c {
            Some(c) => Ok(c.to_string().into()),
            None => Err(Error::user("requested character is not valid").code("54000")),
        }
    }),
    form("format", &[TEXT, ANY], TEXT, format_text).required(1).more().with_nulls(),
    form("string_to_array", &[TEXT, TEXT, TEXT], TEXTS, string_to_array).required(2),
    form("abs", &[INT8], INT8, |_, a, _| Ok(Value::Int(integer(&a[0]).saturating_abs()))),
    form("abs", &[FLOAT8], FLOAT8, |_, a, _| float(a, f64::abs)),
    form("floor", &[FLOAT8], FLOAT8, |_, a, _| float(a, f64::floor)),
    form("ceil", &[FLOAT8], FLOAT8, |_, a, _| float(a, f64::ceil)),
    form("ceiling", &[FLOAT8], FLOAT8, |_, a, _| float(a, f64::ceil)),
    form("round", &[FLOAT8, INT4], FLOAT8, |_, a, _| {
        let scale = 10f64.powi(a.get(1).map_or(0, integer).clamp(-300, 300) as i32);
        float(a, |n| (n * scale).round() / scale)
    })
    .required(1),
    form("greatest", &[ANY], SAME, |_, a, _| {
        Ok(a.iter().filter(|v| !v.is_null()).max().cloned().unwrap_or(Value::Null))
    })
    .more()
    .with_nulls(),
    form("least", &[ANY], SAME, |_, a, _| {
        Ok(a.iter().filter(|v| !v.is_null()).min().cloned().unwrap_or(Value::Null))
    })
    .more()
    .with_nulls(),
    form("json_build_object", &[ANY], JSON, build_object).required(0).more().with_nulls(),
    form("jsonb_build_object", &[ANY], JSONB, build_object).required(0).more().with_nulls(),
    form("json_build_array", &[ANY], JSON, build_array).required(0).more().with_nulls(),
    form("jsonb_build_array", &[ANY], JSONB, build_array).required(0).more().with_nulls(),
    form("to_json", &[ANY], JSON, |c, a, t| Ok(json(&a[0], t[0], c.env)?.into())),
    form("to_jsonb", &[ANY], JSONB, |c, a, t| Ok(json(&a[0], t[0], c.env)?.into())),
    form("now", &[], TIMESTAMPTZ, now),
    form("current_timestamp", &[], TIMESTAMPTZ, now),
    form("transaction_timestamp", &[], TIMESTAMPTZ, now),
    form("statement_timestamp", &[], TIMESTAMPTZ, now),
    form("clock_timestamp", &[], TIMESTAMPTZ, now),
];

/// Bytes of a text that a function makes.
const TEXT_BYTES_MAX: usize = 1 << 20;

fn now(ctx: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(Value::Int(ctx.env.now_us()))
}

fn float(arguments: &[Value], f: impl Fn(f64) -> f64) -> Result<Value> {
    Ok(match &arguments[0] {
        Value::Int(n) => Value::Float(f(*n as f64)),
        Value::Float(n) => Value::Float(f(*n)),
        _ => Value::Null,
    })
}

fn length(_: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(Value::Int(string(&arguments[0]).chars().count() as i64))
}

fn initcap(text: &str) -> String {
    let mut inside = false;
    let each = text.chars().flat_map(|c| {
        let lower = std::mem::replace(&mut inside, c.is_alphanumeric());
        let cased: String =
            if lower { c.to_lowercase().collect() } else { c.to_uppercase().collect() };
        cased.chars().collect::<Vec<_>>()
    });
    each.collect()
}

fn joined(ctx: &Context, values: &[Value], types: &[Oid], by: &str) -> Result<String> {
    let mut parts = vec![];
    for (value, oid) in values.iter().zip(types).filter(|(v, _)| !v.is_null()) {
        parts.push(text_of(ctx, value, *oid)?);
    }
    Ok(parts.join(by))
}

fn substring(_: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let from = integer(&arguments[1]);
    let end = match arguments.get(2).map(integer) {
        Some(..0) => return Err(Error::user("negative substring length not allowed").code("22011")),
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let each = string(&arguments[0]).chars().zip(1i64..);
    let kept = each.filter(|(_, at)| *at >= from && *at < end).map(|(c, _)| c);
    Ok(kept.collect::<String>().into())
}

/// The first or last characters; of a negative count all but so many.
fn part(text: &str, count: i64, first: bool) -> Value {
    let all = text.chars().count() as i64;
    let kept = if count < 0 { (all + count).max(0) } else { count.min(all) };
    let skipped = if first { 0 } else { all - kept };
    text.chars().skip(skipped as usize).take(kept as usize).collect::<String>().into()
}

/// The characters to trim.
fn set(arguments: &[Value]) -> impl Fn(char) -> bool + Copy {
    let characters = arguments.get(1).map_or(" ", string);
    move |c| characters.contains(c)
}

fn regexp_replace(_: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let flags = arguments.get(3).map_or("", string);
    let regex = regex::RegexBuilder::new(string(&arguments[1]))
        .case_insensitive(flags.contains('i'))
        .build()
        .map_err(|e| Error::user(format!("invalid regular expression: {e}")).code("2201B"))?;
    // `\1` and `\&` refer to what was found; to the library it is `${1}` and `${0}`.
    let mut by = String::new();
    let mut chars = string(&arguments[2]).chars();
    while let Some(c) = chars.next() {
        match c {
            '$' => by += "$$",
            '\\' => match chars.next() {
                Some('&') => by += "${0}",
                Some(digit) if digit.is_ascii_digit() => by += &format!("${{{digit}}}"),
                Some(other) => by.push(other),
                None => by.push('\\'),
            },
            c => by.push(c),
        }
    }
    let count = if flags.contains('g') { 0 } else { 1 };
    Ok(regex.replacen(string(&arguments[0]), count, by.as_str()).into_owned().into())
}

fn format_text(ctx: &Context, arguments: &[Value], types: &[Oid]) -> Result<Value> {
    if arguments[0].is_null() {
        return Ok(Value::Null);
    }
    let mut out = String::new();
    let mut next = 1;
    let mut chars = string(&arguments[0]).chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let kind = chars.next();
        if kind == Some('%') {
            out.push('%');
            continue;
        }
        let Some(value) = arguments.get(next) else {
            return Err(Error::user("too few arguments for format()").code("22023"));
        };
        let text = text_of(ctx, value, types[next])?;
        next += 1;
        match kind {
            Some('s') => out += &text,
            Some('I') => out += &crate::text::quote_ident(&text),
            Some('L') if value.is_null() => out += "NULL",
            Some('L') => out += &format!("'{}'", text.replace('\'', "''")),
            _ => {
                return Err(Error::unsupported("format() takes %s, %I, %L and %% only"));
            }
        }
    }
    Ok(out.into())
}

fn string_to_array(_: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let (text, by) = (string(&arguments[0]), string(&arguments[1]));
    if text.is_empty() {
        return Ok(Value::array([]));
    }
    let parts: Vec<&str> = if by.is_empty() { vec![text] } else { text.split(by).collect() };
    let null = arguments.get(2).map(string);
    Ok(Value::array(parts.into_iter().map(
        |p| {
            if Some(p) == null { Value::Null } else { p.into() }
        },
    )))
}

fn build_object(ctx: &Context, arguments: &[Value], types: &[Oid]) -> Result<Value> {
    let mut members = vec![];
    for (pair, types) in arguments.chunks(2).zip(types.chunks(2)) {
        let [key, value] = pair else {
            return Err(Error::user("json_build_object takes pairs of arguments").code("22023"));
        };
        let key = json(&text_of(ctx, key, types[0])?.into(), TEXT, ctx.env)?;
        members.push(format!("{key} : {}", json(value, types[1], ctx.env)?));
    }
    Ok(format!("{{{}}}", members.join(", ")).into())
}

fn build_array(ctx: &Context, arguments: &[Value], types: &[Oid]) -> Result<Value> {
    let each = arguments.iter().zip(types).map(|(v, t)| json(v, *t, ctx.env));
    Ok(format!("[{}]", each.collect::<Result<Vec<_>>>()?.join(", ")).into())
}
