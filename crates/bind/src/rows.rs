//! Functions that give rows: `unnest`, `generate_series` and those of texts that are split, in FROM and in
//! the select list.
//!
//! In the select list they are [`Expr::Unnest`] of a list until groups and windows are computed; then the
//! lists become rows, all of one row side by side. In FROM they are the rows of a relation, which may
//! depend on the columns left of it.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullHandling, TableReference, UnnestOptions};
use datafusion::logical_expr::expr::Unnest;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::{
    self, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    TableAlias, TableFactor,
};
use thalweg_base::{Error, Subject};

use crate::binder::Binder;
use crate::computed::Computed;
use crate::failure::{Failure, Result, not_covered, wrong};
use crate::functions::series::series;
use crate::name::{Part, reference};
use crate::place::{CHOICE, Place};
use crate::reads::Reads;
use crate::scope::{Entry, Rows, rename};
use crate::typed::Typed;
use crate::types::{self, TextKind};
use crate::unnest::once::nullable;

const UNNEST: &str = "unnest";
const SERIES: &str = "generate_series";

/// Functions whose rows are the items of what another function gives.
pub(crate) const OF_LISTS: [(&str, &str); 3] = [
    ("regexp_matches", "regexp_matches"),
    ("regexp_split_to_table", "regexp_split_to_array"),
    ("string_to_table", "string_to_array"),
];

fn of_list(name: &str) -> Option<&'static str> {
    OF_LISTS.iter().find(|(rows, _)| *rows == name).map(|(_, list)| *list)
}

/// Whether a function gives rows that are no table's.
pub(crate) fn gives_rows(name: &str) -> bool {
    name == UNNEST || of_list(name).is_some()
}

/// A function in FROM.
pub(crate) struct RowsOf<'t> {
    pub name: String,
    pub args: Vec<&'t ast::Expr>,
    pub alias: Option<&'t TableAlias>,
}

impl<'t> RowsOf<'t> {
    /// `None` if the item is no function.
    pub fn of(factor: &'t TableFactor) -> Result<Option<Self>> {
        if Reads::of(factor).is_some() {
            return Ok(None);
        }
        let (name, args, alias) = match factor {
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality: false,
            } => {
                let args = array_exprs.iter().collect();
                return Ok(Some(RowsOf { name: UNNEST.into(), args, alias: alias.as_ref() }));
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality: false, alias } => {
                (name, args, alias)
            }
            TableFactor::Table {
                name, alias, args: Some(args), with_ordinality: false, ..
            } if args.settings.is_none() => (name, &args.args, alias),
            // `FROM current_date`
            TableFactor::Table { name, alias, args: None, version: None, .. } => {
                return Ok(match &name.0[..] {
                    [part] => part
                        .as_ident()
                        .map(Part::of)
                        .filter(|name| !name.quoted && is_clock(&name.text))
                        .map(|name| RowsOf {
                            name: name.text,
                            args: vec![],
                            alias: alias.as_ref(),
                        }),
                    _ => None,
                });
            }
            _ => return Ok(None),
        };
        let name = match reference(name)? {
            TableReference::Bare { table } => table.to_string(),
            _ => return not_covered("this function in FROM"),
        };
        let args = args.iter().map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
            _ => not_covered("this argument"),
        });
        Ok(Some(RowsOf { name, args: args.collect::<Result<_>>()?, alias: alias.as_ref() }))
    }
}

impl RowsOf<'_> {
    /// The call as an expression.
    pub fn written(&self) -> ast::Expr {
        let arg = |arg: &&ast::Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr((*arg).clone()));
        let list = FunctionArgumentList {
            duplicate_treatment: None,
            args: self.args.iter().map(arg).collect(),
            clauses: vec![],
        };
        ast::Expr::Function(Function {
            name: vec![Ident::with_quote('"', &self.name)].into(),
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            args: match is_clock(&self.name) {
                true => FunctionArguments::None,
                false => FunctionArguments::List(list),
            },
            filter: None,
            null_treatment: None,
            over: None,
            within_group: vec![],
        })
    }
}

/// Functions that are called without parentheses.
pub(crate) fn is_clock(name: &str) -> bool {
    let clocks =
        ["current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"];
    clocks.contains(&name)
}

impl Binder<'_> {
    /// The call of a function that gives rows, or else `None`.
    pub(crate) fn rows_call(
        &self,
        name: &str,
        args: &[&ast::Expr],
        place: Place<'_>,
    ) -> Result<Option<Typed>> {
        if name != SERIES && !gives_rows(name) {
            return Ok(None);
        }
        match place.without_rows {
            // A series is a list there: `3 = ANY (generate_series(1, 5))`.
            Some(clause) if name == SERIES && clause != CHOICE => return Ok(None),
            Some(clause) => return Err(misplaced(name, clause)),
            None => {}
        }
        let args = self.exprs(args.iter().copied(), place)?;
        let mut lists = self.lists(name, args)?;
        let (Some(list), true) = (lists.pop(), lists.is_empty()) else {
            let error = Error::user(format!("{name} of several lists makes rows only in FROM"));
            return Err(error.code("42883").about(Subject::Function(name.into())).into());
        };
        let item = item_type(&list.data_type);
        let rows = Expr::Unnest(Unnest { expr: Box::new(list.expr), outer: false });
        Ok(Some(Typed::new(rows, item, true)))
    }

    /// The lists whose items are the rows of a function.
    fn lists(&self, name: &str, args: Vec<Typed>) -> Result<Vec<Typed>> {
        if name == SERIES && args.iter().any(|arg| types::is_decimal(&arg.data_type)) {
            return Ok(vec![self.numeric_series(args)?]);
        }
        if name != UNNEST {
            let item = series_item(name, &args);
            let list = self.called(of_list(name).unwrap_or(name), args)?;
            return match list.data_type {
                DataType::List(_) | DataType::LargeList(_) => Ok(vec![match item {
                    Some(item) => list.cast(&DataType::new_list(item, true)),
                    None => list,
                }]),
                _ => not_covered("this function in FROM"),
            };
        }
        if args.is_empty() {
            return wrong("42883", "function unnest() does not exist; it takes a list");
        }
        let lists = args.into_iter().map(|arg| match &arg.data_type {
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => Ok(arg),
            _ if arg.is_open() => Err(Error::user("unnest takes a list of a known type")
                .code("42725")
                .hint("give it one: unnest('{1, 2}'::int[])")
                .into()),
            other => wrong(
                "42883",
                format!("function unnest({}) does not exist; it takes a list", types::name(other)),
            ),
        });
        lists.collect()
    }

    /// `generate_series(1.0, 2.0, 0.5)`
    fn numeric_series(&self, mut args: Vec<Typed>) -> Result<Typed> {
        if args.len() == 2 {
            args.push(Typed::new(lit(1), DataType::Int32, false));
        }
        let args = self.same_type(args, SERIES)?;
        let [DataType::Decimal128(precision, scale), ..] =
            &args.iter().map(|arg| arg.data_type.clone()).collect::<Vec<_>>()[..]
        else {
            return wrong("42883", format!("{SERIES} is of whole numbers, numerics and times"));
        };
        let (precision, scale) = (*precision, *scale);
        let item = DataType::Decimal128(precision, scale);
        let args = args.into_iter().map(|arg| arg.expr).collect();
        Ok(Typed::new(series().call(args), DataType::new_list(item, true), true))
    }

    /// The rows of `input`, once for each row that the functions in `exprs` give for it, and the columns
    /// that hold these. What stands within another such call comes first: the caller asks until nothing is
    /// left.
    pub(crate) fn unrolled<'e>(
        &self,
        input: LogicalPlan,
        exprs: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<(LogicalPlan, Computed)> {
        let mut calls: Vec<Expr> = vec![];
        for expr in exprs {
            expr.apply(|e| {
                if let Expr::Unnest(call) = e
                    && !call.expr.exists(|e| Ok(matches!(e, Expr::Unnest(_))))?
                {
                    if !calls.contains(e) {
                        calls.push(e.clone());
                    }
                    return Ok(TreeNodeRecursion::Jump);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if calls.is_empty() {
            return Ok((input, Computed::new()));
        }
        let input = without_keys(input)?;
        let mut columns: Vec<Expr> =
            input.schema().columns().into_iter().map(Expr::Column).collect();
        let mut computed = Computed::new();
        let mut lists = vec![];
        for call in calls {
            let Expr::Unnest(unnest) = &call else { continue };
            let column = Column::from_name(self.fresh("rows"));
            columns.push(unnest.expr.as_ref().clone().alias(&column.name));
            lists.push(column.clone());
            computed.insert(call, column);
        }
        let options = UnnestOptions::new().with_null_handling(NullHandling::Drop);
        let rows = LogicalPlanBuilder::from(input).project(columns)?;
        Ok((rows.unnest_columns_with_options(lists, options)?.build()?, computed))
    }

    /// The rows of a function in FROM whose arguments are no constants, or that takes lists. With
    /// `keeps`, there is one of NULLs where the function gives none.
    pub(crate) fn rows_of_lists(
        &self,
        call: &RowsOf<'_>,
        args: Vec<Typed>,
        keeps: bool,
    ) -> Result<Rows> {
        let lists = self.lists(&call.name, args)?;
        let table = call.alias.map_or(call.name.clone(), |a| Part::of(&a.name).text);
        let own = self.qualifier(&table);
        let mut columns = vec![];
        let mut entries = vec![];
        for list in &lists {
            let name = self.fresh("rows");
            entries.push(Entry {
                table: Some(Arc::from([table.clone()])),
                // The one column of a function is called as the function is.
                name: if lists.len() == 1 { table.clone() } else { call.name.clone() },
                column: Column::new(Some(own.clone()), &name),
                data_type: item_type(&list.data_type),
                nullable: true,
                hidden: false,
                also: false,
                text: TextKind::Any,
                unknown: false,
            });
            columns.push(list.expr.clone().alias(name));
        }
        let handling =
            if keeps { NullHandling::PreserveAndExpandEmpty } else { NullHandling::Drop };
        let options = UnnestOptions::new().with_null_handling(handling);
        let rows = LogicalPlanBuilder::empty(true).project(columns)?;
        let lists = rows.schema().columns();
        let plan = rows.unnest_columns_with_options(lists, options)?.alias(own)?.build()?;
        if let Some(alias) = call.alias {
            rename(&mut entries, alias)?;
        }
        Ok(Rows { plan, entries })
    }
}

/// The same rows, of which nobody knows any more that a column tells one from the others. DataFusion takes
/// a key of the rows for one of what they are unnested to as well: DISTINCT, orders and joins above were
/// dropped as needless.
pub(crate) fn without_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    // Groups have keys, and so has what becomes groups later.
    let makes_keys = |node: &LogicalPlan| {
        matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_))
            || !node.schema().functional_dependencies().is_empty()
    };
    if !plan.exists(|node| Ok(makes_keys(node)))? {
        return Ok(plan);
    }
    let columns = plan.schema().columns().into_iter().map(|column| {
        let (relation, name) = (column.relation.clone(), column.name.clone());
        nullable().call(vec![Expr::Column(column)]).alias_qualified(relation, name)
    });
    let columns: Vec<Expr> = columns.collect();
    Ok(LogicalPlanBuilder::from(plan).project(columns)?.build()?)
}

/// The type of the items of a series, if it is none that the function gives: those of ints are ints.
pub(crate) fn series_item(name: &str, args: &[Typed]) -> Option<DataType> {
    let is_int = |t: &Typed| matches!(t.data_type, DataType::Int16 | DataType::Int32);
    let all = args.iter().all(|arg| is_int(arg) || arg.is_open()) && args.iter().any(is_int);
    (name == SERIES && all).then_some(DataType::Int32)
}

fn item_type(list: &DataType) -> DataType {
    match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().clone()
        }
        other => other.clone(),
    }
}

fn misplaced(name: &str, clause: &str) -> Failure {
    let error = Error::unsupported(format!("set-returning functions are not allowed in {clause}"));
    error
        .hint(format!("move it into FROM: FROM t, LATERAL {name}(…) AS x"))
        .about(Subject::Function(name.into()))
        .into()
}
