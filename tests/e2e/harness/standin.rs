//! The stand-in CUDA libraries and the workloads.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use tempfile::TempDir;

use super::require_bpf;

/// How a workload calls CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Linked with libcudart.
    Shared,
    /// Linked with the static runtime: only its driver calls can be seen.
    Static,
    /// Linked with libcuda.
    Driver,
    /// Opens libcudart on a command.
    Dlopen,
    /// Linked with libcudart, with a default stream for each thread.
    PerThread,
}

impl Backend {
    pub(crate) const ALL: [Self; 4] = [Self::Shared, Self::Static, Self::Driver, Self::Dlopen];

    /// The backends that have the commands for every kind of memory from the start.
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

/// A folder with the libraries and programs. They are relocatable: they find each other in any
/// folder.
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

/// The libraries among [`FILES`].
const LIBRARIES: &[&str] = &["libcuda.so.1", "libcudart.so.12"];

/// Files of the stand-in that are needed at run time.
pub(crate) const FILES: [&str; 6] = [
    "libcuda.so.1",
    "libcudart.so.12",
    "workload",
    "workload_static",
    "workload_driver",
    "workload_dlopen",
];

/// Beginnings of exported functions other than `push %rbp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// `endbr64; push %rbp`
    Endbr64,
    /// A nop of five bytes.
    Nop5,
}

/// Functions to allocate, to free, to launch, and to name kernels.
const FEW: [&str; 12] = [
    "cudaMalloc",
    "cudaFree",
    "cudaLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocManaged",
    "cuMemAllocHost_v2",
    "cuMemFreeHost",
    "cuCtxSetCurrent",
    "cuLaunchKernel",
    "cuModuleGetFunction",
    "cuLibraryGetKernel",
];

/// Environment variable with the folder of a built stand-in, for machines without a compiler.
const BUILT: &str = "GPUPROBE_STANDIN";

/// The stand-in, built at first use, below `target`, so that `cargo clean` removes it.
pub(crate) fn standin() -> &'static Standin {
    static STANDIN: OnceLock<Standin> = OnceLock::new();
    // Checked first: without root, the build may fail with misleading errors.
    require_bpf();
    STANDIN.get_or_init(|| {
        if let Some(folder) = std::env::var_os(BUILT) {
            return Standin(folder.into());
        }
        made("standin", &[], &["all"])
    })
}

/// Makes `goals` of the stand-in in a folder called `name` below `target`.
fn made(name: &str, settings: &[&str], goals: &[&str]) -> Standin {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let out = target.join(name);
    // Two tests, or runs of the tests, may start at once.
    let lock = target.join(format!("{name}.lock"));
    let lock = File::create(lock).expect("target/ can be written to");
    lock.lock().expect("the lock can be taken");
    let goals = goals.iter().map(|&goal| match goal {
        "all" => goal.into(),
        file => out.join(file),
    });
    let made = Command::new("make")
        .arg("-s")
        .arg("-C")
        .arg(source)
        .arg(format!("OUT={}", out.display()))
        .args(settings)
        .args(goals.collect::<Vec<PathBuf>>())
        .output()
        .expect("make can be run");
    assert!(
        made.status.success(),
        "the stand-in does not build:\n{}",
        String::from_utf8_lossy(&made.stderr)
    );
    Standin(out)
}

/// Copies a program that is to be executed, in a child process: a process that another test forks
/// while this one writes the copy would hold the copy open, and a file open for writing cannot be
/// executed.
pub(crate) fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.expect("cp can be run").success());
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
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
    /// Installs each file with `make(original, copy)`.
    pub(crate) fn made_with(make: impl Fn(&Path, &Path)) -> Self {
        let folder = TempDir::new_in(standin().0.parent().unwrap()).unwrap();
        for file in FILES {
            make(&standin().path(file), &folder.path().join(file));
        }
        let standin = Standin(folder.path().to_owned());
        Self { folder, standin }
    }

    pub(crate) fn new() -> Self {
        Self::made_with(|original, copy| copy_program(original, copy))
    }

    /// A copy that every user may read and execute.
    pub(crate) fn for_everyone() -> Self {
        let folder = TempDir::new().unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), mode).unwrap();
        for file in FILES {
            copy_program(standin().path(file), folder.path().join(file));
        }
        let standin = Standin(folder.path().to_owned());
        Self { folder, standin }
    }

    /// A copy for a tracer in this attach mode. The kernel removes perf-event uprobes one after the
    /// other, across processes, and takes up to a tenth of a second for each. Modes with hundreds
    /// of them get only the functions of [`FEW`]. (`memory::attach`, `together` and `faults::same`
    /// attach to every function in these modes.)
    pub(crate) fn for_attach(kind: &str) -> Self {
        let copy = Self::for_everyone();
        copy.hide_for_attach(kind);
        copy
    }

    /// The same with libraries whose functions begin with `entry`.
    pub(crate) fn with_entry(entry: Entry, kind: &str) -> Self {
        let copy = Self::for_everyone();
        let libraries = match entry {
            Entry::Endbr64 => made(
                "standin_endbr64",
                &["ENTRY=-fcf-protection=branch"],
                LIBRARIES,
            ),
            Entry::Nop5 => {
                // GCC would have nops of one byte.
                let settings = ["CC=clang", "ENTRY=-fpatchable-function-entry=5"];
                made("standin_nop5", &settings, LIBRARIES)
            }
        };
        for library in LIBRARIES {
            let mut bytes = fs::read(libraries.path(library)).unwrap();
            if entry == Entry::Nop5 {
                replace_nops(&mut bytes);
            }
            fs::write(copy.standin.path(library), bytes).unwrap();
        }
        copy.hide_for_attach(kind);
        copy
    }

    fn hide_for_attach(&self, kind: &str) {
        if kind == "perf" {
            for library in LIBRARIES {
                hide_functions(&self.standin.path(library), &FEW);
            }
        }
    }

    pub(crate) fn standin(&self) -> &Standin {
        &self.standin
    }

    pub(crate) fn delete_files(&self) {
        for file in FILES {
            fs::remove_file(self.folder.path().join(file)).unwrap();
        }
    }
}

/// Replaces the nops of five bytes of clang by those that the kernel knows.
fn replace_nops(code: &mut [u8]) {
    // nopl 8(%rax,%rax,1); push %rbp; mov %rsp,%rbp
    const CLANG: &[u8] = &[0x0f, 0x1f, 0x44, 0x00, 0x08, 0x55, 0x48, 0x89, 0xe5];
    for at in 0..code.len() {
        if code[at..].starts_with(CLANG) {
            code[at + 4] = 0;
        }
    }
}

/// Hides all functions of a library but those in `kept` from a tracer: the other symbols lose their
/// type, which the dynamic loader ignores.
fn hide_functions(library: &Path, kept: &[&str]) {
    // Of `Elf64_Sym`: its size and the offset of `st_info`, whose lower half is the type.
    const SYMBOL_BYTES: usize = 24;
    const INFO: usize = 4;
    let mut bytes = fs::read(library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let (table, _) = file
        .section_by_name(".dynsym")
        .and_then(|section| section.file_range())
        .expect("a library has dynamic symbols");
    let table = usize::try_from(table).unwrap();
    let hidden: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && !kept.contains(&symbol.name().unwrap()))
        .filter(|symbol| symbol.kind() == SymbolKind::Text)
        .map(|symbol| table + symbol.index().0 * SYMBOL_BYTES + INFO)
        .collect();
    assert!(hidden.len() > kept.len(), "there are more functions");
    for at in hidden {
        bytes[at] &= 0xf0;
    }
    fs::write(library, bytes).unwrap();
}
