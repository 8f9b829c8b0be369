//! Python interpreters.

use super::{Destructor, StackState};
use crate::probe::{AttachOutcome, Probe, ProbePoint, Purpose};
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::clock;
use gpuprobe_stacks::python::line_store::PythonLine;
use gpuprobe_stacks::python::process::Running;
use gpuprobe_stacks::symbols::SymbolRequest;
use std::collections::HashSet;
use std::fs::File;

impl Destructor {
    /// Requests a probe on the function at `offset` of the interpreter's file.
    fn request(probe: &Probe, file: Option<&File>, offset: u64) -> Self {
        let mut plan = probe.plan();
        let point = ProbePoint { offset, cookie: 0 };
        let attached = plan.add(Purpose::CodeDealloc, vec![point], &[]);
        let request = file.and_then(|file| plan.send(file).ok());
        Self {
            attached: request.map(|_| attached),
            request,
            users: HashSet::new(),
        }
    }

    fn generation(&self) -> u64 {
        match (&self.attached, self.request) {
            (Some(_), None) => clock::monotonic_ns() | 1,
            _ => 0,
        }
    }
}

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
    /// not probed, or not yet.
    pub(super) fn generation_of(&mut self, pid: u32, running: &Running, probe: &Probe) -> u64 {
        let Some((module, offset)) = running.destructor() else {
            return 0;
        };
        let destructor = self
            .destructors
            .entry(module.id)
            .or_insert_with(|| Destructor::request(probe, module.file(), offset));
        destructor.users.insert(pid);
        destructor.generation()
    }

    /// Takes the answer to a request to attach to a destructor.
    pub(crate) fn answered(&mut self, outcome: AttachOutcome, probe: &Probe) {
        let mut destructors = self.destructors.values_mut();
        let Some(destructor) = destructors.find(|it| it.request == Some(outcome.id)) else {
            return;
        };
        destructor.request = None;
        if let Err(error) = outcome.result {
            tracing::debug!("code objects are checked singly: {error:#}");
            destructor.attached = None;
            return;
        }
        let generation = destructor.generation();
        for pid in destructor.users.clone() {
            let Some((known, _)) = self.entered.get(&pid) else {
                continue;
            };
            let python = RawPython {
                generation,
                ..*known
            };
            match probe.enter_python(pid, &python) {
                Ok(()) => self.note_entered(pid, python),
                Err(error) => tracing::debug!("{error:#}"),
            }
        }
    }

    /// Detaches from the interpreters that no process runs any more, after the end of Python in `pid`: a
    /// probe would keep the interpreter's file open for the whole session.
    pub(super) fn release_destructors(&mut self, pid: u32) {
        self.destructors.retain(|_, destructor| {
            let was_used = destructor.users.remove(&pid);
            !(was_used && destructor.users.is_empty())
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
