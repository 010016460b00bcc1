//! One error type for the whole house: what happened, to which object, and what to do next.

use std::fmt;

use crate::text;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who must act on an error. This decides its SQLSTATE and the exit code of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The statement, the input file or an argument is wrong: its author must change it.
    User,
    /// A valid request for something that is not built.
    Unsupported,
    /// Memory, disk, slots or another named limit is exhausted: wait, or raise the setting.
    Resources,
    /// Somebody asked for it to stop, or its time was up.
    Cancelled,
    /// Another transaction got there first: try again.
    Conflict,
    /// Stored bytes are not what was written: restore them.
    Corrupt,
    /// The operating system or a remote store refused.
    Io,
    /// A mistake of ours: report it.
    Internal,
}

impl Kind {
    /// The SQLSTATE (ISO 9075, PostgreSQL appendix A) clients see for an error of this kind
    /// that carries none of its own.
    pub fn sqlstate(self) -> &'static str {
        match self {
            Kind::User => "42000",
            Kind::Unsupported => "0A000",
            Kind::Resources => "53000",
            Kind::Cancelled => "57014",
            Kind::Conflict => "40001",
            Kind::Corrupt => "XX001",
            Kind::Io => "58030",
            Kind::Internal => "XX000",
        }
    }

    /// Exit code of a command that ends with this error.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::User | Kind::Unsupported => 1,
            Kind::Resources | Kind::Io | Kind::Conflict => 3,
            Kind::Corrupt => 4,
            Kind::Internal => 70,
            Kind::Cancelled => 130,
        }
    }
}

/// An error with its message, and where they help the reader, a detail and a hint.
///
/// `Display` prints the message alone; the alternate form (`{:#}`) adds the line of the statement
/// where that was asked for, and `detail:` and `hint:` lines. Boxed inside, so that `Result<T>` stays one word wide.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    sqlstate: Option<&'static str>,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    place: Option<Place>,
    excerpt: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Where in a statement's text an error is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The character, counted from 1; the one after the last is the end of the text.
    At(u32),
    /// The line and its character, both counted from 1.
    Line(u32, u32),
    /// What is wrong, by its name: whoever has the text finds where it stands.
    Of(Subject),
    /// The same, and a line and character that are not behind it: it is the first one from there.
    From(u32, u32, Subject),
}

/// What an error is about, as the statement names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The table it is qualified with, if it is, and its name.
    Column(Option<String>, String),
    Relation(String),
    Function(String),
    Operator(String),
    /// The content of a literal in quotes.
    Literal(String),
    /// A keyword or another word.
    Word(String),
    /// What follows a keyword.
    After(String),
    /// What a name is qualified with.
    Qualifier(String),
}

macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {$(
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(Kind::$kind, message)
        }
    )*};
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            sqlstate: None,
            message: message.into(),
            detail: None,
            hint: None,
            place: None,
            excerpt: None,
            source: None,
        }))
    }

    constructors! {
        user => User,
        unsupported => Unsupported,
        resources => Resources,
        cancelled => Cancelled,
        conflict => Conflict,
        corrupt => Corrupt,
        internal => Internal,
    }

    /// An error of the operating system on a named object: `Error::io("cannot open \"x.csv\"", e)`.
    pub fn io(message: impl Into<String>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound
            | std::io::ErrorKind::IsADirectory
            | std::io::ErrorKind::NotADirectory => Kind::User,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::OutOfMemory => Kind::Resources,
            _ => Kind::Io,
        };
        Self::new(kind, format!("{}: {source}", message.into())).source(source)
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Where in the statement's text it is.
    pub fn at(mut self, place: Place) -> Self {
        self.0.place = Some(place);
        self
    }

    /// What in the statement's text it is about.
    pub fn about(self, subject: Subject) -> Self {
        self.at(Place::Of(subject))
    }

    /// The line and character where what it is about begins, unless a place inside that is known already.
    pub fn within(mut self, line: u32, column: u32) -> Self {
        self.0.place = Some(match self.0.place.take() {
            None => Place::Line(line, column),
            Some(Place::Of(subject)) => Place::From(line, column, subject),
            Some(known) => known,
        });
        self
    }

    /// A code of its own, where clients tell this error from others of its kind.
    pub fn code(mut self, sqlstate: &'static str) -> Self {
        self.0.sqlstate = Some(sqlstate);
        self
    }

    pub fn source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Puts `context: ` before the message, for a caller who knows the object's name.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// With each of its texts as `f` gives it: to leave out what nobody may read.
    pub fn map_text(mut self, f: impl Fn(&str) -> String) -> Self {
        self.0.message = f(&self.0.message);
        self.0.detail = self.0.detail.as_deref().map(&f);
        self.0.hint = self.0.hint.as_deref().map(&f);
        // Its text cannot be changed.
        self.0.source = None;
        self
    }

    /// The same error once more, for another reader: all but its source, which cannot be cloned.
    pub fn again(&self) -> Error {
        let Inner { kind, sqlstate, message, detail, hint, place, excerpt, source: _ } = &*self.0;
        Error(Box::new(Inner {
            kind: *kind,
            sqlstate: *sqlstate,
            message: message.clone(),
            detail: detail.clone(),
            hint: hint.clone(),
            place: place.clone(),
            excerpt: excerpt.clone(),
            source: None,
        }))
    }

    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn detail_text(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// What in the statement's text it is about, if that is how its place is known.
    pub fn subject(&self) -> Option<&Subject> {
        match &self.0.place {
            Some(Place::Of(subject) | Place::From(_, _, subject)) => Some(subject),
            _ => None,
        }
    }

    /// The character of the statement's text that it is at, counted from 1, once that is known.
    pub fn position(&self) -> Option<u32> {
        match self.0.place {
            Some(Place::At(position)) => Some(position),
            _ => None,
        }
    }

    /// Shows the line of the statement's text that it is in, where `Display` shows all of it.
    pub fn shown_in(mut self, sql: &str) -> Self {
        self.0.excerpt = self.position().map(|position| text::excerpt(sql, position));
        self
    }

    /// The same without its place: of a text that the reader does not have.
    pub fn nowhere(mut self) -> Self {
        self.0.place = None;
        self
    }

    pub fn sqlstate(&self) -> &'static str {
        self.code_text().unwrap_or(self.0.kind.sqlstate())
    }

    /// The code of its own, if it has one.
    pub fn code_text(&self) -> Option<&'static str> {
        self.0.sqlstate
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if f.alternate() {
            if let Some(excerpt) = &self.0.excerpt {
                write!(f, "\n{excerpt}")?;
            }
            if let Some(detail) = &self.0.detail {
                write!(f, "\ndetail: {detail}")?;
            }
            if let Some(hint) = &self.0.hint {
                write!(f, "\nhint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} error: {self:#}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}
