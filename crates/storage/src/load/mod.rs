//! Reading input files into Arrow batches of a table's exact schema.
//!
//! A load asks four questions in this order, and each has its file:
//!
//! 1. Which files, in which format? [`expand`], [`format_of`] (`input.rs`); their bytes, on this machine or
//!    at an address, come by `source.rs`.
//! 2. If nobody declared the columns, which are they? [`Inference`] (`infer.rs`) looks at all of
//!    the input. The dialect of delimited text is what `options.rs` says, and what `sniff.rs` finds
//!    at the beginning of each file; `text.rs` puts the two together, and makes UTF-8 of it.
//! 3. Who reads what next? [`Reader::next`] (`reader.rs`) hands out [`Unit`]s: blocks of text cut
//!    at a record boundary (`block.rs`), Parquet row groups (`parquet.rs`), Arrow record batches
//!    (`arrow_ipc.rs`). Blocking I/O and decompression happen here and nowhere else. `turns.rs`
//!    lets workers share the files, `gate.rs` bounds what they have in memory.
//! 4. What do the bytes mean? [`Unit::parse`] yields batches of at most `BATCH_ROWS` rows, pure
//!    CPU, bounded work per item. CSV: `scan.rs` finds the ends of fields, `csv.rs` walks them
//!    column by column; what is not spelled as numbers and dates usually are is written anew first
//!    (`spelling.rs`, `dates.rs`). JSON: `json.rs` walks records, `json_value.rs` is the grammar, and
//!    `json_columns.rs` has the builders of lists and structs. A sheet of a workbook is read as lines of JSON (`book.rs`). All end in the typed builders of `columns.rs`,
//!    which read single values with `parse.rs`. Parquet and Arrow columns are cast by
//!    `conform.rs`; what their decoders leave unseen is in `decoded.rs`. `layout.rs` decides which input column fills which column of the table.
//!
//! What is wrong with a row does not travel with the batches: it goes to `rejects.rs`, which
//! decides whether the load goes on, and [`Reader::finish`] tells. A fault names the file, the
//! line, the column, the value and the way out.

mod arrow_ipc;
mod block;
mod book;
mod columns;
mod conform;
mod csv;
mod dates;
mod decoded;
mod gate;
mod infer;
mod input;
mod json;
mod json_columns;
mod json_options;
mod json_text;
mod json_value;
mod layout;
mod options;
mod parquet;
mod parse;
mod reader;
mod rejects;
mod scan;
mod sniff;
mod source;
mod spelling;
mod text;
mod turns;
mod version;
mod zipped;

#[cfg(test)]
mod json_tests;
#[cfg(test)]
mod tests;

pub use book::BookOptions;
pub use conform::wider;
pub use dates::DateOrder;
pub use decoded::{declared_names, with_null_keys};
pub use infer::{FileDialect, Inference, Inferred, InferredColumn, Piece, infer};
pub use input::{
    Compression, CsvOptions, Format, JsonForm, JsonOptions, Sniff, compression_of, expand,
    expand_present, format_of, home, is_pattern, shown,
};
pub use layout::{Columns, Matched};
pub use reader::{Batches, Outcome, Reader, Unit};
pub use rejects::Reject;
pub use source::address;
pub use version::{stamp, version};

pub use crate::store::shown_address;
