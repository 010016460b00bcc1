//! Stored instants as a session sees them.
//!
//! Instants are stored in UTC. In a plan their type has the session's zone, in which they are shown and
//! taken apart; so a table's columns get that type, and what is asked of the scan is asked in UTC.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, cast};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use thalweg_plan::zones::in_zone;

/// The columns of a table in a session's zone; `None`: they are that as they are.
pub fn shown(schema: &SchemaRef, zone: Option<&str>) -> Option<SchemaRef> {
    let mut any = false;
    let fields = schema.fields().iter().map(|field| match in_zone(field.data_type(), zone) {
        Some(data_type) => {
            any = true;
            Arc::new(field.as_ref().clone().with_data_type(data_type))
        }
        None => Arc::clone(field),
    });
    let fields: Vec<Arc<Field>> = fields.collect();
    any.then(|| Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

fn differs(stored: &Schema, shown: &Schema, name: &str) -> Option<(DataType, DataType)> {
    let at = stored.index_of(name).ok()?;
    let (own, other) = (stored.field(at).data_type(), shown.field(at).data_type());
    (own != other).then(|| (own.clone(), other.clone()))
}

/// A filter over shown columns as one over stored ones. A comparison with a constant stays one of a
/// column, so that it skips chunks.
pub fn asked(filter: Expr, stored: &Schema, shown: &Schema) -> Result<Expr> {
    let relabelled = |column: &Expr, value: &Expr| -> Option<Expr> {
        let Expr::Column(c) = column else { return None };
        let (own, _) = differs(stored, shown, &c.name)?;
        let Expr::Literal(value, metadata) = value else { return None };
        // The same count of the same unit: only the zone's name differs.
        let value = match (value, &own) {
            (ScalarValue::TimestampSecond(v, _), DataType::Timestamp(_, zone)) => {
                ScalarValue::TimestampSecond(*v, zone.clone())
            }
            (ScalarValue::TimestampMillisecond(v, _), DataType::Timestamp(_, zone)) => {
                ScalarValue::TimestampMillisecond(*v, zone.clone())
            }
            (ScalarValue::TimestampMicrosecond(v, _), DataType::Timestamp(_, zone)) => {
                ScalarValue::TimestampMicrosecond(*v, zone.clone())
            }
            (ScalarValue::TimestampNanosecond(v, _), DataType::Timestamp(_, zone)) => {
                ScalarValue::TimestampNanosecond(*v, zone.clone())
            }
            _ => return None,
        };
        (value.data_type() == own).then(|| Expr::Literal(value, metadata.clone()))
    };
    let asked = filter.transform_down(|expr| {
        if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr
            && op.supports_propagation()
        {
            let sides = match (relabelled(left, right), relabelled(right, left)) {
                (Some(right), _) => Some((left.clone(), Box::new(right))),
                (_, Some(left)) => Some((Box::new(left), right.clone())),
                _ => None,
            };
            if let Some((left, right)) = sides {
                let compared = Expr::BinaryExpr(BinaryExpr { left, op: *op, right });
                return Ok(Transformed::new(
                    compared,
                    true,
                    datafusion::common::tree_node::TreeNodeRecursion::Jump,
                ));
            }
        }
        if let Expr::Column(column) = &expr
            && let Some((_, to)) = differs(stored, shown, &column.name)
        {
            return Ok(Transformed::new(
                cast(expr, to),
                true,
                datafusion::common::tree_node::TreeNodeRecursion::Jump,
            ));
        }
        Ok(Transformed::no(expr))
    })?;
    Ok(asked.data)
}

/// The rows of a scan of stored columns as those of shown ones, whose fields `projection` numbers.
pub fn relabelled(
    scan: Arc<dyn ExecutionPlan>,
    shown: &Schema,
    projection: &[usize],
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = scan.schema();
    let columns = schema.fields().iter().zip(projection).enumerate();
    let columns = columns.map(|(at, (field, &number))| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
        let to = shown.field(number).data_type();
        let expr = match to == field.data_type() {
            true => column,
            false => expressions::cast(column, &schema, to.clone())?,
        };
        Ok(ProjectionExpr { expr, alias: field.name().clone() })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(ProjectionExec::try_new(columns, scan)?))
}
