//! Starting the traced command.

use std::env;
use std::ffi::{CString, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use anyhow::{Context, Error, Result};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{self, Gid, Uid, User};
use tokio::process::{Child, Command};

use super::limits;

/// The user who called us through sudo.
struct Invoker {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    user: Option<User>,
}

impl Invoker {
    /// From the variables that sudo sets, if we are root because of it.
    fn find() -> Result<Option<Self>> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        let id = |name| env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
        let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID")) else {
            return Ok(None);
        };
        if uid == 0 {
            return Ok(None);
        }
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let user = User::from_uid(uid)?;
        // Device files of GPUs are often open to a group.
        let groups = match &user {
            Some(user) => unistd::getgrouplist(&CString::new(user.name.as_bytes())?, gid)?,
            None => vec![gid],
        };
        Ok(Some(Self {
            uid,
            gid,
            groups,
            user,
        }))
    }

    /// Where sudo put root's name and home, the command gets its user's again.
    fn restore_environment(&self, command: &mut Command) {
        let Some(user) = &self.user else { return };
        for name in ["USER", "LOGNAME"] {
            if env::var_os(name).is_some_and(|v| v == "root") {
                command.env(name, &user.name);
            }
        }
        let root_home = User::from_uid(Uid::from_raw(0))
            .ok()
            .flatten()
            .map(|u| u.dir);
        if env::var_os("HOME").map(Into::into) == root_home {
            command.env("HOME", &user.dir);
        }
    }
}

/// What a child does before it runs the command: system calls only, and no allocation.
pub(super) type First = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Starts `command` with our environment, terminal and, under sudo, the rights of the user who
/// called it. `first` is done while it still has ours.
pub(super) fn spawn(command: &[OsString], first: Option<First>) -> Result<Child> {
    let (program, arguments) = command.split_first().context("no command")?;
    let invoker = Invoker::find().context("cannot tell who called sudo")?;
    let mut child = Command::new(program);
    child.args(arguments);
    if let Some(invoker) = &invoker {
        invoker.restore_environment(&mut child);
    }
    let files = limits::original();
    let prepare = move || {
        if let Some(first) = &first {
            first()?;
        }
        // Programs that use select() cannot have more.
        if let Some((soft, hard)) = files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        }
        if let Some(invoker) = &invoker {
            unistd::setgroups(&invoker.groups)?;
            unistd::setgid(invoker.gid)?;
            unistd::setuid(invoker.uid)?;
        }
        // Should we be killed while the command is held, it goes on.
        prctl::set_pdeathsig(Signal::SIGCONT)?;
        Ok(())
    };
    // SAFETY: `prepare` makes system calls only, which are async-signal-safe, and allocates
    // nothing; everything it uses was made before the fork.
    #[allow(unsafe_code)]
    unsafe {
        child.pre_exec(prepare);
    }
    child
        .spawn()
        .with_context(|| format!("cannot start {}", program.to_string_lossy()))
}

/// The exit status when the command could not be started, as shells and `env` have it.
pub(super) fn not_started(error: &Error) -> ExitCode {
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    match cause {
        Some(ErrorKind::NotFound) => ExitCode::from(127),
        _ => ExitCode::from(126),
    }
}

/// The exit status of the command as ours; a signal as shells report it.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
