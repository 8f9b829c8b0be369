//! The processes that read what a traced program can shape, and can do nothing else ([`crate::reader`]
//! asks them); tests and fuzz targets run them on a thread.

mod files;
mod on_thread;
mod opener;
mod processes;
#[cfg(any(test, fuzzing))]
pub mod untrusted;

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

use gpuprobe_os::channel::Channel;
use gpuprobe_os::{confined, kernel, mounts, privileges};

use crate::reader::{ALL_ARE_TRUSTED, ARGUMENT, ReaderKind};
#[doc(hidden)]
pub use files::try_all;

/// Is one of these processes, if our executable was started as one.
pub fn serve_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != ARGUMENT {
        return None;
    }
    let name = words.next()?;
    let kind = ReaderKind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)?;
    if words.next().is_some_and(|word| word == ALL_ARE_TRUSTED) {
        mounts::trust_all();
    }
    let served = inherited().and_then(|channel| be(kind, &channel));
    Some(served.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn be(kind: ReaderKind, channel: &Channel) -> anyhow::Result<()> {
    match kind {
        ReaderKind::Opener => {
            confined::end_with_parent()?;
            privileges::keep_only(&[privileges::LOOK, privileges::AS_OTHERS])?;
        }
        ReaderKind::Processes => confined::confine_inspector(kind.limits().data_bytes)?,
        ReaderKind::Functions | ReaderKind::Names => {
            // How probes are executed depends on it, and it cannot be read later.
            kernel::release();
            confined::confine(kind.limits().data_bytes)?;
        }
    }
    serve_on(kind, channel);
    Ok(())
}

/// Our end of the connection, in a process that was started to read.
fn inherited() -> anyhow::Result<Channel> {
    Ok(Channel::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Says that it has begun, and answers until nobody asks any more.
fn serve_on(kind: ReaderKind, channel: &Channel) {
    if channel.send(&[], None).is_err() {
        return;
    }
    match kind {
        ReaderKind::Opener => opener::serve(channel),
        ReaderKind::Processes => processes::serve(channel),
        ReaderKind::Functions | ReaderKind::Names => files::serve(channel),
    }
}
