//! Archives with one file in it.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use thalweg_base::{Error, Result, text};
use zip::CompressionMethod;

use super::input::{Counted, damaged, guarded, shown};
use super::source::InputBytes;

/// The one file of a ZIP archive, unpacked.
pub(super) fn open(
    path: &Path,
    file: InputBytes,
    done: Arc<AtomicU64>,
) -> Result<Box<dyn Read + Send>> {
    let directory = file.again().map_err(|e| super::input::cannot("open", path, e))?;
    let (start, bytes, checksum, method) = guarded(path, || {
        let mut archive = zip::ZipArchive::new(BufReader::new(directory))?;
        let mut found = Vec::new();
        for index in 0..archive.len() {
            let entry = archive.by_index_raw(index)?;
            // What macOS adds to every archive.
            if entry.is_file() && !entry.name().starts_with("__MACOSX/") {
                found.push((index, entry.name().to_owned()));
            }
        }
        if let [(index, _)] = found.as_slice() {
            let entry = archive.by_index_raw(*index)?;
            let place = (entry.data_start(), entry.compressed_size(), entry.crc32());
            return Ok::<_, zip::result::ZipError>(Ok((
                place,
                entry.compression(),
                entry.encrypted(),
            )));
        }
        Ok(Err(found))
    })?
    .map_err(|found: Vec<(usize, String)>| several(path, &found))
    .and_then(|((start, bytes, checksum), method, encrypted)| match encrypted {
        true => Err(Error::unsupported(format!("{} is encrypted", shown(path)))
            .hint("unpack it with its password first")),
        false => Ok((start, bytes, checksum, method)),
    })?;
    let mut file = Counted { file, done };
    file.file.seek(SeekFrom::Start(start)).map_err(|e| damaged(path, &e.to_string()))?;
    let packed = BufReader::with_capacity(128 * 1024, file).take(bytes);
    let plain: Box<dyn Read + Send> = match method {
        CompressionMethod::Stored => Box::new(packed),
        CompressionMethod::DEFLATE => Box::new(flate2::bufread::DeflateDecoder::new(packed)),
        other => {
            return Err(Error::unsupported(format!("{} is packed by {other}", shown(path)))
                .hint("unpack it first, for example `unzip FILE.zip`"));
        }
    };
    Ok(Box::new(Checked { plain, hasher: crc32fast::Hasher::new(), checksum }))
}

fn several(path: &Path, found: &[(usize, String)]) -> Error {
    let names: Vec<String> = found.iter().take(5).map(|(_, name)| text::quoted(name)).collect();
    match names.as_slice() {
        [] => Error::user(format!("{} has no file in it", shown(path))).hint("leave it out"),
        _ => Error::unsupported(format!("{} has {} files in it", shown(path), found.len()))
            .detail(format!("they are {}", names.join(", ")))
            .hint("an archive is read if it has one; unzip it first, for example `unzip FILE.zip -d DIR`, and load the folder"),
    }
}

/// Compares what was read with its checksum when all of it has been.
struct Checked {
    plain: Box<dyn Read + Send>,
    hasher: crc32fast::Hasher,
    checksum: u32,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.plain.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        if n == 0 && !buffer.is_empty() && self.hasher.clone().finalize() != self.checksum {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is wrong"));
        }
        Ok(n)
    }
}
