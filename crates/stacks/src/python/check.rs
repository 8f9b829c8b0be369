//! Check of an interpreter's layout against a running process.

use std::collections::HashSet;
use std::fs;

use super::interpreter::Refused;
use super::process::Running;
use crate::AddressSpaces;
use crate::reader::ProcessMemory;
use gpuprobe_model::abi::{PYTHON_NONE, RawPython};
use gpuprobe_os::proc::Status;

/// Maximum number of threads of a process.
const MAX_THREADS: usize = 4096;
/// Maximum number of threads checked: reading one takes some 0.1 ms.
const MAX_CHECKED: usize = 64;
/// Number of attempts to read frames, which may change meanwhile.
const ATTEMPTS: usize = 8;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The interpreter is not initialised, or could not be read.
    NotBegun,
    /// The layout is right; number of threads of the process found by it.
    Threads(usize),
}

/// Checks that threads and frames of process `pid` are where the layout says.
///
/// # Errors
/// Returns a message if they are not.
pub fn check(pid: u32, running: &Running, spaces: &AddressSpaces) -> Result<Checked, Refused> {
    let memory = spaces.memory(pid);
    let reader = MemoryReader {
        memory: &memory,
        raw: &running.raw,
    };
    let layout = &running.interpreter().layout;
    let interpreter = reader.word(running.raw.runtime.wrapping_add(layout.interpreters));
    let Some(interpreter) = interpreter.filter(|&address| address != 0) else {
        return Ok(Checked::NotBegun);
    };
    let mut known = 0;
    let mut states = Vec::new();
    let tids = threads_of(pid);
    let mut next = reader.word(interpreter.wrapping_add(layout.threads));
    while let Some(state) = next.filter(|&state| state != 0 && states.len() < MAX_CHECKED) {
        states.push(state);
        let is_known = match layout.native_thread_id {
            Some(at) => {
                let tid = reader.word(state.wrapping_add(at));
                tid.is_some_and(|tid| tids.contains(&tid))
            }
            // The thread pointer, which points to itself.
            None => {
                let id = reader.member(state, running.raw.thread_id);
                id.is_some_and(|id| reader.word(id) == Some(id))
            }
        };
        known += usize::from(is_known);
        next = reader.word(state.wrapping_add(layout.next_thread));
    }
    if states.is_empty() {
        return Ok(Checked::NotBegun);
    }
    let version = layout.version;
    if known == 0 {
        return Err(format!(
            "its build has other thread offsets than an official {version}"
        ));
    }
    if !(0..ATTEMPTS).any(|_| reader.has_frames(&states)) {
        return Err(format!(
            "its build has other frame offsets than an official {version}"
        ));
    }
    Ok(Checked::Threads(known))
}

/// Thread ids of a process within its own PID namespace.
fn threads_of(pid: u32) -> HashSet<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let names = tasks.into_iter().flatten().flatten();
    let own = |task: fs::DirEntry| {
        let tid: u32 = task.file_name().to_str()?.parse().ok()?;
        let status = Status::of(tid).ok()?;
        let inner = status.field("NSpid")?.split_whitespace().last()?;
        inner.parse().ok()
    };
    names.take(MAX_THREADS).filter_map(own).collect()
}

struct MemoryReader<'a> {
    memory: &'a ProcessMemory,
    raw: &'a RawPython,
}

impl MemoryReader<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        let bytes = self.memory.read(address, &mut word)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn member(&self, address: u64, offset: u16) -> Option<u64> {
        self.word(address.wrapping_add(u64::from(offset)))
    }

    /// Whether a thread runs a code object, or none has a frame.
    fn has_frames(&self, states: &[u64]) -> bool {
        let mut frames = states.iter().filter_map(|&state| self.innermost(state));
        let mut runs_any = false;
        let has_code = frames.any(|frame| {
            runs_any = true;
            self.runs_code(frame)
        });
        has_code || !runs_any
    }

    fn innermost(&self, state: u64) -> Option<u64> {
        let mut frame = self.member(state, self.raw.current)?;
        if self.raw.cframe != PYTHON_NONE && frame != 0 {
            frame = self.member(frame, self.raw.cframe)?;
        }
        (frame != 0).then_some(frame)
    }

    /// Whether this frame, or the one that called it if it only marks an entry, runs a code object.
    fn runs_code(&self, frame: u64) -> bool {
        let is_of_code = |frame: u64| {
            let code = self.member(frame, self.raw.code)? & !u64::from(self.raw.tag_mask);
            let is_code = self.member(code, self.raw.object_type)? == self.raw.code_type;
            is_code.then_some(())
        };
        let around = || self.member(frame, self.raw.previous).and_then(is_of_code);
        is_of_code(frame).or_else(around).is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::python::process::Interpreters;

    #[test]
    fn no_interpreter_is_found_in_a_native_process() {
        let mut spaces = AddressSpaces::default();
        let pid = std::process::id();
        spaces.refresh(pid);
        assert!(Interpreters::default().find(pid, &spaces).is_none());
        assert!(threads_of(pid).contains(&u64::from(pid)));
    }
}
