//! The prober's side: attaching, keeping and detaching. Nothing here writes messages: another thread of the parent may
//! have had a lock of these at the fork.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, ProgramMut};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, rlim_t};
use nix::unistd::{Pid, getppid};

use super::protocol::{Part, ProbeSet, ProberAnswer, ProberRequest, Purpose};
use crate::probe::attach::{self, AT_A_TIME};
use crate::probe::kind::AttachKind;
use crate::probe::skeleton::GpuprobeSkel;
use gpuprobe_os::channel::{Channel, ChannelMessage};
use gpuprobe_os::confined;
use gpuprobe_os::privileges::{self, BPF, LOOK, PERF_EVENTS};

/// Name of the process.
const NAME: &std::ffi::CStr = c"gpuprobe-prober";
/// Interval of looks whether the parent has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The loaded programs, and what they are attached to.
pub(in crate::probe) struct LinkOwner {
    kind: AttachKind,
    probes: HashMap<ProbeSet, Vec<Link>>,
    pub(in crate::probe) skeleton: GpuprobeSkel<'static>,
}

/// Serves the parent until it ends or wants no probes any more.
pub(super) fn run(owner: &mut LinkOwner, channel: &Channel, parent: Pid) -> ! {
    let ended = prepare(owner.kind, channel).and_then(|()| {
        while owner.serve(channel)? {}
        Ok(())
    });
    if ended.is_err() {
        // Whoever ends last waits for the kernel to detach: the parent must have ended before.
        while getppid() == parent {
            thread::sleep(LOOK_EVERY);
        }
    }
    // Nothing of the parent's is to be flushed or dropped.
    // SAFETY: it ends this process.
    #[allow(unsafe_code)]
    unsafe {
        nix::libc::_exit(0)
    }
}

/// Keeps of the parent's rights and files what attaching needs.
fn prepare(kind: AttachKind, channel: &Channel) -> Result<()> {
    confined::end_with_parent()?;
    confined::ignore_signals()?;
    prctl::set_name(NAME)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // Readers of the output must see its end.
    nix::unistd::dup2_stdin(null.as_fd())?;
    nix::unistd::dup2_stdout(null.as_fd())?;
    nix::unistd::dup2_stderr(null.as_fd())?;
    drop(null);
    close_others(channel.as_fd().as_raw_fd())?;
    let perf: &[_] = if kind.is_one_by_one() {
        PERF_EVENTS
    } else {
        &[]
    };
    privileges::keep_only(&[BPF, LOOK, perf])
}

/// Closes the parent's files, so that those who wait for their ends or locks need not wait for this process. What has
/// no path stays: programs and maps.
fn close_others(channel: RawFd) -> Result<()> {
    let numbers = fs::read_dir("/proc/self/fd")?;
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let numbers: Vec<RawFd> = numbers.collect();
    for number in numbers
        .into_iter()
        .filter(|&number| number > 2 && number != channel)
    {
        let target = fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
        let target = target.as_os_str().as_encoded_bytes();
        if !target.starts_with(b"anon_inode:") && !target.starts_with(b"/memfd:libbpf") {
            let _ = nix::unistd::close(number);
        }
    }
    Ok(())
}

impl LinkOwner {
    pub(super) fn new(kind: AttachKind, skeleton: GpuprobeSkel<'static>) -> Self {
        Self {
            kind,
            probes: HashMap::new(),
            skeleton,
        }
    }

    /// Answers one request. Returns false after the last one.
    fn serve(&mut self, channel: &Channel) -> Result<bool> {
        let ChannelMessage { bytes, file } = channel.receive(true, &mut None)?;
        match serde_json::from_slice(&bytes)? {
            ProberRequest::Attach { id, parts } => {
                let attached = self.attach_all(file.as_ref(), &parts);
                let error = attached.err().map(|error| format!("{error:#}"));
                channel.send(&serde_json::to_vec(&ProberAnswer { id, error })?, None)?;
            }
            ProberRequest::Release(set) => {
                if let Some(links) = self.probes.remove(&set) {
                    // The kernel takes a while for each probe.
                    let _ = thread::Builder::new().spawn(move || drop(links));
                }
            }
            ProberRequest::Detach => {
                self.detach();
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn attach_all(&mut self, file: Option<&File>, parts: &[Part]) -> Result<()> {
        for part in parts {
            match self.attach_part(file, part) {
                Ok(links) => {
                    self.probes.insert(part.set, links);
                }
                Err(error) => {
                    for part in parts {
                        self.probes.remove(&part.set);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn attach_part(&self, file: Option<&File>, part: &Part) -> Result<Vec<Link>> {
        if let Purpose::Tasks { with_children } = part.purpose {
            return self.attach_tasks(with_children);
        }
        let number = file.context("no file to attach to")?.as_raw_fd();
        if is_crowded(number) {
            bail!("too many files are open; raise the limit (ulimit -n)");
        }
        let path = format!("/proc/self/fd/{number}");
        if part.purpose == Purpose::Requests {
            return self.attach_static(&path, &part.pids);
        }
        let (programs, kind) = self.programs(part.purpose);
        let mut links = Vec::new();
        for &pid in &part.pids {
            for &(program, is_return) in &programs {
                match attach::attach(program, kind, &path, &part.points, pid, is_return) {
                    Ok(attached) => links.extend(attached),
                    // The others are traced all the same.
                    Err(error) if part.pids.len() > 1 && is_gone(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(links)
    }

    /// The programs for calls, each with whether it is for the return; a session has one for both. Returns first: an
    /// entry without its return would never complete.
    fn call_programs(&self) -> Vec<(&ProgramMut<'static>, bool)> {
        let progs = &self.skeleton.progs;
        let (on_return, entry) = match self.kind {
            AttachKind::Session => return vec![(&progs.call_session, false)],
            AttachKind::Multi => (&progs.call_return_multi, &progs.call_entry_multi),
            AttachKind::Perf => (&progs.call_return_perf, &progs.call_entry_perf),
        };
        vec![(on_return, true), (entry, false)]
    }

    /// The programs for a purpose, each with whether it is for the return, and how they are attached.
    fn programs(&self, purpose: Purpose) -> (Vec<(&ProgramMut<'static>, bool)>, AttachKind) {
        let progs = &self.skeleton.progs;
        // Of entries only, which works without sessions.
        let (multi, perf) = match purpose {
            Purpose::Calls => return (self.call_programs(), self.kind),
            Purpose::Tensors => {
                let mut programs = self.call_programs();
                programs.retain(|(_, is_return)| !is_return);
                return (programs, self.kind);
            }
            Purpose::Batches => (&progs.batch_multi, &progs.batch_perf),
            Purpose::CodeDealloc => (&progs.code_gone_multi, &progs.code_gone_perf),
            Purpose::Rendezvous => (&progs.rendezvous_multi, &progs.rendezvous_perf),
            Purpose::Entries | Purpose::Requests | Purpose::Tasks { .. } => {
                (&progs.entry_multi, &progs.entry_perf)
            }
        };
        let (program, kind) = match self.kind {
            AttachKind::Session | AttachKind::Multi => (multi, AttachKind::Multi),
            AttachKind::Perf => (perf, AttachKind::Perf),
        };
        (vec![(program, false)], kind)
    }

    /// Attaches to the static probe of an allocator.
    fn attach_static(&self, path: &str, pids: &[i32]) -> Result<Vec<Link>> {
        let program = &self.skeleton.progs.tensor_request;
        let attach = |&pid| program.attach_usdt(pid, path, "pytorch", "malloc");
        let links: Result<_, _> = pids.iter().map(attach).collect();
        Ok(links?)
    }

    fn attach_tasks(&self, with_children: bool) -> Result<Vec<Link>> {
        let progs = &self.skeleton.progs;
        let mut tracepoints = vec![
            (&progs.task_exit, "sched_process_exit"),
            (&progs.task_exec, "sched_process_exec"),
            (&progs.task_rename, "task_rename"),
        ];
        if with_children {
            tracepoints.push((&progs.task_fork, "sched_process_fork"));
        }
        let attach = |(program, name): (&ProgramMut<'_>, &str)| {
            let attached = program.attach_raw_tracepoint(name);
            attached.with_context(|| format!("cannot attach to the raw tracepoint {name}"))
        };
        tracepoints.into_iter().map(attach).collect()
    }

    /// Detaches all probes. Each removal waits for a grace period; parallel removals share it.
    fn detach(&mut self) {
        let probes = std::mem::take(&mut self.probes);
        let mut links: Vec<_> = probes.into_values().flatten().collect();
        let share = links.len().div_ceil(AT_A_TIME).max(1);
        thread::scope(|scope| {
            while !links.is_empty() {
                let some = links.split_off(links.len().saturating_sub(share));
                scope.spawn(move || drop(some));
            }
        });
    }
}

/// Whether a descriptor of this number, the lowest that was free, leaves too few for the probes of a file: three
/// quarters of the limit are in use.
fn is_crowded(descriptor: RawFd) -> bool {
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    let number = rlim_t::try_from(descriptor).unwrap_or_default();
    limit.is_ok_and(|(soft, _)| number >= soft / 4 * 3)
}

/// Whether the process to attach to has ended. The library's error hides the number.
fn is_gone(error: &anyhow::Error) -> bool {
    let gone = std::io::Error::from_raw_os_error(nix::libc::ESRCH).to_string();
    error.chain().any(|cause| cause.to_string() == gone)
}
