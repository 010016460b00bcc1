//! `MERGE`: one outer join of target and source, and for each of its rows the first `WHEN` that
//! holds.
//!
//! ```text
//!   SELECT row id, action, for each clause that writes: value of each column
//!   FROM target t FULL JOIN (SELECT *, true AS ␀source FROM source) s ON condition
//!
//!   action  = CASE WHEN t has a row AND s has a row AND p₀ THEN 0   -- WHEN MATCHED AND p₀
//!                  WHEN t has none                  AND p₁ THEN 1   -- WHEN NOT MATCHED AND p₁
//!                  … END
//!   value₀  = CASE WHEN (the same) THEN v₀ WHEN … THEN NULL … END
//!   value₁  = CASE WHEN (the same) THEN NULL WHEN … THEN v₁ … END
//! ```
//! The join keeps only what some `WHEN` is about: without `NOT MATCHED` it is an inner one. Each clause has
//! columns of its own, so that each of its values is put into the table's column by itself, as INSERT and
//! UPDATE put theirs: in one CASE for all clauses the values would first take a common type.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, interleave};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, Join, JoinConstraint, JoinOperator, Merge, MergeAction,
    MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, Query, SelectItem, TableFactor,
    TableWithJoins, Value, With,
};
use futures::StreamExt;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::Snapshot;

use thalweg_errors::{from_arrow, from_datafusion};
use thalweg_exec::ROW_ID;
use thalweg_runtime::checkpoint;

use super::Job;
use super::apply::{self, Appender, Delta};
use super::insert::null;
use super::target::{Target, aliased, alone, derived, qualified, select};
use super::update::{assigned, sets_rows};
use crate::answer::Tag;
use crate::dialect::ALL_COLUMNS;
use crate::names;
use crate::statement::Started;

/// True in every row of the source, NULL where the join found none.
const SOURCE: &str = "source\0";
const ACTION: &str = "action\0";
/// Columns before those of the values: the row's id and the action.
const BEFORE: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Insert,
    Update,
    Delete,
    Nothing,
}

fn effect(clause: &MergeClause) -> Effect {
    match &clause.action {
        MergeAction::Insert(_) => Effect::Insert,
        MergeAction::Delete { .. } => Effect::Delete,
        MergeAction::Update(update) if update.assignments.is_empty() => Effect::Nothing,
        MergeAction::Update(_) => Effect::Update,
    }
}

impl Effect {
    fn writes(self) -> bool {
        matches!(self, Effect::Insert | Effect::Update)
    }
}

pub async fn run(job: &Job<'_>, with: Option<With>, merge: Merge) -> Result<Started> {
    let target = Target::new(&job.snapshot, &merge.table, "MERGE")?;
    let effects: Vec<Effect> = merge.clauses.iter().map(effect).collect();
    let asks = merge.clauses.iter().any(|clause| match &clause.action {
        MergeAction::Update(update) => sets_rows(&update.assignments),
        _ => false,
    });
    let writing = effects.iter().filter(|effect| effect.writes()).count();
    let query = query(&target, with, merge)?;
    let plan = apply::plan_rows(job, query, BEFORE, &target.table, writing).await?;
    check_stable(&plan)?;
    let mut rows = apply::run(job, &plan).await?;
    let mut appender = Appender::new(job, &target.table, false);
    let mut delta = Delta::new("MERGE");
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(from_datafusion)?;
        let written = sort_out(&target, &effects, &batch, asks, &mut delta)?;
        count += batch.num_rows() as u64;
        if !written.is_empty() {
            let width = target.table.arrow_schema.fields().len();
            appender.push(&picked(&batch, width, &written)?).await?;
        }
        checkpoint().await;
    }
    let (extents, added, _) = appender.finish().await?;
    (delta.added, delta.added_rows) = (extents, added);
    delta.commit(job, &target).await?;
    Ok(Started::Done(Tag::Count("MERGE".into(), count)))
}

/// Marks the old rows that go, and says which rows are to be written: the place of their clause among those
/// that write, and the row of the batch. With `asks`, subqueries give several columns at once.
fn sort_out(
    target: &Target,
    effects: &[Effect],
    batch: &RecordBatch,
    asks: bool,
    delta: &mut Delta,
) -> Result<Vec<(usize, usize)>> {
    let ids = batch.column(0).as_primitive::<UInt64Type>();
    let actions = cast(batch.column(1), &DataType::Int64).map_err(|e| from_arrow(&e))?;
    let actions = actions.as_primitive::<Int64Type>();
    let mut written = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let action = actions.value(row) as usize;
        let effect = effects[action];
        if matches!(effect, Effect::Update | Effect::Delete)
            && (ids.is_null(row) || delta.deleted.insert(&[ids.value(row)]) == 0)
        {
            return Err(Error::user(format!(
                "a row of table {} would be changed twice: several rows of {} match it",
                quoted(&target.name()),
                if asks { "the source or of a subquery" } else { "the source" }
            ))
            .code("21000")
            .hint("make the source give one row for each, with GROUP BY or DISTINCT"));
        }
        if effect.writes() {
            written.push((effects[..action].iter().filter(|e| e.writes()).count(), row));
        }
    }
    Ok(written)
}

/// The columns of the rows that are written, each from the columns of its clause.
fn picked(batch: &RecordBatch, width: usize, written: &[(usize, usize)]) -> Result<Vec<ArrayRef>> {
    let values = &batch.columns()[BEFORE..];
    let columns = (0..width).map(|column| {
        let of_clauses = values[column..].iter().step_by(width).map(AsRef::as_ref);
        interleave(&of_clauses.collect::<Vec<&dyn Array>>(), written).map_err(|e| from_arrow(&e))
    });
    columns.collect()
}

pub fn query_of(snapshot: &Snapshot, with: Option<With>, merge: &Merge) -> Result<Query> {
    query(&Target::new(snapshot, &merge.table, "MERGE")?, with, merge.clone())
}

fn query(target: &Target, with: Option<With>, mut merge: Merge) -> Result<Query> {
    if merge.output.is_some() {
        return Err(Error::unsupported("MERGE … RETURNING is not supported")
            .hint("query the table afterwards, in one transaction with the MERGE"));
    }
    target.unqualify(&mut merge.on);
    target.unqualify(&mut merge.clauses);
    let source = source_name(&merge.source)?;
    let mut joined = join(target, &source, &merge);
    let effects: Vec<Effect> = merge.clauses.iter().map(effect).collect();
    let conditions: Vec<Expr> =
        merge.clauses.iter().map(|clause| condition(target, &source, clause)).collect();
    let case = |results: Vec<Expr>| Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: conditions
            .iter()
            .zip(results)
            .map(|(condition, result)| CaseWhen { condition: condition.clone(), result })
            .collect(),
        else_result: None,
    };
    let action = |(at, effect): (usize, &Effect)| match effect {
        Effect::Nothing => null(),
        _ => number(at),
    };
    let action = case(effects.iter().enumerate().map(action).collect());
    let mut projection = vec![aliased(target.row_id(), ROW_ID), aliased(action.clone(), ACTION)];
    let is_sure = always_holds(&merge.clauses);
    for (at, clause) in
        merge.clauses.into_iter().enumerate().filter(|(at, _)| effects[*at].writes())
    {
        let when = match is_sure {
            true => Expr::Value(Value::Boolean(true).into()),
            false => equal(action.clone(), number(at)),
        };
        let row = new_row(target, &source, clause, &when, &mut joined.joins)?;
        for (field, value) in target.table.arrow_schema.fields().iter().zip(row) {
            // A literal stays one: it is read as the type of its column.
            let value = match value {
                literal @ Expr::Value(_) => literal,
                value => {
                    let mut results = vec![null(); effects.len()];
                    results[at] = value;
                    case(results)
                }
            };
            projection.push(aliased(value, &format!("{}\0{at}", field.name())));
        }
    }
    // Around it a query that drops the rows nothing is done to, without a second CASE.
    let inner = derived(select(with, projection, vec![joined], None), "merged");
    let acted = Expr::IsNotNull(Box::new(Expr::Identifier(Ident::with_quote('"', ACTION))));
    let all = vec![SelectItem::Wildcard(Default::default())];
    Ok(select(None, all, vec![alone(inner)], Some(acted)))
}

fn source_name(source: &TableFactor) -> Result<String> {
    let (alias, name) = match source {
        TableFactor::Table { alias, name, args: None, .. } => {
            (alias, name.0.last().and_then(|part| part.as_ident()))
        }
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::UNNEST { alias, .. } => (alias, None),
        _ => (&None, None),
    };
    let name = alias.as_ref().map(|a| &a.name).or(name);
    name.map(names::ident).ok_or_else(|| {
        Error::user("the source of a MERGE needs a name").hint("USING (SELECT …) AS source")
    })
}

fn join(target: &Target, source: &str, merge: &Merge) -> TableWithJoins {
    use MergeClauseKind as K;
    let any = |kinds: &[K]| merge.clauses.iter().any(|c| kinds.contains(&c.clause_kind));
    let on = JoinConstraint::On((*merge.on).clone());
    let operator =
        match (any(&[K::NotMatched, K::NotMatchedByTarget]), any(&[K::NotMatchedBySource])) {
            (true, true) => JoinOperator::FullOuter(on),
            (true, false) => JoinOperator::RightOuter(on),
            (false, true) => JoinOperator::LeftOuter(on),
            (false, false) => JoinOperator::Inner(on),
        };
    let marker = aliased(Expr::Value(Value::Boolean(true).into()), SOURCE);
    let items = vec![SelectItem::Wildcard(Default::default()), marker];
    let marked = select(None, items, vec![alone(merge.source.clone())], None);
    let relation = derived(marked, source);
    TableWithJoins {
        relation: target.factor.clone(),
        joins: vec![Join { relation, global: false, join_operator: operator }],
    }
}

/// When a clause holds for a row of the join.
fn condition(target: &Target, source: &str, clause: &MergeClause) -> Expr {
    let there = |expr: Expr| Expr::IsNotNull(Box::new(expr));
    let absent = |expr: Expr| Expr::IsNull(Box::new(expr));
    let marker = qualified(source, SOURCE);
    let kind = match clause.clause_kind {
        MergeClauseKind::Matched => and(there(target.row_id()), there(marker)),
        MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => {
            absent(target.row_id())
        }
        MergeClauseKind::NotMatchedBySource => absent(marker),
    };
    match &clause.predicate {
        Some(predicate) => and(kind, Expr::Nested(Box::new(predicate.clone()))),
        None => kind,
    }
}

/// Whether the only clause holds for all rows of the join.
fn always_holds(clauses: &[MergeClause]) -> bool {
    matches!(clauses, [clause]
        if clause.clause_kind == MergeClauseKind::Matched && clause.predicate.is_none())
}

/// The value of each column that a clause writes. Queries that give several of them are asked where `when`
/// holds, and become `joins`.
fn new_row(
    target: &Target,
    source: &str,
    clause: MergeClause,
    when: &Expr,
    joins: &mut Vec<Join>,
) -> Result<Vec<Expr>> {
    let fields = target.table.arrow_schema.fields();
    let by_name = || fields.iter().map(|f| qualified(source, f.name())).collect();
    match clause.action {
        MergeAction::Delete { .. } => Err(Error::internal("a DELETE that writes a row")),
        MergeAction::Update(update) => {
            if update.assignments.len() == 1
                && matches!(&update.assignments[0].value, Expr::Identifier(i) if i.value == ALL_COLUMNS)
            {
                return Ok(by_name());
            }
            let assigned = assigned(target, update.assignments, when, joins)?;
            let old = fields.iter().map(|f| target.column(f.name()));
            Ok(assigned.into_iter().zip(old).map(|(new, old)| new.unwrap_or(old)).collect())
        }
        MergeAction::Insert(insert) => {
            if insert.columns.len() == 1 && names::folded(&insert.columns[0]) == ALL_COLUMNS {
                return Ok(by_name());
            }
            inserted(target, insert)
        }
    }
}

fn inserted(target: &Target, insert: MergeInsertExpr) -> Result<Vec<Expr>> {
    let MergeInsertKind::Values(values) = insert.kind else {
        return Err(Error::unsupported("INSERT ROW is not supported")
            .hint("INSERT * takes the source's columns by name"));
    };
    let [row] = &values.rows[..] else {
        return Err(Error::user("INSERT in a MERGE takes one row of VALUES"));
    };
    let fields = target.table.arrow_schema.fields();
    let columns = match &insert.columns[..] {
        [] if row.content.is_empty() => vec![],
        [] => (0..fields.len()).collect(),
        columns => columns.iter().map(|c| target.index(c)).collect::<Result<Vec<usize>>>()?,
    };
    if columns.len() != row.content.len() {
        return Err(Error::user(format!(
            "INSERT has {} columns and {} values",
            columns.len(),
            row.content.len()
        ))
        .code("42601"));
    }
    let mut values = (0..fields.len()).map(|c| target.default(c)).collect::<Result<Vec<_>>>()?;
    let mut named = vec![false; fields.len()];
    for (column, value) in columns.into_iter().zip(&row.content) {
        if std::mem::replace(&mut named[column], true) {
            let name = quoted(fields[column].name());
            return Err(Error::user(format!("column {name} is named twice")).code("42701"));
        }
        values[column] = target.value(column, value.clone())?;
    }
    Ok(values)
}

/// A condition is evaluated for the action and again for each value: it must not change.
fn check_stable(plan: &LogicalPlan) -> Result<()> {
    let mut stable = true;
    let seen = plan.apply(|node| {
        for expr in node.expressions() {
            if let PlanExpr::Alias(alias) = &expr
                && alias.name == ACTION
                && alias.expr.is_volatile()
            {
                stable = false;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    seen.map_err(from_datafusion)?;
    if stable {
        return Ok(());
    }
    Err(Error::unsupported("a condition of a MERGE cannot change from one look to the next")
        .hint("compute random() and its like in the source: USING (SELECT …, random() AS r …)"))
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
}

fn equal(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::Eq, right: Box::new(right) }
}

fn number(value: usize) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).into())
}
