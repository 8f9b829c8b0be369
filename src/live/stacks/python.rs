//! Python interpreters.

use super::{Destructor, StackState};
use crate::probe::Probe;
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::clock;
use gpuprobe_stacks::python::line_store::PythonLine;
use gpuprobe_stacks::python::process::Running;
use gpuprobe_stacks::symbols::SymbolRequest;
use std::collections::HashSet;

impl StackState {
    /// Whether the kernel side has this layout for the interpreter of `pid`, with a running generation.
    pub(super) fn knows_interpreter(&self, pid: u32, python: &RawPython) -> bool {
        let same = |(known, _): &(RawPython, u64)| {
            let generation = known.generation;
            let is_counted = generation != 0 || python.generation == 0;
            let python = RawPython {
                generation,
                ..*python
            };
            is_counted && python == *known
        };
        self.entered.get(&pid).is_some_and(same)
    }

    /// Records that the kernel side has the layout of the interpreter of `pid` from now on.
    pub(super) fn note_entered(&mut self, pid: u32, python: RawPython) {
        let since = match self.entered.get(&pid) {
            // Only details were added.
            Some((known, since)) if known.runtime == python.runtime => *since,
            _ => clock::monotonic_ns(),
        };
        self.entered.insert(pid, (python, since));
    }

    /// The generation of this interpreter's code objects, which their destructor increases; 0 if it is
    /// not probed.
    pub(super) fn generation_of(&mut self, pid: u32, running: &Running, probe: &Probe) -> u64 {
        let Some((module, offset)) = running.destructor() else {
            return 0;
        };
        let attach = || {
            let path = module.open_path()?;
            let attached = probe.attach_code_gone(path.to_str()?, offset);
            attached
                .inspect_err(|error| tracing::debug!("code objects are checked singly: {error:#}"))
                .ok()
        };
        let destructor = self
            .destructors
            .entry(module.id)
            .or_insert_with(|| Destructor {
                attached: attach(),
                users: HashSet::new(),
            });
        destructor.users.insert(pid);
        let attached = destructor.attached.as_ref();
        attached.map_or(0, |_| clock::monotonic_ns() | 1)
    }

    /// Detaches from the interpreters that no process runs any more, after the end of Python in `pid`: a
    /// probe would keep the interpreter's file open for the whole session.
    pub(super) fn release_destructors(&mut self, pid: u32) {
        self.destructors.retain(|_, destructor| {
            let was_used = destructor.users.remove(&pid);
            let is_over = was_used && destructor.users.is_empty();
            if let (true, Some(attached)) = (is_over, destructor.attached.take()) {
                attached.remove();
            }
            !is_over
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
