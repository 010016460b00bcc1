//! What the disk does without an engine in between: the yardstick of loads and of cold scans.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::Errno;
use serde_json::Value;
use thalweg_base::{Error, Prng, Result};

use crate::report::load_rate::DiskRate;

const WRITE_BYTES: u64 = 1 << 30;
/// One system call; the kernel has all of it under way at once.
const WRITE_BLOCK_BYTES: usize = 8 << 20;
/// A limit is the best that was seen.
const WRITE_RUNS: usize = 3;
const READ_BLOCK_BYTES: usize = 1 << 20;
/// Reads under way at a time: what keeps an SSD busy.
const READ_DEPTH: usize = 8;
/// Of addresses, offsets and lengths under `O_DIRECT`: the largest block size in use.
const ALIGNMENT: usize = 4096;

/// Writes 1 GiB in sequence to a file in `folder`, until the disk has it.
pub fn write_limit(folder: &Path) -> Result<DiskRate> {
    let path = folder.join("write-limit.tmp");
    let mut block = Aligned::new(WRITE_BLOCK_BYTES);
    let mut prng = Prng::new(1);
    // Not zeros: a disk that compresses or leaves holes would look faster than it is.
    for word in block.bytes().chunks_exact_mut(8) {
        word.copy_from_slice(&prng.next_u64().to_le_bytes());
    }
    let mut write = || -> io::Result<(f64, bool)> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let (mut file, direct) = open_direct(&options, &path)?;
        let started = Instant::now();
        for _ in 0..WRITE_BYTES / WRITE_BLOCK_BYTES as u64 {
            file.write_all(block.bytes())?;
        }
        file.sync_data()?;
        Ok((started.elapsed().as_secs_f64(), direct))
    };
    let runs: io::Result<Vec<(f64, bool)>> = (0..WRITE_RUNS).map(|_| write()).collect();
    // A leftover harms nobody, and the error that matters is that of the writes.
    let _ = std::fs::remove_file(&path);
    let runs = runs.map_err(|e| Error::io(format!("cannot write \"{}\"", path.display()), e))?;
    let seconds = runs.iter().map(|run| run.0).fold(f64::INFINITY, f64::min);
    let how = if runs.iter().all(|run| run.1) { "O_DIRECT and fdatasync" } else { "fdatasync" };
    let method = format!(
        "sequential write of 1 GiB in blocks of 8 MiB, {how}, the best of {WRITE_RUNS} runs"
    );
    Ok(DiskRate::new(WRITE_BYTES, seconds, method))
}

/// Reads whole files as fast as the disk gives them: with fio where it is installed. Not
/// `direct`: through the page cache.
pub fn read(files: &[PathBuf], direct: bool) -> Result<DiskRate> {
    if !direct {
        return read_here(files, false, "built-in reader");
    }
    let whole = |f: &PathBuf| f.metadata().is_ok_and(|m| m.len() >= READ_BLOCK_BYTES as u64);
    if !files.iter().all(whole) {
        return read_here(files, true, "built-in reader (fio reads no file below 1 MiB)");
    }
    match fio(files)? {
        Some(rate) => Ok(rate),
        None => read_here(files, true, "built-in reader (fio is not installed)"),
    }
}

/// `None`: it is not installed.
fn fio(files: &[PathBuf]) -> Result<Option<DiskRate>> {
    let names: Vec<String> =
        files.iter().map(|f| f.to_string_lossy().replace(':', "\\:")).collect();
    let output = Command::new("fio")
        .args(["--name=read", "--readonly", "--rw=read", "--direct=1", "--ioengine=libaio"])
        .arg(format!("--bs={READ_BLOCK_BYTES}"))
        .arg(format!("--iodepth={READ_DEPTH}"))
        .args(["--file_service_type=sequential", "--output-format=json"])
        .arg(format!("--filename={}", names.join(":")))
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("cannot run fio", e)),
    };
    let failed = |why: String| Error::resources("fio did not read the files").detail(why);
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // Warnings come before the object.
    let json: Value = serde_json::from_str(&text[text.find('{').unwrap_or(0)..])
        .map_err(|e| failed(format!("its output is no JSON: {e}")))?;
    let read = &json["jobs"][0]["read"];
    let (Some(bytes), Some(ms)) = (read["io_bytes"].as_u64(), read["runtime"].as_f64()) else {
        return Err(failed("its output has no figures of reads".into()));
    };
    let version = json["fio version"].as_str().unwrap_or("fio");
    let method =
        format!("{version}: O_DIRECT, blocks of 1 MiB in sequence, {READ_DEPTH} under way");
    Ok(Some(DiskRate::new(bytes, ms / 1e3, method)))
}

/// The same access as [`fio`]'s.
fn read_here(files: &[PathBuf], direct: bool, reader: &str) -> Result<DiskRate> {
    let mut opened = vec![];
    let mut all_direct = direct;
    let mut blocks = vec![];
    for path in files {
        let failed = |e| Error::io(format!("cannot read \"{}\"", path.display()), e);
        let mut options = OpenOptions::new();
        options.read(true);
        let (file, is_direct) = match direct {
            true => open_direct(&options, path).map_err(failed)?,
            false => (options.open(path).map_err(failed)?, false),
        };
        all_direct &= is_direct;
        let bytes = file.metadata().map_err(failed)?.len();
        let offsets = (0..bytes).step_by(READ_BLOCK_BYTES);
        blocks.extend(offsets.map(|offset| (opened.len(), offset)));
        opened.push((path, file, bytes));
    }
    let next = AtomicUsize::new(0);
    let read_blocks = || -> Result<u64> {
        let mut buffer = Aligned::new(READ_BLOCK_BYTES);
        let mut total = 0;
        while let Some(&(file, offset)) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (path, file, bytes) = &opened[file];
            let wanted = (bytes - offset).min(READ_BLOCK_BYTES as u64);
            let mut read = 0;
            while read < wanted {
                // The last block is asked for in full: O_DIRECT takes no other length.
                let rest = &mut buffer.bytes()[read as usize..];
                match file.read_at(rest, offset + read) {
                    Ok(0) => break,
                    Ok(n) => read += n as u64,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => {
                        return Err(Error::io(format!("cannot read \"{}\"", path.display()), e));
                    }
                }
            }
            total += read;
        }
        Ok(total)
    };
    let started = Instant::now();
    let totals: Result<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..READ_DEPTH).map(|_| scope.spawn(read_blocks)).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            t.join().unwrap_or_else(|_| Err(Error::internal("a reader's thread panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    let bytes = totals?.iter().sum();
    let how = match (direct, all_direct) {
        (false, _) => "through the page cache",
        (true, true) => "O_DIRECT",
        (true, false) => "without O_DIRECT, which this file system lacks",
    };
    let method = format!("{reader}: {how}, blocks of 1 MiB in sequence, {READ_DEPTH} under way");
    Ok(DiskRate::new(bytes, started.elapsed().as_secs_f64(), method))
}

/// Makes the next read of these files come from the disk. Works for pages that are written back,
/// which those of extents are.
pub fn drop_cache(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let failed =
            |e| Error::io(format!("cannot drop \"{}\" from the page cache", path.display()), e);
        let file = File::open(path).map_err(failed)?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| failed(e.into()))?;
    }
    Ok(())
}

/// Reads files once, so that whoever comes first finds them where the others will: in memory.
pub fn warm(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let read = File::open(path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
        read.map_err(|e| Error::io(format!("cannot read \"{}\"", path.display()), e))?;
    }
    Ok(())
}

/// Files below a folder, and their bytes together.
pub fn usage(folder: &Path) -> Result<(u64, u64)> {
    let failed = |e| Error::io(format!("cannot read \"{}\"", folder.display()), e);
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        let (more_files, more_bytes) = match metadata.is_dir() {
            true => usage(&entry.path())?,
            false => (1, metadata.len()),
        };
        files += more_files;
        bytes += more_bytes;
    }
    Ok((files, bytes))
}

/// Without `O_DIRECT` where the file system has none, such as tmpfs; says which.
fn open_direct(options: &OpenOptions, path: &Path) -> io::Result<(File, bool)> {
    match options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path) {
        Ok(file) => Ok((file, true)),
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            Ok((options.open(path)?, false))
        }
        Err(e) => Err(e),
    }
}

/// Memory at an address that `O_DIRECT` takes.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let memory = vec![0; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Aligned { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_reads_every_byte_once() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = [0, 1, READ_BLOCK_BYTES, 3 * READ_BLOCK_BYTES + 12_345];
        let mut files = vec![];
        for (i, size) in sizes.iter().enumerate() {
            files.push(folder.path().join(format!("f{i}")));
            std::fs::write(&files[i], vec![7; *size]).unwrap();
        }
        drop_cache(&files).unwrap();
        for direct in [true, false] {
            let rate = read_here(&files, direct, "").unwrap();
            assert_eq!(rate.bytes, sizes.iter().sum::<usize>() as u64, "{direct}");
        }
        assert_eq!(usage(folder.path()).unwrap(), (4, sizes.iter().sum::<usize>() as u64));
        let lost = read_here(&[folder.path().join("lost")], true, "").unwrap_err();
        assert!(lost.message().contains("lost"), "{lost}");
    }
}
