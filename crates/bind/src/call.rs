//! Calls of functions: scalar ones, aggregates and windows.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::{Column, DataFusionError, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, NullTreatment, ScalarFunction, Sort,
};
use datafusion::logical_expr::planner::RawAggregateExpr;
use datafusion::logical_expr::type_coercion::functions::{UDFCoercionExt, fields_with_udf};
use datafusion::logical_expr::{
    AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, Operator, ReturnFieldArgs, ScalarUDF,
    Sort as LogicalSort, TypeSignature, lit,
};
use datafusion::sql::sqlparser::ast::{
    self, DuplicateTreatment, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, OrderByExpr, OrderByOptions, WindowType,
};
use thalweg_base::text::nearest;
use thalweg_base::{Error, Subject};

use crate::binder::Binder;
use crate::catalogue;
use crate::failure::{Failure, Result, not_covered, wrong};
use crate::functions::type_name::type_name;
use crate::functions::within_digits::within_digits;
use crate::guard::guarded;
use crate::meaning::is_spelled;
use crate::name::Part;
use crate::operator::average;
use crate::own::{OWN, Own};
use crate::parameters;
use crate::place::{CHOICE, Place};
use crate::rows::series_item;
use crate::typed::Typed;
use crate::types;

/// The parts of a call.
#[derive(Clone)]
pub(crate) struct Call<'c> {
    pub name: String,
    pub args: Vec<&'c ast::Expr>,
    /// `count(*)`
    is_star: bool,
    /// `count(t.*)`
    rows_of: Option<&'c ast::ObjectName>,
    pub distinct: bool,
    pub order_by: &'c [OrderByExpr],
    pub within_group: &'c [OrderByExpr],
    pub filter: Option<&'c ast::Expr>,
    pub null_treatment: Option<NullTreatment>,
    pub over: Option<&'c WindowType>,
}

impl<'c> Call<'c> {
    fn of(function: &'c Function) -> Result<Call<'c>> {
        let [name] = &function.name.0[..] else { return not_covered("a function of a schema") };
        let Some(name) = name.as_ident() else { return not_covered("this function") };
        if function.uses_odbc_syntax || !matches!(function.parameters, FunctionArguments::None) {
            return not_covered("parameters of a function");
        }
        let mut call = Call {
            name: Part::of(name).text,
            args: vec![],
            is_star: false,
            rows_of: None,
            distinct: false,
            order_by: &[],
            within_group: &function.within_group,
            filter: function.filter.as_deref(),
            null_treatment: function.null_treatment.map(treatment),
            over: function.over.as_ref(),
        };
        match &function.args {
            FunctionArguments::None => {}
            FunctionArguments::Subquery(_) => return not_covered("a query as an argument"),
            FunctionArguments::List(list) => {
                call.distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
                for clause in &list.clauses {
                    match clause {
                        FunctionArgumentClause::OrderBy(by) => call.order_by = by,
                        FunctionArgumentClause::IgnoreOrRespectNulls(nulls) => {
                            call.null_treatment = Some(treatment(*nulls));
                        }
                        _ => return not_covered("this clause of a call"),
                    }
                }
                let mut named = vec![];
                for arg in &list.args {
                    match arg {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => call.args.push(expr),
                        FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => call.is_star = true,
                        // All rows of a table are counted, whatever is in them.
                        FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(table)) => {
                            call.rows_of = Some(table);
                            call.is_star = true;
                        }
                        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(arg), .. } => {
                            named.push((Part::of(name).text, arg));
                        }
                        _ => return not_covered("this argument"),
                    }
                    if !named.is_empty() && !matches!(arg, FunctionArg::Named { .. }) {
                        return wrong("42601", "positional argument cannot follow named argument");
                    }
                }
                parameters::place(&call.name, &mut call.args, named)?;
            }
        }
        if call.is_star && (call.name != "count" || !call.args.is_empty() || call.distinct) {
            return not_covered("* as an argument");
        }
        Ok(call)
    }
}

fn treatment(nulls: ast::NullTreatment) -> NullTreatment {
    match nulls {
        ast::NullTreatment::IgnoreNulls => NullTreatment::IgnoreNulls,
        ast::NullTreatment::RespectNulls => NullTreatment::RespectNulls,
    }
}

impl Binder<'_> {
    pub(crate) fn call(&self, function: &Function, place: Place<'_>) -> Result<Typed> {
        if let (FunctionArguments::Subquery(query), [name]) = (&function.args, &function.name.0[..])
            && name.as_ident().is_some_and(|name| Part::of(name).text == "array")
        {
            return self.array_subquery(query, place);
        }
        let call = Call::of(function)?;
        let name = call.name.as_str();
        if matches!(function.args, FunctionArguments::None)
            && let Some(value) = self.without_parentheses(name)?
        {
            return Ok(value);
        }
        if call.over.is_some() {
            return self.window(&call, place);
        }
        if let Some(udaf) = self.names.get_aggregate_meta(name) {
            return self.aggregate(&call, udaf, place);
        }
        if call.distinct
            || !call.order_by.is_empty()
            || call.filter.is_some()
            || call.null_treatment.is_some()
            || !call.within_group.is_empty()
        {
            return not_covered("clauses of aggregates in another call");
        }
        if let Some(function) = self.names.get_higher_order_meta(name) {
            return self.higher_order(function, &call.args, place);
        }
        if let Some(rows) = self.rows_call(name, &call.args, place)? {
            return Ok(rows);
        }
        let own = OWN.iter().find(|(own, _)| *own == name).map(|(_, own)| *own);
        match (own, &call.args[..]) {
            (Some(Own::Modulo), [a, b]) => {
                let (a, b) = (self.expr(a, place)?, self.expr(b, place)?);
                return self.arithmetic(a, Operator::Modulo, b, place);
            }
            (Some(Own::TimeZone), [zone, time]) => return self.at_time_zone(time, zone, place),
            (Some(Own::TypeOf), [value]) => {
                let value = self.expr(value, place)?;
                let name = match value.unknown {
                    true => "unknown".into(),
                    false => types::name(&value.data_type),
                };
                let call = ScalarFunction::new_udf(type_name(name), vec![value.expr]);
                return Ok(Typed::new(Expr::ScalarFunction(call), DataType::Utf8, false));
            }
            (Some(Own::Instant), args) if matches!(args.len(), 6 | 7) => {
                let mut args = self.exprs(args.iter().copied(), place)?;
                let zone = (args.len() == 7).then(|| args.pop()).flatten();
                let clock = self.called("make_timestamp", args)?;
                return match zone {
                    Some(zone) => self.in_zone(clock, zone),
                    None => Ok(clock.cast(&self.instant(TimeUnit::Microsecond))),
                };
            }
            (Some(Own::Now), []) => {
                return self.now().ok_or_else(|| self.no_function(name));
            }
            _ => {}
        }
        let registered = self.names.get_function_meta(name).filter(|_| catalogue::is_called(name));
        match registered {
            Some(udf) => {
                let place = match name {
                    "coalesce" => {
                        Place { without_rows: place.without_rows.or(Some(CHOICE)), ..place }
                    }
                    _ => place,
                };
                let mut args = match (name, &call.args[..]) {
                    ("normalize", [text, form]) => {
                        vec![self.expr(text, place)?, self.normal_form(form, place)?]
                    }
                    (_, args) => self.exprs(args.iter().copied(), place)?,
                };
                if name == "nullif" && args.len() == 2 {
                    return self.null_if(args);
                }
                if ALIKE.contains(&name) {
                    args = self.same_type(args, &name.to_uppercase())?;
                }
                let args = match self.meaning(name, args)? {
                    Ok(value) => return Ok(value),
                    Err(args) => args,
                };
                if args.len() == 1 && WHOLE.contains(&name) {
                    let args = args.into_iter().map(with_another_digit).collect();
                    return self.call_udf(udf, args).map(without_fraction);
                }
                if name == "to_timestamp" && args.len() == 2 {
                    // The function reads the clock in UTC: it is one of the session's zone.
                    let read = self.call_udf(udf, args)?;
                    if !matches!(read.data_type, DataType::Timestamp(_, Some(_))) {
                        return Ok(read);
                    }
                    let utc = Typed::new(lit("UTC"), DataType::Utf8, false);
                    let clock = self.scalar("clock_of", vec![read, utc])?;
                    return Ok(clock.cast(&self.instant(TimeUnit::Microsecond)));
                }
                if let Some(item) = series_item(name, &args) {
                    let list = DataType::new_list(item, true);
                    return Ok(self.call_udf(udf, args)?.cast(&list));
                }
                self.call_udf(udf, args)
            }
            None if own.is_some() => {
                let types: Vec<String> = self
                    .exprs(call.args.iter().copied(), place)?
                    .iter()
                    .map(|arg| types::name(&arg.data_type))
                    .collect();
                let message = format!("function {name}({}) does not exist", types.join(", "));
                Err(self.no_such_call(name, message, &TypeSignature::UserDefined))
            }
            None if self.names.get_window_meta(name).is_some() => {
                wrong("42809", format!("window function {name} requires an OVER clause"))
            }
            None => Err(self.no_function(name)),
        }
    }

    pub(crate) fn no_function(&self, name: &str) -> Failure {
        let known = [
            self.names.udf_names(),
            self.names.higher_order_function_names(),
            self.names.udaf_names(),
            self.names.udwf_names(),
        ];
        let own = OWN.iter().map(|(name, _)| name.to_string());
        let known: Vec<String> =
            known.into_iter().flatten().chain(own).filter(|n| catalogue::is_called(n)).collect();
        let near = nearest(name, known.iter().map(String::as_str));
        let error = Error::user(format!("function {name} does not exist"))
            .code("42883")
            .about(Subject::Function(name.to_string()));
        Failure::Wrong(match near {
            Some(near) => error.hint(format!("did you mean {near}? SHOW FUNCTIONS lists all")),
            None => error.hint("SHOW FUNCTIONS lists all"),
        })
    }

    /// A function by its name.
    pub(crate) fn scalar(&self, name: &str, args: Vec<Typed>) -> Result<Typed> {
        match self.names.get_function_meta(name) {
            Some(udf) => self.call_udf(udf, args),
            None => Err(Failure::Wrong(Error::internal(format!("there is no function {name}")))),
        }
    }

    /// A function that gives whole numbers.
    pub(crate) fn whole_number(&self, name: &str, value: Typed) -> Result<Typed> {
        self.scalar(name, vec![with_another_digit(value)]).map(without_fraction)
    }

    /// `current_date` and its like.
    pub(crate) fn without_parentheses(&self, name: &str) -> Result<Option<Typed>> {
        let to = match name {
            "current_timestamp" => return Ok(self.now()),
            "current_date" => DataType::Date32,
            "current_time" | "localtime" => DataType::Time64(TimeUnit::Nanosecond),
            "localtimestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
            _ => return Ok(None),
        };
        Ok(self.now().map(|now| now.cast(&to)))
    }

    fn call_udf(&self, udf: Arc<ScalarUDF>, mut args: Vec<Typed>) -> Result<Typed> {
        if args.is_empty()
            && let Some(moment) = self.moment(&udf)
        {
            return Ok(moment);
        }
        // The origin of instants is one as well, read in the session's zone and not in UTC.
        if udf.name() == "date_bin"
            && let [_, value, origin] = &mut args[..]
            && matches!(value.data_type, DataType::Timestamp(_, Some(_)))
            && !matches!(origin.data_type, DataType::Timestamp(_, Some(_)))
        {
            *origin = origin.clone().cast(&value.data_type);
        }
        let args = self.coerced(&*udf, args)?;
        let fields: Vec<FieldRef> = args.iter().map(Typed::field).collect();
        let literals: Vec<Option<&ScalarValue>> = args
            .iter()
            .map(|a| match &a.expr {
                Expr::Literal(value, _) => Some(value),
                _ => None,
            })
            .collect();
        let returned = udf.return_field_from_args(ReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &literals,
        })?;
        let is_asked_for = has_unsigned(&args) || names_a_type(udf.name());
        let args = args.into_iter().map(|a| a.expr).collect();
        let expr = Expr::ScalarFunction(ScalarFunction::new_udf(udf, args));
        let value = Typed::new(expr, returned.data_type().clone(), returned.is_nullable());
        // What a function makes of an instant is one of the session.
        Ok(match &value.data_type {
            DataType::Timestamp(unit, Some(zone)) if zone.as_ref() != self.zone() => {
                let instant = self.instant(*unit);
                value.cast(&instant)
            }
            _ if is_asked_for => value,
            _ => signed(value),
        })
    }

    /// The arguments as the types that the function takes.
    pub(crate) fn coerced<F: UDFCoercionExt>(
        &self,
        udf: &F,
        args: Vec<Typed>,
    ) -> Result<Vec<Typed>> {
        let fields: Vec<FieldRef> = args.iter().map(Typed::field).collect();
        let taken = fields_with_udf(&fields, udf).and_then(|taken| {
            let mut pairs = fields.iter().zip(&taken);
            match pairs.any(|(f, t)| is_spelled(udf.name(), f.data_type(), t.data_type())) {
                true => plan_err!("bytes are no text; encode(…, 'hex') spells them"),
                false => Ok(taken),
            }
        });
        match taken {
            Ok(taken) => {
                let args = args.into_iter().zip(&taken).map(|(a, f)| a.cast(f.data_type()));
                Ok(args.collect())
            }
            Err(e) => {
                let given: Vec<String> = args
                    .iter()
                    .map(|a| if a.unknown { "unknown".into() } else { types::name(&a.data_type) })
                    .collect();
                let message =
                    format!("function {}({}) does not exist", udf.name(), given.join(", "));
                let failure =
                    self.no_such_call(udf.name(), message, &udf.signature().type_signature);
                Err(match failure {
                    Failure::Wrong(error) => Failure::Wrong(error.detail(first_line(&e))),
                    other => other,
                })
            }
        }
    }

    /// A function of that name that does not take the arguments that it is called with.
    pub(crate) fn no_such_call(
        &self,
        name: &str,
        message: String,
        signature: &TypeSignature,
    ) -> Failure {
        let error = Error::user(message).code("42883").about(Subject::Function(name.to_string()));
        let ways = catalogue::ways(name, signature);
        Failure::Wrong(match ways.len() {
            0 => error.hint("no function of that name takes these arguments; add explicit casts"),
            1..=WAYS_SHOWN_MAX => {
                error.hint(format!("there is {}; add explicit casts", ways.join(", ")))
            }
            _ => {
                let first = ways[..WAYS_SHOWN_MAX].join(", ");
                error.hint(format!(
                    "there is {first} and more: SELECT * FROM system.functions WHERE name = '{name}'"
                ))
            }
        })
    }

    fn aggregate(
        &self,
        call: &Call<'_>,
        udaf: Arc<AggregateUDF>,
        place: Place<'_>,
    ) -> Result<Typed> {
        // Of a query around it may be another clause.
        let is_misplaced = |clause: Option<&'static str>| match clause {
            Some(clause) => Err(misplaced(&call.name, clause)),
            None => Ok(()),
        };
        if place.scope.parent.is_none() {
            is_misplaced(place.without_aggregates)?;
        }
        let inside = Place {
            without_aggregates: Some(AGGREGATES),
            without_windows: Some("arguments of aggregates"),
            without_rows: Some("arguments of aggregates"),
            ..place
        };
        let filter = match call.filter {
            Some(filter) => {
                let inside = Place {
                    without_aggregates: Some("FILTER"),
                    without_windows: Some("FILTER"),
                    without_rows: Some("FILTER"),
                    ..place
                };
                Some(Box::new(self.condition(filter, inside, "FILTER")?))
            }
            None => None,
        };
        // Several shares of one order.
        if matches!(call.name.as_str(), "percentile_cont" | "percentile_disc")
            && let [ast::Expr::Array(shares)] = &call.args[..]
        {
            let values = shares.elem.iter().map(|share| {
                let one = Call { args: vec![share], ..call.clone() };
                self.aggregate(&one, Arc::clone(&udaf), place)
            });
            let values = self.same_type(values.collect::<Result<_>>()?, &call.name)?;
            return self.scalar("make_array", values);
        }
        // Of times, the average and the sum are those of what is between them.
        if matches!(call.name.as_str(), "avg" | "sum")
            && let [arg] = &call.args[..]
        {
            let sql = *arg;
            let arg = self.expr(arg, inside)?;
            if matches!(arg.data_type, DataType::Time32(_) | DataType::Time64(_)) {
                let since = since_midnight(sql);
                let spans = Call { args: vec![&since], ..call.clone() };
                return self.aggregate(&spans, udaf, place);
            }
            if matches!(arg.data_type, DataType::Interval(_) | DataType::Duration(_)) {
                let raw = RawAggregateExpr {
                    func: Arc::clone(&udaf),
                    args: vec![arg.expr],
                    distinct: call.distinct,
                    filter: filter.clone(),
                    order_by: vec![],
                    null_treatment: call.null_treatment,
                };
                is_misplaced(place.without_aggregates)?;
                if let Some(planned) = self.planned_aggregate(raw, inside)? {
                    return Ok(planned);
                }
                if call.name == "avg" {
                    return self.average_span(call, place);
                }
            }
        }
        let (mut args, mut order_by) = self.arguments(call, &udaf, inside)?;
        let mut udaf = udaf;
        let joining = self.joining(&mut udaf, &mut args, &mut order_by, call.distinct, false)?;
        let named = args.iter().map(|arg| &arg.expr).chain(filter.as_deref());
        let named = named.chain(order_by.iter().map(|sort| &sort.expr));
        let level = place.scope.level(named)?;
        is_misplaced(level.map_or(place.without_aggregates, |scope| scope.without_aggregates))?;
        if let Some(filter) = &filter {
            // Arguments are computed for all rows.
            for arg in &mut args {
                let filter = std::slice::from_ref(filter.as_ref());
                let types = |column: &Column| place.scope.type_of(column);
                let guarded = guarded(arg.expr.clone(), Operator::And, filter, &types)?;
                *arg = Typed { expr: guarded, ..arg.clone() };
            }
        }
        let of = |udaf: Arc<AggregateUDF>, args: Vec<Typed>| {
            let fields: Vec<FieldRef> = args.iter().map(Typed::field).collect();
            let returned = udaf.return_field(&fields)?;
            let (nullable, is_unsigned) = (udaf.is_nullable(), has_unsigned(&args));
            let params = AggregateFunctionParams {
                args: args.into_iter().map(|a| a.expr).collect(),
                distinct: call.distinct,
                filter: filter.clone(),
                order_by: order_by.clone(),
                null_treatment: call.null_treatment,
            };
            let expr = Expr::AggregateFunction(AggregateFunction { func: udaf, params });
            // Plans show what is counted as it is written.
            let expr = if call.is_star { expr.alias("count(*)") } else { expr };
            let mut result = Typed::new(expr, returned.data_type().clone(), nullable);
            if let Some(scope) = level {
                result = scope.lifted(result, self.fresh("aggregate"))?;
            }
            Ok(if is_unsigned { result } else { signed(result) })
        };
        let value = self.aggregated(udaf, args, of)?;
        self.with_joined(value, joining)
    }

    /// The average of intervals: their sum divided by their count.
    fn average_span(&self, call: &Call<'_>, place: Place<'_>) -> Result<Typed> {
        let other = |name: &str| {
            let Some(udaf) = self.names.get_aggregate_meta(name) else {
                return not_covered("an average of intervals");
            };
            self.aggregate(&Call { name: name.into(), ..call.clone() }, udaf, place)
        };
        let (sum, count) = (other("sum")?, other("count")?);
        // Of no intervals there is none.
        let none = Typed::new(lit(0_i64), DataType::Int64, false);
        let count = self.scalar("nullif", vec![count, none])?;
        self.arithmetic(sum, Operator::Divide, count, place)
    }

    /// An aggregate of arguments; the average of decimals is made of their sum and their count.
    pub(crate) fn aggregated(
        &self,
        udaf: Arc<AggregateUDF>,
        args: Vec<Typed>,
        of: impl Fn(Arc<AggregateUDF>, Vec<Typed>) -> Result<Typed>,
    ) -> Result<Typed> {
        let is_average = udaf.name() == "avg" && types::is_decimal(&args[0].data_type);
        let parts = is_average.then(|| {
            Some((self.names.get_aggregate_meta("sum")?, self.names.get_aggregate_meta("count")?))
        });
        match parts.flatten() {
            Some((sum, count)) => average(of(sum, args.clone())?, of(count, args)?),
            None => {
                // A sum has ten digits more than what is added, as far as there are so many.
                let is_long = matches!(args.first().map(|arg| &arg.data_type),
                    Some(&DataType::Decimal128(precision, _)) if precision + 10 > types::DIGITS_MAX);
                let is_sum = udaf.name() == "sum";
                let value = of(udaf, args)?;
                Ok(if is_sum && is_long { within_digits(value) } else { value })
            }
        }
    }

    /// The arguments of an aggregate, and the order in which it sees its rows.
    pub(crate) fn arguments(
        &self,
        call: &Call<'_>,
        udaf: &AggregateUDF,
        place: Place<'_>,
    ) -> Result<(Vec<Typed>, Vec<Sort>)> {
        if let Some(table) = call.rows_of
            && !place.scope.is_of_one_table(&crate::name::parts(table)?)
        {
            let error = Error::unsupported(format!("count({table}.*) beside other tables"));
            return Err(error.hint("count a column of it that is never NULL").into());
        }
        let is_row = match &call.args[..] {
            [arg] if call.name == "count" && !call.distinct => self.whole_row(arg, place).is_some(),
            _ => false,
        };
        if is_row
            && let [ast::Expr::Identifier(table)] = &call.args[..]
            && !place.scope.is_of_one_table(&[Part::of(table)])
        {
            let error = Error::unsupported(format!("count({table}) beside other tables"));
            return Err(error.hint("count a column of it that is never NULL").into());
        }
        if call.is_star || is_row {
            let one = lit(1_i64);
            return Ok((vec![Typed::new(one, DataType::Int64, false)], vec![]));
        }
        let mut args = self.exprs(call.args.iter().copied(), place)?;
        let is_ordered_set = udaf.supports_within_group_clause();
        let order_by = match (is_ordered_set, call.within_group.is_empty()) {
            (true, true) if !call.order_by.is_empty() => {
                return not_covered("ORDER BY in this aggregate");
            }
            (true, true) => vec![],
            (true, false) => {
                let by = self.sorts(call.within_group, place)?;
                if by.len() != 1 {
                    return not_covered("WITHIN GROUP by several expressions");
                }
                let first = self.value(&call.within_group[0].expr, place)?;
                args.insert(0, first);
                by
            }
            (false, false) => {
                return wrong("42809", format!("{} is not an ordered-set aggregate", call.name));
            }
            (false, true) => self.sorts(call.order_by, place)?,
        };
        if call.null_treatment.is_some() && !udaf.supports_null_handling_clause() {
            return wrong(
                "42601",
                format!("{} does not take IGNORE NULLS or RESPECT NULLS", call.name),
            );
        }
        if udaf.name() == "sum"
            && let [arg] = &mut args[..]
        {
            // What holds the sum of any number of rows.
            let wider = match arg.data_type {
                DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::Int64,
                DataType::Int64 => DataType::Decimal128(19, 0),
                DataType::UInt64 => DataType::Decimal128(20, 0),
                _ => arg.data_type.clone(),
            };
            *arg = arg.clone().cast(&wider);
        }
        counted(args.iter_mut().skip(1));
        Ok((self.coerced(udaf, args)?, order_by))
    }

    /// An ORDER BY of a window or an aggregate.
    pub(crate) fn sorts(&self, by: &[OrderByExpr], place: Place<'_>) -> Result<Vec<Sort>> {
        by.iter()
            .map(|by| {
                let value = self.value(&by.expr, place)?;
                self.sort(value.expr, by)
            })
            .collect()
    }

    /// NULL is greater than everything else unless the statement says where it goes.
    pub(crate) fn sort(&self, expr: Expr, by: &OrderByExpr) -> Result<Sort> {
        if by.with_fill.is_some() {
            return not_covered("WITH FILL");
        }
        Ok(sort(expr, &by.options))
    }
}

/// A time of day as an interval.
fn since_midnight(time: &ast::Expr) -> ast::Expr {
    let midnight = ast::Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(ast::Expr::Value(ast::Value::SingleQuotedString("00:00".into()).into())),
        data_type: ast::DataType::Time(None, ast::TimezoneInfo::None),
        array: false,
        format: None,
    };
    let (left, right) = (Box::new(time.clone()), Box::new(midnight));
    let left = Box::new(ast::Expr::Nested(left));
    ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Minus, right }
}

/// Rows in order. DataFusion's builder looks for expressions below under the names of the columns that are
/// sorted by, and names leave casts out: of `ts::date AS day, min(v) AS ts`, `ts` was the day.
pub(crate) fn sorted(rows: LogicalPlanBuilder, order: Vec<Sort>) -> Result<LogicalPlanBuilder> {
    let input = rows.build()?;
    let schema = input.schema();
    let is_there = |column: &&Column| schema.maybe_index_of_column(column).is_some();
    if !order.iter().all(|key| key.expr.column_refs().iter().all(is_there)) {
        return Ok(LogicalPlanBuilder::from(input).sort(order)?);
    }
    let input = Arc::new(input);
    let sorted = LogicalPlan::Sort(LogicalSort { expr: order, input, fetch: None });
    Ok(LogicalPlanBuilder::from(sorted))
}

/// An expression of an order.
pub(crate) fn sort(expr: Expr, options: &OrderByOptions) -> Sort {
    let asc = options.asc.unwrap_or(true);
    Sort::new(expr, asc, options.nulls_first.unwrap_or(!asc))
}

/// A decimal with room for what its values are rounded to: `ceil(99.99)` is 100.
fn with_another_digit(value: Typed) -> Typed {
    match value.data_type {
        DataType::Decimal128(precision, scale @ 1..) if precision < types::DIGITS_MAX => {
            value.cast(&DataType::Decimal128(precision + 1, scale))
        }
        _ => value,
    }
}

/// A decimal that is whole, as one without digits behind its point.
fn without_fraction(value: Typed) -> Typed {
    match value.data_type {
        DataType::Decimal128(precision, scale @ 1..) => {
            let digits = (i16::from(precision) - i16::from(scale)).max(0) as u8 + 1;
            value.cast(&DataType::Decimal128(digits, 0))
        }
        _ => value,
    }
}

/// Ways to call a function that a hint lists.
const WAYS_SHOWN_MAX: usize = 5;

/// Functions that give whole numbers.
const WHOLE: [&str; 4] = ["ceil", "ceiling", "floor", "trunc"];

/// Functions that give one of their arguments.
const ALIKE: [&str; 5] = ["coalesce", "ifnull", "nvl", "greatest", "least"];

/// Counts and places that are written: functions look for bigints.
pub(crate) fn counted<'t>(args: impl IntoIterator<Item = &'t mut Typed>) {
    for arg in args {
        if matches!(arg.expr, Expr::Literal(..)) && arg.data_type == DataType::Int32 {
            *arg = arg.clone().cast(&DataType::Int64);
        }
    }
}

pub(crate) fn has_unsigned(args: &[Typed]) -> bool {
    args.iter().any(|arg| without_unsigned(&arg.data_type).is_some())
}

/// Whether a function's result is of a type that its arguments name.
fn names_a_type(function: &str) -> bool {
    function.starts_with("arrow_") || function.contains("cast")
}

/// Functions that count, number or find places do so in signed numbers.
pub(crate) fn signed(result: Typed) -> Typed {
    match without_unsigned(&result.data_type) {
        Some(data_type) => result.cast(&data_type),
        None => result,
    }
}

/// The type with bigints in the place of unsigned integers; `None` if it has none.
fn without_unsigned(data_type: &DataType) -> Option<DataType> {
    match data_type {
        t if t.is_unsigned_integer() => Some(DataType::Int64),
        DataType::List(item) => {
            let of_items = without_unsigned(item.data_type())?;
            Some(DataType::List(Arc::new(item.as_ref().clone().with_data_type(of_items))))
        }
        _ => None,
    }
}

/// Where an aggregate stands within another.
const AGGREGATES: &str = "arguments of aggregates";

/// An aggregate where there are no groups.
fn misplaced(name: &str, clause: &str) -> Failure {
    let error = match clause {
        AGGREGATES => Error::user("aggregate function calls cannot be nested"),
        _ => Error::user(format!("aggregate functions are not allowed in {clause}")),
    };
    let error = error.code("42803").about(Subject::Function(name.to_string()));
    Failure::Wrong(match clause {
        AGGREGATES => error.hint("aggregate in a query within FROM, and aggregate its result"),
        "WHERE" => error.hint("filter groups with HAVING"),
        _ => error,
    })
}

/// What DataFusion says, without the kind of its error before it.
fn first_line(e: &DataFusionError) -> String {
    let text = e.message();
    text.lines().next().unwrap_or_default().to_string()
}
