//! `ROLLUP`, `CUBE` and `GROUPING SETS`.

use datafusion::logical_expr::{Expr, GroupingSet};
use datafusion::sql::sqlparser::ast;

use crate::failure::{Result, wrong};
use crate::name::Part;

/// The sets of ROLLUP: all of its keys, all but the last, and so on.
pub(crate) fn rolled(keys: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    (0..=keys.len()).rev().map(|n| keys[..n].concat()).collect()
}

/// The sets of CUBE: its keys, each with and without.
pub(crate) fn cubed(keys: &[Vec<Expr>]) -> Result<Vec<Vec<Expr>>> {
    if keys.len() > KEYS_OF_CUBE_MAX {
        return wrong("54011", format!("CUBE is limited to {KEYS_OF_CUBE_MAX} elements"));
    }
    let of = |chosen: usize| {
        let is_chosen = |at: &usize| chosen >> (keys.len() - 1 - at) & 1 == 1;
        (0..keys.len()).filter(is_chosen).flat_map(|at| keys[at].clone()).collect()
    };
    Ok((0..1 << keys.len()).rev().map(of).collect())
}

const KEYS_OF_CUBE_MAX: usize = 12;

/// ROLLUP (`true`) or CUBE within GROUPING SETS, which the parser takes for a function, with its keys.
pub(crate) fn sets_within(expr: &ast::Expr) -> Option<(bool, Vec<Vec<ast::Expr>>)> {
    let ast::Expr::Function(call) = expr else { return None };
    let [name] = &call.name.0[..] else { return None };
    let is_rollup = match Part::of(name.as_ident()?) {
        Part { quoted: false, text, .. } if text == "rollup" => true,
        Part { quoted: false, text, .. } if text == "cube" => false,
        _ => return None,
    };
    let ast::FunctionArguments::List(list) = &call.args else { return None };
    let keys = list.args.iter().map(|arg| match arg {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(key)) => Some(match key {
            ast::Expr::Tuple(keys) => keys.clone(),
            key => vec![key.clone()],
        }),
        _ => None,
    });
    Some((is_rollup, keys.collect::<Option<_>>()?))
}

pub(crate) fn sets(lists: Vec<Vec<Expr>>) -> Expr {
    Expr::GroupingSet(GroupingSet::GroupingSets(lists))
}

/// The lists of keys of a set.
pub(crate) fn lists(set: GroupingSet) -> Vec<Vec<Expr>> {
    match set {
        GroupingSet::GroupingSets(lists) => lists,
        GroupingSet::Rollup(keys) => (0..=keys.len()).rev().map(|n| keys[..n].to_vec()).collect(),
        GroupingSet::Cube(keys) => {
            let chosen = |mask: u64| {
                let is_in = |at: &usize| mask & (1 << at) != 0;
                (0..keys.len()).filter(is_in).map(|at| keys[at].clone()).collect()
            };
            (0..1_u64 << keys.len().min(16)).rev().map(chosen).collect()
        }
    }
}
