//! The discovery thread: looks at processes, attaches to their libraries, owns the links and detaches.
//!
//! It may block, on a file for as long as a helper is waited for and on the kernel's grace periods; nobody waits for it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};
use libbpf_rs::Link;
use tokio::sync::mpsc::UnboundedSender;

use super::files::ProbedFiles;
use super::queries::QueryTimes;
use super::queue::Queue;
use super::{Found, Order};
use crate::host::process::{self, Mapped, ProcessHandle};
use crate::host::{LibraryRole, gpus, system};
use crate::live::stacks::StackTasks;
use crate::live::{Target, TraceConfig};
use crate::probe::{Notice, Probe, ProbePoint, Purpose, detach};
use gpuprobe_model::clock;
use gpuprobe_os::privileges::{self, BPF, LOOK, PERF_EVENTS};
use gpuprobe_stacks::helper::{FileReader, ProcessReader};

/// How long a look attaches to files that are new.
const LOOK_FOR: Duration = Duration::from_millis(200);
/// Interval of checks for unused files.
const RELEASE_EVERY: Duration = Duration::from_secs(5);
/// Maximum rounds of a search among processes; each looks at those started during the last one.
const MAX_ROUNDS: u32 = 10;

/// The state of the discovery thread.
pub(super) struct Finder {
    pub(super) probe: Arc<Probe>,
    pub(super) reader: FileReader,
    /// Opens paths in other users' directories.
    opener: ProcessReader,
    orders: Receiver<Order>,
    found: UnboundedSender<Found>,
    /// Told of processes that have CUDA loaded, and of probed destructors; not before the thread runs.
    pub(super) stacks: Option<StackTasks>,
    pub(super) config: TraceConfig,
    /// The host has one GPU.
    pub(super) one_gpu: bool,
    /// Probes fire in these processes only; in all if there are none.
    pub(super) only_pids: Vec<i32>,
    pub(super) files: ProbedFiles,
    pub(super) queries: QueryTimes,
    /// The hooks of allocators are probed now, in a census.
    pub(super) has_window: bool,
    /// Probes on the destructors of code objects.
    destructors: HashMap<u32, Vec<Link>>,
    queue: Queue,
    /// Number of probed CUDA libraries.
    pub(super) libraries: usize,
    /// When the search began, on `CLOCK_BOOTTIME`.
    begun_ns: u64,
    /// When unused files are next searched for: host-wide only, as it takes a look at all processes.
    release_at: Option<Instant>,
    /// Threads that detach.
    detaching: Vec<JoinHandle<()>>,
    is_ending: bool,
}

/// A look at what a process has mapped.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) pid: u32,
    /// Since when the process may have called what it has mapped, on `CLOCK_BOOTTIME`; `None` if it is held, or at the
    /// start, when all are late.
    pub(super) since_ns: Option<u64>,
    /// When what is new is left to the next look, if at least one file of it was learnt.
    until: Option<Instant>,
    /// Number of files that are newly known.
    pub(super) learnt: usize,
    /// When the last of its CUDA libraries was probed.
    pub(super) attached_ns: u64,
    /// At least one library could not be probed, now or in an earlier look.
    pub(super) is_incomplete: bool,
    /// Files are left to the next look.
    pub(super) is_partial: bool,
    pub(super) has_cuda: bool,
}

impl Look {
    /// Whether what is new is left to the next look.
    pub(super) fn is_over(&self) -> bool {
        self.learnt > 0 && self.until.is_some_and(|until| Instant::now() > until)
    }
}

impl Finder {
    pub(super) fn new(
        config: &TraceConfig,
        probe: Arc<Probe>,
        (reader, opener): (FileReader, ProcessReader),
        orders: Receiver<Order>,
        found: UnboundedSender<Found>,
    ) -> Self {
        let one_gpu = gpus::on_host() == Some(1);
        // With a single GPU the device needs no query, and a command is traced from its start.
        let needs_queries = !one_gpu && !matches!(config.target, Target::Command(_));
        let is_host_wide = config.target == Target::Everything;
        Self {
            reader,
            opener,
            orders,
            found,
            stacks: None,
            config: config.clone(),
            one_gpu,
            only_pids: Vec::new(),
            files: ProbedFiles::default(),
            queries: QueryTimes::new(needs_queries, probe.kind.is_one_by_one()),
            has_window: false,
            destructors: HashMap::new(),
            probe,
            queue: Queue::default(),
            libraries: 0,
            begun_ns: clock::boot_ns(),
            release_at: is_host_wide.then(Instant::now),
            detaching: Vec::new(),
            is_ending: false,
        }
    }

    /// Attaches to what is there at the start, while nothing else runs. `stacks` is told of each process that has CUDA
    /// loaded, before a call of it can be traced.
    ///
    /// # Errors
    /// Returns an error if one of `pids` cannot be read, or none of its libraries can be probed.
    pub(super) fn attach_first(&mut self, pids: &[u32], stacks: Option<&StackTasks>) -> Result<()> {
        let is_host_wide = self.config.target == Target::Everything;
        let children = self.config.children;
        let all = || match (is_host_wide, children) {
            (true, _) => process::all_pids(),
            (false, true) => {
                let family = |pid: &u32| [*pid].into_iter().chain(process::descendants(*pid));
                pids.iter().flat_map(family).collect()
            }
            (false, false) => pids.to_vec(),
        };
        for pid in all() {
            let mapped = process::mapped(pid).unwrap_or_default();
            let is_cuda = |file: &Mapped| matches!(file.role, LibraryRole::Cuda(_));
            if let Some(stacks) = stacks.filter(|_| mapped.iter().any(is_cuda)) {
                stacks.prepare(pid);
            }
        }
        // Nor a query if each sees a single one.
        let sees_one = |pid: &u32| {
            let facts = self.opener.facts(*pid, &["CUDA_VISIBLE_DEVICES"], &[]);
            let visible = facts.variables.into_iter().next().flatten();
            let visible = visible.map(|value| String::from_utf8_lossy(&value).into_owned());
            gpus::is_single(visible.as_deref())
        };
        if !children && !pids.is_empty() && pids.iter().all(sees_one) {
            self.queries = QueryTimes::new(false, self.probe.kind.is_one_by_one());
        }
        if !children {
            self.only_pids = pids.iter().map(|pid| pid.cast_signed()).collect();
        }
        if children || pids.is_empty() {
            self.attach_known();
        }
        self.visit(all, |finder, pid| {
            let is_chosen = pids.contains(&pid);
            if !is_host_wide {
                finder.probe.add_target(pid)?;
                // The exit of an ended process produces no event.
                if !is_chosen && !process::is_alive(pid) {
                    finder.probe.remove_target(pid);
                }
            }
            let mut look = Look {
                pid,
                ..Look::default()
            };
            match finder.read(&mut look) {
                Ok(()) if !is_chosen || !look.is_incomplete || finder.libraries > 0 => {}
                Ok(()) => {
                    bail!("process {pid} is not traced: none of its libraries can be probed")
                }
                Err(error) if is_chosen => {
                    let scan = format!("cannot scan the libraries of process {pid}");
                    return Err(privileges::name_missing(Error::from(error).context(scan)));
                }
                // Usually the process has ended.
                Err(error) => tracing::debug!("process {pid}: {error:#}"),
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Calls `visit` with each process of `all` once, and with those that have been started meanwhile. Returns false if
    /// too many are, or the session ends.
    fn visit(
        &mut self,
        all: impl Fn() -> Vec<u32>,
        mut visit: impl FnMut(&mut Self, u32) -> Result<()>,
    ) -> Result<bool> {
        let mut seen = HashSet::new();
        for _ in 0..MAX_ROUNDS {
            let mut new = all();
            new.retain(|pid| seen.insert(*pid));
            if new.is_empty() {
                return Ok(true);
            }
            for pid in new {
                visit(self, pid)?;
                if self.is_ending {
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }

    /// Attaches to the host's own libraries. Failures are warnings: other processes are traced regardless.
    fn attach_known(&mut self) {
        for library in system::libraries() {
            if let Err(error) = self.attach(&library) {
                self.files.warn(&error);
            }
        }
    }

    /// Serves until it is told to end, then detaches.
    pub(super) fn run(mut self) {
        let perf: &[_] = match self.probe.kind.is_one_by_one() {
            true => PERF_EVENTS,
            false => &[],
        };
        privileges::keep_only_here(&[BPF, LOOK, perf]);
        while !self.is_ending {
            let due = [self.queue.due(), self.queries.due(), self.release_at];
            let due = due.into_iter().flatten().min();
            self.serve(due.map_or(RELEASE_EVERY, |due| {
                due.saturating_duration_since(Instant::now())
            }));
            let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= Instant::now());
            if is_due(self.queries.due()) {
                self.step_queries();
            }
            if is_due(self.release_at) {
                self.release_unused();
                self.release_at = Some(Instant::now() + RELEASE_EVERY);
            }
        }
        let mut links = self.files.take_links();
        links.extend(self.destructors.into_values().flatten());
        detach(links);
        for thread in self.detaching {
            let _ = thread.join();
        }
    }

    pub(super) fn tell(&self, found: Found) {
        // Fails only if the session has ended.
        let _ = self.found.send(found);
    }

    /// Takes all orders, waiting for the first, and has the most urgent look.
    fn serve(&mut self, mut wait: Duration) {
        while !self.is_ending {
            match self.orders.recv_timeout(wait) {
                Ok(order) => self.take(order),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => self.is_ending = true,
            }
            wait = Duration::ZERO;
        }
        if let Some(notice) = self.queue.next(Instant::now()).filter(|_| !self.is_ending) {
            self.look(notice);
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Look(notice) => self.queue_look(notice),
            Order::Probe { id, file, offset } => self.attach_destructor(id, &file, offset),
            Order::Release(id) => {
                let links = self.destructors.remove(&id);
                self.detach_later(links.unwrap_or_default());
            }
            Order::Window { is_open, done } => {
                self.has_window = is_open;
                detach(self.switch(Purpose::Tensors, is_open));
                let _ = done.send(());
            }
            Order::End => self.is_ending = true,
        }
    }

    fn queue_look(&mut self, notice: Notice) {
        if self.queue.add(notice, Instant::now()) {
            self.tell(Found::Skipped);
        }
    }

    /// Attaches to the destructor of an interpreter's code objects.
    fn attach_destructor(&mut self, id: u32, file: &File, offset: u64) {
        let point = ProbePoint { offset, cookie: 0 };
        match self.probe.attach(Purpose::CodeDealloc, file, &[point], &[]) {
            Ok(links) => {
                self.destructors.insert(id, links);
                if let Some(stacks) = &self.stacks {
                    stacks.send(move |thread| thread.probed(id));
                }
            }
            Err(error) => tracing::debug!("code objects are checked singly: {error:#}"),
        }
    }

    /// Looks at a process, or, if it has mapped very much, at a part: the rest is looked at after others.
    fn look(&mut self, notice: Notice) {
        let pid = notice.pid;
        let since_ns = self.probe.scan_begins(pid).or_else(|| started_ns(pid));
        let mut look = Look {
            pid,
            since_ns: (!notice.held).then_some(since_ns.unwrap_or(0)),
            until: Some(Instant::now() + LOOK_FOR),
            ..Look::default()
        };
        // An error means that the process has ended.
        let read = self.read(&mut look);
        if look.is_partial {
            return self.queue_look(notice);
        }
        match (read, notice.image) {
            (Ok(()), Some(image)) if !look.is_incomplete => self.probe.image_known(image),
            (Ok(()), _) => {}
            (Err(error), _) => tracing::debug!("process {pid}: {error:#}"),
        }
        self.note_late(&look);
        if notice.held {
            self.tell(Found::Resume(pid));
        }
    }

    /// Reads what a process has mapped, and attaches to it. After a look in vain the process rests, also after one at
    /// the start.
    fn read(&mut self, look: &mut Look) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let learnt = look.learnt;
            for mapped in process::mapped(look.pid)? {
                self.note_mapped(look, &mapped);
            }
            // Files mapped while a file was being attached to are found now.
            if look.learnt == learnt || look.is_partial {
                break;
            }
        }
        if look.learnt == 0 {
            self.queue.rest(look.pid, begun.elapsed(), Instant::now());
        }
        Ok(())
    }

    /// Notes that the process may have called CUDA before it was probed.
    fn note_late(&self, look: &Look) {
        if look.since_ns.is_none_or(|since| since >= look.attached_ns) {
            return;
        }
        let pid = look.pid;
        self.probe.attached_late(pid);
        let begun_ns = self.probe.program_start(pid).or_else(|| started_ns(pid));
        // What ran before gpuprobe is late anyway.
        if let Some(begun_ns) = begun_ns.filter(|begun_ns| *begun_ns > self.begun_ns) {
            let after_ms = look
                .attached_ns
                .saturating_sub(begun_ns)
                .div_ceil(1_000_000);
            self.tell(Found::Late { pid, after_ms });
        }
    }

    /// Detaches the probes of device queries, or attaches them again if they can tell anything.
    fn step_queries(&mut self) {
        if !self.queries.are_on() && self.probe.knows_devices() {
            return self.queries.skip(Instant::now());
        }
        let links = self.switch(Purpose::Calls, !self.queries.are_on());
        // The time begins when they are attached.
        self.queries.switch(Instant::now());
        self.detach_later(links);
    }

    /// Attaches what is probed at some times only, or returns its probes.
    fn switch(&mut self, purpose: Purpose, is_on: bool) -> Vec<Link> {
        let mut links = Vec::new();
        for (_, probed) in self.files.all_probed() {
            let (its, points) = &probed.timed;
            if *its != purpose {
                continue;
            }
            links.append(&mut probed.timed_links);
            if !is_on || points.is_empty() {
                continue;
            }
            match (self.probe).attach(purpose, &probed.file, points, &self.only_pids) {
                Ok(links) => probed.timed_links = links,
                Err(error) => tracing::debug!("{purpose:?}: {error:#}"),
            }
        }
        links
    }

    /// Detaches from files that no process uses.
    ///
    /// A uprobe keeps a reference to its inode, and so to the file system: that of an ended container, or the
    /// blocks of a deleted library. So probed files are checked for a remaining path on this host or a process that
    /// has them mapped.
    fn release_unused(&mut self) {
        let mut gone = Vec::new();
        for (library, path, owner) in self.files.without_user() {
            if !library.is_at(&path, owner, &self.opener) {
                gone.push(library);
            }
            self.serve(Duration::ZERO);
            if self.is_ending {
                return;
            }
        }
        if gone.is_empty() || !self.search_users() {
            return;
        }
        for library in gone {
            let links = self.files.forget(library);
            self.detach_later(links.unwrap_or_default());
        }
    }

    /// Detaches on a thread: the kernel takes a while.
    fn detach_later(&mut self, links: Vec<Link>) {
        self.detaching.retain(|thread| !thread.is_finished());
        if !links.is_empty() {
            // Without a thread they are dropped here.
            let thread = thread::Builder::new().spawn(move || drop(links));
            self.detaching.extend(thread);
        }
    }

    /// Finds the users of the probed files among all processes. Returns false if too many start.
    fn search_users(&mut self) -> bool {
        // From now on every exec causes a look; with known images, a program whose loader is probed would
        // not be noticed.
        self.probe.forget_images();
        let searched = self.visit(process::all_pids, |finder, pid| {
            let mut look = Look {
                pid,
                // What is probed only now is late.
                since_ns: Some(clock::boot_ns()),
                ..Look::default()
            };
            // An ended process has nothing mapped.
            if finder.read(&mut look).is_ok() {
                finder.note_late(&look);
            }
            finder.serve(Duration::ZERO);
            Ok(())
        });
        searched.unwrap_or(false)
    }
}

/// When a process started, on `CLOCK_BOOTTIME`.
fn started_ns(pid: u32) -> Option<u64> {
    let handle = ProcessHandle::of(pid).ok()?;
    Some(handle.start_boot_ns())
}
