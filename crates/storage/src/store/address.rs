//! Files at addresses: `https://…`, `http://…` and `s3://…`, read as if they lay here.
//!
//! One request gives a file from its beginning to its end, as fast as it is taken; parts of it, as readers
//! of Parquet want them, are requests for ranges. A server that knows no ranges gives all of it, into a
//! temporary file. What changes while it is read is found out by its size and its tag.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::executor::block_on;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, LAST_MODIFIED, RANGE};
use reqwest::{Client, Response, StatusCode, Url};
use thalweg_base::limits::{REMOTE_CONNECT_TIMEOUT_MS, REMOTE_FILE_SILENCE_MS};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Kind, Result};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::open::objects;
use super::remote::{run, runtime};
use super::trouble::failed;

/// Pieces of a stream that wait to be taken.
const PIECES_AHEAD: usize = 16;
/// Attempts at a request that did not come through, or that the server could not take just now.
const ATTEMPTS: u32 = 4;
const SILENCE: Duration = Duration::from_millis(REMOTE_FILE_SILENCE_MS);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const REDIRECTS_MAX: usize = 10;
/// Objects that are looked through for those that a pattern means.
const OBJECTS_MAX: usize = 1_000_000;
/// Bytes that are read and dropped, where a new request would take longer.
const GAP_BYTES_MAX: u64 = 1 << 20;

/// Whether a path is the address of a file.
pub fn is_address(path: &str) -> bool {
    ["http://", "https://", "s3://"].iter().any(|scheme| {
        path.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })
}

/// An address for messages and logs: what is secret of it stands behind the path, or before the host.
pub fn shown_address(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    if scheme.eq_ignore_ascii_case("s3") {
        return address.to_owned();
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let host_end = rest.find('/').unwrap_or(rest.len());
    let host = rest[..host_end].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[host..])
}

/// What a file at an address is remembered by: without what is secret, and still another one than what
/// the same path gives to another query.
pub fn remembered_address(address: &str) -> String {
    let shown = shown_address(address);
    match shown == address {
        true => shown,
        false => format!("{shown}#{:016x}", number_of(address)),
    }
}

/// Where a file is.
#[derive(Clone)]
struct Address {
    /// As it was given, for messages.
    text: String,
    way: Way,
}

#[derive(Clone)]
enum Way {
    Web(Client, Url),
    Object(Arc<dyn ObjectStore>, ObjectPath),
}

/// What is known of a file before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `None`: the server does not say; it makes the file while it sends it.
    pub bytes: Option<u64>,
    /// Nanoseconds since 1970, or a number made of the tag, so that another file has another one; 0: the
    /// server says nothing by which a file that was changed could be told.
    pub modified_ns: u64,
    tag: Option<String>,
}

impl Facts {
    fn differs(&self, other: &Facts) -> bool {
        fn other_one<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> bool {
            a.zip(b).is_some_and(|(a, b)| a != b)
        }
        other_one(self.bytes.as_ref(), other.bytes.as_ref())
            || other_one(self.tag.as_ref(), other.tag.as_ref())
    }
}

/// An answer that is about to give its bytes.
struct Coming {
    facts: Facts,
    /// Whether these are the bytes of the range that was asked for, and not the whole file.
    is_part: bool,
    body: Body,
}

enum Body {
    Web(Response),
    Object(futures::stream::BoxStream<'static, object_store::Result<Bytes>>),
}

impl Address {
    fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::user(format!("{} is no address of a file: {why}", quoted(&shown_address(text))))
                .hint("an address is https://host/path/file.csv or s3://bucket/path/file.csv")
        };
        let url = Url::parse(text).map_err(|e| wrong(&e.to_string()))?;
        let text = text.to_owned();
        if url.scheme() == "s3" {
            let bucket = url.host_str().ok_or_else(|| wrong("it names no bucket"))?;
            let key = text.splitn(4, '/').nth(3).unwrap_or_default();
            let key = ObjectPath::parse(key).map_err(|e| wrong(&e.to_string()))?;
            if key.as_ref().is_empty() {
                return Err(wrong("it names no object of the bucket"));
            }
            return Ok(Address { way: Way::Object(objects(bucket)?, key), text });
        }
        if url.password().is_some() || !url.username().is_empty() {
            // Not shown: addresses stand in logs.
            return Err(Error::unsupported(
                "an address with a user's name or password is not read",
            )
            .hint("use one that is signed, or fetch the file first"));
        }
        Ok(Address { text, way: Way::Web(client()?, url) })
    }

    fn shown(&self) -> String {
        quoted(&shown_address(&self.text))
    }

    async fn get(&self, from: u64, to: Option<u64>) -> Result<Coming> {
        match &self.way {
            Way::Web(client, url) => {
                let range = match to {
                    Some(to) => Some(format!("bytes={from}-{}", to - 1)),
                    None if from > 0 => Some(format!("bytes={from}-")),
                    None => None,
                };
                let response = self.answered(|| {
                    let request = client.get(url.clone());
                    match &range {
                        Some(range) => request.header(RANGE, range),
                        None => request,
                    }
                });
                let response = response.await.map_err(Failure::error)?;
                let is_part = response.status() == StatusCode::PARTIAL_CONTENT || range.is_none();
                let facts = facts(response.headers());
                Ok(Coming { facts, is_part, body: Body::Web(response) })
            }
            Way::Object(objects, path) => {
                let range = match to {
                    Some(to) => Some(GetRange::Bounded(from..to)),
                    None if from > 0 => Some(GetRange::Offset(from)),
                    None => None,
                };
                let options = GetOptions { range, ..GetOptions::default() };
                let found = self.of_objects(objects.get_opts(path, options)).await?;
                let facts = of_meta(&found.meta);
                Ok(Coming { facts, is_part: true, body: Body::Object(found.into_stream()) })
            }
        }
    }

    /// The bytes from `at` on of what was `then`, when the connection broke there.
    async fn rest(&self, at: u64, then: &Facts) -> Option<Body> {
        let coming = self.get(at, None).await.ok()?;
        let is_same = coming.facts.tag.is_some() && !coming.facts.differs(then);
        (coming.is_part && is_same).then_some(coming.body)
    }

    async fn head(&self) -> Result<Facts> {
        match &self.way {
            Way::Web(client, url) => {
                match self.answered(|| client.head(url.clone())).await {
                    Ok(response) => {
                        let facts = facts(response.headers());
                        if facts.bytes.is_some() {
                            return Ok(facts);
                        }
                    }
                    // Not every server answers to HEAD.
                    Err(Failure::Refused(_)) => {}
                    Err(failure) => return Err(failure.error()),
                }
                let response = self.answered(|| client.get(url.clone())).await;
                let response = response.map_err(Failure::error)?;
                Ok(facts(response.headers()))
            }
            Way::Object(objects, path) => Ok(of_meta(&self.of_objects(objects.head(path)).await?)),
        }
    }

    /// The answer to a request, which is made again where that may help.
    async fn answered(
        &self,
        request: impl Fn() -> reqwest::RequestBuilder,
    ) -> Result<Response, Failure> {
        let mut pause = FIRST_PAUSE;
        let mut again = ATTEMPTS;
        loop {
            again -= 1;
            match timeout(SILENCE, request().send()).await {
                Ok(Ok(response)) if response.status().is_success() => return Ok(response),
                Ok(Ok(response)) => {
                    let status = response.status();
                    let is_passing =
                        status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                    if !is_passing || again == 0 {
                        return Err(Failure::Refused(self.refused(status)));
                    }
                }
                Ok(Err(e)) if e.is_redirect() || e.is_timeout() || again == 0 => {
                    return Err(self.broken(&e));
                }
                Ok(Err(_)) => {}
                Err(_) => return Err(Failure::Silent(self.silent())),
            }
            sleep(pause).await;
            pause *= 3;
        }
    }

    /// What an object store answers, within its time.
    async fn of_objects<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        match timeout(SILENCE, request).await {
            Ok(answer) => answer.map_err(|e| self.of_object(e)),
            Err(_) => Err(self.silent()),
        }
    }

    fn refused(&self, status: StatusCode) -> Error {
        let hint = match status.as_u16() {
            401 | 403 => {
                "the server wants to know who asks: use an address that is signed, or fetch the file first"
            }
            404 | 410 => "check the address",
            _ => "try again later, or fetch the file first",
        };
        let message = format!("cannot read {}: the server answered {status}", self.shown());
        Error::new(Kind::Io, message).hint(hint)
    }

    fn broken(&self, e: &reqwest::Error) -> Failure {
        if e.is_timeout() && !e.is_connect() {
            return Failure::Silent(self.silent());
        }
        if e.is_body() || e.is_decode() {
            return Failure::Broken(self.short());
        }
        let mut cause: &dyn std::error::Error = e;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let cause = cause.to_string();
        let hint = if e.is_redirect() {
            "check the address: the server sends from one to the next"
        } else if cause.contains("certificate") {
            "if you trust the server, name a file with the certificate of who vouches for it in the environment variable SSL_CERT_FILE"
        } else {
            "check the address, and that this machine reaches the server: HTTPS_PROXY, HTTP_PROXY and NO_PROXY say which way"
        };
        let what = format!("cannot read {}: {cause}", self.shown());
        Failure::Broken(Error::new(Kind::Io, what).hint(hint))
    }

    fn of_object(&self, e: object_store::Error) -> Error {
        failed("read", &self.shown(), e)
    }

    fn silent(&self) -> Error {
        let seconds = SILENCE.as_secs();
        let what = format!("cannot read {}: the server said nothing for {seconds} s", self.shown());
        Error::new(Kind::Io, what).hint("try again later, or fetch the file first")
    }

    fn short(&self) -> Error {
        Error::new(
            Kind::Io,
            format!("{} is cut short: the server sent less than it announced", self.shown()),
        )
        .hint("try again later, or fetch the file first")
    }

    async fn piece(&self, body: &mut Body) -> Result<Option<Bytes>, Failure> {
        let next = async {
            match body {
                Body::Web(response) => response.chunk().await.map_err(|e| self.broken(&e)),
                // The store has tried again itself.
                Body::Object(stream) => {
                    stream.next().await.transpose().map_err(|e| Failure::Refused(self.of_object(e)))
                }
            }
        };
        timeout(SILENCE, next).await.unwrap_or_else(|_| Err(Failure::Silent(self.silent())))
    }
}

/// Why bytes do not come.
enum Failure {
    /// The server says so.
    Refused(Error),
    /// It is not reached, or no longer.
    Broken(Error),
    Silent(Error),
}

impl Failure {
    fn error(self) -> Error {
        match self {
            Failure::Refused(error) | Failure::Broken(error) | Failure::Silent(error) => error,
        }
    }
}

fn client() -> Result<Client> {
    static CLIENT: OnceLock<reqwest::Result<Client>> = OnceLock::new();
    let build = || {
        Client::builder()
            .user_agent(concat!("thalweg/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_millis(REMOTE_CONNECT_TIMEOUT_MS))
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::limited(REDIRECTS_MAX))
            .build()
    };
    let made = CLIENT.get_or_init(build).as_ref();
    made.cloned().map_err(|e| Error::internal(format!("cannot prepare requests: {e}")))
}

fn facts(headers: &HeaderMap) -> Facts {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // `bytes 0-99/1234`
    let bytes = match text(CONTENT_RANGE).and_then(|range| range.rsplit_once('/')) {
        Some((_, total)) => total.parse().ok(),
        None => text(CONTENT_LENGTH).and_then(|length| length.parse().ok()),
    };
    // A weak tag says whether the content is the same, which is what is asked.
    let tag = text(ETAG).map(|tag| tag.trim_start_matches("W/")).or_else(|| text(LAST_MODIFIED));
    let modified_ns = tag.map_or(0, number_of);
    Facts { bytes, modified_ns, tag: tag.map(str::to_owned) }
}

fn of_meta(meta: &ObjectMeta) -> Facts {
    let modified = std::time::SystemTime::from(meta.last_modified).duration_since(UNIX_EPOCH);
    Facts {
        bytes: Some(meta.size),
        modified_ns: modified.map_or(0, |modified| modified.as_nanos() as u64),
        tag: meta.e_tag.clone(),
    }
}

/// A number of a tag that is the same in every process (FNV-1a).
fn number_of(tag: &str) -> u64 {
    tag.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What is known of the file at an address: asks the server.
///
/// # Errors
/// It is not there, or cannot be reached.
pub fn facts_of(address: &str) -> Result<Facts> {
    let address = Address::parse(address)?;
    run(async move { address.head().await })?
}

/// The addresses of the objects that `is_meant` says to be, of those below `folder`, which is an address of
/// an object store and ends in `/`; in their order.
///
/// # Errors
/// The store cannot be reached, or there are too many of them.
pub fn objects_below(folder: &str, is_meant: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let (bucket, prefix) = match folder.splitn(4, '/').collect::<Vec<_>>()[..] {
        [_, _, bucket, prefix] if !bucket.is_empty() => (bucket, prefix),
        _ => return Err(Error::user(format!("{} names no bucket", quoted(folder)))),
    };
    let (store, shown) = (objects(bucket)?, quoted(folder));
    let path = ObjectPath::parse(prefix.trim_end_matches('/'))
        .map_err(|e| Error::user(format!("{shown} is no address: {e}")))?;
    let listed: Vec<String> = run(async move {
        let mut listed = vec![];
        let mut found = store.list(Some(&path));
        while let Some(next) = timeout(SILENCE, found.next()).await.transpose() {
            let silent =
                |_| Error::new(Kind::Io, format!("cannot list {shown}: it takes too long"));
            let meta = next.map_err(silent)?.map_err(|e| failed("list", &shown, e))?;
            if listed.len() == OBJECTS_MAX {
                return Err(Error::resources(format!(
                    "{shown} has more than {OBJECTS_MAX} objects"
                ))
                .hint("name a folder further inside"));
            }
            listed.push(meta.location.to_string());
        }
        Ok::<_, Error>(listed)
    })??;
    let address = |key: &String| format!("s3://{bucket}/{key}");
    let mut meant: Vec<String> = listed.iter().map(address).filter(|a| is_meant(a)).collect();
    meant.sort();
    Ok(meant)
}

/// A file at an address.
pub struct RemoteFile {
    address: Arc<Address>,
    /// Where the next byte is read.
    at: u64,
    stream: Option<Stream>,
    /// Bytes that were read, and where they begin.
    held: (u64, Bytes),
    /// The whole file, from a server that knows no ranges.
    copy: Option<File>,
    facts: Option<Facts>,
    knows_ranges: bool,
}

struct Stream {
    pieces: mpsc::Receiver<Result<Bytes>>,
    /// Where its next piece begins.
    at: u64,
}

impl RemoteFile {
    /// Asks nothing of the server yet.
    ///
    /// # Errors
    /// It is no address.
    pub fn open(address: &str) -> Result<Self> {
        Ok(RemoteFile::at(Arc::new(Address::parse(address)?)))
    }

    fn at(address: Arc<Address>) -> Self {
        let held = (0, Bytes::new());
        let (stream, copy, facts) = (None, None, None);
        RemoteFile { address, at: 0, stream, held, copy, facts, knows_ranges: false }
    }

    /// Another reader of the same file.
    pub fn again(&self) -> Result<Self> {
        let mut other = RemoteFile::at(Arc::clone(&self.address));
        other.facts.clone_from(&self.facts);
        other.knows_ranges = self.knows_ranges;
        if let Some(copy) = &self.copy {
            let copy =
                copy.try_clone().map_err(|e| Error::io("cannot open a temporary file", e))?;
            other.copy = Some(copy);
        }
        Ok(other)
    }

    /// Whether parts of the file may be asked for: so the server answered.
    pub fn knows_ranges(&self) -> bool {
        self.knows_ranges
    }

    /// Of a server that does not say, the file has to be copied.
    pub fn length(&mut self) -> Result<u64> {
        if self.facts.is_none() {
            let address = Arc::clone(&self.address);
            self.facts = Some(run(async move { address.head().await })??);
        }
        if let Some(bytes) = self.facts.as_ref().and_then(|facts| facts.bytes) {
            return Ok(bytes);
        }
        if self.copy.is_none() {
            self.fetch()?;
        }
        let length = self.copy.as_ref().map(|copy| copy.metadata().map(|meta| meta.len()));
        length.unwrap_or(Ok(0)).map_err(|e| Error::io("cannot read a temporary file", e))
    }

    /// # Errors
    /// The file is not what it was at first.
    fn check(&mut self, now: Facts) -> Result<()> {
        match &self.facts {
            Some(then) if then.differs(&now) => Err(Error::conflict(format!(
                "{} was changed while it was read",
                self.address.shown()
            ))
            .hint("run the statement again")),
            Some(_) => Ok(()),
            None => {
                self.facts = Some(now);
                Ok(())
            }
        }
    }

    /// The bytes from `start` on that fill the buffer.
    pub fn read_exact_at(&mut self, buffer: &mut [u8], start: u64) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let end = start + buffer.len() as u64;
        if self.copy.is_none() {
            let address = Arc::clone(&self.address);
            let part = run(async move {
                let mut coming = address.get(start, Some(end)).await?;
                let mut bytes = BytesMut::new();
                while coming.is_part
                    && bytes.len() as u64 <= end - start
                    && let Some(piece) =
                        address.piece(&mut coming.body).await.map_err(Failure::error)?
                {
                    bytes.extend_from_slice(&piece);
                }
                Ok::<_, Error>((coming.facts, coming.is_part, bytes))
            })??;
            let (facts, is_part, bytes) = part;
            self.check(facts)?;
            if is_part {
                self.knows_ranges = true;
                if bytes.len() != buffer.len() {
                    return Err(self.address.short());
                }
                buffer.copy_from_slice(&bytes);
                return Ok(());
            }
            self.fetch()?;
        }
        let copied = self.copy.as_ref().map(|copy| copy.read_exact_at(buffer, start));
        match copied {
            Some(Ok(())) => Ok(()),
            _ => Err(self.address.short()),
        }
    }

    /// Copies the whole file into one of this machine that is gone with the process.
    fn fetch(&mut self) -> Result<()> {
        let failed = |e| Error::io("cannot write a temporary file", e);
        let mut copy = tempfile::tempfile().map_err(failed)?;
        let mut stream = self.stream_from(0)?;
        let mut length = 0;
        while let Some(piece) = block_on(stream.pieces.recv()) {
            let piece = piece?;
            copy.write_all(&piece).map_err(failed)?;
            length += piece.len() as u64;
        }
        if self.facts.as_ref().and_then(|facts| facts.bytes).is_some_and(|bytes| bytes != length) {
            return Err(self.address.short());
        }
        self.copy = Some(copy);
        Ok(())
    }

    fn stream_from(&mut self, from: u64) -> Result<Stream> {
        let address = Arc::clone(&self.address);
        let (coming, from) = run(async move {
            let coming = address.get(from, None).await?;
            let from = if coming.is_part { from } else { 0 };
            Ok::<_, Error>((coming, from))
        })??;
        self.check(coming.facts.clone())?;
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        let (address, then, mut body) = (Arc::clone(&self.address), coming.facts, coming.body);
        runtime()?.spawn(async move {
            let (mut at, mut again) = (from, ATTEMPTS);
            loop {
                let mut piece = address.piece(&mut body).await.transpose();
                if let Some(Err(Failure::Broken(_))) = &piece
                    && again > 0
                    && let Some(rest) = address.rest(at, &then).await
                {
                    again -= 1;
                    body = rest;
                    piece = address.piece(&mut body).await.transpose();
                }
                let Some(piece) = piece else { return };
                at += piece.as_ref().map_or(0, Bytes::len) as u64;
                let is_last = piece.is_err();
                // Nobody wants more.
                if sender.send(piece.map_err(Failure::error)).await.is_err() || is_last {
                    return;
                }
            }
        });
        Ok(Stream { pieces, at: from })
    }

    fn next_bytes(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let (start, held) = &self.held;
            if let Some(skip) = self.at.checked_sub(*start)
                && skip < held.len() as u64
            {
                let rest = &held[skip as usize..];
                let n = rest.len().min(buffer.len());
                buffer[..n].copy_from_slice(&rest[..n]);
                self.at += n as u64;
                return Ok(n);
            }
            if let Some(copy) = &self.copy {
                let n = copy.read_at(buffer, self.at);
                let n = n.map_err(|e| Error::io("cannot read a temporary file", e))?;
                self.at += n as u64;
                return Ok(n);
            }
            // What is asked beyond the end is no range.
            let bytes = self.facts.as_ref().and_then(|facts| facts.bytes);
            if bytes.is_some_and(|bytes| self.at >= bytes) {
                return Ok(0);
            }
            // What lies between may not be worth a new request.
            let fits = self.stream.as_ref().is_some_and(|stream| {
                self.at.checked_sub(stream.at).is_some_and(|gap| gap <= GAP_BYTES_MAX)
            });
            if !fits {
                let stream = self.stream_from(self.at)?;
                if stream.at < self.at {
                    // The server knows no ranges.
                    self.fetch()?;
                    continue;
                }
                self.stream = Some(stream);
            }
            let Some(stream) = &mut self.stream else { return Ok(0) };
            match block_on(stream.pieces.recv()) {
                Some(piece) => {
                    let piece = piece?;
                    let start = stream.at;
                    stream.at += piece.len() as u64;
                    self.held = (start, piece);
                }
                None => {
                    let bytes = self.facts.as_ref().and_then(|facts| facts.bytes);
                    let is_short = bytes.is_some_and(|bytes| stream.at < bytes);
                    return if is_short { Err(self.address.short()) } else { Ok(0) };
                }
            }
        }
    }
}

impl Read for RemoteFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.next_bytes(buffer).map_err(io::Error::other)
    }
}

impl Seek for RemoteFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.length().map_err(io::Error::other)?.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        // Bytes that lie far back are asked for anew.
        if self.stream.as_ref().is_some_and(|stream| stream.at > self.at) && self.at < self.held.0 {
            self.stream = None;
        }
        Ok(self.at)
    }
}
