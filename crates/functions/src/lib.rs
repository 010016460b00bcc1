//! Functions that PostgreSQL has and DataFusion has not, or has with another meaning.
//!
//! The crate computes with arrays: it knows no sessions, no plans and no threads. What can be called and
//! with which types is in the catalogue of the binder, which knows functions by their names alone.
//!
//! * [`calendar`]: points of time and spans taken apart
//! * [`times_text`], [`list_text`], [`text_as`]: texts read as times, lists and numbers; [`as_text`]: the
//!   way back
//! * [`to_char`], [`number_pattern`], [`from_char`], [`to_number`]: patterns of times and numbers, both ways
//! * [`parts`]: `extract`, `date_part`, `date_trunc`; [`spans`]: `age`, `make_timestamp`, …
//! * [`long_lists`]: bounds for the functions that make lists; [`list_key`]: what lists are compared by
//! * [`interval_key`], [`interval_max`], [`interval_times`]: what intervals are compared by, and scaled
//! * [`delimited`]: the texts of a `string_agg`
//! * [`canonical_float`]: one zero and one NaN; [`cut_text`]: casts to `varchar(n)`
//! * [`patterns`]: of LIKE and SIMILAR TO; [`text`]: `format`, and bounds of `lpad` and `repeat`;
//!   [`letters`]: `upper` and its like; [`quoting`]: names and literals
//! * [`around`]: functions of DataFusion's that are called in a way of ours
//! * [`rowwise`]: functions that are given one row after the other; of them [`regexp`]: regular
//!   expressions, and [`strings`]: others of texts and bytes
//! * [`numbers`]: `width_bucket`, `div`; [`partial`]: roots and logarithms of numbers that have none;
//!   [`aggregates`]: `mode`, `percentile_disc`
//! * [`zones`]: clocks and instants
//! * [`ordered_lists`]: `array_agg` with an order; [`string_agg`]; [`first_last`]: `first_value` and
//!   `last_value`
//! * [`regression`]: `corr`, `regr_slope` and their like; `spread.rs`: `variance` and `stddev`; [`moving`]:
//!   aggregates over frames that move
//! * [`array_remove`], [`list_contains`], [`percentile`]: functions that DataFusion has otherwise
//! * [`bytea`]: bytes as texts
//! * [`operators`]: what `-` and `+` mean between dates and timestamps

pub mod aggregates;
pub mod around;
pub mod array_remove;
pub mod as_text;
pub mod bytea;
pub mod calendar;
pub mod canonical_float;
pub mod cut_text;
mod delegated;
pub mod delimited;
pub mod extremes;
pub mod first_last;
pub mod from_char;
pub mod interval_key;
pub mod interval_max;
pub mod interval_times;
pub mod letters;
pub mod list_contains;
pub mod list_key;
pub mod list_text;
pub mod long_lists;
pub mod moving;
pub mod number_pattern;
pub mod numbers;
mod one_group;
pub mod operators;
pub mod ordered_lists;
pub mod partial;
pub mod parts;
pub mod patterns;
pub mod percentile;
pub mod quoting;
pub mod regexp;
pub mod regression;
mod row_keys;
pub mod rowwise;
pub mod spans;
mod spread;
pub mod string_agg;
pub mod strings;
pub mod text;
pub mod text_as;
pub mod times_text;
pub mod to_char;
pub mod to_number;
pub mod zones;

use std::sync::Arc;

use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, ScalarUDFImpl};
use datafusion::{functions, functions_aggregate, functions_nested};

use around::{around, around_strict, of_rows};

/// Puts our meaning of operators before DataFusion's.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut planners = builder.expr_planners().take().unwrap_or_default();
    planners.insert(0, Arc::new(operators::Operators));
    builder.with_expr_planners(planners)
}

/// Makes the functions known, in the place of DataFusion's where these have other meanings.
pub fn register(state: &mut SessionState) {
    let to_timestamp = functions::datetime::to_timestamp(state.config_options());
    // A registry in memory refuses nothing.
    let mut add = |function: ScalarUDF| {
        let _ = state.register_udf(Arc::new(function));
    };
    // Patterns of strftime keep DataFusion's function, under the names of DuckDB and MySQL.
    let strftime = around(functions::datetime::to_char(), to_char::strftime);
    add(strftime.with_aliases(["strftime", "date_format"]));
    add(of(to_char::ToChar::default()));
    add(of(from_char::FromChar::new(functions::datetime::to_date())));
    add(of(from_char::FromChar::new(to_timestamp)));
    add(of(parts::DatePart::new(functions::datetime::date_part())));
    add(of(parts::DateTrunc::new(functions::datetime::date_trunc())));
    for kind in spans::KINDS {
        add(of(spans::Spans::new(kind)));
    }
    for function in [
        &zones::CLOCK_OF,
        &zones::INSTANT_OF,
        &zones::INSTANT_PLUS,
        &zones::INSTANT_MINUS,
        &zones::TIMEZONE,
    ] {
        add(function.as_ref().clone());
    }
    for function in regexp::calls::FUNCTIONS.into_iter().chain(strings::FUNCTIONS) {
        add(of(rowwise::Rowwise::new(function)));
    }
    for function in
        [functions::string::upper(), functions::string::lower(), functions::unicode::initcap()]
    {
        add(around(function, letters::call));
    }
    add(of(delimited::Joined::new(false)));
    add(of(delimited::Joined::new(true)));
    add(of(patterns::Pattern::new(false)));
    add(of(patterns::Pattern::new(true)));
    add(of(cut_text::CutText::new(false)));
    add(of(cut_text::CutText::new(true)));
    add(of(text::Format::default()));
    for function in
        [functions::unicode::lpad(), functions::unicode::rpad(), functions::string::repeat()]
    {
        add(around(function, text::bounded));
    }
    for lists in [
        functions_nested::repeat::array_repeat_udf(),
        functions_nested::resize::array_resize_udf(),
        functions_nested::range::range_udf(),
        functions_nested::range::gen_series_udf(),
    ] {
        add(around(lists, long_lists::call));
    }
    for function in [
        functions::math::sqrt(),
        functions::math::ln(),
        functions::math::log(),
        functions::math::log10(),
        functions::math::log2(),
        functions::math::power(),
        functions::math::exp(),
        functions::math::acos(),
        functions::math::asin(),
        functions::math::acosh(),
        functions::math::atanh(),
        functions::math::sin(),
        functions::math::cos(),
        functions::math::tan(),
        functions::math::cot(),
        functions::math::degrees(),
    ] {
        add(around_strict(function, partial::call));
    }
    // It makes IN of a constant list, which has another answer where the list has a NULL.
    add(around(functions_nested::array_has::array_has_udf(), around::unsimplified));
    for function in [
        functions_nested::array_has::array_has_all_udf(),
        functions_nested::array_has::array_has_any_udf(),
    ] {
        add(around(function, list_contains::call));
    }
    add(around(functions_nested::string::array_to_string_udf(), as_text::array_to_string));
    let ceil = functions::math::ceil().as_ref().clone().with_aliases(["ceiling"]);
    for function in [Arc::new(ceil), functions::math::floor(), functions::math::round()] {
        add(of_rows(function));
    }
    add(functions::math::signum().as_ref().clone().with_aliases(["sign"]));
    add(of(array_remove::ArrayRemove::default()));
    add(of(numbers::WidthBucket::default()));
    add(of(numbers::Div::default()));
    add(of(to_number::ToNumber::default()));
    let mut add = |function: AggregateUDF| {
        let _ = state.register_udaf(Arc::new(function));
    };
    let bool_and = functions_aggregate::bool_and_or::bool_and_udaf();
    add(bool_and.as_ref().clone().with_aliases(["every"]));
    for extreme in
        [functions_aggregate::min_max::min_udaf(), functions_aggregate::min_max::max_udaf()]
    {
        add(AggregateUDF::new_from_impl(extremes::Extreme(extreme)));
    }
    let variance = functions_aggregate::variance::var_samp_udaf();
    let variance = Arc::new(variance.as_ref().clone().with_aliases(["variance"]));
    for figure in [variance, functions_aggregate::stddev::stddev_udaf()] {
        if let Some(figure) = spread::Spread::of(figure) {
            add(figure);
        }
    }
    for figure in functions_aggregate::all_default_aggregate_functions() {
        if let Some(figure) = regression::Regression::of(figure) {
            add(figure);
        }
    }
    add(AggregateUDF::new_from_impl(aggregates::Ordered::new(false)));
    add(AggregateUDF::new_from_impl(aggregates::Ordered::new(true)));
    add(AggregateUDF::new_from_impl(ordered_lists::ArrayAgg::default()));
    add(AggregateUDF::new_from_impl(string_agg::StringAgg::default()));
    add(AggregateUDF::new_from_impl(first_last::FirstLast::new(false)));
    add(AggregateUDF::new_from_impl(first_last::FirstLast::new(true)));
    add(AggregateUDF::new_from_impl(percentile::PercentileCont::default()));
}

fn of(function: impl ScalarUDFImpl + 'static) -> ScalarUDF {
    ScalarUDF::new_from_impl(function)
}
