//! Call stacks of real programs, through the real kernel.

mod copies;
mod languages;
pub(crate) mod paths;
mod profiles;
mod python;
mod replaced;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::report::list;
use crate::harness::{Report, standin};

/// A program of `crates/stacks/tests/stacks/programs`, built so that it allocates where it would
/// stop.
fn built(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let programs =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/stacks/tests/stacks/programs");
    let (name, language) = source.rsplit_once('.').unwrap();
    let program = folder.join(name);
    let runtime = PathBuf::from(standin().runtime());
    let rpath = format!("-Wl,-rpath,{}", runtime.parent().unwrap().display());
    let mut command = Command::new(if language == "cpp" { "c++" } else { "cc" });
    command
        .args([
            "-DSTOP_ALLOCATES",
            "-fno-optimize-sibling-calls",
            "-pthread",
            "-g",
        ])
        .arg(rpath)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .args([&programs.join(source), &runtime])
        .arg("-ldl");
    let made = command.output().expect("compilers are installed");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{command:?}:\n{said}");
    program
}

/// The call sites of a process with live memory.
fn sites(report: &Report, pid: u32) -> &[Value] {
    list(report.process(pid), "sites")
}

/// The functions of a call site without inlined ones, innermost first, up to `last`.
fn functions(site: &Value, last: &str) -> Vec<String> {
    let frames = list(site, "stack").iter();
    let compiled = frames.filter(|frame| frame["inlined"] == false);
    let mut names: Vec<_> = compiled
        .map(|frame| frame["function"].as_str().unwrap().to_owned())
        .collect();
    let end = names.iter().position(|name| name == last);
    names.truncate(end.unwrap_or_else(|| panic!("no {last} in {names:?}")) + 1);
    names
}
