//! Store of the Python lines seen, by number.

use std::collections::HashMap;
use std::rc::Rc;

use gpuprobe_model::stack::{Frame, Language};

/// Maximum number of lines of all processes.
const MAX_LINES: usize = 1 << 20;
/// Maximum bytes of their names, counted for each line.
const MAX_BYTES: usize = 256 << 20;

/// Number that stands for an unreadable frame.
pub const UNREADABLE: u32 = 0;
/// Number that stands for the frames beyond the maximum depth.
pub const CUT: u32 = 1;

/// Number that precedes the frames of the main thread in the stack of another thread.
pub const WAITS: u32 = 2;

/// A line of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PythonLine {
    /// Process number of the kernel side: the same name may be another file in another process.
    pub process: u32,
    /// Qualified name of the function.
    pub function: Rc<str>,
    /// Path of the file; `None` for a mark.
    pub file: Option<Rc<str>>,
    /// Line number, if known.
    pub line: Option<u32>,
}

impl PythonLine {
    fn mark(function: &str) -> Self {
        Self {
            process: 0,
            function: function.into(),
            file: None,
            line: None,
        }
    }

    /// The line as a frame, without source text.
    pub fn frame(&self) -> Frame {
        Frame {
            function: self.function.to_string(),
            file: self.file.as_deref().map(str::to_owned),
            line: self.line,
            source: None,
            module: String::new(),
            address: 0,
            language: Language::Python,
            inlined: false,
        }
    }

    fn size(&self) -> usize {
        let file = self.file.as_ref().map_or(0, |file| file.len());
        2 * size_of::<Self>() + self.function.len() + file
    }
}

/// The Python lines of all processes, by number.
#[derive(Debug)]
pub struct KnownLines {
    numbers: HashMap<PythonLine, u32>,
    lines: HashMap<u32, PythonLine>,
    count: u32,
    bytes: usize,
}

impl Default for KnownLines {
    fn default() -> Self {
        let depth = gpuprobe_model::abi::PYTHON_DEPTH;
        let mut known = Self {
            numbers: HashMap::new(),
            lines: HashMap::new(),
            count: 0,
            bytes: 0,
        };
        // In the order of the constants.
        known.number(PythonLine::mark("[unreadable Python frame]"));
        known.number(PythonLine::mark(&format!("[cut: {depth} Python frames]")));
        known.number(PythonLine::mark("[the main thread waits]"));
        known
    }
}

impl KnownLines {
    /// The number of a line; [`UNREADABLE`] if the limit is reached.
    pub fn number(&mut self, line: PythonLine) -> u32 {
        if let Some(&number) = self.numbers.get(&line) {
            return number;
        }
        if self.lines.len() >= MAX_LINES || self.bytes >= MAX_BYTES {
            return UNREADABLE;
        }
        let number = self.count;
        self.count += 1;
        self.bytes += line.size();
        self.lines.insert(number, line.clone());
        self.numbers.insert(line, number);
        number
    }

    /// The line with this number.
    pub fn get(&self, number: u32) -> Option<&PythonLine> {
        self.lines.get(&number)
    }

    /// Removes the lines of an ended process, of which no more stacks arrive.
    pub fn forget(&mut self, process: u32) {
        let gone = |line: &PythonLine| line.process == process && line.file.is_some();
        let bytes = &mut self.bytes;
        self.numbers.retain(|line, _| !gone(line));
        self.lines.retain(|_, line| {
            let is_gone = gone(line);
            *bytes -= if is_gone { line.size() } else { 0 };
            !is_gone
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_number_until_its_process_ends() {
        let mut known = KnownLines::default();
        let line = |process, line| PythonLine {
            process,
            function: "step".into(),
            file: Some("train.py".into()),
            line: Some(line),
        };
        assert_eq!(known.get(UNREADABLE).unwrap().frame().file, None);
        assert_eq!(
            known.get(CUT).unwrap().frame().function,
            "[cut: 128 Python frames]"
        );
        let first = known.number(line(7, 1));
        assert_eq!(known.number(line(7, 1)), first);
        assert_ne!(known.number(line(7, 2)), first);
        assert_ne!(known.number(line(8, 1)), first);
        let frame = known.get(first).unwrap().frame();
        assert_eq!((frame.line, frame.language), (Some(1), Language::Python));
        let before = known.bytes;
        known.forget(7);
        assert!(known.get(first).is_none() && known.get(CUT).is_some());
        assert!(known.bytes < before && known.bytes > 0);
        assert_ne!(
            known.number(line(7, 1)),
            first,
            "numbers are not used again"
        );
    }

    #[test]
    fn lines_take_no_more_than_they_may() {
        let mut known = KnownLines::default();
        let before = (known.lines.len(), known.bytes);
        let line = |number: u32| PythonLine {
            process: 7,
            function: "step".into(),
            file: Some("train.py".into()),
            line: Some(number),
        };
        let size = 2 * size_of::<PythonLine>() + 4 + 8;
        assert_eq!(known.number(line(1)), 3);
        assert_eq!((known.lines.len(), known.bytes), (4, before.1 + size));
        let mark = PythonLine {
            file: None,
            ..line(1)
        };
        assert_eq!(mark.size(), size - 8);
        known.bytes = MAX_BYTES - 1;
        assert_eq!(known.number(line(2)), 4);
        assert_eq!(known.number(line(3)), UNREADABLE, "too many bytes");
        assert_eq!(known.number(line(2)), 4);
        known.bytes = before.1 + 2 * size;
        known.forget(0);
        assert_eq!(known.bytes, before.1 + 2 * size);
        known.forget(7);
        assert_eq!((known.lines.len(), known.bytes), before);
        assert_eq!(known.numbers.len(), before.0);
    }
}
