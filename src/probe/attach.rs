//! Attaching BPF programs to functions of a file, given by file offset.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};
use nix::sys::resource::{Resource, getrlimit, rlim_t};

use super::kind::AttachKind;
use super::load::Probe;
use super::recipe::cookie;
use gpuprobe_os::proc::Mappings;
use gpuprobe_stacks::functions::FunctionInFile;

/// Maximum number of processes to which probes are restricted. More are told apart by the BPF programs, and
/// the other users of the library pay for a trap.
const MOST_PIDS: usize = 8;
/// The number for all processes.
const ALL: i32 = -1;
/// Number of threads that attach or detach in parallel.
const AT_A_TIME: usize = 32;

/// A function to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePoint {
    /// File offset of its first instruction.
    pub offset: u64,
    /// Attach cookie passed to the program.
    pub cookie: u64,
}

impl From<&FunctionInFile> for ProbePoint {
    fn from(function: &FunctionInFile) -> Self {
        Self {
            offset: function.offset,
            cookie: cookie(usize::from(function.row)),
        }
    }
}

/// Purpose of probes, which determines their programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Entry and return of calls.
    Calls,
    /// The same in whichever process: what is called is about another.
    Checkpoints,
    /// Launches that are only counted.
    Launches,
    /// Stream operations, of which only the entry matters.
    Entries,
    /// Functions of frameworks' allocators: entry only, with the call stack.
    Tensors,
    /// Static probes of an allocator for requested sizes. They have no points.
    Requests,
    /// The function of a collector that takes its batches.
    Batches,
    /// The destructor of an interpreter's code objects.
    CodeDealloc,
    /// The dynamic loader's rendezvous.
    Rendezvous,
}

impl Purpose {
    fn has_return(self) -> bool {
        matches!(self, Self::Calls | Self::Checkpoints)
    }
}

impl Probe {
    /// Attaches to `points` of `file`, in all processes or, if there are any, in `pids`. The kernel may take long.
    ///
    /// # Errors
    /// Returns the kernel's error, or an error if few descriptors are left.
    pub fn attach(
        &self,
        purpose: Purpose,
        file: &File,
        points: &[ProbePoint],
        pids: &[i32],
    ) -> Result<Vec<Link>> {
        let number = file.as_raw_fd();
        if is_crowded(number) {
            bail!("too many files are open; raise the limit (ulimit -n)");
        }
        let path = format!("/proc/self/fd/{number}");
        let pids = match purpose {
            Purpose::Checkpoints => vec![ALL],
            _ => self.only_in(pids),
        };
        let mut links = Vec::new();
        for &pid in &pids {
            match self.attach_in(pid, purpose, &path, points) {
                Ok(attached) => links.extend(attached),
                // The others are traced all the same.
                Err(error) if pids.len() > 1 && is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(links)
    }

    /// One by one, on several threads: the kernel waits for a grace period each time, and parallel waits share it.
    fn attach_in(
        &self,
        pid: i32,
        purpose: Purpose,
        path: &str,
        points: &[ProbePoint],
    ) -> Result<Vec<Link>> {
        if purpose == Purpose::Requests {
            let program = &self.skeleton.progs.tensor_request;
            return Ok(vec![program.attach_usdt(pid, path, "pytorch", "malloc")?]);
        }
        if !self.kind.is_one_by_one() {
            return self.attach_some(pid, purpose, path, points);
        }
        let share = points.len().div_ceil(AT_A_TIME).max(1);
        thread::scope(|scope| {
            let attach = |some| scope.spawn(move || self.attach_some(pid, purpose, path, some));
            let threads: Vec<_> = points.chunks(share).map(attach).collect();
            let mut links = Vec::new();
            for thread in threads {
                let attached = thread.join();
                links.extend(attached.map_err(|_| anyhow!("a thread that attaches panicked"))??);
            }
            Ok(links)
        })
    }

    fn attach_some(
        &self,
        pid: i32,
        purpose: Purpose,
        path: &str,
        points: &[ProbePoint],
    ) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        for (program, retprobe) in self.programs(purpose) {
            if self.kind.is_one_by_one() {
                for point in points {
                    let opts = UprobeOpts {
                        cookie: point.cookie,
                        retprobe,
                        ..Default::default()
                    };
                    let at = point.offset as usize;
                    links.push(program.attach_uprobe_with_opts(pid, path, at, opts)?);
                }
                continue;
            }
            let opts = UprobeMultiOpts {
                offsets: points.iter().map(|p| p.offset as usize).collect(),
                cookies: points.iter().map(|p| p.cookie).collect(),
                retprobe,
                session: purpose.has_return() && self.kind == AttachKind::Session,
                ..Default::default()
            };
            links.push(program.attach_uprobe_multi_with_opts(pid, path, "", opts)?);
        }
        Ok(links)
    }

    /// The programs for a purpose, each with whether it is for the return; a session has one for both. Returns first:
    /// an entry without its return would never complete.
    fn programs(&self, purpose: Purpose) -> Vec<(&ProgramMut<'static>, bool)> {
        let progs = &self.skeleton.progs;
        let of_kind = |multi, perf| match self.kind.is_one_by_one() {
            true => perf,
            false => multi,
        };
        let entry = match self.kind {
            AttachKind::Session => &progs.call_session,
            _ => of_kind(&progs.call_entry_multi, &progs.call_entry_perf),
        };
        let on_return = of_kind(&progs.call_return_multi, &progs.call_return_perf);
        let program = match purpose {
            _ if purpose.has_return() && self.kind != AttachKind::Session => {
                return vec![(on_return, true), (entry, false)];
            }
            Purpose::Calls | Purpose::Checkpoints => entry,
            Purpose::Tensors => of_kind(&progs.tensor_multi, &progs.tensor_perf),
            Purpose::Batches => of_kind(&progs.batch_multi, &progs.batch_perf),
            Purpose::CodeDealloc => of_kind(&progs.code_gone_multi, &progs.code_gone_perf),
            Purpose::Rendezvous => of_kind(&progs.rendezvous_multi, &progs.rendezvous_perf),
            Purpose::Launches => of_kind(&progs.launch_multi, &progs.launch_perf),
            Purpose::Entries | Purpose::Requests => of_kind(&progs.entry_multi, &progs.entry_perf),
        };
        vec![(program, false)]
    }

    /// Attaches to starts, names and ends of processes; `with_children`, children of targets are targets.
    pub(super) fn attach_tasks(&self, with_children: bool) -> Result<Vec<Link>> {
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

    /// The processes to restrict the probes to, -1 for none, if the kernel can and they are few; the
    /// self-test restricts them to this process to find out.
    fn only_in(&self, pids: &[i32]) -> Vec<i32> {
        let can = self.filters_processes.load(Ordering::Relaxed)
            || *pids == [std::process::id().cast_signed()];
        // Each has its own links, which are attached and detached one after the other for perf events.
        match pids.len() {
            1 if can => pids.to_vec(),
            2..=MOST_PIDS if can && !self.kind.is_one_by_one() => pids.to_vec(),
            _ => vec![ALL],
        }
    }
}

/// Detaches. The kernel waits for a grace period for each link; parallel removals share it.
pub fn detach(mut links: Vec<Link>) {
    let share = links.len().div_ceil(AT_A_TIME).max(1);
    thread::scope(|scope| {
        while !links.is_empty() {
            let some = links.split_off(links.len().saturating_sub(share));
            scope.spawn(move || drop(some));
        }
    });
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

/// File offset in this executable of the code at `address`.
pub(super) fn own_file_offset(address: u64) -> Result<u64> {
    let maps = Mappings::of(std::process::id()).context("cannot read /proc/self/maps")?;
    let map = maps.at(address);
    let map = map.context("the self-test's function is in no mapping")?;
    Ok(address - map.start + map.offset)
}
