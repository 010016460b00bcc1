//! Every bound of the house by name, units last. A queue, buffer or cache without an entry
//! here is a mistake.

/// Rows of a chunk: the unit of skipping, decoding and caching. 64 Ki rows keep the cost of
/// opening an encoded array below 1 % of decoding it, and a decoded column within 1 MiB.
pub const CHUNK_ROWS_MAX: usize = 64 * 1024;

/// Stored size at which a writer closes an extent and starts the next.
pub const EXTENT_BYTES_TARGET: u64 = 256 * 1024 * 1024;

/// Rows a `CLUSTER BY` writer sorts at once, per writer. Raw (Arrow) bytes, not encoded.
pub const CLUSTER_SORT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Rows of a batch handed to an operator. A chunk is a whole number of batches.
pub const BATCH_ROWS: usize = 8 * 1024;

/// Bytes of text a load worker parses at a time.
pub const LOAD_BLOCK_BYTES: usize = 4 * 1024 * 1024;

/// The longest single record (line) a text loader accepts.
pub const LOAD_RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Rows looked at when the type of a column is inferred from text.
pub const INFER_ROWS_MAX: usize = 100_000;

/// Share of the machine's memory that the cache of decoded chunks may hold, in percent.
pub const CACHE_MEMORY_PERCENT: u64 = 40;

/// Share of the machine's memory that joins, groups and sorts of all queries may hold, in percent.
pub const QUERY_MEMORY_PERCENT: u64 = 45;

/// Columns of a table.
pub const TABLE_COLUMNS_MAX: usize = 4096;

/// Bytes of an identifier (schema, table, column).
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of one SQL text.
pub const SQL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Operators in a row in one statement: `a OR b OR …`. Plans of that depth fit the stack of a
/// thread of ours several times over.
pub const OPERATOR_CHAIN_MAX: usize = 2000;

/// Relations whose join order is searched exhaustively; above it the search is greedy.
pub const JOIN_ORDER_DP_RELATIONS_MAX: usize = 10;

const _: () = assert!(CHUNK_ROWS_MAX.is_multiple_of(BATCH_ROWS));
const _: () = assert!(LOAD_BLOCK_BYTES < LOAD_RECORD_BYTES_MAX);
const _: () = assert!(CACHE_MEMORY_PERCENT + QUERY_MEMORY_PERCENT < 100);
