//! Start of the traced command.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, ExitCode, ExitStatus};

use anyhow::{Context, Error, Result};
use caps::CapSet;
use nix::sys::prctl;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::Signal;
use tokio::process::{Child, Command};

use super::{descriptors, limits};
use gpuprobe_os::privileges::User;

/// Starts `command` on gpuprobe's terminal, with gpuprobe's environment extended by `environment`. Unless
/// `as_root`, it runs as the user who called sudo, without the capabilities that only gpuprobe was
/// given.
pub(super) fn spawn(
    command: &[OsString],
    environment: impl IntoIterator<Item = (&'static str, OsString)>,
    as_root: bool,
) -> Result<Child> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut child = Command::new(program);
    child.args(arguments).envs(environment);
    Restored::new(as_root)?.prepare(child.as_std_mut());
    child
        .spawn()
        .with_context(|| format!("cannot start {}", program.to_string_lossy()))
}

/// The invoker's user, limits and descriptors, which a child gets back before `exec`.
#[derive(Clone, Debug)]
pub(super) struct Restored {
    as_root: bool,
    invoker: Option<User>,
    files: Option<(rlim_t, rlim_t)>,
}

impl Restored {
    /// For the next programs to start. Unless `as_root`, they run as the user who called sudo.
    ///
    /// # Errors
    /// Returns an error if that user cannot be looked up.
    pub(super) fn new(as_root: bool) -> Result<Self> {
        let invoker = match as_root {
            true => None,
            false => User::invoker().context("cannot look up the user who called sudo")?,
        };
        Ok(Self {
            as_root,
            invoker,
            files: limits::original(),
        })
    }

    /// Has `command` run with all of it.
    pub(super) fn prepare(&self, command: &mut process::Command) {
        command.envs(self.invoker.iter().flat_map(User::environment));
        let restored = self.clone();
        // SAFETY: it makes system calls only, which are async-signal-safe, and allocates nothing;
        // everything it uses was made before the fork.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || restored.restore());
        }
    }

    /// Restores in the child, before `exec`: system calls only, no allocation.
    fn restore(&self) -> io::Result<()> {
        descriptors::close_private_on_exec();
        // Programs that use select() support no more than 1024.
        if let Some((soft, hard)) = self.files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        }
        if !self.as_root {
            // Capabilities that outlive an exec. Neither call allocates.
            let _ = caps::clear(None, CapSet::Ambient);
            let _ = caps::clear(None, CapSet::Inheritable);
        }
        if let Some(invoker) = &self.invoker {
            invoker.become_for_good()?;
        }
        // If gpuprobe is killed while a command is held, the command resumes.
        Ok(prctl::set_pdeathsig(Signal::SIGCONT)?)
    }
}

/// The exit status if the command could not be started, as shells and `env` have it.
pub(super) fn not_started(error: &Error) -> ExitCode {
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    match cause {
        Some(ErrorKind::NotFound) => ExitCode::from(127),
        _ => ExitCode::from(126),
    }
}

/// The command's exit status as gpuprobe's; 128 plus the signal number after a signal, as in shells.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
