//! Python interpreters.

use super::{Destructor, StackState};
use crate::live::discovery::Order;
use crate::probe::Probe;
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::clock;
use gpuprobe_os::say;
use gpuprobe_stacks::python::line_store::PythonLine;
use gpuprobe_stacks::python::process::Running;
use gpuprobe_stacks::symbols::SymbolRequest;
use std::collections::HashSet;

impl Destructor {
    fn generation(&self) -> u64 {
        match self.is_probed {
            true => clock::monotonic_ns() | 1,
            false => 0,
        }
    }
}

impl StackState {
    /// Gives the kernel side the layout of the interpreter of `pid`, unless it has it with a running generation.
    pub(super) fn enter_python(&mut self, pid: u32, python: RawPython, probe: &Probe) {
        let is_known = self.entered.get(&pid).is_some_and(|(known, _)| {
            let generation = known.generation;
            let same = RawPython {
                generation,
                ..python
            };
            same == *known && (generation != 0 || python.generation == 0)
        });
        if is_known {
            return;
        }
        if let Err(error) = probe.enter_python(pid, &python) {
            say(format_args!("no Python frames of process {pid}: {error:#}"));
            return;
        }
        tracing::debug!("Python frames of process {pid} are read from now on");
        let since_ns = match self.entered.get(&pid) {
            // Only details were added.
            Some((known, since_ns)) if known.runtime == python.runtime => *since_ns,
            _ => clock::monotonic_ns(),
        };
        self.entered.insert(pid, (python, since_ns));
    }

    /// The generation of this interpreter's code objects, which their destructor increases; 0 if it is
    /// not probed, or not yet.
    pub(super) fn generation_of(&mut self, pid: u32, running: &Running) -> u64 {
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
    pub(crate) fn probed(&mut self, id: u32, probe: &Probe) {
        let mut destructors = self.destructors.values_mut();
        let Some(destructor) = destructors.find(|it| it.id == id) else {
            return;
        };
        destructor.is_probed = true;
        let generation = destructor.generation();
        for pid in destructor.users.clone() {
            if let Some((known, _)) = self.entered.get(&pid) {
                let python = RawPython {
                    generation,
                    ..*known
                };
                self.enter_python(pid, python, probe);
            }
        }
    }

    /// Detaches from the interpreters that no process runs any more, after the end of Python in `pid`: a
    /// probe would keep the interpreter's file open for the whole session.
    pub(super) fn release_destructors(&mut self, pid: u32) {
        self.destructors.retain(|_, destructor| {
            let was_used = destructor.users.remove(&pid);
            let is_unused = was_used && destructor.users.is_empty();
            if is_unused {
                let _ = self.orders.send(Order::Release(destructor.id));
            }
            !is_unused
        });
    }

    /// Requests the source text of a Python line.
    pub(super) fn request_line(&mut self, request: SymbolRequest, line: &PythonLine) {
        let pid = request.pid;
        if self
            .files
            .get(&pid)
            .is_some_and(|files| !files.are_of_its_user(pid))
        {
            self.files.remove(&pid);
            self.keep_files(pid);
        }
        let files = self.files.get(&pid).cloned();
        self.service.request_line(request, line.frame(), files);
    }

    /// Number of Python frames and code objects dropped for lack of space.
    pub(crate) fn lost_python(&self) -> u64 {
        self.store.lost_python()
    }
}
