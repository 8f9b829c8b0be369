//! Connections: how many, and how long.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Listener;
use super::http::Site;
use super::stream::{ByteStream, RequestTimes, TimedStream};

/// Maximum number of connections; beyond, the one that was silent longest is closed.
const MAX_CONNECTIONS: usize = 128;
/// Maximum time of a handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time from the first to the last byte of the head of a request, ms.
const HEAD_WITHIN_MS: u64 = 5_000;
/// Maximum time from a request to the last byte of its answer, ms.
const ANSWER_WITHIN_MS: u64 = 10_000;
/// Maximum time without a request, ms.
const SILENT_FOR_MS: u64 = 90_000;
/// Interval at which these are checked.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// Maximum bytes of the head of a request.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of its headers.
const MAX_HEADERS: usize = 64;
/// Pause after an error, as when no file can be opened.
const PAUSE: Duration = Duration::from_millis(50);

/// An open connection.
struct Open {
    task: AbortHandle,
    times: Arc<RequestTimes>,
}

/// The open connections, by number.
type Connections = Arc<Mutex<HashMap<u64, Open>>>;

/// Accepts connections forever.
pub(super) async fn accept(
    listener: Listener,
    tls: Option<TlsAcceptor>,
    site: Arc<Site>,
) -> Result<()> {
    let open = Connections::default();
    for number in 0.. {
        let Ok(stream) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        make_room(&open);
        let times = Arc::new(RequestTimes::new());
        let (site, tls) = (Arc::clone(&site), tls.clone());
        let (in_task, of_task) = (Arc::clone(&times), Arc::clone(&open));
        let mut connections = open.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tokio::spawn(async move {
            serve(stream, tls, &site, &in_task).await;
            let mut open = of_task.lock().unwrap_or_else(PoisonError::into_inner);
            open.remove(&number);
        });
        let task = task.abort_handle();
        connections.insert(number, Open { task, times });
    }
    Ok(())
}

/// Closes the connection that was silent longest if there are too many.
fn make_room(open: &Connections) {
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    while open.len() >= MAX_CONNECTIONS {
        let silence = |(number, one): &(&u64, &Open)| (one.times.silent_ms(), Reverse(**number));
        let oldest = open.iter().max_by_key(silence);
        let Some(number) = oldest.map(|(number, _)| *number) else {
            return;
        };
        if let Some(one) = open.remove(&number) {
            one.task.abort();
        }
    }
}

/// Answers the requests of a connection.
pub(super) async fn serve(
    stream: Box<dyn ByteStream>,
    tls: Option<TlsAcceptor>,
    site: &Arc<Site>,
    times: &Arc<RequestTimes>,
) {
    let inner: Box<dyn ByteStream> = match tls {
        None => stream,
        Some(tls) => match timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
            Ok(Ok(stream)) => Box::new(stream),
            _ => return,
        },
    };
    let io = TokioIo::new(TimedStream { inner, times });
    let answer = |request| {
        times.ask();
        let site = Arc::clone(site);
        async move { Ok::<_, Infallible>(site.answer(request).await) }
    };
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        // From the end of the last answer.
        .header_read_timeout(Duration::from_millis(SILENT_FOR_MS))
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .pipeline_flush(false);
    let connection = server.serve_connection(io, service_fn(answer));
    tokio::select! {
        _ = connection => {}
        () = exceeds(times) => {}
    }
}

/// Completes when a connection has taken too long.
async fn exceeds(times: &RequestTimes) {
    let mut check = interval(CHECK_EVERY);
    loop {
        check.tick().await;
        let is_slow = times.busy_ms().is_some_and(|ms| ms > ANSWER_WITHIN_MS);
        let is_endless = times.head_ms().is_some_and(|ms| ms > HEAD_WITHIN_MS);
        if is_slow || is_endless || times.silent_ms() > SILENT_FOR_MS {
            return;
        }
    }
}
