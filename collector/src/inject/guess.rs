//! Folders in which there may be a libcupti, guessed from what the process is.

use std::cmp::Reverse;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::find::{Hints, name_of, runtime_major};

/// A folder where one may be, and what led there.
#[derive(Debug)]
pub(super) struct Guess {
    pub(super) folder: PathBuf,
    /// As in [`super::find::Origin::Guessed`].
    pub(super) starts: Vec<PathBuf>,
}

/// Adds `folder` unless it is known; that `start` leads there too is noted.
fn add(guesses: &mut Vec<Guess>, folder: PathBuf, start: &Path) {
    let index = match guesses.iter().position(|guess| guess.folder == folder) {
        Some(known) => known,
        None => {
            let starts = Vec::new();
            guesses.push(Guess { folder, starts });
            guesses.len() - 1
        }
    };
    // Files of one folder say the same.
    let starts = &mut guesses[index].starts;
    if !starts.iter().any(|known| known.parent() == start.parent()) {
        starts.push(start.to_owned());
    }
}

/// Where to look, best first.
pub(super) fn folders(hints: &Hints, root: &Path) -> Vec<Guess> {
    let mut folders = Vec::new();
    for Guess { folder, starts } in package_folders(hints) {
        for tail in ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"] {
            folders.push(Guess {
                folder: folder.join(tail),
                starts: starts.clone(),
            });
        }
    }
    for prefix in &hints.python_prefixes {
        add(&mut folders, prefix.join("lib"), prefix);
    }
    let mut homes: Vec<(PathBuf, PathBuf)> = Vec::new();
    let named = hints.cuda_homes.iter();
    homes.extend(named.map(|home| (home.clone(), home.clone())));
    homes.extend(toolkits(root));
    for path in &hints.mapped {
        if let (Some(_), Some(folder)) = (runtime_major(path), path.parent()) {
            let above = folder.ancestors().skip(1).take(3);
            homes.extend(above.map(|home| (home.to_owned(), path.clone())));
            add(&mut folders, folder.to_owned(), path);
        }
    }
    let arch = match std::env::consts::ARCH {
        "aarch64" => "targets/sbsa-linux/lib",
        _ => "targets/x86_64-linux/lib",
    };
    for (home, start) in homes {
        for tail in ["extras/CUPTI/lib64", arch, "lib64"] {
            add(&mut folders, home.join(tail), &start);
        }
    }
    folders
}

/// The machine's toolkits, and what speaks for them: one that root has put there, often by a link to
/// where another administrator keeps it, speaks for itself.
fn toolkits(root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let local = root.join("usr/local");
    let owner = |metadata: io::Result<Metadata>| metadata.map(|metadata| metadata.uid()).ok();
    let of_machine = [Some(0), owner(fs::metadata(&local))];
    let entries = fs::read_dir(&local).into_iter().flatten().flatten();
    let mut toolkits: Vec<_> = entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(b"cuda"))
        .map(
            |entry| match of_machine.contains(&owner(entry.metadata())) {
                true => (entry.path(), entry.path()),
                false => (entry.path(), local.clone()),
            },
        )
        .collect();
    // A link without a number is the one that was chosen; then newer before older.
    toolkits.sort_by_key(|(path, _)| (path.as_os_str().len(), Reverse(path.clone())));
    toolkits
}

/// Folders that Python imports from.
fn package_folders(hints: &Hints) -> Vec<Guess> {
    let mut packages = Vec::new();
    for folder in &hints.package_folders {
        add(&mut packages, folder.clone(), folder);
    }
    for path in &hints.mapped {
        let holds_packages =
            |folder: &&Path| matches!(name_of(folder), Some("site-packages" | "dist-packages"));
        if let Some(folder) = path.ancestors().find(holds_packages) {
            add(&mut packages, folder.to_owned(), path);
        }
    }
    let named = hints.python_prefixes.iter();
    let mut prefixes: Vec<(&Path, &Path)> = named.map(|prefix| (&**prefix, &**prefix)).collect();
    for program in &hints.programs {
        // PREFIX/bin/python
        prefixes.extend(
            program
                .ancestors()
                .nth(2)
                .map(|prefix| (prefix, &**program)),
        );
    }
    for (prefix, start) in prefixes {
        for lib in ["lib", "lib64", "local/lib"] {
            let versions = fs::read_dir(prefix.join(lib));
            for version in versions.into_iter().flatten().flatten() {
                let path = version.path();
                if name_of(&path).is_some_and(|name| name.starts_with("python3")) {
                    add(&mut packages, path.join("site-packages"), start);
                    add(&mut packages, path.join("dist-packages"), start);
                }
            }
        }
    }
    packages
}
