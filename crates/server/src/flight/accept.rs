//! Connections on their way to gRPC.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Poller, Poll, ready};
use std::time::Duration;

use futures::stream::{self, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tonic::transport::server::Connected;

use crate::connections::Connection;
use crate::context::Context;
use crate::metrics::Opened;
use crate::statement::Protocol;

/// Encrypted connections that are ready before gRPC takes them.
const READY_MAX: usize = 16;

/// Pause after an error of `accept`: it may be that there are no more file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// For how long what a client still sends is read after the last was said to it.
const LINGER_MAX: Duration = Duration::from_secs(30);

/// What gRPC knows of the connection of a call.
#[derive(Clone, Default)]
pub struct Peer {
    let_in: Arc<AtomicBool>,
    /// `None` only in tests.
    pub from: Option<IpAddr>,
}

impl Peer {
    /// One of its calls has shown who the client is: from now on it may be silent.
    pub fn let_in(&self) {
        self.let_in.store(true, Ordering::Relaxed);
    }
}

/// Until the stream is dropped, which closes the listener.
pub fn connections(
    listener: TcpListener,
    context: Arc<Context>,
) -> impl Stream<Item = io::Result<Io>> {
    let (ready, receiver) = mpsc::channel(READY_MAX);
    let accepting = tokio::spawn(accept(listener, context, ready));
    let accepting = AbortOnDrop(accepting);
    stream::unfold((receiver, accepting), |(mut receiver, accepting)| async move {
        let io = receiver.recv().await?;
        Some((Ok(io), (receiver, accepting)))
    })
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept(listener: TcpListener, context: Arc<Context>, ready: mpsc::Sender<Io>) {
    let tls = context.tls.as_ref().map(|config| TlsAcceptor::from(for_grpc(config)));
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::warn!("cannot accept a connection: {e}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = match context.connections.open() {
            Ok(connection) => connection,
            Err(e) => {
                // Nothing can be said before HTTP/2 has begun: it is closed.
                tracing::warn!(%address, "connection refused: {e}");
                context.metrics.refused(Protocol::Flight);
                continue;
            }
        };
        // It only makes answers slower.
        let _ = stream.set_nodelay(true);
        let timeout = context.config.handshake_timeout;
        let (tls, ready, context) = (tls.clone(), ready.clone(), Arc::clone(&context));
        tokio::spawn(async move {
            let transport = match tls {
                None => Transport::Plain(stream),
                Some(tls) => match tokio::time::timeout(timeout, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Transport::Tls(Box::new(stream)),
                    Ok(Err(e)) => return tracing::debug!(%address, "no TLS handshake: {e}"),
                    Err(_) => return tracing::debug!(%address, "the TLS handshake took too long"),
                },
            };
            let io = Io {
                transport,
                address,
                peer: Peer { let_in: Arc::default(), from: Some(address.ip()) },
                deadline: Some(Box::pin(tokio::time::sleep(timeout))),
                lingers: None,
                _connection: (connection, context.metrics.connection(Protocol::Flight)),
            };
            // Nobody takes it: the server drains.
            let _ = ready.send(io).await;
        });
    }
}

/// gRPC wants to hear of HTTP/2 in the handshake.
fn for_grpc(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// A connection, which is given up if its client does not show in time who it is.
pub struct Io {
    transport: Transport,
    address: SocketAddr,
    peer: Peer,
    deadline: Option<Pin<Box<Sleep>>>,
    /// The last was said.
    lingers: Option<Pin<Box<Sleep>>>,
    _connection: (Connection, Opened),
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
}

impl Io {
    fn in_time(&mut self, cx: &mut Poller<'_>) -> io::Result<()> {
        let Some(deadline) = &mut self.deadline else { return Ok(()) };
        if self.peer.let_in.load(Ordering::Relaxed) {
            self.deadline = None;
        } else if deadline.as_mut().poll(cx).is_ready() {
            tracing::info!(address = %self.address, "closed: its client did not log in in time");
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Connected for Io {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Poller<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        if read.is_pending() {
            self.in_time(cx)?;
        }
        read
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Poller<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Poller<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// Ready once the client has closed its side, too: a socket that is closed while bytes are
    /// unread drops what it has not sent yet, the last rows.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<io::Result<()>> {
        if self.lingers.is_none() {
            ready!(match &mut self.transport {
                Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
                Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            })?;
        }
        loop {
            let linger = || Box::pin(tokio::time::sleep(LINGER_MAX));
            if self.lingers.get_or_insert_with(linger).as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut unread = [0; 4 << 10];
            let mut unread = ReadBuf::new(&mut unread);
            ready!(self.as_mut().poll_read(cx, &mut unread))?;
            if unread.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::connections::Connections;
    use crate::metrics::Metrics;

    #[test]
    fn the_last_bytes_arrive_though_the_client_still_sends() {
        const BYTES: usize = 8 << 20;
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, address) = listener.accept().await.unwrap();
            let engine = thalweg_engine::Engine::open(":memory:", Default::default()).unwrap();
            let metrics = Metrics::new(&engine, &Default::default()).unwrap();
            let mut io = Io {
                transport: Transport::Plain(stream),
                address,
                peer: Peer::default(),
                deadline: None,
                lingers: None,
                _connection: (
                    Connections::new(1).open().unwrap(),
                    metrics.connection(Protocol::Flight),
                ),
            };
            client.write_all(b"not read by anybody").await.unwrap();
            let serving = tokio::spawn(async move {
                io.write_all(&vec![7; BYTES]).await.unwrap();
                io.shutdown().await.unwrap();
            });
            let (mut reader, _writer) = client.split();
            let mut bytes = vec![0; BYTES];
            // The rest is all in the server's buffers.
            reader.read_exact(&mut bytes[..BYTES / 2]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            reader.read_exact(&mut bytes[BYTES / 2..]).await.unwrap();
            assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
            drop(client);
            serving.await.unwrap();
        });
    }
}
