//! Columns of JSON lines: the keys of all records together.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::guess::{Guess, Places};
use super::{Inferred, InferredColumn};
use crate::load::block::{Block, Lines};
use crate::load::json::{Scratch, Value, Wrong, next_record, object, report};
use crate::load::layout::Finder;
use crate::load::parse::{Look, look_exact};
use crate::load::rejects::{Faults, Position};

/// Records looked at in one step.
const STEP_RECORDS: u64 = 4096;

/// Keys met, in any order.
#[derive(Default)]
pub(super) struct Keys {
    found: Vec<Key>,
    /// By name in lower case: tables match their columns without regard to case.
    index: HashMap<String, usize>,
    rows: u64,
    /// Files in which records are counted rather than lines.
    by_row: BTreeSet<usize>,
}

struct Key {
    name: String,
    /// Where it came first: the record, and the place in it.
    first: (Position, usize),
    guess: Guess,
    values: u64,
    /// Values are only counted.
    skipped: bool,
    /// Nobody asks for it.
    known: bool,
}

impl Keys {
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn merge(&mut self, other: Keys) {
        self.rows += other.rows;
        self.by_row.extend(other.by_row);
        for key in other.found {
            let lower = key.name.to_lowercase();
            match self.index.get(&lower) {
                Some(&known) => {
                    let mine = &mut self.found[known];
                    mine.guess.merge(&key.guess);
                    mine.values += key.values;
                    if key.first < mine.first {
                        (mine.first, mine.name) = (key.first, key.name);
                    }
                }
                None => {
                    self.index.insert(lower, self.found.len());
                    self.found.push(key);
                }
            }
        }
    }

    pub(super) fn inferred(&self, paths: &[Arc<PathBuf>]) -> Inferred {
        let mut keys: Vec<&Key> = self.found.iter().filter(|key| !key.known).collect();
        keys.sort_by_key(|key| key.first);
        let places = Places { paths, by_row: &self.by_row };
        let columns = keys.into_iter().map(|key| {
            let mut guess = key.guess.clone();
            guess.nulls = self.rows - key.values;
            InferredColumn {
                name: key.name.clone(),
                data_type: guess.data_type(),
                nulls: Some(guess.nulls),
                null_spellings: Vec::new(),
                why: guess.why(&places, self.rows),
                order: None,
            }
        });
        let columns = columns.collect();
        Inferred { columns, rows: Some(self.rows), header: None, dialects: Vec::new() }
    }
}

/// Some records of one file.
pub struct Piece {
    all: Arc<Mutex<Keys>>,
    known: Option<Finder>,
    block: Block,
    faults: Arc<Faults>,
    keys: Keys,
    /// Keys that were text before this block began.
    text: HashSet<String>,
    /// The keys of the last record, in its order: the next record's guess.
    guesses: Vec<(Vec<u8>, usize)>,
    pos: usize,
    lines: Lines,
    scratch: Scratch,
}

impl Piece {
    pub(super) fn new(
        all: Arc<Mutex<Keys>>,
        known: Option<SchemaRef>,
        block: Block,
        faults: Arc<Faults>,
    ) -> Piece {
        let at = block.position();
        let text = {
            let all = all.lock();
            let text = all.found.iter().filter(|k| k.guess.text_at().is_some_and(|t| t < at));
            text.map(|key| key.name.to_lowercase()).collect()
        };
        let by_row = block.pieces.iter().map(|_| block.file).collect();
        let known = known.map(|known| Finder::new(&known));
        Piece {
            all,
            known,
            pos: block.start,
            block,
            faults,
            keys: Keys { by_row, ..Keys::default() },
            text,
            guesses: Vec::new(),
            lines: Lines::default(),
            scratch: Scratch::default(),
        }
    }

    pub(super) fn step(&mut self) -> bool {
        if self.faults.settled(self.block.position()) {
            return false;
        }
        let last = self.keys.rows + STEP_RECORDS;
        while self.keys.rows < last {
            let Some(line) = next_record(&self.block, &mut self.pos) else {
                self.all.lock().merge(std::mem::take(&mut self.keys));
                return false;
            };
            self.keys.rows += 1;
            if let Err(wrong) = self.record(line) {
                self.keys.rows -= 1;
                report(&self.block, line, &mut self.lines, &self.faults, wrong);
            }
        }
        true
    }

    fn record(&mut self, (start, stop): (usize, usize)) -> Result<(), Wrong> {
        let Self { known, block, keys, text, guesses, lines, scratch, .. } = self;
        let mut position = 0;
        object(&block.data[start..stop], scratch, |name, value| {
            let at =
                |lines: &mut Lines| Position { file: block.file, line: lines.of(block, start) };
            let key = match guesses.get(position) {
                Some((guess, key)) if guess == name => *key,
                _ => {
                    let first = (at(lines), position);
                    let key = keys.enter(name, first, known.as_ref(), text);
                    guesses.truncate(position);
                    guesses.push((name.to_vec(), key));
                    key
                }
            };
            position += 1;
            let key = &mut keys.found[key];
            let (look, bytes) = match value {
                Value::Null => return Ok(()),
                _ if key.skipped => {
                    key.values += 1;
                    return Ok(());
                }
                Value::Boolean(bytes) => (Look::Boolean, bytes),
                Value::Nested(bytes) => (Look::Text, bytes),
                // 1.0 and 1e3 are integers to some writers; the digits decide.
                Value::Number(bytes) => (look_exact(bytes), bytes),
                // A number in quotes was meant as text.
                Value::Text(bytes) => match look_exact(bytes) {
                    dated @ (Look::Date { .. } | Look::Timestamp { .. } | Look::Time) => {
                        (dated, bytes)
                    }
                    _ => (Look::Text, bytes),
                },
            };
            key.values += 1;
            key.skipped = key.guess.add(look, bytes, || at(lines));
            Ok(())
        })
    }
}

impl Keys {
    fn enter(
        &mut self,
        name: &[u8],
        first: (Position, usize),
        known: Option<&Finder>,
        text: &HashSet<String>,
    ) -> usize {
        let name = String::from_utf8_lossy(name);
        let name = name.trim();
        let lower = name.to_lowercase();
        if let Some(&key) = self.index.get(&lower) {
            return key;
        }
        let known = known.is_some_and(|known| known.find(name).is_some());
        let skipped = known || text.contains(&lower);
        let guess = Guess::default();
        self.found.push(Key { name: name.to_owned(), first, guess, values: 0, skipped, known });
        self.index.insert(lower, self.found.len() - 1);
        self.found.len() - 1
    }
}
