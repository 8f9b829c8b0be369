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
    pub(crate) fn stack_record(id: u64, frames: &[WalkedFrame], flags: u32) -> Vec<u8> {
        let mut raw = RawPythonStack::new_zeroed();
        raw.record_type = record::PYTHON;
        (raw.tgid, raw.process, raw.id, raw.native) = (7, 70, id, id + 1);
        (raw.count, raw.flags) = (u16::try_from(frames.len()).unwrap(), flags);
        for (raw, frame) in raw.frames.iter_mut().zip(frames) {
            (raw.code, raw.instruction) = (frame.code, frame.instruction);
            (raw.owner, raw.is_entry) = (frame.owner, u8::from(frame.is_entry));
        }
        raw.as_bytes().to_vec()
    }

    /// A frame at an instruction of a code object.
    pub(crate) fn frame(code: u64, instruction: i32, is_entry: bool) -> WalkedFrame {
        WalkedFrame {
            code,
            instruction,
            owner: 0,
            is_entry,
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
        let read = CodeRecord::read(&bytes).unwrap();
        assert_eq!((read.pid, read.process, read.id), (7, 70, 9));
        let code = read.code;
        assert_eq!(code.name.as_deref(), Some("step"));
        assert_eq!(code.file.as_deref(), Some("a.py"));
        assert_eq!(code.size(), size_of::<CodeObject>() + 4 + 4 + 4);
        assert!(CodeRecord::read(&bytes[..bytes.len() - 1]).is_none());
        let unnamed = CodeRecord::read(&code_record(9, "", &[])).unwrap();
        assert_eq!(unnamed.code.name, None);
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
        assert_eq!(of(1, b"a\xe9", 0, Cut::End), some("aé"));
        assert_eq!(of(2, b"a\0\xac\x20\0\xd8", 0, Cut::End), some("a€\u{fffd}"));
        assert_eq!(of(4, b"a\0\0\0\x40\xf6\x01\0", 0, Cut::End), some("a🙀"));
        assert_eq!(of(1, b"ab", 1, Cut::End), some("ab..."));
        assert_eq!(of(1, b"ab", 1, Cut::Beginning), some("...ab"));
        for unknown in [0, 3, 8] {
            assert_eq!(of(unknown, b"ab", 0, Cut::End), None);
        }
        let long = RawPythonText {
            bytes: 3,
            kind: 1,
            is_cut: 0,
        };
        assert!(text(&long, b"ab", Cut::End).is_none());
    }

    #[test]
    fn frames_that_have_not_begun_are_hidden() {
        // Two bytes of line 100, then 101.
        let table = [0x80, 0, 0xd8, 0, 1];
        let code = CodeRecord::read(&code_record(9, "f", &table)).unwrap().code;
        let generator = WalkedFrame {
            owner: OWNED_BY_GENERATOR,
            ..frame(9, 0, false)
        };
        // Traceable from byte 4 on.
        for (minor, frame, is_hidden) in [
            (11, frame(9, 0, false), true),
            (11, frame(9, 3, false), true),
            (11, frame(9, 4, false), false),
            (11, frame(9, i32::MIN, false), false),
            (11, generator, false),
            (10, frame(9, 0, false), false),
        ] {
            assert_eq!(
                code.is_hidden(minor, &frame),
                is_hidden,
                "{minor} {frame:?}"
            );
        }
        let line = |minor, at| code.line(minor, &frame(9, at, false));
        assert_eq!(line(11, 0), LineEntry::At(100));
        assert_eq!(line(11, 2), LineEntry::At(101));
        assert_eq!(line(11, 4), LineEntry::Beyond);
        assert_eq!(line(11, -2), LineEntry::At(100));
        assert_eq!(line(11, i32::MIN), LineEntry::Beyond);
        // In instructions: the third is beyond two ranges of two bytes.
        let pairs = CodeRecord::read(&code_record(9, "f", &[2, 0, 4, 1])).unwrap();
        let line = |at| pairs.code.line(10, &frame(9, at, false));
        assert_eq!(
            [0, 1, 2, 3].map(line)[..3],
            [100, 101, 101].map(LineEntry::At)
        );
        assert_eq!(line(3), LineEntry::Beyond);
    }
}
