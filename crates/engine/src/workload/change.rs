//! `CREATE`, `ALTER` and `DROP WORKLOAD`, run.

use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_runtime::no_workload;
use thalweg_scheduler::Class;
use thalweg_storage::{Summary, Transaction};

use super::{Command, PROPERTY, Text, class, drop_class, put};
use crate::access::remove_grants_on_workload;
use crate::answer::Tag;
use crate::session::Inner;

pub async fn run(session: &Inner, command: Command) -> Result<Tag> {
    let (verb, name) = match &command {
        Command::Create { name, .. } => ("CREATE WORKLOAD", name),
        Command::Alter { name, .. } => ("ALTER WORKLOAD", name),
        Command::Drop { name, .. } => ("DROP WORKLOAD", name),
    };
    session.transactions.check_idle(verb)?;
    let (done, name) = (Tag::Done(verb.into()), name.clone());
    let driver = session.engine.runtime().driver();
    let present = driver.look(|s| s.class_named(&name).and_then(|id| s.class(id)).cloned());
    // First in the scheduler, which says what is wrong; back if the database cannot keep it.
    let value = match (command, &present) {
        (Command::Create { if_not_exists: true, .. }, Some(_)) => return Ok(done),
        (Command::Create { .. }, Some(_)) => {
            return Err(Error::user(format!("workload {} exists", quoted(&name)))
                .hint("ALTER WORKLOAD changes it"));
        }
        (Command::Create { settings, .. }, None) => {
            let class = class(Class::new(&name), &settings)?;
            let text = Text(&class).to_string();
            put(driver, class)?;
            Some(text)
        }
        (Command::Alter { settings, .. }, Some(old)) => {
            let class = class(old.clone(), &settings)?;
            let text = Text(&class).to_string();
            put(driver, class)?;
            Some(text)
        }
        (Command::Drop { if_exists: true, .. }, None) => return Ok(done),
        (Command::Alter { .. } | Command::Drop { .. }, None) => return Err(no_workload(&name)),
        (Command::Drop { .. }, Some(_)) => {
            drop_class(driver, &name)?;
            None
        }
    };
    let (property, gone) = (format!("{PROPERTY}{name}"), name.clone());
    let kept = session.transactions.write(move |transaction: &mut Transaction| {
        transaction.describe(Summary { operation: verb.into(), ..Summary::default() });
        if value.is_none() {
            remove_grants_on_workload(transaction, &gone)?;
        }
        transaction.set_property(&property, value)
    });
    if let Err(e) = kept.await {
        match present {
            Some(class) => put(driver, class)?,
            None => drop_class(driver, &name)?,
        }
        return Err(e);
    }
    Ok(done)
}
