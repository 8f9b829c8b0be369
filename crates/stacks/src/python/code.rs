//! Code objects and frames in the kernel side's records.

use std::rc::Rc;

use gpuprobe_model::abi::{
    PYTHON_CUT, PYTHON_UNREADABLE, PYTHON_WAITS, RawPythonCode, RawPythonFrame, RawPythonStack,
    RawPythonText, record,
};
use zerocopy::FromBytes;

use super::layout::form;
use super::lines::{LineEntry, LineTable};

/// Owner of a generator's frame: `FRAME_OWNED_BY_GENERATOR` of CPython.
const OWNED_BY_GENERATOR: u8 = 1;
/// Bytes per instruction.
const INSTRUCTION: i64 = 2;

/// A code object of `CPython`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// `co_qualname`, or `co_name` in versions without it; `None` if it could not be read.
    pub name: Option<Rc<str>>,
    /// `co_filename`, of which the beginning may be cut.
    pub file: Option<Rc<str>>,
    first_line: u32,
    first_traceable: i32,
    table: Vec<u8>,
    is_table_cut: bool,
}

/// A frame of a walked Python stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedFrame {
    /// Id of its code object.
    pub code: u64,
    /// Offset of the instruction, in the version's own unit.
    instruction: i32,
    owner: u8,
    /// The frame was entered from native code.
    pub is_entry: bool,
}

/// The Python frames of a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonStack {
    /// Process number of the kernel side.
    pub process: u32,
    /// Id of the whole stack.
    pub id: u64,
    /// Id of its native part.
    pub native: u64,
    /// The frames of the stack, innermost first.
    pub frames: Vec<WalkedFrame>,
    /// Frames beyond the maximum depth were cut.
    pub is_cut: bool,
    /// The frame after the last could not be read.
    pub is_unreadable: bool,
    /// The frames are those of the main thread, which sleeps; the calling thread runs no Python.
    pub is_of_main_thread: bool,
}

impl PythonStack {
    /// Decodes a record: process id and stack. Returns `None` if it is malformed.
    pub fn read(bytes: &[u8]) -> Option<(u32, Self)> {
        let (raw, _) = RawPythonStack::read_from_prefix(bytes).ok()?;
        let frames = raw.frames.get(..usize::from(raw.count))?;
        let stack = Self {
            process: raw.process,
            id: raw.id,
            native: raw.native,
            frames: frames.iter().map(WalkedFrame::of).collect(),
            is_cut: raw.flags & PYTHON_CUT != 0,
            is_unreadable: raw.flags & PYTHON_UNREADABLE != 0,
            is_of_main_thread: raw.flags & PYTHON_WAITS != 0,
        };
        Some((raw.tgid, stack))
    }
}

impl WalkedFrame {
    fn of(raw: &RawPythonFrame) -> Self {
        Self {
            code: raw.code,
            instruction: raw.instruction,
            owner: raw.owner,
            is_entry: raw.is_entry != 0,
        }
    }
}

/// A record of a code object.
#[derive(Clone, Debug)]
pub struct CodeRecord {
    /// Process id on the host.
    pub pid: u32,
    /// Process number of the kernel side.
    pub process: u32,
    /// Id of the code object, by which frames refer to it.
    pub id: u64,
    /// The decoded code object.
    pub code: CodeObject,
}

impl CodeRecord {
    /// Decodes a record. Returns `None` if it is malformed.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (raw, rest) = RawPythonCode::read_from_prefix(bytes).ok()?;
        let table = rest.get(..usize::try_from(raw.table_copied).ok()?)?;
        let code = CodeObject {
            name: text(&raw.name_text, &raw.name, Cut::End),
            file: text(&raw.file_text, &raw.file, Cut::Beginning),
            first_line: raw.first_line,
            first_traceable: raw.first_traceable,
            table: table.to_vec(),
            is_table_cut: raw.table_copied < raw.table_bytes,
        };
        Some(Self {
            pid: raw.tgid,
            process: raw.process,
            id: raw.id,
            code,
        })
    }
}

/// Whether `bytes` are a record of a Python stack or a code object.
pub fn is_record(bytes: &[u8]) -> bool {
    let kinds = [record::PYTHON, record::PYTHON_CODE].map(u16::to_ne_bytes);
    bytes
        .first_chunk::<2>()
        .is_some_and(|kind| kinds.contains(kind))
}

/// Whether `bytes` are a record of a code object.
pub fn is_code(bytes: &[u8]) -> bool {
    bytes.first_chunk::<2>() == Some(&record::PYTHON_CODE.to_ne_bytes())
}

#[derive(Clone, Copy)]
enum Cut {
    Beginning,
    End,
}

/// The text of a Python `str`, with characters of 1, 2 or 4 bytes.
fn text(raw: &RawPythonText, bytes: &[u8], cut: Cut) -> Option<Rc<str>> {
    let bytes = bytes.get(..usize::try_from(raw.bytes).ok()?)?;
    let code_points: Vec<u32> = match raw.kind {
        1 => bytes.iter().map(|&byte| u32::from(byte)).collect(),
        2 => words::<2>(bytes, |word| u32::from(u16::from_le_bytes(word))),
        4 => words::<4>(bytes, u32::from_le_bytes),
        _ => return None,
    };
    // A Python string may contain surrogates, which are no characters.
    let characters = code_points
        .into_iter()
        .map(|point| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
    let text: String = characters.collect();
    let text = match (raw.is_cut != 0, cut) {
        (false, _) => text,
        (true, Cut::Beginning) => format!("...{text}"),
        (true, Cut::End) => format!("{text}..."),
    };
    Some(text.into())
}

fn words<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> u32) -> Vec<u32> {
    let (words, _) = bytes.as_chunks::<N>();
    words.iter().map(|word| number(*word)).collect()
}

impl CodeObject {
    /// Whether tracebacks omit the frame: it has not begun to run, or belongs to the interpreter.
    pub fn is_hidden(&self, minor: u8, frame: &WalkedFrame) -> bool {
        let at = self.instruction(minor, frame);
        let begins = i64::from(self.first_traceable) * INSTRUCTION;
        minor >= 11 && frame.owner != OWNED_BY_GENERATOR && at.is_some_and(|at| at < begins)
    }

    /// Offset in bytes from the first instruction; `None` if unknown.
    fn instruction(&self, minor: u8, frame: &WalkedFrame) -> Option<i64> {
        let at = i64::from(frame.instruction);
        match (frame.instruction, minor) {
            (i32::MIN, _) => None,
            // In instructions.
            (_, 10) => Some(at * INSTRUCTION),
            _ => Some(at),
        }
    }

    /// The line of a frame of this code object.
    pub fn line(&self, minor: u8, frame: &WalkedFrame) -> LineEntry {
        let Some(at) = self.instruction(minor, frame) else {
            return LineEntry::Beyond;
        };
        // Before the first instruction.
        let Ok(at) = u32::try_from(at) else {
            return LineEntry::At(self.first_line);
        };
        let table = LineTable {
            form: form(minor),
            bytes: &self.table,
            is_cut: self.is_table_cut,
            first_line: self.first_line,
        };
        table.line_at(at)
    }

    /// Size in memory, in bytes.
    pub fn size(&self) -> usize {
        let text = |text: &Option<Rc<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + text(&self.name) + text(&self.file) + self.table.len()
    }
}
