//! Functions that take functions: `list_transform(xs, x -> x + 1)`.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{HigherOrderFunction, Lambda};
use datafusion::logical_expr::type_coercion::functions::value_fields_with_higher_order_udf;
use datafusion::logical_expr::{
    Expr, HigherOrderReturnFieldArgs, HigherOrderUDF, LambdaParametersProgress, ValueOrLambda,
};
use datafusion::sql::sqlparser::ast::{self, LambdaFunction};

use crate::binder::Binder;
use crate::failure::{Result, not_covered, wrong};
use crate::name::Part;
use crate::place::Place;
use crate::typed::Typed;

enum Arg<'a> {
    Value(Typed),
    Lambda(&'a LambdaFunction),
}

impl Binder<'_> {
    /// A call with lambdas. Their parameters get their types from the other arguments, or from what
    /// other lambdas give: the function says step by step what it knows.
    pub(crate) fn higher_order(
        &self,
        function: Arc<HigherOrderUDF>,
        args: &[&ast::Expr],
        place: Place<'_>,
    ) -> Result<Typed> {
        let mut args = args
            .iter()
            .map(|arg| match arg {
                ast::Expr::Lambda(lambda) => Ok(Arg::Lambda(lambda)),
                other => Ok(Arg::Value(self.value(other, place)?)),
            })
            .collect::<Result<Vec<Arg<'_>>>>()?;
        let given: Vec<ValueOrLambda<FieldRef, ()>> = args
            .iter()
            .map(|arg| match arg {
                Arg::Value(value) => ValueOrLambda::Value(value.field()),
                Arg::Lambda(_) => ValueOrLambda::Lambda(()),
            })
            .collect();
        let taken = value_fields_with_higher_order_udf(&given, &function)?;
        let mut known: Vec<ValueOrLambda<FieldRef, Option<FieldRef>>> = vec![];
        for (arg, taken) in args.iter_mut().zip(taken) {
            known.push(match (arg, taken) {
                (Arg::Value(value), ValueOrLambda::Value(field)) => {
                    *value = value.clone().cast(field.data_type());
                    ValueOrLambda::Value(field)
                }
                (Arg::Lambda(_), ValueOrLambda::Lambda(())) => ValueOrLambda::Lambda(None),
                _ => return not_covered("this function"),
            });
        }
        let steps = function.signature().lambda_parameters_max_iterations;
        let mut bodies = None;
        for step in 0..=steps {
            match function.lambda_parameters(step, &known)? {
                LambdaParametersProgress::Complete(parameters) => {
                    bodies = Some(parameters);
                    break;
                }
                LambdaParametersProgress::Partial(parameters) => {
                    let mut parameters = parameters.into_iter();
                    for (arg, known) in args.iter().zip(&mut known) {
                        let Arg::Lambda(lambda) = arg else { continue };
                        if let Some(Some(parameters)) = parameters.next() {
                            let (_, body) = self.body(lambda, parameters, place)?;
                            *known = ValueOrLambda::Lambda(Some(body.field()));
                        }
                    }
                }
            }
        }
        let Some(parameters) = bodies else { return not_covered("this function") };
        let mut parameters = parameters.into_iter();
        let mut exprs = vec![];
        let mut fields = vec![];
        for arg in args {
            match arg {
                Arg::Value(value) => {
                    fields.push(ValueOrLambda::Value(value.field()));
                    exprs.push(value.expr);
                }
                Arg::Lambda(lambda) => {
                    let parameters = parameters.next().unwrap_or_default();
                    let (names, body) = self.body(lambda, parameters, place)?;
                    fields.push(ValueOrLambda::Lambda(body.field()));
                    exprs.push(Expr::Lambda(Lambda::new(names, body.expr)));
                }
            }
        }
        let scalars: Vec<Option<&ScalarValue>> = exprs
            .iter()
            .map(|expr| match expr {
                Expr::Literal(value, _) => Some(value),
                _ => None,
            })
            .collect();
        let returned = function.return_field_from_args(HigherOrderReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &scalars,
        })?;
        let call = Expr::HigherOrderFunction(HigherOrderFunction::new(function, exprs));
        Ok(Typed::new(call, returned.data_type().clone(), returned.is_nullable()))
    }

    /// The names of a lambda's parameters, and its body, which may name them.
    fn body(
        &self,
        lambda: &LambdaFunction,
        parameters: Vec<FieldRef>,
        place: Place<'_>,
    ) -> Result<(Vec<String>, Typed)> {
        let names: Vec<String> = lambda.params.iter().map(|p| Part::of(&p.name).text).collect();
        if names.len() > parameters.len() {
            return wrong(
                "42601",
                format!("a lambda here has {} parameters at most", parameters.len()),
            );
        }
        if lambda.params.iter().any(|p| p.data_type.is_some()) {
            return not_covered("a parameter of a lambda with a type");
        }
        let own = parameters.iter().zip(&names).map(|(field, name)| {
            let field = Field::new(name, field.data_type().clone(), field.is_nullable());
            Arc::new(field)
        });
        let variables: Vec<FieldRef> = place.variables.iter().cloned().chain(own).collect();
        let inside = Place {
            variables: &variables,
            without_aggregates: Some("lambdas"),
            without_windows: Some("lambdas"),
            without_rows: Some("lambdas"),
            ..place
        };
        let body = self.value(&lambda.body, inside)?;
        Ok((names, body))
    }
}
