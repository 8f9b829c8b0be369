//! Python state of processes.

use std::sync::Arc;

use gpuprobe_model::abi::RawPython;
use gpuprobe_model::stack::{CallStack, Location, ModuleId};
use hashbrown::HashMap;

use super::code::{CodeObject, CodeRecord, PythonStack, WalkedFrame, is_code};
use super::interpreter::{Interpreter, Refused};
use super::line_store::{CUT, KnownLines, PythonLine, UNREADABLE, WAITS};
use super::lines::LineEntry;
use super::merge::{Placed, merge};
use super::storage::{GLIBC, Storage};
use crate::helper::Request;
use crate::{AddressSpaces, Module};

/// Maximum number of code objects per process. The stack store limits their bytes, with those of call stacks.
const MAX_CODES: usize = 1 << 18;
/// Maximum number of Python stacks per process whose call has not arrived.
const MAX_WAITING: usize = 1 << 14;

/// The interpreter of a running process.
#[derive(Debug)]
pub struct Running {
    interpreter: Arc<Interpreter>,
    module: ModuleId,
    /// Addresses and offsets for the kernel side.
    pub raw: RawPython,
    /// The destructor of code objects; `None` before relocation.
    destructor: Option<(Arc<Module>, u64)>,
    /// Threads and frames were found where the layout says.
    pub(crate) is_checked: bool,
}

impl Running {
    /// The interpreter, as described by its file.
    pub fn interpreter(&self) -> &Interpreter {
        &self.interpreter
    }

    /// Whether the check of this one holds for `other`, of the same process.
    pub(crate) fn checks(&self, other: &Self) -> bool {
        self.is_checked && self.raw == other.raw
    }

    /// The destructor of code objects: its file, and the offset there.
    pub fn destructor(&self) -> Option<(&Arc<Module>, u64)> {
        self.destructor
            .as_ref()
            .map(|(module, offset)| (module, *offset))
    }

    fn minor(&self) -> u8 {
        self.interpreter.layout.version.minor
    }
}

/// Cache of the interpreters in files.
#[derive(Debug, Default)]
pub struct Interpreters {
    interpreters: HashMap<ModuleId, Option<Result<Arc<Interpreter>, Refused>>>,
    storages: HashMap<ModuleId, Option<Storage>>,
}

impl Interpreters {
    /// The interpreter of process `pid`, as of the last snapshot of its mappings, or the reason why it is
    /// not supported. `None` if there is none.
    pub fn find(&mut self, pid: u32, spaces: &AddressSpaces) -> Option<Result<Running, Refused>> {
        let mut found = None;
        let mut storage = None;
        for (index, (module, base)) in spaces.images(pid).enumerate() {
            let name = module.name();
            let is_libc = ["libc.", "libc-", "libpthread", "ld-musl"]
                .iter()
                .any(|begin| name.starts_with(begin));
            if is_libc && storage.is_none() {
                let known = self.storages.entry(module.id);
                storage = *known.or_insert_with(|| {
                    let file = module.numbered()?;
                    spaces
                        .reader()
                        .ask(&[file], &Request::Storage(file.number))?
                });
            }
            // The executable may be one under any name.
            let may_be = index == 0 || name.to_lowercase().contains("python");
            if found.is_none() && may_be {
                let known = self.interpreters.entry(module.id);
                let known = known.or_insert_with(|| {
                    let file = module.numbered()?;
                    let request = Request::Interpreter(file.number);
                    let found: Option<_> = spaces.reader().ask(&[file], &request)?;
                    Some(Interpreter::stated(found?).map(Arc::new))
                });
                found = known.clone().map(|found| (module.id, base, found));
            }
        }
        let (module, base, interpreter) = found?;
        let interpreter = match interpreter {
            Ok(interpreter) => interpreter,
            Err(why) => return Some(Err(why)),
        };
        let storage = storage.unwrap_or(GLIBC);
        let raw = RawPython {
            runtime: base.wrapping_add(interpreter.runtime),
            code_type: base.wrapping_add(interpreter.code_type),
            tls: storage.first,
            tls_rest: storage.rest,
            ..interpreter.layout.raw
        };
        Some(Ok(Running {
            interpreter,
            module,
            raw,
            destructor: destructor(pid, &raw, spaces),
            is_checked: false,
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

/// Code objects and stacks received from a process.
#[derive(Debug, Default)]
pub struct Sent {
    codes: HashMap<u64, CodeObject>,
    bytes: usize,
    waiting: HashMap<u64, PythonStack>,
}

impl Sent {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.waiting.len() * size_of::<PythonStack>()
    }

    /// Adds a code object. Returns false if the limit is reached.
    pub fn keep_code(&mut self, record: CodeRecord) -> bool {
        if self.codes.len() >= MAX_CODES {
            return false;
        }
        self.bytes += record.code.size();
        let before = self.codes.insert(record.id, record.code);
        self.bytes -= before.map_or(0, |code| code.size());
        true
    }

    /// Adds the Python frames of a stack until its call arrives. Returns false if the limit is reached.
    pub fn keep_stack(&mut self, stack: PythonStack) -> bool {
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            self.waiting.insert(stack.id, stack);
        }
        has_room
    }

    /// Removes and returns the frames of the stack with this id.
    pub fn take_stack(&mut self, id: u64) -> Option<PythonStack> {
        self.waiting.remove(&id)
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
        let (mut placed, lacks_line) = self.placed(stack, running.minor(), lines);
        if stack.is_of_main_thread {
            placed.insert(0, mark(WAITS));
        }
        let marks = [(stack.is_unreadable, UNREADABLE), (stack.is_cut, CUT)];
        placed.extend(
            marks
                .iter()
                .filter(|(is, _)| *is)
                .map(|&(_, number)| mark(number)),
        );
        let runs_python = |location: &Location| {
            // The evaluation loop on this thread does not run them.
            !stack.is_of_main_thread
                && location.module == Some(running.module)
                && spaces
                    .file_address(location)
                    .is_some_and(|address| running.interpreter.runs_python(address))
        };
        // Before 3.12, a thread that runs several interpreters has only the frames of its first.
        let calls = native
            .locations
            .iter()
            .filter(|one| runs_python(one))
            .count();
        let entries = placed.iter().filter(|frame| frame.is_entry).count();
        let hidden = calls.saturating_sub(entries);
        let is_whole = !stack.is_cut && !stack.is_unreadable;
        let may_lack = is_whole && native.is_complete && running.minor() < 12;
        let lacks_inner = may_lack && hidden > 0;
        if lacks_inner {
            let hidden = (0..hidden).map(|_| Placed {
                is_entry: true,
                ..mark(UNREADABLE)
            });
            placed.splice(0..0, hidden);
        }
        let merged = CallStack {
            locations: merge(&native.locations, runs_python, &placed),
            is_complete: native.is_complete && is_whole && !lacks_inner,
        };
        (merged, lacks_inner || lacks_line)
    }

    /// The frames with their lines, and whether a line is beyond the received part of its table.
    fn placed(
        &self,
        stack: &PythonStack,
        minor: u8,
        lines: &mut KnownLines,
    ) -> (Vec<Placed>, bool) {
        let mut lacks_line = false;
        let mut line = |frame: &WalkedFrame| {
            let Some(code) = self.codes.get(&frame.code) else {
                return Some(UNREADABLE);
            };
            if code.is_hidden(minor, frame) {
                return None;
            }
            let Some(function) = code.name.clone() else {
                return Some(UNREADABLE);
            };
            let line = code.line(minor, frame);
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
            is_entry: frame.is_entry,
        });
        (placed.collect(), lacks_line)
    }
}

/// Fuzzing entry point. Reads records, each after its length in two bytes, of an interpreter whose minor
/// version is the first byte. Returns the number of frames.
#[doc(hidden)]
pub fn try_records(bytes: &[u8]) -> usize {
    let Some((minor, mut rest)) = bytes.split_first() else {
        return 0;
    };
    let (mut sent, mut lines, mut frames) = (Sent::default(), KnownLines::default(), 0);
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length));
        let (record, others) = after.split_at(length.min(after.len()));
        rest = others;
        if is_code(record) {
            if let Some(code) = CodeRecord::read(record) {
                sent.keep_code(code);
            }
        } else if let Some((_, stack)) = PythonStack::read(record) {
            frames += sent.placed(&stack, minor % 16, &mut lines).0.len();
            let id = stack.id;
            sent.keep_stack(stack);
            assert!(sent.take_stack(id).is_some());
        }
    }
    frames
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
