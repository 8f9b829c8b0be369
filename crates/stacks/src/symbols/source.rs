//! Source lines of Python, read with the permissions of the traced process's user.
//!
//! The process determines the file names. So they are opened below its root directory, as its user, and
//! only if they are regular files: gpuprobe running as root must not show what that user may not
//! read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use gpuprobe_model::stack::Frame;
use gpuprobe_os::privileges::User;
use gpuprobe_os::regular::open_folder;

use super::{ResolvedFrames, SymbolRequest};
use crate::python::origin::FileOrigin;
use crate::reader::{Opener, Wanted};

/// Maximum number of bytes of a file read in search of a line.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Maximum number of characters of a line.
const MAX_CHARACTERS: usize = 200;
/// Lines before and after the one that an excerpt is about.
const AROUND: u32 = 5;
/// Columns of a tab.
const TAB: &str = "    ";

/// A line of a file, by the names that a process has for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourcePlace {
    /// Id of the process.
    pub pid: u32,
    /// Path of the file; relative ones begin in the working directory of the process.
    pub file: String,
    /// Number of the line, from 1.
    pub line: u32,
}

/// The lines around a line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceExcerpt {
    /// The line in the middle.
    pub place: SourcePlace,
    /// Numbers and texts of the lines; none if the user of the process may not read the file.
    pub lines: Vec<(u32, String)>,
}

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
    fn line(&self, opener: &Opener, file: &str, line: u32) -> Option<String> {
        let lines = self.lines(opener, file, (line, line))?;
        let [(_, text)] = &lines[..] else {
            return None;
        };
        let text = text.trim();
        (!text.is_empty()).then(|| shortened(text))
    }

    /// The lines around `place`, with their indentation.
    fn excerpt(&self, opener: &Opener, place: SourcePlace) -> SourceExcerpt {
        let first = place.line.saturating_sub(AROUND).max(1);
        let last = place.line.saturating_add(AROUND);
        let lines = self.lines(opener, &place.file, (first, last));
        let lines = lines.unwrap_or_default().into_iter();
        let shown = |(number, text): (u32, String)| {
            let text = text.trim_end().replace('\t', TAB);
            (number, shortened(&text))
        };
        let lines: Vec<_> = lines.map(shown).collect();
        let is_there = lines.iter().any(|(number, _)| *number == place.line);
        SourceExcerpt {
            place,
            lines: if is_there { lines } else { Vec::new() },
        }
    }

    /// The lines `first` to `last` of a file, counted from 1, with their numbers.
    fn lines(
        &self,
        opener: &Opener,
        file: &str,
        (first, last): (u32, u32),
    ) -> Option<Vec<(u32, String)>> {
        let path = Path::new(file);
        let from = if path.is_absolute() {
            &self.root
        } else {
            &self.folder
        };
        let wanted = Wanted::Below(file.into(), self.pid, (&self.user).into());
        let file = opener.open(&wanted, Some(from))?;
        let lines = BufReader::new(file.take(MAX_FILE_BYTES)).split(b'\n');
        let lines = (1..=last).zip(lines.map_while(Result::ok));
        let lines = lines.filter(|(number, _)| *number >= first);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Some(lines.map(|(number, bytes)| (number, text(bytes))).collect())
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_CHARACTERS).collect()
}

/// A place of which the lines are requested, and the directories of its process.
#[derive(Debug)]
pub(super) struct WantedExcerpt {
    pub(super) place: SourcePlace,
    pub(super) files: Arc<ProcessFiles>,
}

/// Reads the lines around a place.
pub(super) fn read_excerpt(opener: &Opener, wanted: WantedExcerpt) -> SourceExcerpt {
    wanted.files.excerpt(opener, wanted.place)
}

/// A Python line of which the source text is requested.
#[derive(Debug)]
pub(super) struct SourceLine {
    /// Returned with the answer.
    pub(super) request: SymbolRequest,
    /// The frame, without source text.
    pub(super) frame: Frame,
    /// Directories of its process.
    pub(super) files: Option<Arc<ProcessFiles>>,
}

/// Reads the text of a line.
pub(super) fn read(opener: &Opener, line: SourceLine) -> ResolvedFrames {
    let SourceLine {
        request,
        mut frame,
        files,
    } = line;
    frame.source = files.and_then(|files| {
        let file = frame.file.as_deref()?;
        (FileOrigin::of(file) == FileOrigin::User).then_some(())?;
        files.line(opener, file, frame.line?)
    });
    ResolvedFrames {
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
    fn source_lines_are_read_as_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("train.py"), "import x\n\n    loss = model(x)  \nlast").unwrap();
        symlink("train.py", path("link.py")).unwrap();
        nix::unistd::mkfifo(&path("fifo.py"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let files = ProcessFiles::of(std::process::id()).unwrap();
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
    fn excerpts_have_the_lines_around() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.py");
        let text: String = (1..=20).map(|line| format!("\tline {line} \n")).collect();
        fs::write(&path, text + &"x".repeat(1000)).unwrap();
        let files = ProcessFiles::of(std::process::id()).unwrap();
        let at = |line| {
            let place = SourcePlace {
                pid: std::process::id(),
                file: path.to_str().unwrap().to_owned(),
                line,
            };
            files.excerpt(&Opener::default(), place).lines
        };
        let lines = at(8);
        assert_eq!(lines.len(), 11);
        assert_eq!(lines[0], (3, "    line 3".to_owned()));
        assert_eq!(at(1).len(), 6);
        let end = at(21);
        assert_eq!(end.last(), Some(&(21, "x".repeat(MAX_CHARACTERS))));
        assert_eq!(end.len(), 6);
        // A line that is not there, as the file was changed, shows nothing.
        assert_eq!(at(22), []);
        assert_eq!(at(0), []);
        assert_eq!(at(u32::MAX), []);
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
            files.line(&Opener::default(), secret.to_str().unwrap(), 1)
        };
        assert_eq!(line(0o600), None);
        assert_eq!(line(0o644).as_deref(), Some("key = 1"));
    }
}
