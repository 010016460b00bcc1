//! Files of SQLite.
//!
//! SQLite keeps a type with each value, and takes what a column is declared as for a wish. Here the
//! declaration is meant: a value that it does not allow is an error. Where nothing is declared, or a word
//! that says nothing, the values of all rows decide.

mod values;

use std::ffi::c_int;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use crate::cells::{Read, Rows};
use crate::{Foreign, Stop, Table, Wanted, meant, quoted_name, stopped};

/// The one schema that a file has.
const MAIN: &str = "main";
/// How long somebody else may hold the file locked.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Steps of SQLite's machine between two looks at whether to go on.
const STEPS: c_int = 10_000;

pub struct Sqlite {
    path: PathBuf,
    /// Every column is read as text.
    all_text: bool,
}

/// What SQLite calls an object, and what it has been found to be.
struct Column {
    name: String,
    declared: String,
}

impl Sqlite {
    /// # Errors
    /// There is no such file, or it is none of SQLite's.
    pub fn open(path: &Path, all_text: bool) -> Result<Self> {
        let named = quoted(&path.to_string_lossy());
        let is_ours =
            Self::is_database(path).map_err(|e| Error::io(format!("cannot open {named}"), e))?;
        if !is_ours {
            return Err(Error::user(format!("file {named} is no SQLite database"))
                .hint("its first bytes are not those of one; an encrypted one cannot be read"));
        }
        let sqlite = Sqlite { path: path.to_owned(), all_text };
        // So that what is wrong with it shows now.
        sqlite.tables(&Stop::default())?;
        Ok(sqlite)
    }

    /// Whether the file begins like one of SQLite's. One that is empty is a database without tables, for
    /// SQLite; here it is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_database(path: &Path) -> std::io::Result<bool> {
        const MAGIC: &[u8; 16] = b"SQLite format 3\0";
        let mut first = vec![];
        File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut first)?;
        Ok(first == MAGIC)
    }

    fn connect(&self, stop: &Stop) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let mut connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(LOCK_WAIT)?;
            let stop = stop.clone();
            connection.progress_handler(STEPS, Some(move || stop.is_asked()))?;
            // Views of a file that somebody else has made may call no function with effects.
            connection.pragma_update(None, "trusted_schema", false)?;
            Ok(connection)
        };
        open().map_err(|e| self.error(e))
    }

    fn error(&self, e: rusqlite::Error) -> Error {
        let named = quoted(&self.path.to_string_lossy());
        let message = match &e {
            rusqlite::Error::SqliteFailure(_, Some(text)) => text.clone(),
            other => other.to_string(),
        };
        match e.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => stopped(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::user(format!("SQLite database {named} is locked by another process"))
                    .code("55P03")
                    .hint("run the statement again when the other one has ended its transaction")
            }
            Some(ErrorCode::DatabaseCorrupt) => {
                Error::corrupt(format!("SQLite database {named} is damaged: {message}"))
                    .hint("SQLite's `PRAGMA integrity_check` says where")
            }
            Some(ErrorCode::NotADatabase) => {
                Error::user(format!("file {named} is no SQLite database: {message}"))
                    .hint("an encrypted one cannot be read")
            }
            _ => Error::user(format!("SQLite database {named}: {message}")),
        }
    }

    /// The columns of a table as they are declared.
    fn declared(&self, connection: &Connection, table: &str) -> Result<Vec<Column>> {
        let read = || {
            // 1: hidden columns of virtual tables. The other ones are generated, and are read.
            let sql =
                "SELECT name, type FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid";
            let mut statement = connection.prepare(sql)?;
            let columns = statement.query_map([table], |row| {
                Ok(Column {
                    name: row.get(0)?,
                    declared: row.get::<_, Option<String>>(1)?.unwrap_or_default(),
                })
            })?;
            columns.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|e| self.error(e))
    }

    /// What the values of all rows allow the columns at `open` to be, and why.
    fn decided(
        &self,
        connection: &Connection,
        table: &str,
        columns: &[Column],
        open: &[usize],
    ) -> Result<Vec<(Read, String)>> {
        // Doubles hold whole numbers up to this.
        let exact = 1i64 << f64::MANTISSA_DIGITS;
        let asked = open.iter().map(|&at| {
            let column = place(table, &columns[at].name);
            format!(
                "count({column}), total(typeof({column}) = 'integer'), \
                 total(typeof({column}) = 'real'), total(typeof({column}) = 'blob'), \
                 total(typeof({column}) = 'integer' AND {column} NOT BETWEEN -{exact} AND {exact})"
            )
        });
        let asked: Vec<String> = asked.collect();
        let mut found = vec![];
        // SQLite has at most 2,000 columns in a result.
        for some in asked.chunks(100) {
            let sql = format!("SELECT {} FROM {}", some.join(", "), quoted_name(table));
            let counts = connection.query_row(&sql, [], |row| {
                let number = |at: usize| match row.get_ref(at)? {
                    ValueRef::Integer(n) => Ok(n),
                    ValueRef::Real(n) => Ok(n as i64),
                    _ => Ok(0),
                };
                (0..some.len() * 5).map(number).collect::<rusqlite::Result<Vec<i64>>>()
            });
            found.extend(counts.map_err(|e| self.error(e))?);
        }
        Ok(found
            .chunks(5)
            .map(|counts| values::decide(counts.try_into().unwrap_or([0; 5])))
            .collect())
    }
}

/// `"table"."column"`; a column alone that is not there would be a text, for SQLite.
fn place(table: &str, column: &str) -> String {
    format!("{}.{}", quoted_name(table), quoted_name(column))
}

impl Foreign for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn location(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    fn default_schema(&self) -> &'static str {
        MAIN
    }

    fn tables(&self, stop: &Stop) -> Result<Vec<(String, String)>> {
        let connection = self.connect(stop)?;
        let read = || {
            let sql = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') \
                       AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name";
            let mut statement = connection.prepare(sql)?;
            let names = statement.query_map([], |row| Ok((MAIN.to_owned(), row.get(0)?)))?;
            names.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|e| self.error(e))
    }

    fn table(&self, schema: &str, name: &str, stop: &Stop) -> Result<Option<Table>> {
        if !schema.eq_ignore_ascii_case(MAIN) {
            return Ok(None);
        }
        let tables = self.tables(stop)?;
        let Some(name) = meant(name, tables.iter().map(|(_, name)| name.as_str())) else {
            return Ok(None);
        };
        let connection = self.connect(stop)?;
        let columns = self.declared(&connection, name)?;
        let mut reads: Vec<Option<(Read, String)>> = columns
            .iter()
            .map(|column| match self.all_text {
                true => Some((Read::AsText, "all_varchar".to_owned())),
                false => values::of_declared(&column.declared)
                    .map(|read| (read, format!("declared {}", column.declared))),
            })
            .collect();
        let open: Vec<usize> = (0..reads.len()).filter(|&at| reads[at].is_none()).collect();
        if !open.is_empty() {
            let decided = self.decided(&connection, name, &columns, &open)?;
            for (at, found) in open.into_iter().zip(decided) {
                reads[at] = Some(found);
            }
        }
        let (reads, why): (Vec<Read>, Vec<String>) = reads.into_iter().flatten().unzip();
        let fields = columns.into_iter().zip(&reads);
        let fields = fields.map(|(column, read)| Field::new(column.name, read.data_type(), true));
        let rows = format!("SELECT max(rowid) FROM {}", quoted_name(name));
        // Views and tables without row ids do not know.
        let rows = connection.query_row(&rows, [], |row| row.get::<_, Option<i64>>(0));
        Ok(Some(Table {
            schema: MAIN.to_owned(),
            name: name.to_owned(),
            columns: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            why,
            rows: rows.ok().map(|rows| rows.unwrap_or(0).max(0) as u64),
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
        let schema = table.columns.project(&wanted.columns);
        let schema = Arc::new(schema.map_err(|e| Error::internal(e.to_string()))?);
        let reads: Vec<&Read> = wanted.columns.iter().map(|&at| &table.reads[at]).collect();
        let columns = wanted.columns.iter().zip(&reads).map(|(&at, read)| {
            let column = place(&table.name, table.columns.field(at).name());
            match read {
                // Numbers as SQLite writes them; what is text stays as it is, and bytes are refused.
                Read::AsText => format!(
                    "CASE typeof({column}) WHEN 'blob' THEN {column} ELSE CAST({column} AS TEXT) END"
                ),
                _ => column,
            }
        });
        let mut columns: Vec<String> = columns.collect();
        if columns.is_empty() {
            columns.push("1".to_owned());
        }
        let mut sql = format!("SELECT {} FROM {}", columns.join(", "), quoted_name(&table.name));
        if let Some(limit) = wanted.limit {
            sql += &format!(" LIMIT {limit}");
        }
        let connection = self.connect(stop)?;
        let mut statement = connection.prepare(&sql).map_err(|e| self.error(e))?;
        let mut found = statement.query([]).map_err(|e| self.error(e))?;
        let mut rows = Rows::new(Arc::clone(&schema), reads.iter().copied());
        let mut number = 0u64;
        while let Some(row) = found.next().map_err(|e| self.error(e))? {
            number += 1;
            let mut bytes = 0;
            for (at, read) in reads.iter().enumerate() {
                let value = row.get_ref(at).map_err(|e| self.error(e))?;
                bytes += values::bytes(&value);
                match values::cell(&value, read) {
                    Some(cell) => rows.columns[at].push(cell)?,
                    None => {
                        let column = table.columns.field(wanted.columns[at]).name();
                        return Err(values::contradiction(
                            &table.name,
                            column,
                            number,
                            &value,
                            read,
                        ));
                    }
                }
            }
            if rows.end_row(bytes) && !give(rows.batch()?) {
                return Ok(());
            }
        }
        if !rows.is_empty() {
            give(rows.batch()?);
        }
        Ok(())
    }

    /// SQLite compares values of any type with any other, in an order of its own.
    fn takes_conditions(&self, _: &Table, _: usize) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
