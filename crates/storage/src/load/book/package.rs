//! The parts of a workbook: documents of XML in an archive.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use quick_xml::Reader;
use quick_xml::escape::{resolve_predefined_entity, unescape};
use quick_xml::events::{BytesStart, Event};
use thalweg_base::{Error, Result, text};
use zip::CompressionMethod;

use crate::load::input::{damaged, guarded, shown};

/// Bytes that a part other than a sheet may have, unpacked: it is in memory.
pub(super) const PART_BYTES_MAX: u64 = 512 << 20;
/// Bytes that a sheet may have, unpacked.
pub(super) const SHEET_BYTES_MAX: u64 = 16 << 30;

pub(super) struct Package<'a> {
    pub path: &'a Path,
    file: Arc<File>,
    /// By their names in lower case, which is how they are compared.
    parts: HashMap<String, Place>,
}

#[derive(Clone, Copy)]
struct Place {
    start: u64,
    bytes: u64,
    method: CompressionMethod,
}

impl<'a> Package<'a> {
    pub(super) fn open(path: &'a Path, file: File) -> Result<Self> {
        let file = Arc::new(file);
        let again =
            file.try_clone().map_err(|e| Error::io(format!("cannot open {}", shown(path)), e))?;
        let parts = guarded(path, || {
            let mut archive = zip::ZipArchive::new(BufReader::new(again))?;
            let mut parts = HashMap::new();
            for at in 0..archive.len() {
                let part = archive.by_index_raw(at)?;
                let (start, bytes) = (part.data_start(), part.compressed_size());
                let place = Place { start, bytes, method: part.compression() };
                parts.insert(part.name().trim_start_matches('/').to_lowercase(), place);
            }
            Ok::<_, zip::result::ZipError>(parts)
        })?;
        Ok(Package { path, file, parts })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.parts.contains_key(&name.to_lowercase())
    }

    /// The document called so, of which at most so many bytes are read.
    pub(super) fn part(&self, name: &str, bytes_max: u64) -> Result<Option<Xml<'a>>> {
        let Some(&place) = self.parts.get(&name.to_lowercase()) else { return Ok(None) };
        let packed = Packed { file: Arc::clone(&self.file), at: place.start, left: place.bytes };
        let packed = BufReader::with_capacity(64 << 10, packed);
        let plain: Box<dyn Read + Send> = match place.method {
            CompressionMethod::Stored => Box::new(packed),
            CompressionMethod::DEFLATE => Box::new(flate2::bufread::DeflateDecoder::new(packed)),
            other => {
                return Err(damaged(self.path, &format!("part {name:?} is packed by {other}")));
            }
        };
        let bounded = BufReader::with_capacity(64 << 10, Bounded { plain, left: bytes_max });
        Ok(Some(Xml {
            path: self.path,
            bytes_max,
            reader: Reader::from_reader(bounded),
            buffer: Vec::new(),
        }))
    }
}

/// The bytes of a part as they lie in the file.
struct Packed {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.file.read_at(&mut buffer[..wanted], self.at)?;
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

/// What is unpacked, up to a limit: an archive may claim anything.
struct Bounded {
    plain: Box<dyn Read + Send>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.plain.read(buffer)?;
        self.left = self.left.checked_sub(n as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(n)
    }
}

/// A document that is read from its beginning to its end.
pub(super) struct Xml<'a> {
    path: &'a Path,
    bytes_max: u64,
    reader: Reader<BufReader<Bounded>>,
    buffer: Vec<u8>,
}

impl Xml<'_> {
    /// The next piece, and whether there is none.
    pub(super) fn next(&mut self) -> Result<Event<'_>> {
        self.buffer.clear();
        let (path, bytes_max) = (self.path, self.bytes_max);
        self.reader.read_event_into(&mut self.buffer).map_err(|e| match &e {
            quick_xml::Error::Io(io) if io.kind() == io::ErrorKind::FileTooLarge => {
                let most = text::bytes(bytes_max);
                let what = format!("{} has a part of more than {most} unpacked", shown(path));
                Error::resources(what).hint("save the sheet as CSV")
            }
            other => damaged(path, &other.to_string()),
        })
    }

    /// Appends the texts up to the end of the element that has just begun, called `name`; those in elements
    /// called `t` alone, if `of_runs`.
    pub(super) fn text(&mut self, name: &[u8], of_runs: bool, out: &mut String) -> Result<()> {
        let path = self.path;
        let wrong = |e: quick_xml::Error| damaged(path, &e.to_string());
        // Phonetic readings are no part of the text.
        let (mut in_text, mut phonetic, mut depth) = (!of_runs, 0_u32, 0_u32);
        loop {
            match self.next()? {
                Event::Start(e) => {
                    depth += 1;
                    match e.local_name().as_ref() {
                        b"rPh" => phonetic += 1,
                        b"t" if of_runs && phonetic == 0 => in_text = true,
                        _ => {}
                    }
                }
                Event::End(e) => {
                    match e.local_name().as_ref() {
                        b"rPh" => phonetic = phonetic.saturating_sub(1),
                        b"t" if of_runs => in_text = false,
                        end if end == name && depth == 0 => return Ok(()),
                        _ => {}
                    }
                    depth = depth.saturating_sub(1);
                }
                Event::Text(e) if in_text => {
                    out.push_str(&e.xml10_content().map_err(|e| wrong(e.into()))?);
                }
                Event::CData(e) if in_text => {
                    out.push_str(&e.xml10_content().map_err(|e| wrong(e.into()))?);
                }
                Event::GeneralRef(e) if in_text => match e.resolve_char_ref().map_err(wrong)? {
                    Some(c) => out.push(c),
                    None => {
                        let entity = e.decode().map_err(|e| wrong(e.into()))?;
                        let known = resolve_predefined_entity(&entity);
                        out.push_str(known.ok_or_else(|| damaged(path, "an entity is not known"))?);
                    }
                },
                Event::Eof => return Err(damaged(path, "a part ends early")),
                _ => {}
            }
        }
    }
}

/// An attribute of an element, by its name with its prefix.
pub(super) fn attribute(element: &BytesStart<'_>, name: &[u8]) -> Option<String> {
    let mut all = element.attributes();
    let found = all.with_checks(false).flatten().find(|found| found.key.as_ref() == name)?;
    let raw = String::from_utf8_lossy(&found.value);
    Some(unescape(&raw).map_or_else(|_| raw.to_string(), |value| value.into_owned()))
}

/// The identity of a part that an element names: `id` with whichever prefix.
pub(super) fn relation(element: &BytesStart<'_>) -> Option<String> {
    let mut all = element.attributes();
    let found = all
        .with_checks(false)
        .flatten()
        .find(|found| found.key.prefix().is_some() && found.key.local_name().as_ref() == b"id")?;
    Some(String::from_utf8_lossy(&found.value).into_owned())
}
