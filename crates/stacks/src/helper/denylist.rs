//! Files and processes that are not read any more, because a helper hung or died on them.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cache::Cache;

/// Entries of a list; the least recently used one makes room for another.
const MAX_ENTRIES: usize = 1024;

/// What a helper can fail at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// A version of a file. The owner of a file can set its modification time, but not the time of its last change.
    File {
        device: u64,
        inode: u64,
        size_bytes: u64,
        changed: (i64, i64),
    },
    /// A process, which has its number from this time on.
    Process { pid: u32, started: u64 },
}

/// A version of a file, and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub(super) subject: Subject,
    pub(super) owner: u32,
    pub(super) path: PathBuf,
}

impl FileVersion {
    /// Of an open file, which messages call `path`.
    pub(crate) fn of(file: &File, path: &Path) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            subject: Subject::File {
                device: metadata.dev(),
                inode: metadata.ino(),
                size_bytes: metadata.size(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            },
            owner: metadata.uid(),
            path: path.to_owned(),
        })
    }

    /// The user whose file it is.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }
}

/// What is not asked for again.
#[derive(Debug)]
pub(super) struct Denylist(Cache<Subject, ()>);

impl Denylist {
    pub(super) fn new() -> Self {
        Self(Cache::new(MAX_ENTRIES, u64::MAX))
    }

    pub(super) fn has(&mut self, subject: &Subject) -> bool {
        self.0.get(subject).is_some()
    }

    /// Returns whether `subject` is new on the list.
    pub(super) fn enter(&mut self, subject: Subject) -> bool {
        let is_new = !self.has(&subject);
        if is_new {
            self.0.make_room(0);
            self.0.insert(subject, 0, ());
        }
        is_new
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_a_file_is_entered_once_and_others_are_not() {
        let file = tempfile::tempfile().unwrap();
        let version = || FileVersion::of(&file, Path::new("/x")).unwrap();
        let bad = version();
        let mut denylist = Denylist::new();
        assert!(denylist.enter(bad.subject) && !denylist.enter(bad.subject));
        assert_eq!(bad.owner(), file.metadata().unwrap().uid());
        file.set_len(1).unwrap();
        assert!(!denylist.has(&version().subject));
    }

    #[test]
    fn the_list_keeps_the_1024_entries_that_were_asked_for_last() {
        let mut denylist = Denylist::new();
        let entry = |pid| Subject::Process { pid, started: 0 };
        let last = u32::try_from(MAX_ENTRIES).unwrap();
        for pid in 0..=last {
            assert!(denylist.enter(entry(pid)));
            assert!(denylist.has(&entry(0)), "it is asked for all the time");
        }
        assert!(!denylist.has(&entry(1)) && denylist.has(&entry(2)) && denylist.has(&entry(last)));
    }
}
