//! A client's bytes, in and out, with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::write::Out;

pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What the client sends, as far as it has been read and not used.
pub struct Input {
    read: ReadHalf<Stream>,
    pub buffer: BytesMut,
}

/// What is to be sent to the client.
pub struct Output {
    write: WriteHalf<Stream>,
    pub out: Out,
    /// Bytes that the client has been sent.
    sent: u64,
}

/// Bytes that are gathered before they are sent.
const OUT_BYTES: usize = 64 << 10;
/// Bytes that are read ahead of their use, only to hear whether the client is there.
const AHEAD_BYTES_MAX: usize = 64 << 10;

pub fn split(stream: Stream, buffer: BytesMut) -> (Input, Output) {
    let (read, write) = tokio::io::split(stream);
    (Input { read, buffer }, Output { write, out: Out::default(), sent: 0 })
}

impl Input {
    /// Reads what there is, at least a byte; false: the client has gone.
    pub async fn fill(&mut self) -> bool {
        // A connection that breaks is one that ends.
        matches!(self.read.read_buf(&mut self.buffer).await, Ok(1..))
    }

    /// Returns once the client has gone. What it sends meanwhile is kept, up to a bound.
    pub async fn gone(&mut self) {
        while self.buffer.len() < AHEAD_BYTES_MAX {
            if !self.fill().await {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Output {
    pub fn is_full(&self) -> bool {
        self.out.0.len() >= OUT_BYTES
    }

    /// Bytes for the client so far, those that are gathered included.
    pub fn count(&self) -> u64 {
        self.sent + self.out.0.len() as u64
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        self.sent += self.out.0.len() as u64;
        self.write.write_all_buf(&mut self.out.0).await?;
        self.write.flush().await
    }

    /// Says that nothing follows.
    pub async fn close(&mut self) {
        // The client may have gone before.
        let _ = self.flush().await;
        let _ = self.write.shutdown().await;
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_read(cx, buffer),
            Stream::Tls(s) => Pin::new(s.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_write(cx, bytes),
            Stream::Tls(s) => Pin::new(s.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_flush(cx),
            Stream::Tls(s) => Pin::new(s.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Stream::Tls(s) => Pin::new(s.as_mut()).poll_shutdown(cx),
        }
    }
}
