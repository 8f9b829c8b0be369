//! Paths of cgroups by their ids.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;

use super::CGROUPS;
use crate::host::budget::Budget;

/// Maximum bytes of paths, which are some 100,000: users may create as many cgroups as they like in a delegated one.
/// Kubernetes has some thousands on a node.
const MAX_BYTES: usize = 16 << 20;
/// Bytes that a path takes besides its length.
const BYTES_EACH: usize = 128;
/// Cache of the cgroups of version 2. Only used for processes that ended before `/proc/PID/cgroup`
/// was read: the kernel side sends the id of a cgroup, which is the inode of its folder. A miss walks
/// and caches all folders.
#[derive(Debug, Default)]
pub struct Cgroups {
    paths: HashMap<u64, String>,
    walks: Budget,
}

impl Cgroups {
    /// The path of cgroup `id`, if it still exists.
    pub(super) fn path_of(&mut self, id: u64) -> Option<String> {
        let unified = Path::new(CGROUPS).join("unified");
        let root = if unified.exists() {
            unified
        } else {
            CGROUPS.into()
        };
        self.path_below(&root, id)
    }

    fn path_below(&mut self, root: &Path, id: u64) -> Option<String> {
        // Inodes are reused: a newer folder may have this one.
        let is_there = |path: &&String| inode(&root.join(path.trim_start_matches('/'))) == Some(id);
        if let Some(path) = self.paths.get(&id).filter(is_there) {
            return Some(path.clone());
        }
        self.paths = self.walks.spend(|| all_below(root))?;
        self.paths.get(&id).cloned()
    }
}

/// The paths of all cgroups below `root`, by their ids.
fn all_below(root: &Path) -> HashMap<u64, String> {
    static SAID: Once = Once::new();
    let mut paths = HashMap::new();
    let mut folders = vec![root.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        if let (Some(id), Ok(path)) = (inode(&folder), folder.strip_prefix(root)) {
            paths.insert(id, format!("/{}", path.display()));
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for inner in entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            bytes += inner.path().as_os_str().len() + BYTES_EACH;
            if bytes > MAX_BYTES {
                SAID.call_once(|| {
                    tracing::warn!(
                        "too many cgroups: those of short-lived processes may stay unknown"
                    );
                });
                return paths;
            }
            folders.push(inner.path());
        }
    }
    paths
}

fn inode(folder: &Path) -> Option<u64> {
    folder.metadata().ok().map(|metadata| metadata.ino())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_paths_follow_renames_and_removals() {
        let root = tempfile::TempDir::new().unwrap();
        let (root, inner) = (root.path(), root.path().join("a/b"));
        fs::create_dir_all(&inner).unwrap();
        let id = inode(&inner).unwrap();
        let mut cgroups = Cgroups::default();
        assert_eq!(cgroups.path_below(root, id).unwrap(), "/a/b");
        assert_eq!(cgroups.path_below(root, inode(root).unwrap()).unwrap(), "/");
        fs::rename(&inner, root.join("c")).unwrap();
        assert_eq!(cgroups.path_below(root, id).unwrap(), "/c");
        fs::remove_dir(root.join("c")).unwrap();
        assert_eq!(cgroups.path_below(root, id), None);
    }

    #[test]
    fn misses_do_not_cost_a_walk_each() {
        let root = tempfile::TempDir::new().unwrap();
        for number in 0..100 {
            fs::create_dir(root.path().join(number.to_string())).unwrap();
        }
        let mut cgroups = Cgroups::default();
        for id in 0..10_000 {
            assert_eq!(cgroups.path_below(root.path(), u64::MAX - id), None);
        }
        assert!(cgroups.walks.spend(|| ()).is_none());
        // Cached paths are still found.
        let id = inode(&root.path().join("7")).unwrap();
        assert_eq!(cgroups.path_below(root.path(), id).unwrap(), "/7");
    }
}
