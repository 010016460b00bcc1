//! Which statements have the same answer, and the same claim to it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::WindowFunctionDefinition;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};
use thalweg_base::QueryId;
use thalweg_scheduler::ClassId;
use thalweg_storage::Table;

use thalweg_runtime::Run;

use crate::config::{Settings, same_settings};
use crate::plans::Planned;
use crate::table::StoredTable;

/// Equal for two statements that may share one computation: they have the same optimised plan
/// over the same versions of the same tables under the same settings, and the scheduler gives
/// both the same share, so that neither waits for one that gets less.
pub struct Key {
    /// Of the plan: made once, and not under the lock of a registry.
    hash: u64,
    plan: Arc<Planned>,
    /// A plan only names its tables. These are what the names stood for, in the plan's order.
    /// Snapshots share the tables that did not change, so a commit elsewhere keeps nobody apart.
    tables: Vec<Arc<Table>>,
    options: Arc<ConfigOptions>,
    class: ClassId,
    share: u64,
    /// Whose key it is, for people.
    query: QueryId,
}

impl Key {
    /// `None` if the statement is computed for itself: it reads other things than stored tables,
    /// or none, its answer is not decided by what it reads, or its session does not share.
    pub fn of(plan: &Arc<Planned>, state: &SessionState, run: &Run) -> Option<Key> {
        let options = state.config_options();
        if !options.extensions.get::<Settings>()?.share_work {
            return None;
        }
        let tables = tables(plan.logical()).filter(|tables| !tables.is_empty())?;
        let query = run.state()?;
        let mut hasher = DefaultHasher::new();
        plan.logical().hash(&mut hasher);
        Some(Key {
            hash: hasher.finish(),
            plan: Arc::clone(plan),
            tables,
            options: Arc::clone(options),
            class: query.class,
            share: query.share,
            query: run.id(),
        })
    }

    pub fn query(&self) -> QueryId {
        self.query
    }

    pub fn plan(&self) -> &Arc<Planned> {
        &self.plan
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b)| Arc::ptr_eq(a, b);
        (self.hash, self.class, self.share) == (other.hash, other.class, other.share)
            && self.tables.len() == other.tables.len()
            && self.tables.iter().zip(&other.tables).all(same)
            && self.plan.logical() == other.plan.logical()
            && same_settings(&self.options, &other.options)
    }
}

impl Eq for Key {}

impl Hash for Key {
    /// Without the settings, which are nearly always the same and long to read.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Whether the snapshot decides all that a plan gives: it reads stored tables and nothing else, and no
/// function in it depends on when or by whom it is asked.
pub fn is_decided(plan: &LogicalPlan) -> bool {
    tables(plan).is_some()
}

/// The tables of a plan that reads nothing else and always gives the same answer.
fn tables(plan: &LogicalPlan) -> Option<Vec<Arc<Table>>> {
    let mut tables = vec![];
    let walked = plan.apply_with_subqueries(|node| {
        let known = match node {
            LogicalPlan::TableScan(scan) => {
                let table = stored(scan);
                let known = table.is_some();
                tables.extend(table);
                known
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_) => true,
            // Commands, plans of plans, and operators that nobody has looked at for this.
            _ => false,
        };
        let walk = node.apply_expressions(|expr| {
            expr.apply(|e| Ok(if is_immutable(e) { GO_ON } else { STOP }))
        })?;
        Ok(if known { walk } else { STOP })
    });
    matches!(walked, Ok(TreeNodeRecursion::Continue)).then_some(tables)
}

const GO_ON: TreeNodeRecursion = TreeNodeRecursion::Continue;
const STOP: TreeNodeRecursion = TreeNodeRecursion::Stop;

fn stored(scan: &TableScan) -> Option<Arc<Table>> {
    let provider = source_as_provider(&scan.source).ok()?;
    Some(Arc::clone(provider.downcast_ref::<StoredTable>()?.table()))
}

/// Whether the node itself (not what is below it) gives the same whenever it is asked. Once a plan is
/// optimised, `now()` and its like are literals in it, each statement's own.
fn is_immutable(expr: &Expr) -> bool {
    let volatility = match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility,
        Expr::HigherOrderFunction(call) => call.func.signature().volatility,
        Expr::AggregateFunction(call) => call.func.signature().volatility,
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(f) => f.signature().volatility,
            WindowFunctionDefinition::WindowUDF(f) => f.signature().volatility,
        },
        Expr::ScalarVariable(..) | Expr::Placeholder(_) => return false,
        _ => Volatility::Immutable,
    };
    volatility == Volatility::Immutable
}
