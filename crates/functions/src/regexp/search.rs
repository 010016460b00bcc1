//! Where an expression matches, and its groups.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input, MatchKind};
use thalweg_base::{Error, Result};

use super::parse::{Flags, Part, Prefers, parse};
use super::tree::{Covers, Groups, Kind, Node, Plain, SHORTEST, compiled};

/// An expression ready to be matched.
#[derive(Debug)]
pub struct Regexp {
    root: Node,
    /// Finds where a match begins: of an expression that looks around or back, where one may.
    first: Regex,
    /// The whole expression in the words of the regex library, if it has words for it.
    plain: Option<String>,
    pub groups: usize,
    any_case: bool,
    /// What `first` finds ends where it should.
    is_certain: bool,
    /// Of what `first` finds, the groups are right if the end is.
    in_turn: bool,
}

/// A match, and what its groups matched: places in bytes.
pub type Found = Vec<Option<(usize, usize)>>;

impl Regexp {
    /// # Errors
    /// It is none, or too large.
    pub fn new(pattern: &str, flags: Flags) -> Result<Regexp> {
        let parsed = parse(pattern, flags)?;
        let groups = Groups::of(&parsed.part, parsed.groups);
        let root = Node::of(&parsed.part, &groups)?;
        let plain = has_words(&parsed.part).then(|| words(&parsed.part));
        let (text, in_turn) = match &plain {
            Some(text) => (text.clone(), in_turn(&parsed.part)),
            None => (wider(&root.covers), false),
        };
        let first = compiled(&text, MatchKind::LeftmostFirst)?;
        let is_mixed = is_mixed(&parsed.part);
        let is_certain = plain.is_some() && ordered(&parsed.part) && !is_mixed;
        let in_turn = in_turn && !is_mixed;
        Ok(Regexp {
            root,
            first,
            plain,
            groups: parsed.groups,
            any_case: parsed.flags.any_case,
            is_certain,
            in_turn,
        })
    }

    /// The expression in the words of the regex library; `None` if it has none for it.
    pub fn plain(&self) -> Option<&str> {
        self.plain.as_deref()
    }

    /// # Errors
    /// It takes too long.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        match self.plain {
            Some(_) => Ok(self.first.is_match(text)),
            None => Ok(self.find(text, 0, false)?.is_some()),
        }
    }

    /// The first match at or behind a place; without `groups`, it alone.
    ///
    /// # Errors
    /// It takes too long.
    pub fn find(&self, text: &str, from: usize, groups: bool) -> Result<Option<Found>> {
        let groups = groups && self.groups > 0;
        if self.plain.is_none() {
            return self.find_slowly(text, from);
        }
        let input = Input::new(text).span(from..text.len());
        let found = match groups && self.in_turn {
            true => {
                let mut captures = self.first.create_captures();
                self.first.search_captures(&input, &mut captures);
                captures.get_match().map(|found| (found, Some(captures)))
            }
            false => self.first.find(input).map(|found| (found, None)),
        };
        let Some((found, captures)) = found else { return Ok(None) };
        let search = Search::new(self, text);
        let begin = found.start();
        let end = match self.is_certain {
            true => Some(found.end()),
            false => search.end(&self.root, begin, begin, text.len())?,
        };
        // It does match there.
        let Some(end) = end else { return Ok(None) };
        let mut all: Found = vec![None; self.groups + 1];
        all[0] = Some((begin, end));
        if !groups {
            return Ok(Some(all));
        }
        if let Some(captures) = captures.filter(|_| end == found.end()) {
            for (group, place) in all.iter_mut().enumerate() {
                *place = captures.get_group(group).map(|span| (span.start, span.end));
            }
            return Ok(Some(all));
        }
        search.dissect(&self.root, begin, end, &mut all)?;
        all[0] = Some((begin, end));
        Ok(Some(all))
    }

    /// Of what looks around or back each place is tried.
    pub(super) fn find_slowly(&self, text: &str, from: usize) -> Result<Option<Found>> {
        let search = Search::new(self, text);
        let mut begin = from;
        loop {
            let Some(next) = self.first.find(Input::new(text).span(begin..text.len())) else {
                return Ok(None);
            };
            begin = next.start();
            search.work(text.len() - begin)?;
            let (mut least, mut most) = (begin, text.len());
            while let Some(end) = search.end(&self.root, begin, least, most)? {
                let mut all: Found = vec![None; self.groups + 1];
                if search.dissect(&self.root, begin, end, &mut all)? {
                    all[0] = Some((begin, end));
                    return Ok(Some(all));
                }
                match search.next_end(&self.root, begin, end, &mut least, &mut most) {
                    true => {}
                    false => break,
                }
            }
            match text[begin..].chars().next() {
                Some(c) => begin += c.len_utf8(),
                None => return Ok(None),
            }
        }
    }
}

/// Bytes that one search may look at.
const WORK_MAX: u64 = 1 << 30;

/// A part that looks around, and where it begins.
type Begin = (*const Covers, usize);

/// A search in one text.
struct Search<'r, 't> {
    text: &'t str,
    any_case: bool,
    work: Cell<u64>,
    /// Where parts that look around end, by where they begin.
    ends: RefCell<HashMap<Begin, Rc<[usize]>>>,
    of: std::marker::PhantomData<&'r Regexp>,
}

impl<'r, 't> Search<'r, 't> {
    fn new(regexp: &'r Regexp, text: &'t str) -> Self {
        Search {
            text,
            any_case: regexp.any_case,
            work: Cell::new(0),
            ends: RefCell::default(),
            of: std::marker::PhantomData,
        }
    }

    fn work(&self, bytes: usize) -> Result<()> {
        let work = self.work.get() + bytes as u64 + 1;
        self.work.set(work);
        match work > WORK_MAX {
            false => Ok(()),
            true => Err(Error::user("matching the regular expression takes too many steps")
                .code("54000")
                .hint("ask for less that is of any length in it, or match shorter texts")),
        }
    }

    /// The end of a part that it prefers, from `least` to `most`.
    fn end(
        &self,
        node: &'r Node,
        begin: usize,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>> {
        match node.marks & SHORTEST != 0 {
            true => self.shortest(&node.covers, begin, least, most),
            false => self.longest(&node.covers, begin, least, most),
        }
    }

    /// Narrows the bounds to what comes behind an end; `false` if there is nothing.
    fn next_end(
        &self,
        node: &Node,
        begin: usize,
        end: usize,
        least: &mut usize,
        most: &mut usize,
    ) -> bool {
        if node.marks & SHORTEST != 0 {
            *least = end + self.text[end..].chars().next().map_or(1, char::len_utf8);
            *least <= *most
        } else {
            let before = self.text[begin..end].chars().next_back();
            *most = end - before.map_or(0, char::len_utf8);
            before.is_some() && *most >= *least
        }
    }

    fn longest(
        &self,
        covers: &'r Covers,
        begin: usize,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>> {
        match covers {
            Covers::Plain(plain) => {
                self.work(most - begin)?;
                let end = plain_end(plain, self.text, begin, most, false)?;
                Ok(end.filter(|end| *end >= least))
            }
            other => {
                let ends = self.ends(other, begin)?;
                Ok(ends.iter().rev().copied().find(|end| *end <= most && *end >= least))
            }
        }
    }

    fn shortest(
        &self,
        covers: &'r Covers,
        begin: usize,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>> {
        let Covers::Plain(plain) = covers else {
            let ends = self.ends(covers, begin)?;
            return Ok(ends.iter().copied().find(|end| *end <= most && *end >= least));
        };
        self.work(most - begin)?;
        let Some(first) = plain_end(plain, self.text, begin, most, true)? else {
            return Ok(None);
        };
        if first >= least {
            return Ok(Some(first));
        }
        let mut end = least;
        while end <= most {
            if self.exact(covers, begin, end)? {
                return Ok(Some(end));
            }
            end += self.text[end..].chars().next().map_or(1, char::len_utf8);
        }
        Ok(None)
    }

    fn exact(&self, covers: &'r Covers, begin: usize, end: usize) -> Result<bool> {
        Ok(self.longest(covers, begin, end, end)?.is_some())
    }

    /// All places where a part can end, in order.
    fn ends(&self, covers: &'r Covers, begin: usize) -> Result<Rc<[usize]>> {
        let key = (std::ptr::from_ref(covers), begin);
        if let Some(known) = self.ends.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        self.work(1)?;
        let mut ends: Vec<usize> = vec![];
        match covers {
            Covers::Plain(_) => {
                let mut most = self.text.len();
                while let Some(end) = self.longest(covers, begin, begin, most)? {
                    ends.push(end);
                    match self.text[begin..end].chars().next_back() {
                        Some(c) => most = end - c.len_utf8(),
                        None => break,
                    }
                }
            }
            Covers::Look { ahead, negated, inner } => {
                let is_there = match ahead {
                    true => self.shortest(inner, begin, begin, self.text.len())?.is_some(),
                    false => self.is_behind(inner, begin)?,
                };
                if is_there != *negated {
                    ends.push(begin);
                }
            }
            Covers::All(parts) => {
                ends.push(begin);
                for part in parts {
                    ends = self.ends_of_all(part, &ends)?;
                }
            }
            Covers::Any(parts) => {
                for part in parts {
                    ends.extend(self.ends(part, begin)?.iter());
                }
            }
            Covers::Repeat { inner, min, max } => {
                let mut now = vec![begin];
                if *min == 0 {
                    ends.push(begin);
                }
                let mut times = 0;
                while max.is_none_or(|max| times < max) && !now.is_empty() {
                    let next = self.ends_of_all(inner, &now)?;
                    times += 1;
                    // What was there already leads nowhere new.
                    let is_new = |end: &usize| times <= *min || !ends.contains(end);
                    now = next.into_iter().filter(is_new).collect();
                    if times >= *min {
                        ends.extend(&now);
                    }
                }
            }
        }
        ends.sort_unstable();
        ends.dedup();
        let ends: Rc<[usize]> = ends.into();
        self.ends.borrow_mut().insert(key, Rc::clone(&ends));
        Ok(ends)
    }

    fn ends_of_all(&self, covers: &'r Covers, begins: &[usize]) -> Result<Vec<usize>> {
        let mut all = vec![];
        for begin in begins {
            all.extend(self.ends(covers, *begin)?.iter());
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Whether a text of a part ends here.
    fn is_behind(&self, covers: &'r Covers, end: usize) -> Result<bool> {
        let begins = self.text[..end].char_indices().rev().map(|(at, _)| at);
        for begin in std::iter::once(end).chain(begins) {
            if self.exact(covers, begin, end)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the groups of a part match if it is what lies between two places; `false` if it cannot be.
    fn dissect(&self, node: &'r Node, begin: usize, end: usize, all: &mut Found) -> Result<bool> {
        let is_it = match &node.kind {
            Kind::Leaf => true,
            Kind::Within(inner) => self.dissect(inner, begin, end, all)?,
            Kind::Then(first, second) => self.dissect_two(first, second, begin, end, all)?,
            Kind::Any(nodes) => {
                let mut is_one = false;
                for node in nodes {
                    if self.exact(&node.covers, begin, end)?
                        && self.dissect(node, begin, end, all)?
                    {
                        is_one = true;
                        break;
                    }
                    forget(node, all);
                }
                is_one
            }
            Kind::Repeat { inner, min, max } => {
                let is_optional = *min == 0;
                let characters = self.text[begin..end].chars().count();
                let min = (*min).max(1) as usize;
                let max = max.map_or(characters, |max| characters.min(max as usize)).max(min);
                let times = Times { inner, min, max, end };
                // Nothing is matched once if it can be, and else not at all.
                self.dissect_times(&times, 1, begin, all)? || is_optional && begin == end
            }
            Kind::Back { group, min, max } => match all.get(*group).copied().flatten() {
                Some((from, to)) => {
                    let what = &self.text[from..to];
                    is_repeated(&self.text[begin..end], what, *min, *max, self.any_case)
                }
                None => false,
            },
        };
        if let (true, Some(group)) = (is_it, node.group) {
            all[group] = Some((begin, end));
        }
        Ok(is_it)
    }

    fn dissect_two(
        &self,
        first: &'r Node,
        second: &'r Node,
        begin: usize,
        end: usize,
        all: &mut Found,
    ) -> Result<bool> {
        let (mut least, mut most) = (begin, end);
        while let Some(middle) = self.end(first, begin, least, most)? {
            if self.exact(&second.covers, middle, end)?
                && self.dissect(first, begin, middle, all)?
                && self.dissect(second, middle, end, all)?
            {
                return Ok(true);
            }
            forget(first, all);
            forget(second, all);
            if !self.next_end(first, begin, middle, &mut least, &mut most) {
                break;
            }
        }
        Ok(false)
    }

    /// From the `nth` time on. None is empty but as many as it takes to have enough.
    fn dissect_times(
        &self,
        times: &Times<'r>,
        nth: usize,
        begin: usize,
        all: &mut Found,
    ) -> Result<bool> {
        let (mut least, mut most) = (begin, times.end);
        while let Some(next) = self.end(times.inner, begin, least, most)? {
            let is_last = next == times.end;
            let is_wanted = || {
                let left = self.text[next..times.end].chars().count();
                nth < times.min && times.min - nth >= left
            };
            let leads_on = match is_last {
                true => nth >= times.min,
                false => nth < times.max && (next != begin || is_wanted()),
            };
            if leads_on {
                forget(times.inner, all);
                if self.dissect(times.inner, begin, next, all)?
                    && (is_last || self.dissect_times(times, nth + 1, next, all)?)
                {
                    return Ok(true);
                }
                forget(times.inner, all);
            }
            if !self.next_end(times.inner, begin, next, &mut least, &mut most) {
                break;
            }
        }
        Ok(false)
    }
}

/// A part several times, up to a place.
struct Times<'r> {
    inner: &'r Node,
    min: usize,
    max: usize,
    end: usize,
}

/// The groups of a part have matched nothing yet.
fn forget(node: &Node, all: &mut Found) {
    if let Some(group) = node.group {
        all[group] = None;
    }
    match &node.kind {
        Kind::Leaf | Kind::Back { .. } => {}
        Kind::Within(inner) | Kind::Repeat { inner, .. } => forget(inner, all),
        Kind::Then(first, second) => {
            forget(first, all);
            forget(second, all);
        }
        Kind::Any(nodes) => nodes.iter().for_each(|node| forget(node, all)),
    }
}

/// The longest or the shortest text from `begin` that ends before or at `most`.
fn plain_end(
    plain: &Plain,
    text: &str,
    begin: usize,
    most: usize,
    shortest: bool,
) -> Result<Option<usize>> {
    let input = Input::new(text).span(begin..most).anchored(Anchored::Yes).earliest(shortest);
    Ok(plain.regex()?.search_half(&input).map(|half| half.offset()))
}

/// Whether a text is another, so many times.
fn is_repeated(text: &str, what: &str, min: u32, max: Option<u32>, any_case: bool) -> bool {
    if what.is_empty() {
        return text.is_empty();
    }
    let fold = |text: &str| -> Vec<char> {
        match any_case {
            true => text.chars().map(thalweg_base::text::one_lower).collect(),
            false => text.chars().collect(),
        }
    };
    let (text, what) = (fold(text), fold(what));
    let times = text.len() / what.len();
    text.len() % what.len() == 0
        && times >= min as usize
        && max.is_none_or(|max| times <= max as usize)
        && text.chunks(what.len()).all(|chunk| chunk == what)
}

/// Whether the regex library has words for a part.
fn has_words(part: &Part) -> bool {
    match part {
        Part::One(_) | Part::At(_) => true,
        Part::Look { .. } | Part::Back { .. } => false,
        Part::Group { inner, .. } | Part::Repeat { inner, .. } => has_words(inner),
        Part::All(parts) | Part::Any(parts) => parts.iter().all(has_words),
    }
}

/// A part in the words of the regex library, with its groups and preferences.
fn words(part: &Part) -> String {
    match part {
        Part::One(text) => text.clone(),
        Part::At(text) => (*text).to_string(),
        Part::Group { number: Some(_), inner } => format!("({})", words(inner)),
        Part::Group { number: None, inner } => format!("(?:{})", words(inner)),
        Part::All(parts) => parts.iter().map(words).collect(),
        Part::Any(parts) => parts.iter().map(words).collect::<Vec<_>>().join("|"),
        Part::Repeat { inner, min, max, prefers } => {
            let inner = words(inner);
            let inner = if inner.is_empty() { "(?:)".into() } else { inner };
            let sign = if *prefers == Prefers::Shortest { "?" } else { "" };
            match (min, max) {
                (0, None) => format!("{inner}*{sign}"),
                (1, None) => format!("{inner}+{sign}"),
                (0, Some(1)) => format!("{inner}?{sign}"),
                (min, None) => format!("{inner}{{{min},}}{sign}"),
                (min, Some(max)) if min == max => format!("{inner}{{{min}}}"),
                (min, Some(max)) => format!("{inner}{{{min},{max}}}{sign}"),
            }
        }
        // These have none.
        Part::Look { .. } | Part::Back { .. } => String::new(),
    }
}

/// What matches at least where the part does: without what it looks at around it.
fn wider(covers: &Covers) -> String {
    match covers {
        Covers::Plain(plain) => plain.text.clone(),
        Covers::Look { .. } => String::new(),
        Covers::All(parts) => parts.iter().map(wider).collect(),
        Covers::Any(parts) => {
            format!("(?:{})", parts.iter().map(wider).collect::<Vec<_>>().join("|"))
        }
        Covers::Repeat { inner, min, max } => {
            let max = max.map(|max| max.to_string()).unwrap_or_default();
            format!("(?:{}){{{min},{max}}}", wider(inner))
        }
    }
}

/// Characters that a part has at least and at most.
fn lengths(part: &Part) -> (u32, Option<u32>) {
    match part {
        Part::One(_) => (1, Some(1)),
        Part::At(_) | Part::Look { .. } => (0, Some(0)),
        Part::Back { .. } => (0, None),
        Part::Group { inner, .. } => lengths(inner),
        Part::All(parts) => parts.iter().map(lengths).fold((0, Some(0)), |all, one| {
            (all.0.saturating_add(one.0), all.1.zip(one.1).map(|(a, b)| a.saturating_add(b)))
        }),
        Part::Any(parts) => {
            let mut all = parts.iter().map(lengths);
            let first = all.next().unwrap_or((0, Some(0)));
            all.fold(first, |a, b| (a.0.min(b.0), a.1.zip(b.1).map(|(a, b)| a.max(b))))
        }
        Part::Repeat { inner, min, max, .. } => {
            let of = lengths(inner);
            (of.0.saturating_mul(*min), of.1.zip(*max).map(|(a, b)| a.saturating_mul(b)))
        }
    }
}

fn is_fixed(part: &Part) -> bool {
    let (least, most) = lengths(part);
    Some(least) == most
}

/// Whether the regex library tries the ends of a part in the order in which we do: the part has one piece at
/// most that is not of one length, and that is a repetition of what is.
fn ordered(part: &Part) -> bool {
    match part {
        Part::One(_) | Part::At(_) => true,
        Part::Look { .. } | Part::Back { .. } => false,
        Part::Group { inner, .. } => ordered(inner),
        Part::All(parts) => parts.iter().all(ordered) && varying(parts) <= 1,
        Part::Any(_) => is_fixed(part) && !has_groups(part),
        // `x{2,2}?` is of one length and prefers the shortest all the same, also for what follows.
        Part::Repeat { prefers: Prefers::Shortest, min, max: Some(max), .. } if min == max => false,
        Part::Repeat { inner, .. } => is_fixed(inner) && lengths(inner).0 > 0 && ordered(inner),
    }
}

/// Whether there are parts that prefer the shortest text and others that prefer the longest: the first of
/// them decides for all, which the regex library knows nothing of.
fn is_mixed(part: &Part) -> bool {
    fn look(part: &Part, shortest: &mut bool, longest: &mut bool) {
        match part {
            Part::One(_) | Part::At(_) | Part::Look { .. } | Part::Back { .. } => {}
            Part::Group { inner, .. } => look(inner, shortest, longest),
            Part::All(parts) => parts.iter().for_each(|part| look(part, shortest, longest)),
            Part::Any(parts) => {
                *longest = true;
                parts.iter().for_each(|part| look(part, shortest, longest));
            }
            Part::Repeat { inner, prefers, .. } => {
                *shortest |= *prefers == Prefers::Shortest;
                *longest |= *prefers == Prefers::Longest;
                look(inner, shortest, longest);
            }
        }
    }
    let (mut shortest, mut longest) = (false, false);
    look(part, &mut shortest, &mut longest);
    shortest && longest
}

/// How many parts, one after the other, are not of one length and can end at several places: `s?` before
/// `:` cannot.
fn varying(parts: &[Part]) -> usize {
    let letter = |part: &Part| match part {
        Part::One(text) if !text.starts_with(['[', '(']) => Some(text.clone()),
        _ => None,
    };
    let is_forced = |at: usize| match (&parts[at], parts.get(at + 1).and_then(letter)) {
        (Part::Repeat { inner, .. }, Some(next)) => letter(inner).is_some_and(|own| own != next),
        _ => false,
    };
    (0..parts.len()).filter(|at| !is_fixed(&parts[*at]) && !is_forced(*at)).count()
}

fn has_groups(part: &Part) -> bool {
    match part {
        Part::One(_) | Part::At(_) | Part::Look { .. } | Part::Back { .. } => false,
        Part::Group { number, inner } => number.is_some() || has_groups(inner),
        Part::All(parts) | Part::Any(parts) => parts.iter().any(has_groups),
        Part::Repeat { inner, .. } => has_groups(inner),
    }
}

/// Whether the parts of an expression, one after the other, are [ordered] each, and are those that a match is
/// taken apart into: then the first match that ends where it should is the right one.
fn in_turn(part: &Part) -> bool {
    let Part::All(parts) = part else { return false };
    // What comes before a group, back to the one before that, is one part.
    parts.iter().all(ordered) && parts.split(has_groups).all(|between| varying(between) <= 1)
}
