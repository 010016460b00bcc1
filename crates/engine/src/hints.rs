//! Statements that other databases take as hints how to find rows, and that change no answer: indexes,
//! and `ANALYZE`. They are checked, and then accepted with a notice that nothing was done.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Analyze, CreateIndex, Expr, ObjectType, Statement, visit_expressions,
};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::Table;

use crate::answer::Tag;
use crate::dml::{Job, target};
use thalweg_base::Notice;

const SKIPPING: &str = "queries skip the chunks that cannot hold what they look for without an index; \
    CREATE TABLE … CLUSTER BY (columns) keeps rows together that are asked for together";

pub(crate) fn run(job: &Job<'_>, statement: &Statement) -> Result<Tag> {
    let (word, notice) = match statement {
        Statement::CreateIndex(create) => ("CREATE INDEX", Some(create_index(job, create)?)),
        Statement::Drop { object_type: ObjectType::Index, names, .. } => {
            let names = names.iter().map(|name| quoted(&name.to_string()));
            let names = names.collect::<Vec<_>>().join(", ");
            let notice = Notice::new(format!("there are no indexes: {names} is not dropped"));
            ("DROP INDEX", Some(notice))
        }
        Statement::Analyze(analyze) => {
            check_analyze(job, analyze)?;
            ("ANALYZE", None)
        }
        other => return Err(Error::internal(format!("{other} is no hint"))),
    };
    job.session.transactions.check_writable()?;
    if let Some(notice) = notice {
        job.run.notice(notice);
    }
    Ok(Tag::Done(word.into()))
}

fn create_index(job: &Job<'_>, create: &CreateIndex) -> Result<Notice> {
    let (schema, table) = target::table(&job.snapshot, &create.table_name, "CREATE INDEX")?;
    let whole_name = target::full_name(&schema, &table.name);
    let keys = create.columns.iter().map(|c| &c.column.expr).chain(&create.predicate);
    keys.into_iter().try_for_each(|expr| check_columns(&table, &whole_name, expr))?;
    for column in &create.include {
        target::index(&table, &whole_name, column)?;
    }
    let name = match &create.name {
        Some(name) => format!(" {}", quoted(&name.to_string())),
        None => String::new(),
    };
    if create.unique {
        // This one would change answers: it refuses rows.
        let wanted = format!("index{name} is UNIQUE, and values are not checked to be unique");
        return Err(Error::unsupported(wanted).hint(
            "leave UNIQUE out; SELECT … GROUP BY … HAVING count(*) > 1 shows what is there twice",
        ));
    }
    Ok(Notice::new(format!("there are no indexes: index{name} is accepted and not made"))
        .hint(SKIPPING))
}

/// Every column that the expression names must be there.
fn check_columns(table: &Table, whole_name: &str, expr: &Expr) -> Result<()> {
    let unknown = visit_expressions(expr, |e| match e {
        Expr::Identifier(column) => match target::index(table, whole_name, column) {
            Ok(_) => ControlFlow::Continue(()),
            Err(e) => ControlFlow::Break(e),
        },
        _ => ControlFlow::Continue(()),
    });
    unknown.map_break(Err).break_value().unwrap_or(Ok(()))
}

/// PostgreSQL's `ANALYZE [table [(column, …)]]`: nothing is to be done, and tools run it after each load,
/// so that it is only checked.
fn check_analyze(job: &Job<'_>, analyze: &Analyze) -> Result<()> {
    let Some(name) = &analyze.table_name else { return Ok(()) };
    let (schema, table) = target::table(&job.snapshot, name, "ANALYZE")?;
    for column in &analyze.columns {
        target::index(&table, &target::full_name(&schema, &table.name), column)?;
    }
    Ok(())
}
