//! Joins: a table, and what probes it.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use thalweg_ir::aggregate::is_word;
use thalweg_ir::{Expr, Join, Probe, Sink, Source, Step, TableRows, table};

use super::{Compiler, Feed, Flow, field, unordered};
use crate::fuse::expr::null;
use crate::fuse::same::{same, same_expr};

impl Compiler {
    pub(super) fn join(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        join: &HashJoinExec,
    ) -> Result<Flow> {
        let (left, right) = (join.left().schema(), join.right().schema());
        let kind = join.join_type;
        // What of the build side is wanted after the join.
        let wanted = wanted(join);
        let table = self.table(plan, join, &wanted)?;
        let probe = self.flow(unordered(join.right()))?;
        let step = step(join);
        let mut flow = vec![];
        let discard = matches!(step, Join::MarkTable { .. }).then(|| self.sink(Sink::Discard));
        for mut feed in probe {
            let keys = join.on.iter();
            let keys = keys.map(|(_, r)| self.translator.translate(r, &right, &feed.columns));
            let keys = keys.collect::<Result<Vec<_>>>()?;
            let first = feed.registers.len();
            let payload: Vec<Expr> = wanted
                .iter()
                .enumerate()
                .map(|(i, &c)| Expr::Register(first + i, left.field(c).data_type().clone()))
                .collect();
            let at = |column: usize| wanted.binary_search(&column).expect("wanted");
            let condition = match &join.filter {
                None => None,
                Some(filter) => {
                    let columns = filter.column_indices().iter().map(|c| match c.side {
                        JoinSide::Left => payload[at(c.index)].clone(),
                        _ => feed.columns[c.index].clone(),
                    });
                    let columns: Vec<_> = columns.collect();
                    let (condition, schema) = (filter.expression(), filter.schema());
                    Some(self.translator.translate(condition, schema, &columns)?)
                }
            };
            feed.steps.push(Step::Probe(Probe {
                sink: table,
                keys: keys.clone(),
                kind: step,
                condition,
            }));
            // Equal keys are the same values: those of the probe side need no look-up.
            let of_left = |column: usize| {
                let key = join.on.iter().position(|(l, r)| {
                    let same = |t: &DataType| r.data_type(&right).is_ok_and(|r| r == *t);
                    l.downcast_ref::<Column>().is_some_and(|l| l.index() == column)
                        && l.data_type(&left).is_ok_and(|t| is_word(&t) && same(&t))
                });
                match (key, kind) {
                    (Some(key), JoinType::Inner | JoinType::Left) => keys[key].clone(),
                    _ => match wanted.binary_search(&column) {
                        Ok(i) => payload[i].clone(),
                        Err(_) => null(left.field(column).data_type()),
                    },
                }
            };
            let lefts = |feed: &mut Feed| -> Vec<Expr> {
                feed.registers.extend(payload.iter().map(Expr::data_type));
                feed.names.extend(wanted.iter().map(|&i| left.field(i).name().clone()));
                (0..left.fields().len()).map(of_left).collect()
            };
            feed.columns = match step {
                Join::Pairs { .. } => {
                    let mut columns = lefts(&mut feed);
                    columns.append(&mut feed.columns);
                    columns
                }
                Join::MarkTable { .. } => {
                    self.end(feed, discard.unwrap_or_default(), vec![]);
                    continue;
                }
                Join::Semi | Join::Anti => feed.columns,
                Join::Mark => {
                    feed.registers.push(DataType::Boolean);
                    feed.names.push("mark".to_string());
                    let mark = Expr::Register(feed.registers.len() - 1, DataType::Boolean);
                    feed.columns.push(mark);
                    feed.columns
                }
            };
            feed.columns = projected(join, feed.columns);
            flow.push(feed);
        }
        let rows = match kind {
            JoinType::LeftSemi => TableRows::Matched,
            JoinType::LeftMark => TableRows::Marked,
            JoinType::LeftAnti if join.null_aware => TableRows::NotIn,
            JoinType::LeftAnti | JoinType::Left | JoinType::Full => TableRows::Unmatched,
            _ => return Ok(flow),
        };
        let payload = wanted.iter().map(|&i| field(left.field(i)));
        let more = match rows {
            TableRows::Marked => Some(("mark".to_string(), DataType::Boolean)),
            TableRows::NotIn => Some(("key".to_string(), join.on[0].0.data_type(&left)?)),
            _ => None,
        };
        let mut feed = Feed::new(Source::Table { sink: table, rows }, payload.chain(more));
        let left_columns =
            left.fields().iter().enumerate().map(|(c, field)| match wanted.binary_search(&c) {
                Ok(i) => feed.columns[i].clone(),
                Err(_) => null(field.data_type()),
            });
        let mut columns: Vec<Expr> = left_columns.collect();
        match kind {
            JoinType::LeftMark => columns.extend(feed.columns.last().cloned()),
            JoinType::Left | JoinType::Full => {
                columns.extend(right.fields().iter().map(|f| null(f.data_type())));
            }
            _ => {}
        }
        feed.columns = projected(join, columns);
        flow.push(feed);
        Ok(flow)
    }

    /// The table of a join's build side: a new one, or that of another join. It has the columns
    /// `wanted`.
    fn table(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        join: &HashJoinExec,
        wanted: &[usize],
    ) -> Result<usize> {
        let left = join.left().schema();
        let key_types = join.on.iter().map(|(l, _)| l.data_type(&left));
        let key_types = key_types.collect::<Result<Vec<_>>>()?;
        let payload_types = wanted.iter().map(|&i| left.field(i).data_type().clone());
        let asked = if join.null_aware { &key_types[..] } else { &[] };
        let spec = table::Spec {
            payload_types: payload_types.chain(asked.iter().cloned()).collect(),
            key_types,
            nulls_equal: join.null_equality == NullEquality::NullEqualsNull,
            keep_null_keys: matches!(
                join.join_type,
                JoinType::Left | JoinType::Full | JoinType::LeftAnti | JoinType::LeftMark
            ),
        };
        let is_shared = !step(join).marks_table();
        let known = self.built.iter().find(|(other, _)| {
            other.downcast_ref::<HashJoinExec>().is_some_and(|other| {
                is_shared
                    && join.on.len() == other.on.len()
                    && join.on.iter().zip(&other.on).all(|(a, b)| same_expr(&a.0, &b.0))
                    && join.null_equality == other.null_equality
                    && wanted == self::wanted(other)
                    && same(join.left(), other.left())
            })
        });
        if let Some((_, table)) = known {
            return Ok(*table);
        }
        let build = self.flow(unordered(join.left()))?;
        let table = self.sink(Sink::Build(spec));
        for feed in build {
            let keys = join.on.iter();
            let keys = keys.map(|(l, _)| self.translator.translate(l, &left, &feed.columns));
            let mut inputs = keys.collect::<Result<Vec<_>>>()?;
            let asked = if join.null_aware { inputs.clone() } else { vec![] };
            inputs.extend(wanted.iter().map(|&i| feed.columns[i].clone()).chain(asked));
            self.end(feed, table, inputs);
        }
        if is_shared {
            self.built.push((Arc::clone(plan), table));
        }
        Ok(table)
    }
}

pub(super) fn covers_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<HashJoinExec>()
        .is_some_and(|join| join.fetch().is_none() && !(join.null_aware && join.filter.is_some()))
}

/// What a probe of the build side's table does.
fn step(join: &HashJoinExec) -> Join {
    match join.join_type {
        JoinType::Inner => Join::Pairs { outer: false, mark: false },
        JoinType::Right => Join::Pairs { outer: true, mark: false },
        JoinType::Left => Join::Pairs { outer: false, mark: true },
        JoinType::Full => Join::Pairs { outer: true, mark: true },
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            Join::MarkTable { not_in: join.null_aware }
        }
        JoinType::RightSemi => Join::Semi,
        JoinType::RightAnti => Join::Anti,
        JoinType::RightMark => Join::Mark,
    }
}

/// Columns of the build side that anybody reads after its rows were found, in order.
pub(super) fn wanted(join: &HashJoinExec) -> Vec<usize> {
    let left = join.left().schema().fields().len();
    let gives_left =
        !matches!(join.join_type, JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark);
    let mut wanted: Vec<usize> = match &join.projection {
        Some(projection) => projection.iter().copied().filter(|&i| i < left).collect(),
        None => (0..left).collect(),
    };
    if !gives_left {
        wanted.clear();
    }
    if let Some(filter) = &join.filter {
        let of_left = filter.column_indices().iter().filter(|c| c.side == JoinSide::Left);
        wanted.extend(of_left.map(|c| c.index));
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

fn projected(join: &HashJoinExec, columns: Vec<Expr>) -> Vec<Expr> {
    match &join.projection {
        Some(projection) => projection.iter().map(|&i| columns[i].clone()).collect(),
        None => columns,
    }
}
