//! The host's own libcuda and dynamic loaders, for processes that start later.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{LibraryRole, MappedLibrary};
use gpuprobe_cuda::Layer;

/// Folders that the dynamic loader searches, and those of NVIDIA's container runtime and toolkit.
const LIBRARY_FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/local/cuda/compat",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

const LOADERS: &[&str] = &[
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// The host's libcuda and dynamic loaders, without duplicates. Files that cannot be opened are skipped
/// with a warning.
pub fn libraries() -> Vec<MappedLibrary> {
    let driver = LibraryRole::Cuda(Layer::Driver);
    let folders = library_folders().into_iter();
    let drivers = folders.map(|folder| (folder.join("libcuda.so.1"), driver));
    let loaders = LOADERS
        .iter()
        .map(|path| (path.into(), LibraryRole::Loader));
    let there = drivers.chain(loaders).filter(|(path, _)| path.exists());
    let opened = there.flat_map(|(path, role)| {
        let opened = MappedLibrary::open(&path, &path, role);
        opened.inspect_err(|error| tracing::warn!("{error:#}"))
    });
    let mut seen = HashSet::new();
    opened.filter(|library| seen.insert(library.id)).collect()
}

pub(super) fn library_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = LIBRARY_FOLDERS.iter().map(PathBuf::from).collect();
    let mut lists = vec![PathBuf::from("/etc/ld.so.conf")];
    let more = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten();
    lists.extend(more.flatten().map(|entry| entry.path()));
    for text in lists.into_iter().flat_map(fs::read_to_string) {
        folders.extend(folders_in(&text));
    }
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    folders
}

/// The folders in a file of `/etc/ld.so.conf.d`.
fn folders_in(text: &str) -> impl Iterator<Item = PathBuf> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| line.starts_with('/'))
        .map(|line| Path::new(line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_includes_of_ld_so_conf_are_skipped() {
        let text = "# comment\n/usr/local/lib # here\n\ninclude /etc/x/*.conf\n/opt/cuda/lib64\n";
        let folders: Vec<_> = folders_in(text).collect();
        assert_eq!(
            folders,
            [Path::new("/usr/local/lib"), Path::new("/opt/cuda/lib64")]
        );
    }
}
