//! Servers of PostgreSQL.
//!
//! Lookups share one connection; each scan has its own, over which rows come one after the other, as fast
//! as they are taken. All transactions are read only, so that no view of somebody else's changes anything.

mod connection;
mod decode;

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use futures::TryStreamExt;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Row, RowStream, Statement};

use self::connection::{Address, Open};
use self::decode::{Raw, decode, read_of};
use crate::cells::{Cells, Read, Rows};
use crate::{
    Comparison, Condition, Constant, Foreign, Stop, Table, Test, Wanted, meant, quoted_name,
};

/// Where a table is looked for whose schema is not named.
const PUBLIC: &str = "public";

pub struct Postgres {
    address: Address,
    /// For lookups, as long as it lasts.
    open: Mutex<Option<Open>>,
}

impl Postgres {
    /// Connects with a connection string of PostgreSQL: `host=… dbname=…` or `postgresql://…`.
    ///
    /// # Errors
    /// The text is none, or the server cannot be reached or refuses.
    pub fn open(text: &str, stop: &Stop) -> Result<Self> {
        let address = Address::parse(text)?;
        let postgres = Postgres { address, open: Mutex::default() };
        postgres.ask("SELECT 1::text", &[], stop)?;
        Ok(postgres)
    }

    /// Whether a text is a URL of such a server.
    pub fn is_url(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// The name of the database in a connection string.
    pub fn database(text: &str) -> Option<String> {
        Address::parse(text).ok()?.config.get_dbname().map(str::to_owned)
    }

    /// Whether somebody who has no rights of this process may connect so: with a password that is given,
    /// over the network. A socket of this machine may let in whoever runs the process.
    pub fn has_own_password(text: &str) -> Result<bool> {
        let config = Address::parse(text)?.config;
        let over_network = config
            .get_hosts()
            .iter()
            .all(|host| matches!(host, tokio_postgres::config::Host::Tcp(_)));
        Ok(over_network && config.get_password().is_some_and(|password| !password.is_empty()))
    }

    /// Does something over the connection of lookups, which is opened anew where it has been lost.
    fn with_open<T>(&self, stop: &Stop, f: impl Fn(&Open) -> Result<T>) -> Result<T> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.as_ref()
            && !known.is_lost()
        {
            let result = f(known);
            if !known.is_lost() {
                return result;
            }
        }
        let known = open.insert(Open::new(&self.address, stop)?);
        f(known)
    }

    /// The texts that a query gives.
    fn ask(&self, sql: &str, texts: &[&str], stop: &Stop) -> Result<Vec<Vec<Option<String>>>> {
        self.with_open(stop, |open| {
            let texts: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
                texts.iter().map(|text| text as _).collect();
            let rows = open.run(stop, open.client.query(sql, &texts))?;
            let rows = rows.map_err(|e| self.address.error(e))?;
            let texts = rows.iter().map(|row| {
                let text = |at| row.try_get::<_, Option<String>>(at);
                (0..row.len()).map(text).collect::<std::result::Result<Vec<_>, _>>()
            });
            texts.collect::<std::result::Result<_, _>>().map_err(|e| self.address.error(e))
        })
    }

    fn wrong(&self, table: &Table, column: &str, row: u64, why: &str) -> Error {
        Error::user(format!(
            "table {}, column {}, row {row}: {why}",
            quoted(&format!("{}.{}", table.schema, table.name)),
            quoted(column)
        ))
        .code("22003")
        .hint("leave the column out, or make a view on the server that casts it")
    }
}

/// Text and its like are compared byte by byte here; how the server does it is up to its collations.
fn literal(constant: &Constant) -> String {
    match constant {
        Constant::Boolean(value) => value.to_string(),
        // In brackets: a sign binds less than `::`.
        Constant::Integer(value) => format!("({value})"),
        Constant::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Constant::Date(days) => format!("(date '1970-01-01' + ({days}))"),
    }
}

fn condition(table: &Table, condition: &Condition) -> String {
    let column = quoted_name(table.columns.field(condition.column).name());
    // Equal bytes are equal in every collation.
    let collation = match table.reads[condition.column] {
        Read::Text => " COLLATE \"C\"",
        _ => "",
    };
    let compared =
        |op: &str, constant: &Constant| format!("{column} {op} {}{collation}", literal(constant));
    match &condition.test {
        Test::Is(Comparison::Equal, constant) => format!("{column} = {}", literal(constant)),
        Test::Is(Comparison::Less, constant) => compared("<", constant),
        Test::Is(Comparison::LessOrEqual, constant) => compared("<=", constant),
        Test::Is(Comparison::Greater, constant) => compared(">", constant),
        Test::Is(Comparison::GreaterOrEqual, constant) => compared(">=", constant),
        Test::OneOf(constants) => {
            let constants: Vec<String> = constants.iter().map(literal).collect();
            format!("{column} IN ({})", constants.join(", "))
        }
        Test::Null => format!("{column} IS NULL"),
        Test::NotNull => format!("{column} IS NOT NULL"),
    }
}

fn select(table: &Table, wanted: &Wanted) -> String {
    let columns = wanted.columns.iter().map(|&at| {
        let column = quoted_name(table.columns.field(at).name());
        match &table.reads[at] {
            Read::AsText => format!("{column}::text"),
            Read::List(item) if **item == Read::AsText => format!("{column}::text[]"),
            _ => column,
        }
    });
    let columns: Vec<String> = columns.collect();
    let mut sql = format!(
        "SELECT {} FROM {}.{}",
        columns.join(", "),
        quoted_name(&table.schema),
        quoted_name(&table.name)
    );
    let conditions: Vec<String> = wanted.conditions.iter().map(|c| condition(table, c)).collect();
    if !conditions.is_empty() {
        sql += &format!(" WHERE {}", conditions.join(" AND "));
    }
    if let Some(limit) = wanted.limit {
        sql += &format!(" LIMIT {limit}");
    }
    sql
}

impl Foreign for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn location(&self) -> String {
        self.address.shown.clone()
    }

    fn default_schema(&self) -> &'static str {
        PUBLIC
    }

    fn tables(&self, stop: &Stop) -> Result<Vec<(String, String)>> {
        let sql = "SELECT n.nspname::text, c.relname::text \
                   FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                   WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_' \
                   AND n.nspname <> 'information_schema' ORDER BY 1, 2";
        let rows = self.ask(sql, &[], stop)?;
        Ok(rows
            .into_iter()
            .filter_map(|row| match <[Option<String>; 2]>::try_from(row) {
                Ok([Some(schema), Some(name)]) => Some((schema, name)),
                _ => None,
            })
            .collect())
    }

    fn table(&self, schema: &str, name: &str, stop: &Stop) -> Result<Option<Table>> {
        let sql = "SELECT n.nspname::text, c.relname::text, c.reltuples::bigint::text \
                   FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                   WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') \
                   AND lower(n.nspname) = lower($1::text) AND lower(c.relname) = lower($2::text)";
        let found = self.ask(sql, &[schema, name], stop)?;
        let text = |row: &Vec<Option<String>>, at: usize| row[at].clone().unwrap_or_default();
        let schemas: Vec<String> = found.iter().map(|row| text(row, 0)).collect();
        let mut unique = schemas.clone();
        unique.sort_unstable();
        unique.dedup();
        let Some(schema) = meant(schema, unique.iter().map(String::as_str)) else {
            return Ok(None);
        };
        let found: Vec<&Vec<Option<String>>> = found
            .iter()
            .zip(&schemas)
            .filter(|(_, own)| *own == schema)
            .map(|(row, _)| row)
            .collect();
        let names: Vec<String> = found.iter().map(|row| text(row, 1)).collect();
        let Some(name) = meant(name, names.iter().map(String::as_str)) else { return Ok(None) };
        let at = names.iter().position(|own| own == name).unwrap_or_default();
        // -1: nobody has counted them yet.
        let rows = text(found[at], 2).parse::<i64>().ok().and_then(|rows| u64::try_from(rows).ok());

        let all = format!("SELECT * FROM {}.{}", quoted_name(schema), quoted_name(name));
        let statement = self.with_open(stop, |open| {
            open.run(stop, open.client.prepare(&all))?.map_err(|e| self.address.error(e))
        })?;
        let mut reads = vec![];
        let mut fields = vec![];
        let mut why = vec![];
        for column in statement.columns() {
            let read = read_of(column.type_(), column.type_modifier());
            fields.push(Field::new(column.name(), read.data_type(), true));
            why.push(format!("declared {}", column.type_()));
            reads.push(read);
        }
        Ok(Some(Table {
            schema: schema.to_owned(),
            name: name.to_owned(),
            columns: Arc::new(Schema::new(fields)),
            why,
            rows,
            reads: reads.into(),
        }))
    }

    fn scan(
        &self,
        table: &Table,
        wanted: &Wanted,
        stop: &Stop,
        give: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<()> {
        let open = Open::new(&self.address, stop)?;
        let work = async {
            let sql = select(table, wanted);
            let statement = open.client.prepare(&sql).await.map_err(|e| self.address.error(e))?;
            self.check(table, wanted, &statement)?;
            let rows = open.client.query_raw(&statement, Vec::<&str>::new()).await;
            self.rows(table, wanted, rows.map_err(|e| self.address.error(e))?, give).await
        };
        let ended = open.run(stop, work);
        match ended {
            Ok(Ok(true)) => Ok(()),
            // The server works on until it notices, unless it is told.
            Ok(Ok(false)) => {
                open.cancel();
                Ok(())
            }
            Ok(Err(e)) => Err(e),
            Err(e) => {
                open.cancel();
                Err(e)
            }
        }
    }

    fn takes_conditions(&self, table: &Table, column: usize) -> bool {
        // Of the type `name` and of blank-padded text the server has ideas of its own: see `read_of`.
        matches!(
            table.reads[column],
            Read::Boolean | Read::SmallInt | Read::Int | Read::BigInt | Read::Date
        ) || table.reads[column] == Read::Text && !table.why[column].ends_with("bpchar")
    }
}

impl Postgres {
    /// Whether the server has read the columns as they were when the table was looked up.
    fn check(&self, table: &Table, wanted: &Wanted, statement: &Statement) -> Result<()> {
        for (&at, column) in wanted.columns.iter().zip(statement.columns()) {
            let now = read_of(column.type_(), column.type_modifier());
            let then = match &table.reads[at] {
                Read::AsText => &Read::Text,
                Read::List(item) if **item == Read::AsText => &Read::List(Box::new(Read::Text)),
                other => other,
            };
            // How many digits there are is said of columns, and not of what is cast.
            let same = now == *then || now.data_type() == then.data_type();
            if !same {
                return Err(Error::conflict(format!(
                    "column {} of table {} was changed after it was looked up",
                    quoted(table.columns.field(at).name()),
                    quoted(&format!("{}.{}", table.schema, table.name)),
                ))
                .hint("run the statement again"));
            }
        }
        Ok(())
    }

    /// Gives all rows; whether they were all taken.
    async fn rows(
        &self,
        table: &Table,
        wanted: &Wanted,
        rows: RowStream,
        give: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<bool> {
        let mut stream = std::pin::pin!(rows);
        let schema = table.columns.project(&wanted.columns);
        let schema = Arc::new(schema.map_err(|e| Error::internal(e.to_string()))?);
        let reads: Vec<&Read> = wanted.columns.iter().map(|&at| &table.reads[at]).collect();
        let mut rows = Rows::new(schema, reads.iter().copied());
        let mut number = 0;
        while let Some(row) = stream.try_next().await.map_err(|e| self.address.error(e))? {
            number += 1;
            let mut bytes = 0;
            for (at, read) in reads.iter().enumerate() {
                bytes += push(&row, at, read, &mut rows.columns[at]).map_err(|why| {
                    let column = table.columns.field(wanted.columns[at]).name();
                    self.wrong(table, column, number, &why)
                })?;
            }
            if rows.end_row(bytes) && !give(rows.batch()?) {
                return Ok(false);
            }
        }
        if !rows.is_empty() {
            give(rows.batch()?);
        }
        Ok(true)
    }
}

/// One value of a row; how many bytes it had.
fn push(row: &Row, at: usize, read: &Read, into: &mut Cells) -> std::result::Result<usize, String> {
    let value: Option<Raw<'_>> = row.try_get(at).map_err(|e| e.to_string())?;
    decode(value.map(|raw| raw.0), read, into)?;
    Ok(value.map_or(1, |raw| raw.0.len()))
}

/// The code of an error of the server's where ours is the same; others are of another system.
fn code_of(state: &SqlState) -> Option<&'static str> {
    [
        (&SqlState::INSUFFICIENT_PRIVILEGE, "42501"),
        (&SqlState::UNDEFINED_TABLE, "42P01"),
        (&SqlState::UNDEFINED_COLUMN, "42703"),
        (&SqlState::INVALID_PASSWORD, "28P01"),
        (&SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "28000"),
        (&SqlState::INVALID_CATALOG_NAME, "3D000"),
    ]
    .into_iter()
    .find_map(|(known, code)| (known == state).then_some(code))
}

#[cfg(test)]
mod tests;
