//! Directories in which a libcupti may be, derived from the process.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::find::{Hints, name_of, runtime_major};

/// A directory to search, and the file or directory that it was derived from.
pub(super) type Lead = (PathBuf, PathBuf);

/// Library directories of a CUDA toolkit.
const TOOLKIT: &[&str] = &[
    "extras/CUPTI/lib64",
    #[cfg(target_arch = "aarch64")]
    "targets/sbsa-linux/lib",
    #[cfg(not(target_arch = "aarch64"))]
    "targets/x86_64-linux/lib",
    "lib64",
];
/// Library directories among Python packages.
const PACKAGES: &[&str] = &["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"];

/// Directories to search, best first; a directory may have several origins.
pub(super) fn leads(hints: &Hints, root: &Path) -> Vec<Lead> {
    let of_runtime = |path: &&PathBuf| runtime_major(path).is_some();
    let runtimes: Vec<_> = hints.mapped.iter().filter(of_runtime).collect();
    let above =
        |path: &PathBuf, level| Some((path.ancestors().nth(level)?.to_owned(), path.clone()));
    let near = |levels: Range<usize>| {
        let runtimes = runtimes.iter();
        runtimes.flat_map(move |path| levels.clone().filter_map(move |level| above(path, level)))
    };
    let homes = themselves(&hints.cuda_homes)
        .chain(toolkits(root))
        .chain(near(2..5));
    let mut leads: Vec<_> = below(packages(hints).into_iter(), PACKAGES)
        .chain(below(themselves(&hints.python_prefixes), &["lib"]))
        .chain(near(1..2))
        .chain(below(homes, TOOLKIT))
        .collect();
    // Files of one directory have the same leads.
    let mut seen = BTreeSet::new();
    leads.retain(|(folder, start)| {
        seen.insert((folder.clone(), start.parent().map(Path::to_owned)))
    });
    leads
}

/// Directories that are their own origin.
fn themselves(folders: &[PathBuf]) -> impl Iterator<Item = Lead> {
    let twice = |folder: &PathBuf| (folder.clone(), folder.clone());
    folders.iter().map(twice)
}

fn below(leads: impl Iterator<Item = Lead>, tails: &[&str]) -> impl Iterator<Item = Lead> {
    leads.flat_map(move |(folder, start)| {
        let join = move |tail| (folder.join(tail), start.clone());
        tails.iter().map(join)
    })
}

/// CUDA toolkits of the system. A toolkit installed by root, often a link to another
/// administrator's directory, is its own origin.
fn toolkits(root: &Path) -> Vec<Lead> {
    let local = root.join("usr/local");
    let owner = |metadata: io::Result<Metadata>| metadata.map(|metadata| metadata.uid()).ok();
    let of_machine = [Some(0), owner(fs::metadata(&local))];
    let entries = fs::read_dir(&local).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(b"cuda"));
    let mut toolkits: Vec<_> = named
        .map(
            |entry| match of_machine.contains(&owner(entry.metadata())) {
                true => (entry.path(), entry.path()),
                false => (entry.path(), local.clone()),
            },
        )
        .collect();
    // The link without a version is the selected one; then newer before older.
    toolkits.sort_by_key(|(path, _)| (path.as_os_str().len(), Reverse(path.clone())));
    toolkits
}

/// Directories from which Python imports packages.
fn packages(hints: &Hints) -> Vec<Lead> {
    let mut packages: Vec<_> = themselves(&hints.package_folders).collect();
    for path in &hints.mapped {
        let holds_packages =
            |folder: &&Path| matches!(name_of(folder), Some("site-packages" | "dist-packages"));
        let folder = path.ancestors().find(holds_packages);
        packages.extend(folder.map(|folder| (folder.to_owned(), path.clone())));
    }
    // PREFIX/bin/python
    let prefix =
        |program: &PathBuf| Some((program.ancestors().nth(2)?.to_owned(), program.clone()));
    let of_programs = hints.programs.iter().filter_map(prefix);
    let prefixes = themselves(&hints.python_prefixes).chain(of_programs);
    let versions = below(prefixes, &["lib", "lib64", "local/lib"]).flat_map(|(lib, start)| {
        let entries = fs::read_dir(lib).into_iter().flatten().flatten();
        entries.map(move |version| (version.path(), start.clone()))
    });
    let is_python =
        |(path, _): &Lead| name_of(path).is_some_and(|name| name.starts_with("python3"));
    let versions = versions.filter(is_python);
    packages.extend(below(versions, &["site-packages", "dist-packages"]));
    packages
}
