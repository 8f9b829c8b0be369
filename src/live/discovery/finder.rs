//! The discovery thread: looks at processes, attaches to their libraries, owns the links and detaches.
//!
//! It may block, on a file for as long as a helper is waited for and on the kernel's grace periods; nobody waits for it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::vec;

use anyhow::{Context, Result, bail};
use libbpf_rs::Link;
use tokio::sync::mpsc::UnboundedSender;

use super::files::ProbedFiles;
use super::queries::DeviceQueries;
use super::queue::{Next, Queue};
use super::{Found, Order};
use crate::host::process::{self, Mapped, ProcessHandle};
use crate::host::{gpus, system};
use crate::live::empty_run::LoadedLayers;
use crate::live::{ApiChoice, Target, TensorMode, TraceConfig};
use crate::probe::{Notice, Probe, ProbePoint, Purpose};
use gpuprobe_cuda::{Layer, Modes};
use gpuprobe_model::clock;
use gpuprobe_os::privileges::{self, BPF, LOOK, PERF_EVENTS};
use gpuprobe_stacks::helper::{FileReader, Opener};

/// Files that are attached to at once.
const AT_ONCE: usize = 16;
/// Interval of checks for unused files.
const RELEASE_EVERY: Duration = Duration::from_secs(5);
/// Number of files whose paths are checked at a time.
const MAX_NAMES: usize = 64;
/// Maximum rounds of a search for users; each looks at the processes started during the last one.
const MAX_ROUNDS: u32 = 10;

/// The state of the discovery thread.
pub(super) struct Finder {
    pub(super) probe: Arc<Probe>,
    pub(super) reader: FileReader,
    orders: Receiver<Order>,
    found: UnboundedSender<Found>,
    /// Number of processes that were not looked at.
    skipped: Arc<AtomicU64>,
    pub(super) api: ApiChoice,
    pub(super) modes: Modes,
    /// Launches are recorded one by one.
    pub(super) single_launches: bool,
    /// Tracing of framework allocators.
    pub(super) tensors: TensorMode,
    /// Functions that begin with a nop of five bytes are probed on every kernel.
    pub(super) allow_nop5: bool,
    /// The host has one GPU.
    pub(super) one_gpu: bool,
    /// Probes fire in these processes only; in all if there are none.
    pub(super) only_pids: Vec<i32>,
    pub(super) files: ProbedFiles,
    pub(super) queries: DeviceQueries<Link>,
    /// Probes on the destructors of code objects.
    destructors: HashMap<u32, Vec<Link>>,
    queue: Queue<Look>,
    /// Number of probed CUDA libraries.
    pub(super) libraries: usize,
    /// When the search began, on `CLOCK_BOOTTIME`.
    begun_ns: u64,
    /// CUDA layers that were told.
    loaded: LoadedLayers,
    /// When unused files are next searched for: host-wide only, as it takes a look at all processes.
    release_at: Option<Instant>,
    /// Opens paths in other users' directories.
    opener: Opener,
    /// Position in the list of files without a known user, modulo its length.
    names: usize,
    /// Threads that detach.
    detaching: Vec<JoinHandle<()>>,
    is_ending: bool,
}

/// A look at what a process has mapped.
#[derive(Debug)]
pub(super) struct Look {
    notice: Notice,
    maps: vec::IntoIter<Mapped>,
    /// It only finds who uses the files that are probed.
    pub(super) is_search: bool,
    /// Since when the process may have called what it has mapped, on `CLOCK_BOOTTIME`; `None` if it is held, or at the
    /// start, when all are late.
    since_ns: Option<u64>,
    took: Duration,
    /// CUDA functions that are newly probed.
    pub(super) functions: usize,
    /// When the last of its CUDA libraries was probed.
    pub(super) attached_ns: u64,
    /// A file is newly probed.
    pub(super) has_attached: bool,
    /// At least one library could not be probed, now or in an earlier look.
    pub(super) is_incomplete: bool,
    has_cuda: bool,
}

impl Look {
    fn begin(notice: Notice, since_ns: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            notice,
            maps: process::mapped(notice.pid)?.into_iter(),
            is_search: false,
            since_ns: since_ns.filter(|_| !notice.held),
            took: Duration::ZERO,
            functions: 0,
            attached_ns: 0,
            has_attached: false,
            is_incomplete: false,
            has_cuda: false,
        })
    }

    /// A look at a process that no notice is about.
    fn at(pid: u32) -> io::Result<Self> {
        let notice = Notice {
            pid,
            held: false,
            image: None,
        };
        Self::begin(notice, None)
    }

    pub(super) fn pid(&self) -> u32 {
        self.notice.pid
    }

    /// Whether the process may call what it has mapped meanwhile.
    pub(super) fn runs(&self) -> bool {
        self.since_ns.is_some()
    }
}

impl Finder {
    pub(super) fn new(
        config: &TraceConfig,
        probe: Arc<Probe>,
        (reader, opener): (FileReader, Opener),
        orders: Receiver<Order>,
        found: UnboundedSender<Found>,
        skipped: Arc<AtomicU64>,
    ) -> Self {
        let one_gpu = gpus::on_host() == Some(1);
        // With a single GPU the device needs no query, and a command is traced from its start.
        let queries = match matches!(config.target, Target::Command(_)) || one_gpu {
            true => DeviceQueries::none(),
            false => DeviceQueries::new(probe.kind.is_one_by_one()),
        };
        let is_host_wide = config.target == Target::Everything;
        Self {
            probe,
            reader,
            orders,
            found,
            skipped,
            api: config.advanced.api,
            modes: config.modes,
            single_launches: config.records_launches(),
            tensors: config.tensors,
            allow_nop5: config.advanced.allow_nop5,
            one_gpu,
            only_pids: Vec::new(),
            files: ProbedFiles::default(),
            queries,
            destructors: HashMap::new(),
            queue: Queue::default(),
            libraries: 0,
            begun_ns: clock::boot_ns(),
            loaded: LoadedLayers::default(),
            release_at: is_host_wide.then(Instant::now),
            opener,
            names: 0,
            detaching: Vec::new(),
            is_ending: false,
        }
    }

    /// Attaches to what is there at the start, while nothing else runs.
    ///
    /// # Errors
    /// Returns an error if a process cannot be read, or none of its libraries can be probed.
    pub(super) fn attach_first(
        &mut self,
        config: &TraceConfig,
        processes: &[ProcessHandle],
    ) -> Result<()> {
        if !config.children {
            let pids = processes.iter().map(|process| i32::try_from(process.pid));
            self.only_pids = pids.collect::<Result<_, _>>()?;
        }
        for process in processes {
            self.attach_process(process.pid, config.children)?;
        }
        if processes.is_empty() {
            self.attach_known();
        }
        if config.target == Target::Everything {
            for pid in process::all_pids() {
                self.look_at_first(pid);
            }
        }
        Ok(())
    }

    /// Makes a process a target, and attaches to what it has mapped.
    fn attach_process(&mut self, pid: u32, children: bool) -> Result<()> {
        self.probe.add_target(pid)?;
        let attached = self.libraries;
        let look = self
            .look_at(pid)
            .with_context(|| format!("cannot scan the libraries of process {pid}"))
            .map_err(privileges::name_missing)?;
        // A library probed for another of the processes is probed for this one too.
        if look.functions == 0 && look.is_incomplete && attached == 0 {
            bail!("process {pid} is not traced: none of its libraries can be probed");
        }
        if children {
            self.attach_descendants(pid)?;
        }
        Ok(())
    }

    /// Traces the live descendants of `pid` too. Processes forked meanwhile are children of a traced one,
    /// or found in the next round.
    fn attach_descendants(&mut self, pid: u32) -> Result<()> {
        let mut known = HashSet::from([pid]);
        // The host's own libraries, for children that run another program.
        self.attach_known();
        loop {
            let new: Vec<_> = process::descendants(pid)
                .into_iter()
                .filter(|pid| known.insert(*pid))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            for pid in new {
                self.probe.add_target(pid)?;
                // The exit of an ended process produces no event.
                if !process::is_alive(pid) {
                    self.probe.remove_target(pid);
                    continue;
                }
                self.look_at_first(pid);
            }
        }
    }

    /// Attaches to the host's own libraries. Failures are warnings: other processes are traced regardless.
    fn attach_known(&mut self) {
        for library in system::libraries() {
            if let Err(error) = self.attach(&library) {
                self.files.warn(&error);
            }
        }
    }

    fn look_at_first(&mut self, pid: u32) {
        if let Err(error) = self.look_at(pid) {
            // Usually the process has ended.
            tracing::debug!("process {pid}: {error:#}");
        }
    }

    fn look_at(&mut self, pid: u32) -> io::Result<Look> {
        let mut look = Look::at(pid)?;
        while !self.read(&mut look)? {}
        Ok(look)
    }

    /// Serves until it is told to end, then detaches.
    pub(super) fn run(mut self) {
        let perf: &[_] = match self.probe.kind.is_one_by_one() {
            true => PERF_EVENTS,
            false => &[],
        };
        privileges::keep_only_here(&[BPF, LOOK, perf]);
        while !self.is_ending {
            let now = Instant::now();
            if self.queries.due().is_some_and(|due| due <= now) {
                self.step_queries(now);
            }
            if self.release_at.is_some_and(|due| due <= now) {
                self.release_unused();
                self.release_at = Some(Instant::now() + RELEASE_EVERY);
            }
            if !self.serve() && !self.is_ending {
                self.wait();
            }
        }
        let mut links = self.files.take_links();
        links.extend(self.queries.take_links());
        links.extend(self.destructors.into_values().flatten());
        self.probe.detach(links);
        for thread in self.detaching {
            let _ = thread.join();
        }
    }

    pub(super) fn tell(&self, found: Found) {
        // Fails only if the session has ended.
        let _ = self.found.send(found);
    }

    /// Waits for an order, or until something is due.
    fn wait(&mut self) {
        let due = [self.queue.due(), self.queries.due(), self.release_at];
        let order = match due.into_iter().flatten().min() {
            Some(due) => {
                let within = due.saturating_duration_since(Instant::now());
                self.orders.recv_timeout(within)
            }
            None => self.orders.recv().map_err(RecvTimeoutError::from),
        };
        match order {
            Ok(order) => self.take(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.is_ending = true,
        }
    }

    /// Takes all orders, and has the most urgent look. Returns false if there is none.
    fn serve(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.take(order),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.is_ending = true;
                    break;
                }
            }
        }
        match self.queue.next(Instant::now()).filter(|_| !self.is_ending) {
            Some(Next::Begin(notice)) => self.begin(notice),
            Some(Next::Continue(look)) => self.look(look),
            None => return false,
        }
        true
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Look(notice) => {
                let dropped = self.queue.add(notice, Instant::now());
                self.skipped.fetch_add(dropped, Ordering::Relaxed);
            }
            Order::Probe { id, file, offset } => self.attach_destructor(id, &file, offset),
            Order::Release(id) => {
                let links = self.destructors.remove(&id);
                self.detach_later(links.unwrap_or_default());
            }
            Order::End => self.is_ending = true,
        }
    }

    /// Attaches to the destructor of an interpreter's code objects.
    fn attach_destructor(&mut self, id: u32, file: &File, offset: u64) {
        let point = ProbePoint { offset, cookie: 0 };
        match self.probe.attach(Purpose::CodeDealloc, file, &[point], &[]) {
            Ok(links) => {
                self.destructors.insert(id, links);
                self.tell(Found::Destructor(id));
            }
            Err(error) => tracing::debug!("code objects are checked singly: {error:#}"),
        }
    }

    fn begin(&mut self, notice: Notice) {
        let pid = notice.pid;
        let since_ns = self.probe.scan_begins(pid).or_else(|| started_ns(pid));
        match Look::begin(notice, since_ns.or(Some(0))) {
            Ok(look) => self.look(look),
            // It has ended, which is no error.
            Err(error) => {
                tracing::debug!("process {pid}: {error:#}");
                self.tell(Found::Done(notice));
            }
        }
    }

    /// Begins or continues a look.
    fn look(&mut self, mut look: Look) {
        let begun = Instant::now();
        let progress = self.read(&mut look);
        let (now, pid) = (Instant::now(), look.pid());
        look.took += now - begun;
        match progress {
            Ok(false) => match self.queue.keep(pid, look) {
                None => return,
                Some(dropped) => {
                    self.skipped.fetch_add(1, Ordering::Relaxed);
                    look = dropped;
                }
            },
            Ok(true) => {
                if let (Some(image), false) = (look.notice.image, look.is_incomplete) {
                    self.probe.image_known(image);
                }
            }
            // The process has ended.
            Err(error) => tracing::debug!("process {pid}: {error:#}"),
        }
        self.note_late(&look);
        if look.functions == 0 && !look.notice.held {
            self.queue.rest(pid, look.took, now);
        }
        self.tell(Found::Done(look.notice));
    }

    /// Goes through some mapped files of a process. Returns whether these were the last.
    fn read(&mut self, look: &mut Look) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            match look.maps.next() {
                Some(mapped) => self.note_mapped(look, &mapped),
                // Files mapped while a file was being attached to are found now.
                None if std::mem::take(&mut look.has_attached) => {
                    look.maps = process::mapped(look.pid())?.into_iter();
                }
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Notes that the process has CUDA loaded.
    pub(super) fn note_cuda(&mut self, look: &mut Look, layer: Layer) {
        if self.loaded.add(layer) {
            self.tell(Found::Layer(layer));
        }
        if !look.is_search && !std::mem::replace(&mut look.has_cuda, true) {
            self.tell(Found::User(look.pid()));
        }
    }

    /// Notes that the process may have called CUDA before it was probed.
    fn note_late(&self, look: &Look) {
        if look.since_ns.is_none_or(|since| since >= look.attached_ns) {
            return;
        }
        let pid = look.pid();
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

    /// Detaches the probes of device queries, or attaches them again.
    fn step_queries(&mut self, now: Instant) {
        let (probe, pids) = (&self.probe, &self.only_pids);
        let attach = |file: &File, points: &[_]| probe.attach(Purpose::Calls, file, points, pids);
        let links = self.queries.step(now, attach);
        self.detach_later(links);
    }

    /// Detaches from files that no process uses.
    ///
    /// A uprobe keeps a reference to its inode, and so to the file system: that of an ended container, or the
    /// blocks of a deleted library. So probed files are checked for a remaining path on this host or a process that
    /// has them mapped.
    fn release_unused(&mut self) {
        let mut unused = self.files.without_user();
        // Files that are at their paths come again: go on behind the last ones.
        let begun = self.names.checked_rem(unused.len()).unwrap_or(0);
        unused.rotate_left(begun);
        unused.truncate(MAX_NAMES);
        self.names = begun + unused.len();
        if unused.is_empty() {
            return;
        }
        let mut gone = Vec::new();
        for (library, path, owner) in unused {
            if self.is_ending {
                return;
            }
            if !library.is_at(&path, owner, &self.opener) {
                gone.push(library);
            }
            self.serve();
        }
        if gone.is_empty() || !self.search_users() {
            return;
        }
        for library in gone {
            if let Some(mut links) = self.files.forget(library) {
                links.extend(self.queries.release(library));
                self.detach_later(links);
            }
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
        let mut seen = HashSet::new();
        for _ in 0..MAX_ROUNDS {
            let mut new = process::all_pids();
            new.retain(|pid| seen.insert(*pid));
            if new.is_empty() {
                return true;
            }
            for pid in new {
                // An ended process has nothing mapped.
                let Ok(mut look) = Look::at(pid) else {
                    continue;
                };
                look.is_search = true;
                while let Ok(false) = self.read(&mut look) {
                    self.serve();
                }
                self.serve();
                if self.is_ending {
                    return false;
                }
            }
        }
        // Tried again at the next check.
        false
    }
}

/// When a process started, on `CLOCK_BOOTTIME`.
fn started_ns(pid: u32) -> Option<u64> {
    let handle = ProcessHandle::of(pid).ok()?;
    Some(handle.start_boot_ns())
}
