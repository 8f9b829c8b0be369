//! Store of the Python lines seen, by number.

use std::collections::HashMap;
use std::sync::Arc;

use gpuprobe_model::stack::{Frame, Language};

/// Maximum number of lines of all processes, of some 400 bytes each at most.
const MAX_LINES: usize = 1 << 19;

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
    pub function: Arc<str>,
    /// Path of the file; `None` for a mark.
    pub file: Option<Arc<str>>,
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
            language: Language::Python,
            ..Frame::default()
        }
    }
}

/// The Python lines of all processes, by number.
#[derive(Debug)]
pub struct KnownLines {
    numbers: HashMap<PythonLine, u32>,
    lines: HashMap<u32, PythonLine>,
    count: u32,
}

impl Default for KnownLines {
    fn default() -> Self {
        let depth = gpuprobe_model::abi::PYTHON_DEPTH;
        let mut known = Self {
            numbers: HashMap::new(),
            lines: HashMap::new(),
            count: 0,
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
        if self.lines.len() >= MAX_LINES {
            return UNREADABLE;
        }
        let number = self.count;
        self.count += 1;
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
        let is_kept = |line: &PythonLine| line.process != process || line.file.is_none();
        self.numbers.retain(|line, _| is_kept(line));
        self.lines.retain(|_, line| is_kept(line));
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
        known.forget(7);
        assert!(known.get(first).is_none() && known.get(CUT).is_some());
        assert_eq!(known.numbers.len(), known.lines.len());
        assert_ne!(
            known.number(line(7, 1)),
            first,
            "numbers are not used again"
        );
    }

    #[test]
    fn lines_are_limited_in_number() {
        let mut known = KnownLines::default();
        let line = |number: u32| PythonLine {
            process: 7,
            function: "step".into(),
            file: Some("train.py".into()),
            line: Some(number),
        };
        let limit = u32::try_from(MAX_LINES).unwrap();
        assert!((3..limit).all(|number| known.number(line(number)) == number));
        assert_eq!(known.number(line(0)), UNREADABLE, "too many");
        assert_eq!(known.number(line(4)), 4);
        known.forget(7);
        assert_eq!(known.number(line(0)), limit);
    }
}
