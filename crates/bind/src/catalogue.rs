//! Every function and operator that a statement can call: what `system.functions` lists.
//!
//! The names are those that the session has registered, and those that the binder sees to itself. What
//! they take is read from their signatures, and what they return is asked of the binder, by a call with
//! columns of these types: a signature that it does not take is not listed. What neither tells, such as what
//! a function is for, stands in `written.rs`.

mod written;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::{Column, TableReference};
use datafusion::logical_expr::planner::ContextProvider;
use datafusion::logical_expr::{
    ArrayFunctionArgument, ArrayFunctionSignature, Coercion, Documentation, TypeSignature,
    TypeSignatureClass,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::binder::Binder;
use crate::operator::OPERATORS;
use crate::own::{MOMENTS, OWN};
use crate::place::Place;
use crate::reads::READERS;
use crate::rows::OF_LISTS;
use crate::scope::{Entry as Named, Scope};
use crate::types::{self, INTERVAL, TEXT, TextKind};

pub use written::INTERNAL;
use written::{FORMS, Written, written};

/// What a function is called with, and what it makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A value of the values of one row.
    Scalar,
    /// A value of many rows.
    Aggregate,
    /// A value of a row and those around it.
    Window,
    /// Rows, in FROM.
    Table,
    Operator,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Scalar => "scalar",
            Kind::Aggregate => "aggregate",
            Kind::Window => "window",
            Kind::Table => "table",
            Kind::Operator => "operator",
        }
    }
}

/// One way to call a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    pub name: String,
    pub kind: Kind,
    /// Types as PostgreSQL writes them: `text, bigint`.
    pub arguments: String,
    /// `None`: it depends on more than the types of the arguments.
    pub returns: Option<String>,
    /// The name that it has first, where this is another.
    pub alias_of: Option<String>,
    pub description: Option<String>,
    /// A query that calls it.
    pub example: Option<String>,
}

/// All functions, by their names. `tables` are those that stand in FROM alone.
pub fn functions(
    names: &dyn ContextProvider,
    tables: impl IntoIterator<Item = String>,
) -> Vec<Function> {
    let binder = Binder::new(names);
    let mut all = All { binder: &binder, found: BTreeSet::new() };
    for name in names.udf_names().into_iter().filter(|name| is_called(name)) {
        let Some(udf) = names.get_function_meta(&name) else { continue };
        let takes = of_signature(&udf.signature().type_signature);
        // Another function may have taken its first name.
        let has_first = |first: &Arc<_>| Arc::ptr_eq(first, &udf);
        let first = match names.get_function_meta(udf.name()).as_ref().is_some_and(has_first) {
            true => udf.name(),
            false => &name,
        };
        all.add(&name, first, Kind::Scalar, takes, udf.documentation());
    }
    for name in names.higher_order_function_names() {
        let Some(function) = names.get_higher_order_meta(&name) else { continue };
        all.add(&name, function.name(), Kind::Scalar, vec![], function.documentation());
    }
    for name in names.udaf_names() {
        let Some(udaf) = names.get_aggregate_meta(&name) else { continue };
        let takes = of_signature(&udaf.signature().type_signature);
        all.add(&name, udaf.name(), Kind::Aggregate, takes, udaf.documentation());
    }
    for name in names.udwf_names() {
        let Some(udwf) = names.get_window_meta(&name) else { continue };
        let takes = of_signature(&udwf.signature().type_signature);
        all.add(&name, udwf.name(), Kind::Window, takes, udwf.documentation());
    }
    for name in OWN.iter().map(|(name, _)| *name) {
        all.add(name, name, Kind::Scalar, vec![], None);
    }
    for name in MOMENTS {
        all.add(name, name, Kind::Scalar, vec![vec![]], None);
    }
    for form in FORMS {
        all.form(form);
    }
    let rows = ["unnest"].into_iter().chain(OF_LISTS.iter().map(|(name, _)| *name));
    for name in tables.into_iter().chain(rows.map(String::from)) {
        all.add(&name, &name, Kind::Table, vec![], None);
    }
    for (name, first) in READERS {
        all.add(name, first, Kind::Table, vec![], None);
    }
    all.operators();
    all.found.into_iter().collect()
}

/// Whether statements may call a function that is registered.
pub(crate) fn is_called(name: &str) -> bool {
    !INTERNAL.contains(&name)
}

/// What a function takes, for the hint of an error: `round(numeric, bigint)`.
pub(crate) fn ways(name: &str, signature: &TypeSignature) -> Vec<String> {
    let mut takes: Vec<Vec<String>> = match written(name) {
        Some(written) if !written.arguments.is_empty() => split(written),
        _ => of_signature(signature),
    };
    takes.dedup();
    takes.into_iter().map(|args| format!("{name}({})", args.join(", "))).collect()
}

fn split(written: &Written) -> Vec<Vec<String>> {
    let one = |text: &&str| text.split(", ").filter(|t| !t.is_empty()).map(String::from).collect();
    written.arguments.iter().map(one).collect()
}

struct All<'b, 'n> {
    binder: &'b Binder<'n>,
    found: BTreeSet<Function>,
}

impl All<'_, '_> {
    fn add(
        &mut self,
        name: &str,
        first: &str,
        kind: Kind,
        mut takes: Vec<Vec<String>>,
        documentation: Option<&Documentation>,
    ) {
        let written = written(first).or_else(|| written(name));
        if let Some(written) = written
            && !written.arguments.is_empty()
            && (kind != Kind::Window || takes.is_empty())
        {
            takes = split(written);
        }
        if takes.is_empty() && kind != Kind::Table {
            takes = self.asked(name, kind);
        }
        let description = match written.map(|w| w.description).filter(|text| !text.is_empty()) {
            Some(text) => Some(text.to_string()),
            None => documentation.map(|d| paragraph(&d.description)),
        };
        let example = match written.map(|w| w.example).filter(|text| !text.is_empty()) {
            Some(text) => Some(text.to_string()),
            None => documentation.and_then(example),
        };
        let alias_of = (name != first).then(|| first.to_string());
        let mut one = |arguments: String, returns: Option<String>| {
            self.found.insert(Function {
                name: name.into(),
                kind,
                arguments,
                returns,
                alias_of: alias_of.clone(),
                description: description.clone(),
                example: example.clone().filter(|_| alias_of.is_none()),
            });
        };
        let mut is_known = false;
        for args in &takes {
            if kind == Kind::Table {
                one(args.join(", "), Some("setof record".into()));
                is_known = true;
            } else if let Some(returns) = returns(self.binder, name, kind, args) {
                one(args.join(", "), Some(returns));
                is_known = true;
            }
        }
        if !is_known {
            let syntax = documentation.map(|d| within_parentheses(&d.syntax_example));
            let first = takes.into_iter().next().map(|args| args.join(", "));
            one(first.or(syntax).unwrap_or_default(), None);
        }
    }

    /// What a function takes that does not tell, as far as its arguments are alike.
    fn asked(&self, name: &str, kind: Kind) -> Vec<Vec<String>> {
        let mut ways = vec![];
        for n in 1..=3 {
            let takes =
                |t: &&str| returns(self.binder, name, kind, &vec![t.to_string(); n]).is_some();
            let taken: Vec<&str> = TYPES.into_iter().filter(takes).collect();
            match taken.len() == TYPES.len() {
                true => ways.push(vec!["anyelement".to_string(); n]),
                false => ways.extend(taken.into_iter().map(|t| vec![t.to_string(); n])),
            }
        }
        ways
    }

    fn form(&mut self, form: &(&str, &str, &str, &str, &str)) {
        let (name, arguments, call, description, example) = *form;
        let samples: Vec<DataType> = arguments
            .split(|c: char| !c.is_alphabetic())
            .filter_map(|word| sample(word, &DataType::Int64))
            .collect();
        let returns = bound(self.binder, call, &samples).map(|t| types::name(&t));
        self.found.insert(Function {
            name: name.into(),
            kind: Kind::Scalar,
            arguments: arguments.into(),
            returns,
            alias_of: None,
            description: Some(description.into()),
            example: Some(example.into()),
        });
    }

    fn operators(&mut self) {
        for (text, description) in OPERATORS {
            let mut one = |arguments: String, returns: String| {
                self.found.insert(Function {
                    name: (*text).into(),
                    kind: Kind::Operator,
                    arguments,
                    returns: Some(returns),
                    alias_of: None,
                    description: Some((*description).into()),
                    example: None,
                });
            };
            let call = format!("a1 {text} a2");
            let of = |l: &str, r: &str| {
                let types = [sample(l, &DataType::Int64)?, sample(r, &DataType::Int64)?];
                bound(self.binder, &call, &types).map(|t| types::name(&t))
            };
            // What takes all types alike is one operator.
            if TYPES.iter().all(|t| of(t, t).is_some_and(|r| r == "boolean")) {
                one("anyelement, anyelement".into(), "boolean".into());
                continue;
            }
            for l in TYPES {
                for r in TYPES {
                    let is_mixed = l != r && NUMBERS.contains(&l) && NUMBERS.contains(&r);
                    if let Some(returns) = of(l, r).filter(|_| !is_mixed) {
                        one(format!("{l}, {r}"), returns);
                    }
                }
            }
        }
    }
}

const NUMBERS: [&str; 3] = ["bigint", "numeric", "double precision"];

/// Types that operators are asked for.
const TYPES: [&str; 12] = [
    "bigint",
    "numeric",
    "double precision",
    "text",
    "boolean",
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "interval",
    "bytea",
    "anyarray",
];

/// A type that an argument may have; `any` stands for every other.
fn sample(text: &str, any: &DataType) -> Option<DataType> {
    Some(match text {
        "anyelement" | "\"any\"" => any.clone(),
        "anyarray" => DataType::new_list(any.clone(), true),
        "text" => TEXT,
        "integer" => DataType::Int32,
        "bigint" => DataType::Int64,
        "numeric" => DataType::Decimal128(18, 3),
        "double precision" => DataType::Float64,
        "boolean" => DataType::Boolean,
        "date" => DataType::Date32,
        "time" => DataType::Time64(TimeUnit::Nanosecond),
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        "interval" => INTERVAL,
        "bytea" => DataType::Binary,
        "record" => DataType::Struct(vec![Field::new("a", any.clone(), true)].into()),
        "map" => {
            let entries =
                vec![Field::new("key", TEXT, false), Field::new("value", any.clone(), true)];
            let entries = Field::new("entries", DataType::Struct(entries.into()), false);
            DataType::Map(Arc::new(entries), false)
        }
        _ => return None,
    })
}

/// What a signature takes, each way a list of types.
fn of_signature(signature: &TypeSignature) -> Vec<Vec<String>> {
    use TypeSignature as S;
    let any = |n: usize| vec![vec!["anyelement".to_string(); n]];
    let variadic = |text: &str| vec![vec![format!("VARIADIC {text}")]];
    match signature {
        S::Nullary => vec![vec![]],
        S::Exact(types) => vec![types.iter().map(name).collect()],
        S::Uniform(n, types) => distinct(types.iter().map(|t| vec![name(t); *n])),
        S::Variadic(types) => distinct(types.iter().map(|t| vec![format!("VARIADIC {}", name(t))])),
        S::VariadicAny => variadic("\"any\""),
        S::Any(n) | S::Comparable(n) => any(*n),
        S::Numeric(n) => distinct(NUMBERS.iter().map(|t| vec![t.to_string(); *n])),
        S::String(n) => vec![vec!["text".into(); *n]],
        S::Coercible(args) => {
            let mut ways: Vec<Vec<String>> = vec![vec![]];
            for arg in args {
                let of_class = of_class(arg);
                let longer = |way: Vec<String>| {
                    of_class.iter().map(move |t| [way.clone(), vec![t.to_string()]].concat())
                };
                ways = ways.into_iter().flat_map(longer).collect();
            }
            ways
        }
        S::ArraySignature(ArrayFunctionSignature::Array { arguments, .. }) => {
            let one = |argument: &ArrayFunctionArgument| match argument {
                ArrayFunctionArgument::Array => "anyarray".to_string(),
                ArrayFunctionArgument::Element => "anyelement".to_string(),
                ArrayFunctionArgument::Index => "bigint".to_string(),
                ArrayFunctionArgument::String => "text".to_string(),
            };
            vec![arguments.iter().map(one).collect()]
        }
        S::ArraySignature(ArrayFunctionSignature::RecursiveArray) => vec![vec!["anyarray".into()]],
        S::ArraySignature(ArrayFunctionSignature::MapArray) => vec![vec!["map".into()]],
        S::OneOf(several) => distinct(several.iter().flat_map(of_signature)),
        // It tells by itself what it takes, when it is asked.
        S::UserDefined => vec![],
    }
}

fn distinct(ways: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    let mut once: Vec<Vec<String>> = vec![];
    for way in ways {
        if !once.contains(&way) {
            once.push(way);
        }
    }
    once
}

/// The types of a class, the first for all that are like it.
fn of_class(arg: &Coercion) -> Vec<String> {
    let one = |text: &str| vec![text.to_string()];
    match arg.desired_type() {
        TypeSignatureClass::Any => one("anyelement"),
        TypeSignatureClass::Timestamp => vec!["timestamp".into(), "timestamptz".into()],
        TypeSignatureClass::Time => one("time"),
        TypeSignatureClass::Interval | TypeSignatureClass::Duration => one("interval"),
        TypeSignatureClass::Integer => one("bigint"),
        TypeSignatureClass::Float => one("double precision"),
        TypeSignatureClass::Decimal => one("numeric"),
        TypeSignatureClass::Numeric => NUMBERS.map(String::from).to_vec(),
        TypeSignatureClass::Binary => one("bytea"),
        TypeSignatureClass::Native(logical) => match logical.default_cast_for(&DataType::Null) {
            Ok(data_type) => vec![name(&data_type)],
            Err(_) => one("anyelement"),
        },
    }
}

/// A type as an argument is written.
fn name(data_type: &DataType) -> String {
    match data_type {
        t if types::is_float(t) => "double precision".into(),
        t if t.is_integer() => "bigint".into(),
        DataType::Timestamp(_, None) => "timestamp".into(),
        DataType::Timestamp(_, Some(_)) => "timestamptz".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time".into(),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            "anyarray".into()
        }
        DataType::Null => "anyelement".into(),
        other => types::name(other),
    }
}

/// What a call with columns of these types returns; `None`: there is no such call.
fn returns(binder: &Binder<'_>, function: &str, kind: Kind, args: &[String]) -> Option<String> {
    let is_variadic = |arg: &String| arg.starts_with("VARIADIC ");
    let of = |any: &DataType| {
        let plain = args.iter().map(|arg| arg.trim_start_matches("VARIADIC "));
        let mut samples = plain.map(|arg| sample(arg, any)).collect::<Option<Vec<DataType>>>()?;
        if args.last().is_some_and(is_variadic) {
            samples.extend(samples.last().cloned());
        }
        let columns = (1..=samples.len()).map(|n| format!("a{n}")).collect::<Vec<_>>().join(", ");
        let call = match kind {
            Kind::Window => format!("\"{function}\"({columns}) OVER (ORDER BY o)"),
            _ if MOMENTS.contains(&function) => function.to_string(),
            _ => format!("\"{function}\"({columns})"),
        };
        bound(binder, &call, &samples).or_else(|| {
            // The last column is what an ordered-set aggregate orders by.
            let (last, others) = samples.split_last()?;
            let columns =
                (1..=others.len()).map(|n| format!("a{n}")).collect::<Vec<_>>().join(", ");
            let by =
                format!("\"{function}\"({columns}) WITHIN GROUP (ORDER BY a{})", samples.len());
            (kind == Kind::Aggregate && *last != DataType::Null)
                .then(|| bound(binder, &by, &samples))?
        })
    };
    let is_any = args.iter().any(|arg| arg.contains("any"));
    let (number, text) = (of(&DataType::Int64), of(&TEXT).filter(|_| is_any));
    Some(match (number, text) {
        (Some(DataType::Int64), Some(t)) if types::is_text(&t) => "anyelement".into(),
        (Some(DataType::List(a)), Some(DataType::List(b))) if a != b => "anyarray".into(),
        (Some(found), _) | (None, Some(found)) => types::name(&found),
        (None, None) => return None,
    })
}

/// The type of an expression over the columns `a1`, `a2` and so on of these types.
fn bound(binder: &Binder<'_>, sql: &str, samples: &[DataType]) -> Option<DataType> {
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).ok()?;
    let expr = parser.parse_expr().ok()?;
    let table = TableReference::bare("arguments");
    let column = |(name, data_type): (String, &DataType)| Named {
        table: None,
        column: Column::new(Some(table.clone()), &name),
        name,
        data_type: data_type.clone(),
        nullable: true,
        hidden: false,
        also: false,
        text: TextKind::Any,
        unknown: false,
    };
    let columns = (1..).map(|n| format!("a{n}")).zip(samples);
    let order = ("o".to_string(), &DataType::Int64);
    let entries = columns.chain([order]).map(column).collect();
    let scope = Scope { entries, ..Scope::default() };
    let place = Place {
        scope: &scope,
        named: &None,
        windows: &[],
        without_aggregates: None,
        without_windows: None,
        without_rows: None,
        variables: &[],
    };
    Some(binder.expr(&expr, place).ok()?.data_type)
}

/// The first paragraph of a text, on one line.
fn paragraph(text: &str) -> String {
    let first = text.trim().split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    words.join(" ")
}

/// `lower(str)` → `str`
fn within_parentheses(syntax: &str) -> String {
    let line = syntax.lines().next().unwrap_or_default();
    match (line.find('('), line.rfind(')')) {
        (Some(from), Some(to)) if from < to => line[from + 1..to].to_string(),
        _ => String::new(),
    }
}

/// The query of an example that reads no table.
fn example(documentation: &Documentation) -> Option<String> {
    let text = documentation.sql_example.as_ref()?;
    let mut lines = text.lines().map(|l| l.trim().trim_start_matches('>').trim());
    let first = lines.find(|l| l.to_uppercase().starts_with("SELECT "))?;
    let query = first.strip_suffix(';')?.trim();
    (!query.to_uppercase().contains(" FROM ")).then(|| query.to_string())
}
