//! Batches that a client sends, checked before they are decoded: what a message says of itself
//! must not make the server allocate or compute without bound.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::{self, MessageHeader, root_as_message};
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use futures::stream::unfold;
use futures::{Stream, StreamExt};
use thalweg_base::{Error, Kind, Result};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::service::panicked;
use super::status::malformed;

/// A client that sends nothing for so long in the middle of its rows is given up.
const UPLOAD_IDLE: Duration = Duration::from_secs(600);

/// Messages read ahead of decoding.
const AHEAD_MAX: usize = 1;

/// Rows of one message, and bytes of what it holds once it is decompressed.
const MESSAGE_ROWS_MAX: i64 = 1 << 26;
const DECOMPRESSED_BYTES_MAX: u64 = 1 << 30;

/// Runs `work` with the batches of the call; `None` if it has none. Reading goes on beside it, no
/// faster than it decodes.
pub async fn receive<T>(
    first: FlightData,
    messages: Streaming<FlightData>,
    work: impl AsyncFnOnce(Option<Upload>) -> Result<T>,
) -> Result<T> {
    let (ahead, received) = mpsc::channel(AHEAD_MAX);
    let reading = async {
        read(first, messages, ahead).await;
        // How it ends is up to `work`.
        std::future::pending::<()>().await;
    };
    let working = async {
        let upload = Upload::begin(received).await?;
        work(upload).await
    };
    tokio::select! {
        result = working => result,
        () = reading => unreachable!("it never ends by itself"),
    }
}

async fn read(
    first: FlightData,
    mut messages: Streaming<FlightData>,
    ahead: mpsc::Sender<Result<FlightData>>,
) {
    let mut next = Ok(Some(first));
    loop {
        let message = match next {
            Ok(Some(message)) => Ok(message),
            Ok(None) => return,
            Err(e) => Err(e),
        };
        let failed = message.is_err();
        // Messages without a header carry the command alone.
        let empty = message.as_ref().is_ok_and(|m| m.data_header.is_empty());
        if !empty && ahead.send(message).await.is_err() || failed {
            return;
        }
        next = match tokio::time::timeout(UPLOAD_IDLE, messages.message()).await {
            Ok(message) => message.map_err(|e| broken(&e)),
            Err(_) => Err(Error::cancelled(format!(
                "the client sent nothing for {} s in the middle of its rows",
                UPLOAD_IDLE.as_secs()
            ))),
        };
    }
}

fn broken(status: &Status) -> Error {
    match status.code() {
        // Of a message that is too large.
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => {
            malformed("a message", status.message()).hint("send fewer rows at a time")
        }
        _ => Error::new(Kind::Io, format!("the client broke off: {}", status.message()))
            .code("08006"),
    }
}

/// A schema, and batches of it.
pub struct Upload {
    pub schema: SchemaRef,
    decoder: FlightDataDecoder,
}

impl Upload {
    async fn begin(received: mpsc::Receiver<Result<FlightData>>) -> Result<Option<Upload>> {
        let checked = unfold(received, async |mut received| {
            let message = received.recv().await?;
            let message = message.and_then(|message| check(&message).map(|()| message));
            Some((message.map_err(|e| FlightError::ExternalError(Box::new(e))), received))
        });
        let mut decoder = FlightDataDecoder::new(Box::pin(checked));
        loop {
            match Decoding(&mut decoder).next().await.transpose()? {
                None => return Ok(None),
                Some(DecodedPayload::None) => {}
                Some(DecodedPayload::Schema(schema)) => {
                    return Ok(Some(Upload { schema, decoder }));
                }
                Some(DecodedPayload::RecordBatch(_)) => {
                    return Err(malformed("the upload", "rows come before their schema"));
                }
            }
        }
    }

    pub fn batches(self) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        unfold(Some(self), async |upload| {
            let mut upload = upload?;
            loop {
                let batch = match Decoding(&mut upload.decoder).next().await? {
                    Ok(DecodedPayload::None) => continue,
                    Ok(DecodedPayload::RecordBatch(batch)) => Ok(batch),
                    Ok(DecodedPayload::Schema(_)) => {
                        Err(malformed("the upload", "it has a second schema"))
                    }
                    Err(e) => Err(e),
                };
                let rest = batch.is_ok().then_some(upload);
                return Some((batch, rest));
            }
        })
    }
}

thread_local! {
    /// A panic would be the decoder's: it checks some of its input by assertions.
    pub static IS_DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Bytes of a stranger may make a decoder panic; that ends the upload, and nothing else.
struct Decoding<'a>(&'a mut FlightDataDecoder);

impl Stream for Decoding<'_> {
    type Item = Result<DecodedPayload>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<Option<Self::Item>> {
        let decoder = &mut *self.get_mut().0;
        IS_DECODING.set(true);
        let decoded = catch_unwind(AssertUnwindSafe(|| decoder.poll_next_unpin(cx)));
        IS_DECODING.set(false);
        match decoded {
            Ok(poll) => poll.map(|next| next.map(|n| n.map(|d| d.payload).map_err(ours))),
            Err(panic) => Poll::Ready(Some(Err(malformed("the rows", panicked(&*panic))))),
        }
    }
}

fn ours(error: FlightError) -> Error {
    match error {
        FlightError::ExternalError(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => malformed("the rows", other),
        },
        other => malformed("the rows", other),
    }
}

fn check(message: &FlightData) -> Result<()> {
    let header = root_as_message(&message.data_header).map_err(|e| malformed("the rows", e))?;
    let batch: Option<ipc::RecordBatch<'_>> = match header.header_type() {
        MessageHeader::RecordBatch => header.header_as_record_batch(),
        MessageHeader::DictionaryBatch => {
            header.header_as_dictionary_batch().and_then(|d| d.data())
        }
        _ => None,
    };
    let Some(batch) = batch else { return Ok(()) };
    if !(0..=MESSAGE_ROWS_MAX).contains(&batch.length()) {
        return Err(malformed("the rows", format!("a batch of {} rows", batch.length()))
            .hint("send fewer rows at a time"));
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let end = buffer.offset().checked_add(buffer.length());
        let end = end.filter(|_| buffer.offset() >= 0 && buffer.length() >= 0);
        if end.and_then(|end| usize::try_from(end).ok()).is_none_or(|e| e > message.data_body.len())
        {
            return Err(malformed("the rows", "a buffer lies outside its message"));
        }
    }
    if batch.compression().is_none() {
        return Ok(());
    }
    let mut bytes = 0;
    for buffer in batch.buffers().into_iter().flatten() {
        // Each begins with the number of bytes it has decompressed; -1: it is not compressed.
        let prefix = usize::try_from(buffer.offset())
            .ok()
            .and_then(|offset| message.data_body.get(offset..)?.first_chunk::<8>().copied());
        let length = prefix.map_or(0, i64::from_le_bytes);
        bytes += u64::try_from(length).unwrap_or(0);
        if bytes > DECOMPRESSED_BYTES_MAX {
            return Err(malformed("the rows", "a batch is too large once it is decompressed")
                .hint("send fewer rows at a time"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, NullArray, StringArray};
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::IpcWriteOptions;
    use arrow_flight::encode::FlightDataEncoderBuilder;
    use bytes::Bytes;
    use futures::TryStreamExt;

    use super::*;

    async fn messages(batch: RecordBatch, compression: Option<CompressionType>) -> Vec<FlightData> {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let batches = futures::stream::iter([Ok(batch)]);
        let encoder = FlightDataEncoderBuilder::new().with_options(options).build(batches);
        encoder.try_collect().await.unwrap()
    }

    fn batch() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let texts: StringArray = (0..1000).map(|i| Some(format!("text {i}"))).collect();
        RecordBatch::try_from_iter([("n", numbers), ("t", Arc::new(texts))]).unwrap()
    }

    async fn decode(messages: Vec<FlightData>) -> Result<Vec<RecordBatch>> {
        let (sender, receiver) = mpsc::channel(messages.len().max(1));
        for message in messages {
            sender.try_send(Ok(message)).unwrap();
        }
        drop(sender);
        match Upload::begin(receiver).await? {
            Some(upload) => upload.batches().try_collect().await,
            None => Ok(vec![]),
        }
    }

    #[tokio::test]
    async fn rows_arrive_as_they_were_sent() {
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            let sent = messages(batch(), compression).await;
            assert_eq!(decode(sent).await.unwrap(), [batch()]);
        }
        assert!(decode(vec![]).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_claims_to_be_huge_is_refused() {
        let mut sent = messages(batch(), Some(CompressionType::LZ4_FRAME)).await;
        let mut body = sent[1].data_body.to_vec();
        let length = i64::from_le_bytes(body[..8].try_into().unwrap());
        assert!(length > 0);
        body[..8].copy_from_slice(&(1i64 << 40).to_le_bytes());
        sent[1].data_body = Bytes::from(body);
        let error = decode(sent).await.unwrap_err();
        assert!(error.message().contains("too large"), "{error}");

        let nothing: ArrayRef = Arc::new(NullArray::new(1 << 40));
        let many = RecordBatch::try_from_iter([("n", nothing)]).unwrap();
        let encoder = arrow_flight::utils::batches_to_flight_data(&many.schema(), vec![many]);
        let error = decode(encoder.unwrap()).await.unwrap_err();
        assert!(error.message().contains("1099511627776 rows"), "{error}");
    }

    /// Every byte of every message changed in turn: errors or other rows, but nothing worse.
    #[tokio::test]
    async fn garbage_is_an_error() {
        for compression in [None, Some(CompressionType::LZ4_FRAME)] {
            let sent = messages(batch().slice(0, 3), compression).await;
            for (i, message) in sent.iter().enumerate() {
                for at in 0..message.data_header.len() {
                    let mut changed = sent.clone();
                    let mut header = message.data_header.to_vec();
                    header[at] ^= 0x55;
                    changed[i].data_header = header.into();
                    let _ = decode(changed).await;
                }
                for at in 0..message.data_body.len() {
                    let mut changed = sent.clone();
                    let mut body = message.data_body.to_vec();
                    body[at] ^= 0x55;
                    changed[i].data_body = body.into();
                    let _ = decode(changed).await;
                }
                let mut cut = sent.clone();
                cut[i].data_body = message.data_body.slice(..message.data_body.len() / 2);
                let _ = decode(cut).await;
            }
        }
        let mut out_of_order = messages(batch(), None).await;
        out_of_order.reverse();
        assert!(decode(out_of_order).await.is_err());
    }
}
