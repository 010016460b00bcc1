//! The bytes of one input file, on this machine or at an address.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use thalweg_base::{Error, Result};

use super::input::{cannot, shown};
use crate::store::{RemoteFile, facts_of, is_address, remembered_address};

pub(super) enum InputBytes {
    Here(File),
    /// With its length.
    There(Mutex<RemoteFile>),
}

/// The address that a path is, if it is none of this machine.
pub fn address(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| is_address(text))
}

/// What a file at an address is remembered by, which has no secret in it; how many bytes it has, 0 if the
/// server does not say; and a number that another version of it would not have, 0 if there is none.
///
/// # Errors
/// It is not there, or cannot be reached.
pub fn version_there(address: &str) -> Result<(String, u64, u64)> {
    let facts = facts_of(address)?;
    Ok((remembered_address(address), facts.bytes.unwrap_or(0), facts.modified_ns))
}

/// How many bytes the file at an address has, if the server says so.
pub(super) fn bytes_there(address: &str) -> Result<Option<u64>> {
    Ok(facts_of(address)?.bytes)
}

thread_local! {
    /// Why an address gave no bytes to this thread.
    static FAILURE: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// An error as readers of bytes have it. Decoders of other people make a text of it.
fn failed(error: Error) -> io::Error {
    let again = Error::new(error.kind(), error.message());
    let hint = error.hint_text().map(str::to_owned);
    FAILURE.set(Some(hint.into_iter().fold(again, Error::hint)));
    io::Error::other(error)
}

fn kept(error: io::Error) -> io::Error {
    error.downcast::<Error>().map_or_else(|error| error, failed)
}

/// Takes the error of an address that this thread met last.
pub(super) fn failure() -> Option<Error> {
    FAILURE.take()
}

impl InputBytes {
    pub(super) fn open(path: &Path) -> Result<Self> {
        if let Some(address) = address(path) {
            return Ok(InputBytes::There(Mutex::new(RemoteFile::open(address)?)));
        }
        let file = File::open(path).map_err(|e| cannot("open", path, e))?;
        if file.metadata().map_err(|e| cannot("open", path, e))?.is_dir() {
            return Err(Error::user(format!("{} is a folder", shown(path))));
        }
        Ok(InputBytes::Here(file))
    }

    /// Another reader of the same file, from its beginning or from wherever this one is.
    pub(super) fn again(&self) -> io::Result<Self> {
        Ok(match self {
            InputBytes::Here(file) => InputBytes::Here(file.try_clone()?),
            InputBytes::There(file) => {
                InputBytes::There(Mutex::new(file.lock().again().map_err(failed)?))
            }
        })
    }

    pub(super) fn length(&self) -> io::Result<u64> {
        match self {
            InputBytes::Here(file) => Ok(file.metadata()?.len()),
            InputBytes::There(file) => file.lock().length().map_err(failed),
        }
    }

    pub(super) fn read_exact_at(&self, buffer: &mut [u8], start: u64) -> io::Result<()> {
        match self {
            InputBytes::Here(file) => file.read_exact_at(buffer, start),
            InputBytes::There(file) => {
                let mut file = file.lock();
                if !file.knows_ranges() {
                    return file.read_exact_at(buffer, start).map_err(failed);
                }
                // Several requests at a time.
                let again = file.again();
                drop(file);
                again.and_then(|mut file| file.read_exact_at(buffer, start)).map_err(failed)
            }
        }
    }
}

impl Read for InputBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            InputBytes::Here(file) => file.read(buffer),
            InputBytes::There(file) => file.get_mut().read(buffer).map_err(kept),
        }
    }
}

impl Seek for InputBytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            InputBytes::Here(file) => file.seek(to),
            InputBytes::There(file) => file.get_mut().seek(to).map_err(kept),
        }
    }
}

impl Length for InputBytes {
    fn len(&self) -> u64 {
        // Whoever opens a file has asked for it before.
        self.length().unwrap_or(0)
    }
}

impl ChunkReader for InputBytes {
    type T = BufReader<InputBytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let mut other = self.again()?;
        other.seek(SeekFrom::Start(start))?;
        Ok(BufReader::new(other))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // A damaged footer can claim anything.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            let message = format!("{length} bytes at offset {start} leave the file");
            return Err(ParquetError::EOF(message));
        }
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}
