//! Calls of functions over windows.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    self, Expr, WindowFrame, WindowFunctionDefinition, WindowUDF, lit, when,
};
use datafusion::sql::sqlparser::ast::{
    self, NamedWindowExpr, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use thalweg_base::Error;

use crate::binder::Binder;
use crate::call::{Call, counted, has_unsigned, signed};
use crate::failure::{Result, not_covered, wrong};
use crate::name::Part;
use crate::place::Place;
use crate::typed::Typed;
use crate::types;

/// Functions of a window that are of a value.
const VALUED: [&str; 5] = ["first_value", "last_value", "nth_value", "lead", "lag"];

/// Those of them that look at the frame.
const OF_FRAMES: [&str; 3] = ["first_value", "last_value", "nth_value"];

impl Binder<'_> {
    pub(crate) fn window(&self, call: &Call<'_>, place: Place<'_>) -> Result<Typed> {
        if let Some(clause) = place.without_windows {
            return wrong("42P20", format!("window functions are not allowed in {clause}"));
        }
        if !call.order_by.is_empty() || !call.within_group.is_empty() {
            return not_covered("ORDER BY in the arguments of a window function");
        }
        let inside = Place {
            without_windows: Some("window definitions"),
            without_rows: Some("window definitions"),
            ..place
        };
        let spec = self.window_spec(call, place)?;
        let partition_by = self.exprs(&spec.partition_by, inside)?;
        // A constant parts nothing.
        let partition_by = partition_by.into_iter().map(|p| p.expr);
        let partition_by: Vec<Expr> =
            partition_by.filter(|p| !matches!(p, Expr::Literal(..))).collect();
        let mut order_by = self.sorts(&spec.order_by, inside)?;
        let mut has_no_rows = false;
        let mut window_frame = match &spec.window_frame {
            Some(frame) => {
                self.check_distance(frame, &spec, inside)?;
                has_no_rows = is_empty(frame);
                let frame: WindowFrame = match has_no_rows {
                    true => ast::WindowFrame {
                        units: frame.units,
                        start_bound: WindowFrameBound::CurrentRow,
                        end_bound: None,
                    },
                    false => frame.clone(),
                }
                .try_into()?;
                frame.regularize_order_bys(&mut order_by)?;
                frame
            }
            None => WindowFrame::new((!order_by.is_empty()).then_some(false)),
        };
        let first = self.exprs(spec.order_by.first().map(|key| &key.expr), inside)?;
        if first.iter().any(|key| !has_ranges(&key.data_type)) && is_of_peers(&window_frame) {
            window_frame.units = logical_expr::WindowFrameUnits::Groups;
        }
        let filter = match call.filter {
            Some(filter) => Some(Box::new(self.condition(filter, inside, "FILTER")?)),
            None => None,
        };
        // Of a frame that is empty by its bounds, no row is taken.
        let filter = if has_no_rows { Some(Box::new(lit(false))) } else { filter };
        let of = |fun: WindowFunctionDefinition,
                  args: Vec<Typed>,
                  nullable: Option<bool>,
                  null_treatment: Option<NullTreatment>| {
            let fields: Vec<FieldRef> = args.iter().map(Typed::field).collect();
            let returned = fun.return_field(&fields, "")?;
            let is_unsigned = has_unsigned(&args);
            let is_aggregate = matches!(fun, WindowFunctionDefinition::AggregateUDF(_));
            let params = WindowFunctionParams {
                args: args.into_iter().map(|a| a.expr).collect(),
                partition_by: partition_by.clone(),
                order_by: order_by.clone(),
                window_frame: window_frame.clone(),
                filter: filter.clone().filter(|_| is_aggregate || !has_no_rows),
                null_treatment,
                distinct: call.distinct,
            };
            let expr = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
            let nullable = nullable.unwrap_or(returned.is_nullable());
            let result = Typed::new(expr, returned.data_type().clone(), nullable);
            Ok(if is_unsigned { result } else { signed(result) })
        };
        // What is true of all rows of a moving frame is the least of its values, which can be followed.
        let name = match call.name.as_str() {
            "bool_and" | "every" => "min",
            "bool_or" => "max",
            name => name,
        };
        if let Some(udwf) = self.names.get_window_meta(name) {
            // DataFusion's look for it where it is not.
            if VALUED.contains(&udwf.name()) && call.args.is_empty() {
                let message = format!("function {name}() does not exist");
                return Err(self.no_such_call(name, message, &udwf.signature().type_signature));
            }
            let mut args = self.exprs(call.args.iter().copied(), inside)?;
            if has_no_rows && OF_FRAMES.contains(&udwf.name()) {
                let null = ScalarValue::try_new_null(&args[0].data_type)?;
                return Ok(Typed::new(lit(null), args[0].data_type.clone(), true));
            }
            // The first is a value, but for `ntile(4)`.
            let values = usize::from(args.len() > 1);
            counted(args.iter_mut().skip(values));
            // Rows in nobody knows how many parts are in none.
            if udwf.name() == "ntile" && args.iter().any(Typed::is_null) {
                return Ok(Typed::new(lit(ScalarValue::Int64(None)), DataType::Int64, true));
            }
            if matches!(udwf.name(), "lag" | "lead") && args.len() > 1 {
                return self.other_row(udwf, args, call.null_treatment, of);
            }
            let args = self.coerced(&*udwf, args)?;
            return of(WindowFunctionDefinition::WindowUDF(udwf), args, None, call.null_treatment);
        }
        let Some(udaf) = self.names.get_aggregate_meta(name) else {
            return Err(self.no_function(name));
        };
        if udaf.supports_within_group_clause() {
            return not_covered("an ordered-set aggregate over a window");
        }
        let (mut args, mut by) = self.arguments(call, &udaf, inside)?;
        let mut udaf = udaf;
        let moves = !matches!(
            window_frame.start_bound,
            logical_expr::WindowFrameBound::Preceding(ref by) if by.is_null()
        );
        let joining = self.joining(&mut udaf, &mut args, &mut by, call.distinct, moves)?;
        let value = self.aggregated(udaf, args, |udaf, args| {
            let nullable = udaf.is_nullable();
            let function = WindowFunctionDefinition::AggregateUDF(udaf);
            of(function, args, Some(nullable), call.null_treatment)
        })?;
        self.with_joined(value, joining)
    }

    /// `lag(value, distance, default)` and `lead`.
    fn other_row(
        &self,
        udwf: Arc<WindowUDF>,
        mut args: Vec<Typed>,
        null_treatment: Option<NullTreatment>,
        of: impl Fn(
            WindowFunctionDefinition,
            Vec<Typed>,
            Option<bool>,
            Option<NullTreatment>,
        ) -> Result<Typed>,
    ) -> Result<Typed> {
        let mut default = None;
        if args.len() == 3 {
            // The value and its default are of one type.
            let distance = args.remove(1);
            let given = [&args[0], &distance, &args[1]].map(|arg| types::name(&arg.data_type));
            args = self.same_type(args, udwf.name()).map_err(|_| {
                let message =
                    format!("function {}({}) does not exist", udwf.name(), given.join(", "));
                self.no_such_call(udwf.name(), message, &udwf.signature().type_signature)
            })?;
            default = args.pop().filter(|default| !default.is_null());
            args.push(distance);
        }
        // Nobody knows which row so far away is.
        if args[1].is_null() {
            let value = args.swap_remove(0);
            let null = ScalarValue::try_new_null(&value.data_type)?;
            return Ok(Typed::new(lit(null), value.data_type, true));
        }
        let call = |args: Vec<Typed>| {
            let args = self.coerced(&*udwf, args)?;
            let function = WindowFunctionDefinition::WindowUDF(Arc::clone(&udwf));
            of(function, args, None, null_treatment)
        };
        let Some(default) = default else { return call(args) };
        if matches!(default.expr, Expr::Literal(..)) {
            args.push(default);
            return call(args);
        }
        // A default of the row itself stands where there is no other row.
        if null_treatment == Some(NullTreatment::IgnoreNulls) {
            return self.scalar("coalesce", vec![call(args)?, default]);
        }
        let boolean = |value: bool| Typed::boolean(lit(value), false);
        let found = call(vec![boolean(true), args[1].clone(), boolean(false)])?;
        let value = call(args)?;
        let expr = when(found.expr, value.expr).otherwise(default.expr)?;
        Ok(Typed::new(expr, value.data_type, true))
    }

    /// A distance is one between numbers or times; DataFusion has none between times of day, or between intervals.
    fn check_distance(
        &self,
        frame: &ast::WindowFrame,
        spec: &WindowSpec,
        place: Place<'_>,
    ) -> Result<()> {
        let is_distance = |bound: &WindowFrameBound| {
            matches!(
                bound,
                WindowFrameBound::Preceding(Some(_)) | WindowFrameBound::Following(Some(_))
            )
        };
        let bounds = std::iter::once(&frame.start_bound).chain(&frame.end_bound);
        if frame.units != WindowFrameUnits::Range || !bounds.into_iter().any(is_distance) {
            return Ok(());
        }
        let [by] = &spec.order_by[..] else { return Ok(()) };
        let key = self.value(&by.expr, place)?.data_type;
        let is_instant = matches!(key, DataType::Date32 | DataType::Timestamp(..));
        if types::is_number(&key) || is_instant || key == DataType::Null {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {}",
            types::name(&key)
        ))
        .hint("ROWS counts rows, and GROUPS those that are equal in the order")
        .into())
    }

    /// A window as its definition and the named one that it starts from say.
    fn window_spec(&self, call: &Call<'_>, place: Place<'_>) -> Result<WindowSpec> {
        let (mut spec, mut base) = match call.over {
            Some(WindowType::WindowSpec(spec)) => (spec.clone(), spec.window_name.clone()),
            Some(WindowType::NamedWindow(name)) => (
                WindowSpec {
                    window_name: None,
                    partition_by: vec![],
                    order_by: vec![],
                    window_frame: None,
                },
                Some(name.clone()),
            ),
            None => return not_covered("a window function without OVER"),
        };
        let mut steps = 0;
        while let Some(name) = base {
            let wanted = Part::of(&name);
            let found = place.windows.iter().find(|w| Part::of(&w.0).text == wanted.text);
            steps += 1;
            let Some(found) = found.filter(|_| steps <= place.windows.len()) else {
                return wrong("42704", format!("window \"{}\" does not exist", wanted.text));
            };
            base = match &found.1 {
                NamedWindowExpr::NamedWindow(other) => Some(other.clone()),
                NamedWindowExpr::WindowSpec(other) => {
                    if spec.partition_by.is_empty() {
                        spec.partition_by.clone_from(&other.partition_by);
                    }
                    if spec.order_by.is_empty() {
                        spec.order_by.clone_from(&other.order_by);
                    }
                    if spec.window_frame.is_none() {
                        spec.window_frame.clone_from(&other.window_frame);
                    }
                    other.window_name.clone()
                }
            };
        }
        Ok(spec)
    }
}

/// Whether DataFusion has RANGE for values of this type.
fn has_ranges(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || data_type.is_string()
        || data_type.is_null()
        || data_type.is_list()
        || matches!(data_type, DataType::Boolean | DataType::Date32 | DataType::Timestamp(..))
}

/// Whether rows with equal keys are what a frame begins and ends with, and no distance: RANGE and GROUPS are
/// the same then.
fn is_of_peers(frame: &WindowFrame) -> bool {
    use logical_expr::WindowFrameBound::{CurrentRow, Following, Preceding};
    let plain = |bound: &_| match bound {
        CurrentRow => true,
        Preceding(distance) | Following(distance) => distance.is_null(),
    };
    frame.units == logical_expr::WindowFrameUnits::Range
        && plain(&frame.start_bound)
        && plain(&frame.end_bound)
}

/// Whether no row can be between the bounds of a frame: the first is behind the last.
fn is_empty(frame: &ast::WindowFrame) -> bool {
    let distance = |bound: &WindowFrameBound| {
        let (sign, by) = match bound {
            WindowFrameBound::Preceding(by) => (-1, by.as_ref()?),
            WindowFrameBound::Following(by) => (1, by.as_ref()?),
            WindowFrameBound::CurrentRow => return None,
        };
        match by.as_ref() {
            ast::Expr::Value(value) => match &value.value {
                ast::Value::Number(text, _) => Some((sign, text.parse::<f64>().ok()?)),
                _ => None,
            },
            _ => None,
        }
    };
    let ends = (distance(&frame.start_bound), frame.end_bound.as_ref().and_then(distance));
    match ends {
        (Some((one, start)), Some((other, end))) => {
            one == other && f64::from(one) * start > f64::from(other) * end
        }
        _ => false,
    }
}
