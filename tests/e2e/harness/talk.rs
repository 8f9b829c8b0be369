//! Traced programs that do what they are told, and say exactly what they did.

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

/// What a reply says under `name`, as in `launches=5 handle=0x40`.
pub(crate) fn said<'a>(reply: &'a str, name: &str) -> &'a str {
    let mut pairs = reply.split(' ').filter_map(|word| word.split_once('='));
    let found = pairs.find(|(said, _)| *said == name);
    found.unwrap_or_else(|| panic!("no {name} in '{reply}'")).1
}

/// A conversation with a workload: a command a line, one line in reply.
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

    /// With a workload that reads `input` and writes `output`.
    pub(crate) fn between(input: impl Write + 'static, output: impl Read + Send + 'static) -> Self {
        Self {
            input: Some(Box::new(input)),
            output: Transcript::of(output),
        }
    }

    /// The next line of the workload.
    pub(crate) fn hear(&mut self) -> String {
        self.output.next_line().expect("another line")
    }

    /// Waits for the greeting; gives the process id.
    pub(crate) fn ready(&mut self) -> u32 {
        let line = self.hear();
        let pid = line.strip_prefix("ready ").and_then(|p| p.parse().ok());
        pid.unwrap_or_else(|| panic!("'{line}' instead of a greeting"))
    }

    /// Sends a line and waits for nothing.
    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}").expect("the workload reads");
    }

    /// Has the workload run `command`; gives its reply without the `ok`.
    pub(crate) fn say(&mut self, command: &str) -> String {
        self.send(command);
        let reply = self.hear();
        let text = reply.strip_prefix("ok");
        let text = text.unwrap_or_else(|| panic!("'{command}' was answered '{reply}'"));
        text.trim_start().to_owned()
    }

    /// Has the workload run commands that `;` separates. `$name` stands for the last word of the
    /// reply to the last command `name`, and what follows a `!` is to be refused.
    pub(crate) fn play(&mut self, script: &str) {
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
                continue;
            }
            let reply = self.say(&line);
            let mut words = line.split(' ').skip_while(|word| word.starts_with('@'));
            let last = reply.split(' ').next_back().unwrap_or_default();
            replies.insert(words.next().unwrap().to_owned(), last.to_owned());
        }
    }

    /// [`Self::say`], right after a line that was sent and whose reply has not been read.
    pub(crate) fn say_next(&mut self, command: &str) -> String {
        self.send(command);
        let reply = self.hear();
        assert!(reply.starts_with("ok"), "it was answered '{reply}'");
        let reply = self.hear();
        let text = reply.strip_prefix("ok");
        let text = text.unwrap_or_else(|| panic!("'{command}' was answered '{reply}'"));
        text.trim_start().to_owned()
    }

    /// [`Self::say`], for commands that are answered with something to parse in the first word.
    pub(crate) fn ask<T: FromStr<Err: Debug>>(&mut self, command: &str) -> T {
        let reply = self.say(command);
        reply.split(' ').next().unwrap().parse().unwrap()
    }

    /// What the workload has done so far.
    pub(crate) fn status(&mut self) -> Truth {
        Truth::parse(&self.say("status"))
    }

    /// Ends the workload; gives all that it has done.
    pub(crate) fn done(&mut self) -> Truth {
        self.say("exit");
        Truth::parse_done(&self.hear())
    }

    /// Ends the input.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// All that was written, once the output has ended.
    pub(crate) fn to_end(&self) -> Vec<String> {
        self.output.to_end()
    }
}

/// A workload that is not ours to trace until somebody attaches.
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
        // What children of the workload say; it must be read for them to go on.
        drop(Transcript::of(
            child.streams().stderr.take().expect("a pipe"),
        ));
        let mut talk = Talk::new(&mut child);
        let pid = talk.ready();
        Self { child, pid, talk }
    }

    /// A command that starts the workload of `backend` with settings of the stand-in.
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
