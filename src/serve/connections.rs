//! Connections: each for one request, so many at a time, for so long.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Listener;
use super::http::Site;
use super::listen::ByteStream;

/// Maximum number of connections; beyond, the oldest is closed.
const MAX_CONNECTIONS: usize = 128;
/// Maximum time from the first to the last byte of the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time of a connection, from the handshake to the last byte of the answer.
const ALL_WITHIN: Duration = Duration::from_secs(15);
/// Maximum bytes of the head of a request.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of its headers.
const MAX_HEADERS: usize = 64;
/// Pause after an error, as when no file can be opened.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections forever.
pub(super) async fn accept(listener: Listener, tls: Option<TlsAcceptor>, site: Arc<Site>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok(stream) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let connection = serve(stream, tls.clone(), Arc::clone(&site));
        let connection = tokio::spawn(timeout(ALL_WITHIN, connection));
        open.push_back(connection.abort_handle());
    }
}

/// Answers the request of a connection.
pub(super) async fn serve(stream: Box<dyn ByteStream>, tls: Option<TlsAcceptor>, site: Arc<Site>) {
    let stream: Box<dyn ByteStream> = match tls {
        None => stream,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return,
        },
    };
    let site = &site;
    let answer = |request| async move { Ok::<_, Infallible>(site.answer(&request).await) };
    // A client that went away is no error.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}
