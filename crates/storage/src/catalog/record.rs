//! How the catalog is stored: frames of checksummed records.
//!
//! ```text
//! "THALWEG" │ kind │ format u16 │ payload bytes u64 │ CRC-32 of all before and of the payload u32 │ payload
//! ```
//! Integers are little-endian; the payload is a postcard record. A frame is verified as a whole
//! before anything in it is believed.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result};

use crate::location::Location;

/// Of everything in a database directory: commits, checkpoints, extents and their metadata, the
/// sketches' hashes. Raised when an older program would misread a newer database, or the other
/// way round.
pub(crate) const FORMAT: u16 = 2;

const MAGIC: &[u8; 7] = b"THALWEG";
const HEAD_BYTES: usize = 7 + 1 + 2 + 8;
const FRAME_BYTES: usize = HEAD_BYTES + 4;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    Commit = b'C',
    Checkpoint = b'K',
    /// Of an extent.
    Metadata = b'M',
}

/// A record in its frame.
pub(crate) fn frame(kind: FrameKind, record: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; FRAME_BYTES];
    bytes = postcard::to_extend(record, bytes)
        .map_err(|e| Error::internal(format!("a catalog record cannot be written: {e}")))?;
    let payload = (bytes.len() - FRAME_BYTES) as u64;
    bytes[..7].copy_from_slice(MAGIC);
    bytes[7] = kind as u8;
    bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[10..18].copy_from_slice(&payload.to_le_bytes());
    let checksum = checksum(&bytes).to_le_bytes();
    bytes[HEAD_BYTES..FRAME_BYTES].copy_from_slice(&checksum);
    Ok(bytes)
}

/// Of a whole frame, without the place of the checksum itself.
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..HEAD_BYTES]);
    hasher.update(&frame[FRAME_BYTES..]);
    hasher.finalize()
}

/// The record of a frame; `object` is its name for messages.
pub(crate) fn unframe<T: DeserializeOwned>(
    kind: FrameKind,
    bytes: &[u8],
    object: &str,
) -> Result<T> {
    if bytes.len() < FRAME_BYTES || &bytes[..7] != MAGIC || bytes[7] != kind as u8 {
        return Err(damaged(object, "it does not begin as it should"));
    }
    let format = u16::from_le_bytes([bytes[8], bytes[9]]);
    let payload = u64::from_le_bytes(bytes[10..18].try_into().expect("eight bytes"));
    let written = u32::from_le_bytes(bytes[HEAD_BYTES..FRAME_BYTES].try_into().expect("four"));
    if payload != (bytes.len() - FRAME_BYTES) as u64 {
        return Err(damaged(
            object,
            &format!("it has {} bytes of {payload} written", bytes.len() - FRAME_BYTES),
        ));
    }
    let found = checksum(bytes);
    if found != written {
        return Err(damaged(object, &format!("checksum {found:08x}, {written:08x} was written")));
    }
    // After the checksum: a flipped bit in the number is damage, not another format.
    if format != FORMAT {
        return Err(other_format(object, format.into()));
    }
    postcard::from_bytes(&bytes[FRAME_BYTES..]).map_err(|e| damaged(object, &e.to_string()))
}

pub(crate) fn other_format(object: &str, format: u64) -> Error {
    Error::unsupported(format!(
        "{object} has storage format {format}; this program reads format {FORMAT}"
    ))
    .hint(if format > u64::from(FORMAT) {
        "use a newer thalweg"
    } else {
        "load the data again into a new database"
    })
}

pub(crate) fn damaged(object: &str, why: &str) -> Error {
    Error::corrupt(format!("{object} is damaged"))
        .detail(why)
        .hint("restore the database from a backup")
}

/// What one commit changed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub id: u64,
    /// Milliseconds since 1970, never less than the commit's before.
    pub time_ms: u64,
    pub summary: Summary,
    pub changes: Vec<Change>,
}

/// The whole catalog as of a commit: the changes that make it from nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    pub id: u64,
    pub time_ms: u64,
    pub changes: Vec<Change>,
    pub history: Vec<CommitInfo>,
    pub removed: Vec<Removed>,
}

/// An extent that no table names any more; its file stays until the retention has passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Removed {
    pub extent: u64,
    pub bytes: u64,
    pub time_ms: u64,
}

/// What is known of a commit when its changes are no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitInfo {
    pub id: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    pub summary: Summary,
}

/// What a commit was, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// `INSERT`, `LOAD`, `COMPACT`, …
    pub operation: String,
    /// `schema.table`, or empty.
    pub table: String,
    pub rows_added: u64,
    pub rows_removed: u64,
    /// Of input files.
    pub files: u64,
    pub raw_bytes: u64,
    /// Of the extents added.
    pub stored_bytes: u64,
    pub millis: u64,
    /// Input rows that were left out.
    pub rejected: u64,
}

/// A file whose rows a table has, so that it is not loaded again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LoadedFile {
    pub path: String,
    pub bytes: u64,
    /// Last modification, nanoseconds since 1970.
    pub modified_ns: u64,
}

/// A piece of the difference between two snapshots. Removals come before what may take their
/// names.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Change {
    PutSchema(String),
    RemoveSchema(String),
    /// A new table, or all but the rows of one that is there.
    PutTable(TableRecord),
    RemoveTable {
        id: u64,
    },
    PutRelation {
        schema: String,
        name: String,
        relation: Relation,
    },
    RemoveRelation {
        schema: String,
        name: String,
    },
    /// First those that go, then those that come, at the end.
    Extents {
        table: u64,
        removed: Vec<u64>,
        added: Vec<ExtentRecord>,
    },
    /// All deleted rows of one extent: a serialized roaring bitmap of positions in it.
    Deleted {
        table: u64,
        extent: u64,
        rows: Vec<u8>,
    },
    LoadedFiles {
        table: u64,
        files: Vec<LoadedFile>,
    },
    SetProperty {
        name: String,
        value: Option<String>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Relation {
    View { sql: String },
    External { sql: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableRecord {
    pub id: u64,
    pub schema: String,
    pub name: String,
    /// An Arrow IPC stream without batches.
    pub arrow_schema: Vec<u8>,
    /// One per field.
    pub columns: Vec<ColumnRecord>,
    pub next_column: u32,
    /// Positions among the columns.
    pub cluster_by: Vec<u32>,
    /// Position of the column, number of buckets.
    pub partition_by: Option<(u32, u32)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ColumnRecord {
    pub id: u32,
    /// The value that rows older than the column have: an Arrow IPC stream of one row.
    pub initial: Option<Vec<u8>>,
    /// SQL text.
    pub default: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExtentRecord {
    pub id: u64,
    pub rows: u64,
    pub bytes: u64,
    /// CRC-32 of the whole file.
    pub checksum: u32,
    pub chunks: u32,
    pub bucket: Option<u32>,
    /// Where in the file its metadata frame lies.
    pub metadata: Location,
}
