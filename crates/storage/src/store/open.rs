//! From what the user typed to a store.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use parking_lot::Mutex;
use thalweg_base::limits::{REMOTE_CACHE_BYTES_MAX, REMOTE_FILE_SILENCE_MS};
use thalweg_base::{Error, Result};

use super::cached::{CachedStore, cannot_cache, folder_for};
use super::remote::{Patience, RemoteStore};
use super::{LocalStore, Store};

/// How to reach what is not on this machine.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Where copies of what was read are kept, for all databases. `None`: the user's cache
    /// directory, if there is one.
    pub cache_folder: Option<PathBuf>,
    /// Of those copies, for each database. 0: none.
    pub cache_bytes_max: u64,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        RemoteOptions { cache_folder: None, cache_bytes_max: REMOTE_CACHE_BYTES_MAX }
    }
}

/// Whether a location is a URL, rather than a path.
pub fn is_remote(location: &str) -> bool {
    scheme(location).is_some()
}

/// Opens the store at a path or at `s3://bucket/prefix`. There need be nothing there yet, and
/// nothing is asked of a server.
pub(crate) fn open(location: &str, options: &RemoteOptions) -> Result<Arc<dyn Store>> {
    match scheme(location) {
        None => Ok(Arc::new(LocalStore::open(Path::new(location)))),
        Some(("s3", rest)) => open_s3(location, rest, options),
        Some(("file", path)) => Err(Error::unsupported(format!("cannot open \"{location}\""))
            .hint(format!("name a directory by its path: {path}"))),
        Some((scheme, _)) => {
            Err(Error::unsupported(format!("cannot open \"{location}\": no store for {scheme}://"))
                .hint("a database is a directory, or s3://bucket/prefix in what speaks the protocol of S3 (AWS_ENDPOINT says where)"))
        }
    }
}

fn scheme(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once("://")?;
    let is_word = !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    is_word.then_some((scheme, rest))
}

fn open_s3(location: &str, rest: &str, options: &RemoteOptions) -> Result<Arc<dyn Store>> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_matches('/');
    if bucket.is_empty() {
        return Err(Error::user(format!("\"{location}\" names no bucket"))
            .hint("a database in an object store is s3://bucket/prefix"));
    }
    let remote = Arc::new(RemoteStore::s3(
        AmazonS3Builder::from_env(),
        bucket,
        prefix,
        Patience::default(),
    )?);
    if options.cache_bytes_max == 0 {
        return Ok(remote);
    }
    let Some(caches) = options.cache_folder.clone().or_else(user_caches) else { return Ok(remote) };
    let folder = folder_for(&caches, location.trim_end_matches('/'));
    match CachedStore::new(remote.clone(), folder.clone(), options.cache_bytes_max) {
        Ok(cached) => Ok(Arc::new(cached)),
        Err(e) if options.cache_folder.is_some() => Err(cannot_cache(&folder, e)),
        // Nobody asked for it there.
        Err(_) => Ok(remote),
    }
}

/// The objects of a bucket, to be read. A request may take as long as its bytes are taken.
pub(super) fn objects(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    /// With their connections, and the proofs of who asks.
    static OPEN: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>> = Mutex::new(BTreeMap::new());
    const OPEN_MAX: usize = 32;
    const LONG: Duration = Duration::from_secs(24 * 3600);
    if let Some(objects) = OPEN.lock().get(bucket) {
        return Ok(Arc::clone(objects));
    }
    let patience = Patience {
        retries_max: 5,
        timeout: LONG,
        give_up_after: Duration::from_millis(REMOTE_FILE_SILENCE_MS),
        ..Patience::default()
    };
    let objects = RemoteStore::s3(AmazonS3Builder::from_env(), bucket, "", patience)?.objects();
    let mut open = OPEN.lock();
    if open.len() >= OPEN_MAX {
        open.clear();
    }
    open.insert(bucket.to_owned(), Arc::clone(&objects));
    Ok(objects)
}

fn user_caches() -> Option<PathBuf> {
    let named = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
    Some(caches.join("thalweg"))
}
