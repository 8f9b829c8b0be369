//! Building of the test programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A folder that is removed when the test ends.
pub(crate) fn folder() -> TempDir {
    // Cargo names the folder only to tests that stand outside of the crate.
    let folder = option_env!("CARGO_TARGET_TMPDIR");
    TempDir::new_in(folder.unwrap_or("/tmp")).unwrap()
}

/// Runs a tool that must succeed.
pub(crate) fn run(command: &mut Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}; it must be installed"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// How to build a program.
pub(crate) struct Build<'a> {
    /// Source file in `programs`.
    pub(crate) source: &'a str,
    pub(crate) flags: &'a [&'a str],
    pub(crate) is_stripped: bool,
}

impl Build<'_> {
    /// Builds the program in `folder`.
    pub(crate) fn put(&self, folder: &Path) -> PathBuf {
        // Tests of other packages use this too.
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let mut folders = here.map(|above| above.join("crates/stacks/tests/stacks/programs"));
        let programs = folders.find(|folder| folder.is_dir()).unwrap();
        let source = programs.join(self.source);
        let (name, language) = self.source.rsplit_once('.').unwrap();
        let output = folder.join(name);
        let (compiler, fixed): (_, &[&str]) = match language {
            "c" => (
                "cc",
                &["-std=gnu11", "-Wall", "-Wno-unused-function", "-pthread"],
            ),
            "cpp" => ("c++", &["-std=c++17", "-Wall"]),
            _ => ("rustc", &["--edition=2021"]),
        };
        let mut command = Command::new(compiler);
        command.args(fixed).args(self.flags);
        // scripts/timed-test.sh sets it, with which names are mangled as by a nightly compiler.
        command.env_remove("RUSTC_BOOTSTRAP");
        if language != "rs" {
            command.args(["-fno-optimize-sibling-calls", "-ldl"]);
        }
        run(command.arg("-o").arg(&output).arg(&source));
        if self.is_stripped {
            run(Command::new("strip").arg(&output));
        }
        output
    }
}

/// The program whose functions have these names.
pub(crate) fn named(folder: &Path, outer: &str, inner: &str) -> PathBuf {
    let names = [format!("-DOUTER={outer}"), format!("-DINNER={inner}")];
    let build = Build {
        source: "named.c",
        flags: &["-O2", "-g", "-gdwarf-4", &names[0], &names[1]],
        is_stripped: false,
    };
    build.put(folder)
}
