//! Files that are not read any more, and users whose files are not.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files of a user that may be bad before none of them is read any more.
const MAX_BAD: u32 = 3;
/// Reads that take less time are not counted.
const SHORT: Duration = Duration::from_millis(20);
/// In which part of the time the files of a user may be read for good.
const SHARE: u32 = 10;
/// Files that are remembered.
const MAX_FILES: usize = 1 << 14;

/// A version of a file, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    version: FileStamp,
    owner: u32,
    path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileStamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl FileVersion {
    /// Of an open file, which messages call `path`.
    pub(crate) fn of(file: &File, path: &Path) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            version: FileStamp {
                device: metadata.dev(),
                inode: metadata.ino(),
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

/// Files and users that are no longer read.
#[derive(Debug)]
pub(super) struct FileDenylist {
    files: HashSet<FileStamp>,
    users: HashMap<u32, OfUser>,
    since: Instant,
    at_once: Duration,
}

#[derive(Debug, Default)]
struct OfUser {
    bad: u32,
    took: Duration,
    is_reported: bool,
}

impl FileDenylist {
    /// An empty list. The files of a user may be read for `at_once`, then for a share of the time.
    pub(super) fn new(at_once: Duration) -> Self {
        Self {
            files: HashSet::new(),
            users: HashMap::new(),
            since: Instant::now(),
            at_once,
        }
    }

    /// Whether a file may be read.
    pub(super) fn permits(&mut self, origin: &FileVersion) -> bool {
        if self.files.contains(&origin.version) {
            return false;
        }
        let allowed = self.at_once + self.since.elapsed() / SHARE;
        let Some(user) = self.users.get_mut(&origin.owner) else {
            return true;
        };
        // Root's are the distribution's, and those of most containers.
        let may = origin.owner == 0 || (user.bad < MAX_BAD && user.took < allowed);
        if !may && !std::mem::replace(&mut user.is_reported, true) {
            let owner = origin.owner;
            tracing::warn!(
                "reading the files of user {owner} takes too much: none is read any more, their \
                 functions have no names and those that come are not probed"
            );
        }
        may
    }

    /// Reading a file has taken this long.
    pub(super) fn took(&mut self, origin: &FileVersion, time: Duration) {
        if time > SHORT {
            self.users.entry(origin.owner).or_default().took += time;
        }
    }

    /// A file cannot be read: it is not tried again.
    pub(super) fn enter(&mut self, origin: &FileVersion, why: &str) {
        if self.files.len() >= MAX_FILES {
            self.files.clear();
        }
        if self.files.insert(origin.version) {
            let (path, owner) = (origin.path.display(), origin.owner);
            self.users.entry(owner).or_default().bad += 1;
            tracing::warn!("{path}, of user {owner}, is not read any more: reading it {why}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::from_secs(2);

    fn origin(inode: u64, owner: u32) -> FileVersion {
        FileVersion {
            version: FileStamp {
                device: 1,
                inode,
                changed: (0, 0),
            },
            owner,
            path: "/x".into(),
        }
    }

    #[test]
    fn bad_files_are_not_read_and_then_none_of_their_owner() {
        let mut denylist = FileDenylist::new(AT_ONCE);
        for inode in 0..2 {
            denylist.enter(&origin(inode, 1000), "dies");
            denylist.enter(&origin(inode, 1000), "dies");
        }
        assert!(!denylist.permits(&origin(0, 1000)) && denylist.permits(&origin(7, 1000)));
        denylist.enter(&origin(2, 1000), "dies");
        assert!(!denylist.permits(&origin(7, 1000)) && denylist.permits(&origin(7, 1001)));
        for inode in 10..20 {
            denylist.enter(&origin(inode, 0), "dies");
        }
        assert!(denylist.permits(&origin(7, 0)));
    }

    #[test]
    fn time_is_limited() {
        let mut denylist = FileDenylist::new(AT_ONCE);
        for _ in 0..100_000 {
            denylist.took(&origin(1, 1000), SHORT);
        }
        assert!(denylist.permits(&origin(1, 1000)));
        for user in [0, 1000] {
            denylist.took(&origin(1, user), AT_ONCE + Duration::from_secs(1));
        }
        assert!(!denylist.permits(&origin(2, 1000)) && denylist.permits(&origin(2, 0)));
    }

    #[test]
    fn time_is_given_back_with_the_time() {
        let mut denylist = FileDenylist::new(AT_ONCE);
        denylist.since = Instant::now()
            .checked_sub(Duration::from_secs(100))
            .unwrap();
        // Two seconds, and a tenth of a hundred.
        denylist.took(&origin(1, 1000), Duration::from_secs(11));
        assert!(denylist.permits(&origin(1, 1000)));
        assert!(!denylist.users[&1000].is_reported);
        denylist.took(&origin(1, 1000), Duration::from_secs(3));
        assert!(!denylist.permits(&origin(1, 1000)));
        assert!(denylist.users[&1000].is_reported);
        denylist.took(&origin(1, 1001), SHORT);
        assert!(!denylist.users.contains_key(&1001));
    }

    #[test]
    fn the_number_of_bad_files_is_limited() {
        let mut denylist = FileDenylist::new(AT_ONCE);
        for inode in 0..MAX_FILES as u64 {
            denylist.enter(&origin(inode, 0), "dies");
        }
        assert!(!denylist.permits(&origin(0, 0)));
        denylist.enter(&origin(MAX_FILES as u64, 0), "dies");
        assert!(denylist.permits(&origin(0, 0)));
        assert_eq!((denylist.files.len(), denylist.users[&0].bad), (1, 16385));
        let file = tempfile::tempfile().unwrap();
        let version = FileVersion::of(&file, Path::new("/x")).unwrap();
        assert_eq!(version.owner(), file.metadata().unwrap().uid());
        assert_eq!(
            FileVersion {
                owner: 7,
                ..version
            }
            .owner(),
            7
        );
    }
}
