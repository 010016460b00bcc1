//! `RemoteStore` before an object store in memory: what needs no network.

use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use thalweg_base::limits::REMOTE_REQUEST_BYTES_MAX;

use super::super::Store;
use super::super::open::{RemoteOptions, is_remote, open};
use super::super::remote::RemoteStore;

pub(super) fn store(objects: &Arc<InMemory>) -> RemoteStore {
    RemoteStore::on(objects.clone(), "s3://bucket/shop".into(), "shop")
}

#[test]
fn lies_below_its_prefix() {
    let objects = Arc::new(InMemory::new());
    let store = store(&objects);
    assert!(store.put_new("log/1.commit", b"one").unwrap());
    assert_eq!(store.locate("log/1.commit"), "\"s3://bucket/shop/log/1.commit\"");
    let list = |folder| {
        let folder = Path::from(folder);
        let listed = futures::executor::block_on(objects.list_with_delimiter(Some(&folder)));
        listed.unwrap().objects
    };
    assert_eq!(list("shop/log").len(), 1);
    assert_eq!(list("shop/log")[0].location.as_ref(), "shop/log/1.commit");
    assert_eq!(list("shop/probe"), [], "what it asked the server with is gone");
}

#[test]
fn sends_large_objects_in_parts_and_reads_them_in_pieces() {
    let objects = Arc::new(InMemory::new());
    let store = store(&objects);
    let bytes = REMOTE_REQUEST_BYTES_MAX * 5 / 2;
    let content: Vec<u8> = (0..bytes).map(|i| (i % 253) as u8).collect();
    for (name, piece) in [("extents/a", 1_000_000), ("extents/b", bytes)] {
        let mut writer = store.create(name).unwrap();
        content.chunks(piece).for_each(|piece| writer.write(piece).unwrap());
        writer.finish().unwrap();
        let part = REMOTE_REQUEST_BYTES_MAX as u64;
        let wanted = [3..7, part - 10..part + 10, part * 2 - 1..bytes as u64];
        let read = store.read(name, bytes as u64, &wanted).unwrap();
        for (buffer, range) in read.iter().zip(wanted) {
            assert!(buffer.as_slice() == &content[range.start as usize..range.end as usize]);
        }
    }
    let mut writer = store.create("extents/dropped").unwrap();
    writer.write(&content).unwrap();
    drop(writer);
    assert!(!store.exists("extents/dropped").unwrap());
}

#[test]
fn answers_on_a_thread_of_another_runtime() {
    let objects = Arc::new(InMemory::new());
    let store = store(&objects);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert!(store.put_new("log/1", b"one").unwrap());
        assert_eq!(store.get("log/1").unwrap().unwrap(), b"one");
        let mut writer = store.create("extents/large").unwrap();
        writer.write(&vec![1; REMOTE_REQUEST_BYTES_MAX + 1]).unwrap();
        writer.finish().unwrap();
        drop(store);
    });
}

#[test]
fn a_location_is_a_path_or_a_url() {
    let options = RemoteOptions { cache_bytes_max: 0, ..Default::default() };
    assert!(
        !is_remote("shop") && !is_remote("/srv/shop") && !is_remote("a:b") && !is_remote("://")
    );
    assert!(is_remote("s3://bucket/shop"));
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path().to_str().unwrap(), &options).unwrap();
    assert!(!store.is_remote());
    assert_eq!(store.path("log/1"), Some(folder.path().join("log/1")));
    for (wrong, hint) in [
        ("s3://", "s3://bucket/prefix"),
        ("s3:///shop", "s3://bucket/prefix"),
        ("file:///srv/shop", "/srv/shop"),
        ("gs://bucket/shop", "AWS_ENDPOINT"),
    ] {
        let error = open(wrong, &options).unwrap_err();
        assert!(error.message().contains(wrong), "{error}");
        assert!(error.hint_text().unwrap().contains(hint), "{error:#}");
    }
    assert_eq!(open("s3://bucket/a/b/", &options).unwrap().locate("x"), "\"s3://bucket/a/b/x\"");
    assert_eq!(open("s3://bucket", &options).unwrap().locate("x"), "\"s3://bucket/x\"");
}

/// A store that lets everybody win, as servers do that ignore the condition.
#[test]
fn refuses_a_server_without_conditional_writes() {
    #[derive(Debug)]
    struct Careless(InMemory);

    impl std::fmt::Display for Careless {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Careless")
        }
    }

    use futures::stream::BoxStream;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMode,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    };

    #[async_trait::async_trait]
    impl ObjectStore for Careless {
        async fn put_opts(
            &self,
            location: &Path,
            payload: PutPayload,
            options: PutOptions,
        ) -> Result<PutResult> {
            let options = PutOptions { mode: PutMode::Overwrite, ..options };
            self.0.put_opts(location, payload, options).await
        }
        async fn put_multipart_opts(
            &self,
            location: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(location, options).await
        }
        async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
            self.0.get_opts(location, options).await
        }
        fn delete_stream(
            &self,
            locations: BoxStream<'static, Result<Path>>,
        ) -> BoxStream<'static, Result<Path>> {
            self.0.delete_stream(locations)
        }
        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(prefix)
        }
        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }
        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }

    let objects = Arc::new(Careless(InMemory::new()));
    let store = RemoteStore::on(objects.clone(), "s3://careless/shop".into(), "shop");
    let error = store.put_new("log/1", b"one").unwrap_err();
    assert!(error.message().contains("If-None-Match"), "{error:#}");
    let left = futures::executor::block_on(objects.head(&Path::from("shop/log/1")));
    assert!(left.is_err(), "nothing is written");
}
