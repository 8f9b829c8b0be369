//! Source lines of Python, read with the permissions of the traced process's user.
//!
//! The process determines the file names. So they are opened below its root directory, as its user, and
//! only if they are regular files: gpuprobe running as root must not show what that user may not
//! read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use gpuprobe_model::stack::Frame;
use gpuprobe_os::privileges::User;
use gpuprobe_os::regular::open_folder;

use crate::helper::{ProcessReader, Wanted};
use crate::python::origin::FileOrigin;

/// Maximum number of bytes of a file read in search of a line.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Maximum number of characters of a line.
const MAX_CHARACTERS: usize = 200;

/// Root and working directory of a process, which stay readable after its end.
#[derive(Debug)]
pub struct ProcessFiles {
    pid: u32,
    root: File,
    folder: File,
    user: User,
}

impl ProcessFiles {
    /// Opens the directories of process `pid`.
    ///
    /// # Errors
    /// Returns the system's error if it has ended or cannot be inspected.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self {
            pid,
            root: open_folder(format!("/proc/{pid}/root").as_ref())?,
            folder: open_folder(format!("/proc/{pid}/cwd").as_ref())?,
            user: User::of(pid)?,
        })
    }

    /// Whether files are read as the current user of process `pid`; true if it has ended.
    pub fn are_of_its_user(&self, pid: u32) -> bool {
        User::of(pid).map_or(true, |user| user == self.user)
    }

    /// The text of a line, counted from 1, trimmed. `None` if it is empty or missing, or the user may not
    /// read the file.
    fn line(&self, opener: &ProcessReader, file: &str, line: u32) -> Option<String> {
        let from = match Path::new(file).is_absolute() {
            true => &self.root,
            false => &self.folder,
        };
        let User { uid, gid, groups } = self.user.clone();
        let wanted = Wanted::At(file.into(), Some(self.pid), (uid, gid, groups));
        let file = opener.open(&wanted, Some(from))?;
        let mut lines = BufReader::new(file.take(MAX_FILE_BYTES)).split(b'\n');
        let text = lines.nth(line.checked_sub(1)? as usize)?.ok()?;
        let text = String::from_utf8_lossy(&text);
        let text: String = text.trim().chars().take(MAX_CHARACTERS).collect();
        Some(text).filter(|text| !text.is_empty())
    }
}

/// The frame of a Python line with its source text, read from `files`, if it is the user's own code.
pub(super) fn read(
    opener: &ProcessReader,
    mut frame: Frame,
    files: Option<&ProcessFiles>,
) -> Frame {
    frame.source = files.and_then(|files| {
        let file = frame.file.as_deref()?;
        (FileOrigin::of(file) == FileOrigin::User).then_some(())?;
        files.line(opener, file, frame.line?)
    });
    frame
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn source_lines_are_read_as_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("train.py"), "import x\n\n    loss = model(x)  \nlast").unwrap();
        symlink("train.py", path("link.py")).unwrap();
        nix::unistd::mkfifo(&path("fifo.py"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let files = ProcessFiles::of(std::process::id()).unwrap();
        let reader = ProcessReader::default();
        let line = |name: &str, line| files.line(&reader, path(name).to_str().unwrap(), line);
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
        assert_eq!(files.line(&reader, "/proc/self/status", 1), None);
        assert_eq!(files.line(&reader, "<string>", 1), None);
    }

    #[test]
    fn files_that_the_user_may_not_read_are_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret.py");
        fs::write(&secret, "key = 1\n").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut files = ProcessFiles::of(std::process::id()).unwrap();
        let owner = fs::metadata(&secret).unwrap();
        files.user = User {
            uid: owner.uid() ^ 1,
            gid: owner.gid() ^ 1,
            groups: Vec::new(),
        };
        let line = |mode| {
            fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
            files.line(&ProcessReader::default(), secret.to_str().unwrap(), 1)
        };
        assert_eq!(line(0o600), None);
        assert_eq!(line(0o644).as_deref(), Some("key = 1"));
    }
}
