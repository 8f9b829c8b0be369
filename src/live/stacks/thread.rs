//! The thread that finds call stacks and has them named. It may wait for helpers; nobody waits for it for long.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use super::python::Destructor;
use crate::host::process;
use crate::live::discovery::Orders;
use crate::probe::{Probe, Records};
use gpuprobe_model::clock;
use gpuprobe_model::stack::{ModuleId, bare_frame};
use gpuprobe_os::privileges::{self, AS_OTHERS, BPF, LOOK};
use gpuprobe_os::say;
use gpuprobe_stacks::python::line_store::PythonLine;
use gpuprobe_stacks::store::StackStore;
use gpuprobe_stacks::symbols::{ProcessFiles, Service, SymbolMessage, SymbolRequest};

/// How long a process waits for its mappings to be read before it is probed.
const PREPARED_WITHIN: Duration = Duration::from_secs(2);

type StackTask = Box<dyn FnOnce(&mut StackThread) + Send>;

/// What the thread is to do.
#[derive(Clone)]
pub(crate) struct StackTasks {
    tasks: Sender<StackTask>,
    /// When the thread last began with a task, or with a record of one, in ns.
    pub(crate) last_ns: Arc<AtomicU64>,
}

impl StackTasks {
    /// Starts the thread, which works until nobody sends anything any more.
    pub(super) fn start(mut state: StackThread) -> io::Result<Self> {
        let (tasks, received) = mpsc::channel::<StackTask>();
        let last_ns = Arc::clone(&state.last_ns);
        let work = move || {
            privileges::keep_only_here(&[BPF, LOOK, AS_OTHERS]);
            for task in received {
                state.moves_on();
                task(&mut state);
                state.send_updates();
            }
        };
        let thread = thread::Builder::new().name("gpuprobe-stacks".to_owned());
        thread.spawn(work)?;
        Ok(Self { tasks, last_ns })
    }

    /// Has something done after what was sent before.
    pub(crate) fn send(&self, task: impl FnOnce(&mut StackThread) + Send + 'static) {
        // Fails only if the thread has ended.
        let _ = self.tasks.send(Box::new(task));
    }

    /// Has something done, and waits for that, but not for long.
    pub(crate) fn ask(&self, task: impl FnOnce(&mut StackThread) + Send + 'static) {
        let (done, is_done) = mpsc::channel::<()>();
        self.send(move |thread| {
            task(thread);
            drop(done);
        });
        let _ = is_done.recv_timeout(PREPARED_WITHIN);
    }

    /// Has the mappings of `pid` read, which may end soon, or is about to make its first traced call; waits for that.
    pub(crate) fn prepare(&self, pid: u32) {
        self.ask(move |thread| {
            thread.store.read_mappings(pid);
            thread.send_updates();
            thread.service.send(SymbolMessage::PerfMap(pid, None));
        });
    }
}

/// The state of the thread.
pub(crate) struct StackThread {
    pub(super) store: StackStore,
    pub(super) service: Service,
    pub(super) probe: Arc<Probe>,
    /// Root directories of processes that run Python, to read source lines after their end.
    pub(super) files: HashMap<u32, Arc<ProcessFiles>>,
    /// Probes on the destructors of code objects.
    pub(super) destructors: HashMap<ModuleId, Destructor>,
    /// Has them attached and detached.
    pub(super) orders: Orders,
    /// Number of destructors so far.
    pub(super) ordered: u32,
    /// Processes for which locations outside of any file were requested (JIT-compiled code).
    pub(super) jitted: HashSet<u32>,
    /// When the last task, or a record of it, was begun, in ns.
    pub(super) last_ns: Arc<AtomicU64>,
}

impl StackThread {
    /// Finds the call stacks in records of the kernel side.
    pub(crate) fn take(&mut self, records: &Records) {
        for record in records.iter() {
            self.moves_on();
            self.store.take(record);
            // At once: until the kernel side knows a stack, more copies of it are sent.
            self.send_updates();
        }
    }

    fn moves_on(&self) {
        self.last_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
    }

    /// Drops what is kept of a process, or of one of its programs, that has ended and whose calls were read.
    pub(super) fn end(&mut self, pid: u32, process: u32) {
        self.store.forget(pid, process);
        if !self.store.runs_python(pid) {
            self.forget_python(pid);
        }
        // Its symbols have been requested, and an open perf map keeps its file system busy.
        self.jitted.remove(&pid);
        self.service.send(SymbolMessage::Forget(pid));
        // The process may have called exec.
        self.service.send(SymbolMessage::PerfMap(pid, None));
    }

    /// Drops what is kept of processes whose end was not seen. All records must have been read.
    pub(super) fn tidy(&mut self) {
        for module in self.store.spaces.close_unused() {
            self.service.send(SymbolMessage::Close(module));
        }
        self.store.sweep(process::is_alive);
        let store = &self.store;
        self.files.retain(|pid, _| store.runs_python(*pid));
    }

    /// Sends the updates to the kernel side.
    fn send_updates(&mut self) {
        let updates = self.store.take_updates();
        // Before symbols of these processes are requested.
        for pid in updates.begun {
            self.begin(pid);
        }
        updates.refused.iter().for_each(say);
        for (pid, running) in updates.interpreters {
            self.find_interpreter(pid, &running);
        }
        for pid in updates.new_code {
            match self.store.spaces.code(pid) {
                Some(code) => {
                    if let Err(error) = self.probe.enter_code(pid, &code) {
                        tracing::debug!("{error:#}");
                    }
                }
                None => self.probe.forget_code(pid),
            }
        }
        self.probe.forget_paths(updates.forgotten);
        if let Err(error) = self.probe.enter_paths(&updates.learnt) {
            tracing::debug!("{error:#}");
            self.store.clear_paths();
            return;
        }
        // Stacks that differ from a known path are no longer sent as copies.
        self.probe.forget_copies(updates.recognised);
    }

    /// Drops the JIT-compiled code of the process that had this id before. Its symbols stay in the cache, for
    /// reports of the memory that it left.
    fn begin(&mut self, pid: u32) {
        if self.jitted.remove(&pid) {
            self.service.send(SymbolMessage::Forget(pid));
        }
        // While the process is alive: it may have ended when symbols are requested.
        self.service.send(SymbolMessage::PerfMap(pid, None));
    }

    /// Has a location named.
    pub(super) fn name(&mut self, request: SymbolRequest) {
        let SymbolRequest { pid, location, .. } = request;
        if let Some(number) = location.python_line() {
            let line = self.store.lines().get(number);
            let line = line.map_or_else(|| bare_frame(&location), PythonLine::frame);
            self.request_line(request, line);
            return;
        }
        if location.module.is_none() {
            self.jitted.insert(pid);
        }
        let module = location.module.and_then(|id| self.store.spaces.module(id));
        self.service.send(SymbolMessage::Find(request, module));
    }
}
