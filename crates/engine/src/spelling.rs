//! Other spellings of what is done: a statement as the planner knows it.
//!
//! | written | becomes |
//! |---|---|
//! | `FETCH FIRST 3 ROWS ONLY` | `LIMIT 3` |
//! | `TABLE t`, `FROM t` | `SELECT * FROM t` |
//! | `a SEMI JOIN b ON …`, `ANTI JOIN` | `LEFT SEMI JOIN`, `LEFT ANTI JOIN` |
//! | `OVER w`, `OVER (w ORDER BY …)` | the window that `WINDOW w AS (…)` defines |
//! | `ORDER BY ALL` | `ORDER BY 1, 2, …` |
//! | `x COLLATE "C"` | `x`: texts are ordered by their bytes |
//! | `x LIKE 'a!%' ESCAPE '!'` | `x LIKE 'a\%'` |
//! | `x SIMILAR TO 'a(b\|c)%'` | `x ~ '^(?:a(?:b\|c).*)$'` |
//! | `unnest(a) WITH ORDINALITY AS t(x, n)` | `unnest(a, generate_series(1, array_length(a))) AS t(x, n)` |
//! | `CREATE TABLE t (a TIMESTAMP, b CHARACTER VARYING(3))` | `TIMESTAMP(6)`, `VARCHAR(3)` |
//! | `t AT TIME ZONE z` | `timezone(z, t)` |
//! | `CREATE TABLE … WITH (fillfactor = 70)` | without it |
//!
//! What is then left of these is refused (`refuse.rs`).

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, ColumnOption, CreateTableOptions, DataType,
    Distinct, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, Interval,
    Join, JoinOperator, LimitClause, NamedWindowExpr, ObjectName, OrderByExpr, OrderByKind, Query,
    Select, SelectFlavor, SelectItem, SetExpr, SqlOption, Statement, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, Value, ValueWithSpan, VisitMut, VisitorMut,
    WindowSpec, WindowType,
};
use thalweg_base::{Error, Result};
use thalweg_bind::span;

use crate::dml::target;
use crate::names;
use crate::walk::walk_mut;
use thalweg_functions::patterns;

/// Writes a statement in the planner's words.
///
/// # Errors
/// A window that cannot be made of the one it names, or an escape that is no character.
pub(crate) fn settle(statement: &mut DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(inner) => {
            if let Statement::CreateTable(create) = inner.as_mut() {
                for column in &mut create.columns {
                    column_type(&mut column.data_type);
                    column.options.retain(|o| {
                        !matches!(&o.option, ColumnOption::Collation(name) if orders_by_bytes(name))
                    });
                }
                create.table_options = without_hints(std::mem::replace(
                    &mut create.table_options,
                    CreateTableOptions::None,
                ));
            }
            settle_all(inner.as_mut())
        }
        DfStatement::Explain(explain) => settle(&mut explain.statement),
        DfStatement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => settle_all(query.as_mut()),
            CopyToSource::Relation(_) => Ok(()),
        },
        DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => Ok(()),
    }
}

/// The same of a part of a statement.
pub(crate) fn settle_all(node: &mut impl VisitMut) -> Result<()> {
    let mut spelling = Spelling { found: Ok(()) };
    let _ = walk_mut(node, &mut spelling);
    spelling.found
}

struct Spelling {
    found: Result<()>,
}

impl Spelling {
    fn note(&mut self, result: Result<()>) -> ControlFlow<()> {
        self.found = result;
        if self.found.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl VisitorMut for Spelling {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.note(settle_query(query))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        ordinality(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Collate { expr: inner, collation } if orders_by_bytes(collation) => {
                *expr = std::mem::replace(inner, Expr::Value(Value::Null.into()));
            }
            Expr::Like { escape_char, pattern, .. } | Expr::ILike { escape_char, pattern, .. } => {
                if let Some(escape) = escape_char.take() {
                    return self.note(escaped(pattern, escape));
                }
            }
            Expr::SimilarTo { .. } => return self.note(similar(expr)),
            Expr::Interval(interval) => clock_in_seconds(interval),
            // The planner takes it for a cast.
            Expr::AtTimeZone { timestamp, time_zone } => {
                let args = [time_zone, timestamp];
                let args = args
                    .map(|arg| std::mem::replace(arg.as_mut(), Expr::Value(Value::Null.into())));
                *expr = call("timezone", args.to_vec());
            }
            // `age(x)` is that of today.
            Expr::Function(function) if names::folded(&function.name) == "age" => {
                if let FunctionArguments::List(list) = &mut function.args
                    && list.args.len() == 1
                {
                    let today = FunctionArgExpr::Expr(call("current_date", vec![]));
                    list.args.insert(0, FunctionArg::Unnamed(today));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// A type of a column as the planner knows it. A timestamp that does not say how many digits its seconds
/// have has six.
fn column_type(data_type: &mut DataType) {
    match data_type {
        DataType::Timestamp(digits @ None, _) => *digits = Some(6),
        DataType::CharacterVarying(length)
        | DataType::CharVarying(length)
        | DataType::Nvarchar(length) => *data_type = DataType::Varchar(*length),
        DataType::Character(length) => *data_type = DataType::Char(*length),
        DataType::Array(
            ArrayElemTypeDef::AngleBracket(item) | ArrayElemTypeDef::SquareBracket(item, _),
        ) => column_type(item),
        _ => {}
    }
}

/// The names of the order by bytes: PostgreSQL's default is that of the database, which here is it.
fn orders_by_bytes(collation: &ObjectName) -> bool {
    let name = collation.0.last().and_then(|part| part.as_ident());
    name.is_some_and(|name| {
        ["c", "posix", "default", "ucs_basic", "c.utf8", "c.utf-8", "binary"]
            .contains(&name.value.to_lowercase().as_str())
    })
}

/// Storage parameters of PostgreSQL that no answer depends on.
fn without_hints(options: CreateTableOptions) -> CreateTableOptions {
    let CreateTableOptions::With(mut options) = options else { return options };
    options.retain(|option| match option {
        SqlOption::KeyValue { key, value: _ } => {
            let key = key.value.to_lowercase();
            key != "fillfactor" && key != "parallel_workers" && !key.starts_with("autovacuum_")
        }
        _ => true,
    });
    match options.is_empty() {
        true => CreateTableOptions::None,
        false => CreateTableOptions::With(options),
    }
}

fn settle_query(query: &mut Query) -> Result<()> {
    if let Some(fetch) = &query.fetch
        && !fetch.with_ties
        && !fetch.percent
    {
        let rows = fetch.quantity.clone().unwrap_or_else(|| number(1));
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit: limit @ None, offset: _, limit_by })
                if limit_by.is_empty() =>
            {
                *limit = Some(rows);
                query.fetch = None;
            }
            None => {
                query.limit_clause = Some(LimitClause::LimitOffset {
                    limit: Some(rows),
                    offset: None,
                    limit_by: vec![],
                });
                query.fetch = None;
            }
            Some(_) => {}
        }
    }
    settle_body(&mut query.body);
    if let Some(order) = &mut query.order_by
        && let OrderByKind::All(options) = order.kind
        && let Some(columns) = columns_of(&query.body)
    {
        let key = |place| OrderByExpr { expr: number(place), options, with_fill: None };
        order.kind = OrderByKind::Expressions((1..=columns).map(key).collect());
    }
    let Query { body, order_by, .. } = query;
    if let SetExpr::Select(select) = body.as_mut() {
        let mut keys: Vec<&mut Expr> = vec![];
        if let Some(order) = order_by
            && let OrderByKind::Expressions(order) = &mut order.kind
        {
            keys.extend(order.iter_mut().map(|key| &mut key.expr));
        }
        return windows(select, keys);
    }
    windows_below(body)
}

fn settle_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => settle_select(select),
        SetExpr::SetOperation { left, right, .. } => {
            settle_body(left);
            settle_body(right);
        }
        SetExpr::Table(table) => {
            let parts = [&table.schema_name, &table.table_name];
            let parts: Vec<Ident> =
                parts.into_iter().flatten().map(|n| Ident::new(n.as_str())).collect();
            let from = target::alone(target::named(ObjectName::from(parts), None));
            let all = vec![SelectItem::Wildcard(Default::default())];
            *body = *target::select(None, all, vec![from], None).body;
        }
        _ => {}
    }
}

fn settle_select(select: &mut Select) {
    if select.flavor == SelectFlavor::FromFirstNoSelect && select.projection.is_empty() {
        select.projection = vec![SelectItem::Wildcard(Default::default())];
        select.flavor = SelectFlavor::FromFirst;
    }
    select.from.iter_mut().for_each(settle_joins);
}

fn settle_joins(tables: &mut TableWithJoins) {
    settle_nested(&mut tables.relation);
    for Join { relation, global: _, join_operator } in &mut tables.joins {
        settle_nested(relation);
        let operator = std::mem::replace(join_operator, JoinOperator::CrossApply);
        *join_operator = match operator {
            JoinOperator::Semi(on) => JoinOperator::LeftSemi(on),
            JoinOperator::Anti(on) => JoinOperator::LeftAnti(on),
            other => other,
        };
    }
}

fn settle_nested(factor: &mut TableFactor) {
    if let TableFactor::NestedJoin { table_with_joins, alias: _ } = factor {
        settle_joins(table_with_joins);
    }
}

/// How many columns a query gives, if its text says so.
fn columns_of(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => {
            let is_one = |item: &SelectItem| {
                matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            select.projection.iter().all(is_one).then_some(select.projection.len())
        }
        SetExpr::Query(query) => columns_of(&query.body),
        SetExpr::SetOperation { left, right, .. } => columns_of(left).or_else(|| columns_of(right)),
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        _ => None,
    }
}

/// The windows of the branches of a set operation.
fn windows_below(body: &mut SetExpr) -> Result<()> {
    match body {
        SetExpr::Select(select) => windows(select, vec![]),
        SetExpr::SetOperation { left, right, .. } => {
            windows_below(left)?;
            windows_below(right)
        }
        _ => Ok(()),
    }
}

/// Puts the windows that are defined in the place of their names.
fn windows(select: &mut Select, order: Vec<&mut Expr>) -> Result<()> {
    if select.named_window.is_empty() {
        return Ok(());
    }
    let mut known = Windows { known: vec![], depth: 0, found: Ok(()) };
    for definition in std::mem::take(&mut select.named_window) {
        let name = names::ident(&definition.0);
        if known.find(&definition.0).is_some() {
            return Err(Error::user(format!("window {name} is defined twice")).code("42P20"));
        }
        let spec = match definition.1 {
            NamedWindowExpr::NamedWindow(other) => {
                known.find(&other).cloned().ok_or_else(|| no_window(&other))?
            }
            NamedWindowExpr::WindowSpec(spec) => known.copied(spec)?,
        };
        known.known.push((name, spec));
    }
    let mut exprs = order;
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } = item {
            exprs.push(expr);
        }
    }
    exprs.extend(select.qualify.as_mut());
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        exprs.extend(keys);
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        exprs.extend(keys);
    }
    for expr in exprs {
        let _ = walk_mut(expr, &mut known);
    }
    known.found
}

fn no_window(name: &Ident) -> Error {
    Error::user(format!("there is no window {name}"))
        .code("42704")
        .hint(format!("define it before: WINDOW {name} AS (PARTITION BY … ORDER BY …)"))
}

struct Windows {
    known: Vec<(String, WindowSpec)>,
    /// Of subqueries around what is visited: they have windows of their own.
    depth: usize,
    found: Result<()>,
}

impl Windows {
    fn find(&self, name: &Ident) -> Option<&WindowSpec> {
        let name = names::ident(name);
        self.known.iter().find(|(known, _)| *known == name).map(|(_, spec)| spec)
    }

    /// A window that may add to another one, by PostgreSQL's rules.
    fn copied(&self, mut spec: WindowSpec) -> Result<WindowSpec> {
        let Some(name) = spec.window_name.take() else { return Ok(spec) };
        let base = self.find(&name).ok_or_else(|| no_window(&name))?.clone();
        let refuse = |what: &str| {
            Err(Error::user(format!("window {name} cannot be taken: {what}")).code("42P20"))
        };
        if !spec.partition_by.is_empty() {
            return refuse("its PARTITION BY cannot be replaced");
        }
        if !base.order_by.is_empty() && !spec.order_by.is_empty() {
            return refuse("its ORDER BY cannot be replaced");
        }
        if base.window_frame.is_some() {
            return refuse("it has a frame; write OVER without parentheses");
        }
        spec.partition_by = base.partition_by;
        if spec.order_by.is_empty() {
            spec.order_by = base.order_by;
        }
        Ok(spec)
    }
}

impl VisitorMut for Windows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let spec = match function.over.take() {
            None => return ControlFlow::Continue(()),
            Some(WindowType::NamedWindow(name)) => {
                self.find(&name).cloned().ok_or_else(|| no_window(&name))
            }
            Some(WindowType::WindowSpec(spec)) => self.copied(spec),
        };
        match spec {
            Ok(spec) => {
                function.over = Some(WindowType::WindowSpec(spec));
                ControlFlow::Continue(())
            }
            Err(e) => {
                self.found = Err(e);
                ControlFlow::Break(())
            }
        }
    }
}

fn clock_in_seconds(interval: &mut Interval) {
    if interval.leading_field.is_none()
        && let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: _ }) =
            interval.value.as_mut()
    {
        *text = in_seconds(text);
    }
}

/// `1 day 15:04:05.5` as `0 months 1 days 54245.5 seconds`, which the planner reads.
fn in_seconds(text: &str) -> String {
    match span::read(text, None) {
        Ok(read) if text.contains(':') => {
            let ns = read.nanoseconds.unsigned_abs();
            let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
            let sign = if read.nanoseconds < 0 { "-" } else { "" };
            let (months, days) = (read.months, read.days);
            format!("{months} months {days} days {sign}{seconds}.{rest:09} seconds")
        }
        _ => text.to_string(),
    }
}

/// `LIKE … ESCAPE 'e'` as the same with a backslash.
fn escaped(pattern: &mut Box<Expr>, escape: ValueWithSpan) -> Result<()> {
    let Some(escape) = escape.clone().into_string() else {
        let escape = Expr::Value(escape);
        let old = std::mem::replace(pattern.as_mut(), Expr::Value(Value::Null.into()));
        **pattern = call("like_escape", vec![old, escape]);
        return Ok(());
    };
    let character = patterns::escape(&escape)?;
    if character == Some('\\') {
        return Ok(());
    }
    **pattern = match text_of(pattern) {
        Some(text) => text_value(patterns::like(text, character)?),
        None => {
            let old = std::mem::replace(pattern.as_mut(), Expr::Value(Value::Null.into()));
            call("like_escape", vec![old, text_value(escape)])
        }
    };
    Ok(())
}

/// `SIMILAR TO` as a match of a regular expression.
fn similar(expr: &mut Expr) -> Result<()> {
    let taken = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    let Expr::SimilarTo { negated, expr: left, pattern, escape_char } = taken else {
        *expr = taken;
        return Ok(());
    };
    let escape = escape_char.map(|e| e.into_string().unwrap_or_default());
    let right = match text_of(&pattern) {
        Some(text) => {
            let character = escape.as_deref().map_or(Ok(Some('\\')), patterns::escape)?;
            text_value(patterns::similar(text, character)?)
        }
        None => {
            let mut arguments = vec![*pattern];
            arguments.extend(escape.map(text_value));
            call("similar_to_escape", arguments)
        }
    };
    let op = if negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
    *expr = Expr::Nested(Box::new(Expr::BinaryOp { left, op, right: Box::new(right) }));
    Ok(())
}

/// `unnest(a) WITH ORDINALITY` as two arrays side by side.
fn ordinality(factor: &mut TableFactor) {
    let (series, alias, title) = match factor {
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: true,
        } => (std::mem::take(array_exprs), alias.take(), "unnest".to_string()),
        TableFactor::Table { name, alias, args: Some(args), with_ordinality: true, .. }
            if args.settings.is_none() =>
        {
            let Some(list) = as_list(name) else { return };
            let Some(arguments) = plain(&args.args) else { return };
            (vec![call(list, arguments)], alias.take(), names::folded(name))
        }
        TableFactor::Function { name, args, with_ordinality: true, alias, .. } => {
            let Some(list) = as_list(name) else { return };
            let Some(arguments) = plain(args) else { return };
            (vec![call(list, arguments)], alias.take(), names::folded(name))
        }
        _ => return,
    };
    let (name, mut columns) = match alias {
        Some(TableAlias { name, columns, .. }) => (name, columns),
        None => (Ident::new(title), vec![]),
    };
    for place in columns.len()..series.len() {
        // PostgreSQL gives the only column of a function the name of its alias.
        let column = match (place, series.len()) {
            (_, 1) => name.clone(),
            (place, _) => Ident::new(format!("unnest_{}", place + 1)),
        };
        columns.push(TableAliasColumnDef { name: column, data_type: None });
    }
    if columns.len() == series.len() {
        columns.push(TableAliasColumnDef { name: Ident::new("ordinality"), data_type: None });
    }
    let length = |array: &Expr| {
        let length = call("array_length", vec![array.clone()]);
        let length = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(length),
            data_type: DataType::BigInt(None),
            array: false,
            format: None,
        };
        call("coalesce", vec![length, number(0)])
    };
    let mut lengths: Vec<Expr> = series.iter().map(length).collect();
    let rows = match lengths.len() {
        1 => lengths.remove(0),
        _ => call("greatest", lengths),
    };
    let mut array_exprs = series;
    array_exprs.push(call("generate_series", vec![number(1), rows]));
    *factor = TableFactor::UNNEST {
        alias: Some(TableAlias { explicit: true, name, columns, at: None }),
        array_exprs,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    };
}

/// The function that gives the rows of a table function as a list, if there is one.
fn as_list(name: &ObjectName) -> Option<&'static str> {
    match names::folded(name).as_str() {
        "generate_series" => Some("generate_series"),
        "range" => Some("range"),
        "regexp_split_to_table" => Some("regexp_split_to_array"),
        "string_to_table" => Some("string_to_array"),
        _ => None,
    }
}

fn plain(arguments: &[FunctionArg]) -> Option<Vec<Expr>> {
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    arguments.iter().map(argument).collect()
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: _ }) => {
            Some(text)
        }
        Expr::Nested(inner) => text_of(inner),
        _ => None,
    }
}

fn text_value(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

fn number(value: usize) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).into())
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    target::call(name, arguments)
}
