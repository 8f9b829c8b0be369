//! Connections, with how long a client has kept an answer waiting.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes in both directions.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Times of a connection, in milliseconds since it was accepted.
#[derive(Debug)]
pub(super) struct RequestTimes {
    accepted: Instant,
    /// When the first byte of the next request arrived; 0 if there is none.
    begun_ms: AtomicU64,
    /// When the open request arrived; 0 if there is none.
    asked_ms: AtomicU64,
    /// When the last answer was written.
    answered_ms: AtomicU64,
}

impl RequestTimes {
    pub(super) fn new() -> Self {
        Self {
            accepted: Instant::now(),
            begun_ms: AtomicU64::new(0),
            asked_ms: AtomicU64::new(0),
            answered_ms: AtomicU64::new(0),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.accepted.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Bytes have arrived: the head of a request begins, unless one is open.
    fn begin(&self) {
        if self.begun_ms.load(Ordering::Relaxed) == 0 && self.busy_ms().is_none() {
            self.begun_ms.store(self.now_ms().max(1), Ordering::Relaxed);
        }
    }

    /// A request has arrived.
    pub(super) fn ask(&self) {
        self.begun_ms.store(0, Ordering::Relaxed);
        self.asked_ms.store(self.now_ms().max(1), Ordering::Relaxed);
    }

    /// All that was to be written has been.
    fn answer(&self) {
        if self.asked_ms.swap(0, Ordering::Relaxed) != 0 {
            self.answered_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    /// How long the head of a request has been incomplete, ms; `None` if none has begun.
    pub(super) fn head_ms(&self) -> Option<u64> {
        self.since(&self.begun_ms)
    }

    /// How long a request has been open, ms; `None` if there is none.
    pub(super) fn busy_ms(&self) -> Option<u64> {
        self.since(&self.asked_ms)
    }

    /// Time since `start`, ms; `None` if that is 0.
    fn since(&self, start: &AtomicU64) -> Option<u64> {
        let start_ms = start.load(Ordering::Relaxed);
        (start_ms != 0).then(|| self.now_ms().saturating_sub(start_ms))
    }

    /// How long there was no answer, ms.
    pub(super) fn silent_ms(&self) -> u64 {
        let answered_ms = self.answered_ms.load(Ordering::Relaxed);
        self.now_ms().saturating_sub(answered_ms)
    }
}

/// A connection that notes when requests begin and answers are written.
pub(super) struct TimedStream<'a> {
    pub(super) inner: Box<dyn ByteStream>,
    pub(super) times: &'a RequestTimes,
}

impl AsyncRead for TimedStream<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.times.begin();
        }
        read
    }
}

impl AsyncWrite for TimedStream<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        if flushed.is_ready() {
            self.times.answer();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
