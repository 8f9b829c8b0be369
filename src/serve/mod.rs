//! `gpuprobe serve`: answers over HTTP, from a process of its own.
//!
//! The process that traces opens the listening socket and starts the HTTP process, which has no capability, can
//! open no file and make no socket ([`gpuprobe_os::confined::confine_server`]). Whatever it answers it asks the
//! tracing process for, one document at a time, and keeps each for a moment: a hundred clients cost one
//! document. The tracing process answers between two reads of the rings ([`crate::live`]).

mod asking;
mod connections;
mod http;
pub(crate) mod listen;
pub(crate) mod protocol;
mod status;
mod stream;
pub(crate) mod tls;
#[cfg(any(test, fuzzing))]
pub mod untrusted;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use gpuprobe_os::channel::Channel;
use gpuprobe_os::confined;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use tokio::runtime::Builder;

use asking::Documents;
use http::Site;
pub use listen::{Listen, Listener};
pub use protocol::{ServerSettings, TlsMaterial};

/// The first argument by which our executable is asked to be the HTTP process.
pub(crate) const ARGUMENT: &str = "__serve";

/// Limit of the process's own memory, bytes.
const MEMORY: u64 = 256 << 20;
/// Niceness: tracing comes first.
const NICE: i32 = 10;

/// Runs as the HTTP process if our executable was started as one; returns its exit status.
pub fn serve_if_asked() -> Option<ExitCode> {
    if std::env::args().nth(1)? != ARGUMENT {
        return None;
    }
    let served = serve().map_err(|error| gpuprobe_os::say(format_args!("serve: {error:#}")));
    Some(served.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn serve() -> Result<()> {
    let end: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let channel = Channel::from(end);
    let message = channel.receive(true, &mut None)?;
    let settings: ServerSettings = serde_json::from_slice(&message.bytes)?;
    let Some(socket) = message.file else {
        bail!("no socket was sent");
    };
    yield_to_tracing();
    // Before the system calls are restricted: the runtime makes sockets of its own.
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the event loop")?;
    let tls = settings.tls.as_ref().map(tls::acceptor).transpose()?;
    let end = OwnedFd::from(channel);
    fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    confined::confine_server(MEMORY)?;
    runtime.block_on(async {
        let listener = Listener::of(socket.into(), settings.is_unix)?;
        let documents = Documents::new(end)?;
        let site = Arc::new(Site::new(&settings, documents));
        connections::accept(listener, tls, site).await
    })
}

/// Lowers the priority of this process.
fn yield_to_tracing() {
    // SAFETY: changes the scheduling of this process only.
    #[allow(unsafe_code)]
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}
