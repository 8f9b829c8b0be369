//! Documents that are pushed, from a process of its own.
//!
//! There is one for each server. It looks up the server's host when it starts, has no capability from then on, and can only connect
//! ([`gpuprobe_os::confined::confine_client`]). It asks the tracing process for documents as the HTTP process does.
//! Where no connection is made again and again, it ends to be started anew: the host may have another address.

pub(crate) mod client;
mod metrics;
mod outcome;
mod profiles;
mod url;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuprobe_os::channel::Channel;
use gpuprobe_os::confined;
use gpuprobe_os::privileges;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::asking::Documents;
use super::yield_to_tracing;
use client::PushClient;
use metrics::MetricPush;
use profiles::ProfilePush;
pub use url::PushUrl;

/// The first argument by which our executable is asked to be the pushing process.
pub(crate) const ARGUMENT: &str = "__push";
/// Exit status of a process that is to be started again, to look up its host.
pub(crate) const RENEW: u8 = 75;

/// Limit of the process's own memory, bytes.
const MEMORY: u64 = 256 << 20;

/// Settings of a pushing process.
#[derive(Clone, Serialize, Deserialize)]
pub struct PushSettings {
    /// The Pyroscope server that profiles are pushed to, if any.
    pub pyroscope: Option<PushUrl>,
    /// The server that metrics are pushed to by OTLP/HTTP, if any.
    pub otlp: Option<PushUrl>,
    /// Time between two pushes.
    pub interval: Duration,
    /// Further headers of requests.
    pub headers: Vec<(String, String)>,
    /// Certificates of the authorities of servers, PEM, instead of the system's.
    pub authorities: Option<String>,
    /// Name of this host.
    pub host: String,
    /// Whether another pushing process has run before.
    pub is_again: bool,
    /// Whether that has said that pushes fail.
    pub has_said: bool,
}

impl PushSettings {
    /// Checks headers and certificates.
    ///
    /// # Errors
    /// Returns an error if one is not valid.
    pub(crate) fn check(&self) -> Result<()> {
        client::header_map(&self.headers).context("--push-headers")?;
        let has_tls = self
            .pyroscope
            .iter()
            .chain(&self.otlp)
            .any(|url| url.has_tls);
        if has_tls {
            client::connector(self.authorities.as_deref())?;
        }
        Ok(())
    }

    /// The settings of one process for each server: one that is not there is no other's business.
    pub(crate) fn each(&self) -> Vec<Self> {
        let profiles = self.pyroscope.is_some().then(|| Self {
            otlp: None,
            ..self.clone()
        });
        let metrics = self.otlp.is_some().then(|| Self {
            pyroscope: None,
            ..self.clone()
        });
        profiles.into_iter().chain(metrics).collect()
    }

    /// The client of the server.
    fn client(&self) -> Result<PushClient> {
        let url = self.pyroscope.as_ref().or(self.otlp.as_ref());
        let url = url.context("no server is given")?.clone();
        PushClient::new(url, &self.headers, self.authorities.as_deref())
    }

    /// Completes every [`Self::interval`].
    fn ticks(&self) -> Interval {
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }
}

/// Runs as the pushing process if our executable was started as one; returns its exit status.
pub(crate) fn push_if_asked() -> Option<ExitCode> {
    if std::env::args().nth(1)? != ARGUMENT {
        return None;
    }
    Some(match push() {
        Ok(()) => ExitCode::from(RENEW),
        Err(error) => {
            gpuprobe_os::say(format_args!("push: {error:#}"));
            ExitCode::FAILURE
        }
    })
}

/// Pushes until a host is to be looked up again.
fn push() -> Result<()> {
    privileges::keep_only(&[])?;
    let end: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let channel = Channel::from(end);
    let message = channel.receive(false, &mut None)?;
    let settings: PushSettings = serde_json::from_slice(&message.bytes)?;
    yield_to_tracing();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the event loop")?;
    let client = settings.client()?;
    let end = OwnedFd::from(channel);
    fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    confined::confine_client(MEMORY)?;
    runtime.block_on(async {
        let documents = Arc::new(Documents::new(end)?);
        match settings.pyroscope.is_some() {
            true => {
                let push = ProfilePush::new(client, &settings);
                push.until_unreachable(&documents, settings.ticks()).await;
            }
            false => {
                let push = MetricPush::new(client, &settings);
                push.until_unreachable(&documents, settings.ticks()).await;
            }
        }
        Ok(())
    })
}
