//! Search for NVIDIA's CUPTI on this host. Informative only: the collector searches from within the
//! program that loads it, which may come with its own copy.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of distributions, below the root.
const SYSTEM: &[&str] = &[
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
];
/// Folders of a CUDA toolkit, below its home.
const TOOLKIT: &[&str] = &[
    "extras/CUPTI/lib64",
    "targets/x86_64-linux/lib",
    "targets/sbsa-linux/lib",
    "lib64",
];

/// The copies in the usual folders below `root`, without duplicates.
pub fn on_host(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<_> = SYSTEM.iter().map(|folder| root.join(folder)).collect();
    let mut homes: Vec<_> = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from)
        .collect();
    let entries = fs::read_dir(root.join("usr/local")).into_iter().flatten();
    let is_toolkit = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("cuda"))
    };
    homes.extend(
        entries
            .flatten()
            .map(|entry| entry.path())
            .filter(is_toolkit),
    );
    for home in homes {
        folders.extend(TOOLKIT.iter().map(|folder| home.join(folder)));
    }
    let mut found: Vec<_> = folders.iter().flat_map(|folder| copies(folder)).collect();
    found.sort();
    found.dedup();
    found
}

/// The copies in `folder`, with symbolic links resolved.
fn copies(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str()
            .is_some_and(|name| name.starts_with("libcupti.so"))
    });
    names
        .filter_map(|entry| fs::canonicalize(entry.path()).ok())
        .collect()
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
        let found = on_host(&root);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with("libcupti.so.2024.1.0"));
    }
}
