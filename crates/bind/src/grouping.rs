//! Groups, aggregates and windows of a `SELECT`: they are computed below it, and its expressions then
//! name what was computed.

use std::collections::{HashMap, HashSet};

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::{find_aggregate_exprs, find_window_exprs};
use datafusion::logical_expr::{
    Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, LogicalPlanBuilderOptions, lit,
};
use thalweg_base::{Error, Subject};

use crate::binder::Binder;
use crate::computed::{Computed, rebase};
use crate::failure::{Failure, Result, not_covered, wrong};
use crate::grouping_sets::lists;
use crate::guarded_keys::{has_guards, rebase_guarded};
use crate::nested::subquery;
use crate::scope::Scope;

pub(crate) fn has_aggregates<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> bool {
    !find_aggregate_exprs(exprs).is_empty()
}

impl Binder<'_> {
    /// The groups of `input`, with all aggregates of `exprs`, and those that queries within have, under
    /// these names.
    pub(crate) fn grouped<'e>(
        &self,
        input: LogicalPlan,
        groups: Vec<Expr>,
        exprs: impl IntoIterator<Item = &'e Expr>,
        named_within: Vec<(Expr, String)>,
    ) -> Result<(LogicalPlan, Computed)> {
        let mut aggregates = find_aggregate_exprs(exprs);
        check_orders(&aggregates)?;
        let (input, groups, stand_ins) = self.keys_of_sets(input, groups)?;
        if groups.is_empty() && aggregates.is_empty() && named_within.is_empty() {
            // HAVING alone makes a group of all rows, too.
            let Some(count) = self.names.get_aggregate_meta("count") else {
                return not_covered("count");
            };
            aggregates.push(count.call(vec![lit(1_i64)]));
        }
        let keys: Vec<Expr> = match &groups[..] {
            [Expr::GroupingSet(set)] => set.distinct_expr().into_iter().cloned().collect(),
            _ => groups.clone(),
        };
        let has_sets = matches!(&groups[..], [Expr::GroupingSet(_)]);
        // Casts do not show in the names that DataFusion gives: two aggregates, or two keys, may be given
        // the same.
        let mut taken = HashSet::new();
        let mut groups = groups;
        if has_sets {
            for key in &keys {
                taken.insert(key.schema_name().to_string());
            }
        } else {
            // Columns keep their names: queries within the expressions above know them by these.
            let (columns, computed): (Vec<_>, Vec<_>) =
                groups.iter_mut().partition(|group| matches!(group, Expr::Column(_)));
            for group in columns.into_iter().chain(computed) {
                self.name_apart(group, &mut taken);
            }
        }
        let named: Vec<Expr> = aggregates
            .iter_mut()
            .map(|aggregate| {
                let mut named = with_stand_ins(aggregate.clone(), &stand_ins);
                self.name_apart(&mut named, &mut taken);
                named
            })
            .collect();
        let named_within = named_within
            .into_iter()
            .map(|(aggregate, name)| with_stand_ins(aggregate, &stand_ins).alias(name));
        let named: Vec<Expr> = named.into_iter().chain(named_within).collect();
        let options = LogicalPlanBuilderOptions::new().with_add_implicit_group_by_exprs(false);
        let builder = LogicalPlanBuilder::from(input).with_options(options);
        let mut plan = builder.aggregate(groups, named)?.build()?;
        let mut columns = plan.schema().columns();
        if has_sets {
            // Between the keys and the aggregates is the number of the set, which is nobody's business.
            columns.remove(keys.len());
        }
        let written = |key: Expr| {
            let written = stand_ins.iter().find(|(_, stand_in)| **stand_in == key);
            written.map_or(key.clone(), |(written, _)| written.clone())
        };
        let all: Vec<Expr> = keys.into_iter().map(written).chain(aggregates).collect();
        if has_sets {
            // Queries within the expressions above know a column by its own name.
            let shown =
                columns.into_iter().enumerate().map(|(place, column)| match all.get(place) {
                    Some(Expr::Column(own)) => {
                        Expr::Column(column).alias_qualified(own.relation.clone(), &own.name)
                    }
                    _ => Expr::Column(column),
                });
            plan = LogicalPlanBuilder::from(plan).project(shown)?.build()?;
            columns = plan.schema().columns();
        }
        Ok((plan, all.into_iter().zip(columns).collect()))
    }

    /// Keys of grouping sets that are no columns are computed below the groups: optimizer rules take
    /// constants out of them, and lose count. Of columns of one name the rules take one for the other, so
    /// that these get others as well. The last value says which column stands for an expression.
    fn keys_of_sets(
        &self,
        input: LogicalPlan,
        groups: Vec<Expr>,
    ) -> Result<(LogicalPlan, Vec<Expr>, HashMap<Expr, Expr>)> {
        let [Expr::GroupingSet(set)] = &groups[..] else {
            return Ok((input, groups, HashMap::new()));
        };
        let set = without_repeats(set.clone());
        let keys = set.distinct_expr();
        let has_namesake = |column: &Column| {
            let is = |key: &&&Expr| matches!(key, Expr::Column(c) if c.name == column.name);
            keys.iter().filter(is).count() > 1
        };
        let is_computed = |key: &&&Expr| match key {
            Expr::Column(column) => has_namesake(column),
            _ => true,
        };
        let computed: Vec<Expr> = keys.iter().filter(is_computed).map(|k| (*k).clone()).collect();
        if computed.is_empty() {
            return Ok((input, vec![Expr::GroupingSet(set)], HashMap::new()));
        }
        let mut columns: Vec<Expr> =
            input.schema().columns().into_iter().map(Expr::Column).collect();
        let mut stand_ins = HashMap::new();
        for key in computed {
            let column = Column::new(Some(self.qualifier("__keys")), self.fresh("key"));
            columns.push(key.clone().alias_qualified(column.relation.clone(), &column.name));
            stand_ins.insert(key, Expr::Column(column));
        }
        let replaced = |key: Expr| stand_ins.get(&key).cloned().unwrap_or(key);
        let each = |keys: Vec<Expr>| keys.into_iter().map(replaced).collect();
        let set = match set {
            GroupingSet::Rollup(keys) => GroupingSet::Rollup(each(keys)),
            GroupingSet::Cube(keys) => GroupingSet::Cube(each(keys)),
            GroupingSet::GroupingSets(lists) => {
                GroupingSet::GroupingSets(lists.into_iter().map(each).collect())
            }
        };
        let input = LogicalPlanBuilder::from(input).project(columns)?.build()?;
        Ok((input, vec![Expr::GroupingSet(set)], stand_ins))
    }

    /// Gives an expression another name if its own is taken.
    fn name_apart(&self, expr: &mut Expr, taken: &mut HashSet<String>) {
        if !taken.insert(expr.schema_name().to_string()) {
            let name = self.fresh("group");
            taken.insert(name.clone());
            *expr = std::mem::take(expr).alias(name);
        }
    }

    /// All windows of `exprs`.
    pub(crate) fn windowed<'e>(
        &self,
        input: LogicalPlan,
        exprs: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<(LogicalPlan, Computed)> {
        let mut windows = find_window_exprs(exprs);
        let mut plan = input;
        let mut computed = Computed::new();
        while !windows.is_empty() {
            // Two that differ in a cast alone have one name: each is computed below an alias for the others.
            let mut taken: HashSet<String> =
                plan.schema().columns().iter().map(Column::flat_name).collect();
            let (now, later): (Vec<Expr>, Vec<Expr>) =
                windows.into_iter().partition(|w| taken.insert(w.schema_name().to_string()));
            if now.is_empty() {
                let name = later.first().map(|w| w.schema_name().to_string()).unwrap_or_default();
                return wrong("42702", format!("column reference \"{name}\" is ambiguous"));
            }
            let above = plan.schema().columns();
            plan = LogicalPlanBuilder::window_plan(plan, now.clone())?;
            let named = |window: &Expr| {
                let (relation, name) = window.qualified_name();
                Column::new(relation, name)
            };
            if later.is_empty() && computed.is_empty() {
                computed.extend(now.into_iter().map(|window| (window.clone(), named(&window))));
            } else {
                let mut columns: Vec<Expr> = above.into_iter().map(Expr::Column).collect();
                for window in now {
                    let own = Column::from_name(self.fresh("window"));
                    columns.push(Expr::Column(named(&window)).alias(&own.name));
                    computed.insert(window, own);
                }
                plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
            }
            windows = later;
        }
        Ok((plan, computed))
    }

    /// An expression above groups, with the columns in the place of what they hold.
    ///
    /// # Errors
    /// It names what is in the rows below the groups.
    pub(crate) fn above_groups(
        &self,
        expr: Expr,
        computed: &Computed,
        plan: &LogicalPlan,
        scope: &Scope<'_>,
    ) -> Result<Expr> {
        let guarded = has_guards(&expr).then(|| expr.clone());
        let rebased = rebase(expr, computed)?;
        match (self.check_grouped(&rebased, plan, scope), guarded) {
            (Ok(()), _) => Ok(rebased),
            (Err(failure), None) => Err(failure),
            (Err(failure), Some(guarded)) => {
                let rebased = rebase_guarded(&guarded, computed)?;
                self.check_grouped(&rebased, plan, scope).map_err(|_| failure)?;
                Ok(rebased)
            }
        }
    }

    /// Nothing above groups may name what is in the rows below them.
    fn check_grouped(&self, expr: &Expr, plan: &LogicalPlan, scope: &Scope<'_>) -> Result<()> {
        let schema = plan.schema();
        let is_there = |column: &Column| schema.maybe_index_of_column(column).is_some();
        let mut missing: Option<Column> = None;
        expr.apply(|e| {
            match e {
                Expr::Column(column) if !is_there(column) => missing = Some(column.clone()),
                _ => {
                    for outer in subquery(e).iter().flat_map(|s| &s.outer_ref_columns) {
                        if let Expr::OuterReferenceColumn(_, column) = outer
                            && scope.entries.iter().any(|entry| entry.column == *column)
                            && !is_there(column)
                        {
                            missing = Some(column.clone());
                        }
                    }
                }
            }
            Ok(match missing {
                Some(_) => TreeNodeRecursion::Stop,
                None => TreeNodeRecursion::Continue,
            })
        })?;
        let Some(column) = missing else { return Ok(()) };
        let entry = scope.entries.iter().find(|e| e.column == column);
        let (table, own) = match entry {
            Some(entry) => (entry.table.as_deref().and_then(|t| t.last()), entry.name.clone()),
            None => (None, column.flat_name()),
        };
        let name = table.map_or_else(|| own.clone(), |table| format!("{table}.{own}"));
        Err(Failure::Wrong(
            Error::user(format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            ))
            .code("42803")
            .about(Subject::Column(table.cloned(), own))
            .hint(format!("add {name} to GROUP BY, or write any_value({name})")),
        ))
    }
}

/// Several lists of keys, as one grouping set: `GROUP BY a, ROLLUP (b, c)` is the product of both.
pub(crate) fn one_set(groups: Vec<Expr>) -> Result<Vec<Expr>> {
    let sets = groups.iter().filter(|g| matches!(g, Expr::GroupingSet(_))).count();
    if sets == 0 || (sets == 1 && groups.len() == 1) {
        return Ok(groups);
    }
    let mut product: Vec<Vec<Expr>> = vec![vec![]];
    for group in groups {
        let alternatives = match group {
            Expr::GroupingSet(set) => lists(set),
            other => vec![vec![other]],
        };
        let mut next = Vec::with_capacity(product.len() * alternatives.len());
        for before in &product {
            for alternative in &alternatives {
                let mut keys = before.clone();
                keys.extend(alternative.iter().filter(|k| !before.contains(k)).cloned());
                next.push(keys);
            }
        }
        product = next;
    }
    Ok(vec![Expr::GroupingSet(GroupingSet::GroupingSets(product))])
}

/// Where two aggregates want the rows of a group in different orders, one would get the other's.
fn check_orders(aggregates: &[Expr]) -> Result<()> {
    let ordered = |e: &Expr| match e {
        Expr::AggregateFunction(call) if !call.func.supports_within_group_clause() => {
            (!call.params.order_by.is_empty()).then(|| call.params.clone())
        }
        _ => None,
    };
    let ordered: Vec<_> = aggregates.iter().filter_map(ordered).collect();
    let is_at_odds = ordered
        .iter()
        .any(|a| ordered.iter().any(|b| a.order_by != b.order_by && (a.distinct || b.distinct)));
    match is_at_odds {
        false => Ok(()),
        true => Err(Error::unsupported("aggregates over different orders, one of them DISTINCT")
            .hint("put one of them into a subquery of its own")
            .into()),
    }
}

/// `GROUPING(key)` with the column that stands for the key.
fn with_stand_ins(aggregate: Expr, stand_ins: &HashMap<Expr, Expr>) -> Expr {
    match aggregate {
        Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
            for arg in &mut call.params.args {
                if let Some(stand_in) = stand_ins.get(arg) {
                    *arg = stand_in.clone();
                }
            }
            Expr::AggregateFunction(call)
        }
        other => other,
    }
}

/// The same groups without a key that is there twice in one list.
fn without_repeats(set: GroupingSet) -> GroupingSet {
    let mut seen = HashSet::new();
    let repeats = match &set {
        GroupingSet::Rollup(keys) | GroupingSet::Cube(keys) => {
            !keys.iter().all(|key| seen.insert(key))
        }
        GroupingSet::GroupingSets(lists) => lists.iter().any(|keys| {
            let mut seen = HashSet::new();
            !keys.iter().all(|key| seen.insert(key))
        }),
    };
    if !repeats {
        return set;
    }
    let once = |keys: Vec<Expr>| {
        let mut seen = HashSet::new();
        keys.into_iter().filter(|key| seen.insert(key.clone())).collect()
    };
    GroupingSet::GroupingSets(lists(set).into_iter().map(once).collect())
}
