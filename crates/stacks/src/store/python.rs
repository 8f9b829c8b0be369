//! Python stacks.

use super::StackStore;
use super::process::StackStoreProcess;
use crate::python::code::{self, CodeRecord, PythonStack};
use crate::python::line_store::KnownLines;
use crate::python::process::{Interpreters, Running};
use hashbrown::HashMap;
use std::sync::Arc;

/// State of Python in all processes.
#[derive(Default)]
pub(super) struct Python {
    pub(super) is_wanted: bool,
    pub(super) interpreters: Interpreters,
    /// Interpreters of processes; `None` for unsupported ones.
    pub(super) running: HashMap<u32, Option<Arc<Running>>>,
    pub(super) lines: KnownLines,
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
        let found = found.map(Arc::new);
        match &found {
            Ok(running) => self.updates.interpreters.push((pid, Arc::clone(running))),
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
            self.enter(record.pid, record.process);
            self.calls.current(record.pid, |program| {
                !program.is_full && program.sent.keep_code(record)
            })
        } else {
            let (pid, stack) = PythonStack::read(bytes)?;
            self.enter(pid, stack.process);
            let (spaces, lines) = (&self.spaces, &mut self.python.lines);
            let merge = |program: &mut StackStoreProcess| program.merge(&stack, spaces, lines);
            self.calls.current(pid, merge)
        };
        self.calls.lock().lost_python += u64::from(is_kept == Some(false));
        Some(())
    }

    /// Whether this process has a supported interpreter.
    pub fn runs_python(&self, pid: u32) -> bool {
        matches!(self.python.running.get(&pid), Some(Some(_)))
    }
}
