//! `DESCRIBE t` and `DESCRIBE SELECT …`: the columns, by the names that their types have in SQL; and where
//! they come from files, what decided that.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{FieldRef, Fields};
use datafusion::common::{Column, Result};
use datafusion::datasource::{MemTable, TableProvider, provider_as_source, source_as_provider};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use crate::attach::ForeignTable;
use crate::files::{TextTable, TypedTable};
use crate::sql_type::sql_type_of;
use thalweg_functions::canonical_float::CANONICAL_FLOAT;

/// The rows of the answer, one for each column of `plan`; `fields` are these with their types.
pub(crate) fn described(
    plan: &LogicalPlan,
    fields: &Fields,
    titles: &[String],
) -> Result<LogicalPlan> {
    let strings = |texts: Vec<Option<String>>| -> ArrayRef {
        Arc::new(texts.into_iter().collect::<StringArray>())
    };
    let nullable = |f: &FieldRef| Some(if f.is_nullable() { "YES" } else { "NO" }.to_owned());
    let mut columns = vec![
        ("column_name", strings(titles.iter().cloned().map(Some).collect())),
        ("data_type", strings(fields.iter().map(|f| Some(sql_type_of(f))).collect())),
        ("is_nullable", strings(fields.iter().map(nullable).collect())),
    ];
    let notes: Vec<Option<Note>> =
        (0..fields.len()).map(|column| note(plan, column)).collect::<Result<_>>()?;
    if notes.iter().any(Option::is_some) {
        let why = notes.iter().map(|note| note.as_ref().map(|note| note.why.clone()));
        columns.push(("why", strings(why.collect())));
        let format = notes.into_iter().map(|note| note.map(|note| note.format));
        columns.push(("format", strings(format.collect())));
    }
    let columns = columns.into_iter().map(|(name, values)| (name, values, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
    LogicalPlanBuilder::scan("columns", provider_as_source(Arc::new(table)), None)?.build()
}

/// What is known of a column of a file.
struct Note {
    why: String,
    /// How the file is written.
    format: String,
}

fn of_provider(table: &dyn TableProvider, column: usize) -> Option<Note> {
    let (mut why, format) = if let Some(table) = table.downcast_ref::<TextTable>() {
        table.notes()
    } else if let Some(table) = table.downcast_ref::<ForeignTable>() {
        table.notes()
    } else {
        table.downcast_ref::<TypedTable>()?.notes()
    };
    (column < why.len()).then(|| Note { why: why.swap_remove(column), format })
}

/// Of a column that comes from a file as it is.
fn note(plan: &LogicalPlan, column: usize) -> Result<Option<Note>> {
    Ok(match plan {
        LogicalPlan::TableScan(scan) => {
            let column = scan.projection.as_ref().map_or(column, |columns| columns[column]);
            let table = source_as_provider(&scan.source)?;
            match table.get_logical_plan() {
                Some(inner) => note(&inner, column)?,
                None => of_provider(table.as_ref(), column),
            }
        }
        LogicalPlan::SubqueryAlias(alias) => note(&alias.input, column)?,
        LogicalPlan::Filter(filter) => note(&filter.input, column)?,
        LogicalPlan::Sort(sort) => note(&sort.input, column)?,
        LogicalPlan::Limit(limit) => note(&limit.input, column)?,
        LogicalPlan::Projection(projection) => match origin(&projection.expr[column]) {
            Some(from) => {
                let schema = projection.input.schema();
                note(&projection.input, schema.index_of_column(from)?)?
            }
            None => None,
        },
        _ => None,
    })
}

/// The column that an expression is, but for its name and for how equal floats are written.
fn origin(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => origin(&alias.expr),
        Expr::ScalarFunction(call) if call.name() == CANONICAL_FLOAT.name() => {
            call.args.first().and_then(origin)
        }
        _ => None,
    }
}
