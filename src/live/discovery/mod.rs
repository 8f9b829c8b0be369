//! Discovery: which processes use CUDA libraries, and the probes in these.
//!
//! A thread looks at processes, attaches and detaches ([`finder`]), which may take long. The event loop tells it what
//! the kernel side has noticed, and is told what was found.

mod attach;
mod files;
mod finder;
mod queries;
mod queue;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::host::process::{self, ProcessHandle};
use crate::live::empty_run::LoadedLayers;
use crate::live::stacks::StackTasks;
use crate::live::{Target, TensorMode, TraceConfig};
use crate::probe::{LoadSettings, Notice, Probe};
use finder::Finder;
use gpuprobe_cuda::Layer;
use gpuprobe_stacks::helper::{FileReader, ProcessReader};

/// How long a process is held at most, whatever hangs. Perf-event uprobes take the kernel seconds.
const MAX_HOLD: Duration = Duration::from_secs(30);
/// Late processes that are remembered; beyond, those that have ended are forgotten.
const MAX_LATE: usize = 4096;
/// How long it is waited for that hooks are attached or detached: the kernel needs some 50 ms.
const SWITCHED_WITHIN: Duration = Duration::from_millis(500);
/// How long the last steps of a session wait for the probes to be detached. The kernel needs some 50 ms; on a host where
/// it needs longer, only the end of the process waits.
const DETACHED_WITHIN: Duration = Duration::from_millis(500);

/// What the discovery thread is to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Look at a process; answered by [`Found::Resume`] if it is held.
    Look(Notice),
    /// Attach to the destructor of an interpreter's code objects, and say so to the thread of the call stacks.
    Probe {
        /// Number of these probes.
        id: u32,
        /// The interpreter's file.
        file: File,
        /// File offset of the function.
        offset: u64,
    },
    /// Detach from a destructor.
    Release(u32),
    /// Attach to the hooks of allocators, or detach, and say that it is done.
    Window {
        /// Whether they are probed from now on.
        is_open: bool,
        /// Told when it is done.
        done: mpsc::Sender<()>,
    },
    /// Detach from everything, and end.
    End,
}

/// What the discovery thread has found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A process has CUDA loaded. It comes before the probes that this process may call.
    User(u32),
    /// A process has a library of this layer.
    Layer(Layer),
    /// A CUDA library is probed.
    Library { functions: usize },
    /// A process that started during tracing had mapped CUDA before it was probed, this long after its start.
    Late { pid: u32, after_ms: u64 },
    /// A process is not looked at: too many have mapped libraries at once.
    Skipped,
    /// A process was looked at, and need not be held any longer.
    Resume(u32),
}

/// Orders to the discovery thread.
pub(crate) type Orders = mpsc::Sender<Order>;

/// The loaded BPF programs, and the thread that attaches them to libraries.
pub struct Tracer {
    /// The loaded BPF programs and their maps.
    pub probe: Arc<Probe>,
    orders: Orders,
    found: UnboundedReceiver<Found>,
    thread: Option<JoinHandle<()>>,
    /// Processes that are held, and since when.
    held: HashMap<u32, Instant>,
    /// Number of processes that were not looked at.
    pub(crate) skipped: u64,
    /// CUDA layers that the traced processes have loaded.
    pub loaded: LoadedLayers,
    /// Number of probed CUDA libraries.
    pub libraries: usize,
    /// Number of probed functions in them.
    pub functions: usize,
    /// Processes with CUDA loaded.
    cuda_users: HashMap<u32, ProcessHandle>,
    /// Processes that started during tracing and had mapped CUDA before it was probed, and after how many milliseconds
    /// it was.
    pub late_ms: BTreeMap<u32, u64>,
}

/// What the BPF programs are to do in a session.
pub(crate) fn load_settings(config: &TraceConfig) -> LoadSettings {
    let is_command = matches!(config.target, Target::Command(_));
    LoadSettings {
        only_targets: config.target != Target::Everything,
        follow_children: is_command || config.children,
        hold_targets: is_command,
        modes: config.modes,
        single_launches: config.records_launches(),
        durations: config.record.is_some(),
        stacks: config.stacks,
        python: config.python && config.stacks.is_on(),
        tensors: config.tensors != TensorMode::Off,
        requests: config.tensors == TensorMode::Requested,
        kind: config.advanced.attach,
        map_entries: config.advanced.map_entries.clone(),
    }
}

impl Tracer {
    /// Attaches the BPF programs to every library found now that `helpers` can read, and starts the thread with its
    /// orders. `stacks` is told of each process that has CUDA loaded, before a call of it can be traced.
    ///
    /// # Errors
    /// Returns an error if there is nothing to attach to.
    pub(crate) fn start(
        config: &TraceConfig,
        probe: Arc<Probe>,
        processes: &[ProcessHandle],
        helpers: (FileReader, ProcessReader),
        (orders, receiver): (Orders, mpsc::Receiver<Order>),
        stacks: Option<StackTasks>,
    ) -> Result<Self> {
        let (sender, found) = unbounded_channel();
        let mut finder = Finder::new(config, Arc::clone(&probe), helpers, receiver, sender);
        let pids: Vec<_> = processes.iter().map(|process| process.pid).collect();
        finder.attach_first(&pids, stacks.as_ref())?;
        probe.all_attached();
        finder.stacks = stacks;
        let thread = thread::Builder::new().name("gpuprobe-attach".to_owned());
        let thread = thread
            .spawn(move || finder.run())
            .context("cannot start the discovery thread")?;
        let mut tracer = Self {
            probe,
            orders,
            found,
            thread: Some(thread),
            held: HashMap::new(),
            skipped: 0,
            loaded: LoadedLayers::default(),
            libraries: 0,
            functions: 0,
            cuda_users: HashMap::new(),
            late_ms: BTreeMap::new(),
        };
        while let Some(found) = tracer.try_next() {
            tracer.note(found);
        }
        Ok(tracer)
    }

    /// Has a process looked at.
    pub(crate) fn look(&mut self, notice: Notice) {
        if notice.held {
            self.held.entry(notice.pid).or_insert_with(Instant::now);
        }
        // Fails only if the thread has ended, which is noticed by [`Self::next`].
        let _ = self.orders.send(Order::Look(notice));
    }

    /// Has the hooks of allocators probed from now on, or no longer. Returns whether that is done.
    pub(crate) fn switch_window(&self, is_open: bool) -> bool {
        let (done, answer) = mpsc::channel();
        let _ = self.orders.send(Order::Window { is_open, done });
        let is_done = answer.recv_timeout(SWITCHED_WITHIN).is_ok();
        if !is_done {
            tracing::debug!("the hooks of allocators were not attached or detached in time");
        }
        is_done
    }

    /// What was found next.
    ///
    /// # Errors
    /// Returns an error if the thread has ended.
    pub(crate) async fn next(&mut self) -> Result<Found> {
        let found = self.found.recv().await;
        found.context("the discovery thread has ended")
    }

    /// What was found, if there is something that was not taken.
    pub(crate) fn try_next(&mut self) -> Option<Found> {
        self.found.try_recv().ok()
    }

    /// Notes what was found, and resumes a process that need not be held any longer.
    pub(crate) fn note(&mut self, found: Found) {
        match found {
            Found::User(pid) => {
                if !self.cuda_users.contains_key(&pid)
                    && let Ok(handle) = ProcessHandle::of(pid)
                {
                    self.cuda_users.insert(pid, handle);
                    // Of a process that had this id before.
                    self.late_ms.remove(&pid);
                }
            }
            Found::Late { pid, after_ms } => {
                if self.late_ms.len() >= MAX_LATE {
                    self.late_ms.retain(|pid, _| process::is_alive(*pid));
                }
                self.late_ms.insert(pid, after_ms);
            }
            Found::Layer(layer) => self.loaded.add(layer),
            Found::Library { functions } => {
                self.libraries += 1;
                self.functions += functions;
            }
            Found::Resume(pid) => {
                self.held.remove(&pid);
                send_continue(pid);
            }
            Found::Skipped => self.skipped += 1,
        }
    }

    /// Resumes the processes that are held for too long.
    pub(crate) fn resume_overdue(&mut self) {
        let overdue = self.held.extract_if(|_, since| since.elapsed() > MAX_HOLD);
        for (pid, _) in overdue {
            tracing::warn!(
                "process {pid} is resumed after {} s: something blocks the search for its libraries; its first \
                 calls may be missed",
                MAX_HOLD.as_secs()
            );
            send_continue(pid);
        }
    }

    /// Resumes all held processes, as the session ends.
    pub(crate) fn resume_held(&mut self) {
        self.held.drain().for_each(|(pid, _)| send_continue(pid));
    }

    /// The live processes with CUDA loaded.
    pub fn cuda_users(&mut self) -> impl Iterator<Item = u32> + use<'_> {
        self.cuda_users.retain(|_, handle| handle.is_alive());
        self.cuda_users.keys().copied()
    }

    /// Has everything detached, and waits for that at most [`DETACHED_WITHIN`].
    pub(crate) fn detach(&mut self) {
        // Fails only if it has ended.
        let _ = self.orders.send(Order::End);
        let until = Instant::now() + DETACHED_WITHIN;
        let is_running = || self.thread.as_ref().is_some_and(|it| !it.is_finished());
        while is_running() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Tracer {
    /// Waits for the thread: the kernel leaves breakpoints behind if it is killed while it detaches.
    fn drop(&mut self) {
        self.detach();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send_continue(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
    }
}
