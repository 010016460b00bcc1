//! Statements that define something, and all others that change no rows.

use datafusion::sql::parser::CreateExternalTable;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, ColumnOption, ColumnOptionDef, CreateTable,
    CreateTableOptions, CreateView, GeneratedAs, Ident, SqlOption, Statement, ViewColumnDef,
};
use thalweg_base::Result;

use super::{expr, no, unsupported};
use crate::declared;

/// What is not here is refused as a whole, by those who run statements.
pub(super) fn statement(statement: &Statement) -> Result<()> {
    match statement {
        Statement::CreateTable(create) => table(create),
        Statement::CreateView(create) => view(create),
        Statement::AlterTable(alter) => self::alter(alter),
        Statement::CreateSchema {
            schema_name: _,
            if_not_exists: _,
            with,
            options,
            default_collate_spec,
            clone,
        } => {
            no(with.is_some() || options.is_some(), "an option of CREATE SCHEMA", "leave it out")?;
            no(
                default_collate_spec.is_some(),
                "a collation of CREATE SCHEMA",
                "leave it out: texts are ordered by their bytes",
            )?;
            no(
                clone.is_some(),
                "CREATE SCHEMA … CLONE",
                "copy the tables: CREATE TABLE … AS SELECT …",
            )
        }
        Statement::Drop {
            object_type: _,
            if_exists: _,
            names: _,
            // A view that is left without its table says so when it is asked.
            cascade: _,
            restrict: _,
            purge,
            temporary,
            table: _,
        } => {
            no(*purge, "DROP … PURGE", "leave PURGE out; VACUUM removes the files")?;
            no(*temporary, "DROP TEMPORARY", "leave TEMPORARY out: there are no temporary tables")
        }
        _ => Ok(()),
    }
}

fn table(create: &CreateTable) -> Result<()> {
    let CreateTable {
        or_replace: _,
        if_not_exists: _,
        name: _,
        columns,
        query: _,
        // Those of them that are not done are refused when the table is made.
        constraints: _,
        // Taken out before.
        cluster_by: _,
        partition_by: _,
        table_options,
        // The planner refuses all of these.
        temporary: _,
        external: _,
        dynamic: _,
        global: _,
        transient: _,
        volatile: _,
        iceberg: _,
        snapshot: _,
        hive_distribution: _,
        hive_formats: _,
        file_format: _,
        location: _,
        without_rowid: _,
        like: _,
        clone: _,
        version: _,
        comment: _,
        on_commit: _,
        on_cluster: _,
        primary_key: _,
        order_by: _,
        clustered_by: _,
        inherits: _,
        partition_of: _,
        for_values: _,
        strict: _,
        copy_grants: _,
        enable_schema_evolution: _,
        change_tracking: _,
        data_retention_time_in_days: _,
        max_data_extension_time_in_days: _,
        default_ddl_collation: _,
        with_aggregation_policy: _,
        with_row_access_policy: _,
        with_storage_lifecycle_policy: _,
        with_tags: _,
        external_volume: _,
        base_location: _,
        catalog: _,
        catalog_sync: _,
        storage_serialization_policy: _,
        target_lag: _,
        warehouse: _,
        refresh_mode: _,
        initialize: _,
        require_user: _,
        diststyle: _,
        distkey: _,
        sortkey: _,
        backup: _,
    } = create;
    columns.iter().try_for_each(column)?;
    let options = match table_options {
        CreateTableOptions::None => return Ok(()),
        CreateTableOptions::With(options)
        | CreateTableOptions::Options(options)
        | CreateTableOptions::Plain(options)
        | CreateTableOptions::TableProperties(options) => options,
    };
    match options.first() {
        None => Ok(()),
        Some(option) => Err(unsupported(
            &format!("the option {} of CREATE TABLE", title(option)),
            "leave it out; CLUSTER BY (columns) orders the rows, PARTITION BY HASH (column) INTO n makes buckets",
        )),
    }
}

fn title(option: &SqlOption) -> String {
    match option {
        SqlOption::KeyValue { key: Ident { value, .. }, value: _ } => value.clone(),
        other => other.to_string(),
    }
}

pub(super) fn column(column: &ColumnDef) -> Result<()> {
    let ColumnDef { name, data_type: _, options } = column;
    for ColumnOptionDef { name: _, option } in options {
        column_option(&name.value, option)?;
    }
    Ok(())
}

fn column_option(column: &str, option: &ColumnOption) -> Result<()> {
    use ColumnOption as O;
    let refuse = |what: &str, instead: &str| {
        Err(unsupported(&format!("{what} of column {column}"), instead))
    };
    let computed = "make a view that computes it, or write it with each INSERT";
    let numbered =
        "number the rows as they are written: INSERT INTO t SELECT row_number() OVER (), …";
    match option {
        // The constraints are refused when the table is made.
        O::Null
        | O::NotNull
        | O::Default(_)
        | O::PrimaryKey(_)
        | O::Unique(_)
        | O::ForeignKey(_)
        | O::Check(_) => Ok(()),
        O::Materialized(_) => refuse("MATERIALIZED", computed),
        O::Ephemeral(_) => refuse("EPHEMERAL", computed),
        O::Alias(_) => refuse("ALIAS", computed),
        O::Generated {
            generated_as,
            sequence_options: _,
            generation_expr: _,
            generation_expr_mode: _,
            generated_keyword: _,
        } => match generated_as {
            GeneratedAs::Always | GeneratedAs::ExpStored => refuse("GENERATED ALWAYS AS", computed),
            GeneratedAs::ByDefault => refuse("GENERATED BY DEFAULT AS IDENTITY", numbered),
        },
        O::Identity(_) => refuse("IDENTITY", numbered),
        O::DialectSpecific(words) => {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            refuse(&words.join(" "), numbered)
        }
        O::Collation(name) => Err(expr::this_collation(name)),
        O::CharacterSet(_) => refuse("CHARACTER SET", "leave it out: texts are UTF-8"),
        O::Comment(_) => refuse("COMMENT", "leave it out"),
        O::OnUpdate(_) => refuse("ON UPDATE", "set it with each UPDATE"),
        O::Options(_) => refuse("OPTIONS", "leave them out"),
        O::OnConflict(_) => refuse("ON CONFLICT", "leave it out: there are no keys"),
        O::Policy(_) => refuse("a POLICY", "GRANT SELECT (columns) says who may read what"),
        O::Tags(_) => refuse("TAG", "leave it out"),
        O::Srid(_) => refuse("SRID", "leave it out"),
        O::Invisible => {
            refuse("INVISIBLE", "select the columns by name, or make a view without it")
        }
    }
}

fn view(create: &CreateView) -> Result<()> {
    let CreateView {
        or_alter,
        or_replace: _,
        secure,
        name: _,
        columns,
        query: _,
        options,
        params,
        // The planner refuses these, or whoever makes the view.
        materialized: _,
        name_before_not_exists: _,
        cluster_by: _,
        comment: _,
        with_no_schema_binding: _,
        if_not_exists: _,
        temporary: _,
        copy_grants: _,
        to: _,
    } = create;
    no(*or_alter, "CREATE OR ALTER VIEW", "write CREATE OR REPLACE VIEW")?;
    no(
        *secure,
        "CREATE SECURE VIEW",
        "leave SECURE out: a view is read with the rights of its owner",
    )?;
    no(params.is_some(), "ALGORITHM, DEFINER or SQL SECURITY of a view", "leave it out")?;
    for ViewColumnDef { name: _, data_type, options } in columns {
        no(data_type.is_some(), "a type in the list of a view's columns", "cast in its query")?;
        no(options.is_some(), "an option of a view's column", "leave it out")?;
    }
    match options {
        CreateTableOptions::None => Ok(()),
        _ => Err(unsupported("an option of CREATE VIEW", "leave it out")),
    }
}

fn alter(alter: &AlterTable) -> Result<()> {
    let AlterTable {
        name: _,
        if_exists: _,
        only: _, // There are no tables below tables.
        operations,
        location,
        on_cluster,
        table_type,
        end_token: _,
    } = alter;
    no(location.is_some(), "ALTER TABLE … LOCATION", "DROP TABLE and CREATE EXTERNAL TABLE")?;
    no(on_cluster.is_some(), "ON CLUSTER", "leave it out: all nodes have one catalog")?;
    no(
        table_type.is_some(),
        "ALTER of another kind of table",
        "only stored tables can be altered",
    )?;
    for operation in operations {
        // Of the others, whoever alters tables says what it takes.
        if let AlterTableOperation::AddColumn {
            column_keyword: _,
            if_not_exists: _,
            column_def,
            column_position: _,
        } = operation
        {
            column(column_def)?;
        }
    }
    Ok(())
}

pub(super) fn external(create: &CreateExternalTable) -> Result<()> {
    let CreateExternalTable {
        name: _,
        columns,
        file_type: _,
        locations: _,
        table_partition_cols: _,
        order_exprs: _,
        if_not_exists: _,
        or_replace: _,
        temporary: _,
        unbounded: _,
        options: _,
        constraints,
    } = create;
    let instead = "leave it out: nobody checks what is in a file";
    no(!constraints.is_empty(), "a constraint of an external table", instead)?;
    for ColumnDef { name, data_type, options } in columns {
        let what = "a length of texts in an external table";
        let instead =
            "declare it varchar: nobody checks what is in a file; COPY into a table checks it";
        no(declared::length(data_type)?.is_some(), what, instead)?;
        for ColumnOptionDef { name: _, option } in options {
            match option {
                ColumnOption::Null | ColumnOption::NotNull => {}
                ColumnOption::PrimaryKey(_)
                | ColumnOption::Unique(_)
                | ColumnOption::ForeignKey(_)
                | ColumnOption::Check(_) => {
                    return Err(unsupported("a constraint of an external table", instead));
                }
                ColumnOption::Default(_) => {
                    return Err(unsupported("DEFAULT of an external table", instead));
                }
                other => column_option(&name.value, other)?,
            }
        }
    }
    Ok(())
}
