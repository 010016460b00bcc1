//! Statements that are prepared, bound to values, and executed, perhaps in parts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Schema, SchemaRef};
use thalweg_base::{Error, Result};
use thalweg_engine::{Description, RowInsert, Session, TransactionStatus, Value};

use super::command::{self, Work};
use super::connection::{Connection, Done, Stop};
use super::encode::Format;
use super::message::{Bind, Message, Subject};
use super::results::{self, Cursor};
use super::write::{Out, RESULT_CHANGED};
use super::{cursor, parameter, types};

/// A statement as the client has prepared it.
pub struct Prepared {
    pub name: String,
    pub sql: String,
    /// What stands before it in the text of the client.
    lead: String,
    work: Work,
    /// It does no more than to insert its values.
    pub insert: Option<Arc<RowInsert>>,
    /// Types of its values, as far as the client has said them.
    declared: Vec<u32>,
    /// It has had a plan.
    is_sound: AtomicBool,
    /// Types of its values, once they are inferred: the client goes by what it is told first.
    inferred: OnceLock<Vec<Parameter>>,
    /// Its columns, once Describe has told them: the client may read all rows by these.
    told: OnceLock<SchemaRef>,
}

/// The type of a value, and what clients call it.
#[derive(Clone)]
struct Parameter {
    oid: u32,
    data_type: DataType,
}

/// A statement with its values.
pub struct Portal {
    pub statement: Arc<Prepared>,
    pub values: Vec<Value>,
    result_formats: Vec<i16>,
    pub state: State,
    /// The client has been told the columns of this one, whatever it was told of its statement.
    is_described: bool,
}

pub enum State {
    New,
    /// It gives rows, or has given all of them.
    Running(Box<Cursor>),
    /// It has run, and gave none.
    Done,
}

/// Statements and portals that one client may have.
const PREPARED_MAX: usize = 10_000;

impl Prepared {
    /// The statement that takes the values: of DECLARE, the query.
    fn text(&self) -> &str {
        match &self.work {
            Work::Cursor(cursor::Command::Declare { query, .. }) => query,
            _ => &self.sql,
        }
    }

    /// The statement from which the types of its values are told: of many rows of them, the first will do.
    fn sample(&self) -> &str {
        self.insert.as_ref().map_or(self.text(), |insert| insert.head())
    }

    pub fn note_sound(&self) {
        self.is_sound.store(true, Ordering::Relaxed);
    }

    fn declared(&self) -> Vec<Option<DataType>> {
        self.declared.iter().map(|oid| types::data_type(*oid)).collect()
    }

    /// What the client has said of each of so many values.
    fn said(&self, count: usize) -> Vec<Option<Parameter>> {
        let said = self.declared().into_iter().zip(&self.declared);
        let said =
            said.map(|(data_type, oid)| Some(Parameter { oid: *oid, data_type: data_type? }));
        let mut said: Vec<Option<Parameter>> = said.collect();
        said.resize(count.max(said.len()), None);
        said
    }

    /// The types of its values as they were inferred, but for those that the client has said.
    fn parameters(&self, types: &[DataType]) -> Vec<Parameter> {
        let declared = |i: usize| self.declared.get(i).copied().filter(|oid| *oid != 0);
        let parameter = |(i, data_type): (usize, &DataType)| Parameter {
            oid: declared(i).unwrap_or(types::oid(data_type)),
            data_type: data_type.clone(),
        };
        types.iter().enumerate().map(parameter).collect()
    }
}

impl Portal {
    /// The same statement with other values.
    pub fn again(&self, values: Vec<Value>) -> Portal {
        let (statement, result_formats) =
            (Arc::clone(&self.statement), self.result_formats.clone());
        Portal { statement, values, result_formats, state: State::New, is_described: false }
    }
}

fn oids(parameters: &[Parameter]) -> Vec<u32> {
    parameters.iter().map(|parameter| parameter.oid).collect()
}

impl Connection {
    pub async fn parse(
        &mut self,
        name: String,
        sql: String,
        declared: Vec<u32>,
    ) -> Result<(), Stop> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(Error::user(format!("prepared statement {name:?} exists already"))
                .code("42P05")
                .into());
        }
        if self.statements.len() >= PREPARED_MAX {
            return Err(Error::resources(format!("{PREPARED_MAX} statements are prepared"))
                .code("53000")
                .hint("close those that are not needed: DEALLOCATE ALL")
                .into());
        }
        let mut statements = Session::split(&sql)?;
        if statements.len() > 1 {
            let e = Error::user("cannot insert multiple commands into a prepared statement");
            return Err(e.code("42601").hint("prepare each of them on its own").into());
        }
        let text = statements.pop().unwrap_or_default();
        let lead = sql[..sql.find(&text).unwrap_or(0)].to_string();
        let sql = text;
        let work = Work::of(&sql)?;
        let insert = match work {
            Work::Engine => RowInsert::parse(&sql).map(Arc::new),
            _ => None,
        };
        // So that a mistake of syntax shows here.
        if matches!(work, Work::Engine) {
            let text = insert.as_ref().map_or(sql.as_str(), |insert| insert.head());
            self.session.check_syntax(text).map_err(|e| Stop::from(e).after(&lead))?;
        }
        let is_sound = AtomicBool::new(false);
        let prepared = Prepared {
            name: name.clone(),
            sql,
            lead,
            work,
            insert,
            declared,
            is_sound,
            inferred: OnceLock::new(),
            told: OnceLock::new(),
        };
        self.statements.insert(name, Arc::new(prepared));
        self.output.out.parse_complete();
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<Arc<Prepared>> {
        self.statements.get(name).cloned().ok_or_else(|| {
            Error::user(format!("prepared statement {name:?} does not exist")).code("26000")
        })
    }

    pub async fn bind(&mut self, bind: Bind) -> Result<(), Stop> {
        let statement = self.statement(&bind.statement)?;
        // What the client has not said is told from where the value stands.
        if statement.said(bind.values.len()).iter().any(Option::is_none) {
            let told = self.parameters(&statement).await;
            self.planned(&statement, told)?;
        }
        let values = self.values(&statement, &bind)?;
        let portal = Portal {
            statement,
            values,
            result_formats: bind.result_formats,
            state: State::New,
            is_described: false,
        };
        if !bind.portal.is_empty() && self.portals.contains_key(&bind.portal) {
            return Err(Error::user(format!("portal {:?} exists already", bind.portal))
                .code("42P03")
                .into());
        }
        if self.portals.len() >= PREPARED_MAX {
            return Err(Error::resources(format!("{PREPARED_MAX} portals are open")).into());
        }
        self.portals.insert(bind.portal, portal);
        self.output.out.bind_complete();
        Ok(())
    }

    /// The values that a statement is bound to, once their types are known.
    pub fn values(&self, statement: &Prepared, bind: &Bind) -> Result<Vec<Value>> {
        let count = bind.values.len();
        let formats = results::formats(&bind.formats, count)?;
        let mut parameters = statement.said(count);
        if parameters.iter().any(Option::is_none) {
            let inferred = statement
                .inferred
                .get()
                .ok_or_else(|| Error::internal("values are bound before their types are known"))?;
            parameters = inferred.iter().cloned().map(Some).collect();
        }
        if parameters.len() != count {
            return Err(Error::user(format!(
                "the statement takes {} values, and got {count}",
                parameters.len()
            ))
            .code("08P01"));
        }
        let mut values = vec![];
        let zone = self.session.time_zone();
        let text = || Parameter { oid: 0, data_type: DataType::Utf8 };
        for (i, (bytes, format)) in bind.values.iter().zip(formats).enumerate() {
            let Parameter { oid, data_type } = parameters[i].clone().unwrap_or_else(text);
            let value = parameter::read(bytes.clone(), format, oid, &data_type, &zone)
                .map_err(|e| e.context(format!("parameter ${}", i + 1)))?;
            values.push(Value::new(value)?);
        }
        Ok(values)
    }

    async fn parameters(&mut self, statement: &Prepared) -> Result<Vec<Parameter>, Stop> {
        if let Some(inferred) = statement.inferred.get() {
            return Ok(inferred.clone());
        }
        let session = self.session.clone();
        let asked = session.describe_catalog(statement.text(), &statement.declared);
        let parameters = match self.watched(asked).await? {
            Some(described) => {
                let parameter = |oid: &u32| Parameter {
                    oid: *oid,
                    data_type: types::data_type(*oid).unwrap_or(DataType::Utf8),
                };
                described?.parameters.iter().map(parameter).collect()
            }
            None => {
                let described = self.described(statement).await?;
                statement.parameters(&described.parameters)
            }
        };
        Ok(statement.inferred.get_or_init(|| parameters).clone())
    }

    /// What a statement of the engine's takes and gives.
    async fn described(&mut self, statement: &Prepared) -> Result<Description, Stop> {
        let session = self.session.clone();
        let mut declared = statement.declared();
        let Some(insert) = &statement.insert else {
            return Ok(self.watched(session.describe(statement.text(), &declared)).await??);
        };
        // Each row's values have the types of the columns, but for those that the client has said.
        let (width, rows) = (insert.width(), insert.rows());
        let of_row = if rows == 1 { declared.clone() } else { vec![] };
        let described = self.watched(session.describe(statement.sample(), &of_row)).await??;
        declared.resize((width * rows).max(declared.len()), None);
        let known = declared.into_iter().enumerate();
        let parameters = known.map(|(at, said)| {
            said.or_else(|| described.parameters.get(at % width.max(1)).cloned())
                .unwrap_or(DataType::Utf8)
        });
        Ok(Description { parameters: parameters.collect(), schema: described.schema })
    }

    pub async fn describe(&mut self, subject: Subject) -> Result<(), Stop> {
        match subject {
            Subject::Statement(name) => {
                let statement = self.statement(&name)?;
                let described = self.describe_statement(&statement).await;
                self.planned(&statement, described)
            }
            // Those of DECLARE are portals, too.
            Subject::Portal(name) if self.cursors.contains_key(&name) => {
                let which = cursor::Which::Next(None);
                let fetch = cursor::Command::Fetch { name, which, moves: false };
                self.describe_cursor(&fetch, &[])?;
                Ok(())
            }
            Subject::Portal(name) => {
                let mut portal = self.take(&name)?;
                portal.is_described = true;
                let described = self.describe_portal(&mut portal).await;
                self.portals.insert(name, portal);
                described
            }
        }
    }

    async fn describe_statement(&mut self, statement: &Prepared) -> Result<(), Stop> {
        if !matches!(statement.work, Work::Engine) {
            let types = match &statement.work {
                Work::Cursor(cursor::Command::Declare { .. }) => self.parameters(statement).await?,
                _ => vec![],
            };
            self.output.out.parameter_types(&oids(&types));
            return Ok(self.describe_own(&statement.work, &[])?);
        }
        let session = self.session.clone();
        let asked = session.describe_catalog(&statement.sql, &statement.declared);
        if let Some(described) = self.watched(asked).await? {
            let described = described?;
            self.output.out.parameter_types(&described.parameters);
            results::describe_catalog(&mut self.output.out, &described.columns);
            return Ok(());
        }
        let described = self.described(statement).await?;
        let schema = described.schema.clone().unwrap_or_else(|| Arc::new(Schema::empty()));
        let types = results::types(&schema);
        if results::types(statement.told.get_or_init(|| schema)) != types {
            return Err(changed().into());
        }
        let parameters = statement.parameters(&described.parameters);
        let parameters = statement.inferred.get_or_init(|| parameters);
        self.output.out.parameter_types(&oids(parameters));
        columns(&mut self.output.out, &statement.sql, described.schema.as_ref(), &[])?;
        Ok(())
    }

    /// PostgreSQL plans a statement when it is prepared; here that is done when its columns are
    /// wanted or it runs. One that has no plan is gone then, as if it had been refused before:
    /// clients do not close what they have been told of an error.
    fn planned<T>(&mut self, statement: &Prepared, result: Result<T, Stop>) -> Result<T, Stop> {
        match &result {
            Ok(_) => statement.is_sound.store(true, Ordering::Relaxed),
            Err(Stop::Failed(e)) if e.sqlstate().starts_with("42") => {
                if !statement.is_sound.load(Ordering::Relaxed) {
                    self.statements.remove(&statement.name);
                }
            }
            Err(_) => {}
        }
        result.map_err(|stop| stop.after(&statement.lead))
    }

    async fn describe_portal(&mut self, portal: &mut Portal) -> Result<(), Stop> {
        let statement = Arc::clone(&portal.statement);
        let sql = &statement.sql;
        if !matches!(statement.work, Work::Engine) {
            return Ok(self.describe_own(&statement.work, &portal.result_formats)?);
        }
        // It will run anyhow, and then knows its columns: planning once is enough.
        if matches!(portal.state, State::New) && command::is_query(sql) {
            self.start(portal).await?;
        }
        let formats = &portal.result_formats;
        match &portal.state {
            State::Running(cursor) => {
                columns(&mut self.output.out, sql, Some(&cursor.answer.schema), formats)?;
            }
            State::Done => self.output.out.no_data(),
            // Its columns were looked up for the types of its values, unless the client has said them.
            State::New if statement.insert.is_some() => self.output.out.no_data(),
            State::New => {
                let types: Vec<_> =
                    portal.values.iter().map(|v| Some(v.data_type().clone())).collect();
                let session = self.session.clone();
                let described = self.watched(session.describe(sql, &types)).await??;
                columns(&mut self.output.out, sql, described.schema.as_ref(), formats)?;
            }
        }
        Ok(())
    }

    /// The columns of what the protocol carries out itself.
    fn describe_own(&mut self, work: &Work, formats: &[i16]) -> Result<()> {
        match work {
            Work::Cursor(command) => self.describe_cursor(command, formats)?,
            Work::Empty | Work::Copy(_) | Work::Engine => self.output.out.no_data(),
        }
        Ok(())
    }

    /// Out of the map, so that it is gone if it fails.
    fn take(&mut self, name: &str) -> Result<Portal> {
        self.portals
            .remove(name)
            .ok_or_else(|| Error::user(format!("portal {name:?} does not exist")).code("34000"))
    }

    async fn start(&mut self, portal: &mut Portal) -> Result<(), Stop> {
        let session = self.session.clone();
        let running = session.query_with(&portal.statement.sql, &portal.values);
        let begun = self.watched(running).await?.map_err(Stop::from);
        let answer = self.planned(&portal.statement, begun)?;
        self.output.out.notices(&answer.notices);
        let formats = results::formats(&portal.result_formats, answer.schema.fields().len())?;
        portal.state = State::Running(Box::new(Cursor::new(answer, formats)));
        Ok(())
    }

    /// Refuses a statement whose columns are not what they were when Describe told them, as PostgreSQL does.
    async fn check_told(&mut self, statement: &Prepared, told: &SchemaRef) -> Result<(), Stop> {
        let types: Vec<Option<DataType>> = match statement.inferred.get() {
            Some(known) => known.iter().map(|p| Some(p.data_type.clone())).collect(),
            None => statement.declared(),
        };
        let session = self.session.clone();
        let now = self.watched(session.describe(statement.text(), &types)).await??;
        let now = now.schema.as_ref().map(results::types).unwrap_or_default();
        match now == results::types(told) {
            true => Ok(()),
            false => Err(changed().into()),
        }
    }

    /// Runs a statement whose client may go by what Describe has told of it.
    async fn start_as_told(&mut self, portal: &mut Portal) -> Result<(), Stop> {
        let statement = Arc::clone(&portal.statement);
        let told = statement.told.get().filter(|_| !portal.is_described);
        let is_query = command::is_query(&statement.sql);
        // Before it changes anything.
        if let Some(told) = told.filter(|told| !is_query && !told.fields().is_empty()) {
            self.check_told(&statement, told).await?;
        }
        self.start(portal).await?;
        let types = match &portal.state {
            State::Running(cursor) => results::types(&cursor.answer.schema),
            State::New | State::Done => return Ok(()),
        };
        let Some(told) = told.filter(|told| types != results::types(told)) else { return Ok(()) };
        if is_query {
            self.check_told(&statement, told).await?;
        }
        if let State::Running(cursor) = &mut portal.state {
            cursor.told = Some(Arc::clone(told));
        }
        Ok(())
    }

    pub async fn execute(&mut self, name: &str, rows_max: usize) -> Result<(), Stop> {
        let portal = self.take(name)?;
        let running = self.running(&portal.statement.sql);
        let done = self.run_portal(name, portal, rows_max).await;
        self.ended(running, &done);
        done.map(drop)
    }

    async fn run_portal(
        &mut self,
        name: &str,
        mut portal: Portal,
        rows_max: usize,
    ) -> Result<Done, Stop> {
        let statement = Arc::clone(&portal.statement);
        let sql = &statement.sql;
        if matches!(statement.work, Work::Empty) {
            self.output.out.empty_query();
            self.portals.insert(name.into(), portal);
            return Ok(Done::default());
        }
        self.has_set |= command::sets(sql);
        self.begin_implicit(sql).await?;
        let formats = Some(portal.result_formats.as_slice());
        if let Some(tag) = self.own_work(&statement.work, &portal.values, formats).await? {
            self.output.out.complete(&tag);
            return Ok(Done::default());
        }
        if let Some(done) = self.insert_rows(name, &mut portal).await? {
            self.portals.insert(name.into(), portal);
            return Ok(done);
        }
        if matches!(portal.state, State::New) {
            self.start_as_told(&mut portal).await?;
            self.leave_savepoint(sql);
        }
        let mut done = Done::default();
        if let State::Running(cursor) = &mut portal.state {
            let before = cursor.sent;
            done.query = Some(cursor.answer.query());
            let all = self.send_rows(cursor, rows_max).await?;
            done.rows = cursor.sent - before;
            if !all {
                self.output.out.portal_suspended();
            } else {
                // Of this part, as PostgreSQL counts.
                let tag = command::tag(sql, &cursor.answer.tag, done.rows);
                self.output.out.complete(&tag);
                if !command::has_rows(&cursor.answer) {
                    portal.state = State::Done;
                }
            }
        } else {
            return Err(Error::user(format!("portal {name:?} has run already"))
                .code("55000")
                .into());
        }
        self.portals.insert(name.into(), portal);
        Ok(done)
    }

    /// Runs a statement that gives no rows.
    pub async fn run_alone(&mut self, portal: &mut Portal) -> Result<(), Stop> {
        self.start(portal).await?;
        if let State::Running(cursor) = &mut portal.state {
            self.send_rows(cursor, 0).await?;
            let tag = command::tag(&portal.statement.sql, &cursor.answer.tag, 0);
            self.output.out.complete(&tag);
        }
        Ok(())
    }

    /// Statements up to a Sync are one transaction. If the Sync is there already, this one is it,
    /// and needs none of its own.
    async fn begin_implicit(&mut self, sql: &str) -> Result<(), Stop> {
        let alone = self.session.transaction_status() != TransactionStatus::Idle
            || command::is_query(sql)
            || command::stands_alone(sql)
            || match self.untaken.front() {
                Some(message) => *message == Message::Sync,
                None => self.input.buffer.first() == Some(&b'S'),
            };
        if !alone {
            self.control("BEGIN").await?;
            self.implicit = true;
        }
        Ok(())
    }

    pub fn close(&mut self, subject: Subject) -> Result<(), Stop> {
        match subject {
            Subject::Statement(name) => drop(self.statements.remove(&name)),
            Subject::Portal(name) => {
                self.portals.remove(&name);
                self.cursors.remove(&name);
            }
        }
        self.output.out.close_complete();
        Ok(())
    }

    /// Outside a transaction, portals end here.
    pub async fn sync(&mut self) -> Result<(), Stop> {
        if std::mem::take(&mut self.implicit) {
            self.portals.clear();
            return self.control("COMMIT").await;
        }
        if self.session.transaction_status() == TransactionStatus::Idle {
            self.portals.clear();
        }
        Ok(())
    }
}

fn changed() -> Error {
    Error::user(RESULT_CHANGED).code("0A000").hint("prepare the statement anew")
}

fn columns(out: &mut Out, sql: &str, schema: Option<&SchemaRef>, formats: &[i16]) -> Result<()> {
    match schema {
        Some(schema) if !schema.fields().is_empty() => {
            let formats: Vec<Format> = results::formats(formats, schema.fields().len())?;
            results::describe(out, sql, schema, &formats)
        }
        _ => {
            out.no_data();
            Ok(())
        }
    }
}
