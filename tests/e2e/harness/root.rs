//! Root file systems, as containers have them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::standin::{Backend, FILES, copy_program, standin};
use super::talk::Workload;

/// A folder in which programs of the stand-in can run: it has the C library and its loader.
pub(crate) struct Root(TempDir);

impl Root {
    /// Installs each file with `make(original, copy)`.
    pub(crate) fn made_with(make: impl Fn(&Path, &Path)) -> Self {
        let beside = standin().path("..");
        let root = Self(TempDir::new_in(beside).unwrap());
        let mut ldd = Command::new("ldd");
        ldd.arg(standin().program(Backend::Shared));
        let linked = ldd.output().expect("ldd can be run").stdout;
        let linked = String::from_utf8(linked).unwrap();
        let system = linked.split_whitespace().filter(|w| w.starts_with('/'));
        let system = system.filter(|w| !w.contains("cuda")).map(PathBuf::from);
        for file in system {
            let copy = root.0.path().join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            copy_program(&file, copy);
        }
        for file in FILES {
            make(&standin().path(file), &root.0.path().join(file));
        }
        root
    }

    pub(crate) fn new() -> Self {
        Self::made_with(|original, copy| copy_program(original, copy))
    }

    /// Without `/proc`, programs do not find the libraries beside them.
    pub(crate) fn words(&self, backend: Backend) -> [String; 5] {
        let path = self.0.path().to_str().unwrap();
        let program = format!("/{}", backend.program());
        ["env", "LD_LIBRARY_PATH=/", "chroot", path, &program].map(str::to_owned)
    }

    pub(crate) fn start(&self, backend: Backend) -> Workload {
        let words = self.words(backend);
        Workload::spawn(Command::new(&words[0]).args(&words[1..]))
    }

    /// Makes each library, the dynamic loader and those of CUDA too, another file with the same content.
    pub(crate) fn replace_libraries(&self) {
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.to_str().unwrap().contains(".so") {
                    let new = path.with_extension("new");
                    copy_program(&path, &new);
                    fs::rename(new, path).unwrap();
                }
            }
        }
    }

    /// Path of a file in the root.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }
}
