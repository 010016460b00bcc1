//! Instants in the session's zone, and `AT TIME ZONE`: what a clock shows at an instant, and the instant
//! at which it shows that.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarUDF};
use datafusion::sql::sqlparser::ast;

use thalweg_base::Error;

use crate::binder::Binder;
use crate::failure::{Result, wrong};
use crate::place::Place;
use crate::typed::Typed;
use crate::types::{self, TEXT, is_text};

/// The zone of a session that has set none.
const UTC: &str = "+00:00";

impl Binder<'_> {
    /// The zone that instants are shown in.
    pub(crate) fn zone(&self) -> &str {
        self.names.options().execution.time_zone.as_deref().unwrap_or(UTC)
    }

    /// A `timestamptz` of the session.
    pub(crate) fn instant(&self, unit: TimeUnit) -> DataType {
        DataType::Timestamp(unit, Some(self.zone().into()))
    }

    /// `now()` is an instant, and what it is asked for in other words follows from it.
    pub(crate) fn moment(&self, udf: &ScalarUDF) -> Option<Typed> {
        let to = match udf.name() {
            "now" => None,
            "current_date" => Some(DataType::Date32),
            "current_time" => Some(DataType::Time64(TimeUnit::Nanosecond)),
            _ => return None,
        };
        let now = self.now()?;
        Some(match to {
            Some(to) => now.cast(&to),
            None => now,
        })
    }

    /// When the statement began.
    pub(crate) fn now(&self) -> Option<Typed> {
        let now = self.names.get_function_meta("now")?;
        let of = ReturnFieldArgs { arg_fields: &[], scalar_arguments: &[] };
        let returned = now.return_field_from_args(of).ok()?.data_type().clone();
        let expr = Expr::ScalarFunction(ScalarFunction::new_udf(now, vec![]));
        // Whatever its type says, it counts from 1970 in UTC.
        let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()));
        let in_utc = Typed::new(expr, returned, false).cast(&utc);
        Some(in_utc.cast(&self.instant(TimeUnit::Microsecond)))
    }

    /// A type of instants, or of lists of these, in the session's zone; `None`: it is none, or is that
    /// already.
    pub(crate) fn of_session(&self, t: &DataType) -> Option<DataType> {
        let is_utc = |zone: &str| matches!(zone, "+00:00" | "UTC" | "Etc/UTC");
        let renewed = |item: &FieldRef| {
            let data_type = self.of_session(item.data_type())?;
            Some(Arc::new(item.as_ref().clone().with_data_type(data_type)))
        };
        Some(match t {
            DataType::Timestamp(unit, Some(zone)) => {
                let is_own = zone.as_ref() == self.zone() || is_utc(zone) && is_utc(self.zone());
                return (!is_own).then(|| self.instant(*unit));
            }
            DataType::List(item) => DataType::List(renewed(item)?),
            DataType::LargeList(item) => DataType::LargeList(renewed(item)?),
            DataType::FixedSizeList(item, n) => DataType::FixedSizeList(renewed(item)?, *n),
            _ => return None,
        })
    }

    /// Instants that a file has in another zone, in that of the session.
    pub(crate) fn in_session_zone(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if !plan.schema().fields().iter().any(|f| self.of_session(f.data_type()).is_some()) {
            return Ok(plan);
        }
        let columns = plan.schema().iter().map(|(relation, field)| {
            let column = Expr::Column(Column::new(relation.cloned(), field.name()));
            match self.of_session(field.data_type()) {
                Some(shown) => {
                    let typed = Typed::new(column, field.data_type().clone(), true);
                    typed.cast(&shown).expr.alias_qualified(relation.cloned(), field.name())
                }
                None => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        Ok(LogicalPlanBuilder::from(plan).project(columns)?.build()?)
    }

    pub(crate) fn at_time_zone(
        &self,
        time: &ast::Expr,
        zone: &ast::Expr,
        place: Place<'_>,
    ) -> Result<Typed> {
        let (time, zone) = (self.expr(time, place)?, self.expr(zone, place)?);
        self.in_zone(time, zone)
    }

    /// `timezone(zone, time)` is the same as a function.
    pub(crate) fn in_zone(&self, time: Typed, zone: Typed) -> Result<Typed> {
        if matches!(zone.data_type, DataType::Interval(_)) {
            return Err(Error::unsupported("an interval is no time zone here")
                .hint("write the offset as a text: AT TIME ZONE '+02:00'")
                .into());
        }
        if !zone.is_open() && !is_text(&zone.data_type) {
            return wrong(
                "42883",
                format!(
                    "a time zone is a text, such as 'Europe/Vienna', and not of type {}",
                    types::name(&zone.data_type)
                ),
            );
        }
        let zone = zone.cast(&TEXT);
        let time = match &time.data_type {
            DataType::Timestamp(..) => time,
            // PostgreSQL prefers instants where it has to choose.
            DataType::Date32 => time.cast(&self.instant(TimeUnit::Microsecond)),
            _ if time.is_open() => time.cast(&self.instant(TimeUnit::Microsecond)),
            other => {
                return wrong(
                    "42883",
                    format!("AT TIME ZONE takes a timestamp, and not a {}", types::name(other)),
                );
            }
        };
        match &time.data_type {
            DataType::Timestamp(_, Some(_)) => self.scalar("clock_of", vec![time, zone]),
            _ => {
                let session = ScalarValue::from(self.zone());
                let session = Typed::new(Expr::Literal(session, None), DataType::Utf8, false);
                self.scalar("instant_of", vec![time, zone, session])
            }
        }
    }
}
