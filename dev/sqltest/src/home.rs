//! The engine of one test, its folder and its sessions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use thalweg_base::{Error, Result};
use thalweg_engine::{Engine, Session};

use crate::mode::{Mode, Place};

pub struct Home {
    pub mode: &'static Mode,
    folder: TempDir,
    /// Settings and prepared statements do not outlive the engine: then it must not be reopened.
    keep_session: bool,
    state: Mutex<State>,
}

struct State {
    engine: Option<Arc<Engine>>,
    /// By number of the connection. Owned here, so that reopening can let go of all of them.
    sessions: HashMap<usize, Session>,
    statements: usize,
}

/// How long the tasks of a closed engine may take to let go of its files.
const CLOSE_MAX: Duration = Duration::from_secs(10);

impl Home {
    /// `database`: a folder with one that is there already; it is copied.
    pub fn new(mode: &'static Mode, keep_session: bool, database: Option<&Path>) -> Result<Home> {
        let io = |e| Error::io("cannot make a temporary folder", e);
        let folder = TempDir::new().map_err(io)?;
        std::fs::create_dir(folder.path().join("tmp")).map_err(io)?;
        if let Some(database) = database {
            copy(database, &folder.path().join("db")).map_err(io)?;
        }
        let state = State { engine: None, sessions: HashMap::new(), statements: 0 };
        let home = Home { mode, folder, keep_session, state: Mutex::new(state) };
        home.state.lock().engine = Some(Engine::open(&home.location(), mode.config())?);
        Ok(home)
    }

    fn location(&self) -> String {
        match self.mode.place {
            Place::Memory => ":memory:".into(),
            Place::Disk { .. } => self.folder.path().join("db").to_string_lossy().into_owned(),
        }
    }

    /// Closes the database and copies it into a folder that is not there.
    pub fn save(&self, to: &Path) -> Result<()> {
        self.reopen()?;
        copy(Path::new(&self.location()), to)
            .map_err(|e| Error::io(format!("cannot write {to:?}"), e))
    }

    pub fn tmp(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    pub fn data() -> PathBuf {
        package().join("data")
    }

    /// The session of a connection, and the engine, reopened when it is time to.
    pub fn session(&self, connection: usize) -> Result<(Arc<Engine>, Session)> {
        let mut state = self.state.lock();
        state.statements += 1;
        if let Place::Disk { reopen_statements } = self.mode.place
            && !self.keep_session
            && state.statements.is_multiple_of(reopen_statements)
        {
            self.reopen_locked(&mut state)?;
        }
        let engine = state.engine.clone().ok_or_else(|| Error::internal("the engine is closed"))?;
        if let Some(session) = state.sessions.get(&connection) {
            return Ok((engine, session.clone()));
        }
        let session = engine.session();
        if !self.mode.pipelines {
            engine.block_on(session.query("SET thalweg.pipelines = off"))?;
        }
        state.sessions.insert(connection, session.clone());
        Ok((engine, session))
    }

    pub fn reopen(&self) -> Result<()> {
        self.reopen_locked(&mut self.state.lock())
    }

    fn reopen_locked(&self, state: &mut State) -> Result<()> {
        if self.mode.place == Place::Memory {
            return Ok(());
        }
        state.sessions.clear();
        state.engine = None;
        let closing = Instant::now();
        loop {
            match Engine::open(&self.location(), self.mode.config()) {
                Ok(engine) => {
                    state.engine = Some(engine);
                    return Ok(());
                }
                Err(e) if closing.elapsed() > CLOSE_MAX => return Err(e),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

/// A database's folders and what is in them, without its lock.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (from, to) = (entry?.path(), to);
        let Some(name) = from.file_name() else { continue };
        if from.is_dir() {
            copy(&from, &to.join(name))?;
        } else if name != "lock" {
            std::fs::copy(&from, to.join(name))?;
        }
    }
    Ok(())
}

/// The folder of this package, in which its tests are run. It is not asked of the compiler: a clone in
/// another place may use what was built in this one.
pub(crate) fn package() -> PathBuf {
    std::env::current_dir().expect("tests run in a folder")
}
