//! What the server can do, as clients ask for it.

use arrow::array::RecordBatch;
use arrow_flight::sql::metadata::{SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo as I, SqlNullOrdering, SqlOuterJoinsSupportLevel,
    SqlSupportedCaseSensitivity, SqlSupportedGroupBy, SqlSupportedSubqueries,
    SqlSupportedTransaction, SqlSupportedUnions, SqlTransactionIsolationLevel, SupportedSqlGrammar,
    XdbcDataType as X, XdbcDatetimeSubcode,
};
use thalweg_base::Result;
use thalweg_base::limits::{NAME_BYTES_MAX, SQL_BYTES_MAX, TABLE_COLUMNS_MAX};

use super::status::from_flight;

/// Actions by their names, and what they do.
pub const ACTIONS: [(&str, &str); 11] = [
    ("CreatePreparedStatement", "Describes a statement, and keeps it for values to come."),
    ("ClosePreparedStatement", "Forgets a prepared statement."),
    ("BeginTransaction", "Opens a transaction with snapshot isolation."),
    ("EndTransaction", "Commits a transaction, or rolls it back."),
    ("BeginSavepoint", "Marks a place in a transaction."),
    ("EndSavepoint", "Forgets a savepoint, or goes back to it."),
    ("CancelFlightInfo", "Stops a statement by the FlightInfo that it has answered."),
    ("CancelQuery", "Stops a statement: the name that CancelFlightInfo had before."),
    ("SetSessionOptions", "Changes settings, in a session that it opens if there is none."),
    ("GetSessionOptions", "Lists the settings of the session."),
    ("CloseSession", "Ends the session."),
];

/// Functions that may stand between `{fn` and `}`.
const NUMERIC_FUNCTIONS: &[&str] = &[
    "ABS", "ACOS", "ASIN", "ATAN", "ATAN2", "COS", "COT", "DEGREES", "EXP", "FLOOR", "LOG",
    "LOG10", "PI", "POWER", "RADIANS", "ROUND", "SIN", "SQRT", "TAN",
];
const STRING_FUNCTIONS: &[&str] = &[
    "ASCII",
    "CHAR_LENGTH",
    "CHARACTER_LENGTH",
    "CONCAT",
    "LEFT",
    "LENGTH",
    "LTRIM",
    "OCTET_LENGTH",
    "POSITION",
    "REPEAT",
    "REPLACE",
    "RIGHT",
    "RTRIM",
    "SUBSTRING",
];
const DATETIME_FUNCTIONS: &[&str] = &["CURRENT_DATE", "CURRENT_TIME", "EXTRACT", "NOW"];

/// Of the given numbers, or all of them.
pub fn sql_info(wanted: &[u32]) -> Result<RecordBatch> {
    let bits = |bits: &[i32]| bits.iter().fold(0, |all, bit| all | 1 << bit);
    let names = i64::try_from(NAME_BYTES_MAX).unwrap_or(i64::MAX);
    let mut info = SqlInfoDataBuilder::new();

    info.append(I::FlightSqlServerName, "Thalweg");
    info.append(I::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(I::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    info.append(I::FlightSqlServerReadOnly, false);
    info.append(I::FlightSqlServerSql, true);
    info.append(I::FlightSqlServerSubstrait, false);
    info.append(I::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
    info.append(I::FlightSqlServerCancel, true);
    info.append(I::FlightSqlServerBulkIngestion, true);
    info.append(I::FlightSqlServerIngestTransactionsSupported, true);
    // 0: none, unless a session has set one.
    info.append(I::FlightSqlServerStatementTimeout, 0);
    info.append(I::FlightSqlServerTransactionTimeout, 0);

    info.append(I::SqlDdlCatalog, false);
    info.append(I::SqlDdlSchema, true);
    info.append(I::SqlDdlTable, true);
    let folded = SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32;
    info.append(I::SqlIdentifierCase, folded);
    info.append(I::SqlIdentifierQuoteChar, "\"");
    // As they are written, for which there is no name.
    let exact = SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32;
    info.append(I::SqlQuotedIdentifierCase, exact);
    info.append(I::SqlAllTablesAreSelectable, true);
    info.append(I::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32);
    info.append(I::SqlKeywords, &["CLUSTER", "OVERWRITE", "VACUUM", "WORKLOAD"][..]);
    info.append(I::SqlNumericFunctions, NUMERIC_FUNCTIONS);
    info.append(I::SqlStringFunctions, STRING_FUNCTIONS);
    info.append(I::SqlSystemFunctions, &["COALESCE", "NULLIF"][..]);
    info.append(I::SqlDatetimeFunctions, DATETIME_FUNCTIONS);
    info.append(I::SqlSearchStringEscape, "\\");
    info.append(I::SqlExtraNameCharacters, "");
    info.append(I::SqlSupportsColumnAliasing, true);
    info.append(I::SqlNullPlusNullIsNull, true);
    info.append(I::SqlSupportsTableCorrelationNames, true);
    info.append(I::SqlSupportsDifferentTableCorrelationNames, false);
    info.append(I::SqlSupportsExpressionsInOrderBy, true);
    info.append(I::SqlSupportsOrderByUnrelated, true);
    let groups = bits(&[
        SqlSupportedGroupBy::SqlGroupByUnrelated as i32,
        SqlSupportedGroupBy::SqlGroupByBeyondSelect as i32,
    ]);
    info.append(I::SqlSupportedGroupBy, groups);
    info.append(I::SqlSupportsLikeEscapeClause, false);
    info.append(I::SqlSupportsNonNullableColumns, true);
    let grammar = bits(&[
        SupportedSqlGrammar::SqlMinimumGrammar as i32,
        SupportedSqlGrammar::SqlCoreGrammar as i32,
    ]);
    info.append(I::SqlSupportedGrammar, grammar);
    info.append(I::SqlSupportsIntegrityEnhancementFacility, false);
    let outer_joins = bits(&[SqlOuterJoinsSupportLevel::SqlFullOuterJoins as i32]);
    info.append(I::SqlOuterJoinsSupportLevel, outer_joins);
    info.append(I::SqlSchemaTerm, "schema");
    info.append(I::SqlProcedureTerm, "procedure");
    info.append(I::SqlCatalogTerm, "catalog");
    info.append(I::SqlCatalogAtStart, true);
    info.append(I::SqlSchemasSupportedActions, 0);
    info.append(I::SqlCatalogsSupportedActions, 0);
    info.append(I::SqlSupportedPositionedCommands, 0);
    info.append(I::SqlSelectForUpdateSupported, false);
    info.append(I::SqlStoredProceduresSupported, false);
    let subqueries = bits(&[
        SqlSupportedSubqueries::SqlSubqueriesInComparisons as i32,
        SqlSupportedSubqueries::SqlSubqueriesInExists as i32,
        SqlSupportedSubqueries::SqlSubqueriesInIns as i32,
    ]);
    info.append(I::SqlSupportedSubqueries, subqueries);
    info.append(I::SqlCorrelatedSubqueriesSupported, true);
    let unions =
        bits(&[SqlSupportedUnions::SqlUnion as i32, SqlSupportedUnions::SqlUnionAll as i32]);
    info.append(I::SqlSupportedUnions, unions);
    info.append(I::SqlMaxColumnNameLength, names);
    info.append(I::SqlDbSchemaNameLength, names);
    info.append(I::SqlMaxTableNameLength, names);
    info.append(I::SqlMaxColumnsInTable, i64::try_from(TABLE_COLUMNS_MAX).unwrap_or(i64::MAX));
    info.append(I::SqlMaxColumnsInIndex, 0i64);
    info.append(I::SqlMaxStatementLength, i64::try_from(SQL_BYTES_MAX).unwrap_or(i64::MAX));

    let snapshot = SqlTransactionIsolationLevel::SqlTransactionRepeatableRead as i32;
    info.append(I::SqlDefaultTransactionIsolation, snapshot);
    info.append(I::SqlTransactionsSupported, true);
    info.append(I::SqlSupportedTransactionsIsolationLevels, bits(&[snapshot]));
    info.append(I::SqlDataDefinitionCausesTransactionCommit, false);
    info.append(I::SqlDataDefinitionsInTransactionsIgnored, false);
    info.append(I::SqlBatchUpdatesSupported, true);
    info.append(I::SqlSavepointsSupported, true);
    info.append(I::SqlNamedParametersSupported, false);
    info.append(I::SqlLocatorsUpdateCopy, false);
    info.append(I::SqlStoredFunctionsUsingCallSyntaxSupported, false);

    let data = info.build().map_err(from_flight)?;
    data.record_batch(wanted.iter().copied()).map_err(from_flight)
}

/// Types that columns may have, or the one that is wanted.
pub fn types(wanted: Option<i32>) -> Result<RecordBatch> {
    let mut builder = XdbcTypeInfoDataBuilder::new();
    let mut number =
        |name: &str, data_type, digits, unsigned, radix, scales: Option<(i32, i32)>| {
            builder.append(XdbcTypeInfo {
                type_name: name.into(),
                data_type,
                sql_data_type: data_type,
                column_size: Some(digits),
                nullable: Nullable::NullabilityNullable,
                searchable: Searchable::Full,
                unsigned_attribute: Some(unsigned),
                fixed_prec_scale: false,
                auto_increment: Some(false),
                local_type_name: Some(name.into()),
                create_params: scales.map(|_| vec!["precision".into(), "scale".into()]),
                minimum_scale: scales.map(|s| s.0),
                maximum_scale: scales.map(|s| s.1),
                num_prec_radix: Some(radix),
                ..XdbcTypeInfo::default()
            });
        };
    number("tinyint", X::XdbcTinyint, 8, false, 2, None);
    number("tinyint unsigned", X::XdbcTinyint, 8, true, 2, None);
    number("smallint", X::XdbcSmallint, 16, false, 2, None);
    number("smallint unsigned", X::XdbcSmallint, 16, true, 2, None);
    number("int", X::XdbcInteger, 32, false, 2, None);
    number("int unsigned", X::XdbcInteger, 32, true, 2, None);
    number("bigint", X::XdbcBigint, 64, false, 2, None);
    number("bigint unsigned", X::XdbcBigint, 64, true, 2, None);
    number("real", X::XdbcReal, 24, false, 2, None);
    number("double", X::XdbcDouble, 53, false, 2, None);
    number("decimal", X::XdbcDecimal, 38, false, 10, Some((0, 38)));

    let date = X::XdbcDatetime;
    let mut other = |name: &str, data_type, (sql, subcode): (X, _), size, quotes: (&str, &str)| {
        builder.append(XdbcTypeInfo {
            type_name: name.into(),
            data_type,
            sql_data_type: sql,
            datetime_subcode: subcode,
            column_size: size,
            literal_prefix: Some(quotes.0.into()),
            literal_suffix: Some(quotes.1.into()),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: data_type == X::XdbcVarchar,
            searchable: Searchable::Full,
            local_type_name: Some(name.into()),
            ..XdbcTypeInfo::default()
        });
    };
    use XdbcDatetimeSubcode as S;
    other("boolean", X::XdbcBit, (X::XdbcBit, None), Some(1), ("", ""));
    other("varchar", X::XdbcVarchar, (X::XdbcVarchar, None), None, ("'", "'"));
    other("bytea", X::XdbcVarbinary, (X::XdbcVarbinary, None), None, ("X'", "'"));
    // Of dates it is called that, and has the number of SQL_CODE_DATE.
    let subcode = Some(S::XdbcSubcodeYear);
    other("date", X::XdbcDate, (date, subcode), Some(10), ("DATE '", "'"));
    let subcode = Some(S::XdbcSubcodeTime);
    other("time", X::XdbcTime, (date, subcode), Some(18), ("TIME '", "'"));
    let subcode = Some(S::XdbcSubcodeTimestamp);
    other("timestamp", X::XdbcTimestamp, (date, subcode), Some(29), ("TIMESTAMP '", "'"));
    let data = builder.build().map_err(from_flight)?;
    data.record_batch(wanted).map_err(from_flight)
}
