//! What DataFusion says of a statement, as PostgreSQL words it: message, SQLSTATE, what it is about,
//! and the way out. DataFusion's errors are texts; those that people meet are known here by their
//! beginnings, and the types and literals in all others are spelled as in SQL.

use datafusion::common::{Column, SchemaError};
use thalweg_base::text::{nearest, quoted};
use thalweg_base::{Error, Subject};

/// A column that is not there, or there twice.
pub fn of_schema(e: &SchemaError) -> Error {
    match e {
        SchemaError::FieldNotFound { field, valid_fields } => no_column(field, valid_fields),
        SchemaError::AmbiguousReference { field } => {
            let error =
                Error::user(format!("column reference {} is ambiguous", quoted(&field.name)));
            error
                .code("42702")
                .hint(format!("say of which table it is: t.{}", field.name))
                .about(Subject::Column(None, field.name.clone()))
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            let name = plain(name);
            Error::user(format!("column {} specified more than once", quoted(&name)))
                .code("42701")
                .hint("give one of them another name with AS")
                .about(Subject::Column(None, name))
        }
    }
}

fn no_column(field: &Column, valid: &[Column]) -> Error {
    let Column { relation, name, .. } = field;
    let table = relation.as_ref().map(|r| r.table().to_string());
    if let Some(table) = &table
        && !valid.is_empty()
        && !valid.iter().any(|c| c.relation.as_ref().is_some_and(|r| r.table() == table))
    {
        let mut tables: Vec<&str> =
            valid.iter().filter_map(|c| c.relation.as_ref().map(|r| r.table())).collect();
        tables.sort_unstable();
        tables.dedup();
        let error = Error::user(format!("missing FROM-clause entry for table {}", quoted(table)))
            .code("42P01")
            .about(Subject::Column(Some(table.clone()), name.clone()));
        return match nearest(table, tables.iter().copied()) {
            Some(near) => error.hint(format!("did you mean {}?", quoted(near))),
            None if tables.is_empty() => error,
            None => error.hint(format!("the tables here are {}", listed(&tables))),
        };
    }
    let message = match &table {
        Some(table) => format!("column {table}.{name} does not exist"),
        None => format!("column {} does not exist", quoted(name)),
    };
    let error =
        Error::user(message).code("42703").about(Subject::Column(table.clone(), name.clone()));
    let spelled = |c: &Column| match (&c.relation, c.name.chars().any(char::is_uppercase)) {
        (Some(relation), false) => format!("{}.{}", relation.table(), c.name),
        (Some(relation), true) => format!("{}.{}", relation.table(), quoted(&c.name)),
        (None, false) => c.name.clone(),
        (None, true) => quoted(&c.name),
    };
    // Without regard to case first: a quoted name is the usual mistake.
    let same = valid.iter().find(|c| c.name.eq_ignore_ascii_case(name));
    let near = same.or_else(|| {
        let near = nearest(name, valid.iter().map(|c| c.name.as_str()))?;
        valid.iter().find(|c| c.name == near)
    });
    if let Some(near) = near {
        return error.hint(format!("did you mean {}?", spelled(near)));
    }
    let names: Vec<String> = valid.iter().map(spelled).filter(|n| !n.contains('\0')).collect();
    match names.is_empty() {
        true => error,
        false => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            error.hint(format!("the columns here are {}", listed(&names)))
        }
    }
}

/// Names that a message lists before it says that there are more.
const LISTED_MAX: usize = 20;

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len() > LISTED_MAX {
        true => format!("{shown} and {} more", names.len() - LISTED_MAX),
        false => shown,
    }
}

/// A message of the planner or of an expression; `None`: it is none of those that are known.
pub fn of_message(message: &str) -> Option<Error> {
    relation(message)
        .or_else(|| function(message))
        .or_else(|| operator(message))
        .or_else(|| grouping(message))
        .or_else(|| clause(message))
        .or_else(|| value(message))
        .or_else(|| call(message))
}

/// What functions of DataFusion's say of values that they do not take.
fn call(message: &str) -> Option<Error> {
    let known = [
        ("field position must not be zero", "22023", "field position must not be zero"),
        ("negative count not allowed", "22011", "negative substring length not allowed"),
        ("overlay start position must be", "22011", "negative substring length not allowed"),
    ];
    let (_, code, text) = known.into_iter().find(|(start, ..)| message.starts_with(start))?;
    Some(Error::user(text).code(code))
}

/// What stands between two texts.
fn between<'a>(message: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

fn relation(message: &str) -> Option<Error> {
    if !message.contains("not found") {
        return None;
    }
    let name =
        between(message, "table '", "'").or_else(|| message.strip_prefix("Table not found: "))?;
    let short = name.trim_start_matches("thalweg.").trim_start_matches("public.");
    Some(no_relation(short))
}

pub fn no_relation(name: &str) -> Error {
    Error::user(format!("relation {} does not exist", quoted(name)))
        .code("42P01")
        .hint("SHOW TABLES lists the tables; a file is queried as FROM 'path/to/file.parquet'")
        .about(Subject::Relation(name.into()))
}

fn function(message: &str) -> Option<Error> {
    let hint = "no function of this name takes arguments of these types; casts may help";
    if let Some(name) = between(message, "Function '", "' failed to match any signature") {
        // It tells the types only where it has tried one by one.
        let types: Vec<&str> = message
            .split("(DataType: ")
            .skip(1)
            .filter_map(|t| t.split_once(").").map(|t| t.0))
            .collect();
        let call = match types.first() {
            Some(first)
                if types.iter().all(|t| t == first) && !message.contains("arguments but") =>
            {
                format!("function {name}({}) does not exist", plain_types(first))
            }
            _ => format!("function {name} does not take these arguments"),
        };
        return Some(
            Error::user(call).code("42883").hint(hint).about(Subject::Function(name.into())),
        );
    }
    if message.starts_with("Substring without for/from is not valid") {
        return Some(
            Error::user("function substr(text) does not exist")
                .code("42883")
                .hint("substr(text, from) and substr(text, from, count) are there")
                .about(Subject::Function("substr".into())),
        );
    }
    if let Some(name) = between(message, "Invalid function '", "'") {
        let error = Error::user(format!("function {name} does not exist"))
            .code("42883")
            .about(Subject::Function(name.into()));
        return Some(match between(message, "Did you mean '", "'") {
            Some(near) => error.hint(format!("did you mean {near}? SHOW FUNCTIONS lists all")),
            None => error.hint("SHOW FUNCTIONS lists all"),
        });
    }
    if let Some(call) =
        between(message, "No function matches the given name and argument types '", "'. ")
    {
        let (name, types) = call.split_once('(')?;
        let error = Error::user(format!("function {name}({} does not exist", plain_types(types)))
            .code("42883")
            .about(Subject::Function(name.into()));
        let candidates = message.split_once("Candidate functions:").map(|(_, list)| {
            let lines = list.lines().map(str::trim).filter(|l| !l.is_empty()).take(LISTED_MAX);
            lines.map(plain_types).collect::<Vec<_>>().join(", ")
        });
        // What only the function itself knows says nothing.
        let candidates =
            candidates.filter(|list| !list.is_empty() && !list.contains("UserDefined"));
        return Some(match candidates {
            Some(list) => error.hint(format!("there is {list}")),
            None => error.hint(hint),
        });
    }
    if let Some(name) = between(message, "to satisfy a call to '", "' function") {
        let types = between(message, "coercion from ", " to the signature").unwrap_or_default();
        let types = plain_types(types.trim_matches(['[', ']']));
        return Some(
            Error::user(format!("function {name}({types}) does not exist"))
                .code("42883")
                .hint(hint)
                .about(Subject::Function(name.into())),
        );
    }
    if let Some(name) = between(message, "Function '", "' user-defined coercion failed")
        .or_else(|| between(message, "Function '", "' expects"))
        .or_else(|| between(message, "'", "' does not support zero arguments"))
    {
        let why = message.rsplit(" with: ").next().unwrap_or(message);
        return Some(
            Error::user(format!("function {name} does not take these arguments"))
                .code("42883")
                .detail(plain(clean(why).as_str()))
                .hint(hint)
                .about(Subject::Function(name.into())),
        );
    }
    None
}

fn operator(message: &str) -> Option<Error> {
    let known = [
        ("Cannot coerce arithmetic expression ", " to valid types"),
        ("Cannot infer common argument type for comparison operation ", "\0"),
        ("Cannot infer common argument type for logical boolean operation ", "\0"),
        ("Cannot infer common argument type for regex operation ", "\0"),
        ("Cannot infer common type for bitwise operation ", "\0"),
        ("Cannot infer common string type for string concat operation ", "\0"),
    ];
    let ended = format!("{}\0", message.lines().next().unwrap_or_default());
    let found = known.iter().find_map(|(before, after)| between(&ended, before, after));
    if let Some(operation) = found {
        let (left, op, right) = sides(operation)?;
        let (left, right) = (plain_types(left), plain_types(right));
        return Some(
            Error::user(format!("operator does not exist: {left} {op} {right}"))
                .code("42883")
                .hint("cast one side to the type of the other: a::text, b::int")
                .about(Subject::Operator(op.into())),
        );
    }
    if let Some(types) = between(message, "Failed to coerce types ", " in BETWEEN expression") {
        let (left, right) = types.split_once(" and ")?;
        return Some(
            Error::user(format!(
                "operator does not exist: {} >= {}",
                plain_types(left),
                plain_types(right)
            ))
            .code("42883")
            .about(Subject::Word("between".into())),
        );
    }
    if message.starts_with("Failed to coerce case") || message.starts_with("Failed to coerce then")
    {
        return Some(
            Error::user("CASE types cannot be matched")
                .code("42804")
                .detail(plain(message))
                .hint("cast the branches to one type")
                .about(Subject::Word("case".into())),
        );
    }
    if let Some(rest) = message.strip_prefix("There isn't a common type to coerce ") {
        let (types, op) = rest.split_once(" in ")?;
        let (left, right) = types.split_once(" and ")?;
        let op = op.split(' ').next().unwrap_or_default();
        return Some(
            Error::user(format!(
                "operator does not exist: {} {op} {}",
                plain_types(left),
                plain_types(right)
            ))
            .code("42883")
            .hint("cast one side to the type of the other: a::text, b::int")
            .about(Subject::Word(op.into())),
        );
    }
    if let Some(op) = between(message, "Unary operator '", "' requires a boolean expression, got ")
    {
        let (_, found) = message.rsplit_once(", got ")?;
        return Some(
            Error::user(format!(
                "argument of {op} must be type boolean, not type {}",
                plain_types(found)
            ))
            .code("42804")
            .about(Subject::After(op.into())),
        );
    }
    None
}

/// `Int64 + Utf8`; a type may have blanks in its parentheses.
fn sides(operation: &str) -> Option<(&str, &str, &str)> {
    let mut depth = 0_i32;
    let mut cuts = operation.char_indices().filter_map(|(i, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        (c == ' ' && depth == 0).then_some(i)
    });
    let first = cuts.next()?;
    let last = cuts.last().or_else(|| operation.rfind(' ')).filter(|last| *last > first)?;
    Some((&operation[..first], &operation[first + 1..last], &operation[last + 1..]))
}

fn grouping(message: &str) -> Option<Error> {
    let column = between(message, "While expanding wildcard, column \"", "\" must appear")
        .or_else(|| between(message, "HAVING clause references: ", " must appear"))?;
    let column = plain(column);
    let subject = match column.split_once('.') {
        Some((table, name)) => Subject::Column(Some(table.into()), name.into()),
        None => Subject::Column(None, column.clone()),
    };
    Some(
        Error::user(format!(
            "column {} must appear in the GROUP BY clause or be used in an aggregate function",
            quoted(&column)
        ))
        .code("42803")
        .hint(format!("add it to GROUP BY, or write any_value({column})"))
        .about(subject),
    )
}

fn clause(message: &str) -> Option<Error> {
    let after = |text: &str| Subject::After(text.into());
    let plainly = |text: &str, code: &'static str| Some(Error::user(text).code(code));
    if message.starts_with("Aggregate function calls cannot be nested") {
        return plainly("aggregate function calls cannot be nested", "42803");
    }
    if message.starts_with("Scalar subquery returned more than one row") {
        return plainly("more than one row returned by a subquery used as an expression", "21000");
    }
    if message.starts_with("Too many columns! The subquery should only return one column") {
        return plainly("subquery must return only one column", "42601");
    }
    if message.starts_with("SELECT * with no tables specified") {
        return Some(
            Error::user("SELECT * with no tables specified is not valid")
                .code("42601")
                .about(after("select")),
        );
    }
    if let Some(name) = message.strip_prefix("Invalid qualifier ") {
        return Some(
            Error::user(format!("missing FROM-clause entry for table {}", quoted(name)))
                .code("42P01")
                .about(Subject::Qualifier(name.into())),
        );
    }
    if let Some(counts) = message.strip_prefix("Source table contains ") {
        let (there, given) = counts.split_once(" columns but only ")?;
        let given = given.split(' ').next().unwrap_or_default();
        let e = format!("table has {there} columns available but {given} columns specified");
        return plainly(&e, "42P10");
    }
    if message.starts_with("For SELECT DISTINCT, ORDER BY expressions") {
        return plainly(
            "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
            "42P10",
        );
    }
    if let Some(name) = between(message, "Placeholder '", "' was not provided a value") {
        return plainly(&format!("there is no parameter {name}"), "42P02");
    }
    if let Some(name) = between(message, "'", "' is not a variable which can be viewed with") {
        return Some(
            Error::user(format!("unrecognized configuration parameter {}", quoted(name)))
                .code("42704")
                .hint("SHOW ALL lists the settings"),
        );
    }
    if message.starts_with("Expected LIMIT to be") || message.starts_with("Expected OFFSET to be") {
        let (_, found) = message.rsplit_once(" but got ")?;
        let name = message.split(' ').nth(1).unwrap_or_default();
        let e = format!("argument of {name} must be type bigint, not type {}", plain_types(found));
        return Some(Error::user(e).code("42804").about(after(name)));
    }
    if let Some(rest) = message.strip_prefix("Cannot create filter with non-boolean predicate '") {
        let (_, returned) = rest.rsplit_once("' returning ")?;
        return Some(
            Error::user(format!(
                "argument of WHERE must be type boolean, not type {}",
                plain_types(returned)
            ))
            .code("42804")
            .hint("compare it with something: a <> 0")
            .about(after("where")),
        );
    }
    if message.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        return Some(
            Error::user("aggregate functions are not allowed in WHERE")
                .code("42803")
                .hint("filter groups with HAVING")
                .about(after("where")),
        );
    }
    if let Some(op) =
        message.split_once(" queries have different number of columns").map(|(op, _)| op)
    {
        let op = op.rsplit(' ').next().unwrap_or(op);
        return Some(
            Error::user(format!("each {op} query must have the same number of columns"))
                .code("42601")
                .about(after(op)),
        );
    }
    if let Some(rest) = message.strip_prefix("Order by column out of bounds, specified: ") {
        let position = rest.split(',').next().unwrap_or_default();
        return Some(
            Error::user(format!("ORDER BY position {position} is not in select list"))
                .code("42P10")
                .about(Subject::Literal(position.into())),
        );
    }
    if let Some(position) = between(message, "Cannot find column with position ", " in SELECT") {
        return Some(
            Error::user(format!("GROUP BY position {position} is not in select list"))
                .code("42P10")
                .about(Subject::Literal(position.into())),
        );
    }
    if message.starts_with("Inconsistent data length across values list") {
        return Some(
            Error::user("VALUES lists must all be the same length")
                .code("42601")
                .about(Subject::Word("values".into())),
        );
    }
    for (start, code, name) in
        [("LIMIT must be >= 0", "2201W", "LIMIT"), ("OFFSET must be >=0", "2201X", "OFFSET")]
    {
        if message.starts_with(start) {
            return plainly(&format!("{name} must not be negative"), code);
        }
    }
    if let Some(name) = between(message, "The window ", " is not defined") {
        return Some(
            Error::user(format!("window {} does not exist", quoted(name)))
                .code("42704")
                .about(Subject::Column(None, name.into())),
        );
    }
    None
}

/// Values that are none of their types.
fn value(message: &str) -> Option<Error> {
    if let Some(rest) = message.strip_prefix("Cannot cast string '") {
        let (text, data_type) = rest.rsplit_once("' to value of ")?;
        return Some(no_value(text, data_type.trim_end_matches(" type")));
    }
    if let Some(rest) = message.strip_prefix("Cannot cast value '") {
        let (text, rest) = rest.split_once("' to value of ")?;
        return Some(no_value(text, rest.split(" type").next().unwrap_or(rest)));
    }
    for (start, data_type) in [
        ("Error parsing timestamp from '", "timestamp"),
        ("Error parsing date from '", "date"),
        ("Error parsing time from '", "time"),
    ] {
        if let Some(rest) = message.strip_prefix(start) {
            return Some(no_value(
                rest.rsplit_once("': ").map_or(rest, |(text, _)| text),
                data_type,
            ));
        }
    }
    if let Some(rest) = message.strip_prefix("Can't cast value ") {
        let (_, data_type) = rest.rsplit_once(" to type ")?;
        return Some(Error::user(format!("{} out of range", plain_types(data_type))).code("22003"));
    }
    // `abs` of the least integer: "Int32Array overflow on abs(-2147483648)".
    if let Some((array, _)) = message.split_once(" overflow on ") {
        let data_type = plain_types(array.strip_suffix("Array")?);
        return Some(Error::user(format!("{data_type} out of range")).code("22003"));
    }
    None
}

/// A text that is no value of the type.
pub fn no_value(text: &str, data_type: &str) -> Error {
    let data_type = plain_types(data_type);
    let name = data_type.split('(').next().unwrap_or_default().trim();
    let subject = Subject::Literal(text.into());
    let trimmed = text.trim();
    let is_integer = ["smallint", "integer", "bigint"].contains(&name);
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if is_integer && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Error::user(format!("value \"{text}\" is out of range for type {name}"))
            .code("22003")
            .about(subject);
    }
    let is_time = name == "date" || name.starts_with("time");
    // PostgreSQL tells a day that is none from a text that is none.
    let shaped = trimmed.starts_with(|c: char| c.is_ascii_digit())
        && trimmed.chars().filter(char::is_ascii_digit).count() >= 6;
    if is_time && shaped {
        return Error::user(format!("date/time field value out of range: \"{text}\""))
            .code("22008")
            .about(subject);
    }
    Error::user(format!("invalid input syntax for type {name}: \"{text}\""))
        .code(if is_time || name == "interval" { "22007" } else { "22P02" })
        .about(subject)
}

/// A message with types and literals as SQL spells them, and names without the parts that every
/// name has.
pub fn plain(message: &str) -> String {
    let message = message.replace("thalweg.public.", "");
    let mut text = String::with_capacity(message.len());
    let mut rest = message.as_str();
    while let Some(c) = rest.chars().next() {
        // Quoted parts are of the user.
        if c == '"' || c == '\'' {
            let end = rest[1..].find(c).map_or(rest.len(), |i| i + 2);
            text.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if length == 0 {
            text.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(length);
        let (spelled, used) = spelled(word, after);
        text.push_str(&spelled);
        rest = &after[used..];
    }
    text
}

/// The same of a list of types.
fn plain_types(types: &str) -> String {
    plain(types)
}

/// A word of a message as SQL has it, and how much of what follows belongs to it.
fn spelled(word: &str, after: &str) -> (String, usize) {
    // What stands in parentheses right after it.
    let inside = after.strip_prefix('(').and_then(|rest| {
        let mut quote = false;
        let mut depth = 1;
        let end = rest.char_indices().find(|(_, c)| {
            quote ^= *c == '"';
            depth += i32::from(!quote && *c == '(') - i32::from(!quote && *c == ')');
            depth == 0
        });
        end.map(|(end, _)| &rest[..end])
    });
    let used = inside.map_or(0, |inside| inside.len() + 2);
    let name = match word {
        "Int8" | "UInt8" | "Int16" => "smallint",
        "UInt16" | "Int32" => "integer",
        "UInt32" | "Int64" | "UInt64" => "bigint",
        "Float16" | "Float32" => "real",
        "Float64" => "double precision",
        "Utf8" | "LargeUtf8" | "Utf8View" => "text",
        "Boolean" => "boolean",
        "Date32" | "Date64" => "date",
        "Binary" | "LargeBinary" | "BinaryView" => "bytea",
        "Time32" | "Time64" => "time",
        "Decimal32" | "Decimal64" | "Decimal128" | "Decimal256" => "numeric",
        "Interval" | "IntervalMonthDayNano" | "Duration" => "interval",
        "Timestamp" => match inside {
            Some(inside) if inside.contains("Some") || inside.contains('"') => {
                "timestamp with time zone"
            }
            _ => "timestamp without time zone",
        },
        "Null" => return ("unknown".into(), 0),
        "List" | "LargeList" | "FixedSizeList" => {
            let item = inside.map(|inside| {
                let item = inside.trim_start_matches("nullable ").trim_start_matches("non-null ");
                let item = between(item, "data_type: ", ",").unwrap_or(item);
                plain(item)
            });
            return (item.map_or("array".into(), |item| format!("{item}[]")), used);
        }
        _ => return (word.into(), 0),
    };
    let is_parameter =
        matches!(name, "numeric" | "interval" | "time") || name.starts_with("timestamp");
    match inside {
        None => (name.into(), 0),
        Some(inside) if name == "numeric" && inside.split(',').count() == 2 => {
            (format!("numeric({})", inside.replace(' ', "")), used)
        }
        Some(_) if is_parameter => (name.into(), used),
        // A literal: `Int64(1)`, `Utf8("x")`.
        Some(inside) => match inside.strip_prefix('"').and_then(|i| i.strip_suffix('"')) {
            Some(text) => (format!("'{text}'"), used),
            None => (inside.into(), used),
        },
    }
}

/// A type that is not there: one of PostgreSQL's that is not there yet, or a name of nothing.
pub fn no_type(name: &str) -> Error {
    const KNOWN: [&str; 16] = [
        "uuid", "json", "jsonb", "xml", "money", "bit", "inet", "cidr", "macaddr", "point",
        "tsvector", "tsquery", "oid", "name", "enum", "hstore",
    ];
    let base = name.split(['(', '[']).next().unwrap_or_default().trim().to_lowercase();
    let is_word = base.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !is_word || KNOWN.contains(&base.as_str()) {
        return Error::unsupported(format!("type {name} is not supported"))
            .hint("store it as text: VARCHAR")
            .about(Subject::Word(base));
    }
    Error::user(format!("type {} does not exist", thalweg_base::text::quoted(&base)))
        .code("42704")
        .hint("docs/sql.md lists the types")
        .about(Subject::Word(base))
}

/// Drops the prefixes that repeat the error's kind, and the back-trace DataFusion may append.
pub(crate) fn clean(message: &str) -> String {
    let mut text = message.split("\n\nbacktrace:").next().unwrap_or(message);
    for prefix in [
        "Error during planning: ",
        "Execution error: ",
        "This feature is not implemented: ",
        "Schema error: ",
        "Arrow error: ",
        "Internal error: ",
        "Optimizer rule ",
        "External error: ",
    ] {
        text = text.trim_start_matches(prefix);
    }
    text.split(".\nThis issue was likely caused by").next().unwrap_or(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_literals_are_spelled_as_in_sql() {
        for (message, expected) in [
            ("count(Int64(1)) of t.a", "count(1) of t.a"),
            ("Utf8(\"a (b\") || Utf8View", "'a (b' || text"),
            (
                "Decimal128(10, 2) and Timestamp(ns)",
                "numeric(10,2) and timestamp without time zone",
            ),
            ("Timestamp(µs, \"+00:00\")", "timestamp with time zone"),
            ("\"Int64\" of thalweg.public.t", "\"Int64\" of t"),
            ("List(Int64)", "bigint[]"),
            ("Interval(MonthDayNano)", "interval"),
        ] {
            assert_eq!(plain(message), expected);
        }
    }

    #[test]
    fn messages_are_postgresqls() {
        let check = |message: &str, code: &str, expected: &str| {
            let e = of_message(message).unwrap_or_else(|| panic!("{message}"));
            assert_eq!((e.sqlstate(), e.message()), (code, expected));
        };
        check(
            "Cannot coerce arithmetic expression Decimal128(3, 1) + Utf8 to valid types",
            "42883",
            "operator does not exist: numeric(3,1) + text",
        );
        check(
            "Cannot infer common argument type for comparison operation Date32 IS DISTINCT FROM Int64",
            "42883",
            "operator does not exist: date IS DISTINCT FROM bigint",
        );
        check("table 'thalweg.public.x' not found", "42P01", "relation \"x\" does not exist");
        check(
            "Invalid function 'foo'.\nDid you mean 'floor'?",
            "42883",
            "function foo does not exist",
        );
        check(
            "Cannot cast string 'abc' to value of Int32 type",
            "22P02",
            "invalid input syntax for type integer: \"abc\"",
        );
        check(
            "Error parsing timestamp from 'x': error parsing date",
            "22007",
            "invalid input syntax for type timestamp: \"x\"",
        );
    }
}
