//! Functions that mean something else than DataFusion's of the same name, and arguments that these would
//! take for what they are not.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Expr, Operator, lit};
use thalweg_base::{Error, Subject};

use crate::binder::Binder;
use crate::failure::Result;
use crate::functions::{places, rounded};
use crate::operator::whole;
use crate::typed::{Typed, binary};
use crate::types;

impl Binder<'_> {
    /// The value of a call, or its arguments if the function means what DataFusion's does.
    pub(crate) fn meaning(
        &self,
        name: &str,
        mut args: Vec<Typed>,
    ) -> Result<std::result::Result<Typed, Vec<Typed>>> {
        match (name, &mut args[..]) {
            // Half goes to the even number, as it does in a cast.
            ("round", [x]) if types::is_float(&x.data_type) => {
                let call = ScalarFunction::new_udf(rounded::whole(), vec![x.expr.clone()]);
                return Ok(Ok(Typed { expr: Expr::ScalarFunction(call), ..x.clone() }));
            }
            // So many digits behind the point as are asked for, as far as these are known.
            ("round" | "trunc", [x, n]) if types::is_exact(&x.data_type) => {
                let Some(DataType::Decimal128(precision, scale)) = types::as_decimal(&x.data_type)
                else {
                    return Ok(Err(args));
                };
                let Some(places) = whole(&n.expr) else {
                    if !n.data_type.is_integer() && !n.is_open() {
                        return Ok(Err(args));
                    }
                    let exact = x.clone().cast(&DataType::Decimal128(precision, scale));
                    let n = n.clone().cast(&DataType::Int64);
                    let nullable = exact.nullable || n.nullable;
                    let function = places::places(name == "round");
                    let call = ScalarFunction::new_udf(function, vec![exact.expr, n.expr]);
                    let to = places::places_type(precision, scale);
                    return Ok(Ok(Typed::new(Expr::ScalarFunction(call), to, nullable)));
                };
                let places = places.clamp(-i128::from(types::DIGITS_MAX), types::DIGITS_MAX.into());
                let exact = x.clone().cast(&DataType::Decimal128(precision, scale));
                let rounded = self.scalar(name, vec![exact, n.clone()])?;
                let behind = places.max(0) as i16;
                // Rounding may give another digit before the point.
                let before = i16::from(precision) - i16::from(scale) + 1;
                let digits = (before + behind).clamp(1, types::DIGITS_MAX.into()) as u8;
                return Ok(Ok(rounded.cast(&DataType::Decimal128(digits, behind as i8))));
            }
            // A list without items has no length in PostgreSQL, if it is asked for that of a dimension.
            ("array_length", [_, _]) => {
                let length = self.scalar(name, args)?;
                let none = Typed::new(lit(0_i64), DataType::Int64, false);
                let none = none.cast(&length.data_type);
                return Ok(Ok(self.scalar("nullif", vec![length, none])?));
            }
            // A NULL, or a literal without a type, is a list beside one.
            ("array_cat" | "array_concat" | "list_cat" | "list_concat", [a, b])
                if a.is_open() != b.is_open() =>
            {
                let (open, list) = if a.is_open() { (a, b) } else { (b, a) };
                if matches!(list.data_type, DataType::List(_)) {
                    *open = open.clone().cast(&list.data_type);
                }
            }
            // All of them, not the first alone.
            ("array_replace" | "list_replace", [_, _, _]) => {
                return Ok(Ok(self.scalar("array_replace_all", args)?));
            }
            // Beside an instant a clock is the instant at which it shows that: not every clock shows it.
            ("age", [a, b]) if is_instant(a) != is_instant(b) => {
                let clock = if is_instant(a) { b } else { a };
                if matches!(clock.data_type, DataType::Date32 | DataType::Timestamp(..)) {
                    *clock = clock.clone().cast(&self.instant(TimeUnit::Microsecond));
                }
            }
            // Negative integers have 32 bits.
            ("to_hex", [x])
                if matches!(x.data_type, DataType::Int8 | DataType::Int16 | DataType::Int32) =>
            {
                let wide = x.clone().cast(&DataType::Int64);
                let bits = binary(wide.expr, Operator::BitwiseAnd, lit(i64::from(u32::MAX)));
                *x = Typed::new(bits, DataType::Int64, wide.nullable);
            }
            // It does not see to their scales.
            ("lcm", args) if args.iter().any(|arg| types::is_decimal(&arg.data_type)) => {
                let error = Error::unsupported("lcm of numerics is not supported");
                let error = error.hint("it is of whole numbers: lcm(a::bigint, b::bigint)");
                return Err(error.about(Subject::Function(name.into())).into());
            }
            // The literal that a value is.
            ("quote_literal" | "quote_nullable", [x]) if !x.is_open() => {
                *x = x.clone().cast(&types::TEXT);
            }
            // `t` and `f` where all other functions have words.
            ("concat" | "concat_ws", args) => {
                for arg in args.iter_mut().filter(|arg| arg.data_type == DataType::Boolean) {
                    *arg = letter_of(arg);
                }
            }
            // A literal is one of bytes.
            ("encode" | "convert_from" | "get_byte" | "set_byte" | "get_bit" | "set_bit", args)
                if args.first().is_some_and(|x| x.unknown) =>
            {
                args[0] = args[0].clone().cast(&DataType::Binary);
            }
            (name, args) if args.first().is_some_and(|x| types::is_bytes(&x.data_type)) => {
                let Some((_, of_bytes)) = OF_BYTES.iter().find(|(of_texts, _)| *of_texts == name)
                else {
                    return Ok(Err(args.to_vec()));
                };
                for arg in args.iter_mut().filter(|arg| arg.unknown) {
                    *arg = arg.clone().cast(&DataType::Binary);
                }
                return self.scalar(of_bytes, args.to_vec()).map(Ok);
            }
            _ => {}
        }
        Ok(Err(args))
    }
}

impl Binder<'_> {
    /// A function by its name, with the meaning that it has for its arguments.
    pub(crate) fn called(&self, name: &str, args: Vec<Typed>) -> Result<Typed> {
        match self.meaning(name, args)? {
            Ok(value) => Ok(value),
            Err(args) => self.scalar(name, args),
        }
    }
}

/// Functions of texts that there are for bytes as well.
const OF_BYTES: [(&str, &str); 13] = [
    ("length", "bytes_length"),
    ("octet_length", "bytes_length"),
    ("bit_length", "bytes_bit_length"),
    ("substr", "bytes_substr"),
    ("substring", "bytes_substr"),
    ("strpos", "bytes_strpos"),
    ("position", "bytes_strpos"),
    ("overlay", "bytes_overlay"),
    ("btrim", "bytes_btrim"),
    ("trim", "bytes_btrim"),
    ("ltrim", "bytes_ltrim"),
    ("rtrim", "bytes_rtrim"),
    ("reverse", "bytes_reverse"),
];

fn is_instant(value: &Typed) -> bool {
    matches!(value.data_type, DataType::Timestamp(_, Some(_)))
}

fn letter_of(truth: &Typed) -> Typed {
    let is_not = Expr::Not(Box::new(truth.expr.clone()));
    let when = |condition: Expr, letter: &str| (Box::new(condition), Box::new(lit(letter)));
    let when_then_expr = vec![when(truth.expr.clone(), "t"), when(is_not, "f")];
    let case = Case { expr: None, when_then_expr, else_expr: None };
    Typed::new(Expr::Case(case), DataType::Utf8, truth.nullable).cast(&types::TEXT)
}

/// Whether a function would take the bytes of an argument for the text that spells them: it would count
/// eight characters of `'\x616263'`.
pub(crate) fn is_spelled(function: &str, given: &DataType, taken: &DataType) -> bool {
    // These are of the texts that values are shown as.
    types::is_bytes(given) && types::is_text(taken) && !matches!(function, "concat" | "concat_ws")
}
