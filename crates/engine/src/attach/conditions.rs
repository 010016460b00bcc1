//! Filters as conditions for another database: comparisons of a column with constants, where both sides
//! mean the same by them. The filters stay where they are, so that a row too many does no harm.

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use thalweg_foreign::{Comparison, Condition, Constant, Test};

/// Of a list of constants, which is a text of the statement there.
const LIST_MAX: usize = 1000;

/// `None`: it is none. All of what is given must hold where the filter does.
pub fn of(filter: &Expr, columns: &SchemaRef) -> Option<Vec<Condition>> {
    let one = |column, test| Some(vec![Condition { column, test }]);
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let mut both = of(left, columns)?;
            both.extend(of(right, columns)?);
            Some(both)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let comparison = comparison(*op)?;
            match (left.as_ref(), right.as_ref()) {
                (Expr::Column(column), Expr::Literal(value, _)) => {
                    let column = columns.index_of(&column.name).ok()?;
                    one(
                        column,
                        Test::Is(comparison, constant(value, columns.field(column).data_type())?),
                    )
                }
                (Expr::Literal(value, _), Expr::Column(column)) => {
                    let column = columns.index_of(&column.name).ok()?;
                    let constant = constant(value, columns.field(column).data_type())?;
                    one(column, Test::Is(turned(comparison), constant))
                }
                _ => None,
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let at_least =
                Expr::BinaryExpr(BinaryExpr::new(expr.clone(), Operator::GtEq, low.clone()));
            let at_most =
                Expr::BinaryExpr(BinaryExpr::new(expr.clone(), Operator::LtEq, high.clone()));
            let mut both = of(&at_least, columns)?;
            both.extend(of(&at_most, columns)?);
            Some(both)
        }
        Expr::InList(InList { expr, list, negated: false }) if list.len() <= LIST_MAX => {
            let Expr::Column(column) = expr.as_ref() else { return None };
            let column = columns.index_of(&column.name).ok()?;
            let constants = list.iter().map(|item| match item {
                Expr::Literal(value, _) => constant(value, columns.field(column).data_type()),
                _ => None,
            });
            one(column, Test::OneOf(constants.collect::<Option<_>>()?))
        }
        Expr::IsNull(expr) => match expr.as_ref() {
            Expr::Column(column) => one(columns.index_of(&column.name).ok()?, Test::Null),
            _ => None,
        },
        Expr::IsNotNull(expr) => match expr.as_ref() {
            Expr::Column(column) => one(columns.index_of(&column.name).ok()?, Test::NotNull),
            _ => None,
        },
        _ => None,
    }
}

fn comparison(op: Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// With the sides exchanged.
fn turned(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::Equal,
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
    }
}

/// A constant that can be compared with values of such a column.
fn constant(value: &ScalarValue, of: &DataType) -> Option<Constant> {
    use ScalarValue as S;
    let integer = |n: i64| {
        matches!(of, DataType::Int16 | DataType::Int32 | DataType::Int64)
            .then_some(Constant::Integer(n))
    };
    match value {
        S::Int8(Some(n)) => integer((*n).into()),
        S::Int16(Some(n)) => integer((*n).into()),
        S::Int32(Some(n)) => integer((*n).into()),
        S::Int64(Some(n)) => integer(*n),
        S::Utf8(Some(text)) | S::Utf8View(Some(text)) | S::LargeUtf8(Some(text)) => {
            // No text of PostgreSQL's has a NUL.
            (*of == DataType::Utf8View && !text.contains('\0'))
                .then(|| Constant::Text(text.clone()))
        }
        // The years 1 to 9999: what lies beyond may be no date there.
        S::Date32(Some(days)) => (*of == DataType::Date32 && (-719_162..2_932_897).contains(days))
            .then_some(Constant::Date(*days)),
        S::Boolean(Some(value)) => (*of == DataType::Boolean).then_some(Constant::Boolean(*value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};
    use datafusion::prelude::{col, lit};

    use super::*;

    #[test]
    fn what_means_the_same_there() {
        let columns: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("t", DataType::Utf8View, true),
            Field::new("f", DataType::Float64, true),
        ]));
        let is = |column, op, constant| Condition { column, test: Test::Is(op, constant) };
        let seven = Constant::Integer(7);
        assert_eq!(
            of(&lit(7_i64).lt(col("n")).and(col("t").eq(lit("x"))), &columns),
            Some(vec![
                is(0, Comparison::Greater, seven.clone()),
                is(1, Comparison::Equal, Constant::Text("x".into())),
            ])
        );
        assert_eq!(
            of(&col("n").between(lit(7_i64), lit(7_i64)), &columns),
            Some(vec![
                is(0, Comparison::GreaterOrEqual, seven.clone()),
                is(0, Comparison::LessOrEqual, seven.clone()),
            ])
        );
        assert_eq!(
            of(&col("n").in_list(vec![lit(7_i64)], false), &columns),
            Some(vec![Condition { column: 0, test: Test::OneOf(vec![seven]) }])
        );
        for other in [
            col("n").eq(lit("7")),
            col("f").eq(lit(1.5)),
            col("t").eq(lit("a\0")),
            col("n").not_eq(lit(7_i64)),
            col("n").in_list(vec![lit(7_i64)], true),
            col("n").eq(lit(7_i64)).or(col("n").eq(lit(8_i64))),
            col("n").eq(lit(ScalarValue::Int64(None))),
        ] {
            assert_eq!(of(&other, &columns), None, "{other}");
        }
    }
}
