//! Code objects and frames, as the kernel side sends them.

use std::rc::Rc;

use gpuprobe_model::abi::{
    PYTHON_CUT, PYTHON_UNREADABLE, PYTHON_WAITS, RawPythonCode, RawPythonFrame, RawPythonStack,
    RawPythonText, record,
};
use zerocopy::FromBytes;

use super::layout::form;
use super::lines::{Line, LineTable};

/// Whose frame it is: `FRAME_OWNED_BY_GENERATOR`.
const OWNED_BY_GENERATOR: u8 = 1;
/// Bytes of an instruction.
const INSTRUCTION: i64 = 2;

/// A code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `co_qualname`, or `co_name` where there is none; none if it could not be read.
    pub name: Option<Rc<str>>,
    /// `co_filename`; if it is very long, its end.
    pub file: Option<Rc<str>>,
    first_line: u32,
    first_traceable: i32,
    table: Vec<u8>,
    is_table_cut: bool,
}

/// A frame that was walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The code object.
    pub code: u64,
    /// Where it is in it, as the kernel side says.
    instruction: i32,
    owner: u8,
    /// The interpreter was entered to run it.
    pub is_entry: bool,
}

/// The Python frames of a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonStack {
    /// The process, as the kernel side numbers it.
    pub process: u32,
    /// The id of the whole stack.
    pub id: u64,
    /// The id of its native part.
    pub native: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// There are more.
    pub is_cut: bool,
    /// One more could not be read.
    pub is_unreadable: bool,
    /// They are the main thread's, which sleeps; the thread of the call runs no Python.
    pub is_of_main_thread: bool,
}

impl PythonStack {
    /// Of a record; none if it cannot be understood.
    pub fn read(bytes: &[u8]) -> Option<(u32, Self)> {
        let (raw, _) = RawPythonStack::read_from_prefix(bytes).ok()?;
        let frames = raw.frames.get(..usize::from(raw.count))?;
        let stack = Self {
            process: raw.process,
            id: raw.id,
            native: raw.native,
            frames: frames.iter().map(Frame::of).collect(),
            is_cut: raw.flags & PYTHON_CUT != 0,
            is_unreadable: raw.flags & PYTHON_UNREADABLE != 0,
            is_of_main_thread: raw.flags & PYTHON_WAITS != 0,
        };
        Some((raw.tgid, stack))
    }
}

impl Frame {
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
    /// The process.
    pub pid: u32,
    /// The same, as the kernel side numbers it.
    pub process: u32,
    /// By which frames name it.
    pub id: u64,
    /// The code object.
    pub code: Code,
}

impl CodeRecord {
    /// Of a record; none if it cannot be understood.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (raw, rest) = RawPythonCode::read_from_prefix(bytes).ok()?;
        let table = rest.get(..usize::try_from(raw.table_copied).ok()?)?;
        let code = Code {
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

/// Whether `bytes` are a record of Python.
pub fn is_record(bytes: &[u8]) -> bool {
    let kinds = [record::PYTHON, record::PYTHON_CODE].map(u16::to_ne_bytes);
    bytes
        .first_chunk::<2>()
        .is_some_and(|kind| kinds.contains(kind))
}

/// Whether `bytes` are one of a code object.
pub fn is_code(bytes: &[u8]) -> bool {
    bytes.first_chunk::<2>() == Some(&record::PYTHON_CODE.to_ne_bytes())
}

#[derive(Clone, Copy)]
enum Cut {
    Beginning,
    End,
}

/// The text of a `str`, each of whose characters is a number of 1, 2 or 4 bytes.
fn text(raw: &RawPythonText, bytes: &[u8], cut: Cut) -> Option<Rc<str>> {
    let bytes = bytes.get(..usize::try_from(raw.bytes).ok()?)?;
    let code_points: Vec<u32> = match raw.kind {
        1 => bytes.iter().map(|&byte| u32::from(byte)).collect(),
        2 => words::<2>(bytes, |word| u32::from(u16::from_le_bytes(word))),
        4 => words::<4>(bytes, u32::from_le_bytes),
        _ => return None,
    };
    // Python's surrogates are no characters.
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

impl Code {
    /// Whether tracebacks leave the frame out: it has not begun to run, or it is the interpreter's own.
    pub fn is_hidden(&self, minor: u8, frame: &Frame) -> bool {
        let at = self.instruction(minor, frame);
        let begins = i64::from(self.first_traceable) * INSTRUCTION;
        minor >= 11 && frame.owner != OWNED_BY_GENERATOR && at.is_some_and(|at| at < begins)
    }

    /// Bytes from the first instruction; none if that is not known.
    fn instruction(&self, minor: u8, frame: &Frame) -> Option<i64> {
        let at = i64::from(frame.instruction);
        match (frame.instruction, minor) {
            (i32::MIN, _) => None,
            // They count instructions.
            (_, 10) => Some(at * INSTRUCTION),
            _ => Some(at),
        }
    }

    /// The line at which the frame is, as far as that is known.
    pub fn line(&self, minor: u8, frame: &Frame) -> Line {
        let Some(at) = self.instruction(minor, frame) else {
            return Line::Beyond;
        };
        // It has not begun.
        let Ok(at) = u32::try_from(at) else {
            return Line::At(self.first_line);
        };
        let table = LineTable {
            form: form(minor),
            bytes: &self.table,
            is_cut: self.is_table_cut,
            first_line: self.first_line,
        };
        table.line_at(at)
    }

    /// Bytes of memory that it takes.
    pub fn size(&self) -> usize {
        let text = |text: &Option<Rc<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + text(&self.name) + text(&self.file) + self.table.len()
    }
}
