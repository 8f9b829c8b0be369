//! Workloads that execute commands and report exactly what they did.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::process::{Command, Stdio};
use std::str::FromStr;

use super::child::Guarded;
use super::standin::{Backend, OwnCopy, standin};
use super::transcript::Transcript;
use super::truth::Truth;

/// The value of `name` in a reply such as `launches=5 handle=0x40`.
pub(crate) fn said<'a>(reply: &'a str, name: &str) -> &'a str {
    let mut pairs = reply.split(' ').filter_map(|word| word.split_once('='));
    let found = pairs.find(|(said, _)| *said == name);
    found.unwrap_or_else(|| panic!("no {name} in '{reply}'")).1
}

/// The command channel of a workload: one command per line, one line in reply.
pub(crate) struct Talk {
    input: Option<Box<dyn Write>>,
    output: Transcript,
}

impl Talk {
    pub(crate) fn new(child: &mut Guarded) -> Self {
        let streams = child.streams();
        Self {
            input: streams.stdin.take().map(|pipe| Box::new(pipe) as _),
            output: Transcript::of(streams.stdout.take().expect("a pipe")),
        }
    }

    /// The channel of a workload that reads `input` and writes `output`.
    pub(crate) fn between(input: impl Write + 'static, output: impl Read + Send + 'static) -> Self {
        Self {
            input: Some(Box::new(input)),
            output: Transcript::of(output),
        }
    }

    /// The workload's next line.
    pub(crate) fn hear(&mut self) -> String {
        self.output.next_line().expect("another line")
    }

    /// Waits for the greeting; returns the PID.
    pub(crate) fn ready(&mut self) -> u32 {
        let line = self.hear();
        let pid = line.strip_prefix("ready ").and_then(|p| p.parse().ok());
        pid.unwrap_or_else(|| panic!("'{line}' instead of a greeting"))
    }

    /// Sends a line without waiting for the reply.
    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}").expect("the workload reads");
    }

    /// Runs `command` in the workload; returns its reply without the `ok`.
    pub(crate) fn say(&mut self, command: &str) -> String {
        self.send(command);
        self.answer(command)
    }

    fn answer(&mut self, command: &str) -> String {
        let reply = self.hear();
        let text = reply.strip_prefix("ok");
        let text = text.unwrap_or_else(|| panic!("'{command}' was answered '{reply}'"));
        text.trim_start().to_owned()
    }

    /// Runs commands separated by `;` in the workload. `$name` is replaced with the last word of
    /// the reply to the last command `name`; a command after `!` must be refused. Returns the replies.
    pub(crate) fn play(&mut self, script: &str) -> Vec<String> {
        let mut all = Vec::new();
        let mut replies: HashMap<String, String> = HashMap::new();
        for command in script.split(';').map(str::trim) {
            let words = command.split_whitespace().map(|word| {
                let name = word.strip_prefix('$');
                name.map_or(word, |name| replies[name].as_str())
            });
            let line = words.collect::<Vec<_>>().join(" ");
            if let Some(line) = line.strip_prefix('!') {
                self.send(line);
                let reply = self.hear();
                assert!(reply.starts_with("error"), "'{line}' gave '{reply}'");
                all.push(reply);
                continue;
            }
            let reply = self.say(&line);
            let mut words = line.split(' ').skip_while(|word| word.starts_with('@'));
            let last = reply.split(' ').next_back().unwrap_or_default();
            replies.insert(words.next().unwrap().to_owned(), last.to_owned());
            all.push(reply);
        }
        all
    }

    /// [`Self::say`] for a line that has been sent already and whose reply has not been read.
    pub(crate) fn say_next(&mut self, command: &str) -> String {
        self.send(command);
        self.answer("the line before");
        self.answer(command)
    }

    /// [`Self::say`] for commands whose reply's first word is a value.
    pub(crate) fn ask<T: FromStr<Err: Debug>>(&mut self, command: &str) -> T {
        let reply = self.say(command);
        reply.split(' ').next().unwrap().parse().unwrap()
    }

    /// The workload's totals so far.
    pub(crate) fn status(&mut self) -> Truth {
        Truth::parse(&self.say("status"))
    }

    /// Ends the workload; returns its totals.
    pub(crate) fn done(&mut self) -> Truth {
        self.say("exit");
        Truth::parse_done(&self.hear())
    }

    /// Closes the input.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// All output until its end.
    pub(crate) fn to_end(&self) -> Vec<String> {
        self.output.to_end()
    }
}

/// A workload that runs independently of gpuprobe, to be attached to.
pub(crate) struct Workload {
    pub(crate) child: Guarded,
    pub(crate) pid: u32,
    talk: Talk,
}

impl Workload {
    pub(crate) fn start(backend: Backend) -> Self {
        Self::spawn(&mut Command::new(standin().program(backend)))
    }

    /// The workload of a copy of the stand-in.
    pub(crate) fn of(copy: &OwnCopy, backend: Backend) -> Self {
        Self::spawn(&mut Command::new(copy.standin().program(backend)))
    }

    /// Starts `command`, which must be a workload.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let command = command
            .env_remove("CUDA_VISIBLE_DEVICES")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Guarded::spawn(command).expect("the workload starts");
        // Output of the workload's children; they block unless it is read.
        drop(Transcript::of(
            child.streams().stderr.take().expect("a pipe"),
        ));
        let mut talk = Talk::new(&mut child);
        let pid = talk.ready();
        Self { child, pid, talk }
    }

    /// A command that starts the workload of `backend` with the stand-in's settings `options`.
    pub(crate) fn command(backend: Backend, settings: &[(&str, &str)]) -> Command {
        let mut command = Command::new(standin().program(backend));
        command.envs(settings.iter().copied());
        command
    }
}

impl Deref for Workload {
    type Target = Talk;

    fn deref(&self) -> &Talk {
        &self.talk
    }
}

impl DerefMut for Workload {
    fn deref_mut(&mut self) -> &mut Talk {
        &mut self.talk
    }
}
