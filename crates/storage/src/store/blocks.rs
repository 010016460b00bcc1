//! Memory for reading files: whole blocks at aligned addresses, as direct reads want it, and used
//! again when its reader is through with it. Memory that was used a moment ago is in the processor's
//! caches, needs no zeros, and was given by the system (and by a host below it) long since.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use vortex::buffer::ByteBuffer;

use super::disk::BLOCK;

/// Kept for the next readers.
const IDLE_BYTES_MAX: usize = 32 << 20;
/// What is allocated is a multiple of it, so that most fits most.
const STEP_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
pub(super) struct Blocks(Arc<Mutex<Idle>>);

#[derive(Debug, Default)]
struct Idle {
    memory: Vec<Vec<u8>>,
    bytes: usize,
}

/// Goes back with its last reader.
struct Filled {
    memory: Vec<u8>,
    wanted: Range<usize>,
    home: Weak<Mutex<Idle>>,
}

impl Blocks {
    /// Has `fill` (a buffer, the offset it is for, and how many of its first bytes are wanted) read the
    /// blocks that `span` is in, and returns the bytes of `span`.
    pub fn read(
        &self,
        span: Range<u64>,
        fill: impl FnOnce(&mut [u8], u64, usize) -> io::Result<()>,
    ) -> io::Result<ByteBuffer> {
        let block = BLOCK as u64;
        let from = span.start - span.start % block;
        let bytes = (span.end.div_ceil(block) * block - from) as usize;
        let memory = self.0.lock().take(bytes + BLOCK);
        let memory =
            memory.unwrap_or_else(|| vec![0; (bytes + BLOCK).next_multiple_of(STEP_BYTES)]);
        let start = memory.as_ptr().align_offset(BLOCK);
        let wanted = start + (span.start - from) as usize..start + (span.end - from) as usize;
        let mut filled = Filled { memory, wanted, home: Arc::downgrade(&self.0) };
        fill(&mut filled.memory[start..start + bytes], from, (span.end - from) as usize)?;
        Ok(ByteBuffer::from(Bytes::from_owner(filled)))
    }

    #[cfg(test)]
    pub fn idle_bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

impl Idle {
    /// The smallest that has so many.
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fits = self.memory.iter().enumerate().filter(|(_, memory)| memory.len() >= bytes);
        let (at, _) = fits.min_by_key(|(_, memory)| memory.len())?;
        let memory = self.memory.swap_remove(at);
        self.bytes -= memory.len();
        Some(memory)
    }
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.wanted.clone()]
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let memory = std::mem::take(&mut self.memory);
        let mut idle = home.lock();
        if idle.bytes + memory.len() <= IDLE_BYTES_MAX {
            idle.bytes += memory.len();
            idle.memory.push(memory);
        }
    }
}
