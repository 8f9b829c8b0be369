//! Exit statuses on files, as docs/exit-status.md has them. Those of commands are in tests/e2e/command.rs.

use crate::{Folder, gpuprobe};

fn status(arguments: &[&str]) -> i32 {
    gpuprobe(arguments).status.code().unwrap()
}

/// The exit status of `gpuprobe report EXPORT ARGUMENTS`.
fn of_report(arguments: &[&str]) -> i32 {
    let folder = Folder::new();
    let file = folder.real_export();
    status(&[&["report", file.to_str().unwrap()], arguments].concat())
}

#[test]
fn success_is_0() {
    assert_eq!(status(&["functions"]), 0);
    assert_eq!(status(&["--help"]), 0);
    assert_eq!(status(&["completions", "bash"]), 0);
    assert_eq!(of_report(&[]), 0);
}

#[test]
fn an_error_is_1() {
    assert_eq!(status(&["report", "/no/such/file"]), 1);
    assert_eq!(of_report(&["-o", "/no/such/folder/report"]), 1);
}

#[test]
fn a_wrong_command_line_is_2() {
    assert_eq!(status(&["report", "--no-such-option"]), 2);
    assert_eq!(of_report(&["--kernels", "--copies"]), 2);
    assert_eq!(status(&["completions", "no-such-shell"]), 2);
    let said = |arguments: &[&str]| {
        let output = gpuprobe(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&[]).contains("--memleak"));
    for time in ["0", "-1s", "2 parsecs", "soon", "1..2s"] {
        for option in ["--interval", "--duration"] {
            let option_of_time = format!("{option}={time}");
            let said = said(&["--memleak", &option_of_time, "--", "true"]);
            assert!(said.contains(time) && said.contains(option), "{said}");
        }
    }
}

#[test]
fn nothing_found_is_3() {
    assert_eq!(of_report(&["--pid", "99"]), 3);
}

#[test]
fn a_leak_is_100() {
    assert_eq!(of_report(&["--fail-on-leak"]), 100);
    assert_eq!(of_report(&["--fail-on-leak=1G"]), 0);
}
