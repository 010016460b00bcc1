//! The binder: a parsed query becomes a logical plan.
//!
//! DataFusion's own planner resolves columns by the names that they show, so that two columns of one
//! name, an alias that equals a column, or a table that occurs twice lead it astray. Here a column is
//! an identity from the moment a table is named: every item of a `FROM` clause gets a qualifier that
//! no other item of the statement has, a [scope](scope::Scope) maps the names that the text uses to
//! these columns, and the titles of the result are put together at the end, beside the plan. Every
//! expression is typed when it is bound, and casts are written where the types of SQL need them.
//!
//! In reading order:
//!
//! * [`Binder`] (`binder.rs`): what a statement has for the whole of its binding; `statement.rs`: what it asks of the binder.
//! * `name.rs`: names as they are written; `scope.rs`: which of them an expression may use; `place.rs`: where it stands.
//!   `title.rs`: what a column of the result is called.
//! * `query.rs`: `WITH`, set operations, `ORDER BY` and `LIMIT`. `from.rs`: tables and joins, `pairs.rs`: random conditions of these.
//!   `limits.rs`: `LIMIT` and `OFFSET`, `ties.rs`: `WITH TIES`; `rows_in_order.rs`: subqueries whose order counts.
//! * `select.rs`: one `SELECT`, `grouping.rs`, `grouping_sets.rs`: its groups, aggregates and windows;
//!   `computed.rs`: expressions that an operator below has computed.
//! * `typed.rs`: an expression with its type, and its casts; `expr.rs`: expressions; `operator.rs`, `call.rs`, `literal.rs`, `subquery.rs`: their kinds;
//!   `window.rs`: calls over windows; `parameters.rs`: arguments with names; `lambda.rs`: functions of functions; `null_if.rs`: `nullif`; `zone.rs`: `AT TIME ZONE`; `cast.rs`: casts; `length.rs`: `varchar(n)`;
//!   `planner.rs`: what the session's own planners make of them.
//! * `own.rs`: functions that are the binder's own. `meaning.rs`: functions that mean something else than DataFusion's. `texts.rs`: forms of SQL about
//!   texts.
//! * `rows.rs`: functions that give rows; `reads.rs`: those that read files.
//! * [`catalogue`]: all functions and operators, with what they take and return.
//! * `guard.rs`: what stands before an operand of AND or OR guards it; `guarded_keys.rs`: group keys behind guards.
//! * [`functions`]: what operators and casts come to where DataFusion's have another meaning.
//! * `types.rs`: types by their names in SQL, and the type that two expressions meet in.
//! * [`span`]: intervals as they are written.
//! * [`kept`]: rows that stand in a plan more than once, and are computed once.
//! * `nested.rs`: queries within expressions; `unnest.rs`: correlated ones become joins.
//! * [`Failure`] (`failure.rs`): why there is no plan.
//!
//! The crate knows the parser and DataFusion's logical plans, and nothing of sessions, threads or
//! storage: tables and functions come from a `ContextProvider`.

mod binder;
mod call;
mod cast;
pub mod catalogue;
mod computed;
pub mod decimal;
mod expr;
mod failure;
mod from;
mod functions;
mod grouping;
mod grouping_sets;
pub mod guard;
mod guarded_keys;
pub mod kept;
mod lambda;
mod length;
mod limits;
mod literal;
mod meaning;
mod name;
mod nested;
mod null_if;
mod operator;
mod own;
mod pairs;
mod parameters;
mod place;
mod planner;
mod query;
mod reads;
mod rows;
mod rows_in_order;
mod scope;
mod select;
pub mod span;
mod statement;
mod subquery;
mod texts;
mod ties;
mod title;
mod typed;
mod types;
mod unnest;
mod window;
mod zone;

pub use binder::Binder;
pub use failure::Failure;
pub use functions::{EachItem, calculates, nearest_instant};
pub use reads::{READERS, Reads};
pub use statement::Bound;
pub use subquery::ASSIGNED_ROW;
pub use types::of_sql as sql_type;
