//! Every bound of the house by name, units last. A queue, buffer or cache without an entry
//! here is a mistake.

/// Rows of a chunk: the unit of skipping, decoding and caching. 64 Ki rows keep the cost of
/// opening an encoded array below 1 % of decoding it, and a decoded column within 1 MiB.
pub const CHUNK_ROWS_MAX: usize = 64 * 1024;

/// Stored size at which a writer closes an extent and starts the next.
pub const EXTENT_BYTES_TARGET: u64 = 256 * 1024 * 1024;

/// Rows a `CLUSTER BY` writer sorts at once, per writer. Raw (Arrow) bytes, not encoded.
pub const CLUSTER_SORT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Bytes of a digest (which values a chunk may hold) of one column of one chunk: 8 bits for each
/// of as many distinct values as a chunk has rows.
pub const DIGEST_BYTES_MAX: usize = CHUNK_ROWS_MAX;

/// A digest takes at most this part of its column's bytes in the chunk: an eighth.
pub const DIGEST_COLUMN_SHARE: u64 = 8;

/// All digests of an extent take at most this part of its bytes: a 16th.
pub const DIGEST_EXTENT_SHARE: u64 = 16;

/// Bytes by which the longest of many texts may exceed the shortest if they are to have a digest.
pub const DIGEST_LENGTHS_SPREAD_MAX: usize = 16;

/// Values of a column that a predicate is tried on to find the chunks that can pass it: dates of
/// nearly two centuries, and some 100 µs of work.
pub const PRUNE_DOMAIN_VALUES_MAX: usize = 64 * 1024;

/// Bytes of rows that a transaction holds in memory before it writes them into an extent.
pub const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Rows of a batch handed to an operator. A chunk is a whole number of batches.
pub const BATCH_ROWS: usize = 8 * 1024;

/// Files of a database kept open for reading, each maybe twice (for direct reads); a process often has
/// 1024 descriptors.
pub const OPEN_FILES_MAX: usize = 256;

/// Unwanted bytes between two wanted segments that are read rather than skipped: a second request
/// costs more than these, on a disk as on NFS.
pub const READ_GAP_BYTES_MAX: u64 = 16 * 1024;

/// Compressed bytes of chunks that all scans together hold before they come to them.
pub const READ_AHEAD_BYTES_MAX: u64 = 64 << 20;

/// Unwanted bytes between two wanted segments of a remote object that are fetched rather than
/// skipped: what a connection brings in the time that a request takes to answer.
pub const REMOTE_GAP_BYTES_MAX: u64 = 256 * 1024;

/// Bytes of one request to an object store: more are fetched and stored in several at a time, for
/// a single connection is far slower than the network.
pub const REMOTE_REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Requests of one read that are under way at a time.
pub const REMOTE_READS_MAX: usize = 16;

/// Parts of one object that are being stored at a time; a writer holds so many in memory.
pub const REMOTE_PARTS_MAX: usize = 4;

/// Attempts after the first at a request that fails for a reason that may pass. With pauses that
/// grow to `REMOTE_PAUSE_MS_MAX` they take about half a minute if each is refused at once.
pub const REMOTE_RETRIES_MAX: usize = 15;
pub const REMOTE_PAUSE_MS_MAX: u64 = 5_000;

/// The longest that one attempt at a request may take, its body included, and of that to connect.
pub const REMOTE_TIMEOUT_MS: u64 = 60_000;
pub const REMOTE_CONNECT_TIMEOUT_MS: u64 = 5_000;

/// How long a server may say nothing while a file is read from it at its address.
pub const REMOTE_FILE_SILENCE_MS: u64 = 30_000;

/// After this no new attempt at a request is made.
pub const REMOTE_RETRY_MS_MAX: u64 = 180_000;

/// Bytes of remote objects kept on the local disk, per database and for all processes together.
pub const REMOTE_CACHE_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;

/// What that cache fetches and drops at a time: the least that is worth a request.
pub const REMOTE_CACHE_BLOCK_BYTES: u64 = 1024 * 1024;

/// Bytes of text a load worker parses at a time.
pub const LOAD_BLOCK_BYTES: usize = 4 * 1024 * 1024;

/// The longest single record (line) a text loader accepts.
pub const LOAD_RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The longest that a person can ask for.
pub const LOAD_TOLD_RECORD_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Memory of one load, shared by its workers: input read and not yet parsed, rows parsed and not
/// yet encoded, runs being sorted. Raw (Arrow) bytes; what sorting and encoding need on top of
/// them keeps the whole process below twice this.
pub const LOAD_MEMORY_BYTES: usize = 512 * 1024 * 1024;

/// Of that the least a load worker gets: where there is less, fewer of them work.
pub const LOAD_WORKER_BYTES_MIN: usize = 16 * 1024 * 1024;

/// The smallest block of text a load worker parses, where memory is short.
pub const LOAD_BLOCK_BYTES_MIN: usize = 256 * 1024;

/// Rejected rows of one load, kept until it ends.
pub const LOAD_REJECT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Share of the machine's memory that the cache of decoded chunks may hold, in percent.
pub const CACHE_MEMORY_PERCENT: u64 = 40;

/// Share of the machine's memory that joins, groups and sorts of all queries may hold, in percent.
pub const QUERY_MEMORY_PERCENT: u64 = 45;

/// The least that the memory of all queries can be limited to: below it not even one could sort.
pub const MEMORY_LIMIT_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// Columns of a table.
pub const TABLE_COLUMNS_MAX: usize = 4096;

/// Buckets of a table's `PARTITION BY HASH`. Every writer holds an extent open for each.
pub const PARTITION_BUCKETS_MAX: u32 = 256;

/// Commits that the catalog remembers for `system.snapshots` and `system.loads`.
pub const HISTORY_COMMITS_MAX: usize = 10_000;

/// Commits after which the catalog is written down as a whole, and opening replays no more.
pub const CHECKPOINT_COMMITS: u64 = 64;

/// Bytes of commits after which it is, however few they are.
pub const CHECKPOINT_COMMITS_BYTES: u64 = 4 * 1024 * 1024;

/// Times a commit is tried again because another process took its number.
pub const COMMIT_TRIES_MAX: usize = 100;

/// How long snapshots that are no longer current can be asked for, and processes that still read
/// them can go on, unless the database has another setting.
pub const RETENTION_MS: u64 = 60 * 60 * 1000;

/// Times a statement outside a transaction is run again because another commit came first: a
/// compaction, mostly.
pub const CONFLICT_RETRIES_MAX: usize = 10;

/// How long a writer waits for another process that is writing.
pub const WRITE_LOCK_WAIT_MS: u64 = 10_000;

/// Age at which an object that no commit names is taken for an orphan, in a store where nothing
/// tells whether its writer still lives.
pub const ORPHAN_AGE_MS: u64 = 24 * 60 * 60 * 1000;

/// How long a snapshot that is being copied is kept if its holder says no more: it renews that
/// several times meanwhile. The clocks of machines that share a database must not differ by more.
pub const PIN_LEASE_MS: u64 = 15 * 60 * 1000;

/// Extents that a backup or a restoration copies at a time, and what of each is in memory.
pub const BACKUP_COPIES_MAX: usize = 4;
pub const BACKUP_PIECE_BYTES: u64 = 8 * 1024 * 1024;

/// Share of an extent's rows that may be deleted before the background writes it anew, in percent.
pub const COMPACT_DELETED_PERCENT: u64 = 20;

/// Small extents that the background puts together at the least.
pub const COMPACT_EXTENTS_MIN: usize = 8;

/// How often the background looks whether tables have changed.
pub const BACKGROUND_PERIOD_MS: u64 = 1_000;

/// For how many of these periods rewriting gives way to transactions that are open: half a minute. One
/// that is open for longer may be told at its end that the rows which it changed were rewritten.
pub const BACKGROUND_PERIODS_OF_GRACE: u32 = 30;

/// By how many extents a table may grow before the background compacts it amid its changes; one that
/// rests is compacted at once.
pub const BACKGROUND_EXTENTS: usize = 64;

/// What work of the background is expected to take: more than any query, so that policies which
/// go by it let every query go first.
pub const BACKGROUND_ESTIMATE_NS: u64 = 3_600_000_000_000;

/// Chunks that a value of a clustered table's first column may lie in, on average, before the
/// background sorts them as one.
pub const COMPACT_OVERLAP_MAX: f64 = 4.0;

/// Bytes of an identifier (schema, table, column).
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of one text that `lpad`, `rpad`, `repeat` or `format` makes of short ones: far beyond what
/// anybody reads, and it fits the memory of a query.
pub const TEXT_MADE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Items of all lists that `range`, `generate_series`, `array_repeat` or `array_resize` makes of one batch of
/// rows, which nobody can stop meanwhile.
pub const LIST_ITEMS_MADE_MAX: usize = 32 * 1024 * 1024;

/// Bytes of all texts that such a function makes of one batch of rows.
pub const TEXTS_MADE_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Bytes of one SQL text.
pub const SQL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Operators in a row in one statement: `a OR b OR …`. Plans of that depth fit the stack of a
/// thread of ours several times over.
pub const OPERATOR_CHAIN_MAX: usize = 2000;

/// Brackets, calls and subqueries within each other in one statement; AND and OR between them count, too.
pub const SQL_DEPTH_MAX: usize = 150;

/// Queries that ended which are kept in `system.query_log`.
pub const QUERY_LOG_MAX: usize = 4 * 1024;

/// Bytes that a merge of what a sort spilled takes for each of its runs. A small query on a full
/// server has little more.
pub const SORT_MERGE_BYTES: usize = 1024 * 1024;

/// Bytes of a statement's text that lists of queries show.
pub const QUERY_TEXT_SHOWN_MAX: usize = 4 * 1024;

/// Bytes of rows that a query keeps for identical ones that come while it computes. One with more
/// is computed by each for itself.
pub const SHARED_RESULT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Relations whose join order is searched exhaustively; above it the search is greedy.
pub const JOIN_ORDER_DP_RELATIONS_MAX: usize = 10;

/// Parts into which a join's inputs are split on disk when the build side does not fit into memory.
/// Each is an open file while it is written.
pub const JOIN_PARTS: usize = 16;

/// How often the rows of such a part are split again, so into 16⁴ parts at the most.
pub const JOIN_SPLITS_MAX: usize = 4;

/// Rows of a join on their way to disk, in memory: written in messages of a 16th of it. A part that
/// is not larger is joined in memory without asking for it.
pub const JOIN_SPILL_BUFFER_BYTES: usize = 1024 * 1024;

const _: () = assert!(CHUNK_ROWS_MAX.is_multiple_of(BATCH_ROWS));
const _: () = assert!(LOAD_BLOCK_BYTES < LOAD_RECORD_BYTES_MAX);
const _: () = assert!(LOAD_BLOCK_BYTES_MIN <= LOAD_BLOCK_BYTES);
const _: () = assert!(LOAD_BLOCK_BYTES_MIN * 8 <= LOAD_WORKER_BYTES_MIN);
const _: () = assert!(LOAD_WORKER_BYTES_MIN <= LOAD_MEMORY_BYTES);
const _: () = assert!(REMOTE_CONNECT_TIMEOUT_MS < REMOTE_TIMEOUT_MS);
const _: () = assert!(REMOTE_TIMEOUT_MS < REMOTE_RETRY_MS_MAX);
// S3 takes no smaller parts, and at most 10,000 of them.
const _: () = assert!(REMOTE_REQUEST_BYTES_MAX >= 5 * 1024 * 1024);
const _: () = assert!(EXTENT_BYTES_TARGET < 1000 * REMOTE_REQUEST_BYTES_MAX as u64);
const _: () = assert!(CACHE_MEMORY_PERCENT + QUERY_MEMORY_PERCENT < 100);
