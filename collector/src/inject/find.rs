//! Candidates for libcupti, and their order.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Environment variable with the path of the only libcupti to be tried.
pub(super) const OVERRIDE_VARIABLE: &str = "GPUPROBE_CUPTI";

/// Names for the dynamic loader, which searches `LD_LIBRARY_PATH` and the system's library
/// directories.
const SONAMES: &[&str] = &["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"];
/// Directories beside that of a libcudart, in toolkits and in wheels.
const BESIDE: &[&str] = &[
    ".",
    "../extras/CUPTI/lib64",
    "../../../extras/CUPTI/lib64",
    "../../cuda_cupti/lib",
];
/// That of the toolkit with which a program is usually built, which then has its libcudart within it.
const TOOLKIT: &str = "/usr/local/cuda/extras/CUPTI/lib64";

/// A libcupti to be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Path, or name for the dynamic loader.
    pub(super) path: PathBuf,
    pub(super) origin: Origin,
}

/// Reason why a libcupti is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is mapped by the process.
    Mapped,
    /// Named by the user, or a name for the dynamic loader.
    Named,
    /// Found where the libcudart of the process is, or a toolkit.
    Near,
}

/// Copies that this process may try, best first.
pub(super) fn of_this_process() -> Vec<Candidate> {
    let named = std::env::var_os(OVERRIDE_VARIABLE).filter(|value| !value.is_empty());
    if let Some(path) = named {
        let (path, origin) = (path.into(), Origin::Named);
        return vec![Candidate { path, origin }];
    }
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    candidates(&mapped_files(&maps), TOOLKIT.as_ref())
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

/// Copies to try, best first: the one that the process has mapped; then those of the CUDA version
/// of the runtime in the process, or else the newest that the driver supports; then older ones,
/// which it supports too; newer ones last.
fn candidates(mapped: &[PathBuf], toolkit: &Path) -> Vec<Candidate> {
    let candidate = |origin| move |path| Candidate { path, origin };
    let copies = mapped.iter().filter(|path| is_cupti(path)).cloned();
    let mut all: Vec<_> = copies.map(candidate(Origin::Mapped)).collect();
    let runtimes = mapped.iter().filter(|path| runtime_major(path).is_some());
    let folders = runtimes.filter_map(|path| path.parent());
    let beside = folders.flat_map(|folder| BESIDE.iter().map(|tail| folder.join(tail)));
    for folder in beside.chain([toolkit.to_owned()]) {
        all.extend(entries(&folder).map(candidate(Origin::Near)));
    }
    let named = SONAMES.iter().map(PathBuf::from);
    all.extend(named.map(candidate(Origin::Named)));
    // A library often has several names in its directory, and directories have several.
    let mut seen = BTreeSet::new();
    all.retain(|Candidate { path, .. }| {
        seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
    });
    let driver = mapped.iter().find_map(|path| driver_major(path));
    let runtime = mapped.iter().find_map(|path| runtime_major(path));
    // A stable sort keeps the search order of equal candidates.
    all.sort_by_key(|Candidate { path, origin }| {
        let major = number_of(path, "libcupti").unwrap_or(0);
        let is_too_new = driver.is_some_and(|driver| major > driver);
        let is_other = runtime.is_some_and(|runtime| major != runtime);
        let is_mapped = *origin == Origin::Mapped;
        (!is_mapped, is_too_new, is_other, Reverse(major))
    });
    all
}

/// Resolves `library`, which was found near others: it is loaded only if nobody but root and user `own_uid` can have
/// placed it there.
pub(super) fn trusted(library: &Path, own_uid: u32) -> Result<PathBuf, String> {
    let path = fs::canonicalize(library).map_err(|error| format!("cannot find it: {error}"))?;
    for (depth, part) in path.ancestors().enumerate() {
        let refused = |why| format!("untrusted path: {} {why}", part.display());
        let found = fs::symlink_metadata(part).map_err(|error| refused(error.to_string()))?;
        let uid = found.uid();
        if ![0, own_uid].contains(&uid) {
            return Err(refused(format!("belongs to user {uid}")));
        }
        // With the sticky bit only owners can replace an entry, and these are looked at; but in the
        // library's own directory there may be others, which it loads in turn.
        let is_sticky = depth > 1 && found.mode() & libc::S_ISVTX != 0;
        if found.mode() & libc::S_IWOTH != 0 && !is_sticky {
            return Err(refused("is writable by everybody".to_owned()));
        }
    }
    Ok(path)
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
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
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
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
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
            let found = candidates(&mapped, &self.path("toolkit")).into_iter();
            let found = found.map(|candidate| candidate.path);
            found
                .map(|path| path.strip_prefix(self.0.path()).unwrap_or(&path).to_owned())
                .collect()
        }
    }

    #[test]
    fn a_mapped_copy_comes_first() {
        let toolkit = "toolkit/libcupti.so.13";
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
            "toolkit/libcupti.so.11.8",
            "toolkit/libcupti.so.12",
            "toolkit/libcupti.so.13",
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
    fn copies_beside_the_runtime_are_found() {
        for (mapped, expected) in [
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
            ("usr/bin/python3.11", "toolkit/libcupti.so.12"),
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
        let machine = Machine::new(&["toolkit/libcupti.so.2024.1.0"]);
        let short = machine.path("toolkit/libcupti.so.12");
        std::os::unix::fs::symlink("libcupti.so.2024.1.0", short).unwrap();
        let found = machine.found(&[]);
        assert_eq!(found.len(), 1 + SONAMES.len());
        assert!(found.contains(&PathBuf::from("toolkit/libcupti.so.12")));
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

    // Other users' files are in `tests/e2e/collector.rs`, which needs root for them.
    #[test]
    fn links_are_resolved_and_shared_folders_refused() {
        let machine = TempDir::new().unwrap();
        let real = machine.path().join("real");
        fs::create_dir(&real).unwrap();
        fs::write(real.join("library"), "").unwrap();
        let link = machine.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let own_uid = fs::metadata(&real).unwrap().uid();
        let resolve = |name| trusted(&link.join(name), own_uid);
        assert_eq!(
            resolve("library"),
            Ok(fs::canonicalize(real.join("library")).unwrap())
        );
        assert!(resolve("none").is_err());
        for (part, mode) in [
            (real.join("library"), 0o646),
            (real.clone(), 0o1777),
            (real.clone(), 0o777),
        ] {
            let before = fs::metadata(&part).unwrap().permissions();
            fs::set_permissions(&part, Permissions::from_mode(mode)).unwrap();
            let why = resolve("library").unwrap_err();
            assert!(why.ends_with("is writable by everybody"), "{why}");
            fs::set_permissions(&part, before).unwrap();
        }
    }
}
