//! Where a rule stands among DataFusion's.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::optimizer::{AnalyzerRule, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;

/// Adds a rule for logical plans before the named one, or at the end if there is none.
pub(crate) fn add_before(
    name: &str,
    rule: impl OptimizerRule + Send + Sync + 'static,
    mut builder: SessionStateBuilder,
) -> SessionStateBuilder {
    let mut rules = builder.optimizer().take().unwrap_or_default().rules;
    let place = rules.iter().position(|r| r.name() == name);
    rules.insert(place.unwrap_or(rules.len()), Arc::new(rule));
    builder.with_optimizer_rules(rules)
}

/// Adds a rule behind all others of the analyzer.
pub(crate) fn analyze_last(
    rule: impl AnalyzerRule + Send + Sync + 'static,
    mut builder: SessionStateBuilder,
) -> SessionStateBuilder {
    let mut rules = builder.analyzer().take().unwrap_or_default().rules;
    rules.push(Arc::new(rule));
    builder.with_analyzer_rules(rules)
}

/// Puts a rule for logical plans in the place of those of its name.
pub(crate) fn in_place(
    rule: impl OptimizerRule + Send + Sync + 'static,
    mut builder: SessionStateBuilder,
) -> SessionStateBuilder {
    let mut rules = builder.optimizer().take().unwrap_or_default().rules;
    let rule: Arc<dyn OptimizerRule + Send + Sync> = Arc::new(rule);
    for old in rules.iter_mut().filter(|old| old.name() == rule.name()) {
        *old = Arc::clone(&rule);
    }
    builder.with_optimizer_rules(rules)
}

/// The same of a rule for plans of execution.
pub(crate) fn in_place_of_execution(
    rule: impl PhysicalOptimizerRule + Send + Sync + 'static,
    mut builder: SessionStateBuilder,
) -> SessionStateBuilder {
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    let rule: Arc<dyn PhysicalOptimizerRule + Send + Sync> = Arc::new(rule);
    for old in rules.iter_mut().filter(|old| old.name() == rule.name()) {
        *old = Arc::clone(&rule);
    }
    builder.with_physical_optimizer_rules(rules)
}
