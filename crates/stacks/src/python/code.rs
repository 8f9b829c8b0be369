//! Code objects and frames in the kernel side's records.

use std::sync::Arc;

use gpuprobe_model::abi::{
    PYTHON_CUT, PYTHON_UNREADABLE, PYTHON_WAITS, RawPython, RawPythonCode, RawPythonFrame,
    RawPythonStack, RawPythonText, record,
};
use gpuprobe_model::stack::{Frame, Language};
use zerocopy::FromBytes;

use super::lines::{INSTRUCTION, LineEntry, line_at};
use crate::helper::Words;

/// Owner of a generator's frame: `FRAME_OWNED_BY_GENERATOR` of CPython.
const OWNED_BY_GENERATOR: u8 = 1;
/// Words that are read of a code object, a string, and a line table.
const CODE_WORDS: usize = 33;
const TEXT_WORDS: usize = 512;
const TABLE_WORDS: usize = 4096;
/// Bits of the state of a string: the size of its characters, and whether its head is the short one.
const TEXT_KIND: u64 = 7;
const TEXT_IS_ASCII: u64 = 16;
/// Instruction of a frame that is not within its code.
const OUT_OF_RANGE: i32 = i32::MIN;

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
    pub frames: Vec<RawPythonFrame>,
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
        let stack = Self {
            process: raw.process,
            id: raw.id,
            native: raw.native,
            frames: raw.frames.get(..usize::from(raw.count))?.to_vec(),
            is_cut: raw.flags & PYTHON_CUT != 0,
            is_unreadable: raw.flags & PYTHON_UNREADABLE != 0,
            is_of_main_thread: raw.flags & PYTHON_WAITS != 0,
        };
        Some((raw.tgid, stack))
    }
}

/// A code object of `CPython`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRecord {
    /// Process id on the host.
    pub pid: u32,
    /// Process number of the kernel side.
    pub process: u32,
    /// Id of the code object, by which frames refer to it.
    pub id: u64,
    /// `co_qualname`; `None` if it could not be read.
    pub name: Option<Arc<str>>,
    /// `co_filename`, of which the beginning may be cut.
    pub file: Option<Arc<str>>,
    first_line: u32,
    first_traceable: i32,
    table: Vec<u8>,
}

/// Whether `bytes` are a record of a Python stack or a code object.
pub fn is_record(bytes: &[u8]) -> bool {
    bytes.first_chunk::<2>() == Some(&record::PYTHON.to_ne_bytes()) || is_code(bytes)
}

/// Whether `bytes` are a record of a code object.
pub fn is_code(bytes: &[u8]) -> bool {
    bytes.first_chunk::<2>() == Some(&record::PYTHON_CODE.to_ne_bytes())
}

/// The text of a Python `str`, with characters of 1, 2 or 4 bytes; between these if it was cut.
fn text(raw: &RawPythonText, bytes: &[u8], [before, after]: [&str; 2]) -> Option<Arc<str>> {
    let bytes = bytes.get(..usize::try_from(raw.bytes).ok()?)?;
    let size = usize::try_from(raw.kind).ok()?;
    [1, 2, 4].contains(&size).then_some(())?;
    let character = |bytes: &[u8]| {
        let bytes = bytes.iter().rev();
        let number = bytes.fold(0, |number, byte| number << 8 | u32::from(*byte));
        // A Python string may contain surrogates, which are no characters.
        char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    let text: String = bytes.chunks_exact(size).map(character).collect();
    Some(match raw.is_cut {
        0 => text.into(),
        _ => format!("{before}{text}{after}").into(),
    })
}

impl CodeRecord {
    /// Decodes a record. Returns `None` if it is malformed.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (raw, rest) = RawPythonCode::read_from_prefix(bytes).ok()?;
        let table = rest.get(..usize::try_from(raw.table_copied).ok()?)?;
        Some(Self {
            pid: raw.tgid,
            process: raw.process,
            id: raw.id,
            name: text(&raw.name_text, &raw.name, ["", "..."]),
            file: text(&raw.file_text, &raw.file, ["...", ""]),
            first_line: raw.first_line,
            first_traceable: raw.first_traceable,
            table: table.to_vec(),
        })
    }

    /// The code object at this address of a process, and the bytes of its instructions.
    pub(crate) fn read_at(memory: &impl Words, python: &RawPython, id: u64) -> Option<(Self, i64)> {
        let read = |at, words| {
            let words = memory.read(&[(at, words)])?.pop()?.into_iter();
            Some(words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
        };
        let code = read(id, CODE_WORDS)?;
        (word(&code, python.object_type)? == python.code_type).then_some(())?;
        let text = |member| {
            let string = read(word(&code, member)?, TEXT_WORDS)?;
            let state = word(&string, python.text_state)? >> python.text_kind_shift;
            let is_ascii = state & TEXT_IS_ASCII != 0;
            let data = [python.text_wide, python.text_ascii][usize::from(is_ascii)];
            let (length, kind) = (word(&string, python.text_length)?, state & TEXT_KIND);
            let raw = RawPythonText {
                bytes: u32::try_from(length.checked_mul(kind)?).ok()?,
                kind: kind as u32,
                is_cut: 0,
            };
            text(&raw, string.get(usize::from(data)..)?, [""; 2])
        };
        let table = read(word(&code, python.line_table)?, TABLE_WORDS)?;
        let record = Self {
            pid: 0,
            process: 0,
            id,
            name: Some(text(python.name)?),
            file: Some(text(python.file)?),
            first_line: word(&code, python.first_line)? as u32,
            first_traceable: 0,
            table: table.get(python.bytes_data.into()..)?.to_vec(),
        };
        let count = i64::try_from(word(&code, python.object_type + 8)?).ok()?;
        Some((record, count.checked_mul(INSTRUCTION)?))
    }

    /// The frame at an instruction.
    pub(crate) fn frame(&self, instruction: i32) -> Frame {
        Frame {
            function: self.name.as_deref().unwrap_or_default().to_owned(),
            file: self.file.as_deref().map(str::to_owned),
            line: match self.line(instruction) {
                LineEntry::At(line) => Some(line),
                LineEntry::None | LineEntry::Beyond => None,
            },
            language: Language::Python,
            ..Frame::default()
        }
    }

    /// Whether tracebacks omit the frame: it has not begun to run, or belongs to the interpreter.
    pub fn is_hidden(&self, frame: &RawPythonFrame) -> bool {
        let begins = i64::from(self.first_traceable) * INSTRUCTION;
        frame.owner != OWNED_BY_GENERATOR
            && frame.instruction != OUT_OF_RANGE
            && i64::from(frame.instruction) < begins
    }

    /// The line of an instruction of this code object.
    pub fn line(&self, instruction: i32) -> LineEntry {
        match u32::try_from(instruction) {
            Ok(at) => line_at(&self.table, self.first_line, at),
            Err(_) if instruction == OUT_OF_RANGE => LineEntry::Beyond,
            // Before the first instruction.
            Err(_) => LineEntry::At(self.first_line),
        }
    }

    /// Size in memory, in bytes.
    pub fn size(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + text(&self.name) + text(&self.file) + self.table.len()
    }
}

fn word(bytes: &[u8], at: u16) -> Option<u64> {
    let word = bytes.get(usize::from(at)..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    /// The record of a code object named `name`, whose first line is 100.
    pub(crate) fn code_record(id: u64, name: &str, table: &[u8]) -> Vec<u8> {
        let mut raw = RawPythonCode::new_zeroed();
        raw.record_type = record::PYTHON_CODE;
        (raw.tgid, raw.process, raw.id) = (7, 70, id);
        (raw.first_line, raw.first_traceable) = (100, 2);
        raw.table_bytes = u32::try_from(table.len()).unwrap();
        raw.table_copied = raw.table_bytes;
        raw.name[..name.len()].copy_from_slice(name.as_bytes());
        raw.name_text.bytes = u32::try_from(name.len()).unwrap();
        raw.name_text.kind = u32::from(!name.is_empty());
        raw.file[..4].copy_from_slice(b"a.py");
        (raw.file_text.bytes, raw.file_text.kind) = (4, 1);
        [raw.as_bytes(), table].concat()
    }

    /// The record of a stack with these frames.
    pub(crate) fn stack_record(id: u64, frames: &[RawPythonFrame], flags: u32) -> Vec<u8> {
        let mut raw = RawPythonStack::new_zeroed();
        raw.record_type = record::PYTHON;
        (raw.tgid, raw.process, raw.id, raw.native) = (7, 70, id, id + 1);
        (raw.count, raw.flags) = (u16::try_from(frames.len()).unwrap(), flags);
        raw.frames[..frames.len()].copy_from_slice(frames);
        raw.as_bytes().to_vec()
    }

    /// A frame at an instruction of a code object.
    pub(crate) fn frame(code: u64, instruction: i32, is_entry: bool) -> RawPythonFrame {
        RawPythonFrame {
            code,
            instruction,
            owner: 0,
            is_entry: u8::from(is_entry),
            reserved: 0,
        }
    }

    #[test]
    fn stacks_are_decoded_with_their_flags() {
        let frames = [frame(1, 8, false), frame(2, i32::MIN, true)];
        for (flags, expected) in [
            (0, [false; 3]),
            (PYTHON_CUT, [true, false, false]),
            (PYTHON_UNREADABLE, [false, true, false]),
            (PYTHON_WAITS, [false, false, true]),
        ] {
            let bytes = stack_record(5, &frames, flags);
            assert!(is_record(&bytes) && !is_code(&bytes));
            let (pid, stack) = PythonStack::read(&bytes).unwrap();
            assert_eq!((pid, stack.process, stack.id, stack.native), (7, 70, 5, 6));
            assert_eq!(stack.frames, frames);
            let flags = [stack.is_cut, stack.is_unreadable, stack.is_of_main_thread];
            assert_eq!(flags, expected);
            assert!(PythonStack::read(&bytes[1..]).is_none());
        }
        let mut many = stack_record(5, &[], 0);
        many[2..4].copy_from_slice(&129u16.to_le_bytes());
        assert!(PythonStack::read(&many).is_none());
        assert!(!is_record(&[]) && !is_record(&[0; 100]) && !is_code(&[]));
    }

    #[test]
    fn code_objects_are_decoded() {
        let bytes = code_record(9, "step", &[2, 1, 4, 1]);
        assert!(is_record(&bytes) && is_code(&bytes));
        let code = CodeRecord::read(&bytes).unwrap();
        assert_eq!((code.pid, code.process, code.id), (7, 70, 9));
        assert_eq!(code.name.as_deref(), Some("step"));
        assert_eq!(code.file.as_deref(), Some("a.py"));
        assert_eq!(code.size(), size_of::<CodeRecord>() + 4 + 4 + 4);
        assert!(CodeRecord::read(&bytes[..bytes.len() - 1]).is_none());
        let unnamed = CodeRecord::read(&code_record(9, "", &[])).unwrap();
        assert_eq!(unnamed.name, None);
    }

    #[test]
    fn texts_have_characters_of_one_two_or_four_bytes() {
        let of = |kind: u32, bytes: &[u8], is_cut: u32, cut| {
            let bytes_read = u32::try_from(bytes.len()).unwrap();
            let raw = RawPythonText {
                bytes: bytes_read,
                kind,
                is_cut,
            };
            text(&raw, bytes, cut).map(|text| text.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(1, b"a\xe9", 0, ["", "..."]), some("aé"));
        assert_eq!(
            of(2, b"a\0\xac\x20\0\xd8", 0, ["", "..."]),
            some("a€\u{fffd}")
        );
        assert_eq!(of(4, b"a\0\0\0\x40\xf6\x01\0", 0, ["", "..."]), some("a🙀"));
        assert_eq!(of(1, b"ab", 1, ["", "..."]), some("ab..."));
        assert_eq!(of(1, b"ab", 1, ["...", ""]), some("...ab"));
        for unknown in [0, 3, 8] {
            assert_eq!(of(unknown, b"ab", 0, ["", "..."]), None);
        }
        let long = RawPythonText {
            bytes: 3,
            kind: 1,
            is_cut: 0,
        };
        assert!(text(&long, b"ab", ["", "..."]).is_none());
    }

    #[test]
    fn frames_that_have_not_begun_are_hidden() {
        // Two bytes of line 100, then 101.
        let table = [0x80, 0, 0xd8, 0, 1];
        let code = CodeRecord::read(&code_record(9, "f", &table)).unwrap();
        let generator = RawPythonFrame {
            owner: OWNED_BY_GENERATOR,
            ..frame(9, 0, false)
        };
        // Traceable from byte 4 on.
        for (frame, is_hidden) in [
            (frame(9, 0, false), true),
            (frame(9, 3, false), true),
            (frame(9, 4, false), false),
            (frame(9, i32::MIN, false), false),
            (generator, false),
        ] {
            assert_eq!(code.is_hidden(&frame), is_hidden, "{frame:?}");
        }
        let line = |at| code.line(at);
        assert_eq!(line(0), LineEntry::At(100));
        assert_eq!(line(2), LineEntry::At(101));
        assert_eq!(line(4), LineEntry::Beyond);
        assert_eq!(line(-2), LineEntry::At(100));
        assert_eq!(line(i32::MIN), LineEntry::Beyond);
    }
}
