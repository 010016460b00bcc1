//! Expressions and calls of functions.

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    CastFormat, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, Interval, NullTreatment, ObjectName, TypedString,
    WindowFrame, WindowSpec, WindowType,
};
use thalweg_base::{Error, Result};

use super::{no, query, unsupported};
use crate::names;

pub(super) fn expr(state: &SessionState, expr: &Expr) -> Result<()> {
    use Expr as E;
    let refuse = |what: &str, instead: &str| Err(unsupported(what, instead));
    match expr {
        // All of these is planned.
        E::Identifier(_)
        | E::CompoundIdentifier(_)
        | E::CompoundFieldAccess { root: _, access_chain: _ }
        | E::IsFalse(_)
        | E::IsNotFalse(_)
        | E::IsTrue(_)
        | E::IsNotTrue(_)
        | E::IsNull(_)
        | E::IsNotNull(_)
        | E::IsUnknown(_)
        | E::IsNotUnknown(_)
        | E::IsDistinctFrom(_, _)
        | E::IsNotDistinctFrom(_, _)
        | E::InList { expr: _, list: _, negated: _ }
        | E::InSubquery { expr: _, subquery: _, negated: _ }
        | E::Between { expr: _, negated: _, low: _, high: _ }
        | E::AnyOp { left: _, compare_op: _, right: _, is_some: _ }
        | E::AllOp { left: _, compare_op: _, right: _ }
        | E::BinaryOp { left: _, op: _, right: _ }
        | E::UnaryOp { op: _, expr: _ }
        | E::AtTimeZone { timestamp: _, time_zone: _ }
        | E::Extract { field: _, syntax: _, expr: _ }
        | E::Ceil { expr: _, field: _ }
        | E::Floor { expr: _, field: _ }
        | E::Position { expr: _, r#in: _ }
        | E::Substring { expr: _, substring_from: _, substring_for: _, special: _, shorthand: _ }
        | E::Trim { trim_where: _, trim_what: _, expr: _, trim_characters: _ }
        | E::Overlay { expr: _, overlay_what: _, overlay_from: _, overlay_for: _ }
        | E::Nested(_)
        | E::Value(_)
        | E::TypedString(TypedString { data_type: _, value: _, uses_odbc_syntax: _ })
        | E::Case { case_token: _, end_token: _, operand: _, conditions: _, else_result: _ }
        | E::Exists { subquery: _, negated: _ }
        | E::Subquery(_)
        | E::GroupingSets(_)
        | E::Cube(_)
        | E::Rollup(_)
        | E::Tuple(_)
        | E::Struct { values: _, fields: _ }
        | E::Dictionary(_)
        | E::Map(_)
        | E::Array(_)
        | E::Wildcard(_)
        | E::IsNormalized { expr: _, form: _, negated: _ }
        | E::QualifiedWildcard(_, _)
        | E::Lambda(_)
        | E::JsonAccess { value: _, path: _ } => Ok(()),
        E::Like { negated: _, any, expr: _, pattern: _, escape_char: _ }
        | E::ILike { negated: _, any, expr: _, pattern: _, escape_char: _ } => {
            // The patterns of ANY are one comparison each by the time it is planned.
            let _ = any;
            Ok(())
        }
        E::SimilarTo { negated: _, expr: _, pattern: _, escape_char: _ } => {
            refuse("SIMILAR TO at this place", "write x ~ '^(pattern)$'")
        }
        E::RLike { negated: _, expr: _, pattern: _, regexp: _ } => {
            refuse("RLIKE or REGEXP", "write x ~ 'pattern'")
        }
        E::InUnnest { expr: _, array_expr: _, negated: _ } => {
            refuse("IN UNNEST (…)", "write x = ANY (array)")
        }
        E::Convert {
            is_try: _,
            expr: _,
            data_type: _,
            charset: _,
            target_before_value: _,
            styles: _,
        } => refuse("CONVERT", "write CAST(x AS type) or TRY_CAST(x AS type)"),
        E::Cast { kind: _, expr: _, data_type: _, array, format } => {
            no(*array, "CAST (… AS … ARRAY)", "write CAST (x AS type[])")?;
            match format {
                None => Ok(()),
                Some(CastFormat::Value(_) | CastFormat::ValueAtTimeZone(_, _)) => refuse(
                    "CAST (… FORMAT …)",
                    "write to_char(x, '…'), to_date(x, '…') or to_timestamp(x, '…')",
                ),
            }
        }
        // Those that order by bytes have been taken out.
        E::Collate { expr: _, collation } => Err(this_collation(collation)),
        E::Prefixed { prefix, value: _ } => {
            refuse(&format!("a literal with {prefix} before it"), "write it without")
        }
        E::Named { expr: _, name: _ } => {
            refuse("AS within an expression", "write struct(x AS name)")
        }
        E::MatchAgainst { columns: _, match_value: _, opt_search_modifier: _ } => {
            refuse("MATCH … AGAINST", "write x ILIKE '%word%' or x ~* 'word'")
        }
        E::OuterJoin(_) => refuse("(+)", "write LEFT JOIN … ON …"),
        E::Prior(_) => refuse("PRIOR", "write WITH RECURSIVE … UNION ALL …"),
        E::MemberOf(_) => refuse("MEMBER OF", "write x = ANY (array)"),
        E::Interval(Interval {
            value: _,
            leading_field: _,
            leading_precision,
            last_field: _,
            fractional_seconds_precision,
        }) => no(
            leading_precision.is_some() || fractional_seconds_precision.is_some(),
            "a precision of an interval",
            "leave it out",
        ),
        E::Function(call) => function(state, call),
    }
}

pub(super) fn this_collation(collation: &ObjectName) -> Error {
    Error::unsupported(format!("COLLATE {collation} is not supported"))
        .hint("texts are ordered by their bytes, which is COLLATE \"C\"; lower(x) puts both cases together")
}

/// What a function is to the planner: it passes over clauses that are not for its kind.
fn function(state: &SessionState, call: &Function) -> Result<()> {
    let Function {
        name,
        uses_odbc_syntax: _,
        parameters,
        args,
        filter,
        null_treatment,
        over,
        within_group,
    } = call;
    let title = names::folded(name);
    no(
        !matches!(parameters, FunctionArguments::None),
        &format!("{title}(…)(…)"),
        "give all arguments in one pair of parentheses",
    )?;
    let mut clauses = vec![];
    let mut ignores = null_treatment.as_ref();
    match args {
        FunctionArguments::None => {}
        FunctionArguments::Subquery(_) if title == "array" => return Ok(()),
        FunctionArguments::Subquery(_) => {
            return Err(unsupported(
                &format!("{title}(SELECT …)"),
                "put the subquery into parentheses of its own; array_agg(…) in it makes an array",
            ));
        }
        FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment,
            args,
            clauses: more,
        }) => {
            if duplicate_treatment.is_some() {
                clauses.push("DISTINCT or ALL");
            }
            for arg in args {
                let (FunctionArg::Unnamed(arg)
                | FunctionArg::Named { name: _, arg, operator: _ }
                | FunctionArg::ExprNamed { name: _, arg, operator: _ }) = arg;
                match arg {
                    FunctionArgExpr::Expr(_)
                    | FunctionArgExpr::QualifiedWildcard(_)
                    | FunctionArgExpr::Wildcard => {}
                    FunctionArgExpr::WildcardWithOptions(_) => {
                        return Err(unsupported("* with EXCLUDE in a call", "name the columns"));
                    }
                }
            }
            for clause in more {
                match clause {
                    FunctionArgumentClause::IgnoreOrRespectNulls(nulls) => ignores = Some(nulls),
                    FunctionArgumentClause::OrderBy(keys) => {
                        keys.iter().try_for_each(query::order_key)?;
                        clauses.push("ORDER BY");
                    }
                    FunctionArgumentClause::Limit(_) => {
                        return Err(unsupported(
                            "LIMIT in a call",
                            "take a part of the array: a[1:n]",
                        ));
                    }
                    FunctionArgumentClause::OnOverflow(_) => {
                        return Err(unsupported(
                            "ON OVERFLOW",
                            "leave it out: texts may be of any length",
                        ));
                    }
                    FunctionArgumentClause::Having(_) => {
                        return Err(unsupported("HAVING in a call", "write FILTER (WHERE …)"));
                    }
                    FunctionArgumentClause::Separator(_) => {
                        return Err(unsupported("SEPARATOR", "write string_agg(x, ', ')"));
                    }
                    FunctionArgumentClause::JsonNullClause(_)
                    | FunctionArgumentClause::JsonReturningClause(_) => {
                        return Err(unsupported("a clause of JSON in a call", "leave it out"));
                    }
                }
            }
        }
    }
    let nulls = match ignores {
        Some(NullTreatment::IgnoreNulls) => Some("IGNORE NULLS"),
        Some(NullTreatment::RespectNulls) => Some("RESPECT NULLS"),
        None => None,
    };
    within_group.iter().try_for_each(query::order_key)?;
    if !within_group.is_empty() {
        clauses.push("WITHIN GROUP");
    }
    if filter.is_some() {
        clauses.push("FILTER");
    }
    let is_aggregate = state.aggregate_functions().contains_key(&title);
    let is_window = state.window_functions().contains_key(&title);
    if state.scalar_functions().contains_key(&title) && !is_aggregate && !is_window {
        if over.is_some() {
            clauses.push("OVER");
        }
        clauses.extend(nulls);
        if let Some(clause) = clauses.first() {
            return Err(Error::user(format!(
                "{clause} is for aggregates and windows, and {title} is an ordinary function"
            ))
            .code("42809")
            .hint(format!("call it without: {title}(…)")));
        }
        return Ok(());
    }
    if is_window && !is_aggregate {
        if let Some(clause) = clauses.first() {
            return Err(Error::user(format!(
                "{clause} is for aggregates, and {title} is a window function"
            ))
            .code("42809")
            .hint(format!("choose or order the rows in OVER: {title}(…) OVER (ORDER BY …)")));
        }
        let skips = ["lead", "lag", "first_value", "last_value", "nth_value"];
        if let Some(nulls) = nulls
            && !skips.contains(&title.as_str())
        {
            return Err(Error::unsupported(format!("{nulls} of {title} is not supported"))
                .hint(format!("{} take it", skips.join(", "))));
        }
    }
    match over {
        None => Ok(()),
        Some(WindowType::WindowSpec(spec)) => window(spec),
        Some(WindowType::NamedWindow(name)) => {
            Err(Error::user(format!("there is no window {name}"))
                .code("42704")
                .hint(format!("define it: WINDOW {name} AS (PARTITION BY … ORDER BY …)")))
        }
    }
}

pub(super) fn window(spec: &WindowSpec) -> Result<()> {
    let WindowSpec { window_name, partition_by: _, order_by, window_frame } = spec;
    if let Some(name) = window_name {
        return Err(Error::user(format!("there is no window {name}"))
            .code("42704")
            .hint(format!("define it: WINDOW {name} AS (PARTITION BY … ORDER BY …)")));
    }
    order_by.iter().try_for_each(query::order_key)?;
    match window_frame {
        None | Some(WindowFrame { units: _, start_bound: _, end_bound: _ }) => Ok(()),
    }
}
