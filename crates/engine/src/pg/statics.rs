//! PostgreSQL's own types, functions and operators, as the crate `datafusion-pg-catalog` ships them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::array::Array;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_pg_catalog::pg_catalog::{ArrowTable, PgCatalogStaticTables};
use thalweg_pgcatalog::database::{STATIC, StaticTable, Statics};

/// Read when first wanted: most processes have no client that asks.
pub fn statics() -> Arc<Statics> {
    static STATICS: LazyLock<Arc<Statics>> = LazyLock::new(|| Arc::new(read()));
    Arc::clone(&STATICS)
}

fn read() -> Statics {
    // They are compiled in, and a test reads them all.
    let tables = PgCatalogStaticTables::try_new().expect("the tables that are compiled in");
    let table = |name: &str| -> Option<&Arc<ArrowTable>> {
        Some(match name {
            "pg_aggregate" => &tables.pg_aggregate,
            "pg_am" => &tables.pg_am,
            "pg_amop" => &tables.pg_amop,
            "pg_amproc" => &tables.pg_amproc,
            "pg_cast" => &tables.pg_cast,
            "pg_collation" => &tables.pg_collation,
            "pg_conversion" => &tables.pg_conversion,
            "pg_description" => &tables.pg_description,
            "pg_get_keywords" => &tables.pg_get_keywords,
            "pg_language" => &tables.pg_language,
            "pg_opclass" => &tables.pg_opclass,
            "pg_operator" => &tables.pg_operator,
            "pg_opfamily" => &tables.pg_opfamily,
            "pg_proc" => &tables.pg_proc,
            "pg_range" => &tables.pg_range,
            "pg_tablespace" => &tables.pg_tablespace,
            "pg_ts_config" => &tables.pg_ts_config,
            "pg_ts_dict" => &tables.pg_ts_dict,
            "pg_ts_parser" => &tables.pg_ts_parser,
            "pg_ts_template" => &tables.pg_ts_template,
            "pg_type" => &tables.pg_type,
            _ => return None,
        })
    };
    let named = STATIC.iter().filter_map(|name| Some((name.to_string(), text(table(name)?))));
    Statics::new(named.collect::<HashMap<_, _>>())
}

fn text(table: &ArrowTable) -> StaticTable {
    let columns = table.schema().fields().iter().map(|f| f.name().clone()).collect();
    let options = FormatOptions::default();
    let mut rows = vec![];
    for batch in table.data() {
        let formatters: Vec<ArrayFormatter> = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c, &options).expect("columns of plain types"))
            .collect();
        for row in 0..batch.num_rows() {
            let each = batch.columns().iter().zip(&formatters);
            let text = each.map(|(column, formatter)| {
                column.is_valid(row).then(|| formatter.value(row).to_string())
            });
            rows.push(text.collect());
        }
    }
    StaticTable { columns, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tables_are_there() {
        let statics = statics();
        for name in STATIC {
            assert!(statics.count(name) > 0, "{name}");
        }
    }
}
