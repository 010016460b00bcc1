//! Calls: of plain functions, aggregates, windows, and functions that give rows.

use std::rc::Rc;

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};
use thalweg_base::{Error, Result};

use super::from::no_function;
use super::{Binder, Place, Typed, name, unsupported};
use crate::query::aggregate::{Aggregate, Kind};
use crate::query::expr::Expr;
use crate::query::functions;
use crate::query::{Window, WindowFunction};
use crate::types;

impl Binder<'_> {
    /// A plain function, of arguments that are bound.
    pub(super) fn call(&self, called: &str, arguments: Vec<Typed>) -> Result<Typed> {
        let oids: Vec<_> = arguments.iter().map(|a| a.oid).collect();
        let resolved = functions::scalar(called, &oids).ok_or_else(|| {
            let list: Vec<String> =
                oids.iter().map(|oid| types::shown(*oid, -1).unwrap_or(oid.to_string())).collect();
            Error::user(format!("function {called}({}) does not exist", list.join(", ")))
                .code("42883")
        })?;
        let each = arguments.into_iter().zip(&resolved.arguments);
        let bound = each.map(|(typed, to)| self.coerce(typed, *to)).collect::<Result<_>>()?;
        let call =
            Expr::Call { function: resolved.scalar, arguments: bound, types: resolved.arguments };
        Ok(Typed::new(call, resolved.result))
    }

    pub(super) fn function_call(&self, function: &ast::Function, place: Place) -> Result<Typed> {
        let called = name::parts(&function.name).pop().unwrap_or_default();
        let list = match &function.args {
            FunctionArguments::None => None,
            FunctionArguments::Subquery(query) if called == "array" => {
                let query = self.query(query, Some(place.scope))?;
                let element = query.columns.first().map_or(types::TEXT, |c| c.oid);
                let element = if element == types::UNKNOWN { types::TEXT } else { element };
                let oid = types::array_of(element).ok_or_else(|| unsupported("this array"))?;
                return Ok(Typed::new(Expr::ArrayOf(Rc::new(query)), oid));
            }
            FunctionArguments::Subquery(_) => return Err(unsupported("a query as an argument")),
            FunctionArguments::List(list) => Some(list),
        };
        let args = list.map_or(&[][..], |l| l.args.as_slice());
        if let Some(kind) = Kind::named(&called) {
            return self.aggregate(kind, function, args, place);
        }
        if function.over.is_some() {
            let kind = match called.as_str() {
                "row_number" => WindowFunction::RowNumber,
                "rank" => WindowFunction::Rank,
                "dense_rank" => WindowFunction::DenseRank,
                _ => return Err(unsupported(format!("{called}() OVER"))),
            };
            return self.window(kind, types::INT8, function, place);
        }
        let mut arguments = vec![];
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => {
                    arguments.push(self.expr(e, place)?);
                }
                _ => return Err(unsupported("this argument")),
            }
        }
        match called.as_str() {
            "coalesce" => {
                let oid = self.common(arguments.iter().map(|a| a.oid))?;
                let parts = arguments.into_iter().map(|a| self.coerce(a, oid));
                return Ok(Typed::new(Expr::Coalesce(parts.collect::<Result<_>>()?), oid));
            }
            "nullif" if arguments.len() == 2 => {
                let (second, first) = (arguments.pop(), arguments.pop());
                let (Some(first), Some(second)) = (first, second) else {
                    return Err(no_function("nullif"));
                };
                let oid = if first.oid == types::UNKNOWN { types::TEXT } else { first.oid };
                let (first, second) = self.comparable(first, second, "=")?;
                let run: functions::Run = |_, a, _| {
                    Ok(if a[0] == a[1] { crate::value::Value::Null } else { a[0].clone() })
                };
                let function = functions::Scalar { run, strict: false };
                let arguments = vec![first, second];
                return Ok(Typed::new(Expr::Call { function, arguments, types: vec![] }, oid));
            }
            _ => {}
        }
        let oids: Vec<_> = arguments.iter().map(|a| a.oid).collect();
        if functions::set(&called, &oids).is_some() {
            let Some(collected) = place.collected else {
                return Err(
                    Error::user("set-returning functions are not allowed here").code("0A000")
                );
            };
            let (set, arguments) = self.set_call(&called, arguments)?;
            let (oid, fields) = match set.columns.as_slice() {
                [(_, oid)] => (*oid, None),
                columns => (types::RECORD, Some(Rc::new(columns.to_vec()))),
            };
            let mut collected = collected.borrow_mut();
            collected.sets.push((set, arguments));
            let expr = Expr::Set(collected.sets.len() - 1);
            return Ok(Typed { expr, oid, typmod: -1, fields });
        }
        self.call(&called, arguments)
    }

    fn sort_keys(
        &self,
        order: &[ast::OrderByExpr],
        place: Place,
    ) -> Result<Vec<(Expr, bool, bool)>> {
        let key = |by: &ast::OrderByExpr| {
            let descending = by.options.asc == Some(false);
            let expr = self.settled(self.expr(&by.expr, place)?)?.expr;
            Ok((expr, descending, by.options.nulls_first.unwrap_or(descending)))
        };
        order.iter().map(key).collect()
    }

    fn aggregate(
        &self,
        kind: Kind,
        function: &ast::Function,
        args: &[FunctionArg],
        place: Place,
    ) -> Result<Typed> {
        let Some(collected) = place.collected else {
            return Err(Error::user("aggregate functions are not allowed here").code("42803"));
        };
        // Of the rows before grouping.
        let inside = Place { collected: None, ..place };
        let (mut arguments, mut oids) = (vec![], vec![]);
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => {
                    let typed = self.settled(self.expr(e, inside)?)?;
                    oids.push(typed.oid);
                    arguments.push(typed.expr);
                }
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if kind == Kind::Count => {}
                _ => return Err(unsupported("this argument")),
            }
        }
        let wanted = match kind {
            Kind::Count => arguments.len() <= 1,
            Kind::StringAgg | Kind::JsonObjectAgg => arguments.len() == 2,
            _ => arguments.len() == 1,
        };
        if !wanted {
            return Err(no_function(&name::parts(&function.name).join(".")));
        }
        let (mut distinct, mut order) = (false, vec![]);
        if let FunctionArguments::List(list) = &function.args {
            distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
            for clause in &list.clauses {
                match clause {
                    ast::FunctionArgumentClause::OrderBy(by) => {
                        order = self.sort_keys(by, inside)?;
                    }
                    _ => return Err(unsupported("this clause of an aggregate")),
                }
            }
        }
        let filter = match &function.filter {
            Some(filter) => Some(self.condition(filter, inside)?),
            None => None,
        };
        let oid = kind.result(&oids);
        let aggregate = Aggregate { kind, arguments, types: oids, distinct, order, filter };
        if function.over.is_some() {
            return self.window(
                WindowFunction::Aggregate(Box::new(aggregate)),
                oid,
                function,
                place,
            );
        }
        let mut collected = collected.borrow_mut();
        collected.aggregates.push(aggregate);
        Ok(Typed::new(Expr::Aggregate(collected.aggregates.len() - 1), oid))
    }

    fn window(
        &self,
        kind: WindowFunction,
        oid: types::Oid,
        function: &ast::Function,
        place: Place,
    ) -> Result<Typed> {
        let Some(collected) = place.collected else {
            return Err(Error::user("window functions are not allowed here").code("42P20"));
        };
        let spec = match &function.over {
            Some(ast::WindowType::WindowSpec(spec))
                if spec.window_name.is_none() && spec.window_frame.is_none() =>
            {
                spec
            }
            _ => return Err(unsupported("this window")),
        };
        let mut partition = vec![];
        for expr in &spec.partition_by {
            partition.push(self.settled(self.expr(expr, place)?)?.expr);
        }
        let order = self.sort_keys(&spec.order_by, place)?;
        let mut collected = collected.borrow_mut();
        collected.windows.push(Window { function: kind, partition, order });
        Ok(Typed::new(Expr::Window(collected.windows.len() - 1), oid))
    }
}
