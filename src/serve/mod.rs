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
#[path = "../../fuzz/entry/requests.rs"]
pub mod untrusted;

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuprobe_os::privileges;
use gpuprobe_report::metrics::MetricLimits;
use rustix::process::setpriority_process;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;

use documents::Documents;
pub(crate) use documents::{Answer, DocumentRequest, ServedDocument, unavailable};
use http::Site;
pub use listen::Listen;
use listen::Listener;

/// Niceness: tracing comes first.
const NICE: i32 = 10;

/// Settings of `gpuprobe serve`. They contain secrets.
#[derive(Clone)]
pub struct ServeConfig {
    /// The address to listen on.
    pub listen: Listen,
    /// Certificates and keys, if connections use TLS.
    pub tls: Option<TlsAcceptor>,
    /// The bearer token that requests need, if any.
    pub token: Option<String>,
    /// Memory of PyTorch is served, with addresses.
    pub snapshots: bool,
    /// Limits on the number of series.
    pub limits: MetricLimits,
}

/// The HTTP thread, seen from the event loop.
pub(crate) struct Serving {
    requests: Receiver<DocumentRequest>,
    address: Listen,
    has_tls: bool,
    /// When the next request is looked at.
    not_before: Instant,
}

impl Serving {
    /// Listens, and starts the thread, which ends with the process.
    ///
    /// # Errors
    /// Returns an error if the address is in use or refused, or the thread or its event loop cannot be started.
    pub(crate) fn start(config: &ServeConfig) -> Result<Self> {
        let (sender, requests) = channel(1);
        let site = Arc::new(Site::new(config, Documents::new(sender)));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the event loop of HTTP")?;
        let bound = {
            let _inside = runtime.enter();
            Listener::bind(&config.listen)
        };
        let (listener, address) =
            bound.with_context(|| format!("cannot listen on {}", config.listen))?;
        let tls = config.tls.clone();
        let named = thread::Builder::new().name("gpuprobe-serve".to_owned());
        let thread = named.spawn(move || {
            privileges::keep_only_here(&[]);
            // Of this thread only, on Linux.
            let _ = setpriority_process(None, NICE);
            runtime.block_on(connections::accept(listener, tls, site));
        });
        thread.context("cannot start the thread of HTTP")?;
        Ok(Self {
            requests,
            address,
            has_tls: config.tls.is_some(),
            not_before: Instant::now(),
        })
    }

    /// Where it can be reached.
    pub(crate) fn url(&self) -> String {
        match (&self.address, self.has_tls) {
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

impl Drop for Serving {
    fn drop(&mut self) {
        if let Listen::Unix(path) = &self.address {
            let _ = fs::remove_file(path);
        }
    }
}
