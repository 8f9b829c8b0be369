//! Python stacks.

use super::StackStore;
use crate::python::code::{self, CodeRecord, PythonStack};
use crate::python::line_store::KnownLines;
use crate::python::process::{Interpreters, Running};
use hashbrown::HashMap;
use std::rc::Rc;

/// State of Python in all processes.
#[derive(Default)]
pub(super) struct Python {
    pub(super) is_wanted: bool,
    pub(super) interpreters: Interpreters,
    /// Interpreters of processes; `None` for unsupported ones.
    pub(super) running: HashMap<u32, Option<Rc<Running>>>,
    pub(super) lines: KnownLines,
    pub(super) lost: u64,
}

impl StackStore {
    /// Looks for the interpreter of `pid` in the last snapshot of its mappings, which may be of another
    /// program.
    pub(super) fn find_python(&mut self, pid: u32) {
        if !self.python.is_wanted {
            return;
        }
        let Some(found) = self.python.interpreters.find(pid, &self.spaces) else {
            // It may be loaded later.
            self.python.running.remove(&pid);
            return;
        };
        let before = self.python.running.get(&pid);
        let found = found.map(Rc::new);
        match &found {
            Ok(running) => self.updates.interpreters.push((pid, Rc::clone(running))),
            Err(why) if !matches!(before, Some(None)) => {
                let message = format!("no Python frames of process {pid}: {why}");
                self.updates.refused.push(message);
            }
            Err(_) => {}
        }
        self.python.running.insert(pid, found.ok());
    }

    /// Processes a Python record. Returns `None` if it is malformed.
    pub(super) fn take_python(&mut self, bytes: &[u8]) -> Option<()> {
        let is_kept = if code::is_code(bytes) {
            let record = CodeRecord::read(bytes)?;
            let program = self.enter(record.pid, record.process)?;
            !program.is_full && program.sent.keep_code(record)
        } else {
            let (pid, stack) = PythonStack::read(bytes)?;
            let program = self.enter(pid, stack.process)?;
            !program.is_full && program.sent.keep_stack(stack)
        };
        self.python.lost += u64::from(!is_kept);
        Some(())
    }

    /// Whether this process has a supported interpreter.
    pub fn runs_python(&self, pid: u32) -> bool {
        matches!(self.python.running.get(&pid), Some(Some(_)))
    }

    /// Number of Python frames and code objects dropped because a limit was reached.
    pub fn lost_python(&self) -> u64 {
        self.python.lost
    }

    /// Records that a call of `pid` with stack `id` was made before the kernel side had the layout of its
    /// interpreter: its Python frames are lost.
    pub fn note_early_call(&mut self, pid: u32, id: u64) {
        let has_python = self
            .current(pid)
            .is_some_and(|program| program.has_python(id));
        if self.runs_python(pid) && !has_python {
            self.python.lost += 1;
        }
    }
}
