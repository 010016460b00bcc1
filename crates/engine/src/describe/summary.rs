//! `SUMMARIZE t`: one row for each column, with what its values are like. A query over the rows.

use arrow::datatypes::{DataType, Fields};
use datafusion::common::{Result, internal_err};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Query, SetExpr, TableFactor};

use crate::parse;
use crate::sql_type::sql_type_of;
use thalweg_errors::into_datafusion;

/// The query that gives them. `fields` are the columns of `query`, and `titles` what they are called.
pub(crate) fn summary(
    state: &SessionState,
    query: &Query,
    fields: &Fields,
    titles: &[String],
) -> Result<Statement> {
    let text = text(fields, titles);
    let mut statement = parse::statement(state, &text).map_err(into_datafusion)?;
    if let Statement::Statement(inner) = &mut statement
        && let ast::Statement::Query(outer) = inner.as_mut()
        && let SetExpr::Select(select) = outer.body.as_mut()
        && let [from] = &mut select.from[..]
        && let TableFactor::Derived { subquery, .. } = &mut from.relation
    {
        **subquery = query.clone();
        return Ok(statement);
    }
    internal_err!("a summary is no query")
}

/// The query, over any rows.
fn text(fields: &Fields, titles: &[String]) -> String {
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let column = |at: usize| format!("c{}", at + 1);
    let each = |name: &str, of: &dyn Fn(usize, &DataType) -> String| {
        let values = fields.iter().enumerate().map(|(at, field)| of(at, field.data_type()));
        format!("unnest([{}]) AS {name}", values.collect::<Vec<_>>().join(", "))
    };
    let numbers = |name: &str, of: &dyn Fn(String) -> String| {
        each(name, &|at, data_type| match data_type.is_numeric() {
            true => format!("CAST({} AS DOUBLE)", of(column(at))),
            false => "CAST(NULL AS DOUBLE)".into(),
        })
    };
    let extremes = |name: &str| {
        each(name, &|at, data_type| match data_type.is_nested() {
            true => "CAST(NULL AS VARCHAR)".into(),
            false => format!("CAST({name}({}) AS VARCHAR)", column(at)),
        })
    };
    let percentile = |name: &str, part: &str| {
        numbers(name, &|c| {
            format!("approx_percentile_cont({part}) WITHIN GROUP (ORDER BY CAST({c} AS DOUBLE))")
        })
    };
    let items = [
        each("column_name", &|at, _| literal(&titles[at])),
        each("column_type", &|at, _| literal(&sql_type_of(&fields[at]))),
        extremes("min"),
        extremes("max"),
        each("approx_unique", &|at, _| format!("approx_distinct(CAST({} AS VARCHAR))", column(at))),
        numbers("avg", &|c| format!("avg({c})")),
        numbers("std", &|c| format!("stddev({c})")),
        percentile("q25", "0.25"),
        percentile("q50", "0.5"),
        percentile("q75", "0.75"),
        each("count", &|_, _| "count(*)".into()),
        each("null_percentage", &|at, _| {
            let c = column(at);
            format!(
                "CAST(CASE WHEN count(*) > 0 THEN 100.0 * (count(*) - count({c})) / count(*) END \
                 AS DECIMAL(5,2))"
            )
        }),
    ];
    let names: Vec<String> = (0..fields.len()).map(column).collect();
    format!("SELECT {} FROM (SELECT 1) AS t({})", items.join(", "), names.join(", "))
}
