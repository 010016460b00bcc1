//! Queries through the binder: what a statement names is looked up first, then it is bound.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::TableFunctionArgs;
use datafusion::common::{
    DFSchema, DataFusionError, ResolvedTableReference, Result as DfResult, TableReference,
};
use datafusion::config::ConfigOptions;
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, LogicalPlanBuilder, PlanType, ScalarUDF,
    TableSource, ToStringifiedPlan, WindowUDF,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Query};
use thalweg_bind::{Binder, Bound, Failure};

use crate::error::into_datafusion;

/// What the columns of a result are called, where that is not what the plan calls them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Titles(Option<Arc<[String]>>);

impl Titles {
    fn new(plan: &LogicalPlan, titles: Vec<String>) -> Self {
        let fields = plan.schema().fields();
        let same = fields.iter().zip(&titles).all(|(f, t)| f.name() == t);
        Titles((!same).then(|| titles.into()))
    }

    /// A schema of the plan under these titles.
    pub fn schema(&self, schema: SchemaRef) -> SchemaRef {
        let Some(titles) = &self.0 else { return schema };
        let fields = schema.fields().iter().zip(titles.iter());
        let fields = fields.map(|(f, title)| f.as_ref().clone().with_name(title));
        let fields: Vec<_> = fields.collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }

    /// Rows of the plan under these titles.
    pub fn batch(&self, batch: RecordBatch) -> RecordBatch {
        if self.0.is_none() {
            return batch;
        }
        let schema = self.schema(batch.schema());
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(schema, batch.columns().to_vec(), &options)
            .expect("only names differ")
    }
}

/// The plan of a query, or of what EXPLAIN explains; `None` if the statement is another, or has what
/// the binder does not cover.
pub(crate) async fn plan(
    state: &SessionState,
    statement: &Statement,
) -> DfResult<Option<(LogicalPlan, Titles)>> {
    match statement {
        Statement::Statement(inner) => match inner.as_ref() {
            ast::Statement::Query(query) => {
                let Some(bound) = bind(state, statement, query).await? else { return Ok(None) };
                let titles = Titles::new(&bound.plan, bound.titles);
                Ok(Some((bound.plan, titles)))
            }
            _ => Ok(None),
        },
        Statement::Explain(explain) => {
            let Statement::Statement(inner) = explain.statement.as_ref() else { return Ok(None) };
            let ast::Statement::Query(query) = inner.as_ref() else { return Ok(None) };
            let Some(bound) = bind(state, &explain.statement, query).await? else {
                return Ok(None);
            };
            // The options are DataFusion's to read.
            let mut other = explain.clone();
            *other.statement =
                state.sql_to_statement("SELECT 1", &state.config_options().sql_parser.dialect)?;
            let mut plan = state.statement_to_plan(Statement::Explain(other)).await?;
            match &mut plan {
                LogicalPlan::Explain(explain) => {
                    explain.stringified_plans =
                        vec![bound.plan.to_stringified(PlanType::InitialLogicalPlan)];
                    explain.plan = Arc::new(bound.plan);
                }
                LogicalPlan::Analyze(analyze) => analyze.input = Arc::new(bound.plan),
                _ => return Ok(None),
            }
            Ok(Some((plan, Titles::default())))
        }
        _ => Ok(None),
    }
}

/// A plan whose columns have the titles of the result for names, as far as these are unique.
pub(crate) fn titled(plan: LogicalPlan, titles: &Titles) -> DfResult<LogicalPlan> {
    let Some(titles) = &titles.0 else { return Ok(plan) };
    let mut taken = std::collections::HashSet::new();
    let columns = plan.schema().columns().into_iter().zip(titles.iter());
    let columns: Vec<Expr> = columns
        .map(|(column, title)| {
            let mut name = title.clone();
            let mut number = 0;
            while !taken.insert(name.clone()) {
                number += 1;
                name = format!("{title}_{number}");
            }
            Expr::Column(column).alias(name)
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

async fn bind(
    state: &SessionState,
    statement: &Statement,
    query: &Query,
) -> DfResult<Option<Bound>> {
    let names = Names::of(state, statement).await?;
    match Binder::new(&names).query(query) {
        Ok(bound) => Ok(Some(bound)),
        Err(Failure::NotCovered(what)) => {
            tracing::debug!(what, "not covered by the binder");
            Ok(None)
        }
        Err(Failure::Refused(e)) => Err(*e),
        Err(Failure::Wrong(e)) => Err(into_datafusion(e)),
    }
}

/// Tables and functions that a statement may name.
struct Names<'a> {
    state: &'a SessionState,
    tables: HashMap<ResolvedTableReference, Arc<dyn TableSource>>,
}

impl<'a> Names<'a> {
    /// Looks up all tables that the statement names.
    async fn of(state: &'a SessionState, statement: &Statement) -> DfResult<Self> {
        let mut tables = HashMap::new();
        let options = &state.config_options().catalog;
        for reference in state.resolve_table_references(statement)? {
            let resolved = reference.resolve(&options.default_catalog, &options.default_schema);
            let Entry::Vacant(place) = tables.entry(resolved) else { continue };
            let name = place.key();
            if let Ok(schema) = state.schema_for_ref(name.clone())
                && let Some(table) = schema.table(&name.table).await?
            {
                place.insert(provider_as_source(table));
            }
        }
        Ok(Names { state, tables })
    }
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> DfResult<Arc<dyn TableSource>> {
        let options = &self.state.config_options().catalog;
        let name = name.resolve(&options.default_catalog, &options.default_schema);
        let found = self.tables.get(&name).cloned();
        found.ok_or_else(|| DataFusionError::Plan(format!("table '{name}' not found")))
    }

    fn get_table_function_source(
        &self,
        name: &str,
        args: Vec<Expr>,
    ) -> DfResult<Arc<dyn TableSource>> {
        let Some(function) = self.state.table_functions().get(name) else {
            return Err(DataFusionError::Plan(format!("table function '{name}' not found")));
        };
        let context = SimplifyContext::builder()
            .with_config_options(Arc::clone(self.state.config_options()))
            .with_query_execution_start_time(
                self.state.execution_props().query_execution_start_time,
            )
            .build();
        let simplifier = ExprSimplifier::new(context);
        let schema = DFSchema::empty();
        let args = args
            .into_iter()
            .map(|arg| simplifier.coerce(arg, &schema).and_then(|arg| simplifier.simplify(arg)));
        let args = args.collect::<DfResult<Vec<Expr>>>()?;
        let table =
            function.create_table_provider_with_args(TableFunctionArgs::new(&args, self.state))?;
        Ok(provider_as_source(table))
    }

    fn create_cte_work_table(
        &self,
        name: &str,
        schema: SchemaRef,
    ) -> DfResult<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
