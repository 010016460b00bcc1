//! The modules of a crate as its files declare them, and which of them each one names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::source::{Token, group_end, tokens};

/// Words that a path goes through, from the root of the crate on.
type Names = Vec<String>;

/// A module that is a file.
pub struct Module {
    /// The file, as it is told to whoever reads of a circle.
    pub file: String,
    tokens: Vec<Token>,
    /// Modules with a file of their own that it declares.
    children: BTreeSet<String>,
    /// What it defines, modules within the file included.
    defined: BTreeSet<String>,
    /// What `use` gives a name in it.
    imported: BTreeMap<String, Names>,
    /// What is imported as a whole, under the names that it has there.
    globs: Vec<Names>,
}

/// An import or a path: where it stands and which file it leads to.
#[derive(Clone, Debug)]
pub struct Mention {
    pub line: usize,
    pub path: String,
    pub target: Names,
}

/// The files of one crate by the paths of their modules; the root's is empty.
pub struct Crate {
    pub modules: BTreeMap<Names, Module>,
}

impl Crate {
    /// Reads the crate whose root is this file, and the modules it declares.
    pub fn read(root: &Path, told_from: &Path) -> Crate {
        let mut found = Crate { modules: BTreeMap::new() };
        found.add(Vec::new(), root, told_from);
        found
    }

    fn add(&mut self, names: Names, file: &Path, told_from: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let told = file.strip_prefix(told_from).unwrap_or(file).display().to_string();
        let module = Module::new(told, tokens(&text), &names);
        let stem = file.file_stem().unwrap_or_default();
        let owns_folder = names.is_empty() || stem == "mod";
        let folder = if owns_folder { file.with_file_name("") } else { file.with_extension("") };
        for child in module.children.clone() {
            let candidates: [PathBuf; 2] =
                [folder.join(format!("{child}.rs")), folder.join(&child).join("mod.rs")];
            let file = candidates.iter().find(|file| file.exists());
            let file = file.unwrap_or_else(|| panic!("no file of {child} in {}", folder.display()));
            self.add(joined(&names, &[child]), file, told_from);
        }
        self.modules.insert(names, module);
    }

    /// The file that a path leads to, also through what modules on the way import.
    fn target(&self, path: &[String]) -> Names {
        self.resolved(path, 0).0
    }

    /// The file that a path leads to, and whether what it names is really there.
    fn resolved(&self, path: &[String], steps: usize) -> (Names, bool) {
        let length = (0..=path.len()).rev().find(|n| self.modules.contains_key(&path[..*n]));
        let (names, rest) = path.split_at(length.unwrap_or(0));
        let module = &self.modules[names];
        let Some(first) = rest.first() else { return (names.to_vec(), true) };
        let here = (names.to_vec(), module.defined.contains(first));
        if here.1 || steps == 16 {
            return here;
        }
        if let Some(origin) = module.imported.get(first) {
            return self.resolved(&joined(origin, &rest[1..]), steps + 1);
        }
        let mut globs = module.globs.iter().map(|g| self.resolved(&joined(g, rest), steps + 1));
        globs.find(|(_, is_there)| *is_there).unwrap_or(here)
    }

    /// What a module names of other files of the crate.
    pub fn mentions(&self, names: &Names) -> Vec<Mention> {
        let module = &self.modules[names];
        let used = module.words_outside_uses();
        let mut found = Vec::new();
        walk(&module.tokens, names, &mut |place, at| {
            for import in place.imports(module, at) {
                // A name that is only handed on is not known here; whoever takes it from here
                // knows the module that it comes from.
                if import.is_public && !import.is_glob && !used.contains(&import.name) {
                    continue;
                }
                // The name of a module is the beginning of a path; that path is what counts.
                if !import.is_glob && self.modules.contains_key(&import.path) {
                    continue;
                }
                found.push((import.line, import.path));
            }
            if !place.in_use
                && let Some(path) = place.path(module, at)
            {
                found.push((module.tokens[at].line, path));
            }
        });
        let mention = |(line, path): (usize, Names)| Mention {
            line,
            path: format!("crate::{}", path.join("::")),
            target: self.target(&path),
        };
        found.into_iter().map(mention).filter(|m| m.target != *names).collect()
    }
}

impl Module {
    fn new(file: String, tokens: Vec<Token>, names: &Names) -> Module {
        let mut module = Module {
            file,
            tokens: Vec::new(),
            children: BTreeSet::new(),
            defined: BTreeSet::new(),
            imported: BTreeMap::new(),
            globs: Vec::new(),
        };
        const DEFINING: [&str; 9] =
            ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod"];
        for (at, pair) in tokens.windows(2).enumerate() {
            if pair[0].is("mod") && tokens.get(at + 2).is_some_and(|token| token.is(";")) {
                module.children.insert(pair[1].text.clone());
            } else if DEFINING.contains(&pair[0].text.as_str()) && pair[1].is_word() {
                module.defined.insert(pair[1].text.clone());
            } else if pair[0].is("macro_rules") {
                module.defined.extend(tokens.get(at + 2).map(|name| name.text.clone()));
            }
        }
        module.tokens = tokens;
        let mut imports = Vec::new();
        walk(&module.tokens, names, &mut |place, at| imports.extend(place.imports(&module, at)));
        for import in imports {
            if import.is_glob {
                module.globs.push(import.path);
            } else {
                module.imported.insert(import.name, import.path);
            }
        }
        module
    }

    fn words_outside_uses(&self) -> BTreeSet<String> {
        let mut words = BTreeSet::new();
        walk(&self.tokens, &Vec::new(), &mut |place, at| {
            if !place.in_use && self.tokens[at].is_word() {
                words.insert(self.tokens[at].text.clone());
            }
        });
        words
    }
}

/// One name that a `use` brings.
struct Import {
    name: String,
    path: Names,
    line: usize,
    is_public: bool,
    is_glob: bool,
}

/// Where a token stands.
struct Place<'a> {
    tokens: &'a [Token],
    /// The module around it, also one within its file.
    module: Names,
    /// The module of the file.
    file: &'a Names,
    in_use: bool,
}

/// Calls for every token with where it stands.
fn walk(tokens: &[Token], file: &Names, each: &mut dyn FnMut(&Place, usize)) {
    let mut place = Place { tokens, module: file.clone(), file, in_use: false };
    let mut ends: Vec<usize> = Vec::new();
    for at in 0..tokens.len() {
        while ends.last().is_some_and(|end| *end <= at) {
            ends.pop();
            place.module.pop();
        }
        if tokens[at].is("mod") && tokens.get(at + 2).is_some_and(|token| token.is("{")) {
            place.module.push(tokens[at + 1].text.clone());
            ends.push(group_end(tokens, at + 2));
        }
        // `use` also stands in bounds, before `<`.
        if tokens[at].is("use") && !tokens.get(at + 1).is_some_and(|token| token.is("<")) {
            place.in_use = true;
        }
        each(&place, at);
        if tokens[at].is(";") {
            place.in_use = false;
        }
    }
}

impl Place<'_> {
    /// What the `use` that begins here imports from this crate.
    fn imports(&self, module: &Module, at: usize) -> Vec<Import> {
        if !self.tokens[at].is("use") || !self.in_use {
            return Vec::new();
        }
        let is_public = at > 0 && (self.tokens[at - 1].is("pub") || self.tokens[at - 1].is(")"));
        let mut leaves = Vec::new();
        self.tree(at + 1, &Vec::new(), &mut leaves);
        let import = |(mut path, name, line): (Names, String, usize)| {
            let is_glob = path.last().is_some_and(|last| last == "*");
            if is_glob || path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let name = if name == "self" { path.last()?.clone() } else { name };
            let own = path.first() == Some(&name) && !module.children.contains(&name);
            let path = if own { None } else { self.absolute(module, &path) }?;
            Some(Import { name, path, line, is_public, is_glob })
        };
        leaves.into_iter().filter_map(import).collect()
    }

    /// The leaves of a tree of imports, and where it ends.
    fn tree(
        &self,
        from: usize,
        before: &[String],
        into: &mut Vec<(Names, String, usize)>,
    ) -> usize {
        let mut path = before.to_vec();
        let mut at = from;
        while let Some(token) = self.tokens.get(at) {
            at += 1;
            if token.is("::") {
                continue;
            } else if token.is("{") {
                while self.tokens.get(at).is_some_and(|token| !token.is("}")) {
                    at = self.tree(at, &path, into);
                    at += usize::from(self.tokens.get(at).is_some_and(|token| token.is(",")));
                }
                return at + 1;
            } else if token.is("as") {
                into.push((path, self.tokens[at].text.clone(), token.line));
                return at + 1;
            } else if token.is_word() || token.is("*") {
                path.push(token.text.clone());
                let next = self.tokens.get(at);
                if !next.is_some_and(|next| next.is("::") || next.is("as")) {
                    into.push((path, token.text.clone(), token.line));
                    return at;
                }
            } else {
                return at;
            }
        }
        at
    }

    /// The path that begins here, if it is of this crate.
    fn path(&self, module: &Module, at: usize) -> Option<Names> {
        let inside = at > 0 && (self.tokens[at - 1].is("::") || self.tokens[at - 1].is("."));
        let is_path = self.tokens.get(at + 1).is_some_and(|token| token.is("::"));
        if inside || !is_path || !self.tokens[at].is_word() {
            return None;
        }
        let mut path = vec![self.tokens[at].text.clone()];
        let mut at = at;
        while self.tokens.get(at + 1).is_some_and(|token| token.is("::"))
            && self.tokens.get(at + 2).is_some_and(Token::is_word)
        {
            path.push(self.tokens[at + 2].text.clone());
            at += 2;
        }
        self.absolute(module, &path)
    }

    /// A path from the root on; none if it is of another crate, or of a type of the file.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Names> {
        let (first, mut rest) = path.split_first()?;
        let base = match first.as_str() {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => {
                let mut base = self.module.clone();
                base.pop();
                while let Some((_, after)) = rest.split_first().filter(|(next, _)| *next == "super")
                {
                    base.pop();
                    rest = after;
                }
                base
            }
            name if module.children.contains(name) => {
                joined(self.file, std::slice::from_ref(first))
            }
            name => module.imported.get(name)?.clone(),
        };
        Some(joined(&base, rest))
    }
}

fn joined(base: &[String], rest: &[String]) -> Names {
    base.iter().chain(rest).cloned().collect()
}
