//! Queries through the binder, also those that are parts of statements: what a statement names is looked
//! up first, then the query is bound. What surrounds it is planned by DataFusion, with another query in its
//! place.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableFunctionArgs;
use datafusion::common::{
    DFSchema, DataFusionError, ResolvedTableReference, Result as DfResult, ScalarValue,
    TableReference, internal_err,
};
use datafusion::config::ConfigOptions;
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{TableProvider, provider_as_source, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    AggregateUDF, DdlStatement, DmlStatement, EmptyRelation, Expr, HigherOrderUDF, LogicalPlan,
    LogicalPlanBuilder, PlanType, ScalarUDF, TableSource, ToStringifiedPlan, WindowUDF, WriteOp,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement};
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{self, DescribeAlias, Query};
use thalweg_base::text::nearest;
use thalweg_base::{Error, Subject};
use thalweg_bind::catalogue::{self, Function};
use thalweg_bind::{Binder, Bound, Failure, Reads};

use thalweg_errors::{from_datafusion, into_datafusion};
use thalweg_exec::IntSeries;
use thalweg_functions::long_lists;
use thalweg_plan::equal_floats;

use crate::catalog::Handle;
use crate::describe::{described, summary};
use crate::dialect::{SUMMARIZE, every_column_of};
use crate::dml::target::expression;
use crate::files::Reading;
use crate::names::CATALOG;
use crate::table::StoredTable;
use crate::titles::Titles;
use crate::walk::walk;
use crate::{names, quantified};

/// The plan of a query, or of a statement with a query in it; `None` if the statement is another.
pub(crate) async fn plan(
    state: &SessionState,
    statement: &Statement,
) -> DfResult<Option<(LogicalPlan, Titles)>> {
    match statement {
        Statement::Statement(inner) => match inner.as_ref() {
            ast::Statement::Query(query) => {
                let bound = bind(state, statement, query, None).await?;
                let titles = Titles::new(&bound.plan, bound.titles);
                Ok(Some((bound.plan, titles)))
            }
            ast::Statement::Insert(insert) => insertion(state, statement, insert).await,
            ast::Statement::CreateTable(create) => match &create.query {
                Some(query) => table_of_query(state, statement, create, query).await,
                None => {
                    let plan = table_of_columns(state, create).await?;
                    Ok(Some((plan, Titles::default())))
                }
            },
            ast::Statement::CreateView(create) => view(state, statement, create).await,
            ast::Statement::ExplainTable {
                describe_alias: DescribeAlias::Describe | DescribeAlias::Desc,
                table_name,
                ..
            } => {
                let query = every_column_of(item(table_name))?;
                Box::pin(description(state, &query, false)).await
            }
            ast::Statement::Explain {
                describe_alias: DescribeAlias::Describe | DescribeAlias::Desc,
                statement,
                options,
                ..
            } => {
                let ast::Statement::Query(query) = statement.as_ref() else { return Ok(None) };
                let summarized = options.iter().flatten().any(|o| o.name.value == SUMMARIZE);
                Box::pin(description(state, query, summarized)).await
            }
            _ => Ok(None),
        },
        Statement::CopyTo(copy) => {
            let CopyToSource::Query(query) = &copy.source else { return Ok(None) };
            let bound = bind(state, statement, query, None).await?;
            let source = CopyToSource::Query(any_query(state)?);
            let other = Statement::CopyTo(CopyToStatement { source, ..copy.clone() });
            let titles = Titles::new(&bound.plan, bound.titles);
            let mut plan = state.statement_to_plan(other).await?;
            let LogicalPlan::Copy(copy) = &mut plan else { return Ok(None) };
            copy.input = Arc::new(titled(bound.plan, &titles)?);
            Ok(Some((plan, Titles::default())))
        }
        Statement::Explain(explain) => {
            let Some((bound, _)) = Box::pin(plan(state, &explain.statement)).await? else {
                return Ok(None);
            };
            // Of what is made of a query, the query is explained.
            let bound = match bound {
                LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(made)) => {
                    Arc::unwrap_or_clone(made.input)
                }
                LogicalPlan::Ddl(DdlStatement::CreateView(made)) => {
                    Arc::unwrap_or_clone(made.input)
                }
                other => other,
            };
            // The options are DataFusion's to read.
            let mut other = explain.clone();
            let query = ast::Statement::Query(any_query(state)?);
            *other.statement = Statement::Statement(Box::new(query));
            let mut plan = state.statement_to_plan(Statement::Explain(other)).await?;
            match &mut plan {
                LogicalPlan::Explain(explain) => {
                    explain.stringified_plans =
                        vec![bound.to_stringified(PlanType::InitialLogicalPlan)];
                    explain.plan = Arc::new(bound);
                }
                LogicalPlan::Analyze(analyze) => analyze.input = Arc::new(bound),
                _ => return Ok(None),
            }
            Ok(Some((plan, Titles::default())))
        }
        _ => Ok(None),
    }
}

/// A table in FROM.
fn item(name: &ast::ObjectName) -> ast::TableFactor {
    ast::TableFactor::Table {
        name: name.clone(),
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

/// The columns of a query, as rows; with what their values are like, if it is `summarized`.
async fn description(
    state: &SessionState,
    query: &Query,
    summarized: bool,
) -> DfResult<Option<(LogicalPlan, Titles)>> {
    let statement = ast::Statement::Query(Box::new(query.clone()));
    let statement = Statement::Statement(Box::new(statement));
    let bound = bind(state, &statement, query, None).await?;
    // The branches of a UNION agree on their types only here.
    let analysed = state.analyzer().execute_and_check(
        bound.plan.clone(),
        state.config_options(),
        |_, _| {},
    )?;
    let fields = analysed.schema().fields();
    if summarized {
        let mut summary = summary(state, query, fields, &bound.titles)?;
        quantified::rewrite(&mut summary);
        return plan(state, &summary).await;
    }
    Ok(Some((described(&bound.plan, fields, &bound.titles)?, Titles::default())))
}

fn is_query(statement: &Statement) -> Option<&Query> {
    let Statement::Statement(inner) = statement else { return None };
    match inner.as_ref() {
        ast::Statement::Query(query) => Some(query),
        _ => None,
    }
}

/// The plan of a query whose columns are put into those of a table: where a type is given, they become
/// values of it.
pub(crate) async fn assigned(
    state: &SessionState,
    statement: &Statement,
    types: &[Option<DataType>],
) -> DfResult<LogicalPlan> {
    let mut statement = statement.clone();
    quantified::rewrite(&mut statement);
    let Some(query) = is_query(&statement) else { return internal_err!("rows of no query") };
    let into = Into { types, fewer: false };
    let bound = bind(state, &statement, query, Some(into)).await?;
    let titles = Titles::new(&bound.plan, bound.titles);
    titled(bound.plan, &titles)
}

/// A query in the place of one that is bound: the rest of its statement is DataFusion's to read.
fn any_query(state: &SessionState) -> DfResult<Box<Query>> {
    let one =
        state.sql_to_statement("SELECT 1 AS a", &state.config_options().sql_parser.dialect)?;
    match one {
        Statement::Statement(inner) => match *inner {
            ast::Statement::Query(query) => Ok(query),
            _ => internal_err!("SELECT is no query"),
        },
        _ => internal_err!("SELECT is no query"),
    }
}

async fn insertion(
    state: &SessionState,
    statement: &Statement,
    insert: &ast::Insert,
) -> DfResult<Option<(LogicalPlan, Titles)>> {
    let (ast::TableObject::TableName(name), Some(query)) = (&insert.table, &insert.source) else {
        return Ok(None);
    };
    let is_plain = insert.on.is_none()
        && insert.returning.is_none()
        && !insert.replace_into
        && insert.or.is_none()
        && insert.assignments.is_empty()
        && insert.partitioned.is_none()
        && insert.after_columns.is_empty();
    if !is_plain {
        return Err(into_datafusion(Error::unsupported("this form of INSERT is not supported")));
    }
    let names = Names::of(state, statement).await?;
    let reference = object_name_to_table_reference(name.clone(), true)?;
    let target = names.target(&reference).await?;
    let schema = target.schema();
    // For each column of the table, which column of the query it gets.
    let mut given: Vec<Option<usize>> = vec![None; schema.fields().len()];
    for (at, column) in insert.columns.iter().enumerate() {
        let ident = match &column.0[..] {
            [part] => part.as_ident(),
            _ => None,
        };
        let found = match ident {
            Some(ident) => {
                let columns = schema.fields().iter().map(|f| f.name().as_str());
                names::column(columns, ident).map_err(into_datafusion)?
            }
            None => None,
        };
        let Some(found) = found else {
            let error = format!("column \"{column}\" of table \"{reference}\" does not exist");
            return Err(into_datafusion(Error::user(error).code("42703")));
        };
        if given[found].replace(at).is_some() {
            let name = &schema.field(found).name();
            let error = Error::user(format!("column \"{name}\" specified more than once"));
            return Err(into_datafusion(error.code("42701")));
        }
    }
    if insert.columns.is_empty() {
        given = (0..given.len()).map(Some).collect();
    }
    let mut types = vec![None; given.iter().flatten().count()];
    for (field, at) in schema.fields().iter().zip(&given) {
        if let Some(at) = at {
            types[*at] = Some(field.data_type().clone());
        }
    }
    let into = Into { types: &types, fewer: insert.columns.is_empty() };
    let bound = bound(&names, query, Some(into))?;
    let columns = bound.plan.schema().columns();
    let columns = schema.fields().iter().zip(&given).map(|(field, at)| {
        let value = match at.and_then(|at| columns.get(at)) {
            Some(column) => Expr::Column(column.clone()),
            None => match default_text(&target, field.name())? {
                Some(text) => default(state, &text, field.data_type())?,
                None => Expr::Literal(ScalarValue::try_new_null(field.data_type())?, None),
            },
        };
        Ok(value.alias(field.name()))
    });
    let columns = columns.collect::<DfResult<Vec<Expr>>>()?;
    let rows = LogicalPlanBuilder::from(bound.plan).project(columns)?.build()?;
    let operation = if insert.overwrite { InsertOp::Overwrite } else { InsertOp::Append };
    let dml = DmlStatement::new(reference, target, WriteOp::Insert(operation), Arc::new(rows));
    Ok(Some((LogicalPlan::Dml(dml), Titles::default())))
}

/// `CREATE TABLE … AS query`
async fn table_of_query(
    state: &SessionState,
    statement: &Statement,
    create: &ast::CreateTable,
    query: &Query,
) -> DfResult<Option<(LogicalPlan, Titles)>> {
    if !create.constraints.is_empty() || create.columns.iter().any(|c| !c.options.is_empty()) {
        let error =
            Error::unsupported("constraints and defaults of a table that is made AS a query");
        let error = error.hint("create the table first, and INSERT the rows of the query");
        return Err(into_datafusion(error));
    }
    let mut types = vec![];
    for column in &create.columns {
        types.push(match &column.data_type {
            ast::DataType::Unspecified => None,
            data_type => Some(sql_type(state, data_type)?),
        });
    }
    let into = (!types.is_empty()).then_some(Into { types: &types, fewer: false });
    let mut bound = bind(state, statement, query, into).await?;
    if !types.is_empty() {
        bound.titles = create.columns.iter().map(|c| names::ident(&c.name)).collect();
    }
    let mut other = create.clone();
    other.columns = vec![];
    other.query = Some(any_query(state)?);
    let mut plan = state.statement_to_plan(create_statement(other)).await?;
    let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(made)) = &mut plan else {
        return Ok(None);
    };
    made.input = Arc::new(named_once(bound)?);
    Ok(Some((plan, Titles::default())))
}

/// `CREATE TABLE` of columns. DataFusion reads its clauses and constraints; what its columns are, it is not
/// asked.
async fn table_of_columns(
    state: &SessionState,
    create: &ast::CreateTable,
) -> DfResult<LogicalPlan> {
    let fields = create.columns.iter().map(|column| field_of(state, column));
    let fields = fields.collect::<DfResult<Vec<Field>>>()?;
    let mut other = create.clone();
    for column in &mut other.columns {
        column.data_type = ast::DataType::Integer(None);
        column.options.retain(|o| !matches!(o.option, ast::ColumnOption::Default(_)));
    }
    let mut plan = state.statement_to_plan(create_statement(other)).await?;
    if let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(made)) = &mut plan {
        let schema = Arc::new(DFSchema::try_from(Schema::new(fields))?);
        let empty = EmptyRelation { produce_one_row: false, schema };
        made.input = Arc::new(LogicalPlan::EmptyRelation(empty));
    }
    Ok(plan)
}

/// A column as its definition says, but for its default.
pub(crate) fn field_of(state: &SessionState, column: &ast::ColumnDef) -> DfResult<Field> {
    let data_type = sql_type(state, &column.data_type)?;
    let mut options = column.options.iter();
    let not_null = options.any(|o| matches!(o.option, ast::ColumnOption::NotNull));
    Ok(Field::new(names::ident(&column.name), data_type, !not_null))
}

/// The default of a column, as an expression of its type.
pub(crate) fn default(state: &SessionState, text: &str, to: &DataType) -> DfResult<Expr> {
    let sql = expression(text).map_err(into_datafusion)?;
    let names = Names { state, tables: HashMap::new() };
    let bound = settled(Binder::new(&names).default(&sql, to));
    // Places are those of this text, which is not that of the statement.
    bound.map_err(|e| into_datafusion(from_datafusion(e).nowhere()))
}

/// The text of a default, if it is a stored table's column and has one.
fn default_text(target: &Arc<dyn TableSource>, column: &str) -> DfResult<Option<String>> {
    let provider = source_as_provider(target)?;
    let Some(table) = provider.downcast_ref::<StoredTable>() else { return Ok(None) };
    let table = table.table();
    let at = table.arrow_schema.index_of(column)?;
    Ok(table.columns[at].default.clone())
}

fn create_statement(create: ast::CreateTable) -> Statement {
    Statement::Statement(Box::new(ast::Statement::CreateTable(create)))
}

async fn view(
    state: &SessionState,
    statement: &Statement,
    create: &ast::CreateView,
) -> DfResult<Option<(LogicalPlan, Titles)>> {
    let mut bound = bind(state, statement, &create.query, None).await?;
    if create.columns.len() > bound.titles.len() {
        let error = Error::user("CREATE VIEW specifies more column names than columns");
        return Err(into_datafusion(error.code("42601")));
    }
    for (title, column) in bound.titles.iter_mut().zip(&create.columns) {
        *title = names::ident(&column.name);
    }
    let mut other = create.clone();
    other.columns = vec![];
    other.query = any_query(state)?;
    let other = ast::Statement::CreateView(other);
    let mut plan = state.statement_to_plan(Statement::Statement(Box::new(other))).await?;
    let LogicalPlan::Ddl(DdlStatement::CreateView(made)) = &mut plan else { return Ok(None) };
    made.input = Arc::new(named_once(bound)?);
    Ok(Some((plan, Titles::default())))
}

/// A type that a statement names.
pub(crate) fn sql_type(state: &SessionState, data_type: &ast::DataType) -> DfResult<DataType> {
    let zone = state.config_options().execution.time_zone.as_deref();
    settled(thalweg_bind::sql_type(data_type, zone))
}

/// A plan whose columns have the titles for names, each of which is there once.
fn named_once(bound: Bound) -> DfResult<LogicalPlan> {
    let mut taken = HashSet::new();
    if let Some(twice) = bound.titles.iter().find(|title| !taken.insert(*title)) {
        let error = Error::user(format!("column \"{twice}\" specified more than once"));
        let error = error.code("42701").hint("give one of them another name: AS other");
        return Err(into_datafusion(error));
    }
    let titles = Titles::new(&bound.plan, bound.titles);
    titled(bound.plan, &titles)
}

/// A plan whose columns have the titles of the result for names, as far as these are unique.
pub(crate) fn titled(plan: LogicalPlan, titles: &Titles) -> DfResult<LogicalPlan> {
    let Some(titles) = titles.changed() else { return Ok(plan) };
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

/// The columns that the rows of a query are put into.
struct Into<'a> {
    types: &'a [Option<DataType>],
    /// The last ones may get nothing.
    fewer: bool,
}

/// A query as it is bound.
async fn bind(
    state: &SessionState,
    statement: &Statement,
    query: &Query,
    into: Option<Into<'_>>,
) -> DfResult<Bound> {
    bound(&Names::of(state, statement).await?, query, into)
}

/// The same where the names are looked up already.
fn bound(names: &Names<'_>, query: &Query, into: Option<Into<'_>>) -> DfResult<Bound> {
    let binder = Binder::new(names);
    settled(match into {
        Some(Into { types, fewer }) => binder.assigned(query, types, fewer),
        None => binder.query(query),
    })
}

fn settled<T>(bound: Result<T, Failure>) -> DfResult<T> {
    bound.map_err(|failure| match failure {
        Failure::NotCovered(what, place) => {
            let error = Error::unsupported(format!("{what} is not supported"));
            into_datafusion(match place {
                Some((line, column)) => error.within(line, column),
                None => error,
            })
        }
        Failure::Refused(e, Some((line, column))) => {
            into_datafusion(from_datafusion(*e).within(line, column))
        }
        Failure::Refused(e, None) => *e,
        Failure::Wrong(e) => into_datafusion(e),
    })
}

/// All functions that statements can call.
pub(crate) fn functions(state: &SessionState) -> Vec<Function> {
    let names = Names { state, tables: HashMap::new() };
    catalogue::functions(&names, state.table_functions().keys().cloned())
}

/// Tables and functions that a statement may name.
struct Names<'a> {
    state: &'a SessionState,
    tables: HashMap<ResolvedTableReference, Arc<dyn TableSource>>,
}

impl<'a> Names<'a> {
    /// Looks up all tables that the statement names, and the files that functions in it read.
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
                place.insert(source_of(table)?);
            }
        }
        for read in reads(statement) {
            let (reference, reading) = read.map_err(into_datafusion)?;
            let key = reference.resolve(&options.default_catalog, &options.default_schema);
            let Entry::Vacant(place) = tables.entry(key) else { continue };
            let catalog = state.catalog_list().catalog(CATALOG);
            let Some(handle) = catalog.as_ref().and_then(|c| c.downcast_ref::<Handle>()) else {
                return internal_err!("files are read without a catalog");
            };
            place.insert(source_of(handle.read(&reading).await?)?);
        }
        Ok(Names { state, tables })
    }
}

/// The calls in a statement that read files, and what the binder asks for them by.
fn reads(statement: &Statement) -> Vec<thalweg_base::Result<(TableReference, Reading)>> {
    struct Found(Vec<thalweg_base::Result<(TableReference, Reading)>>);
    impl ast::Visitor for Found {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
            if let Some(call) = Reads::of(factor) {
                let reading = Reading::of_call(&call);
                self.0.push(reading.map(|reading| (call.reference(), reading)));
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = Found(vec![]);
    let _ = match statement {
        Statement::Statement(inner) => walk(inner.as_ref(), &mut found),
        Statement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => {
            walk(query.as_ref(), &mut found)
        }
        Statement::Explain(explain) => return reads(&explain.statement),
        _ => ControlFlow::Continue(()),
    };
    found.0
}

impl Names<'_> {
    /// A table that rows are put into: itself, and not what a query sees of it.
    async fn target(&self, name: &TableReference) -> DfResult<Arc<dyn TableSource>> {
        let known = self.get_table_source(name.clone())?;
        let options = &self.state.config_options().catalog;
        let name = name.clone().resolve(&options.default_catalog, &options.default_schema);
        let table = self.state.schema_for_ref(name.clone())?.table(&name.table).await?;
        Ok(table.map_or(known, provider_as_source))
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
            let known = self.state.table_functions().keys().map(String::as_str);
            let error = Error::user(format!("function {name} does not exist")).code("42883");
            let error = error.about(Subject::Function(name.into()));
            return Err(into_datafusion(match nearest(name, known) {
                Some(near) => error.hint(format!("did you mean {near}? SHOW FUNCTIONS lists all")),
                None => error.hint("SHOW FUNCTIONS lists all"),
            }));
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
        for arg in &args {
            if let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(step)), _) = arg {
                long_lists::check_step(*step)?;
            }
        }
        // The function knows bigints alone; of ints its values are ints.
        let is_int = |arg: &Expr| matches!(arg, Expr::Literal(ScalarValue::Int32(_), _));
        let of_ints = !args.is_empty() && args.iter().all(is_int);
        let bigint = |arg: Expr| match arg {
            Expr::Literal(ScalarValue::Int32(value), metadata) => {
                Expr::Literal(ScalarValue::Int64(value.map(i64::from)), metadata)
            }
            other => other,
        };
        let args: Vec<Expr> = args.into_iter().map(bigint).collect();
        let table =
            function.create_table_provider_with_args(TableFunctionArgs::new(&args, self.state))?;
        Ok(provider_as_source(match of_ints {
            true => Arc::new(IntSeries::new(table)),
            false => table,
        }))
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
/// A table as plans read it: floats of what is not stored here may have several zeros and NaNs.
fn source_of(table: Arc<dyn TableProvider>) -> DfResult<Arc<dyn TableSource>> {
    match table.is::<StoredTable>() {
        true => Ok(provider_as_source(table)),
        false => equal_floats::source_of(table),
    }
}
