//! The HTTP process, seen from the tracing process: it is started, asked by, answered, and replaced.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::serve::listen::BoundSocket;
use crate::serve::protocol::{self, ServedDocument};
use crate::serve::{ARGUMENT, Listen, ServerSettings, TlsMaterial};
use gpuprobe_os::channel::Channel;
use gpuprobe_os::{privileges, say};
use gpuprobe_report::metrics::MetricLimits;

/// Settings of `gpuprobe serve`.
#[derive(Clone)]
pub struct ServeConfig {
    /// The address to listen on.
    pub listen: Listen,
    /// Certificates and keys, if connections use TLS.
    pub tls: Option<TlsMaterial>,
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

/// An answer: a document, or the reason why there is none.
pub(super) type Answer = std::result::Result<Vec<u8>, String>;

/// A request of the HTTP process.
pub(super) struct DocumentRequest {
    /// The wanted document.
    pub(super) document: ServedDocument,
    answer: SyncSender<Answer>,
}

impl DocumentRequest {
    /// Answers it. The answer is sent by a thread of its own.
    pub(super) fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }
}

/// The connection to the HTTP process.
pub(super) struct Serving {
    requests: Receiver<DocumentRequest>,
    /// The address that it listens on.
    address: Listen,
    has_tls: bool,
    /// When the next request is looked at.
    not_before: tokio::time::Instant,
}

impl Serving {
    /// Opens the listening socket and starts the process.
    ///
    /// # Errors
    /// Returns an error if the address cannot be listened on, or a thread cannot be started.
    pub(super) fn start(config: &ServeConfig) -> Result<Self> {
        let socket = config.listen.bind()?;
        let is_ip = matches!(config.listen, Listen::Ip(_));
        let is_open = config.token.is_none() && config.tls.is_none();
        let settings = ServerSettings {
            is_unix: !is_ip,
            is_loopback: is_ip && is_open && config.listen.is_local(),
            token: config.token.clone(),
            tls: config.tls.clone(),
        };
        let (sender, requests) = channel(1);
        let address = socket.address.clone();
        let link = Link {
            socket,
            settings,
            sender,
        };
        let named = thread::Builder::new().name("gpuprobe-serve".to_owned());
        let thread = named.spawn(move || link.run());
        thread.context("cannot start the thread of the HTTP process")?;
        Ok(Self {
            requests,
            address,
            has_tls: config.tls.is_some(),
            not_before: tokio::time::Instant::now(),
        })
    }

    /// Where it can be reached.
    pub(super) fn url(&self) -> String {
        match (&self.address, self.has_tls) {
            (Listen::Unix(_), _) => self.address.to_string(),
            (address, true) => format!("https://{address}/"),
            (address, false) => format!("http://{address}/"),
        }
    }

    /// Leaves requests alone for this long.
    pub(super) fn pause(&mut self, pause: Duration) {
        self.not_before = tokio::time::Instant::now() + pause;
    }

    /// The next request.
    pub(super) async fn next(&mut self) -> Option<DocumentRequest> {
        tokio::time::sleep_until(self.not_before).await;
        self.requests.recv().await
    }
}

/// Pauses before a process is started again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A process that lived this long is started again at once.
const LIVED_LONG: Duration = Duration::from_secs(60);

/// The thread between the event loop and the HTTP process, which may be slow.
struct Link {
    socket: BoundSocket,
    settings: ServerSettings,
    sender: Sender<DocumentRequest>,
}

impl Link {
    fn run(self) {
        privileges::keep_only_here(&[]);
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let why = match self.start() {
                Ok((mut child, channel)) => {
                    let why = self.pass_on(&channel);
                    let _ = child.kill();
                    let _ = child.wait();
                    why
                }
                Err(error) => Some(error),
            };
            // The session has ended.
            let Some(why) = why else { return };
            if begun.elapsed() > LIVED_LONG {
                pause = FIRST_PAUSE;
            }
            say(format_args!(
                "the HTTP process ended: {why}; starting another"
            ));
            thread::sleep(pause);
            pause = (pause * 4).min(LONGEST_PAUSE);
        }
    }

    /// Starts the process, which ends with this thread.
    fn start(&self) -> io::Result<(Child, Channel)> {
        let (channel, other) = Channel::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .spawn()?;
        let socket = File::from(self.socket.as_fd().try_clone_to_owned()?);
        channel.send(&serde_json::to_vec(&self.settings)?, Some(&socket))?;
        Ok((child, channel))
    }

    /// Passes requests and answers on. Returns why that ended; `None` with the session.
    fn pass_on(&self, channel: &Channel) -> Option<io::Error> {
        loop {
            let asked = channel.receive(false, &mut None);
            let document = match asked.and_then(|message| protocol::asked(&message.bytes)) {
                Ok(document) => document,
                Err(error) => return Some(error),
            };
            let (sender, receiver) = sync_channel(1);
            let request = DocumentRequest {
                document,
                answer: sender,
            };
            if self.sender.blocking_send(request).is_err() {
                return None;
            }
            let answer = receiver.recv().ok()?;
            if let Err(error) = protocol::answer(channel, &answer) {
                return Some(error);
            }
        }
    }
}
