//! A shell script and the workloads that it starts, each with its own command channel.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::child::Guarded;
use super::standin::{Backend, standin};
use super::talk::Talk;

/// A shell and its descendants.
pub(crate) struct Family {
    pub(crate) shell: Guarded,
    folder: TempDir,
}

impl Family {
    /// Runs `script`. `@name` in it is a workload, which starts when [`Self::member`] asks for it;
    /// `@name=/path` is the workload at that path.
    pub(crate) fn start(script: &str) -> Self {
        Self::of(&standin().program(Backend::Shared), script)
    }

    /// [`Self::start`] with another workload.
    pub(crate) fn of(program: &Path, script: &str) -> Self {
        let folder = TempDir::new().unwrap();
        // Workloads of other users write here, too.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let mut text = Vec::new();
        for word in script.split(' ') {
            let Some(name) = word.trim_start_matches('(').strip_prefix('@') else {
                text.push(word.to_owned());
                continue;
            };
            let member = name.trim_end_matches([')', ';']);
            let (name, other) = member.split_once('=').unzip();
            let name = name.unwrap_or(member);
            let path = folder.path().join(name);
            symlink(program, &path).unwrap();
            let program = other.map_or(path.display().to_string(), str::to_owned);
            let run = format!("{program} {}", make_channel(&path));
            text.push(word.replacen(&format!("@{member}"), &run, 1));
        }
        let mut command = Command::new("sh");
        command
            .args(["-c", &text.join(" ")])
            .env_remove("CUDA_VISIBLE_DEVICES")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let shell = Guarded::spawn(&mut command).expect("a shell starts");
        Self { shell, folder }
    }

    /// The shell's process, or the program that it executed.
    pub(crate) fn root(&self) -> u32 {
        self.shell.pid()
    }

    /// Starts a workload of the script.
    pub(crate) fn member(&self, name: &str) -> Member {
        Member::open(&self.folder.path().join(name))
    }

    /// Starts the workloads `names`. Each calls CUDA once, which allocates nothing.
    pub(crate) fn members<const N: usize>(&self, names: [&str; N]) -> [Member; N] {
        names.map(|name| {
            let mut member = self.member(name);
            member.say("freenull");
            member
        })
    }
}

/// Makes the FIFOs of a workload; returns the redirections for the shell that starts it.
pub(super) fn make_channel(path: &Path) -> String {
    for end in ["in", "out"] {
        mkfifo(&path.with_extension(end), Mode::S_IRWXU).unwrap();
    }
    let path = path.display();
    format!("<{path}.in >{path}.out")
}

/// A workload of a script.
pub(crate) struct Member {
    /// PID in the workload's own namespace.
    pub(crate) pid: u32,
    talk: Talk,
}

impl Member {
    /// The workload that a shell starts with [`make_channel`] of this path.
    pub(super) fn open(path: &Path) -> Self {
        // Opened for reading as well, so that the open does not wait for the workload.
        let input = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path.with_extension("in"));
        let mut talk = Talk::between(
            input.expect("a member of the script"),
            Opening::Later(path.with_extension("out")),
        );
        let pid = talk.ready();
        Self { pid, talk }
    }
}

impl Deref for Member {
    type Target = Talk;

    fn deref(&self) -> &Talk {
        &self.talk
    }
}

impl DerefMut for Member {
    fn deref_mut(&mut self) -> &mut Talk {
        &mut self.talk
    }
}

/// The reading end of a FIFO, which waits for its writer at the first read, not at the open.
enum Opening {
    Later(PathBuf),
    Done(File),
}

impl Read for Opening {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Self::Later(path) = self {
            *self = Self::Done(File::open(path)?);
        }
        match self {
            Self::Done(file) => file.read(buffer),
            Self::Later(_) => Ok(0),
        }
    }
}
