//! Joins relations in the order that costs least, whatever order the query names them in.
//!
//! DataFusion joins in the order of `FROM` (its `eliminate_cross_join` only avoids cross
//! products) and later decides which side of each join is built. This rule finds every maximal
//! *cluster* of inner joins, estimates its relations ([`cardinality`]), searches an order
//! ([`search`]) and rebuilds the cluster in it. Everything that is no inner join (outer, semi
//! and anti joins, aggregates, aliases, unions) is a relation of the cluster above it, and may
//! have clusters of its own inside.
//!
//! ```text
//! Inner Join p = pp               Inner Join s = ps             s: 400 rows, built
//!   Inner Join s = ps               TableScan s
//!     Inner Join d = pd      =>     Inner Join p = pp           p: 8 000 rows, built
//!       TableScan d                   TableScan p
//!       TableScan lineorder           Inner Join d = pd         d: 2 556 rows, built
//!     TableScan s                       TableScan d
//!   TableScan p                         TableScan lineorder
//! ```
//!
//! # Invariants
//!
//! * The rows and the output schema stay. The columns' order is restored by a projection,
//!   unless the node above refers to columns by name only.
//! * Every condition of the cluster still holds. Columns that are equal through others may be
//!   compared directly (`a = b`, `b = c` may become `a = c`); floats are left out of that,
//!   since equality of 0.0 and -0.0 need not be transitive in a hash table.
//! * A cluster is rebuilt only if that costs less by [`GAIN_MIN`]; so a second run changes
//!   nothing, and DataFusion's repeated passes come to rest.
//! * Volatile expressions, references to an outer query and `LATERAL` stay where they are.
//!
//! # Place
//!
//! [`insert`] puts the rule right before `optimize_projections`, the last of DataFusion's
//! rules: filters then sit on the relations they belong to, outer joins that are inner ones
//! have been turned, subqueries are joins, and in the first pass no projections lie between
//! the joins. `optimize_projections` puts them there afterwards and removes the restoring one
//! where it can, hence the rule looks through them in further passes. `eliminate_cross_join`,
//! which makes bushy trees left-deep again, is held back ([`cross_join`]).
//!
//! # Sides
//!
//! DataFusion builds its hash table from the *left* input: the smaller one is put there. The
//! physical rule `join_selection` swaps the sides of a join if it thinks the left one larger,
//! by bytes or else by rows; set `datafusion.optimizer.join_reordering` to false if its
//! estimates, which know no domains, are not to overrule these.

mod cross_join;
pub mod search;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column as Name, DFSchema, NullEquality, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::utils::{can_hash, conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, Join, JoinConstraint, JoinType, LogicalPlan, Operator,
    Projection,
};
use datafusion::optimizer::optimizer::{OptimizerConfig, OptimizerRule};

use super::cardinality::{self, selectivity};
use search::{Class, Condition, Graph, RELATIONS_MAX, Relation, Set, Tree, bits};

/// Share of the cost an order must save to replace the one there is: above the error of
/// summing floats, below what any estimate can tell.
const GAIN_MIN: f64 = 0.001;

#[derive(Debug, Default)]
pub struct JoinOrder;

/// Adds the rule to those of a session.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.optimizer().take().unwrap_or_default().rules;
    insert(&mut rules);
    builder.with_optimizer_rules(rules)
}

/// Inserts the rule at its place among DataFusion's, and guards the one it cannot live with.
pub fn insert(rules: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>) {
    cross_join::guard(rules);
    let place = rules.iter().position(|r| r.name() == "optimize_projections");
    rules.insert(place.unwrap_or(rules.len()), Arc::new(JoinOrder));
}

impl OptimizerRule for JoinOrder {
    fn name(&self) -> &str {
        "join_order"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let mut joins = false;
        plan.apply_with_subqueries(|node| {
            joins = matches!(node, LogicalPlan::Join(j) if j.join_type == JoinType::Inner);
            Ok(if joins { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if joins { rewrite(plan, true) } else { Ok(Transformed::no(plan)) }
    }
}

/// Rewrites all clusters of `plan`. `ordered`: the order of its columns matters to the parent.
fn rewrite(plan: LogicalPlan, ordered: bool) -> Result<Transformed<LogicalPlan>> {
    let Some(null_equality) = cluster_root(&plan) else {
        // These two name the columns they take, and give them in an order of their own.
        let by_name = matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_));
        return descend(plan, |child| rewrite(child, !by_name));
    };
    let plan = rewrite_relations(plan, null_equality)?;
    match reorder(&plan.data, null_equality, ordered)? {
        Some(reordered) => Ok(Transformed::yes(reordered)),
        None => Ok(plan),
    }
}

/// Rewrites the clusters inside the relations of the cluster at `plan`.
fn rewrite_relations(
    plan: LogicalPlan,
    null_equality: NullEquality,
) -> Result<Transformed<LogicalPlan>> {
    if interior(&plan, null_equality) {
        descend(plan, |child| rewrite_relations(child, null_equality))
    } else {
        rewrite(plan, true)
    }
}

fn descend(
    plan: LogicalPlan,
    mut child: impl FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    let plan = plan
        .map_uncorrelated_subqueries(|subquery| rewrite(subquery, true))?
        .transform_sibling(|plan| plan.map_children(&mut child))?;
    if plan.transformed { plan.map_data(LogicalPlan::recompute_schema) } else { Ok(plan) }
}

/// Is `plan` the top of a cluster that can be reordered? Then how its joins compare nulls.
fn cluster_root(plan: &LogicalPlan) -> Option<NullEquality> {
    let mut top = plan;
    let join = loop {
        match top {
            LogicalPlan::Join(join) => break join,
            LogicalPlan::Filter(filter) => top = &filter.input,
            // On top, a projection is the parent of the cluster; below a filter it is in it.
            LogicalPlan::Projection(p) if !std::ptr::eq(top, plan) => top = &p.input,
            _ => return None,
        }
    };
    let reorderable =
        interior(plan, join.null_equality) && relations(plan, join.null_equality) <= RELATIONS_MAX;
    reorderable.then_some(join.null_equality)
}

/// Does `plan` belong to a cluster, rather than being one of its relations?
fn interior(plan: &LogicalPlan, null_equality: NullEquality) -> bool {
    match plan {
        LogicalPlan::Join(join) => {
            join.join_type == JoinType::Inner
                && join.null_equality == null_equality
                && join.on.iter().all(|(l, r)| movable(l) && movable(r))
                && join.filter.iter().all(movable)
        }
        LogicalPlan::Filter(filter) => {
            movable(&filter.predicate) && interior(&filter.input, null_equality)
        }
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|e| matches!(e, Expr::Column(_)))
                && interior(&projection.input, null_equality)
        }
        _ => false,
    }
}

/// May an expression be evaluated at another place in the cluster?
fn movable(expr: &Expr) -> bool {
    let stays = expr.exists(|e| {
        Ok(match e {
            Expr::OuterReferenceColumn(..) => true,
            Expr::ScalarSubquery(s) => !s.outer_ref_columns.is_empty(),
            Expr::Exists(e) => !e.subquery.outer_ref_columns.is_empty(),
            Expr::InSubquery(i) => !i.subquery.outer_ref_columns.is_empty(),
            Expr::SetComparison(s) => !s.subquery.outer_ref_columns.is_empty(),
            other => other.is_volatile_node(),
        })
    });
    !stays.unwrap_or(true)
}

fn relations(plan: &LogicalPlan, null_equality: NullEquality) -> usize {
    if !interior(plan, null_equality) {
        return 1;
    }
    plan.inputs().into_iter().map(|input| relations(input, null_equality)).sum()
}

/// A cluster taken apart.
#[derive(Default)]
struct Cluster<'a> {
    relations: Vec<&'a LogicalPlan>,
    keys: Vec<(Expr, Expr)>,
    predicates: Vec<Expr>,
    /// Both inputs of each join that has no keys.
    unkeyed: Vec<(Set, Set)>,
}

impl<'a> Cluster<'a> {
    fn collect(&mut self, plan: &'a LogicalPlan, null_equality: NullEquality) -> Tree {
        match plan {
            LogicalPlan::Join(join) if interior(plan, null_equality) => {
                let left = self.collect(&join.left, null_equality);
                let right = self.collect(&join.right, null_equality);
                self.keys.extend(join.on.iter().cloned());
                self.predicates
                    .extend(join.filter.iter().cloned().flat_map(split_conjunction_owned));
                if join.on.is_empty() {
                    self.unkeyed.push((left.set(), right.set()));
                }
                Tree::Join(Box::new(left), Box::new(right))
            }
            LogicalPlan::Filter(filter) if interior(plan, null_equality) => {
                self.predicates.extend(split_conjunction_owned(filter.predicate.clone()));
                self.collect(&filter.input, null_equality)
            }
            LogicalPlan::Projection(projection) if interior(plan, null_equality) => {
                self.collect(&projection.input, null_equality)
            }
            _ => {
                self.relations.push(plan);
                Tree::Relation(self.relations.len() - 1)
            }
        }
    }

    /// Numbers the relations by name instead of by place, so that the same cluster is searched
    /// in the same way in whatever order it arrives. Answers with the new number of each.
    fn sort(&mut self) -> Vec<usize> {
        let name = |plan: &LogicalPlan| match plan.schema().iter().next() {
            Some((Some(table), _)) => table.to_string(),
            Some((None, field)) => field.name().clone(),
            None => String::new(),
        };
        let mut order: Vec<(String, usize)> =
            self.relations.iter().enumerate().map(|(i, plan)| (name(plan), i)).collect();
        order.sort();
        let mut number = vec![0; order.len()];
        for (new, (_, old)) in order.iter().enumerate() {
            number[*old] = new;
        }
        self.relations = order.iter().map(|&(_, old)| self.relations[old]).collect();
        let renumbered = |set: Set| bits(set).fold(0, |all: Set, r| all | 1 << number[r]);
        for (left, right) in &mut self.unkeyed {
            (*left, *right) = (renumbered(*left), renumbered(*right));
        }
        number
    }
}

fn renumber(tree: &mut Tree, number: &[usize]) {
    match tree {
        Tree::Relation(r) => *r = number[*r],
        Tree::Join(left, right) => {
            renumber(left, number);
            renumber(right, number);
        }
    }
}

/// A cluster in a better order; `None` if it is in the best one known, or had better be left.
fn reorder(
    plan: &LogicalPlan,
    null_equality: NullEquality,
    ordered: bool,
) -> Result<Option<LogicalPlan>> {
    let mut cluster = Cluster::default();
    let mut present = cluster.collect(plan, null_equality);
    let number = cluster.sort();
    renumber(&mut present, &number);
    if ambiguous(&cluster.relations) || cluster.relations.iter().any(|r| lateral(r)) {
        return Ok(None);
    }
    let unkeyed = std::mem::take(&mut cluster.unkeyed);
    let Some(pieces) = Pieces::sort_out(cluster, null_equality)? else { return Ok(None) };
    let graph = pieces.graph();
    let (best, best_cost) = search::search(&graph);
    // A join that could have keys and has none is dearer than the cost model takes it to be.
    let keyless = unkeyed.iter().any(|&(left, right)| pieces.keyed(left, right));
    let must = keyless || pieces.extracted;
    if !must && best_cost >= search::cost(&graph, &present) * (1.0 - GAIN_MIN) {
        return Ok(None);
    }
    let mut joined = pieces.build(&best, null_equality)?;
    let constant = pieces.constant();
    if let Some(predicate) = constant {
        joined = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(joined))?);
    }
    if ordered && !same_columns(joined.schema(), plan.schema()) {
        let columns = Arc::clone(plan.schema());
        joined = LogicalPlan::Projection(Projection::new_from_schema(Arc::new(joined), columns));
    }
    Ok(Some(joined))
}

fn same_columns(a: &DFSchema, b: &DFSchema) -> bool {
    a.fields().len() == b.fields().len()
        && a.iter().zip(b.iter()).all(|((aq, af), (bq, bf))| aq == bq && af.name() == bf.name())
}

/// Could a column's name mean more than one column, once nothing hides any?
fn ambiguous(relations: &[&LogicalPlan]) -> bool {
    let mut qualified = HashSet::new();
    let mut unqualified = HashSet::new();
    for (qualifier, field) in relations.iter().flat_map(|r| r.schema().iter()) {
        let new = match qualifier {
            Some(qualifier) => qualified.insert((qualifier, field.name())),
            None => unqualified.insert(field.name()),
        };
        if !new {
            return true;
        }
    }
    !unqualified.is_empty() && qualified.iter().any(|(_, name)| unqualified.contains(name))
}

/// A relation evaluated per row of another must stay on that one's right.
fn lateral(plan: &LogicalPlan) -> bool {
    plan.exists(|node| {
        Ok(matches!(node, LogicalPlan::Subquery(s) if !s.outer_ref_columns.is_empty()))
    })
    .unwrap_or(true)
}

/// A column, or an expression over one relation, that is in a class.
struct Member {
    relation: usize,
    expr: Expr,
    distinct: f64,
    /// If `expr` is a column: which of its relation.
    column: Option<usize>,
}

enum Bond {
    Equal(Expr, Expr),
    Predicate(Expr),
}

/// Relations, and conditions by what they hold together.
struct Pieces {
    relations: Vec<LogicalPlan>,
    estimates: Vec<cardinality::Estimate>,
    classes: Vec<Vec<Member>>,
    /// As the query wrote them: preferred to implied ones.
    keys: Vec<(Expr, Expr)>,
    conditions: Vec<(Condition, Bond)>,
    /// A predicate has become a key.
    extracted: bool,
}

impl Pieces {
    fn sort_out(cluster: Cluster<'_>, null_equality: NullEquality) -> Result<Option<Pieces>> {
        let sets = |expr: &Expr| -> Option<Set> {
            expr.column_refs().into_iter().try_fold(0, |set: Set, name| {
                let mut owners = cluster
                    .relations
                    .iter()
                    .enumerate()
                    .filter(|(_, plan)| plan.schema().maybe_index_of_column(name).is_some());
                let (owner, _) = owners.next()?;
                owners.next().is_none().then_some(set | 1 << owner)
            })
        };
        let single = |set: Set| set.count_ones() == 1;
        let mut extracted = false;
        let mut keys = Vec::new();
        let mut spanning = Vec::new();
        let mut predicates = vec![Vec::new(); cluster.relations.len()];
        let mut equalities: Vec<(Expr, Expr, bool)> =
            cluster.keys.into_iter().map(|(l, r)| (l, r, true)).collect();
        let mut others = Vec::new();
        for predicate in cluster.predicates {
            match predicate {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
                    if null_equality == NullEquality::NullEqualsNothing =>
                {
                    equalities.push((*left, *right, false));
                }
                other => others.push(other),
            }
        }
        for (l, r, is_key) in equalities {
            let (Some(left), Some(right)) = (sets(&l), sets(&r)) else { return Ok(None) };
            let apart = left != 0 && right != 0 && left & right == 0;
            let hashable = apart && (is_key || hashable(&l, &r, left, right, &cluster.relations)?);
            if hashable && single(left) && single(right) {
                extracted |= !is_key;
                keys.push((l, r));
            } else if hashable {
                spanning.push((left | right, Some((left, right)), Bond::Equal(l, r)));
            } else {
                let op = match null_equality {
                    NullEquality::NullEqualsNothing => Operator::Eq,
                    NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
                };
                others.push(Expr::BinaryExpr(BinaryExpr::new(Box::new(l), op, Box::new(r))));
            }
        }
        // DataFusion infers the same predicate again in each pass; counted twice, it would look
        // twice as selective.
        let mut seen = HashSet::new();
        others.retain(|predicate| seen.insert(predicate.clone()));
        for predicate in others {
            let Some(set) = sets(&predicate) else { return Ok(None) };
            if single(set) {
                predicates[set.trailing_zeros() as usize].push(predicate);
            } else {
                spanning.push((set, None, Bond::Predicate(predicate)));
            }
        }
        let mut relations = Vec::with_capacity(cluster.relations.len());
        for (&plan, predicates) in cluster.relations.iter().zip(predicates) {
            relations.push(match conjunction(predicates) {
                Some(p) => LogicalPlan::Filter(Filter::try_new(p, Arc::new(plan.clone()))?),
                None => plan.clone(),
            });
        }
        let estimates: Vec<_> = relations.iter().map(cardinality::estimate).collect();
        let mut pieces = Pieces {
            relations,
            estimates,
            classes: Vec::new(),
            keys,
            conditions: Vec::new(),
            extracted,
        };
        pieces.classify()?;
        for (set, sides, bond) in spanning {
            let share = pieces.share(&bond);
            pieces.conditions.push((Condition { set, share, sides }, bond));
        }
        Ok(Some(pieces))
    }

    fn member(&self, expr: &Expr) -> Option<Member> {
        let name = expr.column_refs().into_iter().next()?;
        let relation = self
            .relations
            .iter()
            .position(|plan| plan.schema().maybe_index_of_column(name).is_some())?;
        let schema = self.relations[relation].schema();
        let estimate = &self.estimates[relation];
        let distinct = cardinality::of_expr(expr, schema, estimate).domain(estimate.base_rows);
        let column = match expr {
            Expr::Column(name) => schema.maybe_index_of_column(name),
            _ => None,
        };
        Some(Member { relation, expr: expr.clone(), distinct, column })
    }

    /// Turns the keys into classes of equal columns.
    ///
    /// A class has one column of a relation at most: then one comparison per join keeps all of
    /// it equal. Keys that would break this make a class of their own.
    fn classify(&mut self) -> Result<()> {
        // Sorted, so that the classes do not depend on where the joins stood.
        let mut sorted: Vec<_> =
            self.keys.iter().map(|(l, r)| (l.to_string(), r.to_string(), l, r)).collect();
        for key in &mut sorted {
            if key.1 < key.0 {
                *key = (std::mem::take(&mut key.1), std::mem::take(&mut key.0), key.3, key.2);
            }
        }
        sorted.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let mut classes: Vec<(bool, Vec<Member>)> = Vec::new();
        for (_, _, l, r) in sorted {
            let (Some(left), Some(right)) = (self.member(l), self.member(r)) else { continue };
            let kind = |m: &Member| m.expr.get_type(self.relations[m.relation].schema());
            let (lk, rk) = (kind(&left)?, kind(&right)?);
            let transitive = lk == rk && !lk.is_floating();
            let holds = |class: &[Member], m: &Member| {
                class.iter().any(|c| c.relation == m.relation && c.expr == m.expr)
            };
            let find = |m: &Member| {
                classes.iter().position(|(t, class)| *t && transitive && holds(class, m))
            };
            let apart = |a: &[Member], b: &[Member]| {
                !a.iter().any(|a| b.iter().any(|b| a.relation == b.relation))
            };
            match (find(&left), find(&right)) {
                (Some(a), Some(b)) if a == b => {}
                (Some(a), Some(b)) if apart(&classes[a].1, &classes[b].1) => {
                    let (_, merged) = classes.remove(a.max(b));
                    classes[a.min(b)].1.extend(merged);
                }
                (Some(a), None) if apart(&classes[a].1, std::slice::from_ref(&right)) => {
                    classes[a].1.push(right);
                }
                (None, Some(b)) if apart(&classes[b].1, std::slice::from_ref(&left)) => {
                    classes[b].1.push(left);
                }
                _ => {
                    let same = |class: &[Member]| holds(class, &left) && holds(class, &right);
                    if !classes.iter().any(|(t, class)| *t == transitive && same(class)) {
                        classes.push((transitive, vec![left, right]));
                    }
                }
            }
        }
        self.classes = classes
            .into_iter()
            .map(|(_, mut class)| {
                class.sort_by_key(|m| m.relation);
                class
            })
            .collect();
        Ok(())
    }

    fn share(&self, bond: &Bond) -> f64 {
        let columns = |name: &Name| {
            self.relations
                .iter()
                .zip(&self.estimates)
                .find_map(|(r, e)| cardinality::lookup(r.schema(), &e.columns, name))
        };
        match bond {
            Bond::Predicate(predicate) => selectivity::selectivity(predicate, &columns),
            Bond::Equal(l, r) => {
                let equal = BinaryExpr::new(Box::new(l.clone()), Operator::Eq, Box::new(r.clone()));
                let equal = Expr::BinaryExpr(equal);
                selectivity::selectivity(&equal, &|name| columns(name))
            }
        }
    }

    fn graph(&self) -> Graph {
        let relations = self.relations.iter().zip(&self.estimates).enumerate();
        let relations = relations
            .map(|(r, (plan, estimate))| Relation {
                rows: estimate.rows,
                base_rows: estimate.base_rows,
                single_row: estimate.single_row,
                keys: cardinality::keys(plan)
                    .into_iter()
                    .filter_map(|key| {
                        key.into_iter().try_fold(0u64, |set, column| {
                            let class = self.classes.iter().take(64).position(|class| {
                                class.iter().any(|m| m.relation == r && m.column == Some(column))
                            })?;
                            Some(set | 1 << class)
                        })
                    })
                    .filter(|&set| set != 0)
                    .collect(),
            })
            .collect();
        let classes = self
            .classes
            .iter()
            .map(|class| Class {
                members: class.iter().map(|m| (m.relation, m.distinct)).collect(),
            })
            .collect();
        let conditions = self.conditions.iter().map(|(c, _)| c.clone()).collect();
        Graph { relations, classes, conditions }
    }

    /// The members of `class` to compare when `left` and `right` are joined.
    fn bridge<'a>(
        &self,
        class: &'a [Member],
        left: Set,
        right: Set,
    ) -> Option<(&'a Expr, &'a Expr)> {
        let of = |set: Set| class.iter().filter(move |m| set >> m.relation & 1 == 1);
        let mut pairs = of(left).flat_map(|l| of(right).map(move |r| (&l.expr, &r.expr)));
        let first = pairs.clone().next()?;
        let written = pairs.find(|&(l, r)| {
            self.keys.iter().any(|(a, b)| (a == l && b == r) || (a == r && b == l))
        });
        Some(written.unwrap_or(first))
    }

    fn keyed(&self, left: Set, right: Set) -> bool {
        self.classes.iter().any(|class| self.bridge(class, left, right).is_some())
    }

    fn build(&self, tree: &Tree, null_equality: NullEquality) -> Result<LogicalPlan> {
        let (build, probe) = match tree {
            Tree::Relation(r) => return Ok(self.relations[*r].clone()),
            Tree::Join(build, probe) => (build, probe),
        };
        let (left, right) = (build.set(), probe.set());
        let mut on: Vec<(Expr, Expr)> = self
            .classes
            .iter()
            .filter_map(|class| self.bridge(class, left, right))
            .map(|(l, r)| (l.clone(), r.clone()))
            .collect();
        let mut filters = Vec::new();
        for (condition, bond) in &self.conditions {
            let within = |set: Set| condition.set & !set == 0;
            if condition.set == 0 || within(left) || within(right) || !within(left | right) {
                continue;
            }
            match (bond, condition.sides) {
                (Bond::Predicate(predicate), _) => filters.push(predicate.clone()),
                (Bond::Equal(l, r), Some((a, b))) if a & !left == 0 && b & !right == 0 => {
                    on.push((l.clone(), r.clone()));
                }
                (Bond::Equal(l, r), Some((a, b))) if b & !left == 0 && a & !right == 0 => {
                    on.push((r.clone(), l.clone()));
                }
                (Bond::Equal(l, r), _) => {
                    let op = match null_equality {
                        NullEquality::NullEqualsNothing => Operator::Eq,
                        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
                    };
                    let (l, r) = (Box::new(l.clone()), Box::new(r.clone()));
                    filters.push(Expr::BinaryExpr(BinaryExpr::new(l, op, r)));
                }
            }
        }
        Ok(LogicalPlan::Join(Join::try_new(
            Arc::new(self.build(build, null_equality)?),
            Arc::new(self.build(probe, null_equality)?),
            on,
            conjunction(filters),
            JoinType::Inner,
            JoinConstraint::On,
            null_equality,
            false,
        )?))
    }

    /// Predicates that refer to no relation.
    fn constant(&self) -> Option<Expr> {
        conjunction(self.conditions.iter().filter_map(|(condition, bond)| match bond {
            Bond::Predicate(predicate) if condition.set == 0 => Some(predicate.clone()),
            _ => None,
        }))
    }
}

/// Can `l = r` be a key of a hash join, without a conversion?
fn hashable(l: &Expr, r: &Expr, left: Set, right: Set, relations: &[&LogicalPlan]) -> Result<bool> {
    let kind = |expr: &Expr, set: Set| -> Result<Option<DataType>> {
        // Over several relations there is no one schema to ask; such an equality stays a filter.
        match set.count_ones() {
            1 => Ok(Some(expr.get_type(relations[set.trailing_zeros() as usize].schema())?)),
            _ => Ok(None),
        }
    };
    Ok(match (kind(l, left)?, kind(r, right)?) {
        (Some(l), Some(r)) => l == r && can_hash(&l),
        _ => false,
    })
}
