//! What a match is taken apart by, as PostgreSQL does it: each part has a preference, for the longest or
//! for the shortest text, and takes that before the parts behind it.
//!
//! The regex library finds where a part can end. It prefers the first alternative and the quantifiers of
//! the innermost parts, which are other matches: `foo|foobar` is `foobar` here. So it is asked for the
//! longest and the shortest text of a part, and what lies between is decided by [`super::search`].

use std::sync::OnceLock;

use regex_automata::MatchKind;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use thalweg_base::{Error, Result};

use super::parse::{Part, Prefers};

/// Preferences and contents of a part, by bits.
pub type Marks = u8;
pub const LONGEST: Marks = 1;
pub const SHORTEST: Marks = 2;
const PREFERENCE: Marks = LONGEST | SHORTEST;
const MIXED: Marks = 4;
const GROUP: Marks = 8;
const BACK: Marks = 16;
const TAKEN_APART: Marks = MIXED | GROUP | BACK;

/// The marks of a part as those of one within another.
fn inside(marks: Marks) -> Marks {
    let mixed = if marks & PREFERENCE == PREFERENCE { MIXED } else { 0 };
    marks & !PREFERENCE | mixed
}

/// The marks of two parts, one after the other: the first that has a preference decides.
fn combined(first: Marks, second: Marks) -> Marks {
    let preference = if first & PREFERENCE != 0 { first & PREFERENCE } else { second & PREFERENCE };
    inside(first | second) | preference
}

/// Bytes that the expression of one part may have in the words of the regex library.
const WRITTEN_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub struct Node {
    pub kind: Kind,
    pub marks: Marks,
    pub group: Option<usize>,
    pub covers: Covers,
}

#[derive(Debug)]
pub enum Kind {
    /// Nothing in it is asked for.
    Leaf,
    Then(Box<Node>, Box<Node>),
    Any(Vec<Node>),
    Repeat {
        inner: Box<Node>,
        min: u32,
        max: Option<u32>,
    },
    Back {
        group: usize,
        min: u32,
        max: Option<u32>,
    },
    /// A group of nothing but a group.
    Within(Box<Node>),
}

/// The texts that a part matches.
#[derive(Debug)]
pub enum Covers {
    Plain(Plain),
    Look { ahead: bool, negated: bool, inner: Box<Covers> },
    All(Vec<Covers>),
    Any(Vec<Covers>),
    Repeat { inner: Box<Covers>, min: u32, max: Option<u32> },
}

/// An expression of the regex library.
#[derive(Debug)]
pub struct Plain {
    pub text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Plain {
    fn new(text: String) -> Plain {
        Plain { text, compiled: OnceLock::new() }
    }

    /// The expression that finds the longest text.
    ///
    /// # Errors
    /// It is too large.
    pub fn regex(&self) -> Result<&Regex> {
        let made = self.compiled.get_or_init(|| compiled(&self.text, MatchKind::All).ok());
        made.as_ref().ok_or_else(too_complex)
    }
}

/// An expression in the words of the regex library.
///
/// # Errors
/// It is too large.
pub fn compiled(text: &str, kind: MatchKind) -> Result<Regex> {
    Regex::builder()
        .configure(Regex::config().match_kind(kind))
        .syntax(syntax::Config::new().nest_limit(1000))
        .build(text)
        .map_err(|_| too_complex())
}

pub fn too_complex() -> Error {
    Error::user("regular expression is too complex")
        .code("2201B")
        .hint("repeat less in it, or write several")
}

impl Covers {
    fn plain(&self) -> Option<&str> {
        match self {
            Covers::Plain(plain) => Some(&plain.text),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Covers::Plain(plain) => plain.text.len() + 1,
            Covers::Look { inner, .. } | Covers::Repeat { inner, .. } => inner.bytes() + 1,
            Covers::All(all) | Covers::Any(all) => all.iter().map(Covers::bytes).sum(),
        }
    }

    /// One after the other.
    fn all(parts: impl IntoIterator<Item = Covers>) -> Covers {
        let mut all: Vec<Covers> = vec![];
        let mut add = |part: Covers| match (all.last_mut(), part) {
            (Some(Covers::Plain(last)), Covers::Plain(part)) => last.text.push_str(&part.text),
            (_, part) => all.push(part),
        };
        for part in parts {
            match part {
                Covers::All(parts) => parts.into_iter().for_each(&mut add),
                part => add(part),
            }
        }
        match all.len() {
            0 => Covers::Plain(Plain::new(String::new())),
            1 => all.remove(0),
            _ => Covers::All(all),
        }
    }

    fn any(parts: Vec<Covers>) -> Covers {
        let texts: Option<Vec<&str>> = parts.iter().map(Covers::plain).collect();
        match texts {
            Some(texts) => Covers::Plain(Plain::new(format!("(?:{})", texts.join("|")))),
            None => Covers::Any(parts),
        }
    }

    fn repeat(inner: Covers, min: u32, max: Option<u32>) -> Covers {
        match inner.plain() {
            Some(text) => {
                let times = match max {
                    Some(max) => format!("{{{min},{max}}}"),
                    None => format!("{{{min},}}"),
                };
                Covers::Plain(Plain::new(format!("(?:{text}){times}")))
            }
            None => Covers::Repeat { inner: Box::new(inner), min, max },
        }
    }

    /// The texts of a part; what a group matched again is all that it can match.
    fn of(part: &Part, groups: &Groups) -> Result<Covers> {
        let of_all = |parts: &[Part]| {
            parts.iter().map(|part| Covers::of(part, groups)).collect::<Result<Vec<_>>>()
        };
        let covers = match part {
            Part::One(text) => Covers::Plain(Plain::new(text.clone())),
            Part::At(text) => Covers::Plain(Plain::new((*text).to_string())),
            Part::Look { ahead, negated, inner } => Covers::Look {
                ahead: *ahead,
                negated: *negated,
                inner: Box::new(Covers::of(inner, groups)?),
            },
            Part::Back { group, min, max } => {
                let inner = groups.get(*group).ok_or_else(too_complex)?;
                Covers::repeat(Covers::of(inner, groups)?, *min, *max)
            }
            Part::Group { inner, .. } => Covers::all([Covers::of(inner, groups)?]),
            Part::All(parts) => Covers::all(of_all(parts)?),
            Part::Any(parts) => Covers::any(of_all(parts)?),
            Part::Repeat { inner, min, max, .. } => {
                Covers::repeat(Covers::of(inner, groups)?, *min, *max)
            }
        };
        match covers.bytes() > WRITTEN_BYTES_MAX {
            true => Err(too_complex()),
            false => Ok(covers),
        }
    }
}

/// The groups of an expression by their numbers.
pub struct Groups<'p>(Vec<Option<&'p Part>>);

impl<'p> Groups<'p> {
    pub fn of(part: &'p Part, count: usize) -> Groups<'p> {
        fn find<'p>(part: &'p Part, found: &mut Vec<Option<&'p Part>>) {
            match part {
                Part::One(_) | Part::At(_) | Part::Back { .. } => {}
                Part::Look { inner, .. } | Part::Repeat { inner, .. } => find(inner, found),
                Part::Group { number, inner } => {
                    if let Some(place) = number.and_then(|number| found.get_mut(number)) {
                        *place = Some(inner);
                    }
                    find(inner, found);
                }
                Part::All(parts) | Part::Any(parts) => {
                    parts.iter().for_each(|part| find(part, found));
                }
            }
        }
        let mut found = vec![None; count + 1];
        find(part, &mut found);
        Groups(found)
    }

    fn get(&self, group: usize) -> Option<&'p Part> {
        self.0.get(group).copied().flatten()
    }
}

impl Node {
    fn leaf(parts: &[Part], marks: Marks, groups: &Groups) -> Result<Node> {
        let covers = parts.iter().map(|part| Covers::of(part, groups));
        let covers = Covers::all(covers.collect::<Result<Vec<_>>>()?);
        Ok(Node { kind: Kind::Leaf, marks, group: None, covers })
    }

    fn then(
        first: Node,
        second: Node,
        marks: Marks,
        parts: &[Part],
        groups: &Groups,
    ) -> Result<Node> {
        let covers = Node::leaf(parts, 0, groups)?.covers;
        let kind = Kind::Then(Box::new(first), Box::new(second));
        Ok(Node { kind, marks, group: None, covers })
    }

    /// A whole expression, or that within parentheses.
    pub fn of(part: &Part, groups: &Groups) -> Result<Node> {
        let Part::Any(branches) = part else {
            return match part {
                Part::All(parts) => Node::branch(parts, groups),
                part => Node::branch(std::slice::from_ref(part), groups),
            };
        };
        let nodes = branches.iter().map(|branch| Node::of(branch, groups));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let within = nodes.iter().fold(0, |marks, node| inside(marks | node.marks));
        let marks = LONGEST | within;
        let covers = Covers::of(part, groups)?;
        let kind = if within & TAKEN_APART == 0 { Kind::Leaf } else { Kind::Any(nodes) };
        Ok(Node { kind, marks, group: None, covers })
    }

    /// Parts one after the other. Those before the first that is to be taken apart are one part.
    fn branch(parts: &[Part], groups: &Groups) -> Result<Node> {
        let mut marks = 0;
        for (at, part) in parts.iter().enumerate() {
            let (atom_part, min, max, prefers) = match part {
                Part::Repeat { inner, min, max, prefers } => {
                    let marks = match prefers {
                        Prefers::Longest => LONGEST,
                        Prefers::Shortest => SHORTEST,
                        Prefers::Same => 0,
                    };
                    (inner.as_ref(), *min, *max, marks)
                }
                part => (part, 1, Some(1), 0),
            };
            // Its groups take no part.
            if max == Some(0) {
                continue;
            }
            let (atom, is_apart) = match atom_part {
                Part::Group { number, inner } => {
                    let node = Node::of(inner, groups)?;
                    let node = match number {
                        Some(_) if node.group.is_some() => Node {
                            marks: node.marks | GROUP,
                            group: *number,
                            covers: Covers::of(inner, groups)?,
                            kind: Kind::Within(Box::new(node)),
                        },
                        Some(_) => Node { group: *number, marks: node.marks | GROUP, ..node },
                        None => node,
                    };
                    (node, number.is_some())
                }
                Part::Back { group, min, max } => {
                    let kind = Kind::Back { group: *group, min: *min, max: *max };
                    let covers = Covers::of(atom_part, groups)?;
                    (Node { kind, marks: BACK, group: None, covers }, true)
                }
                part => (Node::leaf(std::slice::from_ref(part), 0, groups)?, false),
            };
            let met = marks | prefers | atom.marks;
            if !is_apart && inside(met) & TAKEN_APART == 0 {
                marks = met;
                continue;
            }
            let prefix = Node::leaf(&parts[..at], marks, groups)?;
            let first_marks = combined(prefers, atom.marks);
            let own = atom.marks & (PREFERENCE | MIXED);
            let is_once =
                (min, max) == (1, Some(1)) && (prefers == 0 || own == 0 || prefers == own);
            let first = if matches!(atom.kind, Kind::Back { .. }) || is_once {
                atom
            } else if atom.marks & (GROUP | BACK) == 0 {
                Node::leaf(std::slice::from_ref(part), first_marks, groups)?
            } else if min > 0 && atom.marks & BACK == 0 {
                // Only what the last of them matched is asked for.
                let before = Part::Repeat {
                    inner: Box::new(atom_part.clone()),
                    min: min - 1,
                    max: max.map(|max| max - 1),
                    prefers: Prefers::Longest,
                };
                let before =
                    Node::leaf(std::slice::from_ref(&before), first_marks & PREFERENCE, groups)?;
                Node::then(before, atom, first_marks, std::slice::from_ref(part), groups)?
            } else {
                let covers = Covers::of(part, groups)?;
                let kind = Kind::Repeat { inner: Box::new(atom), min, max };
                Node { kind, marks: first_marks, group: None, covers }
            };
            let rest = Node::branch(&parts[at + 1..], groups)?;
            let then_marks = first_marks | combined(first_marks, rest.marks);
            let then = Node::then(first, rest, then_marks, &parts[at..], groups)?;
            let all_marks = marks | combined(marks, then.marks);
            // Nothing before it, nothing to decide.
            return match at {
                0 => Ok(Node { marks: all_marks, ..then }),
                _ => Node::then(prefix, then, all_marks, parts, groups),
            };
        }
        Node::leaf(parts, marks, groups)
    }
}
