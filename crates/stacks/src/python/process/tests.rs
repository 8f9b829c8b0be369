use std::ops::Range;

use gpuprobe_model::abi::{PYTHON_CUT, PYTHON_UNREADABLE, PYTHON_WAITS};

use super::*;
use crate::python::code::tests::{code_record, frame, stack_record};
use crate::python::interpreter::tests::interpreter;

impl Running {
    /// An interpreter in `module`, with what the kernel side is told of it.
    pub(crate) fn sample(interpreter: Interpreter, module: ModuleId, raw: RawPython) -> Self {
        Self {
            interpreter: Arc::new(interpreter),
            module,
            raw,
            destructor: None,
        }
    }
}

/// Eight bytes of line 100, of which four are hidden, then two of 101.
const TABLE: [u8; 5] = [0x83, 0, 0xd8, 0, 1];

fn code(id: u64, name: &str) -> CodeRecord {
    CodeRecord::read(&code_record(id, name, &TABLE)).unwrap()
}

fn stack(id: u64, frames: &[RawPythonFrame], flags: u32) -> PythonStack {
    PythonStack::read(&stack_record(id, frames, flags))
        .unwrap()
        .1
}

#[test]
fn what_a_process_sends_is_counted_in_bytes() {
    let mut sent = Sent::default();
    let (short, long) = (code(1, "f"), code(1, "function"));
    let sizes = [short.size(), long.size()];
    assert!(sent.keep_code(short) && sent.keep_code(code(2, "f")));
    assert_eq!(sent.bytes(), 2 * sizes[0]);
    assert!(sent.keep_code(long), "in the place of the first");
    assert_eq!(sent.bytes(), sizes[0] + sizes[1]);
}

#[test]
fn a_process_sends_no_more_than_it_may() {
    let mut sent = Sent::default();
    let codes = MAX_CODES as u64;
    assert!((0..codes).all(|id| sent.keep_code(code(id, "f"))));
    assert!(!sent.keep_code(code(codes, "f")));
}

/// This process, in which `inside` is in the evaluation loop.
struct OwnProcess {
    spaces: AddressSpaces,
    /// In the loop, and in no file.
    inside: Location,
    outside: Location,
    module: ModuleId,
    eval: Range<u64>,
}

fn own_process() -> OwnProcess {
    let mut spaces = AddressSpaces::default();
    let pid = std::process::id();
    spaces.refresh(pid);
    let here = own_process as fn() -> OwnProcess as usize as u64;
    let inside = spaces.locate_caller(pid, here + 4);
    let address = spaces.file_address(&inside).unwrap();
    let outside = Location {
        address: 1,
        module: None,
        offset: 0,
    };
    OwnProcess {
        module: inside.module.unwrap(),
        eval: address..address + 1,
        spaces,
        inside,
        outside,
    }
}

impl OwnProcess {
    /// The merged stack of two calls of the evaluation loop: `E` is the loop, `n` another native frame, other
    /// frames have a function's name and line. And whether it is complete, and lacks some.
    fn merged(
        &self,
        minor: u8,
        frames: &[RawPythonFrame],
        (flags, is_complete): (u32, bool),
    ) -> (String, bool, bool) {
        let mut sent = Sent::default();
        for (id, name) in [(1, "f"), (2, "g"), (3, "")] {
            assert!(sent.keep_code(code(id, name)));
        }
        let interpreter = interpreter(minor, self.eval.clone());
        let raw = interpreter.layout(0).unwrap();
        let running = Running::sample(interpreter, self.module, raw);
        let native = CallStack {
            locations: vec![self.outside, self.inside, self.inside, self.outside],
            is_complete,
        };
        let mut lines = KnownLines::default();
        let stack = stack(1, frames, flags);
        let (merged, lacks) = sent.merged(&native, &stack, &running, &self.spaces, &mut lines);
        let shown = |location: &Location| match location.python_line() {
            Some(UNREADABLE) => "?".to_owned(),
            Some(CUT) => "cut".to_owned(),
            Some(WAITS) => "waits".to_owned(),
            Some(number) => {
                let line = lines.get(number).unwrap();
                let number = line.line.map_or("-".to_owned(), |line| line.to_string());
                format!("{}:{number}", line.function)
            }
            None if *location == self.inside => "E".to_owned(),
            None => "n".to_owned(),
        };
        let shown: Vec<_> = merged.locations.iter().map(shown).collect();
        (shown.join(" "), merged.is_complete, lacks)
    }
}

#[test]
fn python_frames_stand_before_the_loop_that_runs_them() {
    let process = own_process();
    let (f, g) = (frame(1, 4, true), frame(2, 4, true));
    let inner = frame(1, 4, false);
    let whole = (0, true);
    for (frames, how, expected, is_complete) in [
        (&[f, g][..], whole, "n f:100 E g:100 E n", true),
        (&[inner, f, g], whole, "n f:100 f:100 E g:100 E n", true),
        (&[f, g, f], whole, "n f:100 E g:100 E n f:100", true),
        (&[f], (PYTHON_CUT, true), "n f:100 E cut E n", false),
        (&[f], (PYTHON_UNREADABLE, true), "n f:100 E ? E n", false),
        (&[f, g], (0, false), "n f:100 E g:100 E n", false),
        (&[f], (0, false), "n f:100 E E n", false),
        (
            &[f, g],
            (PYTHON_WAITS, true),
            "n E E n waits f:100 g:100",
            true,
        ),
        (&[frame(7, 4, true), g], whole, "n ? E g:100 E n", true),
        (&[frame(3, 4, true), g], whole, "n ? E g:100 E n", true),
    ] {
        let merged = process.merged(11, frames, how);
        assert_eq!(
            merged,
            (expected.to_owned(), is_complete, false),
            "{frames:?}"
        );
    }
}

#[test]
fn frames_of_other_interpreters_of_a_thread_are_said_to_be_missing() {
    let process = own_process();
    let (f, g) = (frame(1, 2, true), frame(2, 2, true));
    for (minor, frames, expected, is_complete, lacks) in [
        (11, &[frame(1, 4, true)][..], "n ? E f:100 E n", false, true),
        (11, &[f], "n ? E E n", false, true),
        (11, &[], "n ? E ? E n", false, true),
        (12, &[frame(1, 0, true)], "n E E n", true, false),
        (11, &[f, g], "n E E n", true, false),
    ] {
        let merged = process.merged(minor, frames, (0, true));
        let expected = (expected.to_owned(), is_complete, lacks);
        assert_eq!(merged, expected, "{minor} {frames:?}");
    }
}

#[test]
fn a_line_beyond_what_was_sent_is_said_to_be_missing() {
    let process = own_process();
    let (f, g) = (frame(1, 10, true), frame(2, 10, true));
    // The table ends before.
    let (shown, is_complete, lacks) = process.merged(12, &[f, g], (0, true));
    assert_eq!(
        (shown.as_str(), is_complete, lacks),
        ("n f:- E g:- E n", true, true)
    );
    // Only the file of the interpreter has its loop.
    let native = CallStack {
        locations: vec![process.outside, process.inside],
        is_complete: true,
    };
    let interpreter = interpreter(12, 0..u64::MAX);
    let raw = interpreter.layout(0).unwrap();
    let other = Running::sample(interpreter, ModuleId(u32::MAX), raw);
    let sent = Sent::default();
    let mut lines = KnownLines::default();
    let stack = stack(1, &[f], 0);
    let (merged, _) = sent.merged(&native, &stack, &other, &process.spaces, &mut lines);
    assert_eq!(merged.locations[..2], native.locations[..]);
}
