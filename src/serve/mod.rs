//! `gpuprobe serve`: answers over HTTP, from a thread of its own.
//!
//! The thread has no capability. Whatever it answers it asks the event loop for, one document at a time, and keeps each
//! for a moment: a hundred clients cost one document. The event loop answers between two reads of the rings
//! ([`crate::live`]) and waits for nobody.

mod connections;
mod documents;
mod http;
pub(crate) mod listen;
pub(crate) mod tls;
#[cfg(any(test, fuzzing))]
pub mod untrusted;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuprobe_os::privileges;
use gpuprobe_report::metrics::MetricLimits;
use nix::libc;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;

use documents::Documents;
pub(crate) use documents::{Answer, DocumentRequest, ServedDocument};
use http::Site;
use listen::BoundSocket;
pub use listen::Listen;
use listen::Listener;

/// Niceness: tracing comes first.
const NICE: i32 = 10;

/// Settings of `gpuprobe serve`.
#[derive(Clone)]
pub struct ServeConfig {
    /// The address to listen on.
    pub listen: Listen,
    /// Certificates and keys, if connections use TLS.
    pub tls: Option<TlsAcceptor>,
    /// The bearer token that requests need, if any.
    pub token: Option<String>,
    /// Limits on the number of series.
    pub limits: MetricLimits,
}

impl std::fmt::Debug for ServeConfig {
    /// Without secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeConfig")
            .field("listen", &self.listen)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The HTTP thread, seen from the event loop.
pub(crate) struct Serving {
    requests: Receiver<DocumentRequest>,
    /// Kept to remove the file of a Unix socket in the end.
    socket: BoundSocket,
    has_tls: bool,
    /// When the next request is looked at.
    not_before: Instant,
}

impl Serving {
    /// Starts the thread, which ends with the process.
    ///
    /// # Errors
    /// Returns an error if the thread or its event loop cannot be started.
    pub(crate) fn start(config: &ServeConfig, socket: BoundSocket) -> Result<Self> {
        let (sender, requests) = channel(1);
        let site = Arc::new(Site::new(config, Documents::new(sender)));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the event loop of HTTP")?;
        let listener = {
            let _inside = runtime.enter();
            socket.listener()?
        };
        let tls = config.tls.clone();
        let named = thread::Builder::new().name("gpuprobe-serve".to_owned());
        let thread = named.spawn(move || {
            privileges::keep_only_here(&[]);
            yield_to_tracing();
            runtime.block_on(connections::accept(listener, tls, site));
        });
        thread.context("cannot start the thread of HTTP")?;
        Ok(Self {
            requests,
            socket,
            has_tls: config.tls.is_some(),
            not_before: Instant::now(),
        })
    }

    /// Where it can be reached.
    pub(crate) fn url(&self) -> String {
        match (&self.socket.address, self.has_tls) {
            (address @ Listen::Unix(_), _) => address.to_string(),
            (address, true) => format!("https://{address}/"),
            (address, false) => format!("http://{address}/"),
        }
    }

    /// Leaves requests alone for this long.
    pub(crate) fn pause(&mut self, pause: Duration) {
        self.not_before = Instant::now() + pause;
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Option<DocumentRequest> {
        sleep_until(self.not_before).await;
        self.requests.recv().await
    }
}

/// Lowers the priority of this thread.
fn yield_to_tracing() {
    // SAFETY: changes the scheduling of this thread only, which is what 0 stands for on Linux.
    #[allow(unsafe_code)]
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}
