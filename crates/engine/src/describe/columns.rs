//! `DESCRIBE t` and `DESCRIBE SELECT …`: the columns, by the names that their types have in SQL; and where
//! they come from files, what decided that.

use std::collections::HashMap;
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
    let notes = notes(plan, &(0..fields.len()).map(Some).collect::<Vec<_>>())?;
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

/// Of columns of a table, if it is one of files.
fn of_provider(table: &dyn TableProvider, columns: &[Option<usize>]) -> Vec<Option<Note>> {
    let (why, format) = if let Some(table) = table.downcast_ref::<TextTable>() {
        table.notes()
    } else if let Some(table) = table.downcast_ref::<ForeignTable>() {
        table.notes()
    } else if let Some(table) = table.downcast_ref::<TypedTable>() {
        table.notes()
    } else {
        (vec![], String::new())
    };
    let note = |column: &Option<usize>| {
        let why = why.get((*column)?)?.clone();
        Some(Note { why, format: format.clone() })
    };
    columns.iter().map(note).collect()
}

/// Of columns of a plan that come from a file as they are; `None` is a column that does not.
fn notes(plan: &LogicalPlan, columns: &[Option<usize>]) -> Result<Vec<Option<Note>>> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let place = |column: usize| match &scan.projection {
                Some(places) => places[column],
                None => column,
            };
            let columns: Vec<Option<usize>> = columns.iter().map(|c| c.map(place)).collect();
            let table = source_as_provider(&scan.source)?;
            match table.get_logical_plan() {
                Some(inner) => notes(&inner, &columns),
                None => Ok(of_provider(table.as_ref(), &columns)),
            }
        }
        LogicalPlan::SubqueryAlias(alias) => notes(&alias.input, columns),
        LogicalPlan::Filter(filter) => notes(&filter.input, columns),
        LogicalPlan::Sort(sort) => notes(&sort.input, columns),
        LogicalPlan::Limit(limit) => notes(&limit.input, columns),
        LogicalPlan::Projection(projection) => {
            let schema = projection.input.schema();
            let named = schema.iter().enumerate();
            let places: HashMap<_, usize> =
                named.map(|(place, (table, field))| ((table, field.name()), place)).collect();
            let below = |column: &Option<usize>| {
                let from = origin(&projection.expr[(*column)?])?;
                let place = places.get(&(from.relation.as_ref(), &from.name)).copied();
                place.or_else(|| schema.maybe_index_of_column(from))
            };
            notes(&projection.input, &columns.iter().map(below).collect::<Vec<_>>())
        }
        _ => Ok(columns.iter().map(|_| None).collect()),
    }
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
