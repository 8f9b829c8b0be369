//! Python stacks.

use super::StackStore;
use super::process::StackStoreProcess;
use crate::python::check::{Checked, check};
use crate::python::code::{self, CodeRecord, PythonStack};
use std::rc::Rc;

impl StackStore {
    /// Looks for the interpreter of `pid` in the last snapshot of its mappings, which may be of another
    /// program.
    pub(super) fn find_python(&mut self, pid: u32) {
        if !self.python.is_wanted {
            return;
        }
        let running = match self.python.interpreters.find(pid, &self.spaces) {
            // It may be loaded later.
            None => {
                self.python.running.remove(&pid);
                return;
            }
            Some(found) => found.and_then(|mut running| {
                let before = self.python.running.get(&pid).and_then(Option::as_ref);
                let is_known = before.is_some_and(|before| before.checks(&running));
                running.is_checked =
                    is_known || check(pid, &running, &self.spaces)? != Checked::NotBegun;
                Ok(running)
            }),
        };
        let running = match running {
            Ok(running) => {
                let running = Rc::new(running);
                self.updates.interpreters.push((pid, Rc::clone(&running)));
                Some(running)
            }
            Err(why) => {
                if !matches!(self.python.running.get(&pid), Some(None)) {
                    self.python.refused.push((pid, why));
                }
                None
            }
        };
        self.python.running.insert(pid, running);
    }

    /// Processes a Python record. Returns false if it is malformed.
    pub(super) fn take_python(&mut self, bytes: &[u8]) -> bool {
        let is_kept = if code::is_code(bytes) {
            let Some(record) = CodeRecord::read(bytes) else {
                return false;
            };
            let process = self.python_process(record.pid, record.process);
            process.is_some_and(|process| !process.is_full && process.sent.keep_code(record))
        } else {
            let Some((pid, stack)) = PythonStack::read(bytes) else {
                return false;
            };
            let process = self.python_process(pid, stack.process);
            process.is_some_and(|process| !process.is_full && process.sent.keep_stack(stack))
        };
        self.python.lost += u64::from(!is_kept);
        true
    }

    /// The process with that number, with its interpreter set.
    fn python_process(&mut self, pid: u32, id: u32) -> Option<&mut StackStoreProcess> {
        if self.processes.get(&pid).is_none_or(|p| p.id != id) {
            self.begin(pid, id);
        }
        self.account(pid);
        let process = self.processes.get_mut(&pid)?;
        if process.python.is_none() {
            process.python = self.python.running.get(&pid).cloned().flatten();
        }
        Some(process)
    }
}
