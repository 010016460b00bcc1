//! Window functions.

mod partitions;

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, lit};
use thalweg_ir::{Sink, Source, sort, window};

use super::groups::place;
use super::{Compiler, Feed, Flow, fields, types, unordered};
use crate::fuse::windows::Windows;

impl Compiler {
    pub(super) fn window(&mut self, windows: &Windows, schema: &SchemaRef) -> Result<Flow> {
        let input_schema = windows.input.schema();
        let input = self.flow(unordered(windows.input))?;
        if let Some(flow) = self.by_partition(windows, &input, schema)? {
            return Ok(flow);
        }
        let partition = windows.partition_by.iter().map(|e| (e, SortOptions::default()));
        let order = windows.order_by.iter().map(|key| (&key.expr, key.options));
        let mut keys: Vec<_> = partition.chain(order).collect();
        let mut partition_keys = windows.partition_by.len();
        // OVER (): all rows have the same key.
        let same_for_all = lit(true);
        if keys.is_empty() {
            keys.push((&same_for_all, SortOptions::default()));
            partition_keys = 1;
        }
        // After the columns stands what is computed of them.
        let columns = input_schema.fields().len();
        let mut computed = vec![];
        let mut place = |expr: &Arc<dyn PhysicalExpr>| match expr.downcast_ref::<Column>() {
            Some(column) => column.index(),
            None => columns + place(&mut computed, expr),
        };
        let key_columns = keys.iter().map(|(expr, _)| place(expr)).collect();
        let read: Vec<usize> = windows.read.iter().map(place).collect();
        let foreigners = &mut self.translator.foreigners;
        let functions = windows.functions.iter().map(|function| {
            let arguments = function.arguments.iter().map(|&a| read[a]).collect();
            let opaque = |own: &_| Result::<_>::Ok(foreigners.aggregate(own));
            Ok(window::Function { arguments, ..function.map(&mut { opaque })? })
        });
        let functions = functions.collect::<Result<_>>()?;
        let mut payload_types = types(&input_schema);
        for expr in &computed {
            payload_types.push(expr.data_type(&input_schema)?);
        }
        let keys_typed = keys.iter().map(|(e, o)| Ok((e.data_type(&input_schema)?, *o)));
        let keys_typed = keys_typed.collect::<Result<_>>()?;
        let sink = self.sink(Sink::Window(window::Spec {
            sort: sort::Spec {
                keys: keys_typed,
                payload_types,
                fetch: None,
                together: partition_keys,
            },
            columns,
            keys: key_columns,
            functions,
        }));
        for feed in input {
            let translator = &mut self.translator;
            let mut read = |e| translator.translate(e, &input_schema, &feed.columns);
            let exprs = keys.iter().map(|(e, _)| read(e));
            let mut inputs = exprs.collect::<Result<Vec<_>>>()?;
            inputs.extend(feed.columns.iter().cloned());
            for expr in &computed {
                inputs.push(read(expr)?);
            }
            self.end(feed, sink, inputs);
        }
        Ok(vec![Feed::new(Source::Groups(sink), fields(schema))])
    }
}
