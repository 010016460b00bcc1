//! The types of parameters, from where they stand in a statement.
//!
//! The planner infers them from comparisons, arithmetic, ranges and lists. What it does not see is
//! told to it here, in a copy of the statement that is planned for that alone: a cast beside the
//! parameter is its type, an argument of a function that takes but one type gets a cast to it, and
//! `coalesce(a, $1)` compares the two. Each place of a parameter is a parameter of its own in it: the
//! first that tells a type decides, as in PostgreSQL.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CaseWhen, CastKind, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, LimitClause, Query, TableFactor, Value, VisitorMut, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowType,
};
use thalweg_base::Result;

use crate::walk::walk_mut;
use crate::{names, parse, statement};
use thalweg_errors::from_datafusion;

/// By their numbers, from 1; those that no place tells are missing.
pub async fn types(
    state: &SessionState,
    mut statement: Statement,
) -> Result<HashMap<usize, DataType>> {
    let mut numbers = Numbers::default();
    walk(&mut statement, &mut numbers);
    let mut places = Places::default();
    walk(&mut statement, &mut places);
    let mut told: HashMap<usize, DataType> =
        places.counts.iter().map(|place| (*place, DataType::Int64)).collect();
    told.extend(written(state, &places.casts).await?);
    let mut inferred = inferred(state, &statement).await;
    if inferred.is_none() && !places.sums.is_empty() {
        // What is added to a time is an interval; the planner takes it for another time.
        let plain = statement.clone();
        walk(&mut statement, &mut Sums(&places.sums));
        let interval = DataType::Interval(datafusion::arrow::datatypes::IntervalUnit::MonthDayNano);
        inferred = self::inferred(state, &statement).await;
        if inferred.is_some() {
            told.extend(places.sums.iter().map(|place| (*place, interval.clone())));
        } else {
            // In `t BETWEEN $1 AND $1 + interval '1 day'` it is a time.
            statement = plain;
            walk(&mut statement, &mut WithoutSums(&places.sums));
            inferred = self::inferred(state, &statement).await;
        }
    }
    let inferred = inferred.unwrap_or_default();
    let mut types = HashMap::new();
    for (place, number) in numbers.0.iter().enumerate().map(|(i, number)| (i + 1, *number)) {
        let found = told.get(&place).cloned().or_else(|| {
            let found = inferred.get(&format!("${place}")).cloned().flatten()?;
            Some(if places.arrays.contains(&place) { list_of(found) } else { found })
        });
        if let Some(found) = found {
            types.entry(number).or_insert(found);
        }
    }
    Ok(types)
}

fn walk(statement: &mut Statement, visitor: &mut dyn VisitorMut<Break = ()>) {
    let mut inner = statement;
    while let Statement::Explain(explain) = inner {
        inner = &mut explain.statement;
    }
    if let Statement::Statement(statement) = inner {
        let _ = walk_mut(&mut **statement, visitor);
    }
}

/// What the planner infers; `None`: there is no plan, and whoever runs the statement is told why.
async fn inferred(
    state: &SessionState,
    statement: &Statement,
) -> Option<HashMap<String, Option<DataType>>> {
    let plan = statement::plan(state, statement.clone()).await;
    plan.and_then(|plan| plan.get_parameter_types()).ok()
}

/// The types of casts.
async fn written(
    state: &SessionState,
    casts: &[(usize, String)],
) -> Result<HashMap<usize, DataType>> {
    if casts.is_empty() {
        return Ok(HashMap::new());
    }
    let nulls = casts.iter().map(|(_, data_type)| format!("CAST(NULL AS {data_type})"));
    let query = format!("SELECT {}", nulls.collect::<Vec<_>>().join(", "));
    let plan = statement::plan(state, parse::statement(state, &query)?).await;
    let plan = plan.map_err(from_datafusion)?;
    let types = plan.schema().fields().iter().map(|field| field.data_type().clone());
    Ok(casts.iter().map(|(place, _)| *place).zip(types).collect())
}

fn list_of(item: DataType) -> DataType {
    match item {
        DataType::Null => DataType::new_list(DataType::Utf8, true),
        item => DataType::new_list(item, true),
    }
}

/// Numbers every place of a parameter anew, from 1, and keeps the number that it had.
#[derive(Default)]
struct Numbers(Vec<usize>);

impl VisitorMut for Numbers {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(number) = number(expr) {
            self.0.push(number);
            *expr = Expr::Value(Value::Placeholder(format!("${}", self.0.len())).into());
        }
        ControlFlow::Continue(())
    }
}

#[derive(Default)]
struct Places {
    /// `a = ANY ($1)`, which is `a = $1` from here on: the planner tells the type of the elements.
    arrays: HashSet<usize>,
    /// `CAST($1 AS type)`
    casts: Vec<(usize, String)>,
    /// `LIMIT $1`, `OFFSET $1`, `ROWS $1 PRECEDING`
    counts: Vec<usize>,
    /// `a + $1`
    sums: HashSet<usize>,
}

impl VisitorMut for Places {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut counts = vec![];
        match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                counts.extend(limit);
                counts.extend(offset.as_ref().map(|o| &o.value));
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => counts.extend([offset, limit]),
            None => {}
        }
        counts.extend(query.fetch.as_ref().and_then(|f| f.quantity.as_ref()));
        self.counts.extend(counts.into_iter().filter_map(number));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let (name, args) = match factor {
            TableFactor::Table { name, args: Some(args), .. } => (name, &mut args.args),
            TableFactor::Function { name, args, .. } => (name, args),
            _ => return ControlFlow::Continue(()),
        };
        if names::folded(name) == "generate_series" {
            self.series(args);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Cast { expr, data_type, .. } => {
                if let Some(number) = number(expr) {
                    self.casts.push((number, data_type.to_string()));
                }
            }
            Expr::AnyOp { left, compare_op, right, .. }
            | Expr::AllOp { left, compare_op, right } => {
                if let Some(number) = number(within(right)) {
                    self.arrays.insert(number);
                    let right = Box::new(within(right).clone());
                    let (left, op) = (left.clone(), compare_op.clone());
                    *expr = Expr::BinaryOp { left, op, right };
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::Plus, right } => {
                self.sums.extend([left, right].into_iter().filter_map(|side| number(within(side))));
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                if let (Expr::Tuple(left), Expr::Tuple(right)) = (left.as_ref(), right.as_ref())
                    && let Some(pairs) = all_equal(left.iter().zip(right))
                {
                    *expr = pairs;
                }
            }
            Expr::Substring { substring_from, substring_for, .. } => {
                for argument in [substring_from, substring_for].into_iter().flatten() {
                    tell(argument, "INT");
                }
            }
            Expr::Case { operand: None, conditions, else_result, .. } => {
                compare_results(conditions, else_result.as_deref_mut());
            }
            Expr::Function(function) => {
                if let Some(WindowType::WindowSpec(window)) = &mut function.over
                    && let Some(frame) = &mut window.window_frame
                {
                    self.frame(frame);
                }
                let name = names::folded(&function.name);
                let FunctionArguments::List(list) = &mut function.args else {
                    return ControlFlow::Continue(());
                };
                let mut arguments = vec![];
                for argument in &mut list.args {
                    match argument {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => {
                            arguments.push(argument);
                        }
                        FunctionArg::Named {
                            name: called,
                            arg: FunctionArgExpr::Expr(argument),
                            ..
                        }
                        | FunctionArg::ExprNamed {
                            name: Expr::Identifier(called),
                            arg: FunctionArgExpr::Expr(argument),
                            ..
                        } if name.starts_with("make_") => {
                            tell(argument, named(&names::ident(called)));
                        }
                        _ => {}
                    }
                }
                if ALIKE.contains(&name.as_str()) {
                    if let Some(compared) = compared(&arguments) {
                        *expr = compared;
                    }
                } else if let Some((_, types)) = TAKES.iter().find(|(known, _)| *known == name) {
                    for (argument, data_type) in arguments.into_iter().zip(*types) {
                        tell(argument, data_type);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Places {
    /// A series of whole numbers. The planner wants to know them, and gets some.
    fn series(&mut self, args: &mut [FunctionArg]) {
        let mut values: Vec<&mut Expr> = vec![];
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => values.push(value),
                _ => return,
            }
        }
        if !values.iter().all(|value| number(value).is_some() || is_number(value)) {
            return;
        }
        for value in values {
            if let Some(place) = number(value) {
                self.casts.push((place, "INT".into()));
                *value = one();
            }
        }
    }

    /// Numbers of rows before and behind one; the same holds of them.
    fn frame(&mut self, frame: &mut WindowFrame) {
        if frame.units == WindowFrameUnits::Range {
            return;
        }
        for bound in [Some(&mut frame.start_bound), frame.end_bound.as_mut()].into_iter().flatten()
        {
            if let WindowFrameBound::Preceding(Some(rows)) | WindowFrameBound::Following(Some(rows)) =
                bound
                && let Some(place) = number(rows)
            {
                self.counts.push(place);
                **rows = one();
            }
        }
    }
}

fn one() -> Expr {
    Expr::Value(Value::Number("1".into(), false).into())
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

/// The type of an argument of `make_interval` and its like, by its name.
fn named(argument: &str) -> &'static str {
    match argument {
        "sec" | "secs" => "DOUBLE",
        "timezone" => "VARCHAR",
        _ => "INT",
    }
}

/// Functions whose arguments are of one type.
const ALIKE: [&str; 6] = ["coalesce", "nullif", "greatest", "least", "ifnull", "nvl"];

/// Functions that take certain types. An empty name: any type.
const TAKES: [(&str, &[&str]); 57] = [
    ("substr", &["VARCHAR", "INT", "INT"]),
    ("substring", &["VARCHAR", "INT", "INT"]),
    ("left", &["VARCHAR", "INT"]),
    ("right", &["VARCHAR", "INT"]),
    ("lpad", &["VARCHAR", "INT", "VARCHAR"]),
    ("rpad", &["VARCHAR", "INT", "VARCHAR"]),
    ("repeat", &["VARCHAR", "INT"]),
    ("split_part", &["VARCHAR", "VARCHAR", "INT"]),
    ("replace", &["VARCHAR", "VARCHAR", "VARCHAR"]),
    ("translate", &["VARCHAR", "VARCHAR", "VARCHAR"]),
    ("strpos", &["VARCHAR", "VARCHAR"]),
    ("starts_with", &["VARCHAR", "VARCHAR"]),
    ("upper", &["VARCHAR"]),
    ("lower", &["VARCHAR"]),
    ("initcap", &["VARCHAR"]),
    ("reverse", &["VARCHAR"]),
    ("length", &["VARCHAR"]),
    ("char_length", &["VARCHAR"]),
    ("character_length", &["VARCHAR"]),
    ("btrim", &["VARCHAR", "VARCHAR"]),
    ("ltrim", &["VARCHAR", "VARCHAR"]),
    ("rtrim", &["VARCHAR", "VARCHAR"]),
    ("concat", &["VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"]),
    ("ascii", &["VARCHAR"]),
    ("md5", &["VARCHAR"]),
    ("chr", &["INT"]),
    ("regexp_replace", &["VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"]),
    ("regexp_match", &["VARCHAR", "VARCHAR", "VARCHAR"]),
    ("regexp_matches", &["VARCHAR", "VARCHAR", "VARCHAR"]),
    ("regexp_split_to_array", &["VARCHAR", "VARCHAR", "VARCHAR"]),
    ("regexp_split_to_table", &["VARCHAR", "VARCHAR", "VARCHAR"]),
    ("regexp_count", &["VARCHAR", "VARCHAR", "INT", "VARCHAR"]),
    ("regexp_instr", &["VARCHAR", "VARCHAR", "INT", "INT", "INT", "VARCHAR", "INT"]),
    ("regexp_substr", &["VARCHAR", "VARCHAR", "INT", "INT", "VARCHAR", "INT"]),
    ("quote_ident", &["VARCHAR"]),
    ("convert_to", &["VARCHAR", "VARCHAR"]),
    ("convert_from", &["", "VARCHAR"]),
    ("encode", &["", "VARCHAR"]),
    ("decode", &["VARCHAR", "VARCHAR"]),
    ("regexp_like", &["VARCHAR", "VARCHAR", "VARCHAR"]),
    ("round", &["", "INT"]),
    ("trunc", &["", "INT"]),
    ("date_trunc", &["VARCHAR", "TIMESTAMP"]),
    ("date_part", &["VARCHAR", "TIMESTAMP"]),
    ("to_char", &["", "VARCHAR"]),
    ("ntile", &["INT"]),
    ("lag", &["", "INT"]),
    ("lead", &["", "INT"]),
    ("nth_value", &["", "INT"]),
    ("make_interval", &["INT", "INT", "INT", "INT", "INT", "INT", "DOUBLE"]),
    ("make_date", &["INT", "INT", "INT"]),
    ("make_time", &["INT", "INT", "DOUBLE"]),
    ("make_timestamp", &["INT", "INT", "INT", "INT", "INT", "DOUBLE"]),
    ("ln", &["DOUBLE"]),
    ("exp", &["DOUBLE"]),
    ("sqrt", &["DOUBLE"]),
    ("cbrt", &["DOUBLE"]),
];

/// Gives a parameter a cast, if the expression is one.
fn tell(expr: &mut Expr, data_type: &str) {
    if number(expr).is_none() || data_type.is_empty() {
        return;
    }
    let data_type = match data_type {
        "INT" => ast::DataType::Int(None),
        "TIMESTAMP" => ast::DataType::Timestamp(None, ast::TimezoneInfo::None),
        "DOUBLE" => ast::DataType::DoublePrecision,
        "INTERVAL" => ast::DataType::Interval { fields: None, precision: None },
        _ => ast::DataType::Varchar(None),
    };
    let (kind, inner) = (CastKind::Cast, Box::new(expr.clone()));
    *expr = Expr::Cast { kind, expr: inner, data_type, array: false, format: None };
}

/// `coalesce(a, $1)` as `CASE WHEN a = $1 THEN a END`, whose type is the same.
fn compared(arguments: &[&mut Expr]) -> Option<Expr> {
    let typed = arguments.iter().find(|e| number(e).is_none() && !is_null(e))?;
    let parameters = arguments.iter().filter(|e| number(e).is_some());
    let condition = all_equal(parameters.map(|parameter| (&**typed, &**parameter)))?;
    let when = CaseWhen { condition, result: (**typed).clone() };
    Some(Expr::Case {
        case_token: ast::helpers::attached_token::AttachedToken::empty(),
        end_token: ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: vec![when],
        else_result: None,
    })
}

/// Results that are parameters are compared with one that is none.
fn compare_results(conditions: &mut Vec<CaseWhen>, otherwise: Option<&mut Expr>) {
    let results = conditions.iter().map(|when| &when.result).chain(otherwise.as_deref());
    let Some(typed) = results.clone().find(|e| number(e).is_none() && !is_null(e)).cloned() else {
        return;
    };
    let parameters: Vec<Expr> = results.filter(|e| number(e).is_some()).cloned().collect();
    let Some(condition) = all_equal(parameters.iter().map(|parameter| (&typed, parameter))) else {
        return;
    };
    for result in conditions.iter_mut().map(|when| &mut when.result).chain(otherwise) {
        if number(result).is_some() {
            *result = typed.clone();
        }
    }
    conditions.push(CaseWhen { condition, result: typed });
}

fn all_equal<'a>(pairs: impl Iterator<Item = (&'a Expr, &'a Expr)>) -> Option<Expr> {
    let equal = |(left, right): (&Expr, &Expr)| Expr::BinaryOp {
        left: Box::new(left.clone()),
        op: BinaryOperator::Eq,
        right: Box::new(right.clone()),
    };
    let and = |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    pairs.map(equal).reduce(and)
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

/// Casts what is added to intervals.
struct Sums<'a>(&'a HashSet<usize>);

impl VisitorMut for Sums<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if number(expr).is_some_and(|place| self.0.contains(&place)) {
            tell(expr, "INTERVAL");
        }
        ControlFlow::Continue(())
    }
}

/// Leaves of such sums what is added to.
struct WithoutSums<'a>(&'a HashSet<usize>);

impl VisitorMut for WithoutSums<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::BinaryOp { left, op: BinaryOperator::Plus, right } = expr else {
            return ControlFlow::Continue(());
        };
        let is_found = |side: &Expr| number(within(side)).is_some_and(|n| self.0.contains(&n));
        let found = [left, right].into_iter().find(|side| is_found(side)).map(|side| side.clone());
        if let Some(found) = found {
            *expr = *found;
        }
        ControlFlow::Continue(())
    }
}

/// What stands in parentheses.
fn within(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => within(inner),
        expr => expr,
    }
}

/// Of a parameter.
fn number(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Placeholder(text) = &value.value else { return None };
    text.strip_prefix('$')?.parse().ok()
}
