//! Candidates for libcupti, and their order.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::guess;

/// Environment variable with the path of the only libcupti to be tried.
pub(super) const OVERRIDE_VARIABLE: &str = "GPUPROBE_CUPTI";

/// Names for the dynamic loader, which searches `LD_LIBRARY_PATH` and the system's library
/// directories.
const SONAMES: &[&str] = &["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"];

/// A libcupti to be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Path, or name for the dynamic loader.
    pub(super) path: PathBuf,
    /// Major version of CUDA; `None` if the name does not contain it.
    pub(super) major: Option<u32>,
    pub(super) origin: CuptiCandidate,
}

impl Candidate {
    pub(super) fn new(path: PathBuf, origin: CuptiCandidate) -> Self {
        let major = number_of(&path, "libcupti");
        Self {
            path,
            major,
            origin,
        }
    }
}

/// Reason why a libcupti is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CuptiCandidate {
    /// It is mapped by the process.
    Mapped,
    /// Named by the user, or a name for the dynamic loader.
    Named,
    /// Found near these files that the process runs or directories that it names.
    Guessed(Vec<PathBuf>),
}

/// Files and directories of the process near which a libcupti may be.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// Mapped executable files, in order.
    pub(super) mapped: Vec<PathBuf>,
    /// The program with symbolic links resolved, and as it was called: the Python of a virtual
    /// environment is a link to one outside of it.
    pub(super) programs: Vec<PathBuf>,
    /// CUDA toolkits named in the environment.
    pub(super) cuda_homes: Vec<PathBuf>,
    /// Prefixes of Python installations named in the environment.
    pub(super) python_prefixes: Vec<PathBuf>,
    /// Directories of Python packages named in the environment.
    pub(super) package_folders: Vec<PathBuf>,
}

impl Hints {
    pub(super) fn of_this_process() -> Self {
        let all = |names: &[&str]| -> Vec<PathBuf> {
            let values = names.iter().filter_map(std::env::var_os);
            let values = values.filter(|value| !value.is_empty());
            values.map(PathBuf::from).collect()
        };
        let maps = fs::read("/proc/self/maps").unwrap_or_default();
        let called = fs::read("/proc/self/cmdline").unwrap_or_default();
        let called = called.split(|&byte| byte == 0).next().unwrap_or_default();
        let called: PathBuf = OsStr::from_bytes(called).into();
        let mut programs: Vec<_> = fs::read_link("/proc/self/exe").into_iter().collect();
        // The file may have been replaced, or the process may have changed its directory.
        let is_it = |program: &PathBuf| fs::canonicalize(&called).is_ok_and(|it| it == *program);
        if called.components().count() > 1 && programs.iter().any(is_it) {
            programs.push(called);
        }
        let python_paths = all(&["PYTHONPATH"]);
        let package_folders = python_paths.iter().flat_map(std::env::split_paths);
        Self {
            mapped: mapped_files(&maps),
            programs,
            cuda_homes: all(&["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"]),
            python_prefixes: all(&["VIRTUAL_ENV", "CONDA_PREFIX"]),
            package_folders: package_folders.collect(),
        }
    }
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
/// which it supports too; newer ones last. `root` is the root of the system's directories.
pub(super) fn candidates(hints: &Hints, root: &Path) -> Vec<Candidate> {
    let mut found = Vec::new();
    for path in &hints.mapped {
        add(&mut found, path.clone(), CuptiCandidate::Mapped);
    }
    for (folder, start) in guess::leads(hints, root) {
        for path in entries(&folder) {
            add(
                &mut found,
                path,
                CuptiCandidate::Guessed(vec![start.clone()]),
            );
        }
    }
    let named = |name| Candidate::new(PathBuf::from(name), CuptiCandidate::Named);
    found.extend(SONAMES.iter().map(named));
    let driver = hints.mapped.iter().find_map(|path| driver_major(path));
    let runtime = hints.mapped.iter().find_map(|path| runtime_major(path));
    // A stable sort keeps the search order of equal candidates.
    found.sort_by_key(|candidate| {
        let major = candidate.major.unwrap_or(0);
        let is_too_new = driver.is_some_and(|driver| major > driver);
        let is_other = runtime.is_some_and(|runtime| major != runtime);
        let is_mapped = candidate.origin == CuptiCandidate::Mapped;
        (!is_mapped, is_too_new, is_other, Reverse(major))
    });
    found
}

fn add(found: &mut Vec<Candidate>, path: PathBuf, origin: CuptiCandidate) {
    if !name_of(&path).is_some_and(|name| name.starts_with("libcupti.so")) {
        return;
    }
    // A library often has several names in its directory.
    let real = fs::canonicalize(&path).ok();
    let is_it =
        |known: &&mut Candidate| known.path == path || fs::canonicalize(&known.path).ok() == real;
    match (found.iter_mut().find(is_it), origin) {
        (None, origin) => found.push(Candidate::new(path, origin)),
        (
            Some(Candidate {
                origin: CuptiCandidate::Guessed(known),
                ..
            }),
            CuptiCandidate::Guessed(starts),
        ) => {
            known.extend(starts);
        }
        _ => {}
    }
}

pub(super) fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
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
pub(super) fn runtime_major(path: &Path) -> Option<u32> {
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
fn entries(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = files
        .map(|file| file.path())
        .filter(|path| name_of(path).is_some_and(|name| name.starts_with("libcupti.so.")))
        .collect();
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    paths
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

        fn found(&self, hints: &Hints) -> Vec<String> {
            let candidates = candidates(hints, self.0.path()).into_iter();
            let paths = candidates.map(|candidate| {
                let path = candidate.path;
                let own = path.strip_prefix(self.0.path()).unwrap_or(&path);
                own.to_str().unwrap().to_owned()
            });
            paths.collect()
        }
    }

    #[test]
    fn a_mapped_copy_comes_first() {
        let machine = Machine::new(&["usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13"]);
        let hints = Hints {
            mapped: ["/opt/x/libcupti.so.12", "/opt/x/libcudart.so.13"]
                .map(Into::into)
                .into(),
            ..Hints::default()
        };
        assert_eq!(
            machine.found(&hints),
            [
                "/opt/x/libcupti.so.12",
                "usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                "libcupti.so.13",
                "libcupti.so.12",
                "libcupti.so.11.8",
            ]
        );
    }

    #[test]
    fn the_version_of_the_runtime_comes_first_and_unsupported_ones_last() {
        let machine = Machine::new(&[
            "usr/local/cuda-11.8/extras/CUPTI/lib64/libcupti.so.11.8",
            "usr/local/cuda-12.4/targets/x86_64-linux/lib/libcupti.so.12",
            "usr/local/cuda-12.4/targets/sbsa-linux/lib/libcupti.so.12",
            "usr/local/cuda-13.0/extras/CUPTI/lib64/libcupti.so.13",
        ]);
        let hints = |mapped: &[&str]| Hints {
            mapped: mapped.iter().map(Into::into).collect(),
            ..Hints::default()
        };
        let majors = |mapped: &[&str]| -> Vec<_> {
            let found = candidates(&hints(mapped), machine.0.path()).into_iter();
            found.filter_map(|candidate| candidate.major).collect()
        };
        let driver_12 = "/usr/lib/libcuda.so.550.54.14";
        let driver_13 = "/usr/lib/libcuda.so.580.159.04";
        assert_eq!(majors(&[driver_13]), [13, 13, 12, 12, 11, 11]);
        assert_eq!(majors(&[driver_12]), [12, 12, 11, 11, 13, 13]);
        let runtime_11 = "/app/libcudart-9335f6a2.so.11.0";
        assert_eq!(majors(&[driver_13, runtime_11]), [11, 11, 13, 13, 12, 12]);
    }

    #[test]
    fn packages_of_python_are_found_by_every_hint() {
        let wheel = "lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12";
        let machine = Machine::new(&[
            &format!("venv/{wheel}"),
            &format!("conda/{wheel}"),
            &format!("base/{wheel}"),
            "target/nvidia/cu13/lib/libcupti.so.13",
            "conda2/lib/libcupti.so.12",
        ]);
        let torch = machine.path("venv/lib/python3.11/site-packages/torch/lib/libtorch.so");
        for (hints, expected) in [
            (
                Hints {
                    mapped: vec![torch],
                    ..Hints::default()
                },
                format!("venv/{wheel}"),
            ),
            (
                Hints {
                    python_prefixes: vec![machine.path("conda")],
                    ..Hints::default()
                },
                format!("conda/{wheel}"),
            ),
            (
                Hints {
                    programs: vec![machine.path("base/bin/python3")],
                    ..Hints::default()
                },
                format!("base/{wheel}"),
            ),
            (
                Hints {
                    package_folders: vec![machine.path("target")],
                    ..Hints::default()
                },
                "target/nvidia/cu13/lib/libcupti.so.13".into(),
            ),
            (
                Hints {
                    python_prefixes: vec![machine.path("conda2")],
                    ..Hints::default()
                },
                "conda2/lib/libcupti.so.12".into(),
            ),
        ] {
            let found = machine.found(&hints);
            assert!(found.contains(&expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn one_library_with_several_names_is_tried_once() {
        let machine = Machine::new(&["cuda/extras/CUPTI/lib64/libcupti.so.2024.1.0"]);
        let folder = machine.path("cuda/extras/CUPTI/lib64");
        std::os::unix::fs::symlink("libcupti.so.2024.1.0", folder.join("libcupti.so.12")).unwrap();
        let hints = Hints {
            cuda_homes: vec![machine.path("cuda")],
            ..Hints::default()
        };
        let found = candidates(&hints, machine.0.path());
        let files: Vec<_> = found
            .iter()
            .filter(|found| found.path.is_absolute())
            .collect();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].major, Some(12));
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
