//! Faults of the machine, of traced processes and of gpuprobe. `docs/development/reliability.md` lists the
//! guarantees. What gpuprobe leaves behind when it is killed is tested in `tests/faults`.

mod clock;
mod full;
pub(crate) mod held;
mod nonlocal_exits;
mod reader;
mod reload;
mod reuse;
mod terminal;
mod transparency;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Programs of `tests/e2e/programs/faults` and a runtime with callbacks, in a folder of their own.
pub(crate) struct Programs(TempDir);

impl Programs {
    /// Builds the library, and the programs from these sources.
    pub(crate) fn built(sources: &[&str]) -> Self {
        crate::harness::require_bpf();
        let programs = Self(TempDir::new().unwrap());
        let library = ["-shared", "-Wl,-soname,libcudart.so.12"];
        programs.compile("hooked.c", "libcudart.so.12", &library);
        let library = programs.text("libcudart.so.12");
        for source in sources {
            let name = source.split('.').next().unwrap();
            match *source {
                "nothing.c" => programs.compile(source, name, &["-static"]),
                "clock_step.c" => programs.compile(source, name, &["-shared"]),
                _ => programs.compile(source, name, &["-Wl,-rpath,$ORIGIN", &library]),
            }
        }
        programs
    }

    fn compile(&self, source: &str, name: &str, options: &[&str]) {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/faults");
        let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };
        let made = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-pthread"])
            .arg(sources.join(source))
            .args(options)
            .args(["-ldl", "-lutil", "-o"])
            .arg(self.path(name))
            .output()
            .expect("compilers are installed");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{source} does not build:\n{said}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}
