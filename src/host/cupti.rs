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
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter();
    let homes = homes.filter_map(std::env::var_os).map(PathBuf::from);
    let homes = homes.chain(entries(&root.join("usr/local"), "cuda"));
    let toolkits = homes.flat_map(|home| TOOLKIT.iter().map(move |folder| home.join(folder)));
    let folders = SYSTEM
        .iter()
        .map(|folder| root.join(folder))
        .chain(toolkits);
    let copies = folders.flat_map(|folder| entries(&folder, "libcupti.so"));
    let mut found: Vec<_> = copies.flat_map(fs::canonicalize).collect();
    found.sort();
    found.dedup();
    found
}

/// What is in `folder` under a name that begins with `start`.
fn entries(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let has_name = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.as_encoded_bytes().starts_with(start.as_bytes())
    };
    let named = entries.filter(has_name);
    named.map(|entry| entry.path()).collect()
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
