//! What stands in FROM.

use datafusion::sql::sqlparser::ast::{
    FunctionArg, Join, JoinConstraint, JoinOperator, TableAlias, TableAliasColumnDef, TableFactor,
    TableFunctionArgs, TableSampleKind, TableWithJoins,
};
use thalweg_base::Result;
use thalweg_bind::Reads;

use super::{no, unsupported};

pub(super) fn with_joins(tables: &TableWithJoins) -> Result<()> {
    let TableWithJoins { relation, joins } = tables;
    nested(relation)?;
    for join in joins {
        let Join { relation, global, join_operator } = join;
        nested(relation)?;
        no(*global, "GLOBAL JOIN", "leave GLOBAL out")?;
        operator(join_operator)?;
    }
    Ok(())
}

/// Joins in parentheses are no query that is visited on its own.
fn nested(factor: &TableFactor) -> Result<()> {
    match factor {
        TableFactor::NestedJoin { table_with_joins, alias: _ } => with_joins(table_with_joins),
        _ => Ok(()),
    }
}

fn operator(operator: &JoinOperator) -> Result<()> {
    use JoinOperator as J;
    match operator {
        J::Join(on) | J::Inner(on) => constraint(on, "JOIN"),
        J::Left(on) | J::LeftOuter(on) => constraint(on, "LEFT JOIN"),
        J::Right(on) | J::RightOuter(on) => constraint(on, "RIGHT JOIN"),
        J::FullOuter(on) => constraint(on, "FULL JOIN"),
        J::LeftSemi(on) | J::RightSemi(on) => constraint(on, "SEMI JOIN"),
        J::LeftAnti(on) | J::RightAnti(on) => constraint(on, "ANTI JOIN"),
        // Written as LEFT SEMI and LEFT ANTI before.
        J::Semi(on) => constraint(on, "SEMI JOIN"),
        J::Anti(on) => constraint(on, "ANTI JOIN"),
        J::CrossJoin(JoinConstraint::None) => Ok(()),
        J::CrossJoin(_) => Err(unsupported("CROSS JOIN with a condition", "write JOIN … ON …")),
        J::CrossApply => Err(unsupported("CROSS APPLY", "write CROSS JOIN LATERAL (…) AS t")),
        J::OuterApply => {
            Err(unsupported("OUTER APPLY", "write LEFT JOIN LATERAL (…) AS t ON true"))
        }
        J::AsOf { match_condition: _, constraint: _ } => Err(unsupported(
            "ASOF JOIN",
            "write LEFT JOIN LATERAL (SELECT … WHERE … ORDER BY … DESC LIMIT 1) AS t ON true, or take \
             the last of each with QUALIFY row_number()",
        )),
        J::StraightJoin(_) => {
            Err(unsupported("STRAIGHT_JOIN", "write JOIN: the order is found by estimates"))
        }
        J::ArrayJoin | J::LeftArrayJoin | J::InnerArrayJoin => {
            Err(unsupported("ARRAY JOIN", "write CROSS JOIN UNNEST(…) AS t(x)"))
        }
    }
}

fn constraint(constraint: &JoinConstraint, what: &str) -> Result<()> {
    match constraint {
        JoinConstraint::On(_) | JoinConstraint::Using(_) | JoinConstraint::Natural => Ok(()),
        JoinConstraint::None => Err(unsupported(
            &format!("{what} without ON or USING"),
            "write the condition, or CROSS JOIN for every pair of rows",
        )),
    }
}

pub(super) fn factor(factor: &TableFactor) -> Result<()> {
    use TableFactor as F;
    let refuse = |what: &str, instead: &str| Err(unsupported(what, instead));
    match factor {
        F::Table {
            name: _,
            alias,
            args,
            with_hints,
            version: _, // As-of queries take it out before.
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            optional(alias.as_ref())?;
            if let Some(TableFunctionArgs { args, settings }) = args {
                no(settings.is_some(), "SETTINGS of a table function", "leave them out")?;
                arguments(factor, args)?;
            }
            no(
                !with_hints.is_empty(),
                "WITH (…) after a table or file",
                "give a file its options by CREATE EXTERNAL TABLE … OPTIONS (…); leave other hints out",
            )?;
            no(*with_ordinality, "WITH ORDINALITY of this function", "write row_number() OVER ()")?;
            no(
                !partitions.is_empty(),
                "PARTITION (…) after a table",
                "write a condition in WHERE",
            )?;
            no(json_path.is_some(), "a path into a table", "select the field: t.a.b")?;
            sampled(sample.as_ref())?;
            no(!index_hints.is_empty(), "an index hint", "leave it out: there are no indexes")
        }
        F::Derived { lateral: _, subquery: _, alias, sample } => {
            optional(alias.as_ref())?;
            sampled(sample.as_ref())
        }
        F::TableFunction { expr: _, alias: _ } => refuse("TABLE (…)", "write FROM f(…)"),
        F::Function { lateral: _, name: _, args, with_ordinality, alias } => {
            optional(alias.as_ref())?;
            arguments(factor, args)?;
            no(*with_ordinality, "WITH ORDINALITY of this function", "write row_number() OVER ()")
        }
        F::UNNEST { alias, array_exprs: _, with_offset, with_offset_alias, with_ordinality } => {
            optional(alias.as_ref())?;
            no(
                *with_offset || with_offset_alias.is_some(),
                "UNNEST … WITH OFFSET",
                "write WITH ORDINALITY, which counts from one",
            )?;
            no(*with_ordinality, "WITH ORDINALITY at this place", "write row_number() OVER ()")
        }
        F::NestedJoin { table_with_joins: _, alias } => optional(alias.as_ref()),
        F::JsonTable { json_expr: _, json_path: _, columns: _, alias: _ } => {
            refuse("JSON_TABLE", "query the JSON file: FROM 'file.json'")
        }
        F::OpenJsonTable { json_expr: _, json_path: _, columns: _, alias: _ } => {
            refuse("OPENJSON", "query the JSON file: FROM 'file.json'")
        }
        F::Pivot {
            table: _,
            aggregate_functions: _,
            value_column: _,
            value_source: _,
            default_on_null: _,
            alias: _,
        } => refuse("PIVOT", "write sum(x) FILTER (WHERE k = 'a') AS a, … with GROUP BY"),
        F::Unpivot { table: _, value: _, name: _, columns: _, null_inclusion: _, alias: _ } => {
            refuse("UNPIVOT", "write SELECT 'a' AS name, a AS value … UNION ALL SELECT 'b', b …")
        }
        F::MatchRecognize {
            table: _,
            partition_by: _,
            order_by: _,
            measures: _,
            rows_per_match: _,
            after_match_skip: _,
            pattern: _,
            symbols: _,
            alias: _,
        } => refuse("MATCH_RECOGNIZE", "compare rows with lag(…) and lead(…) OVER (…)"),
        F::XmlTable { namespaces: _, row_expression: _, passing: _, columns: _, alias: _ } => {
            refuse("XMLTABLE", "convert the file to JSON or CSV")
        }
        F::SemanticView {
            name: _,
            dimensions: _,
            metrics: _,
            facts: _,
            where_clause: _,
            alias: _,
        } => refuse("SEMANTIC_VIEW", "write GROUP BY over the tables"),
    }
}

fn optional(alias: Option<&TableAlias>) -> Result<()> {
    alias.map_or(Ok(()), self::alias)
}

pub(super) fn alias(alias: &TableAlias) -> Result<()> {
    let TableAlias { explicit: _, name: _, columns, at } = alias;
    no(at.is_some(), "AT after an alias", "write WITH ORDINALITY, which counts from one")?;
    for TableAliasColumnDef { name: _, data_type } in columns {
        no(
            data_type.is_some(),
            "an alias that gives types",
            "cast the columns in the list of results",
        )?;
    }
    Ok(())
}

/// Functions that read files have options by name, which are looked at when the files are.
fn arguments(factor: &TableFactor, args: &[FunctionArg]) -> Result<()> {
    match Reads::of(factor) {
        Some(_) => Ok(()),
        None => args.iter().try_for_each(argument),
    }
}

fn argument(argument: &FunctionArg) -> Result<()> {
    match argument {
        FunctionArg::Unnamed(_) => Ok(()),
        FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => Err(unsupported(
            "a named argument of a table function",
            "give the arguments in their order",
        )),
    }
}

fn sampled(sample: Option<&TableSampleKind>) -> Result<()> {
    match sample {
        None => Ok(()),
        Some(TableSampleKind::BeforeTableAlias(_) | TableSampleKind::AfterTableAlias(_)) => {
            Err(unsupported(
                "TABLESAMPLE or SAMPLE",
                "write WHERE random() < 0.1 for a tenth of the rows",
            ))
        }
    }
}
