//! Statements that change rows.

use datafusion::sql::sqlparser::ast::{
    Delete, FromTable, Insert, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr,
    MergeUpdateExpr, Truncate, TruncateIdentityOption, Update, UpdateTableFromKind,
};
use thalweg_base::{Error, Result};

use super::{no, table};

pub(super) fn insert(insert: &Insert) -> Result<()> {
    let Insert {
        insert_token: _,
        optimizer_hints: _,
        into: _,
        table: _,
        table_alias: _,
        columns: _,
        overwrite: _,
        source: _,
        has_table_keyword: _,
        returning: _,
        // Whoever inserts refuses these.
        or: _,
        on: _,
        replace_into: _,
        ignore,
        assignments,
        partitioned,
        after_columns,
        output,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    no(
        *ignore,
        "INSERT IGNORE",
        "leave IGNORE out: there are no keys, and a bad row ends the statement",
    )?;
    no(!assignments.is_empty(), "INSERT … SET", "write INSERT INTO t (a, b) VALUES (1, 2)")?;
    let names = "name the columns: INSERT INTO t (a, b) SELECT …";
    no(partitioned.is_some() || !after_columns.is_empty(), "INSERT … PARTITION", names)?;
    no(output.is_some(), "OUTPUT", "write RETURNING at the end")?;
    no(
        priority.is_some(),
        "LOW_PRIORITY, HIGH_PRIORITY or DELAYED",
        "SET thalweg.priority, or leave it out",
    )?;
    no(insert_alias.is_some(), "an alias after VALUES", "write INSERT INTO t AS x …")?;
    no(settings.is_some(), "SETTINGS", "SET changes a setting for the session")?;
    no(format_clause.is_some(), "FORMAT of an INSERT", "COPY t FROM 'file' reads files")?;
    no(
        multi_table_insert_type.is_some()
            || !multi_table_into_clauses.is_empty()
            || !multi_table_when_clauses.is_empty()
            || multi_table_else_clause.is_some(),
        "INSERT into several tables",
        "write one INSERT for each, in a transaction",
    )
}

pub(super) fn update(update: &Update) -> Result<()> {
    let Update {
        update_token: _,
        optimizer_hints: _,
        table,
        assignments: _,
        from,
        selection: _,
        returning: _,
        // Whoever updates refuses these.
        output: _,
        or: _,
        order_by: _,
        limit: _,
    } = update;
    table::with_joins(table)?;
    match from {
        None => Ok(()),
        Some(UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables)) => {
            tables.iter().try_for_each(table::with_joins)
        }
    }
}

pub(super) fn delete(delete: &Delete) -> Result<()> {
    let Delete {
        delete_token: _,
        optimizer_hints: _,
        from,
        using,
        selection: _,
        returning: _,
        // Whoever deletes refuses these.
        tables: _,
        output: _,
        order_by: _,
        limit: _,
    } = delete;
    // A word that was forgotten or mistyped would empty the table.
    let FromTable::WithFromKeyword(from) = from else {
        return Err(Error::user("DELETE needs FROM")
            .code("42601")
            .hint("write DELETE FROM t WHERE …; DELETE FROM t alone deletes all rows"));
    };
    from.iter().chain(using.iter().flatten()).try_for_each(table::with_joins)
}

pub(super) fn merge(merge: &Merge) -> Result<()> {
    let Merge {
        merge_token: _,
        optimizer_hints: _,
        into: _,
        table: _,
        source: _,
        on: _,
        clauses,
        output: _, // Whoever merges refuses it.
    } = merge;
    let mut unconditional: Vec<&MergeClauseKind> = vec![];
    for MergeClause { when_token: _, clause_kind, predicate, action } in clauses {
        let same = |kind: &&MergeClauseKind| match (*kind, clause_kind) {
            (MergeClauseKind::NotMatched, MergeClauseKind::NotMatchedByTarget)
            | (MergeClauseKind::NotMatchedByTarget, MergeClauseKind::NotMatched) => true,
            (a, b) => a == b,
        };
        if unconditional.iter().any(same) {
            return Err(Error::user(
                "a WHEN of the MERGE is never reached: one before it has no condition",
            )
            .code("42601")
            .hint("give the first of them a condition: WHEN … AND … THEN, or change their order"));
        }
        if predicate.is_none() {
            unconditional.push(clause_kind);
        }
        let instead = "write the condition after WHEN …: WHEN MATCHED AND … THEN";
        match action {
            MergeAction::Insert(MergeInsertExpr {
                insert_token: _,
                columns: _,
                kind_token: _,
                kind: _,
                insert_predicate,
            }) => no(insert_predicate.is_some(), "WHERE of an INSERT in a MERGE", instead)?,
            MergeAction::Update(MergeUpdateExpr {
                update_token: _,
                assignments: _,
                update_predicate,
                delete_predicate,
            }) => {
                no(update_predicate.is_some(), "WHERE of an UPDATE in a MERGE", instead)?;
                no(delete_predicate.is_some(), "DELETE WHERE of an UPDATE in a MERGE", instead)?;
            }
            MergeAction::Delete { delete_token: _ } => {}
        }
    }
    Ok(())
}

pub(super) fn truncate(truncate: &Truncate) -> Result<()> {
    let Truncate {
        table_names: _,
        table: _,
        if_exists: _,
        // No table refers to another.
        cascade: _,
        identity,
        // Whoever truncates refuses these.
        partitions: _,
        on_cluster: _,
    } = truncate;
    match identity {
        None | Some(TruncateIdentityOption::Continue) => Ok(()),
        Some(TruncateIdentityOption::Restart) => {
            no(true, "RESTART IDENTITY", "leave it out: there are no sequences")
        }
    }
}
