//! `nullif(a, b)`, whose value is the first as it was before it was compared.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Operator, lit, when};

use crate::binder::Binder;
use crate::failure::Result;
use crate::typed::Typed;
use crate::types::{self, TextKind};

impl Binder<'_> {
    /// `nullif(a, b)`, of which the value is `a` as it is, where its type is compared with that of `b` as it is.
    pub(crate) fn null_if(&self, args: Vec<Typed>) -> Result<Typed> {
        let (a, b) = (&args[0], &args[1]);
        let own = a.data_type.clone();
        let is_instant = |t: &Typed| matches!(t.data_type, DataType::Timestamp(_, Some(_)));
        let is_time = |t: &DataType| matches!(t, DataType::Date32 | DataType::Timestamp(..));
        let keeps = |both: &dyn Fn(&DataType) -> bool| both(&own) && both(&b.data_type);
        let is_real = own == DataType::Float32 && types::is_number(&b.data_type);
        let is_kept =
            keeps(&DataType::is_integer) || keeps(&types::is_float) || keeps(&is_time) || is_real;
        // What it is compared as does not lead back to it: blanks are cut off, and not every clock shows the
        // time of an instant.
        let is_lost = a.text == TextKind::Varying && b.is_padded()
            || own != DataType::Date32 && is_instant(b) && !is_instant(a);
        if is_lost && (is_kept || a.text == TextKind::Varying) && !a.expr.is_volatile() {
            let is_equal = self.compare(a.clone(), Operator::Eq, b.clone())?;
            let null = Typed::new(lit(ScalarValue::Null), DataType::Null, true).cast(&own);
            let value = when(is_equal.expr, null.expr).otherwise(a.expr.clone())?;
            return Ok(Typed::new(value, own, true));
        }
        let args = self.same_type(args, "NULLIF")?;
        let value = self.scalar("nullif", args)?;
        Ok(if is_kept { value.cast(&own) } else { value })
    }
}
