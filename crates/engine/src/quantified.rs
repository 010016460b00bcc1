//! `x = ANY (array)` and `x <> ALL (array)`, with SQL's three values.
//!
//! An array whose elements are written out, as those of parameters are, is a list: `x IN (1, 2)`,
//! which scans skip chunks by and pipelines run. Any other is the binder's.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, Value, VisitorMut,
};

use crate::names;
use crate::walk::walk_mut;
use thalweg_functions::list_text::{self, Item};

/// Elements that are compared one by one, where there is no list: with `<` and its like.
const COMPARED_MAX: usize = 64;

pub(crate) fn rewrite(statement: &mut Statement) {
    let mut inner = statement;
    while let Statement::Explain(explain) = inner {
        inner = &mut explain.statement;
    }
    if let Statement::Statement(statement) = inner {
        let _ = walk_mut(statement, &mut Quantified);
    }
}

struct Quantified;

impl VisitorMut for Quantified {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let rewritten = match expr {
            Expr::AnyOp { left, compare_op, right, .. } => any(left, compare_op, right),
            Expr::AllOp { left, compare_op, right } => all(left, compare_op, right),
            Expr::Like { any: true, negated, expr, pattern, escape_char } => elements(pattern)
                .and_then(|patterns| {
                    let like = |pattern| Expr::Like {
                        any: false,
                        negated: *negated,
                        expr: expr.clone(),
                        pattern: Box::new(pattern),
                        escape_char: escape_char.clone(),
                    };
                    joined(patterns.into_iter().map(like), BinaryOperator::Or)
                }),
            Expr::ILike { any: true, negated, expr, pattern, escape_char } => elements(pattern)
                .and_then(|patterns| {
                    let like = |pattern| Expr::ILike {
                        any: false,
                        negated: *negated,
                        expr: expr.clone(),
                        pattern: Box::new(pattern),
                        escape_char: escape_char.clone(),
                    };
                    joined(patterns.into_iter().map(like), BinaryOperator::Or)
                }),
            _ => None,
        };
        if let Some(rewritten) = rewritten {
            *expr = rewritten;
        }
        ControlFlow::Continue(())
    }
}

fn any(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    if matches!(right, Expr::Subquery(_)) {
        return None;
    }
    if is_null(right) {
        return Some(null());
    }
    compared(left, op, elements(right)?, Quantifier::Any)
}

fn all(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    if matches!(right, Expr::Subquery(_)) {
        return None;
    }
    match is_null(right) {
        true => Some(null()),
        false => compared(left, op, elements(right)?, Quantifier::All),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Quantifier {
    Any,
    All,
}

fn compared(left: &Expr, op: &BinaryOperator, list: Vec<Expr>, by: Quantifier) -> Option<Expr> {
    if list.is_empty() {
        return Some(Expr::Value(Value::Boolean(by == Quantifier::All).into()));
    }
    let is_list = match by {
        Quantifier::Any => *op == BinaryOperator::Eq,
        Quantifier::All => *op == BinaryOperator::NotEq,
    };
    if is_list {
        let (expr, negated) = (Box::new(left.clone()), by == Quantifier::All);
        return Some(Expr::Nested(Box::new(Expr::InList { expr, list, negated })));
    }
    if list.len() > COMPARED_MAX {
        return None;
    }
    let compare = |item: Expr| Expr::BinaryOp {
        left: Box::new(left.clone()),
        op: op.clone(),
        right: Box::new(item),
    };
    let joins = match by {
        Quantifier::Any => BinaryOperator::Or,
        Quantifier::All => BinaryOperator::And,
    };
    joined(list.into_iter().map(compare), joins)
}

fn joined(parts: impl Iterator<Item = Expr>, op: BinaryOperator) -> Option<Expr> {
    let join = |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    };
    parts.reduce(join).map(|e| Expr::Nested(Box::new(e)))
}

fn null() -> Expr {
    cast(Expr::Value(Value::Null.into()), DataType::Boolean)
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    let kind = CastKind::Cast;
    Expr::Cast { kind, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Whether it is NULL in place of an array, also as a parameter is written.
fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => is_null(inner),
        Expr::Value(value) => value.value == Value::Null,
        Expr::Function(_) => arrow_cast(expr).is_some_and(is_null),
        _ => false,
    }
}

/// The elements of an array that are written out; `None`: it is another.
fn elements(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Nested(inner) => elements(inner),
        Expr::Tuple(items) => Some(items.clone()),
        Expr::Array(array) => {
            let is_flat = |e: &Expr| !matches!(e, Expr::Array(_) | Expr::Subquery(_));
            array.elem.iter().all(is_flat).then(|| array.elem.clone())
        }
        Expr::Cast { expr, data_type, kind: CastKind::Cast | CastKind::DoubleColon, .. } => {
            let item = item(data_type)?;
            let items = elements(expr)?;
            Some(items.into_iter().map(|e| cast(e, item.clone())).collect())
        }
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => spelled(text),
            _ => None,
        },
        // An empty parameter.
        Expr::Function(_) => {
            let empty = arrow_cast(expr).is_some_and(|inner| {
                matches!(inner, Expr::Function(f) if names::folded(&f.name) == "make_array"
                    && arguments(&f.args).is_empty())
            });
            empty.then(Vec::new)
        }
        _ => None,
    }
}

/// The type of the elements of an array of one dimension.
fn item(data_type: &DataType) -> Option<&DataType> {
    use ArrayElemTypeDef::{AngleBracket, Parenthesis, SquareBracket};
    let DataType::Array(AngleBracket(item) | SquareBracket(item, _) | Parenthesis(item)) =
        data_type
    else {
        return None;
    };
    (!matches!(item.as_ref(), DataType::Array(_))).then_some(item)
}

/// What `arrow_cast(x, 'type')` casts.
fn arrow_cast(expr: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = expr else { return None };
    if names::folded(&function.name) != "arrow_cast" {
        return None;
    }
    arguments(&function.args).first().copied()
}

fn arguments(arguments: &FunctionArguments) -> Vec<&Expr> {
    let FunctionArguments::List(list) = arguments else { return vec![] };
    let expr = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    list.args.iter().filter_map(expr).collect()
}

/// `'{1,2,NULL,"a b"}'`, as PostgreSQL writes arrays; `None`: not one of a single dimension.
fn spelled(text: &str) -> Option<Vec<Expr>> {
    let value = |item| match item {
        Item::Null => Some(Value::Null),
        Item::Text(text) => Some(Value::SingleQuotedString(text)),
        Item::List(_) => None,
    };
    let items = list_text::items(text)?.into_iter().map(value);
    items.map(|value| value.map(|value| Expr::Value(value.into()))).collect()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use crate::dialect::Thalweg;

    #[test]
    fn arrays_become_lists() {
        let check = |condition: &str, expected: &str| {
            let sql = format!("SELECT 1 FROM t WHERE {condition}");
            let parser = DFParserBuilder::new(sql.as_str()).with_dialect(&Thalweg).build();
            let mut statement = parser.unwrap().parse_statements().unwrap().pop_front().unwrap();
            super::rewrite(&mut statement);
            let text = statement.to_string();
            assert_eq!(text.split_once(" WHERE ").unwrap().1, expected, "{condition}");
        };
        check("a = ANY (ARRAY[1, 2, NULL])", "(a IN (1, 2, NULL))");
        check("a <> ALL (ARRAY['x'])", "(a NOT IN ('x'))");
        check("a < ANY (ARRAY[1, 2])", "(a < 1 OR a < 2)");
        check("a = ALL (ARRAY[1, 2])", "(a = 1 AND a = 2)");
        check("a = ANY ('{1, \"b c\",NULL}')", "(a IN ('1', 'b c', NULL))");
        check("a = ANY ('{1,2}'::INT[])", "(a IN (CAST('1' AS INT), CAST('2' AS INT)))");
        check("a = ANY ('{}')", "false");
        check("a <> ALL (arrow_cast(make_array(), 'List(Int64)'))", "true");
        check("a = ANY (arrow_cast(NULL, 'List(Int64)'))", "CAST(NULL AS BOOLEAN)");
        check("a = ANY (b)", "a = ANY(b)");
        check("a = ANY (SELECT 1)", "a = ANY(SELECT 1)");
        check("a LIKE ANY (ARRAY['x%', 'y'])", "(a LIKE 'x%' OR a LIKE 'y')");
    }
}
