//! Verifies a whole database against its checksums.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::{Error, Result};

use crate::database::Database;
use crate::statistics::measure;
use crate::table::Table;
use crate::table::{ChunkRef, Contents};

/// How far a check is; read it from another thread.
#[derive(Debug, Default)]
pub struct CheckProgress {
    pub bytes_done: AtomicU64,
    pub bytes_total: AtomicU64,
}

#[derive(Debug, Default)]
pub struct CheckReport {
    /// Commits and checkpoints of the log.
    pub log_objects: usize,
    pub extents: usize,
    pub chunks: usize,
    /// Read and verified.
    pub bytes: u64,
    /// Everything that is not as it was written; each names its object.
    pub faults: Vec<Error>,
}

impl Database {
    /// Reads every object that the current snapshot names, and compares checksums; with `decode`,
    /// also decodes every value and compares the statistics. Finds all faults, not only the first.
    /// Blocks on the store.
    pub fn check(&self, decode: bool, progress: &CheckProgress) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let (objects, bytes, faults) = self.log().check()?;
        report.log_objects = objects;
        report.bytes = bytes;
        report.faults = faults;
        let snapshot = self.refresh()?;
        progress.bytes_total.store(snapshot.stored_bytes(), Ordering::Relaxed);
        for (schema, table) in snapshot.named_tables() {
            let before = report.faults.len();
            self.check_table(table, decode, progress, &mut report);
            let name = format!("table \"{schema}.{}\"", table.name);
            let found = report.faults.split_off(before);
            report.faults.extend(found.into_iter().map(|e| e.context(&name)));
        }
        Ok(report)
    }

    fn check_table(
        &self,
        table: &Table,
        decode: bool,
        progress: &CheckProgress,
        report: &mut CheckReport,
    ) {
        for e in &table.extents {
            // One by one, so that one damaged extent does not hide the others.
            let mut alone = table.edit();
            alone.extents = vec![e.clone()];
            report.extents += 1;
            report.faults.extend(e.extent.verify().err());
            match Contents::open(&alone) {
                Ok(contents) => {
                    let contents = Arc::new(contents);
                    for i in 0..contents.chunks() {
                        self.check_chunk(&contents, &contents.chunk(i), decode, report);
                        report.chunks += 1;
                    }
                    for column in 0..contents.arrow_schema.fields().len() {
                        report.faults.extend(contents.read_digests(0, column).err());
                    }
                }
                Err(fault) => report.faults.push(fault),
            }
            report.bytes += e.extent.bytes;
            progress.bytes_done.fetch_add(e.extent.bytes, Ordering::Relaxed);
        }
    }

    fn check_chunk(
        &self,
        contents: &Arc<Contents>,
        chunk: &ChunkRef,
        decode: bool,
        report: &mut CheckReport,
    ) {
        for column in 0..contents.arrow_schema.fields().len() {
            if chunk.place(column).is_none() {
                continue;
            }
            let checked = self.read(chunk, &[column]).and_then(|segments| {
                for segment in segments.into_iter().filter(|_| decode) {
                    let measured = measure(&segment.decode_plain()?);
                    let known = contents.chunk_statistics(column);
                    if measured.nulls != known.nulls.value(chunk.chunk) {
                        return Err(Error::corrupt(format!(
                            "{}: chunk {} of column {:?} has {} nulls, its statistics say {}",
                            chunk.extent(),
                            chunk.chunk,
                            contents.arrow_schema.field(column).name(),
                            measured.nulls,
                            known.nulls.value(chunk.chunk)
                        )));
                    }
                }
                Ok(())
            });
            report.faults.extend(checked.err());
        }
    }
}
