//! Queries: each clause of a SELECT, and what stands around it.

use datafusion::sql::sqlparser::ast::{
    ConnectByKind, Cte, Distinct, Fetch, ForClause, GroupByExpr, GroupByWithModifier, LimitClause,
    LockClause, LockType, NamedWindowDefinition, OrderBy, OrderByExpr, OrderByKind, Query, Select,
    SelectFlavor, SelectInto, SelectItem, SetExpr, WildcardAdditionalOptions, With,
};
use thalweg_base::Result;

use super::{no, table, unsupported};

pub(super) fn query(query: &Query) -> Result<()> {
    let Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators: _, // The planner does them or refuses them one by one.
    } = query;
    with.as_ref().map_or(Ok(()), with_clause)?;
    set_expr(body)?;
    // Of a plain SELECT the planner knows the columns of *.
    let is_plain = matches!(body.as_ref(), SetExpr::Select(_));
    order_by.as_ref().map_or(Ok(()), |order| order_clause(order, is_plain))?;
    limit_clause.as_ref().map_or(Ok(()), limit)?;
    // FETCH that is a LIMIT has been made one; WITH TIES is more than that.
    if let Some(Fetch { with_ties, percent, quantity: _ }) = fetch {
        no(
            *percent,
            "FETCH … PERCENT",
            "compute the number of rows: LIMIT (SELECT count(*) / 10 FROM …)",
        )?;
        let is_limited = match &query.limit_clause {
            None => false,
            Some(LimitClause::LimitOffset { limit, offset: _, limit_by: _ }) => limit.is_some(),
            Some(LimitClause::OffsetCommaLimit { .. }) => true,
        };
        if is_limited || !*with_ties {
            return Err(unsupported("FETCH together with LIMIT", "write one of them"));
        }
    }
    for LockClause { lock_type, of: _, nonblock: _ } in locks {
        match lock_type {
            // A snapshot is read, which nobody changes.
            LockType::Share => {}
            LockType::Update => {
                return Err(unsupported(
                    "FOR UPDATE",
                    "leave it out: of two transactions that change the same rows the second fails, \
                     and can be run again",
                ));
            }
        }
    }
    if let Some(clause) = for_clause {
        let what = match clause {
            ForClause::Browse => "FOR BROWSE",
            ForClause::Json { .. } => "FOR JSON",
            ForClause::Xml { .. } => "FOR XML",
        };
        return Err(unsupported(what, "COPY (…) TO 'file.json' writes JSON"));
    }
    no(settings.is_some(), "SETTINGS", "SET changes a setting for the session")?;
    no(
        format_clause.is_some(),
        "FORMAT after a query",
        "COPY (…) TO 'file' (FORMAT …) writes other formats",
    )
}

fn with_clause(with: &With) -> Result<()> {
    let With { with_token: _, recursive: _, cte_tables } = with;
    for cte in cte_tables {
        // Whether a CTE is materialised does not change what it gives.
        let Cte { alias, query: _, from, materialized: _, closing_paren_token: _ } = cte;
        no(from.is_some(), "FROM after a common table expression", "put it into the query")?;
        table::alias(alias)?;
    }
    Ok(())
}

fn set_expr(body: &SetExpr) -> Result<()> {
    match body {
        SetExpr::Select(select) => self::select(select),
        SetExpr::SetOperation { op: _, set_quantifier: _, left, right } => {
            set_expr(left)?;
            set_expr(right)
        }
        // Visited on their own.
        SetExpr::Query(_)
        | SetExpr::Insert(_)
        | SetExpr::Update(_)
        | SetExpr::Delete(_)
        | SetExpr::Merge(_)
        | SetExpr::Values(_) => Ok(()),
        SetExpr::Table(_) => Err(unsupported("TABLE at this place", "write SELECT * FROM …")),
    }
}

fn select(select: &Select) -> Result<()> {
    let Select {
        select_token: _,
        optimizer_hints: _,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window,
        qualify: _,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    match distinct {
        None | Some(Distinct::All | Distinct::Distinct | Distinct::On(_)) => {}
    }
    let modifiers = "leave it out: nothing of MySQL's hints is known here";
    no(select_modifiers.is_some(), "a modifier of SELECT such as SQL_CALC_FOUND_ROWS", modifiers)?;
    no(top.is_some(), "TOP", "write LIMIT at the end of the query")?;
    no(exclude.is_some(), "EXCLUDE after the list of results", "write SELECT * EXCLUDE (…)")?;
    projection.iter().try_for_each(item)?;
    if let Some(SelectInto { temporary, unlogged, table: _, name: _ }) = into {
        let instead = "SELECT … INTO t and CREATE TABLE t AS make an ordinary one";
        no(*temporary, "SELECT … INTO TEMPORARY", instead)?;
        no(*unlogged, "SELECT … INTO UNLOGGED", instead)?;
    }
    from.iter().try_for_each(table::with_joins)?;
    no(!lateral_views.is_empty(), "LATERAL VIEW", "write CROSS JOIN UNNEST(…) AS t(x)")?;
    no(
        prewhere.is_some(),
        "PREWHERE",
        "write WHERE: conditions are asked before other columns are read",
    )?;
    if let Some(ConnectByKind::ConnectBy { .. } | ConnectByKind::StartWith { .. }) =
        connect_by.first()
    {
        return Err(unsupported("CONNECT BY", "write WITH RECURSIVE … UNION ALL …"));
    }
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
    if let Some(modifier) = modifiers.first() {
        let (what, instead) = match modifier {
            GroupByWithModifier::Rollup => ("WITH ROLLUP", "write GROUP BY ROLLUP (a, b)"),
            GroupByWithModifier::Cube => ("WITH CUBE", "write GROUP BY CUBE (a, b)"),
            GroupByWithModifier::Totals => {
                ("WITH TOTALS", "write GROUP BY GROUPING SETS ((a, b), ())")
            }
            GroupByWithModifier::GroupingSets(_) => {
                ("GROUPING SETS after other keys", "write GROUP BY GROUPING SETS ((a, b), (a))")
            }
        };
        return Err(unsupported(what, instead));
    }
    let by = "a query's rows are ordered by ORDER BY, a table's by CLUSTER BY in CREATE TABLE";
    no(!cluster_by.is_empty(), "CLUSTER BY in a query", by)?;
    no(!distribute_by.is_empty(), "DISTRIBUTE BY", by)?;
    no(!sort_by.is_empty(), "SORT BY", by)?;
    for NamedWindowDefinition(_, _) in named_window {
        // Put in where they are named, or found not to be there.
    }
    no(
        value_table_mode.is_some(),
        "SELECT AS STRUCT and AS VALUE",
        "write SELECT struct(a, b) AS s",
    )?;
    match flavor {
        SelectFlavor::Standard | SelectFlavor::FromFirst | SelectFlavor::FromFirstNoSelect => {
            Ok(())
        }
    }
}

fn item(item: &SelectItem) -> Result<()> {
    match item {
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { expr: _, alias: _ } => Ok(()),
        SelectItem::ExprWithAliases { expr: _, aliases: _ } => Err(unsupported(
            "one expression with several names",
            "name each: f(x).a AS a, f(x).b AS b",
        )),
        SelectItem::QualifiedWildcard(_, options) | SelectItem::Wildcard(options) => {
            wildcard(options)
        }
    }
}

fn wildcard(options: &WildcardAdditionalOptions) -> Result<()> {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike: _,
        opt_exclude: _,
        opt_except: _,
        opt_replace: _,
        opt_rename,
        opt_alias,
    } = options;
    no(opt_rename.is_some(), "* RENAME", "write SELECT * EXCLUDE (a), a AS b")?;
    no(opt_alias.is_some(), "a name for *", "name the columns one by one")
}

fn order_clause(order: &OrderBy, is_plain: bool) -> Result<()> {
    let OrderBy { kind, interpolate } = order;
    no(interpolate.is_some(), "INTERPOLATE", "fill gaps by a join with generate_series(…)")?;
    match kind {
        OrderByKind::Expressions(keys) => keys.iter().try_for_each(order_key),
        // With the list of results before it, it has become numbers.
        OrderByKind::All(_) if is_plain => Ok(()),
        OrderByKind::All(_) => Err(unsupported(
            "ORDER BY ALL after *",
            "name the columns, or their places: ORDER BY 1, 2",
        )),
    }
}

pub(super) fn order_key(key: &OrderByExpr) -> Result<()> {
    let OrderByExpr { expr: _, options: _, with_fill } = key;
    no(with_fill.is_some(), "WITH FILL", "fill gaps by a join with generate_series(…)")
}

fn limit(clause: &LimitClause) -> Result<()> {
    match clause {
        LimitClause::LimitOffset { limit: _, offset: _, limit_by } => no(
            !limit_by.is_empty(),
            "LIMIT … BY",
            "write QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) <= n",
        ),
        LimitClause::OffsetCommaLimit { offset: _, limit: _ } => Ok(()),
    }
}
