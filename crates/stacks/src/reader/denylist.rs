//! Files and processes that are not read any more, because a reader hung or died on them.

use std::fs::File;
use std::hash::Hash;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cache::Cache;

/// Entries of a list; the least recently used one makes room for another.
const MAX_ENTRIES: usize = 1024;

/// A version of a file, and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    stamp: FileStamp,
    owner: u32,
    path: PathBuf,
}

/// The owner of a file can set its modification time, but not the time of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileStamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    changed: (i64, i64),
}

impl FileVersion {
    /// Of an open file, which messages call `path`.
    pub(crate) fn of(file: &File, path: &Path) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            stamp: FileStamp {
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
pub(super) struct Denylist<K>(Cache<K, ()>);

impl<K: Copy + Eq + Hash> Denylist<K> {
    pub(super) fn new() -> Self {
        Self(Cache::new(MAX_ENTRIES, u64::MAX))
    }

    pub(super) fn has(&mut self, key: &K) -> bool {
        self.0.get(key).is_some()
    }

    /// Returns whether `key` is new on the list.
    pub(super) fn enter(&mut self, key: K) -> bool {
        let is_new = !self.has(&key);
        if is_new {
            self.0.make_room(0);
            self.0.insert(key, 0, ());
        }
        is_new
    }
}

/// Versions of files that a reader failed at.
#[derive(Debug)]
pub(super) struct FileDenylist(Denylist<FileStamp>);

impl FileDenylist {
    pub(super) fn new() -> Self {
        Self(Denylist::new())
    }

    /// Whether a file may be read.
    pub(super) fn permits(&mut self, origin: &FileVersion) -> bool {
        !self.0.has(&origin.stamp)
    }

    /// Enters a file, and says why, once.
    pub(super) fn enter(&mut self, origin: &FileVersion, why: &str) {
        if self.0.enter(origin.stamp) {
            let (path, owner) = (origin.path.display(), origin.owner);
            tracing::warn!("{path}, of user {owner}, is not read any more: reading it {why}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_a_file_is_entered_once_and_others_are_read() {
        let file = tempfile::tempfile().unwrap();
        let bad = FileVersion::of(&file, Path::new("/x")).unwrap();
        let mut denylist = FileDenylist::new();
        assert!(denylist.permits(&bad));
        denylist.enter(&bad, "dies");
        assert!(!denylist.permits(&bad) && !denylist.0.enter(bad.stamp));
        assert_eq!(bad.owner(), file.metadata().unwrap().uid());
        file.set_len(1).unwrap();
        let changed = FileVersion::of(&file, Path::new("/x")).unwrap();
        assert!(denylist.permits(&changed));
    }

    #[test]
    fn the_list_keeps_the_1024_entries_that_were_asked_for_last() {
        let mut denylist = Denylist::new();
        for number in 0..=MAX_ENTRIES {
            assert!(denylist.enter(number));
            assert!(denylist.has(&0), "it is asked for all the time");
        }
        assert!(!denylist.has(&1) && denylist.has(&2) && denylist.has(&MAX_ENTRIES));
    }
}
