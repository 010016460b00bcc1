//! One `SELECT`, with the `ORDER BY` of its query.

use std::collections::HashSet;

use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, TableReference};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    self, Distinct, ExcludeSelectItem, GroupByExpr, OrderByExpr, OrderByOptions, Select,
    SelectItem, SelectItemQualifiedWildcardKind, Value, WildcardAdditionalOptions,
};
use thalweg_base::{Error, Subject};

use crate::binder::{Binder, Ctes, Output, Relation};
use crate::call::{sort, sorted};
use crate::computed::{Computed, rebase};
use crate::failure::{Failure, Placed, Result, not_covered, wrong};
use crate::grouping::{has_aggregates, one_set};
use crate::grouping_sets::{cubed, rolled, sets, sets_within};
use crate::name::{Part, parts};
use crate::nested::subquery;
use crate::place::Place;
use crate::rows_in_order;
use crate::scope::{Entry, Scope};
use crate::title;
use crate::typed::Typed;

/// An item of the select list.
struct Item<'s> {
    value: Typed,
    /// As it is written, unless it is one of a `*`.
    sql: Option<&'s ast::Expr>,
    title: String,
    /// What the statement calls it.
    alias: Option<String>,
}

/// What a query does to the rows of its select list.
#[derive(Default)]
pub(crate) struct Order<'o> {
    pub by: &'o [OrderByExpr],
    /// `ORDER BY ALL`
    pub all: Option<&'o OrderByOptions>,
}

/// An expression of ORDER BY.
struct Key<'o> {
    expr: Expr,
    options: &'o OrderByOptions,
}

impl Binder<'_> {
    pub(crate) fn select(
        &self,
        select: &Select,
        order: &Order<'_>,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Relation> {
        check_clauses(select)?;
        let rows = self.from(&select.from, parent, ctes)?;
        let mut scope = Scope::within(parent);
        scope.entries = rows.entries;
        let mut plan = rows.plan;

        let items = self.items(select, &mut scope, ctes)?;
        let scope = scope;
        let place = Place {
            scope: &scope,
            named: ctes,
            windows: &select.named_window,
            without_aggregates: None,
            without_windows: None,
            without_rows: None,
            variables: &[],
        };
        let mut in_order = vec![];
        if rows_in_order::is_wanted(select, items.iter().map(|item| &item.value.expr)) {
            (plan, in_order) = self.in_order(plan)?;
        }
        if let Some(condition) = &select.selection {
            let place = Place {
                without_aggregates: Some("WHERE"),
                without_windows: Some("WHERE"),
                without_rows: Some("WHERE"),
                ..place
            };
            let condition = self.condition(condition, place, "WHERE")?;
            plan = LogicalPlanBuilder::from(plan).filter(condition)?.build()?;
        }
        let groups = self.groups(&select.group_by, &items, place)?;
        let having = match &select.having {
            Some(having) => {
                let place = Place {
                    without_windows: Some("HAVING"),
                    without_rows: Some("HAVING"),
                    ..place
                };
                Some(self.condition(having, place, "HAVING")?)
            }
            None => None,
        };
        let qualify = match &select.qualify {
            Some(qualify) => {
                let place = Place { without_rows: Some("QUALIFY"), ..place };
                Some(self.condition(qualify, place, "QUALIFY")?)
            }
            None => None,
        };
        let on = match &select.distinct {
            Some(Distinct::On(exprs)) => {
                let on = exprs.iter().map(|e| Ok(self.output(e, &items, place)?.expr));
                on.collect::<Result<Vec<Expr>>>()?
            }
            _ => vec![],
        };
        let keys = self.keys(order, &items, place)?;

        // From here on expressions are rewritten over what is computed below them.
        let mut all = Exprs {
            items: items.iter().map(|i| i.value.expr.clone()).collect(),
            having,
            qualify,
            on,
            keys: keys.iter().map(|k| k.expr.clone()).collect(),
        };
        if !in_order.is_empty() {
            for expr in all.iter_mut() {
                *expr = rows_in_order::with_order(std::mem::take(expr), &in_order)?;
            }
        }
        let mut groups = groups;
        loop {
            let (unrolled, computed) = self.unrolled(plan, &groups)?;
            plan = unrolled;
            if computed.is_empty() {
                break;
            }
            groups = groups.into_iter().map(|e| rebase(e, &computed)).collect::<Result<_>>()?;
            all.rebase(&computed)?;
        }
        let of_queries_within = scope.aggregates.take();
        let is_grouped = !groups.is_empty()
            || makes_one_group(select)
            || has_aggregates(all.iter())
            || !of_queries_within.is_empty();
        if is_grouped {
            let (grouped, computed) = self.grouped(plan, groups, all.iter(), of_queries_within)?;
            for expr in all.iter_mut() {
                let own = std::mem::take(expr);
                *expr = self.above_groups(own, &computed, &grouped, &scope)?;
            }
            plan = grouped;
        }
        if let Some(having) = all.having.take() {
            plan = LogicalPlanBuilder::from(plan).having(having)?.build()?;
        }
        let (windowed, computed) = self.windowed(plan, all.iter())?;
        plan = windowed;
        all.rebase(&computed)?;
        if let Some(qualify) = all.qualify.take() {
            plan = LogicalPlanBuilder::from(plan).filter(qualify)?.build()?;
        }
        loop {
            let (unrolled, computed) = self.unrolled(plan, all.iter())?;
            plan = unrolled;
            if computed.is_empty() {
                break;
            }
            all.rebase(&computed)?;
        }
        self.projected(plan, select, items, all, &keys)
    }

    /// The select list.
    fn items<'s>(
        &self,
        select: &'s Select,
        scope: &mut Scope<'_>,
        ctes: &Ctes,
    ) -> Result<Vec<Item<'s>>> {
        let mut items: Vec<Item<'s>> = vec![];
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let value = self.item(expr, select, scope, ctes)?;
                    let title = match &value.expr {
                        Expr::Column(column) => scope.title(column, title::of(expr)),
                        // Rows have the name of what makes them, as they have in FROM.
                        Expr::Unnest(_) => title::of_postgresql(expr).unwrap_or(title::of(expr)),
                        _ => title::of(expr),
                    };
                    items.push(Item { value, sql: Some(expr), title, alias: None });
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let value = self.item(expr, select, scope, ctes)?;
                    let alias = Part::of(alias).text;
                    scope.aliases.push((alias.clone(), Typed { unknown: false, ..value.clone() }));
                    items.push(Item {
                        value,
                        sql: Some(expr),
                        title: alias.clone(),
                        alias: Some(alias),
                    });
                }
                SelectItem::Wildcard(options) => {
                    if select.from.is_empty() {
                        return wrong("42601", "SELECT * with no tables specified is not valid")
                            .at(item);
                    }
                    self.wildcard(None, options, select, scope, ctes, &mut items).at(item)?;
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) => {
                    let qualifier = parts(name)?;
                    self.wildcard(Some(&qualifier), options, select, scope, ctes, &mut items)
                        .at(item)?;
                }
                _ => return not_covered("this item of the select list").at(item),
            }
        }
        Ok(items)
    }

    fn item(
        &self,
        expr: &ast::Expr,
        select: &Select,
        scope: &Scope<'_>,
        ctes: &Ctes,
    ) -> Result<Typed> {
        let place = Place {
            scope,
            named: ctes,
            windows: &select.named_window,
            without_aggregates: None,
            without_windows: None,
            without_rows: None,
            variables: &[],
        };
        self.expr(expr, place)
    }

    fn wildcard(
        &self,
        qualifier: Option<&[Part]>,
        options: &WildcardAdditionalOptions,
        select: &Select,
        scope: &Scope<'_>,
        ctes: &Ctes,
        items: &mut Vec<Item<'_>>,
    ) -> Result<()> {
        let WildcardAdditionalOptions {
            wildcard_token: _,
            opt_ilike: None,
            opt_exclude,
            opt_except,
            opt_replace,
            opt_rename: None,
            opt_alias: None,
        } = options
        else {
            return not_covered("this option of *");
        };
        let mut without: Vec<Part> = match opt_exclude {
            None => vec![],
            Some(ExcludeSelectItem::Single(name)) => parts(name)?,
            Some(ExcludeSelectItem::Multiple(names)) => {
                let names = names.iter().map(parts).collect::<Result<Vec<_>>>()?;
                names.into_iter().filter_map(|mut parts| parts.pop()).collect()
            }
        };
        if let Some(except) = opt_except {
            without.push(Part::of(&except.first_element));
            without.extend(except.additional_elements.iter().map(Part::of));
        }
        let columns: Vec<Entry> = scope.columns(qualifier).into_iter().cloned().collect();
        if let Some(qualifier) = qualifier
            && !scope.has_table(qualifier)
        {
            let name = crate::name::shown(qualifier);
            return wrong("42P01", format!("missing FROM-clause entry for table \"{name}\""));
        }
        let is = |entry: &Entry, name: &Part| {
            entry.name == name.text || (!name.quoted && entry.name.to_lowercase() == name.text)
        };
        for name in &without {
            if !columns.iter().any(|c| is(c, name)) {
                return wrong(
                    "42703",
                    format!("column \"{}\" of EXCLUDE does not exist", name.text),
                );
            }
        }
        for column in &columns {
            if without.iter().any(|name| is(column, name)) {
                continue;
            }
            let replaced = opt_replace.iter().flat_map(|r| &r.items);
            let replaced = replaced.into_iter().find(|r| is(column, &Part::of(&r.column_name)));
            let value = match replaced {
                Some(element) => self.item(&element.expr, select, scope, ctes)?,
                None => Typed { unknown: column.unknown, ..column.typed() },
            };
            let alias = replaced.map(|_| column.name.clone());
            items.push(Item { value, sql: None, title: column.name.clone(), alias });
        }
        Ok(())
    }

    fn group(&self, expr: &ast::Expr, items: &[Item<'_>], place: Place<'_>) -> Result<Expr> {
        self.group_of(expr, items, place).at(expr)
    }

    /// An expression of GROUP BY: a place in the select list, a column, an alias, or anything else.
    fn group_of(&self, expr: &ast::Expr, items: &[Item<'_>], place: Place<'_>) -> Result<Expr> {
        if let Some(at) = position(expr) {
            let item = at.checked_sub(1).and_then(|at| items.get(at as usize));
            let Some(item) = item else {
                return wrong("42P10", format!("GROUP BY position {at} is not in select list"));
            };
            if has_aggregates([&item.value.expr]) {
                return wrong("42803", "aggregate functions are not allowed in GROUP BY");
            }
            return Ok(item.value.expr.clone());
        }
        let place = Place {
            without_aggregates: Some("GROUP BY"),
            without_windows: Some("GROUP BY"),
            ..place
        };
        let value = match written(expr, items) {
            Some(item) => item.value.expr.clone(),
            None => self.value(expr, place)?.expr,
        };
        if has_aggregates([&value]) {
            return wrong("42803", "aggregate functions are not allowed in GROUP BY");
        }
        Ok(value)
    }

    fn groups(
        &self,
        group_by: &GroupByExpr,
        items: &[Item<'_>],
        place: Place<'_>,
    ) -> Result<Vec<Expr>> {
        let exprs = match group_by {
            GroupByExpr::All(modifiers) if modifiers.is_empty() => {
                let keys = items.iter().map(|i| &i.value.expr);
                let keys =
                    keys.filter(|e| !has_aggregates([*e]) && !matches!(e, Expr::Literal(..)));
                return Ok(keys.cloned().collect());
            }
            GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
            other => return not_covered("this GROUP BY").at(other),
        };
        let mut groups: Vec<Expr> = vec![];
        for expr in exprs {
            let lists = |lists: &[Vec<ast::Expr>]| -> Result<Vec<Vec<Expr>>> {
                let list = |list: &Vec<ast::Expr>| {
                    list.iter().map(|e| self.group(e, items, place)).collect::<Result<Vec<_>>>()
                };
                lists.iter().map(list).collect()
            };
            let group = match expr {
                ast::Expr::Rollup(keys) => {
                    let keys = lists(keys)?;
                    match keys.iter().all(|k| k.len() == 1) {
                        true => Expr::GroupingSet(GroupingSet::Rollup(keys.concat())),
                        false => sets(rolled(&keys)),
                    }
                }
                ast::Expr::Cube(keys) => {
                    let keys = lists(keys)?;
                    match keys.iter().all(|k| k.len() == 1) {
                        true => Expr::GroupingSet(GroupingSet::Cube(keys.concat())),
                        false => sets(cubed(&keys)?),
                    }
                }
                ast::Expr::GroupingSets(keys) => {
                    let mut all = vec![];
                    for key in keys {
                        match &key[..] {
                            [one] => match sets_within(one) {
                                Some((true, keys)) => all.extend(rolled(&lists(&keys)?)),
                                Some((false, keys)) => all.extend(cubed(&lists(&keys)?)?),
                                None => all.extend(lists(std::slice::from_ref(key))?),
                            },
                            _ => all.extend(lists(std::slice::from_ref(key))?),
                        }
                    }
                    sets(all)
                }
                ast::Expr::Tuple(keys) => {
                    for key in keys {
                        groups.push(self.group(key, items, place)?);
                    }
                    continue;
                }
                other => self.group(other, items, place)?,
            };
            if !groups.contains(&group) || matches!(group, Expr::GroupingSet(_)) {
                groups.push(group);
            }
        }
        one_set(groups)
    }

    fn output(&self, expr: &ast::Expr, items: &[Item<'_>], place: Place<'_>) -> Result<Typed> {
        self.output_of(expr, items, place).at(expr)
    }

    /// An expression that may name a column of the result: of ORDER BY and DISTINCT ON.
    fn output_of(&self, expr: &ast::Expr, items: &[Item<'_>], place: Place<'_>) -> Result<Typed> {
        if let Some(at) = position(expr) {
            let item = at.checked_sub(1).and_then(|at| items.get(at as usize));
            return match item {
                Some(item) => Ok(item.value.clone()),
                None => wrong("42P10", format!("ORDER BY position {at} is not in select list")),
            };
        }
        if let ast::Expr::Identifier(name) = expr {
            let part = Part::of(name);
            let is = |item: &&Item<'_>| {
                item.title == part.text
                    && (item.alias.is_some() || matches!(item.value.expr, Expr::Column(_)))
            };
            let mut found = items.iter().filter(is);
            if let Some(first) = found.next() {
                if found.any(|other| other.value.expr != first.value.expr) {
                    return wrong("42702", format!("ORDER BY \"{}\" is ambiguous", part.text));
                }
                return Ok(Typed { unknown: false, ..first.value.clone() });
            }
        }
        match written(expr, items) {
            Some(item) => Ok(Typed { unknown: false, ..item.value.clone() }),
            None => self.value(expr, place),
        }
    }

    fn keys<'o>(
        &self,
        order: &Order<'o>,
        items: &[Item<'_>],
        place: Place<'_>,
    ) -> Result<Vec<Key<'o>>> {
        if let Some(options) = order.all {
            let key = |item: &Item<'_>| Key { expr: item.value.expr.clone(), options };
            return Ok(items.iter().map(key).collect());
        }
        let key = |by: &'o OrderByExpr| {
            if by.with_fill.is_some() {
                return not_covered("WITH FILL").at(by);
            }
            Ok(Key { expr: self.output(&by.expr, items, place)?.expr, options: &by.options })
        };
        order.by.iter().map(key).collect()
    }

    /// The columns of the result, in their order.
    fn projected(
        &self,
        plan: LogicalPlan,
        select: &Select,
        items: Vec<Item<'_>>,
        all: Exprs,
        keys: &[Key<'_>],
    ) -> Result<Relation> {
        let mut names = Names::default();
        let mut exprs = vec![];
        let mut outputs = vec![];
        for (item, expr) in items.into_iter().zip(&all.items) {
            let named = names.named(self, expr.clone(), item.alias.as_deref());
            let (relation, name) = named.qualified_name();
            let other = item.alias.is_none().then(|| item.sql.and_then(title::of_postgresql));
            outputs.push(Output {
                other: other.flatten().filter(|other| *other != item.title),
                title: item.title,
                column: Column::new(relation, name),
                data_type: item.value.data_type,
                nullable: item.value.nullable,
                unknown: item.value.unknown,
            });
            exprs.push(named);
        }
        let shown = exprs.len();
        // Keys that are no columns of the result are computed beside them.
        let mut sorts: Vec<Sort> = vec![];
        let mut hidden: Vec<(Expr, Column)> = vec![];
        for (key, expr) in keys.iter().zip(&all.keys) {
            // The value of a literal orders nothing.
            if matches!(expr, Expr::Literal(..)) {
                continue;
            }
            let column = match all.items.iter().position(|item| item == expr) {
                Some(at) => outputs[at].column.clone(),
                None => match hidden.iter().find(|(other, _)| other == expr) {
                    Some((_, column)) => column.clone(),
                    None => {
                        let named = names.named(self, expr.clone(), None);
                        let (relation, name) = named.qualified_name();
                        let column = Column::new(relation, name);
                        exprs.push(named);
                        hidden.push((expr.clone(), column.clone()));
                        column
                    }
                },
            };
            sorts.push(sort(Expr::Column(column), key.options));
        }
        if exprs.is_empty() {
            return not_covered("a SELECT of nothing");
        }
        let mut builder = LogicalPlanBuilder::from(plan);
        match &select.distinct {
            None | Some(Distinct::All) => builder = builder.project(exprs)?,
            Some(Distinct::Distinct) => {
                if !hidden.is_empty() {
                    return wrong(
                        "42P10",
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                    );
                }
                builder = builder.project(exprs)?.distinct()?;
            }
            Some(Distinct::On(_)) => {
                // The keys come first in the order, so that it says which row of each is kept.
                let mut on: Vec<Expr> = once(&all.on).cloned().collect();
                if !once(&all.keys).take(on.len()).all(|key| on.contains(key)) {
                    return wrong(
                        "42P10",
                        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                    );
                }
                let by = all.keys.iter().zip(keys).map(|(e, key)| sort(e.clone(), key.options));
                let mut seen = HashSet::new();
                let by = by.filter(|key| seen.insert(key.expr.clone()));
                let mut order: Vec<Sort> = by.collect();
                let mut chosen = exprs.clone();
                let sorted = order.iter_mut().map(|sort| &mut sort.expr);
                let computed = on.iter_mut().chain(&mut chosen).chain(sorted);
                builder = self.computed_below(builder, computed.collect())?;
                // What the keys are called matters to nobody, but they must not be called the same.
                for key in on.iter_mut().chain(order.iter_mut().map(|sort| &mut sort.expr)) {
                    *key = std::mem::take(key).unalias();
                }
                let by = (!order.is_empty()).then_some(order);
                builder = builder.distinct_on(on, chosen, by)?;
                // Its columns have lost their qualifiers.
                let mut named = vec![];
                for (made, expr) in builder.schema().columns().into_iter().zip(&exprs) {
                    let (relation, name) = expr.qualified_name();
                    let made = Expr::Column(made);
                    named.push(match made.qualified_name() == (relation.clone(), name.clone()) {
                        true => made,
                        false => made.alias_qualified(relation, name),
                    });
                }
                builder = builder.project(named)?;
            }
        }
        if !sorts.is_empty() {
            builder = sorted(builder, sorts)?;
        }
        if !hidden.is_empty() {
            let columns = outputs[..shown].iter().map(|o| Expr::Column(o.column.clone()));
            builder = builder.project(columns.collect::<Vec<_>>())?;
        }
        Ok(Relation { plan: builder.build()?, columns: outputs })
    }
}

impl Binder<'_> {
    /// Computes what has queries in it, or columns of a query around, below an operator that takes only
    /// its own columns; and what is called as another expression is, as casts do not show in names. The
    /// expressions keep the names that they give their columns.
    fn computed_below(
        &self,
        builder: LogicalPlanBuilder,
        exprs: Vec<&mut Expr>,
    ) -> Result<LogicalPlanBuilder> {
        let is_outer = |e: &Expr| matches!(e, Expr::OuterReferenceColumn(..));
        let is_apart = |e: &Expr| e.exists(|e| Ok(is_outer(e) || subquery(e).is_some()));
        let all: Vec<Expr> = exprs.iter().map(|e| (**e).clone().unalias()).collect();
        let names: Vec<String> = all.iter().map(|e| e.schema_name().to_string()).collect();
        let has_namesake = |at: usize| {
            let mut others = all.iter().zip(&names);
            others.any(|(other, name)| *name == names[at] && *other != all[at])
        };
        let mut computed: Vec<(Expr, String)> = vec![];
        for (at, expr) in exprs.into_iter().enumerate() {
            let is_column = matches!(all[at], Expr::Column(_));
            if !is_apart(expr)? && (is_column || !has_namesake(at)) {
                continue;
            }
            let (relation, name) = expr.qualified_name();
            let inner = std::mem::take(expr).unalias();
            let own = match computed.iter().find(|(other, _)| *other == inner) {
                Some((_, own)) => own.clone(),
                None => {
                    let own = self.fresh("computed");
                    computed.push((inner, own.clone()));
                    own
                }
            };
            *expr = Expr::Column(Column::from_name(own)).alias_qualified(relation, name);
        }
        if computed.is_empty() {
            return Ok(builder);
        }
        let columns = builder.schema().columns().into_iter().map(Expr::Column);
        let computed = computed.into_iter().map(|(expr, name)| expr.alias(name));
        Ok(builder.project(columns.chain(computed).collect::<Vec<_>>())?)
    }
}

/// The expressions of a SELECT that stand above its groups.
struct Exprs {
    items: Vec<Expr>,
    having: Option<Expr>,
    qualify: Option<Expr>,
    on: Vec<Expr>,
    keys: Vec<Expr>,
}

impl Exprs {
    fn iter(&self) -> impl Iterator<Item = &Expr> + Clone {
        let conditions = self.having.iter().chain(&self.qualify);
        self.items.iter().chain(conditions).chain(&self.on).chain(&self.keys)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let conditions = self.having.iter_mut().chain(&mut self.qualify);
        self.items.iter_mut().chain(conditions).chain(&mut self.on).chain(&mut self.keys)
    }

    fn rebase(&mut self, computed: &Computed) -> Result<()> {
        if computed.is_empty() {
            return Ok(());
        }
        for expr in self.iter_mut() {
            *expr = rebase(std::mem::take(expr), computed)?;
        }
        Ok(())
    }
}

/// Names of the columns of a projection.
#[derive(Default)]
struct Names {
    qualified: HashSet<(Option<TableReference>, String)>,
    /// Without their qualifiers.
    plain: HashSet<String>,
    /// As DataFusion writes the expressions, which leaves casts out.
    written: HashSet<String>,
}

impl Names {
    /// The expression under a name that no other column has.
    fn named(&mut self, binder: &Binder<'_>, expr: Expr, alias: Option<&str>) -> Expr {
        let expr = match (&expr, alias) {
            (Expr::Column(column), Some(alias)) if column.name == alias => expr,
            (_, Some(alias)) => expr.unalias().alias(alias),
            (_, None) => expr,
        };
        let (relation, name) = expr.qualified_name();
        // A name without a qualifier is confused with every other one that has that name.
        let is_free = match &relation {
            Some(_) => {
                !self.qualified.contains(&(None, name.clone()))
                    && !self.qualified.contains(&(relation.clone(), name.clone()))
            }
            None => !self.plain.contains(&name),
        };
        if is_free && self.written.insert(expr.schema_name().to_string()) {
            self.plain.insert(name.clone());
            self.qualified.insert((relation, name));
            return expr;
        }
        let own = binder.fresh(&name);
        self.plain.insert(own.clone());
        self.qualified.insert((None, own.clone()));
        expr.unalias().alias(own)
    }
}

/// The item that is written as an expression is. A subquery is a query of its own wherever it is written:
/// only so is `GROUP BY (SELECT …)` the item of the same text.
fn written<'i, 's>(expr: &ast::Expr, items: &'i [Item<'s>]) -> Option<&'i Item<'s>> {
    items.iter().find(|item| item.sql == Some(expr))
}

/// HAVING without GROUP BY and `GROUP BY ()` make one group of all rows.
fn makes_one_group(select: &Select) -> bool {
    let is_empty = match &select.group_by {
        GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
        GroupByExpr::All(_) => false,
    };
    select.having.is_some() || is_empty
}

/// The expressions without those that have been there before.
fn once(exprs: &[Expr]) -> impl Iterator<Item = &Expr> {
    let mut seen = HashSet::new();
    exprs.iter().filter(move |expr| seen.insert(*expr))
}

/// `ORDER BY 2`
fn position(expr: &ast::Expr) -> Option<u64> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse().ok(),
            _ => None,
        },
        ast::Expr::Nested(_) => None,
        _ => None,
    }
}

/// What a SELECT may have that the binder does nothing of.
/// What no SELECT may have, by the words that it is written with.
fn check_clauses(select: &Select) -> Result<()> {
    let Select {
        select_token: _,
        optimizer_hints: _,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by: _,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify: _,
        window_before_qualify: _,
        value_table_mode,
        flavor: _,
    } = select;
    let clauses = [
        (select_modifiers.is_some(), "this modifier of SELECT"),
        (top.is_some(), "TOP"),
        (exclude.is_some(), "EXCLUDE behind the select list"),
        (into.is_some(), "INTO of a query"),
        (!lateral_views.is_empty(), "LATERAL VIEW"),
        (prewhere.is_some(), "PREWHERE"),
        (!connect_by.is_empty(), "CONNECT BY"),
        (!cluster_by.is_empty(), "CLUSTER BY of a query"),
        (!distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!sort_by.is_empty(), "SORT BY"),
        (value_table_mode.is_some(), "SELECT AS"),
        (projection.is_empty(), "a SELECT without a select list"),
    ];
    match clauses.iter().find(|(is_written, _)| *is_written) {
        Some((_, clause)) => Err(unsupported_clause(clause)),
        None => Ok(()),
    }
}

/// A clause that is refused, at the first of its words.
pub(crate) fn unsupported_clause(clause: &str) -> Failure {
    let error = Error::unsupported(format!("{clause} is not supported"));
    let word = clause.split(' ').find(|w| w.chars().all(|c| c.is_ascii_uppercase()));
    Failure::Wrong(match word {
        Some(word) => error.about(Subject::Word(word.into())),
        None => error,
    })
}
