//! Aggregate functions.

use std::collections::HashSet;

use thalweg_base::Result;

use crate::query::expr::{self, Context, Env, Expr};
use crate::query::functions::json;
use crate::text;
use crate::types::{self, Oid};
use crate::value::{Row, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Count,
    Sum,
    Min,
    Max,
    Avg,
    ArrayAgg,
    StringAgg,
    BoolAnd,
    BoolOr,
    JsonAgg,
    JsonObjectAgg,
}

impl Kind {
    pub fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "count" => Kind::Count,
            "sum" => Kind::Sum,
            "min" => Kind::Min,
            "max" => Kind::Max,
            "avg" => Kind::Avg,
            "array_agg" => Kind::ArrayAgg,
            "string_agg" => Kind::StringAgg,
            "bool_and" | "every" => Kind::BoolAnd,
            "bool_or" => Kind::BoolOr,
            "json_agg" | "jsonb_agg" => Kind::JsonAgg,
            "json_object_agg" | "jsonb_object_agg" => Kind::JsonObjectAgg,
            _ => return None,
        })
    }

    /// The result's type, of arguments of these types.
    pub fn result(self, arguments: &[Oid]) -> Oid {
        let first = arguments.first().copied().unwrap_or(types::TEXT);
        match self {
            Kind::Count => types::INT8,
            Kind::Sum if types::class(first) == types::Class::Int => types::INT8,
            Kind::Sum | Kind::Avg => types::FLOAT8,
            Kind::Min | Kind::Max => first,
            Kind::ArrayAgg => {
                types::array_of(first).unwrap_or(types::array_of(types::TEXT).unwrap_or(0))
            }
            Kind::StringAgg => types::TEXT,
            Kind::BoolAnd | Kind::BoolOr => types::BOOL,
            Kind::JsonAgg | Kind::JsonObjectAgg => types::JSON,
        }
    }
}

pub struct Aggregate {
    pub kind: Kind,
    /// None: `count(*)`.
    pub arguments: Vec<Expr>,
    pub types: Vec<Oid>,
    pub distinct: bool,
    pub order: Vec<(Expr, bool, bool)>,
    pub filter: Option<Expr>,
}

impl Aggregate {
    pub fn run(&self, ctx: &Context, rows: &[Row], around: Option<&Env>) -> Result<Value> {
        let mut inputs: Vec<(Row, Row)> = vec![];
        for row in rows {
            ctx.step()?;
            let env = Env::of(row, 0, around);
            if let Some(filter) = &self.filter
                && !filter.is_true(ctx, &env)?
            {
                continue;
            }
            let keys = self.order.iter().map(|(e, ..)| e.eval(ctx, &env));
            let keys = keys.collect::<Result<Row>>()?;
            inputs.push((expr::list(&self.arguments, ctx, &env)?, keys));
        }
        if self.distinct {
            let mut seen = HashSet::new();
            inputs.retain(|(arguments, _)| seen.insert(arguments.clone()));
        }
        inputs.sort_by(|(_, a), (_, b)| {
            let each = a.iter().zip(b).zip(&self.order);
            each.map(|((a, b), (_, descending, nulls_first))| match (a.is_null(), b.is_null()) {
                (false, false) if *descending => b.cmp(a),
                (false, false) => a.cmp(b),
                (a, b) if *nulls_first => b.cmp(&a),
                (a, b) => a.cmp(&b),
            })
            .find(|ordering| ordering.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
        });
        let inputs: Vec<Row> = inputs.into_iter().map(|(arguments, _)| arguments).collect();
        if self.arguments.is_empty() {
            return Ok(Value::Int(inputs.len() as i64));
        }
        let firsts = || inputs.iter().map(|row| &row[0]);
        let values = || firsts().filter(|v| !v.is_null());
        let none = values().next().is_none();
        Ok(match self.kind {
            Kind::Count => Value::Int(values().count() as i64),
            Kind::ArrayAgg if inputs.is_empty() => Value::Null,
            Kind::ArrayAgg => Value::array(firsts().cloned()),
            Kind::JsonAgg if inputs.is_empty() => Value::Null,
            Kind::JsonAgg => {
                let each = firsts().map(|v| json(v, self.types[0], ctx.env));
                format!("[{}]", each.collect::<Result<Vec<_>>>()?.join(", ")).into()
            }
            Kind::JsonObjectAgg if inputs.is_empty() => Value::Null,
            Kind::JsonObjectAgg => {
                let mut members = vec![];
                for row in &inputs {
                    let key = text::print(&row[0], self.types[0], ctx.env)?.unwrap_or_default();
                    let value = json(&row[1], self.types[1], ctx.env)?;
                    members.push(format!("{} : {value}", json(&key.into(), types::TEXT, ctx.env)?));
                }
                format!("{{ {} }}", members.join(", ")).into()
            }
            _ if none => Value::Null,
            Kind::Min => values().min().cloned().unwrap_or(Value::Null),
            Kind::Max => values().max().cloned().unwrap_or(Value::Null),
            Kind::BoolAnd => values().all(Value::is_true).into(),
            Kind::BoolOr => values().any(Value::is_true).into(),
            Kind::Sum if values().all(|v| matches!(v, Value::Int(_))) => {
                let sum = values().filter_map(Value::as_int).fold(0i64, i64::saturating_add);
                Value::Int(sum)
            }
            Kind::Sum => Value::Float(values().map(float).sum()),
            Kind::Avg => Value::Float(values().map(float).sum::<f64>() / values().count() as f64),
            Kind::StringAgg => {
                let mut all = String::new();
                for (n, row) in inputs.iter().filter(|row| !row[0].is_null()).enumerate() {
                    if n > 0 {
                        all += row.get(1).and_then(Value::as_text).unwrap_or("");
                    }
                    all += &text::print(&row[0], self.types[0], ctx.env)?.unwrap_or_default();
                }
                all.into()
            }
        })
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Int(n) => *n as f64,
        Value::Float(n) => *n,
        _ => 0.0,
    }
}
