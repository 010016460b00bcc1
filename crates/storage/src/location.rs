//! A piece of a file.

use serde::{Deserialize, Serialize};

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    pub offset: u64,
    pub bytes: u32,
    /// CRC-32 of the bytes. Decoders trust what they are given; this is what lets them.
    pub checksum: u32,
}

impl Location {
    pub fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + u64::from(self.bytes)
    }

    /// Whether `bytes` are those that were written.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), String> {
        let found = crc32fast::hash(bytes);
        if found == self.checksum {
            return Ok(());
        }
        Err(format!("checksum {found:08x}, {:08x} was written", self.checksum))
    }
}
