//! Arguments with names: `make_interval(days => 10)`.

use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{self, Expr};
use thalweg_base::{Error, Subject};

use crate::failure::{Result, wrong};

/// Functions whose arguments may be given by name, and those that may be left out.
const FUNCTIONS: [(&str, &[&str], usize); 5] = [
    ("make_interval", &["years", "months", "weeks", "days", "hours", "mins", "secs"], 0),
    ("make_date", &["year", "month", "day"], 3),
    ("make_time", &["hour", "min", "sec"], 3),
    ("make_timestamp", &["year", "month", "mday", "hour", "min", "sec"], 6),
    ("make_timestamptz", &["year", "month", "mday", "hour", "min", "sec", "timezone"], 6),
];

/// Puts named arguments behind those that have their places, in the order of the parameters. Those that are
/// left out before one that is given are zero.
pub(crate) fn place<'c>(
    function: &str,
    args: &mut Vec<&'c Expr>,
    named: Vec<(String, &'c Expr)>,
) -> Result<()> {
    static ZERO: LazyLock<Expr> =
        LazyLock::new(|| Expr::Value(ast::Value::Number("0".into(), false).into()));
    if named.is_empty() {
        return Ok(());
    }
    let Some((_, parameters, needed)) = FUNCTIONS.iter().find(|(name, ..)| *name == function)
    else {
        return Err(Error::unsupported(format!("named arguments of {function} are not supported"))
            .hint("give the arguments in their order, without names")
            .about(Subject::Function(function.into()))
            .into());
    };
    let before = args.len();
    let mut found: Vec<Option<&'c Expr>> = vec![None; parameters.len()];
    for (name, arg) in named {
        let at = parameters.iter().position(|parameter| *parameter == name);
        let Some(at) = at.filter(|at| *at >= before && found[*at].is_none()) else {
            return Err(Error::user(format!(
                "function {function} has no argument \"{name}\" here"
            ))
            .code("42883")
            .hint(format!("its arguments are {}", parameters.join(", ")))
            .about(Subject::Function(function.into()))
            .into());
        };
        found[at] = Some(arg);
    }
    let last = found.iter().rposition(Option::is_some).map_or(before, |last| last + 1);
    for (at, arg) in found.into_iter().enumerate().take(last.max(*needed)).skip(before) {
        match arg {
            Some(arg) => args.push(arg),
            None if at >= *needed => args.push(&ZERO),
            None => {
                let missing = parameters[at];
                return wrong("42883", format!("{function} needs an argument \"{missing}\""));
            }
        }
    }
    Ok(())
}
