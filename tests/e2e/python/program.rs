//! `programs/python/frames.py` and the stacks that it prints.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::TempDir;

use super::{DEPTH, ELLIPSIS, FILE_BYTES, Frame, NAME_BYTES};
use crate::harness::standin;
use crate::harness::talk::Talk;
use crate::pythons::Python;

/// How the interpreter gets its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Script,
    Module,
    Text,
    Input,
}

/// An allocation, and its thread.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) size: u64,
    pub(super) thread: u64,
    pub(super) case: String,
    pub(super) frames: Vec<Frame>,
}

impl Told {
    fn parse(line: &str) -> Self {
        // Python's surrogates are no valid characters.
        let line = line.replace("\\ud800", "\\ufffd");
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let frame = |frame: &Value| Frame {
            function: text(&frame[0]),
            file: text(&frame[1]),
            line: frame[2].as_u64(),
        };
        Self {
            size: told["size"].as_u64().unwrap(),
            thread: told["thread"].as_u64().unwrap(),
            case: text(&told["case"]),
            frames: told["frames"]
                .as_array()
                .unwrap()
                .iter()
                .map(frame)
                .collect(),
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.frames.len() > DEPTH
    }

    /// The frames as gpuprobe should show them.
    pub(super) fn expected(&self) -> Vec<Frame> {
        let shown = self.frames.iter().take(DEPTH);
        shown
            .map(|frame| Frame {
                function: cut_end(&frame.function),
                file: cut_beginning(&frame.file),
                line: frame.line,
            })
            .collect()
    }
}

/// Bytes per character of a str.
fn width(text: &str) -> usize {
    let last = text.chars().map(u32::from).max().unwrap_or(0);
    match last {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

fn cut_end(text: &str) -> String {
    let room = NAME_BYTES / width(text);
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room).collect::<String>() + ELLIPSIS
}

fn cut_beginning(text: &str) -> String {
    let (room, count) = (FILE_BYTES / width(text), text.chars().count());
    if count <= room {
        return text.to_owned();
    }
    ELLIPSIS.to_owned() + &text.chars().skip(count - room).collect::<String>()
}

/// The program, before and while it runs.
pub(super) struct FramesProgram {
    pub(super) form: Form,
    program: PathBuf,
    cases: Vec<String>,
    fifo: File,
    folder: TempDir,
}

impl FramesProgram {
    pub(super) fn new(python: &Python, form: Form, cases: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("fifo");
        mkfifo(&path, Mode::from_bits_truncate(0o600)).unwrap();
        // Opened for both: a write does not wait for a reader then.
        let mut both = OpenOptions::new();
        let fifo = both.read(true).write(true).open(path).unwrap();
        Self {
            form,
            program: python.program.clone(),
            cases: cases.iter().copied().map(str::to_owned).collect(),
            fifo,
            folder,
        }
    }

    pub(super) fn fifo_path(&self) -> PathBuf {
        self.folder.path().join("fifo")
    }

    /// The FIFO of a running program, which is an argument of it.
    pub(super) fn fifo_of(pid: u32) -> PathBuf {
        let process = procfs::process::Process::new(pid.cast_signed()).unwrap();
        let words = process.cmdline().unwrap();
        let fifo = words.iter().find(|word| word.ends_with("/fifo"));
        PathBuf::from(fifo.unwrap_or_else(|| panic!("{words:?}")))
    }

    /// A shell script that runs all of `programs` at once, until each has ended.
    pub(super) fn script<'a>(programs: impl Iterator<Item = &'a Self>) -> String {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/python/frames.py");
        let folder = source.parent().unwrap().display();
        let (source, runtime) = (source.display(), standin().runtime());
        let mut script = format!("export PYTHONPATH='{folder}'\n");
        for program in programs {
            let (form, input) = match program.form {
                Form::Script => (format!("'{source}'"), "/dev/null".to_owned()),
                Form::Module => ("-m frames".to_owned(), "/dev/null".to_owned()),
                Form::Text => (format!("-c \"$(cat '{source}')\""), "/dev/null".to_owned()),
                Form::Input => ("-".to_owned(), source.to_string()),
            };
            let (python, fifo) = (program.program.display(), program.fifo_path());
            let (fifo, cases) = (fifo.display(), program.cases.join(" "));
            script += &format!("'{python}' -B {form} '{runtime}' '{fifo}' {cases} <'{input}' &\n");
        }
        script + "wait"
    }

    /// Lets the program continue.
    pub(super) fn go_on(&mut self) {
        writeln!(self.fifo).unwrap();
    }

    /// All of the program's output.
    pub(super) fn told(talk: &mut Talk) -> Vec<Told> {
        let mut told = Vec::new();
        loop {
            let line = talk.hear();
            if line == "done" {
                return told;
            }
            told.push(Told::parse(&line));
        }
    }
}
