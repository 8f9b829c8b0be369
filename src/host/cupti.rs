//! Search for NVIDIA's CUPTI on this host. Informative only: the collector searches from within the
//! program that loads it, which may come with its own copy.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of distributions and of a CUDA toolkit, below the root.
const FOLDERS: &[&str] = &[
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/cuda/extras/CUPTI/lib64",
];

/// The copies in these folders below `root`, without duplicates.
pub fn on_host(root: &Path) -> Vec<PathBuf> {
    let folders = FOLDERS.iter().map(|folder| root.join(folder));
    let entries = folders.flat_map(fs::read_dir).flatten().flatten();
    let paths = entries.filter_map(|entry| {
        let is_one = entry.file_name().to_str()?.starts_with("libcupti.so");
        is_one.then(|| fs::canonicalize(entry.path()).ok())?
    });
    let found: BTreeSet<_> = paths.collect();
    found.into_iter().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_copy_is_found_once() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let folder = root.join("usr/local/cuda-12.4/extras/CUPTI/lib64");
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("cuda-12.4", root.join("usr/local/cuda")).unwrap();
        fs::write(folder.join("libcupti.so.2024.1.0"), "").unwrap();
        std::os::unix::fs::symlink("libcupti.so.2024.1.0", folder.join("libcupti.so.12")).unwrap();
        fs::write(folder.join("libnvperf.so"), "").unwrap();
        let mut found = on_host(&root);
        found.retain(|path| path.starts_with(&root));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with("libcupti.so.2024.1.0"));
    }
}
