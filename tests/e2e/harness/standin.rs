//! The stand-in CUDA libraries and the programs that use them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::require_bpf;

/// By which way a workload reaches CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Linked with libcudart.
    Shared,
    /// With the runtime inside: only its driver calls can be seen.
    Static,
    /// Linked with libcuda.
    Driver,
    /// Opens libcudart when told to.
    Dlopen,
    /// Linked with libcudart, for a default stream of each thread.
    PerThread,
}

impl Backend {
    pub(crate) const ALL: [Self; 4] = [Self::Shared, Self::Static, Self::Driver, Self::Dlopen];

    /// Those that have the commands for every kind of memory from the start.
    pub(crate) const LINKED: [Self; 4] =
        [Self::Shared, Self::Static, Self::Driver, Self::PerThread];

    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Shared => "workload",
            Self::Static => "workload_static",
            Self::Driver => "workload_driver",
            Self::Dlopen => "workload_dlopen",
            Self::PerThread => "workload_ptsz",
        }
    }

    /// The allocating function that a tracer sees.
    pub(crate) fn allocates_with(self) -> &'static str {
        match self {
            Self::Shared | Self::Dlopen | Self::PerThread => "cudaMalloc",
            Self::Static | Self::Driver => "cuMemAlloc_v2",
        }
    }
}

/// A folder with the libraries and programs. They find each other wherever the folder is.
pub(crate) struct Standin(PathBuf);

impl Standin {
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    pub(crate) fn program(&self, backend: Backend) -> PathBuf {
        self.path(backend.program())
    }

    pub(crate) fn program_text(&self, backend: Backend) -> String {
        self.program(backend).to_str().unwrap().to_owned()
    }

    pub(crate) fn runtime(&self) -> String {
        self.path("libcudart.so.12").to_str().unwrap().to_owned()
    }
}

/// Files that make up the stand-in at run time.
pub(crate) const FILES: [&str; 6] = [
    "libcuda.so.1",
    "libcudart.so.12",
    "workload",
    "workload_static",
    "workload_driver",
    "workload_dlopen",
];

/// Names a folder with a stand-in that is built already, where there is nothing to build it with.
const BUILT: &str = "GPUPROBE_STANDIN";

/// The stand-in, built when first asked for. It goes where `cargo clean` will find it.
pub(crate) fn standin() -> &'static Standin {
    static STANDIN: OnceLock<Standin> = OnceLock::new();
    // Said first: without root, building may fail for reasons that explain nothing.
    require_bpf();
    STANDIN.get_or_init(|| {
        if let Some(folder) = std::env::var_os(BUILT) {
            return Standin(folder.into());
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let out = target.join("standin");
        // Two runs of the tests may start at once.
        let lock = File::create(target.join("standin.lock")).expect("target/ can be written to");
        lock.lock().expect("the lock can be taken");
        let made = Command::new("make")
            .arg("-s")
            .arg("-C")
            .arg(source)
            .arg(format!("OUT={}", out.display()))
            .output()
            .expect("make can be run");
        assert!(
            made.status.success(),
            "the stand-in does not build:\n{}",
            String::from_utf8_lossy(&made.stderr)
        );
        Standin(out)
    })
}

/// A program of `programs/`, linked with the stand-in's libcudart.
pub(crate) fn compiled(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs");
    let folder = &standin().0;
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let made = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O0", "-o"])
        .arg(&program)
        .arg(source.join(name).with_extension("c"))
        .arg(folder.join("libcudart.so.12"))
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .arg("-ldl")
        .output()
        .expect("cc can be run");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{name} does not build:\n{said}");
    program
}

/// The stand-in in a folder of its own: other files, same names.
pub(crate) struct OwnCopy {
    folder: TempDir,
    standin: Standin,
}

impl OwnCopy {
    /// Makes each file with `make(original, copy)`.
    pub(crate) fn made_with(make: impl Fn(&Path, &Path)) -> Self {
        let folder = TempDir::new_in(standin().0.parent().unwrap()).unwrap();
        for file in FILES {
            make(&standin().path(file), &folder.path().join(file));
        }
        let standin = Standin(folder.path().to_owned());
        Self { folder, standin }
    }

    pub(crate) fn new() -> Self {
        Self::made_with(|original, copy| {
            fs::copy(original, copy).expect("the stand-in can be copied");
        })
    }

    /// Where every user may run and read it.
    pub(crate) fn for_everyone() -> Self {
        let folder = TempDir::new().unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), mode).unwrap();
        for file in FILES {
            fs::copy(standin().path(file), folder.path().join(file)).unwrap();
        }
        let standin = Standin(folder.path().to_owned());
        Self { folder, standin }
    }

    pub(crate) fn standin(&self) -> &Standin {
        &self.standin
    }

    /// Removes the libraries and programs.
    pub(crate) fn delete_files(&self) {
        for file in FILES {
            fs::remove_file(self.folder.path().join(file)).unwrap();
        }
    }
}
