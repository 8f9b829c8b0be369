//! The text of lines of Python, read with the rights of the user who runs it.
//!
//! A program says itself which files its lines are in. So they are opened in its own root folder, as
//! its own user, and only if they are regular files: whoever traces it as root must not be shown what
//! that user may not read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use gpuprobe_model::stack::Frame;
use gpuprobe_os::privileges::{self, AS_OTHERS, User};
use gpuprobe_os::regular::{open_folder, open_regular_beneath};

use super::{Answer, Request};
use crate::python::origin::Origin;

/// Bytes of a file that are read in search of a line.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Characters of a line that are kept.
const MAX_CHARACTERS: usize = 200;

/// The files of a process, as its user sees them, also when it has ended.
#[derive(Debug)]
pub struct Files {
    root: File,
    folder: File,
    user: User,
}

impl Files {
    /// Of process `pid`, which is running.
    ///
    /// # Errors
    /// Returns the system's error if it has ended or may not be looked at.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self {
            root: open_folder(format!("/proc/{pid}/root").as_ref())?,
            folder: open_folder(format!("/proc/{pid}/cwd").as_ref())?,
            user: User::of(pid)?,
        })
    }

    /// Whether they are read as the user that process `pid` has now, or had when it ended.
    pub fn are_of_its_user(&self, pid: u32) -> bool {
        User::of(pid).map_or(true, |user| user == self.user)
    }

    /// The text of a line, numbered from 1, without space at its ends; none if there is none, or the
    /// user may not read the file.
    fn line(&self, file: &str, line: u32) -> Option<String> {
        let path = Path::new(file);
        let from = if path.is_absolute() {
            &self.root
        } else {
            &self.folder
        };
        let file = self.user.act(|| open_regular_beneath(from, path))?.ok()?;
        let index = usize::try_from(line.checked_sub(1)?).ok()?;
        let lines = BufReader::new(file.take(MAX_FILE_BYTES)).split(b'\n');
        let line = lines.map_while(Result::ok).nth(index)?;
        let text: String = String::from_utf8_lossy(&line)
            .trim()
            .chars()
            .take(MAX_CHARACTERS)
            .collect();
        (!text.is_empty()).then_some(text)
    }
}

/// A line that is wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Comes back with the answer.
    pub(crate) request: Request,
    /// The line, without its text.
    pub(crate) frame: Frame,
    /// The files of its process.
    pub(crate) files: Option<Arc<Files>>,
}

/// Reads the text of lines until nobody wants any more: for a thread of its own, for a file may be on a
/// server that does not answer.
pub(crate) fn serve(wanted: &Receiver<Wanted>, answers: &Sender<Answer>) {
    privileges::keep_only_here(&[AS_OTHERS]);
    for wanted in wanted {
        let Wanted {
            request,
            mut frame,
            files,
        } = wanted;
        frame.source = files.and_then(|files| {
            let file = frame.file.as_deref()?;
            (Origin::of(file) == Origin::User).then_some(())?;
            files.line(file, frame.line?)
        });
        let answer = Answer {
            request,
            frames: vec![frame],
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn lines_are_read_with_the_users_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("train.py"), "import x\n\n    loss = model(x)  \nlast").unwrap();
        symlink("train.py", path("link.py")).unwrap();
        nix::unistd::mkfifo(&path("fifo.py"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let files = Files::of(std::process::id()).unwrap();
        let line = |name: &str, line| files.line(path(name).to_str().unwrap(), line);
        assert_eq!(line("train.py", 3).as_deref(), Some("loss = model(x)"));
        assert_eq!(line("link.py", 4).as_deref(), Some("last"));
        for (name, number) in [
            ("train.py", 0),
            ("train.py", 2),
            ("train.py", 5),
            ("fifo.py", 1),
        ] {
            assert_eq!(line(name, number), None, "{name}:{number}");
        }
        assert_eq!(files.line("/proc/self/status", 1), None);
        assert_eq!(files.line("<string>", 1), None);
    }

    #[test]
    fn a_user_is_not_shown_what_only_another_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret.py");
        fs::write(&secret, "key = 1\n").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut files = Files::of(std::process::id()).unwrap();
        let owner = fs::metadata(&secret).unwrap();
        files.user = User {
            uid: owner.uid() ^ 1,
            gid: owner.gid() ^ 1,
            groups: Vec::new(),
        };
        let line = |mode| {
            fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
            files.line(secret.to_str().unwrap(), 1)
        };
        assert_eq!(line(0o600), None);
        assert_eq!(line(0o644).as_deref(), Some("key = 1"));
    }
}
