//! Columns of JSON: the keys of all records together, and what is in their values.
//!
//! A value that is an object has keys of its own, which become the fields of a struct; one that is an
//! array has items. Values of several kinds, objects that no struct can hold, and what is nested too
//! deeply are text. Each of these is decided by something that stays true whatever comes later, so that
//! it does not matter who looks at what first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use parking_lot::Mutex;

use super::guess::{Guess, Places};
use super::{Inferred, InferredColumn};
use crate::load::block::{Block, Lines};
use crate::load::input::Format;
use crate::load::json::{ONLY_COLUMN, next_record, read_record, report};
use crate::load::json_options::JsonOptions;
use crate::load::json_value::{Nested, Scratch, Value, Wrong, array, check, object};
use crate::load::layout::Finder;
use crate::load::parse::{Look, look_exact};
use crate::load::rejects::{Faults, Position};
use crate::load::spelling::Spellings;

/// Records looked at in one step.
const STEP_RECORDS: u64 = 4096;

/// Fields that a struct may have.
const FIELDS_MAX: usize = 1000;

/// Beyond so many keys, objects that have less than a tenth of them on average are no structs: their
/// keys are values, such as names or dates.
const SPARSE_FIELDS: usize = 200;

/// Keys met, in any order.
#[derive(Clone, Default)]
pub(super) struct Keys {
    found: Vec<Key>,
    /// By name in lower case: tables match their columns without regard to case.
    index: HashMap<String, usize>,
    /// Objects that they are of.
    rows: u64,
    /// Files in which records are counted rather than lines.
    by_row: BTreeSet<usize>,
    /// An object had a key twice, or in two spellings.
    twice: bool,
    /// Objects that were begun.
    turn: u64,
    /// The keys of the last object, in its order: the next one's guess.
    guesses: Vec<(Vec<u8>, usize)>,
}

#[derive(Clone)]
struct Key {
    name: String,
    /// Where it came first: the record, and how many keys came before it there.
    first: (Position, usize),
    values: Values,
    /// The turn of the object that had it last.
    last: u64,
    /// Nobody asks for it.
    known: bool,
}

/// What is known of the values of a key, or of the items of arrays.
#[derive(Clone, Default)]
struct Values {
    guess: Guess,
    count: u64,
    /// They are only counted.
    skipped: bool,
    items: Option<Box<Values>>,
    members: Option<Box<Keys>>,
    /// Objects had more keys than a struct may have.
    many: bool,
}

impl Values {
    fn merge(&mut self, other: Values) {
        self.guess.merge(&other.guess);
        self.count += other.count;
        self.many |= other.many;
        match (&mut self.items, other.items) {
            (Some(mine), Some(items)) => mine.merge(*items),
            (mine @ None, items) => *mine = items,
            _ => {}
        }
        match (&mut self.members, other.members) {
            (Some(mine), Some(members)) => mine.merge(*members),
            (mine @ None, members) => *mine = members,
            _ => {}
        }
        self.many |= self.members.as_ref().is_some_and(|m| m.found.len() > FIELDS_MAX);
        self.settle();
    }

    /// What is within values that are text is of no interest.
    fn settle(&mut self) {
        if self.guess.is_text() {
            (self.items, self.members) = (None, None);
        } else if self.many {
            self.members = None;
        }
    }

    /// Why they are text though all are objects.
    fn no_struct(&self) -> Option<&'static str> {
        if self.guess.is_text() || self.guess.none() || self.items.is_some() {
            return None;
        }
        if self.many {
            return Some("objects with more than 1,000 different keys");
        }
        let members = self.members.as_ref()?;
        let keys = members.found.len() as u64;
        let present: u64 = members.found.iter().map(|key| key.values.count).sum();
        if keys == 0 {
            Some("objects without keys")
        } else if members.twice {
            Some("an object with two keys that are the same but for case")
        } else if members.found.iter().any(|key| key.name.is_empty()) {
            Some("an object with an empty key")
        } else if keys > SPARSE_FIELDS as u64 && present.saturating_mul(10) < keys * members.rows {
            Some("objects with many different keys, of which each has few")
        } else {
            None
        }
    }

    fn data_type(&self) -> DataType {
        if self.guess.is_text() || self.guess.none() || self.no_struct().is_some() {
            DataType::Utf8View
        } else if let Some(items) = &self.items {
            DataType::List(Arc::new(Field::new_list_field(items.data_type(), true)))
        } else if let Some(members) = &self.members {
            let fields = members.in_order().into_iter();
            let fields = fields.map(|key| Field::new(&key.name, key.values.data_type(), true));
            DataType::Struct(fields.collect())
        } else {
            self.guess.data_type()
        }
    }
}

impl Keys {
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    fn in_order(&self) -> Vec<&Key> {
        let mut keys: Vec<&Key> = self.found.iter().collect();
        keys.sort_by_key(|key| key.first);
        keys
    }

    fn merge(&mut self, other: Keys) {
        self.rows += other.rows;
        self.by_row.extend(other.by_row);
        self.twice |= other.twice;
        for key in other.found {
            let lower = key.name.to_lowercase();
            match self.index.get(&lower) {
                Some(&known) => {
                    let mine = &mut self.found[known];
                    mine.values.merge(key.values);
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

    /// Without any record, and if all columns are asked for, there is the one that files without objects
    /// have.
    pub(super) fn inferred(&self, paths: &[Arc<PathBuf>], all: bool) -> Inferred {
        let places = Places { paths, by_row: &self.by_row };
        let column = |name: &str, values: &Values| {
            let mut guess = values.guess.clone();
            // A row may have two values, which is an error when it is read.
            guess.nulls = self.rows.saturating_sub(values.count);
            InferredColumn {
                name: name.to_owned(),
                data_type: values.data_type(),
                nulls: Some(guess.nulls),
                null_spellings: Vec::new(),
                why: match values.no_struct() {
                    Some(why) => why.to_owned(),
                    None => guess.why(&places, self.rows),
                },
                order: None,
            }
        };
        let keys = self.in_order();
        let keys = keys.into_iter().filter(|key| !key.known);
        let mut columns: Vec<_> = keys.map(|key| column(&key.name, &key.values)).collect();
        if self.is_empty() && all {
            columns.push(column(ONLY_COLUMN, &Values::default()));
        }
        Inferred { columns, rows: Some(self.rows), header: None, dialects: Vec::new() }
    }
}

/// Some records of one file.
pub struct Piece {
    all: Arc<Mutex<Keys>>,
    known: Option<Finder>,
    options: JsonOptions,
    spellings: Option<Spellings>,
    block: Block,
    faults: Arc<Faults>,
    keys: Keys,
    /// Keys that were text before this block began.
    text: HashSet<String>,
    pos: usize,
    lines: Lines,
    scratch: Scratch,
}

impl Piece {
    pub(super) fn new(
        all: Arc<Mutex<Keys>>,
        known: Option<SchemaRef>,
        format: Format,
        block: Block,
        faults: Arc<Faults>,
    ) -> Piece {
        let at = block.position();
        let text = {
            let all = all.lock();
            let is_text = |key: &&Key| key.values.guess.text_at().is_some_and(|text| text < at);
            all.found.iter().filter(is_text).map(|key| key.name.to_lowercase()).collect()
        };
        let options = match format {
            Format::Json(options) => options,
            _ => JsonOptions::default(),
        };
        let by_row = block.pieces.iter().map(|_| block.file).collect();
        let known = known.map(|known| Finder::new(&known));
        Piece {
            all,
            known,
            spellings: Spellings::new(&options.spelled()),
            options,
            pos: block.start,
            block,
            faults,
            keys: Keys { by_row, ..Keys::default() },
            text,
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
            (self.keys.rows, self.keys.turn) = (self.keys.rows + 1, self.keys.turn + 1);
            if let Err(wrong) = self.record(line) {
                self.keys.rows -= 1;
                report(&self.block, line, &mut self.lines, &self.faults, wrong);
            }
        }
        true
    }

    fn record(&mut self, (start, stop): (usize, usize)) -> Result<(), Wrong> {
        let Self { known, options, spellings, block, keys, text, lines, scratch, .. } = self;
        let mut record = Record {
            block,
            start,
            lines,
            options,
            spellings: spellings.as_ref(),
            keys: 0,
            spelled: Vec::new(),
        };
        let mut position = 0;
        read_record(block, (start, stop), options, scratch, |name, value| {
            let mut told = |name: &str, lower: &str| {
                let known = known.as_ref().is_some_and(|known| known.find(name).is_some());
                (known, known || text.contains(lower))
            };
            let key = keys.enter(position, name, &mut record, &mut told);
            position += 1;
            record.visit(&mut keys.found[key].values, value, 1)
        })
    }
}

/// The record that is looked at.
struct Record<'a> {
    block: &'a Block,
    start: usize,
    lines: &'a mut Lines,
    options: &'a JsonOptions,
    spellings: Option<&'a Spellings>,
    /// Keys met in it.
    keys: usize,
    spelled: Vec<u8>,
}

impl Record<'_> {
    fn at(&mut self) -> Position {
        Position { file: self.block.file, line: self.lines.of(self.block, self.start) }
    }

    /// Looks at a value at a depth from 1.
    fn visit(&mut self, values: &mut Values, value: Value<'_>, depth: usize) -> Result<(), Wrong> {
        let (look, bytes) = match value {
            Value::Null => return Ok(()),
            Value::Nested(nested) => return self.nested(values, nested, depth),
            _ if values.skipped => {
                values.count += 1;
                return Ok(());
            }
            Value::Boolean(bytes) => (Look::Boolean, bytes),
            // 1.0 and 1e3 are integers to some writers; the digits decide.
            Value::Number(bytes) => (look_exact(bytes), bytes),
            // A number in quotes was meant as text.
            Value::Text(bytes) => {
                let look = match self.spellings {
                    Some(spellings) => spellings.look(bytes, &mut self.spelled),
                    None => look_exact(bytes),
                };
                match look {
                    Look::Date { .. } | Look::Timestamp { .. } | Look::Time => (look, bytes),
                    _ => (Look::Text, bytes),
                }
            }
        };
        let all_text = self.options.book.as_ref().is_some_and(|book| book.all_varchar);
        let look = if all_text { Look::Text } else { look };
        values.count += 1;
        values.skipped = values.guess.add(look, bytes, || self.at());
        Ok(())
    }

    fn nested(
        &mut self,
        values: &mut Values,
        nested: Nested<'_>,
        depth: usize,
    ) -> Result<(), Wrong> {
        if values.skipped {
            check(nested)?;
            values.count += 1;
            return Ok(());
        }
        let look = match nested.is_array() {
            _ if depth >= self.options.depth_max => Look::Text,
            true => Look::List,
            false => Look::Struct,
        };
        values.skipped = values.guess.add(look, nested.bytes, || self.at());
        if look == Look::Text || values.guess.is_text() || values.many && look == Look::Struct {
            values.settle();
            check(nested)?;
            values.count += 1;
            return Ok(());
        }
        let mut scratch = Scratch::default();
        let done = match look {
            Look::List => {
                let items = values.items.get_or_insert_default();
                array(nested.bytes, &mut scratch, |item| self.visit(items, item, depth + 1))
            }
            _ => {
                let keys = values.members.get_or_insert_default();
                (keys.rows, keys.turn) = (keys.rows + 1, keys.turn + 1);
                let mut position = 0;
                let mut told = |_: &str, _: &str| (false, false);
                let done = object(nested.bytes, &mut scratch, |name, value| {
                    let key = keys.enter(position, name, self, &mut told);
                    position += 1;
                    self.visit(&mut keys.found[key].values, value, depth + 1)
                });
                if done.is_err() {
                    keys.rows -= 1;
                }
                values.many = keys.found.len() > FIELDS_MAX;
                values.settle();
                done
            }
        };
        done.map_err(|wrong| wrong.within(nested))?;
        values.count += 1;
        Ok(())
    }
}

impl Keys {
    /// The place of the key that stands at `position` of an object. `told` says of a name, and the same in
    /// lower case, whether nobody asks for it, and whether its values are only counted.
    fn enter(
        &mut self,
        position: usize,
        name: &[u8],
        record: &mut Record<'_>,
        told: &mut dyn FnMut(&str, &str) -> (bool, bool),
    ) -> usize {
        record.keys += 1;
        let key = match self.guesses.get(position) {
            Some((guess, key)) if guess == name => *key,
            _ => {
                let key = self.find_or_add(name, record, told);
                self.guesses.truncate(position);
                self.guesses.push((name.to_vec(), key));
                key
            }
        };
        let last = &mut self.found[key].last;
        self.twice |= *last == self.turn;
        *last = self.turn;
        key
    }

    fn find_or_add(
        &mut self,
        name: &[u8],
        record: &mut Record<'_>,
        told: &mut dyn FnMut(&str, &str) -> (bool, bool),
    ) -> usize {
        let name = String::from_utf8_lossy(name);
        let name = name.trim();
        let lower = name.to_lowercase();
        if let Some(&key) = self.index.get(&lower) {
            return key;
        }
        let (known, skipped) = told(name, &lower);
        let first = (record.at(), record.keys);
        let values = Values { skipped, ..Values::default() };
        self.found.push(Key { name: name.to_owned(), first, values, last: 0, known });
        self.index.insert(lower, self.found.len() - 1);
        self.found.len() - 1
    }
}
