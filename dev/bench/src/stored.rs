//! A benchmark's tables in a database.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use thalweg_base::{Error, Result};
use thalweg_engine::{Config, Engine};

use crate::generate::GeneratedTable;
use crate::load;
use crate::report::model::Load;
use crate::report::text;
use crate::run::{Options, Watch, config, data, say};
use crate::workload::Workload;

/// A benchmark's tables in an open database.
pub(crate) struct Stored {
    pub engine: Arc<Engine>,
    pub location: String,
    /// What the tables were loaded from.
    pub files: Vec<GeneratedTable>,
    /// `None`: they were there.
    pub load: Option<Load>,
    /// The folder, if it goes when this does.
    _temporary: Option<TempDir>,
}

impl Stored {
    /// Generates and loads what is not there, and prints how that went. `database`: where it is
    /// kept.
    pub fn open(
        options: &Options,
        workload: &Workload,
        database: Option<PathBuf>,
        watch: &Watch,
    ) -> Result<Stored> {
        let (folder, files) = data(options, workload.benchmark, options.format, watch)?;
        say(&format!("data: {}", folder.display()));
        let failed = |e| Error::io("cannot make a temporary folder for the database", e);
        let (path, temporary) = match database {
            Some(path) => (path, None),
            None => {
                let folder = tempfile::tempdir().map_err(failed)?;
                (folder.path().join("db"), Some(folder))
            }
        };
        let location = path.to_string_lossy().into_owned();
        let engine = Engine::open(&location, config(options))?;
        let load = load::load(&engine, workload, &files, watch)?;
        match &load {
            Some(load) => println!("{}", text::load(load, text::Options::stdout())),
            None => {
                say(&format!("the database {location} has the tables already: not loaded again"))
            }
        }
        Ok(Stored { engine, location, files, load, _temporary: temporary })
    }

    /// Over the same database, with a cache of its own, so that both can be equally warm.
    pub fn second_engine(&self, config: Config) -> Result<Arc<Engine>> {
        Engine::open(&self.location, Config { create: false, ..config })
    }
}
