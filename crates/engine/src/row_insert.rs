//! `INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4), …`: statements that clients send row by row, or many
//! rows at a time.
//!
//! To plan them is much more work than to insert a row. As nothing in them is computed, their values go
//! into the columns as they are: no planner is asked. Only what needs no more than a lossless change of
//! type is done so; everything else, and every error, is left to the statement as it is written.

use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr, Insert, ObjectName, SetExpr, Statement, TableObject,
    Value as Literal,
};
use datafusion::sql::sqlparser::parser::Parser;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Kind, Result};
use thalweg_storage::{Layout, Summary, Table, TextLength, Transaction};

use thalweg_errors::from_arrow;

use crate::access::{Object, Privilege};
use crate::dialect::Thalweg;
use crate::dml::target::{self, Target};
use crate::parameters::Value;
use crate::session::Inner;
use crate::write::{self, Writers};
use crate::{ddl, script, statement};

/// A statement that inserts its parameters, in their order.
#[derive(Debug)]
pub struct RowInsert {
    table: ObjectName,
    /// Empty: the first ones of the table.
    columns: Vec<ObjectName>,
    /// What each value of a row is cast to, if it is.
    casts: Vec<Option<SqlType>>,
    /// The statement up to the end of its first row.
    head: String,
    rows: usize,
}

impl RowInsert {
    /// `None`: the statement is another, or has more in it.
    pub fn parse(sql: &str) -> Option<RowInsert> {
        if !script::words(sql).next().is_some_and(|word| word.eq_ignore_ascii_case("insert")) {
            return None;
        }
        let row = script::first_row(sql)?;
        let head = &sql[..row.end];
        let mut statements = Parser::parse_sql(&Thalweg, head).ok()?;
        let (Some(Statement::Insert(insert)), true) = (statements.pop(), statements.is_empty())
        else {
            return None;
        };
        let (table, columns, casts) = plain(insert)?;
        let rows = 1 + more_rows(&sql[row.clone()], casts.len(), &sql[row.end..])?;
        Some(RowInsert { table, columns, casts, head: head.into(), rows })
    }

    /// The statement with its first row alone.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Parameters of one row.
    pub fn width(&self) -> usize {
        self.casts.len()
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// `None`: nothing has been done.
    pub(crate) async fn run(&self, session: &Inner, values: Vec<Value>) -> Result<Option<u64>> {
        let started = Instant::now();
        let state = session.context.state();
        let (snapshot, viewer) = match statement::begin_unsettled(session, &state).await {
            Ok(begun) => begun,
            // In a transaction that has failed, for one.
            Err(e) => return undone(e),
        };
        let target = (|| {
            session.transactions.check_writable()?;
            let factor = target::named(self.table.clone(), None);
            let target = Target::new(&snapshot, &factor, "INSERT")?;
            if !viewer.is_superuser() {
                viewer.check(Privilege::Usage, &Object::Schema(target.schema.clone()))?;
                let table = Object::relation(&target.schema, &target.table.name);
                viewer.check(Privilege::Insert, &table)?;
            }
            Ok(target)
        })();
        let target = match target {
            Ok(target) => target,
            Err(e) => return undone(e),
        };
        let zone = state.config_options().execution.time_zone.as_deref();
        let rows = match self.columns(&target, values, zone) {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(None),
            Err(e) => return undone(e),
        };
        let count = rows.num_rows() as u64;
        let summary = Summary {
            operation: "INSERT".into(),
            table: format!("{}.{}", target.schema, target.table.name),
            rows_added: count,
            millis: started.elapsed().as_millis() as u64,
            ..Summary::default()
        };
        let transactions = &session.transactions;
        if transactions.may_hold() {
            transactions.hold(&target.table, vec![rows], summary).await?;
            return Ok(Some(count));
        }
        let engine = &session.engine;
        let layout = Layout::of(&target.table);
        let into = write::Target { database: engine.database().clone(), layout };
        let mut writers = Writers::new(into, engine.config().threads);
        for start in (0..rows.num_rows()).step_by(BATCH_ROWS) {
            let part = rows.slice(start, BATCH_ROWS.min(rows.num_rows() - start));
            writers.push(part).await?;
        }
        let (extents, _) = writers.finish().await?;
        let table = target.table.id;
        let change = move |transaction: &mut Transaction| {
            transaction.append(table, extents)?;
            transaction.describe(summary);
            Ok(())
        };
        match transactions.write(change).await {
            Ok(()) => Ok(Some(count)),
            // A statement of its own is tried again.
            Err(e) if e.kind() == Kind::Conflict => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The rows as the table has them. `None`: some value would have to be more than put into its column.
    fn columns(
        &self,
        target: &Target,
        values: Vec<Value>,
        zone: Option<&str>,
    ) -> Result<Option<RecordBatch>> {
        let table = &target.table;
        let fields = table.arrow_schema.fields();
        let width = self.width();
        if width == 0
            || width > fields.len()
            || values.is_empty()
            || !values.len().is_multiple_of(width)
        {
            return Ok(None);
        }
        let places = match self.columns.is_empty() {
            true => (0..width).collect(),
            false => {
                let places = self.columns.iter().map(|column| target.index(column));
                places.collect::<Result<Vec<usize>>>()?
            }
        };
        if places.len() != width {
            return Ok(None);
        }
        let mut columns: Vec<Option<ArrayRef>> = vec![None; fields.len()];
        for (at, (place, cast)) in places.iter().zip(&self.casts).enumerate() {
            let field = &fields[*place];
            let known = field.metadata().is_empty() || TextLength::of(field).is_some();
            if columns[*place].is_some() || !known {
                return Ok(None);
            }
            let parts: Vec<&ArrayRef> =
                values.iter().skip(at).step_by(width).map(Value::array).collect();
            let Some(column) = column(&parts, cast.as_ref(), field, zone)? else {
                return Ok(None);
            };
            columns[*place] = Some(column);
        }
        let rows = values.len() / width;
        let mut whole = vec![];
        for (at, column) in columns.into_iter().enumerate() {
            whole.push(match column {
                Some(column) => column,
                // What else it is may have to be computed for each row.
                None if has_default(table, at) => return Ok(None),
                None => new_null_array(fields[at].data_type(), rows),
            });
        }
        ddl::conform(&whole, &table.arrow_schema).map(Some)
    }
}

/// An error that the statement as it is written is to have; being stopped is the same for both.
fn undone(e: Error) -> Result<Option<u64>> {
    if e.kind() == Kind::Cancelled { Err(e) } else { Ok(None) }
}

fn has_default(table: &Table, column: usize) -> bool {
    table.columns[column].default.is_some()
}

/// Values of one parameter, one array of one element each, as a column of a table.
fn column(
    parts: &[&ArrayRef],
    cast: Option<&SqlType>,
    field: &Field,
    zone: Option<&str>,
) -> Result<Option<ArrayRef>> {
    let to = field.data_type();
    let via = match cast {
        Some(cast) if cast.to_string().contains(['(', '[', '<']) => return Ok(None),
        Some(cast) => match thalweg_bind::sql_type(cast, zone) {
            Ok(via) => Some(via),
            Err(_) => return Ok(None),
        },
        None => None,
    };
    let fits = |array: &ArrayRef| {
        let from = array.data_type();
        let is_null = array.null_count() == array.len();
        is_null && !from.is_nested()
            || !has_zero_byte(array)
                && via
                    .as_ref()
                    .is_none_or(|via| lossless(from, via) && (via == to || lossless(via, to)))
                && lossless(from, to)
    };
    if !parts.iter().all(|array| fits(array)) {
        return Ok(None);
    }
    let is_same = |array: &&ArrayRef| array.data_type() == parts[0].data_type();
    let column = if parts.iter().all(is_same) {
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        concat(&parts).map_err(|e| from_arrow(&e))?
    } else {
        // Numerics come with as many digits as each of them has.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let cast = |part: &&ArrayRef| {
            cast_with_options(part, to, &options)
                .map_err(|e| from_arrow(&e).context(format!("column {}", quoted(field.name()))))
        };
        let parts = parts.iter().map(cast).collect::<Result<Vec<_>>>()?;
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        concat(&parts).map_err(|e| from_arrow(&e))?
    };
    if column.null_count() == column.len() {
        return Ok(Some(new_null_array(to, column.len())));
    }
    Ok(Some(column))
}

/// Whether each value of the one type that is one of the other stays the same, whichever way it takes;
/// those that are none are errors.
fn lossless(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    match (from, to) {
        _ if from.is_nested() || to.is_nested() => false,
        _ if from == to => true,
        (from, to) if from.is_string() && to.is_string() => true,
        (T::Int8 | T::Int16 | T::Int32 | T::Int64, T::Int16 | T::Int32 | T::Int64) => {
            from.primitive_width() <= to.primitive_width()
        }
        (T::Int8 | T::Int16 | T::Int32 | T::Float32, T::Float64) => true,
        (T::Int8 | T::Int16 | T::Int32 | T::Int64, T::Decimal128(..)) => true,
        (T::Decimal128(_, from), T::Decimal128(_, to)) => from <= to,
        (T::Timestamp(TimeUnit::Microsecond, from), T::Timestamp(TimeUnit::Microsecond, to)) => {
            from.is_some() == to.is_some()
        }
        (from, to) => is_bytes(from) && is_bytes(to),
    }
}

/// Whether it is a text that no statement can have in it.
fn has_zero_byte(array: &ArrayRef) -> bool {
    let has = |text: Option<&str>| text.is_some_and(|text| text.contains('\0'));
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().any(has),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().any(has),
        DataType::Utf8View => array.as_string_view().iter().any(has),
        _ => false,
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Table, columns and casts of an INSERT of one row of parameters, if that is all that it is.
fn plain(insert: Insert) -> Option<(ObjectName, Vec<ObjectName>, Vec<Option<SqlType>>)> {
    let TableObject::TableName(table) = insert.table else { return None };
    let is_plain = insert.or.is_none()
        && insert.table_alias.is_none()
        && !insert.overwrite
        && !insert.ignore
        && !insert.replace_into
        && insert.assignments.is_empty()
        && insert.partitioned.is_none()
        && insert.after_columns.is_empty()
        && insert.on.is_none()
        && insert.returning.is_none()
        && insert.settings.is_none()
        && insert.format_clause.is_none();
    let source = insert.source.filter(|source| source.with.is_none())?;
    let SetExpr::Values(values) = *source.body else { return None };
    let [row] = &values.rows[..] else { return None };
    if !is_plain || values.explicit_row {
        return None;
    }
    let mut casts = vec![];
    for (at, expr) in row.content.iter().enumerate() {
        let (expr, cast) = match expr {
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                format: None,
                array: false,
            } => (expr.as_ref(), Some(data_type.clone())),
            expr => (expr, None),
        };
        let Expr::Value(value) = expr else { return None };
        let Literal::Placeholder(name) = &value.value else { return None };
        if *name != format!("${}", at + 1) {
            return None;
        }
        casts.push(cast);
    }
    Some((table, insert.columns, casts))
}

/// How many rows follow the first, each as it is but for the numbers of its parameters, which go on.
/// `None`: something else follows.
fn more_rows(first: &str, width: usize, rest: &str) -> Option<usize> {
    let places = script::placeholders(first);
    if places.len() != width {
        return None;
    }
    // What stands around the parameters.
    let mut pieces = vec![];
    let mut from = 0;
    for placeholder in &places {
        pieces.push(&first[from..placeholder.place.start]);
        from = placeholder.place.end;
    }
    let last = &first[from..];
    let (mut rest, mut rows) = (rest.trim_start(), 0);
    while !rest.is_empty() {
        rest = rest.strip_prefix(',')?.trim_start();
        rows += 1;
        for (at, piece) in pieces.iter().enumerate() {
            rest = rest.strip_prefix(piece)?.strip_prefix('$')?;
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if rest[..digits].parse() != Ok(rows * width + at + 1) {
                return None;
            }
            rest = &rest[digits..];
        }
        rest = rest.strip_prefix(last)?.trim_start();
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_parameters_alone_are_told_from_others() {
        let check = |sql: &str, expected: Option<(usize, usize)>| {
            let found = RowInsert::parse(sql).map(|insert| (insert.width(), insert.rows()));
            assert_eq!(found, expected, "{sql}");
        };
        check("INSERT INTO t VALUES ($1)", Some((1, 1)));
        check("insert into s.t (a, \"B\") values ($1, $2::TEXT)", Some((2, 1)));
        check("INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4) ,\n($5, $6) ", Some((2, 3)));
        check("INSERT INTO t (a) VALUES ($1::INT), ($2::INT)", Some((1, 2)));
        for other in [
            "SELECT 1",
            "INSERT INTO t VALUES ($2)",
            "INSERT INTO t VALUES ($1, 1)",
            "INSERT INTO t VALUES ($1 + 1)",
            "INSERT INTO t VALUES ($1), ($3)",
            "INSERT INTO t VALUES ($1), ($1)",
            "INSERT INTO t VALUES ($1), ($2::INT)",
            "INSERT INTO t VALUES ($1), ($2, $3)",
            "INSERT INTO t VALUES ($1) RETURNING a",
            "INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING",
            "INSERT INTO t VALUES ($1);",
            "INSERT INTO t SELECT $1",
            "INSERT INTO t DEFAULT VALUES",
            "INSERT INTO t VALUES (",
            "INSERT INTO t VALUES ($1))",
            "WITH x AS (VALUES (1)) INSERT INTO t VALUES ($1)",
        ] {
            check(other, None);
        }
    }
}
