//! `programs/python/frames.py` and the stacks that it prints.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::TempDir;

use super::{DEPTH, ELLIPSIS, FILE_BYTES, Frame, NAME_BYTES};
use crate::harness::child::Guarded;
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
    fifo: File,
    folder: TempDir,
    form: Form,
}

impl FramesProgram {
    pub(super) fn new(form: Form) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("fifo");
        mkfifo(&path, Mode::from_bits_truncate(0o600)).unwrap();
        // Opened for both: a write does not wait for a reader then.
        let mut both = OpenOptions::new();
        let fifo = both.read(true).write(true).open(path).unwrap();
        Self { fifo, folder, form }
    }

    fn source() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/python/frames.py")
    }

    fn text() -> String {
        std::fs::read_to_string(Self::source()).unwrap()
    }

    /// The command; `env` first, for its environment.
    pub(super) fn words(&self, python: &Python, cases: &[&str]) -> Vec<String> {
        let source = Self::source();
        let folder = source.parent().unwrap().to_str().unwrap();
        let variable = format!("PYTHONPATH={folder}");
        let mut words = ["env", &variable, python.program.to_str().unwrap(), "-B"]
            .map(str::to_owned)
            .to_vec();
        words.extend(match self.form {
            Form::Script => vec![source.to_str().unwrap().to_owned()],
            Form::Module => vec!["-m".to_owned(), "frames".to_owned()],
            Form::Text => vec!["-c".to_owned(), Self::text()],
            Form::Input => vec!["-".to_owned()],
        });
        words.push(standin().runtime());
        words.push(self.folder.path().join("fifo").to_str().unwrap().to_owned());
        words.extend(cases.iter().copied().map(str::to_owned));
        words
    }

    /// Starts the program, untraced.
    pub(super) fn spawn(&self, python: &Python, cases: &[&str]) -> (Guarded, Talk) {
        let words = self.words(python, cases);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Guarded::spawn(&mut command).unwrap();
        let mut talk = Talk::new(&mut child);
        self.begin(&mut talk);
        (child, talk)
    }

    /// Writes the program to standard input, if it is read from there.
    pub(super) fn begin(&self, talk: &mut Talk) {
        if self.form == Form::Input {
            talk.send(&Self::text());
        }
        talk.close();
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
