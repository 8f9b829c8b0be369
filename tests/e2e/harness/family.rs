//! A shell script and the workloads that it starts, each talked to by itself.

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

/// A shell and all that descends from it.
pub(crate) struct Family {
    pub(crate) shell: Guarded,
    folder: TempDir,
}

impl Family {
    /// Runs `script`. Each of its words that is `@` and a name is a workload of that name, which
    /// begins when it is asked for with [`Self::member`]; `@name=/path` is one at that path.
    pub(crate) fn start(script: &str) -> Self {
        Self::of(&standin().program(Backend::Shared), script)
    }

    /// [`Self::start`] with another workload.
    pub(crate) fn of(program: &Path, script: &str) -> Self {
        let folder = TempDir::new().unwrap();
        // Workloads of other users are here too.
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
            for end in ["in", "out"] {
                mkfifo(&path.with_extension(end), Mode::S_IRWXU).unwrap();
            }
            let path = path.display();
            let program = other.map_or(path.to_string(), str::to_owned);
            let run = format!("{program} <{path}.in >{path}.out");
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

    /// The process of the shell, or of what it has executed.
    pub(crate) fn root(&self) -> u32 {
        self.shell.pid()
    }

    /// Has a workload of the script begin.
    pub(crate) fn member(&self, name: &str) -> Member {
        let path = self.folder.path().join(name);
        let input = path.with_extension("in");
        // For reading too: so it does not wait for the workload.
        let input = OpenOptions::new().read(true).write(true).open(input);
        let mut talk = Talk::between(
            input.expect("a member of the script"),
            Opening::Later(path.with_extension("out")),
        );
        let pid = talk.ready();
        Member { pid, talk }
    }

    /// Has the workloads `names` begin. They call CUDA once, which changes nothing.
    pub(crate) fn members<const N: usize>(&self, names: [&str; N]) -> [Member; N] {
        names.map(|name| {
            let mut member = self.member(name);
            member.say("freenull");
            member
        })
    }
}

/// A workload of a script.
pub(crate) struct Member {
    /// Its process id, as it sees it.
    pub(crate) pid: u32,
    talk: Talk,
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

/// The reading end of a FIFO, which waits for its writer when it is first read, not before.
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
