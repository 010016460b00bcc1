//! Objects in S3, or in whatever speaks its protocol.
//!
//! The rest of storage is synchronous, `object_store` is not: its futures run on a small runtime of
//! their own, and callers wait on a channel. That works on any thread, also on one of another
//! runtime, which must not be made to poll.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, BackoffConfig, ClientConfigKey as ClientKey, GetOptions,
    MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
};
use thalweg_base::limits::{
    REMOTE_CONNECT_TIMEOUT_MS, REMOTE_GAP_BYTES_MAX, REMOTE_PARTS_MAX, REMOTE_PAUSE_MS_MAX,
    REMOTE_READS_MAX, REMOTE_REQUEST_BYTES_MAX, REMOTE_RETRIES_MAX, REMOTE_RETRY_MS_MAX,
    REMOTE_TIMEOUT_MS,
};
use thalweg_base::{Error, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use vortex::buffer::{Alignment, ByteBuffer, ByteBufferMut};

use super::reading::{ALIGNMENT, check_length, check_ranges, missing, near};
use super::trouble::{CREDENTIALS, answer_lost, broke_off, failed};
use super::{Listed, ObjectWriter, Store};

/// Says whose an object is, in a header kept with it.
const PUT_BY: &str = "thalweg-put-by";

/// Attempts after the first at a request whose answer breaks off.
const BROKEN_OFF_MAX: u32 = 4;

/// A prefix of a bucket.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    objects: Arc<dyn ObjectStore>,
    /// `s3://bucket/prefix`, for messages.
    url: String,
    prefix: Path,
    /// Whether the server was seen to refuse a name that is taken.
    is_conditional: Arc<AtomicBool>,
}

/// How hard to try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub retries_max: usize,
    pub connect_timeout: Duration,
    pub timeout: Duration,
    pub give_up_after: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            retries_max: REMOTE_RETRIES_MAX,
            connect_timeout: Duration::from_millis(REMOTE_CONNECT_TIMEOUT_MS),
            timeout: Duration::from_millis(REMOTE_TIMEOUT_MS),
            give_up_after: Duration::from_millis(REMOTE_RETRY_MS_MAX),
        }
    }
}

impl RemoteStore {
    /// Where and as whom is in `builder`, which takes it from the environment, by the names that
    /// all tools of S3 share: `AWS_ENDPOINT`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, … Asks nothing of
    /// the server yet.
    pub fn s3(
        builder: AmazonS3Builder,
        bucket: &str,
        prefix: &str,
        patience: Patience,
    ) -> Result<Self> {
        let url = format!("s3://{bucket}/{prefix}").trim_end_matches('/').to_owned();
        let set = |key| builder.get_config_value(&key);
        let endpoint = set(Key::S3Endpoint).or_else(|| set(Key::Endpoint)).unwrap_or_default();
        let other_server = !endpoint.is_empty() && !endpoint.contains("amazonaws.com");
        let sources =
            [Key::AccessKeyId, Key::WebIdentityTokenFile, Key::ContainerCredentialsFullUri];
        let anonymous = set(Key::SkipSignature).is_some_and(|skip| skip == "true");
        if other_server && !anonymous && sources.into_iter().all(|key| set(key).is_none()) {
            // The machine would be asked for its role's, which no other server takes.
            return Err(
                Error::user(format!("there are no credentials for \"{url}\"")).hint(CREDENTIALS)
            );
        }
        // Whoever names an endpoint without TLS means it.
        let allow_http = endpoint.starts_with("http://")
            || set(Key::Client(ClientKey::AllowHttp)).is_some_and(|allow| allow == "true");
        let milliseconds = |duration: Duration| format!("{}ms", duration.as_millis());
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_millis(REMOTE_PAUSE_MS_MAX),
                // Each pause is random, up to so many of the last: less than 3 grows too slowly.
                base: 3.,
            },
            max_retries: patience.retries_max,
            retry_timeout: patience.give_up_after,
        };
        let objects = builder
            .with_bucket_name(bucket)
            .with_allow_http(allow_http)
            .with_config(
                Key::Client(ClientKey::ConnectTimeout),
                milliseconds(patience.connect_timeout),
            )
            .with_config(Key::Client(ClientKey::Timeout), milliseconds(patience.timeout))
            .with_retry(retry)
            .build()
            .map_err(|e| {
                Error::user(format!("cannot use \"{url}\": {e}"))
                    .hint("check the environment variables that begin with AWS_")
            })?;
        Ok(RemoteStore::on(Arc::new(objects), url, prefix))
    }

    /// What the requests go through.
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.objects)
    }

    pub fn on(objects: Arc<dyn ObjectStore>, url: String, prefix: &str) -> Self {
        RemoteStore { objects, url, prefix: Path::from(prefix), is_conditional: Arc::default() }
    }

    fn at(&self, name: &str) -> Path {
        self.prefix.parts().chain(Path::from(name).parts()).collect()
    }

    /// Some servers take `If-None-Match` and ignore it: two writers would then overwrite each
    /// other's commits. Two requests settle it, once.
    async fn check_conditional(&self) -> Result<()> {
        if self.is_conditional.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = format!("probe/{}", nonce());
        let path = self.at(&name);
        let first = self.put_new_as(&path, b"1".to_vec().into(), nonce()).await;
        let second = match first {
            Ok(_) => self.put_new_as(&path, b"2".to_vec().into(), nonce()).await,
            failed => failed,
        };
        // Nothing looks for it.
        let _ = self.objects.delete(&path).await;
        if second.map_err(|e| failed("write", &self.locate(&name), e))? {
            return Err(Error::unsupported(format!(
                "\"{}\" ignores the condition of a write (If-None-Match)",
                self.url
            ))
            .detail("without it two writers would overwrite each other's commits")
            .hint(
                "use an object store that has conditional writes: Amazon S3, MinIO, Ceph, R2, …",
            ));
        }
        self.is_conditional.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// False: the name is taken, by somebody else than `me`. An attempt whose answer was lost may
    /// have succeeded: the next is then refused, and the object says that it is ours.
    async fn put_new_as(
        &self,
        path: &Path,
        payload: PutPayload,
        me: String,
    ) -> object_store::Result<bool> {
        let mine = Attributes::from_iter([(Attribute::Metadata(PUT_BY.into()), me.clone())]);
        let mut attempt = 0;
        loop {
            let options = PutOptions {
                mode: PutMode::Create,
                attributes: mine.clone(),
                ..Default::default()
            };
            let refused = match self.objects.put_opts(path, payload.clone(), options).await {
                Ok(_) => return Ok(true),
                Err(e @ object_store::Error::AlreadyExists { .. }) => e,
                Err(e) if answer_lost(&e) && attempt < BROKEN_OFF_MAX => {
                    tokio::time::sleep(pause(attempt)).await;
                    attempt += 1;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let head = GetOptions { head: true, ..Default::default() };
            match self.objects.get_opts(path, head).await {
                Ok(found) => {
                    let by = found.attributes.get(&Attribute::Metadata(PUT_BY.into()));
                    return Ok(by.is_some_and(|by| by.as_ref() == me));
                }
                // Two at the same moment may both be refused, or it was removed since.
                Err(object_store::Error::NotFound { .. }) if attempt < BROKEN_OFF_MAX => {
                    attempt += 1
                }
                Err(object_store::Error::NotFound { .. }) => return Err(refused),
                Err(e) => return Err(e),
            }
        }
    }

    async fn get_whole(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let at = self.at(name);
        match again(|| async { self.objects.get(&at).await?.bytes().await }).await {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(failed("read", &self.locate(name), e)),
        }
    }

    /// The bytes of `wanted`, and of the object how many it has.
    async fn fetch(
        &self,
        path: &Path,
        wanted: Vec<Range<u64>>,
    ) -> object_store::Result<Vec<(Bytes, u64)>> {
        let fetch = |range: Range<u64>| async {
            let options = GetOptions { range: Some(range.into()), ..Default::default() };
            let found = self.objects.get_opts(path, options).await?;
            let object_bytes = found.meta.size;
            Ok((found.bytes().await?, object_bytes))
        };
        stream::iter(wanted).map(fetch).buffered(REMOTE_READS_MAX).try_collect().await
    }
}

/// Without the credentials.
impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteStore").field(&self.url).finish()
    }
}

impl Store for RemoteStore {
    fn locate(&self, name: &str) -> String {
        format!("\"{}/{name}\"", self.url)
    }

    fn path(&self, _name: &str) -> Option<PathBuf> {
        None
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let (store, name, payload) = (self.clone(), name.to_owned(), bytes.to_vec().into());
        run(async move {
            store.check_conditional().await?;
            let put = store.put_new_as(&store.at(&name), payload, nonce()).await;
            put.map_err(|e| failed("write", &store.locate(&name), e))
        })?
    }

    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(Writer {
            store: self.clone(),
            name: name.to_owned(),
            part: Vec::new(),
            bytes: 0,
            upload: None,
            parts: VecDeque::new(),
        }))
    }

    fn read(&self, name: &str, bytes: u64, wanted: &[Range<u64>]) -> Result<Vec<ByteBuffer>> {
        let located = self.locate(name);
        check_ranges(&located, bytes, wanted)?;
        let requests = requests(wanted);
        let (store, path, asked) = (self.clone(), self.at(name), requests.clone());
        let fetched = run(async move {
            match store.fetch(&path, asked).await {
                Ok(fetched) => Ok(fetched),
                Err(e @ object_store::Error::Generic { .. }) => {
                    // A range past the end is refused in many ways.
                    match store.objects.head(&path).await {
                        Ok(meta) => {
                            check_length(&located, bytes, meta.size)?;
                            Err(failed("read", &located, e))
                        }
                        Err(_) => Err(failed("read", &located, e)),
                    }
                }
                Err(e) if is_absent(&e) => Err(missing(&located)),
                Err(e) => Err(failed("read", &located, e)),
            }
        })??;
        let located = self.locate(name);
        for ((part, object_bytes), range) in fetched.iter().zip(&requests) {
            check_length(&located, bytes, *object_bytes)?;
            if part.len() as u64 != range.end - range.start {
                return Err(Error::corrupt(format!("{located} ends within a chunk"))
                    .hint("restore it from a backup"));
            }
        }
        Ok(wanted.iter().map(|range| assemble(range, &requests, &fetched)).collect())
    }

    fn read_ahead(&self, _name: &str, _wanted: &[Range<u64>]) -> bool {
        false
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let (store, name) = (self.clone(), name.to_owned());
        run(async move { store.get_whole(&name).await })?
    }

    fn get_many(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        let (store, names) = (self.clone(), names.to_vec());
        run(async move {
            let store = &store;
            let get = |name: String| async move { store.get_whole(&name).await };
            stream::iter(names).map(get).buffered(REMOTE_READS_MAX).try_collect().await
        })?
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let (store, name) = (self.clone(), name.to_owned());
        run(async move {
            match store.objects.head(&store.at(&name)).await {
                Ok(_) => Ok(true),
                Err(e) if is_absent(&e) => Ok(false),
                Err(e) => Err(failed("read", &store.locate(&name), e)),
            }
        })?
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let (store, folder) = (self.clone(), folder.to_owned());
        run(async move {
            let at = store.at(&folder);
            let found = again(|| store.objects.list_with_delimiter(Some(&at))).await;
            let found = found.map_err(|e| failed("list", &store.locate(&folder), e))?;
            let listed = |object: object_store::ObjectMeta| {
                Some(Listed {
                    name: format!("{folder}{}", object.location.filename()?),
                    bytes: object.size,
                    modified: object.last_modified.into(),
                })
            };
            Ok(found.objects.into_iter().filter_map(listed).collect())
        })?
    }

    fn remove(&self, name: &str) -> Result<()> {
        let (store, name) = (self.clone(), name.to_owned());
        run(async move {
            let at = store.at(&name);
            match again(|| store.objects.delete(&at)).await {
                Err(e) if !is_absent(&e) => Err(failed("remove", &store.locate(&name), e)),
                _ => Ok(()),
            }
        })?
    }

    /// Commits settle who wins: there is nothing to lock that would be free when a process dies.
    fn lock(&self, _wait: Duration) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// Sends parts while more are written. A small object is one request.
struct Writer {
    store: RemoteStore,
    name: String,
    part: Vec<u8>,
    /// Of all that was written.
    bytes: u64,
    upload: Option<Box<dyn MultipartUpload>>,
    /// Under way, oldest first.
    parts: VecDeque<JoinHandle<object_store::Result<()>>>,
}

impl Writer {
    fn send_part(&mut self) -> Result<()> {
        if self.upload.is_none() {
            let (objects, path) = (self.store.objects.clone(), self.store.at(&self.name));
            let start = async move { again(|| objects.put_multipart(&path)).await };
            let started = run(start)?;
            self.upload = Some(started.map_err(|e| self.failed(e))?);
        }
        self.wait_for_parts(REMOTE_PARTS_MAX - 1)?;
        let part = std::mem::take(&mut self.part);
        if let Some(upload) = &mut self.upload {
            self.parts.push_back(runtime()?.spawn(upload.put_part(part.into())));
        }
        Ok(())
    }

    /// Until at most `left` are under way.
    fn wait_for_parts(&mut self, left: usize) -> Result<()> {
        while self.parts.len() > left
            && let Some(part) = self.parts.pop_front()
        {
            match run(part)? {
                Ok(sent) => sent.map_err(|e| self.failed(e))?,
                Err(e) => return Err(Error::internal(format!("sending a part failed: {e}"))),
            }
        }
        Ok(())
    }

    fn failed(&self, e: object_store::Error) -> Error {
        failed("write", &self.store.locate(&self.name), e)
    }
}

impl ObjectWriter for Writer {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) =
                bytes.split_at(bytes.len().min(REMOTE_REQUEST_BYTES_MAX - self.part.len()));
            self.part.extend_from_slice(now);
            bytes = later;
            // All parts but the last are of one size: some servers insist.
            if self.part.len() == REMOTE_REQUEST_BYTES_MAX {
                self.send_part()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let (objects, path) = (self.store.objects.clone(), self.store.at(&self.name));
        if self.upload.is_none() {
            let payload = std::mem::take(&mut self.part).into();
            let put = run(async move { objects.put(&path, payload).await })?;
            return put.map(drop).map_err(|e| self.failed(e));
        }
        if !self.part.is_empty() {
            self.send_part()?;
        }
        self.wait_for_parts(0)?;
        let Some(mut upload) = self.upload.take() else { return Ok(()) };
        let bytes = self.bytes;
        let completed = run(async move {
            match upload.complete().await {
                Ok(_) => Ok(()),
                // The answer to an earlier attempt may have been lost.
                Err(e) => match objects.head(&path).await {
                    Ok(meta) if meta.size == bytes => Ok(()),
                    _ => {
                        let _ = upload.abort().await;
                        Err(e)
                    }
                },
            }
        })?;
        completed.map_err(|e| self.failed(e))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.parts.iter().for_each(|part| part.abort());
        if let Some(mut upload) = self.upload.take() {
            // What stays is charged for until the bucket's rule for unfinished uploads takes it;
            // a server that is gone must not hold us up.
            let limit = Duration::from_secs(5);
            let _ = run(async move { tokio::time::timeout(limit, upload.abort()).await });
        }
    }
}

/// Makes a request, and again if its answer breaks off, which `object_store` tries again for some
/// kinds of request only.
async fn again<T, F>(request: impl Fn() -> F) -> object_store::Result<T>
where
    F: Future<Output = object_store::Result<T>>,
{
    for attempt in 0..BROKEN_OFF_MAX {
        match request().await {
            Err(e) if broke_off(&e) => tokio::time::sleep(pause(attempt)).await,
            done => return done,
        }
    }
    request().await
}

fn pause(attempt: u32) -> Duration {
    Duration::from_millis(100 << attempt)
}

/// The requests that fetch `wanted`: one for near ranges, several for long ones.
fn requests(wanted: &[Range<u64>]) -> Vec<Range<u64>> {
    let size = REMOTE_REQUEST_BYTES_MAX as u64;
    let mut requests = Vec::new();
    for (Range { start, end }, _) in near(wanted, REMOTE_GAP_BYTES_MAX, u64::MAX) {
        let starts = (start..end).step_by(size as usize);
        requests.extend(starts.map(|start| start..(start + size).min(end)));
    }
    requests
}

/// Copies one range out of the parts that cover it.
fn assemble(range: &Range<u64>, parts: &[Range<u64>], fetched: &[(Bytes, u64)]) -> ByteBuffer {
    let bytes = (range.end - range.start) as usize;
    let mut buffer = ByteBufferMut::with_capacity_aligned(bytes, Alignment::new(ALIGNMENT));
    let first = parts.partition_point(|part| part.end <= range.start);
    for (part, (content, _)) in parts[first..].iter().zip(&fetched[first..]) {
        if part.start >= range.end {
            break;
        }
        let start = range.start.max(part.start) - part.start;
        let end = range.end.min(part.end) - part.start;
        buffer.extend_from_slice(&content[start as usize..end as usize]);
    }
    buffer.freeze()
}

/// Not so if it is the bucket that is absent.
fn is_absent(e: &object_store::Error) -> bool {
    matches!(e, object_store::Error::NotFound { .. }) && !e.to_string().contains("NoSuchBucket")
}

pub(super) fn nonce() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}

/// Waits for `work` on the runtime of remote stores.
pub(super) fn run<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let (done, wait) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        // Nobody waits any more if that fails.
        let _ = done.send(work.await);
    });
    wait.recv().map_err(|_| Error::internal("a request to an object store panicked"))
}

pub(super) fn runtime() -> Result<&'static Runtime> {
    // Never dropped: a runtime may not be dropped on a thread of another.
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    // It moves bytes between sockets and memory; TLS is most of its work.
    const THREADS: usize = 2;
    let build = || {
        Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("thalweg-remote")
            .enable_all()
            .build()
    };
    RUNTIME
        .get_or_init(build)
        .as_ref()
        .map_err(|e| Error::resources(format!("cannot start threads for the network: {e}")))
}
