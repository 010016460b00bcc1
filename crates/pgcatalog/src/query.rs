//! A query whose names are resolved.

pub(crate) mod aggregate;
pub(crate) mod exec;
pub(crate) mod expr;
pub(crate) mod functions;
pub(crate) mod source;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use self::aggregate::Aggregate;
use self::expr::Expr;
use self::functions::Set;
use crate::relation::Relation;
use crate::types::Oid;
use crate::value::Row;

/// The fields of a composite value.
pub type Fields = Rc<Vec<(String, Oid)>>;

/// A column of a result.
#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub oid: Oid,
    pub typmod: i32,
    pub fields: Option<Fields>,
}

pub struct Query {
    pub ctes: Vec<Rc<Cte>>,
    pub body: Body,
    pub order: Vec<Key>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    /// The body's rows have more, if they are ordered by what is not selected.
    pub columns: Vec<Output>,
    /// Whether it needs the rows of the queries around it. One that does not runs once.
    pub correlated: bool,
    pub once: OnceCell<Rc<Vec<Row>>>,
}

pub enum Body {
    Select(Box<Select>),
    Values(Vec<Vec<Expr>>),
    Query(Box<Query>),
    Combined { kind: Combine, all: bool, left: Box<Query>, right: Box<Query> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    Union,
    Intersect,
    Except,
}

/// A column of the body to order by.
pub struct Key {
    pub column: usize,
    pub descending: bool,
    pub nulls_first: bool,
}

pub struct Cte {
    pub name: String,
    pub columns: Vec<Output>,
    /// Of one that refers to itself: the first rows, and those that follow from others.
    pub query: RefCell<Option<CteQuery>>,
    /// What the name stands for at this moment.
    pub rows: RefCell<Rc<Vec<Row>>>,
}

pub enum CteQuery {
    Plain(Box<Query>),
    Recursive { first: Box<Query>, next: Box<Query>, all: bool },
}

pub struct Select {
    pub from: Option<Source>,
    /// All must hold.
    pub filter: Vec<Expr>,
    pub group: Option<Group>,
    pub windows: Vec<Window>,
    pub sets: Vec<(Set, Vec<Expr>)>,
    pub items: Vec<Expr>,
    pub distinct: Distinct,
}

pub enum Distinct {
    No,
    /// By so many columns of the items.
    Yes(usize),
    /// By these items; the first row of each group in the query's order.
    On(Vec<usize>),
}

pub struct Group {
    pub keys: Vec<Expr>,
    pub aggregates: Vec<Aggregate>,
    pub having: Option<Expr>,
}

pub struct Window {
    pub function: WindowFunction,
    pub partition: Vec<Expr>,
    pub order: Vec<(Expr, bool, bool)>,
}

pub enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
    /// Over the whole partition, or up to the row and its peers if there is an order.
    Aggregate(Box<Aggregate>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

pub enum Source {
    Relation {
        relation: Arc<Relation>,
        base: usize,
    },
    Query {
        query: Rc<Query>,
        lateral: bool,
        base: usize,
    },
    Cte {
        cte: Rc<Cte>,
        base: usize,
    },
    /// Functions side by side, as in `ROWS FROM`; their arguments may be columns to the left.
    Functions {
        calls: Vec<(Set, Vec<Expr>)>,
        ordinality: bool,
        base: usize,
        width: usize,
    },
    Join {
        kind: JoinKind,
        left: Box<Source>,
        right: Box<Source>,
        on: Vec<Expr>,
    },
}

impl Source {
    /// The number of its first column in the row of the whole FROM.
    pub fn base(&self) -> usize {
        match self {
            Source::Relation { base, .. }
            | Source::Query { base, .. }
            | Source::Cte { base, .. }
            | Source::Functions { base, .. } => *base,
            Source::Join { left, .. } => left.base(),
        }
    }

    pub fn width(&self) -> usize {
        match self {
            Source::Relation { relation, .. } => relation.columns.len() + SYSTEM_COLUMNS,
            Source::Query { query, .. } => query.columns.len(),
            Source::Cte { cte, .. } => cte.columns.len(),
            Source::Functions { width, .. } => *width,
            Source::Join { left, right, .. } => left.width() + right.width(),
        }
    }

    pub fn end(&self) -> usize {
        self.base() + self.width()
    }

    /// Whether its rows depend on those to its left.
    pub fn is_lateral(&self) -> bool {
        match self {
            Source::Query { lateral, .. } => *lateral,
            Source::Functions { .. } => true,
            Source::Join { left, right, .. } => left.is_lateral() || right.is_lateral(),
            _ => false,
        }
    }
}

/// `tableoid` and `xmin`, which every relation has and `*` does not show.
pub const SYSTEM_COLUMNS: usize = 2;
