//! Regular expressions as PostgreSQL has them.
//!
//! * [`parse`]: reads one; [`tree`]: what a match of it is taken apart by
//! * [`search`]: finds matches and their groups
//! * [`calls`]: the functions

pub mod calls;
pub mod parse;
pub mod search;
pub mod tree;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use thalweg_base::Result;

use parse::Flags;
use search::Regexp;

/// Expressions that are kept for the batches to come.
const KEPT_MAX: usize = 64;

type Kept = HashMap<(String, Flags), Arc<Regexp>>;

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

/// The expressions of one batch of rows.
#[derive(Debug, Default)]
pub struct Known {
    last: Option<(String, Flags, Arc<Regexp>)>,
    all: HashMap<(String, Flags), Arc<Regexp>>,
}

impl Known {
    /// An expression, made once.
    ///
    /// # Errors
    /// It is none.
    pub fn get(&mut self, pattern: &str, flags: Flags) -> Result<Arc<Regexp>> {
        if let Some((text, of, regexp)) = &self.last
            && text == pattern
            && *of == flags
        {
            return Ok(Arc::clone(regexp));
        }
        let key = (pattern.to_string(), flags);
        let regexp = match self.all.get(&key) {
            Some(regexp) => Arc::clone(regexp),
            None => {
                let regexp = kept(&key)?;
                if self.all.len() >= KEPT_MAX {
                    self.all.clear();
                }
                self.all.insert(key, Arc::clone(&regexp));
                regexp
            }
        };
        self.last = Some((pattern.to_string(), flags, Arc::clone(&regexp)));
        Ok(regexp)
    }
}

fn kept(key: &(String, Flags)) -> Result<Arc<Regexp>> {
    if let Some(regexp) = KEPT.lock().get(key) {
        return Ok(Arc::clone(regexp));
    }
    let regexp = Arc::new(Regexp::new(&key.0, key.1)?);
    let mut kept = KEPT.lock();
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(key.clone(), Arc::clone(&regexp));
    Ok(regexp)
}
