//! Python state of processes.

use std::sync::Arc;

use gpuprobe_model::abi::{RawPython, RawPythonFrame};
use gpuprobe_model::stack::{CallStack, Location, ModuleId};
use hashbrown::HashMap;

use super::code::{CodeRecord, PythonStack};
use super::interpreter::{Interpreter, Refused};
use super::line_store::{CUT, KnownLines, PythonLine, UNREADABLE, WAITS};
use super::lines::LineEntry;
use super::merge::{Placed, merge};
use crate::helper::Request;
use crate::{AddressSpaces, Module};

/// Maximum number of code objects per process. The stack store limits their bytes, with those of call stacks.
const MAX_CODES: usize = 1 << 18;

/// The interpreter of a running process.
#[derive(Debug)]
pub struct Running {
    interpreter: Arc<Interpreter>,
    module: ModuleId,
    /// Addresses and offsets for the kernel side.
    pub raw: RawPython,
    /// The destructor of code objects: its file, and the offset there; `None` before relocation.
    pub destructor: Option<(Arc<Module>, u64)>,
}

impl Running {
    /// The minor version, after `3.`.
    pub fn minor(&self) -> u8 {
        self.interpreter.minor()
    }
}

/// Cache of the interpreters in files.
#[derive(Debug, Default)]
pub struct Interpreters(HashMap<ModuleId, Option<Arc<Interpreter>>>);

impl Interpreters {
    /// The interpreter of process `pid`, as of the last snapshot of its mappings, or the reason why it is
    /// not supported. `None` if there is none.
    pub fn find(&mut self, pid: u32, spaces: &AddressSpaces) -> Option<Result<Running, Refused>> {
        let ask = |module: &Module| {
            let file = module.opened()?;
            let found: Option<Interpreter> = spaces.reader().ask(&[file], &Request::Interpreter)?;
            found.map(Arc::new)
        };
        let mut images = spaces.images(pid).enumerate();
        let (module, base, interpreter) = images.find_map(|(index, (module, base))| {
            // The executable may be one under any name.
            let may_be = index == 0 || module.name().to_lowercase().contains("python");
            may_be.then_some(())?;
            let known = self.0.entry(module.id).or_insert_with(|| ask(module));
            Some((module.id, base, known.clone()?))
        })?;
        Some(interpreter.layout(base).map(|raw| Running {
            interpreter,
            module,
            raw,
            destructor: destructor(pid, &raw, spaces),
        }))
    }
}

/// Distance from `ob_type` to `tp_dealloc` in a type: the size of a variable object, name and two sizes are
/// between.
const DESTRUCTOR_AFTER_TYPE: u64 = 40;

/// The destructor of code objects, from their type. `None` before the dynamic loader has relocated the
/// pointer.
fn destructor(pid: u32, raw: &RawPython, spaces: &AddressSpaces) -> Option<(Arc<Module>, u64)> {
    let memory = spaces.memory(pid);
    let mut word = [0; 8];
    let at = u64::from(raw.object_type) + DESTRUCTOR_AFTER_TYPE;
    let bytes = memory.read(raw.code_type.wrapping_add(at), &mut word)?;
    spaces.code_at(pid, u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Code objects received from a process.
#[derive(Debug, Default)]
pub struct Sent {
    codes: HashMap<u64, CodeRecord>,
    bytes: usize,
}

impl Sent {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a code object. Returns false if the limit is reached.
    pub fn keep_code(&mut self, record: CodeRecord) -> bool {
        if self.codes.len() >= MAX_CODES {
            return false;
        }
        self.bytes += record.size();
        let before = self.codes.insert(record.id, record);
        self.bytes -= before.map_or(0, |code| code.size());
        true
    }

    /// The native stack merged with its Python frames, and whether frames or a line are missing that no other
    /// counter includes.
    pub fn merged(
        &self,
        native: &CallStack,
        stack: &PythonStack,
        running: &Running,
        spaces: &AddressSpaces,
        lines: &mut KnownLines,
    ) -> (CallStack, bool) {
        let mark = |number| Placed {
            line: Some(Location::python(number)),
            is_entry: false,
        };
        let (mut placed, lacks_line) = self.placed(stack, lines);
        if stack.is_of_main_thread {
            placed.insert(0, mark(WAITS));
        }
        placed.extend(stack.is_unreadable.then(|| mark(UNREADABLE)));
        placed.extend(stack.is_cut.then(|| mark(CUT)));
        let runs_python = |location: &Location| {
            // The evaluation loop on this thread does not run them.
            !stack.is_of_main_thread
                && location.module == Some(running.module)
                && spaces
                    .file_address(location)
                    .is_some_and(|address| running.interpreter.runs_python(address))
        };
        // Before 3.12, a thread that runs several interpreters has only the frames of its first.
        let is_whole = native.is_complete && !stack.is_cut && !stack.is_unreadable;
        let mut hidden = 0;
        if is_whole && running.minor() < 12 {
            let calls = native.locations.iter().filter(|one| runs_python(one));
            let entries = placed.iter().filter(|frame| frame.is_entry);
            hidden = calls.count().saturating_sub(entries.count());
        }
        let call = Placed {
            is_entry: true,
            ..mark(UNREADABLE)
        };
        placed.splice(0..0, std::iter::repeat_n(call, hidden));
        let merged = CallStack {
            locations: merge(&native.locations, runs_python, &placed),
            is_complete: is_whole && hidden == 0,
        };
        (merged, hidden > 0 || lacks_line)
    }

    /// The frames with their lines, and whether a line is beyond the received part of its table.
    pub(crate) fn placed(
        &self,
        stack: &PythonStack,
        lines: &mut KnownLines,
    ) -> (Vec<Placed>, bool) {
        let mut lacks_line = false;
        let mut line = |frame: &RawPythonFrame| {
            let Some(code) = self.codes.get(&frame.code) else {
                return Some(UNREADABLE);
            };
            if code.is_hidden(frame) {
                return None;
            }
            let Some(function) = code.name.clone() else {
                return Some(UNREADABLE);
            };
            let line = code.line(frame.instruction);
            lacks_line |= line == LineEntry::Beyond;
            Some(lines.number(PythonLine {
                process: stack.process,
                function,
                file: code.file.clone(),
                line: match line {
                    LineEntry::At(line) => Some(line),
                    LineEntry::None | LineEntry::Beyond => None,
                },
            }))
        };
        let placed = stack.frames.iter().map(|frame| Placed {
            line: line(frame).map(Location::python),
            is_entry: frame.is_entry != 0,
        });
        (placed.collect(), lacks_line)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
