//! Candidates for libcupti, and their order.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Environment variable with the path of the only libcupti to be tried.
pub(super) const OVERRIDE_VARIABLE: &str = "GPUPROBE_CUPTI";

/// Names for the dynamic loader, which searches `LD_LIBRARY_PATH` and the system's library
/// directories.
const SONAMES: &[&str] = &["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"];
/// Environment variables with a CUDA toolkit, or with a prefix that contains one.
const HOMES: &[&str] = &["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"];
/// Library directories of a CUDA toolkit.
const TOOLKIT: &[&str] = &[
    "extras/CUPTI/lib64",
    #[cfg(target_arch = "aarch64")]
    "targets/sbsa-linux/lib",
    #[cfg(not(target_arch = "aarch64"))]
    "targets/x86_64-linux/lib",
    "lib64",
    "lib",
];
/// Directories beside that of a libcudart, in toolkits and in wheels.
const BESIDE: &[&str] = &[
    ".",
    "../extras/CUPTI/lib64",
    "../../../extras/CUPTI/lib64",
    "../../cuda_cupti/lib",
];
/// Library directories among Python packages.
const PACKAGES: &[&str] = &["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"];

/// A libcupti to be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Path, or name for the dynamic loader.
    pub(super) path: PathBuf,
    pub(super) origin: Origin,
}

/// Reason why a libcupti is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is mapped by the process.
    Mapped,
    /// Named by the user, or a name for the dynamic loader.
    Named,
    /// Found near this file that the process runs, or this directory.
    Near(PathBuf),
}

/// Copies that this process may try, best first.
pub(super) fn of_this_process() -> Vec<Candidate> {
    let variable = |name: &&str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = variable(&OVERRIDE_VARIABLE) {
        let (path, origin) = (path.into(), Origin::Named);
        return vec![Candidate { path, origin }];
    }
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let homes = HOMES.iter().filter_map(variable).map(PathBuf::from);
    let toolkits = toolkits(Path::new("/usr/local"));
    candidates(&mapped_files(&maps), homes.chain(toolkits))
}

/// CUDA toolkits in a directory. The link without a version is the selected one; then newer ones
/// come before older ones.
fn toolkits(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_one = |path: &PathBuf| name_of(path).is_some_and(|name| name.starts_with("cuda"));
    let mut toolkits: Vec<_> = paths.filter(is_one).collect();
    toolkits.sort_by_key(|path| (path.as_os_str().len(), Reverse(path.clone())));
    toolkits
}

/// Executable mapped files in the text of `/proc/PID/maps`, without duplicates: files that are only
/// read may be anybody's.
fn mapped_files(maps: &[u8]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let lines = maps.split(|&byte| byte == b'\n');
    let paths = lines.filter_map(|line| {
        let rights = line.split(|&byte| byte == b' ').nth(1)?;
        let start = line.iter().position(|&byte| byte == b'/')?;
        rights.contains(&b'x').then_some(())?;
        Some(PathBuf::from(OsString::from_vec(line[start..].to_vec())))
    });
    paths.filter(|path| seen.insert(path.clone())).collect()
}

/// Directories to search, best first, each with what it was derived from.
fn folders(mapped: &[PathBuf], homes: impl Iterator<Item = PathBuf>) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    let mut add = |start: &Path, folder: &Path, tails: &[&str]| {
        found.extend(
            tails
                .iter()
                .map(|tail| (folder.join(tail), start.to_owned())),
        );
    };
    for path in mapped {
        let is_packages =
            |folder: &&Path| matches!(name_of(folder), Some("site-packages" | "dist-packages"));
        if let Some(packages) = path.ancestors().find(is_packages) {
            add(path, packages, PACKAGES);
        }
        if let (Some(_), Some(folder)) = (runtime_major(path), path.parent()) {
            add(path, folder, BESIDE);
        }
    }
    for home in homes {
        add(&home, &home, TOOLKIT);
    }
    found
}

/// Copies to try, best first: the one that the process has mapped; then those of the CUDA version
/// of the runtime in the process, or else the newest that the driver supports; then older ones,
/// which it supports too; newer ones last.
fn candidates(mapped: &[PathBuf], homes: impl Iterator<Item = PathBuf>) -> Vec<Candidate> {
    let all = mapped.iter().filter(|path| is_cupti(path));
    let mut all: Vec<_> = all.map(|path| (path.clone(), Origin::Mapped)).collect();
    for (folder, start) in folders(mapped, homes) {
        all.extend(entries(&folder).map(|path| (path, Origin::Near(start.clone()))));
    }
    all.extend(SONAMES.iter().map(|name| (name.into(), Origin::Named)));
    // A library often has several names in its directory, and directories have several.
    let mut seen = BTreeSet::new();
    all.retain(|(path, _)| seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    let driver = mapped.iter().find_map(|path| driver_major(path));
    let runtime = mapped.iter().find_map(|path| runtime_major(path));
    // A stable sort keeps the search order of equal candidates.
    all.sort_by_key(|(path, origin)| {
        let major = number_of(path, "libcupti").unwrap_or(0);
        let is_too_new = driver.is_some_and(|driver| major > driver);
        let is_other = runtime.is_some_and(|runtime| major != runtime);
        (
            *origin != Origin::Mapped,
            is_too_new,
            is_other,
            Reverse(major),
        )
    });
    let all = all.into_iter();
    all.map(|(path, origin)| Candidate { path, origin })
        .collect()
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn is_cupti(path: &Path) -> bool {
    name_of(path).is_some_and(|name| name.starts_with("libcupti.so."))
}

/// The number after `.so.` in the name of a file that begins with `start`. Some full names have a
/// year there: `libcupti.so.2024.1.0`.
fn number_of(path: &Path, start: &str) -> Option<u32> {
    let name = name_of(path).filter(|name| name.starts_with(start))?;
    let (_, numbers) = name.split_once(".so.")?;
    let number = numbers.split('.').next()?.parse().ok()?;
    (number < 1000).then_some(number)
}

/// `libcudart.so.12`, also `libcudart.so.12.4.127` and `libcudart-9335f6a2.so.12`.
fn runtime_major(path: &Path) -> Option<u32> {
    number_of(path, "libcudart")
}

/// The newest CUDA version that a driver supports, by its branch: `libcuda.so.580.159.04`.
fn driver_major(path: &Path) -> Option<u32> {
    let branch = number_of(path, "libcuda.so")?;
    match branch {
        ..450 => None,
        450..525 => Some(11),
        525..580 => Some(12),
        // Later branches are not known to support more.
        580.. => Some(13),
    }
}

/// Files of the directory with the name of a libcupti, shortest names first: these contain the CUDA
/// version.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path());
    let mut paths: Vec<_> = paths.filter(|path| is_cupti(path)).collect();
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    paths.into_iter()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    struct Machine(TempDir);

    impl Machine {
        fn new(files: &[&str]) -> Self {
            let root = TempDir::new().unwrap();
            for file in files {
                let path = root.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, file).unwrap();
            }
            Self(root)
        }

        fn path(&self, file: &str) -> PathBuf {
            self.0.path().join(file)
        }

        /// What is found in a process with these files of this machine.
        fn found(&self, mapped: &[&str]) -> Vec<PathBuf> {
            let mapped: Vec<_> = mapped.iter().map(|file| self.path(file)).collect();
            let homes = toolkits(&self.path("usr/local")).into_iter();
            let found = candidates(&mapped, homes.chain([self.path("home")])).into_iter();
            let found = found.map(|candidate| candidate.path);
            found
                .map(|path| path.strip_prefix(self.0.path()).unwrap_or(&path).to_owned())
                .collect()
        }
    }

    #[test]
    fn a_mapped_copy_comes_first() {
        let toolkit = "usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13";
        let machine = Machine::new(&[toolkit]);
        let mapped = ["opt/x/libcupti.so.2024.1.0", "opt/x/libcudart.so.13"];
        let [newest, older, oldest] = SONAMES else {
            unreachable!()
        };
        let expected = [mapped[0], toolkit, newest, older, oldest];
        assert_eq!(machine.found(&mapped), expected.map(PathBuf::from));
    }

    #[test]
    fn the_version_of_the_runtime_comes_first_and_unsupported_ones_last() {
        let machine = Machine::new(&[
            "usr/local/cuda-11.8/extras/CUPTI/lib64/libcupti.so.11.8",
            "usr/local/cuda-12.4/targets/x86_64-linux/lib/libcupti.so.12",
            "usr/local/cuda-12.4/targets/sbsa-linux/lib/libcupti.so.12",
            "usr/local/cuda-13.0/extras/CUPTI/lib64/libcupti.so.13",
        ]);
        let majors = |mapped: &[&str]| -> Vec<_> {
            let found = machine.found(mapped).into_iter();
            found
                .filter_map(|path| number_of(&path, "libcupti"))
                .collect()
        };
        let driver_12 = "usr/lib/libcuda.so.550.54.14";
        let driver_13 = "usr/lib/libcuda.so.580.159.04";
        assert_eq!(majors(&[driver_13]), [13, 13, 12, 12, 11, 11]);
        assert_eq!(majors(&[driver_12]), [12, 12, 11, 11, 13, 13]);
        let runtime_11 = "app/libcudart-9335f6a2.so.11.0";
        assert_eq!(majors(&[driver_13, runtime_11]), [11, 11, 13, 13, 12, 12]);
    }

    #[test]
    fn wheels_environments_and_toolkits_are_found() {
        let packages = "venv/lib/python3.11/site-packages";
        let wheel = format!("{packages}/nvidia/cuda_cupti/lib/libcupti.so.12");
        let torch = format!("{packages}/torch/lib/libtorch.so");
        for (mapped, expected) in [
            (torch.as_str(), wheel.as_str()),
            (
                "target/nvidia/cuda_runtime/lib/libcudart.so.12",
                "target/nvidia/cuda_cupti/lib/libcupti.so.12",
            ),
            (
                "target/nvidia/cu13/lib/libcudart.so.13",
                "target/nvidia/cu13/lib/libcupti.so.13",
            ),
            (
                "opt/cuda/lib64/libcudart.so.12",
                "opt/cuda/extras/CUPTI/lib64/libcupti.so.12",
            ),
            ("usr/bin/python3.11", "home/lib/libcupti.so.12"),
        ] {
            let machine = Machine::new(&[mapped, expected]);
            let found = machine.found(&[mapped]);
            let has = |path: &PathBuf| {
                fs::canonicalize(machine.path(path.to_str().unwrap())).ok()
                    == fs::canonicalize(machine.path(expected)).ok()
            };
            assert!(found.iter().any(has), "{expected}: {found:?}");
        }
    }

    #[test]
    fn one_library_with_several_names_is_tried_once() {
        let folder = "usr/local/cuda/extras/CUPTI/lib64";
        let machine = Machine::new(&[&format!("{folder}/libcupti.so.2024.1.0")]);
        let short = machine.path(folder).join("libcupti.so.12");
        std::os::unix::fs::symlink("libcupti.so.2024.1.0", short).unwrap();
        let found = machine.found(&[]);
        assert_eq!(found.len(), 1 + SONAMES.len());
        assert!(found.contains(&Path::new(folder).join("libcupti.so.12")));
    }

    #[test]
    fn maps_name_files_that_are_run_and_other_things() {
        let maps = b"00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/a b\n\
            00651000-00652000 r--p 00051000 08:02 173521 /usr/bin/a b\n\
            7ffd0000-7ffd1000 rw-p 00000000 00:00 0 [stack]\n\
            7f000000-7f001000 r-xp 00000000 08:02 7 /lib/x.so\n\
            7f100000-7f101000 r--s 00000000 08:02 8 /scratch/theirs/libcudart.so.12\n";
        let expected: [PathBuf; 2] = ["/usr/bin/a b", "/lib/x.so"].map(Into::into);
        assert_eq!(mapped_files(maps), expected);
    }

    #[test]
    fn driver_branches_support_their_cuda_version() {
        let major = |branch: &str| driver_major(Path::new(&format!("/lib/libcuda.so.{branch}")));
        assert_eq!(major("470.1"), Some(11));
        assert_eq!(major("535.54.03"), Some(12));
        assert_eq!(major("580.159.04"), Some(13));
        assert_eq!(major("610.1"), Some(13));
        assert_eq!(major("1"), None);
        assert_eq!(
            driver_major(Path::new("/lib/libcudadebugger.so.580.1")),
            None
        );
    }
}
