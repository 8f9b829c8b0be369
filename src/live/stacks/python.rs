//! Python interpreters.

use std::collections::HashSet;
use std::sync::Arc;

use super::thread::StackThread;
use crate::live::discovery::Order;
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::clock;
use gpuprobe_model::stack::Frame;
use gpuprobe_os::say;
use gpuprobe_stacks::python::process::Running;
use gpuprobe_stacks::symbols::{ProcessFiles, SymbolMessage, SymbolRequest};

/// Maximum number of processes with open files.
const MAX_KEPT: usize = 4096;

/// A probe on the destructor of an interpreter's code objects.
pub(super) struct Destructor {
    /// Its number in orders to the discovery thread.
    id: u32,
    /// False until it is attached, and if it cannot be.
    is_probed: bool,
    /// Processes that run the interpreter.
    users: HashSet<u32>,
}

impl Destructor {
    fn generation(&self) -> u64 {
        match self.is_probed {
            true => clock::monotonic_ns() | 1,
            false => 0,
        }
    }
}

impl StackThread {
    /// Notes the interpreter of process `pid`.
    pub(super) fn find_interpreter(&mut self, pid: u32, running: &Running) {
        self.keep_files(pid);
        let python = RawPython {
            generation: self.generation_of(pid, running),
            ..running.raw
        };
        self.enter_python(pid, python);
    }

    /// Gives the kernel side the layout of the interpreter of `pid`, unless it has it with a running generation.
    fn enter_python(&mut self, pid: u32, python: RawPython) {
        let entered = self.store.calls.lock().entered.get(&pid).copied();
        let is_known = entered.is_some_and(|(known, _)| {
            let generation = known.generation;
            let same = RawPython {
                generation,
                ..python
            };
            same == known && (generation != 0 || python.generation == 0)
        });
        if is_known {
            return;
        }
        if let Err(error) = self.probe.enter_python(pid, &python) {
            say(format_args!("no Python frames of process {pid}: {error:#}"));
            return;
        }
        tracing::debug!("Python frames of process {pid} are read from now on");
        let since_ns = match entered {
            // Only details were added.
            Some((known, since_ns)) if known.runtime == python.runtime => since_ns,
            _ => clock::monotonic_ns(),
        };
        let mut calls = self.store.calls.lock();
        calls.entered.insert(pid, (python, since_ns));
    }

    /// The generation of this interpreter's code objects, which their destructor increases; 0 if it is
    /// not probed, or not yet.
    fn generation_of(&mut self, pid: u32, running: &Running) -> u64 {
        let Some((module, offset)) = running.destructor.clone() else {
            return 0;
        };
        let order = || {
            self.ordered += 1;
            let id = self.ordered;
            if let Some(file) = module.file().and_then(|file| file.try_clone().ok()) {
                // Fails only if the thread has ended.
                let _ = self.orders.send(Order::Probe { id, file, offset });
            }
            Destructor {
                id,
                is_probed: false,
                users: HashSet::new(),
            }
        };
        let destructor = self.destructors.entry(module.id).or_insert_with(order);
        destructor.users.insert(pid);
        destructor.generation()
    }

    /// Notes that the probe on a destructor is attached.
    pub(crate) fn probed(&mut self, id: u32) {
        let mut destructors = self.destructors.values_mut();
        let Some(destructor) = destructors.find(|it| it.id == id) else {
            return;
        };
        destructor.is_probed = true;
        let generation = destructor.generation();
        for pid in destructor.users.clone() {
            let entered = self.store.calls.lock().entered.get(&pid).copied();
            if let Some((known, _)) = entered {
                let python = RawPython {
                    generation,
                    ..known
                };
                self.enter_python(pid, python);
            }
        }
    }

    /// Detaches from the interpreters that no process runs any more, after the end of Python in `pid`: a
    /// probe would keep the interpreter's file open for the whole session.
    pub(super) fn forget_python(&mut self, pid: u32) {
        self.store.calls.lock().entered.remove(&pid);
        self.files.remove(&pid);
        self.destructors.retain(|_, destructor| {
            let was_used = destructor.users.remove(&pid);
            let is_unused = was_used && destructor.users.is_empty();
            if is_unused {
                let _ = self.orders.send(Order::Release(destructor.id));
            }
            !is_unused
        });
    }

    /// Keeps what is needed to read the files of `pid` with the permissions of its user, who may have changed.
    fn keep_files(&mut self, pid: u32) {
        if self.files.len() < MAX_KEPT
            && let Ok(files) = ProcessFiles::of(pid)
        {
            self.files.insert(pid, Arc::new(files));
        }
    }

    /// Requests a Python frame with the source text of its line.
    pub(super) fn request_line(&mut self, request: SymbolRequest, frame: Frame) {
        let pid = request.pid;
        let files = self.files.get(&pid);
        if files.is_some_and(|files| !files.are_of_its_user(pid)) {
            self.files.remove(&pid);
            self.keep_files(pid);
        }
        let files = self.files.get(&pid).cloned();
        let message = SymbolMessage::Line(request, frame, files);
        self.service.send(message);
    }
}
