//! What the command inherits.

use std::process::Command;

use tempfile::TempDir;

use crate::harness::gpuprobe::BINARY;
use crate::harness::{require_bpf, standin};

/// The stand-in NVML, which is loaded before the command is started, leaves a file open that would
/// be inherited; real ones may.
#[test]
fn root_the_command_has_the_files_that_it_was_given_and_none_of_ours() {
    require_bpf();
    let folder = TempDir::new().unwrap();
    // Whatever runs the tests may hand files on, too.
    let inherited = |through: &[&str]| {
        let output = Command::new("sh")
            .args(["-c", "exec 7</dev/null; exec \"$@\"", "sh"])
            .args(through)
            .args(["sh", "-c", "ls /proc/$$/fd; readlink /proc/$$/fd/7"])
            .env("LD_LIBRARY_PATH", standin().path(""))
            .env_remove("SUDO_UID")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let without = inherited(&[]);
    assert!(
        without.contains("\n7\n") && without.ends_with("/dev/null\n"),
        "{without}"
    );
    let recording = folder.path().join("run.sqlite");
    let record = [BINARY, "record", "--smi-interval", "10ms", "-o"];
    let with = inherited(&[&record[..], &[recording.to_str().unwrap(), "--"]].concat());
    assert_eq!(with, without);
}
