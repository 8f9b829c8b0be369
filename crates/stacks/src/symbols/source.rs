//! The text of lines of Python, read with the rights of the user who runs it.
//!
//! A program says itself which files its lines are in. So they are opened in its own root folder, as
//! its own user, and only if they are regular files: whoever traces it as root must not be shown what
//! that user may not read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use gpuprobe_model::stack::Frame;
use gpuprobe_os::privileges::User;
use gpuprobe_os::regular::open_folder;

use super::{Answer, Request};
use crate::python::origin::Origin;
use crate::reader::{Opener, Wanted};

/// Bytes of a file that are read in search of a line.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Characters of a line that are kept.
const MAX_CHARACTERS: usize = 200;

/// The files of a process, as its user sees them, also when it has ended.
#[derive(Debug)]
pub struct Files {
    pid: u32,
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
            pid,
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
    fn line(&self, opener: &Opener, file: &str, line: u32) -> Option<String> {
        let path = Path::new(file);
        let from = if path.is_absolute() {
            &self.root
        } else {
            &self.folder
        };
        let wanted = Wanted::Below(file.into(), self.pid, (&self.user).into());
        let file = opener.open(&wanted, Some(from))?;
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
pub(super) struct Line {
    /// Comes back with the answer.
    pub(super) request: Request,
    /// The line, without its text.
    pub(super) frame: Frame,
    /// The files of its process.
    pub(super) files: Option<Arc<Files>>,
}

/// Reads the text of a line.
pub(super) fn read(opener: &Opener, line: Line) -> Answer {
    let Line {
        request,
        mut frame,
        files,
    } = line;
    frame.source = files.and_then(|files| {
        let file = frame.file.as_deref()?;
        (Origin::of(file) == Origin::User).then_some(())?;
        files.line(opener, file, frame.line?)
    });
    Answer {
        request,
        frames: vec![frame],
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
        let line =
            |name: &str, line| files.line(&Opener::default(), path(name).to_str().unwrap(), line);
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
        assert_eq!(files.line(&Opener::default(), "/proc/self/status", 1), None);
        assert_eq!(files.line(&Opener::default(), "<string>", 1), None);
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
            files.line(&Opener::default(), secret.to_str().unwrap(), 1)
        };
        assert_eq!(line(0o600), None);
        assert_eq!(line(0o644).as_deref(), Some("key = 1"));
    }
}
