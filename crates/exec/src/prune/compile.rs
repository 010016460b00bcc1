//! From DataFusion's expressions to what statistics can judge.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Scalar, make_comparator, new_null_array};
use arrow::compute::{CastOptions, SortOptions, cast_with_options, sort, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr,
    IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use thalweg_storage::value_hashes;

use super::domain::{Domain, countable};
use super::predicate::{Member, Operand, Predicate, Term};
use crate::remap;

/// What `expr` (boolean, over the table's schema) means to statistics.
pub fn compile(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Predicate {
    match structure(expr, schema) {
        Some(predicate) => predicate,
        None => domain(expr, schema).unwrap_or(Predicate::Unknown),
    }
}

fn boxed(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Box<Predicate> {
    Box::new(compile(expr, schema))
}

fn not(predicate: Predicate) -> Predicate {
    Predicate::Not(Box::new(predicate))
}

/// `None`: nothing known about this kind of expression.
fn structure(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Predicate> {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return match literal.value() {
            ScalarValue::Boolean(value) => Some(Predicate::Constant(*value)),
            value if value.is_null() => Some(Predicate::Constant(None)),
            _ => None,
        };
    }
    if let Some(dynamic) = expr.downcast_ref::<DynamicFilterPhysicalExpr>() {
        return Some(compile(&dynamic.current().ok()?, schema));
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return binary_structure(binary, schema);
    }
    if let Some(inner) = expr.downcast_ref::<NotExpr>() {
        return Some(not(compile(inner.arg(), schema)));
    }
    if let Some(test) = expr.downcast_ref::<IsNullExpr>() {
        return is_null(test.arg(), schema);
    }
    if let Some(test) = expr.downcast_ref::<IsNotNullExpr>() {
        return is_null(test.arg(), schema).map(not);
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        return in_list(list, schema);
    }
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        return like_structure(like, schema);
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        return Some(either(case, schema));
    }
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>()
        && let ("starts_with", [text, prefix]) = (call.name(), call.args())
    {
        return starts_with(&term(text, schema)?, text_of(&literal(prefix)?)?, schema);
    }
    // A boolean column is its own predicate.
    let term = expr.downcast_ref::<Column>().and_then(|_| term(expr, schema))?;
    member(term, vec![ScalarValue::Boolean(Some(true))], schema)
}

fn binary_structure(binary: &BinaryExpr, schema: &Schema) -> Option<Predicate> {
    let (left, right) = (binary.left(), binary.right());
    if is_comparison(*binary.op()) && (guarded(left).is_some() || guarded(right).is_some()) {
        let bare = |side| Arc::clone(guarded(side).unwrap_or(side));
        let inner = BinaryExpr::new(bare(left), *binary.op(), bare(right));
        let outcomes = [binary_structure(&inner, schema)?, Predicate::Constant(None)];
        return Some(Predicate::Either(outcomes.into()));
    }
    let pair = || vec![compile(left, schema), compile(right, schema)];
    match binary.op() {
        Operator::And => Some(Predicate::And(pair())),
        Operator::Or => Some(Predicate::Or(pair())),
        Operator::IsNotDistinctFrom => same(left, right, schema),
        Operator::IsDistinctFrom => same(left, right, schema).map(not),
        Operator::Eq => equal(left, right, schema),
        Operator::NotEq => equal(left, right, schema).map(not),
        Operator::Lt => less(left, right, false, schema),
        Operator::LtEq => less(left, right, true, schema),
        Operator::Gt => less(right, left, false, schema),
        Operator::GtEq => less(right, left, true, schema),
        _ => None,
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::*;
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// What is asked only behind its guards, `CASE WHEN y <> 0 IS NOT FALSE THEN x / y END`, and is NULL otherwise.
fn guarded(expr: &Arc<dyn PhysicalExpr>) -> Option<&Arc<dyn PhysicalExpr>> {
    let case = expr.downcast_ref::<CaseExpr>()?;
    match case.when_then_expr() {
        [(_, then)] if case.expr().is_none() && case.else_expr().is_none() => Some(then),
        _ => None,
    }
}

fn less(
    left: &Arc<dyn PhysicalExpr>,
    right: &Arc<dyn PhysicalExpr>,
    or_equal: bool,
    schema: &Schema,
) -> Option<Predicate> {
    let null = |e| literal(e).is_some_and(|v| v.is_null());
    if null(left) || null(right) {
        return Some(Predicate::Constant(None));
    }
    let (mut left, mut right) = (operand(left, schema)?, operand(right, schema)?);
    match (&left, &right) {
        (Operand::Term(term), Operand::Value(value)) => {
            right = value_for(term, value.clone(), schema)?;
        }
        (Operand::Value(value), Operand::Term(term)) => {
            left = value_for(term, value.clone(), schema)?;
        }
        _ => {}
    }
    Some(Predicate::Less { left, right, or_equal })
}

fn value_for(term: &Term, value: Scalar<ArrayRef>, schema: &Schema) -> Option<Operand> {
    Some(Operand::Value(Scalar::new(fit(&value.into_inner(), &type_of(term, schema))?)))
}

fn equal(
    left: &Arc<dyn PhysicalExpr>,
    right: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Option<Predicate> {
    match (literal(left), literal(right)) {
        (None, None) => Some(Predicate::Equal {
            left: Operand::Term(term(left, schema)?),
            right: Operand::Term(term(right, schema)?),
        }),
        (None, Some(value)) => member(term(left, schema)?, vec![value], schema),
        (Some(value), None) => member(term(right, schema)?, vec![value], schema),
        (Some(_), Some(_)) => None,
    }
}

/// `IS NOT DISTINCT FROM`, and so `IS TRUE` and `IS FALSE`.
fn same(
    left: &Arc<dyn PhysicalExpr>,
    right: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Option<Predicate> {
    let (tested, value) = match (literal(left), literal(right)) {
        (None, Some(value)) => (left, value),
        (Some(value), None) => (right, value),
        _ => return None,
    };
    let is_true = |predicate| Predicate::IsTrue(Box::new(predicate));
    match value {
        value if value.is_null() => is_null(tested, schema),
        ScalarValue::Boolean(Some(true)) => Some(is_true(compile(tested, schema))),
        ScalarValue::Boolean(Some(false)) => Some(is_true(not(compile(tested, schema)))),
        value => Some(is_true(member(term(tested, schema)?, vec![value], schema)?)),
    }
}

fn is_null(tested: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Predicate> {
    match term(tested, schema) {
        Some(term) => Some(Predicate::IsNull(term)),
        None => match tested.data_type(schema) {
            Ok(DataType::Boolean) => Some(Predicate::IsUnknown(boxed(tested, schema))),
            _ => None,
        },
    }
}

fn in_list(list: &InListExpr, schema: &Schema) -> Option<Predicate> {
    let values = list.list().iter().map(literal).collect::<Option<Vec<_>>>()?;
    let listed = member(term(list.expr(), schema)?, values, schema)?;
    Some(if list.negated() { not(listed) } else { listed })
}

/// `LIKE 'abc%'` is a range, exactly; of `LIKE 'abc%x_z'` the range is a part.
fn like_structure(like: &LikeExpr, schema: &Schema) -> Option<Predicate> {
    if like.case_insensitive() {
        return None;
    }
    let pattern = text_of(&literal(like.pattern())?)?;
    let (prefix, rest) = split_pattern(&pattern);
    let range = starts_with(&term(like.expr(), schema)?, prefix, schema)?;
    let matches = match rest {
        Rest::Anything => range,
        Rest::Something => Predicate::And(vec![range, Predicate::Unknown]),
    };
    Some(if like.negated() { not(matches) } else { matches })
}

#[derive(Debug, PartialEq)]
enum Rest {
    Anything,
    Something,
}

/// The literal start of a LIKE pattern, and what follows it.
fn split_pattern(pattern: &str) -> (String, Rest) {
    let mut prefix = String::new();
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        match c {
            '%' if characters.all(|c| c == '%') => return (prefix, Rest::Anything),
            '%' | '_' => return (prefix, Rest::Something),
            '\\' => match characters.next() {
                Some(escaped @ ('%' | '_')) => prefix.push(escaped),
                // Whether a lone backslash is itself depends on who is asked.
                _ => return (prefix, Rest::Something),
            },
            c => prefix.push(c),
        }
    }
    (prefix, Rest::Something)
}

/// Texts that start with `prefix` are those from it up to the next text that does not.
fn starts_with(term: &Term, prefix: String, schema: &Schema) -> Option<Predicate> {
    let value = |text: String| {
        let value = ScalarValue::Utf8(Some(text)).to_array().ok()?;
        Some(Operand::Value(Scalar::new(fit(&value, &type_of(term, schema))?)))
    };
    let text = || Operand::Term(term.clone());
    let above = text_after(&prefix);
    let mut parts = vec![Predicate::Less { left: value(prefix)?, right: text(), or_equal: true }];
    if let Some(above) = above {
        parts.push(Predicate::Less { left: text(), right: value(above)?, or_equal: false });
    }
    Some(Predicate::And(parts))
}

/// The least text above all that start with `prefix`.
fn text_after(prefix: &str) -> Option<String> {
    let mut kept = prefix.to_owned();
    while let Some(last) = kept.pop() {
        // The surrogates are no characters: the range steps over them.
        if let Some(next) = (last..=char::MAX).nth(1) {
            kept.push(next);
            return Some(kept);
        }
    }
    None
}

/// Any of the results; conditions narrow nothing, so a join's filter, which has one branch per
/// partition of its build side, is all of them together.
fn either(case: &CaseExpr, schema: &Schema) -> Predicate {
    let mut results: Vec<Predicate> =
        case.when_then_expr().iter().map(|(_, then)| compile(then, schema)).collect();
    results.push(match case.else_expr() {
        Some(expr) => compile(expr, schema),
        None => Predicate::Constant(None),
    });
    Predicate::Either(results)
}

fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return literal(cast.expr())?.cast_to(cast.cast_type()).ok();
    }
    expr.downcast_ref::<Literal>().map(|l| l.value().clone())
}

fn text_of(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.clone()
        }
        _ => None,
    }
}

fn operand(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Operand> {
    match literal(expr) {
        Some(value) => Some(Operand::Value(Scalar::new(value.to_array().ok()?))),
        None => term(expr, schema).map(Operand::Term),
    }
}

/// A column, perhaps under casts that keep its order.
fn term(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Term> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        let known = column.index() < schema.fields().len();
        return known.then(|| Term { column: column.index(), casts: vec![] });
    }
    let cast = expr.downcast_ref::<CastExpr>()?;
    // A cast that turns what does not fit into NULL has outcomes that bounds do not show.
    if cast.cast_options().safe {
        return None;
    }
    let mut term = term(cast.expr(), schema)?;
    let to = cast.cast_type();
    if !keeps_order(&type_of(&term, schema), to) {
        return None;
    }
    term.casts.push(to.clone());
    Some(term)
}

fn type_of(term: &Term, schema: &Schema) -> DataType {
    match term.casts.last() {
        Some(to) => to.clone(),
        None => schema.field(term.column).data_type().clone(),
    }
}

/// Whether `a <= b` means `cast(a) <= cast(b)` for all values, those that fail to cast aside.
fn keeps_order(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let text = |t: &DataType| matches!(t, Utf8 | LargeUtf8 | Utf8View);
    let binary = |t: &DataType| matches!(t, Binary | LargeBinary | BinaryView);
    let number = |t: &DataType| {
        t.is_integer() || t.is_floating() || matches!(t, Decimal128(..) | Decimal256(..))
    };
    let local = |t: &DataType| matches!(t, Date32 | Timestamp(_, None));
    let instant = |t: &DataType| matches!(t, Timestamp(_, Some(_)));
    from == to
        || text(from) && text(to)
        || binary(from) && binary(to)
        || number(from) && number(to)
        || local(from) && local(to)
        || instant(from) && instant(to)
        || matches!((from, to), (Time32(_) | Time64(_), Time32(_) | Time64(_)))
        || matches!((from, to), (Date32, Int32) | (Timestamp(_, None), Int64))
        || matches!((from, to), (Int32, Date32) | (Int64, Timestamp(TimeUnit::Second, None)))
}

/// `term IN (values)`.
fn member(term: Term, values: Vec<ScalarValue>, schema: &Schema) -> Option<Predicate> {
    let data_type = type_of(&term, schema);
    let null = values.iter().any(ScalarValue::is_null);
    let values: Vec<ScalarValue> = values.into_iter().filter(|v| !v.is_null()).collect();
    let values = match values.is_empty() {
        true => new_null_array(&data_type, 0),
        false => ascending(&fit(&ScalarValue::iter_to_array(values).ok()?, &data_type)?)?,
    };
    let hashes = if term.casts.is_empty() { value_hashes(&values) } else { None };
    Some(Predicate::Member(Member { term, values, hashes, null }))
}

/// The same values in the type they are compared with, where the two differ in layout only.
fn fit(values: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    use DataType::*;
    let from = match values.data_type() {
        Dictionary(_, of) => of.as_ref(),
        other => other,
    };
    let layout_only = from == to
        || matches!((from, to), (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View))
        || matches!(
            (from, to),
            (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView)
        );
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    if !layout_only {
        return None;
    }
    if values.data_type() == to {
        return Some(Arc::clone(values));
    }
    cast_with_options(values, to, &strict).ok()
}

/// Sorted, each value once.
fn ascending(values: &ArrayRef) -> Option<ArrayRef> {
    if values.len() < 2 {
        return Some(Arc::clone(values));
    }
    let sorted = sort(values, None).ok()?;
    let compare = make_comparator(&sorted, &sorted, SortOptions::default()).ok()?;
    let first = |&i: &usize| i == 0 || compare(i - 1, i).is_ne();
    let firsts = (0..sorted.len()).filter(first).map(|i| i as u64);
    take(&sorted, &arrow::array::UInt64Array::from_iter_values(firsts), None).ok()
}

/// A predicate over one column of few possible values can be evaluated on all of them.
fn domain(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Predicate> {
    let columns = collect_columns(expr);
    let [column] = columns.iter().collect::<Vec<_>>()[..] else { return None };
    let field = schema.fields().get(column.index())?;
    if !countable(field.data_type()) || is_volatile(expr) {
        return None;
    }
    let one: SchemaRef =
        Arc::new(Schema::new(vec![Field::new(field.name(), field.data_type().clone(), true)]));
    let expr = remap(expr, |_| 0, &one).ok()?;
    Some(Predicate::Domain(Domain::new(column.index(), expr, one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_split_at_their_first_wildcard() {
        for (pattern, prefix, rest) in [
            ("abc%", "abc", Rest::Anything),
            ("abc%%", "abc", Rest::Anything),
            ("abc", "abc", Rest::Something),
            ("a_c%", "a", Rest::Something),
            ("a%c", "a", Rest::Something),
            ("%a", "", Rest::Something),
            ("%", "", Rest::Anything),
            ("", "", Rest::Something),
            (r"100\%%", "100%", Rest::Anything),
            (r"a\_b_", "a_b", Rest::Something),
            (r"a\", "a", Rest::Something),
        ] {
            assert_eq!(split_pattern(pattern), (prefix.to_owned(), rest), "{pattern}");
        }
    }

    #[test]
    fn a_text_follows_all_that_start_with_another() {
        let after = |s: &str| text_after(s);
        assert_eq!(after("abc"), Some("abd".into()));
        assert_eq!(after("a\u{d7ff}"), Some("a\u{e000}".into()));
        assert_eq!(after("a\u{10ffff}"), Some("b".into()));
        assert_eq!(after("\u{10ffff}"), None);
        assert_eq!(after(""), None);
    }
}
