//! `gpuprobe doctor`.

use std::process::Command;

use crate::harness::gpuprobe::BINARY;
use crate::harness::{Backend, OwnCopy, Workload, require_bpf, standin};
use crate::kernels::{WITHOUT_BTF, begin};

/// Runs doctor; returns its exit status and the lines of standard output.
fn doctor(wrapper: &[&str], arguments: &[&str]) -> (Option<i32>, Vec<String>) {
    require_bpf();
    let mut words = wrapper
        .iter()
        .copied()
        .chain([BINARY, "doctor"])
        .chain(arguments.iter().copied());
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (
        output.status.code(),
        text.lines().map(str::to_owned).collect(),
    )
}

/// The text of the lines about `what` after the verdict; asserts that the verdict is `verdict`.
fn about<'a>(lines: &'a [String], verdict: &str, what: &str) -> Vec<&'a str> {
    let found = lines.iter().filter_map(|line| line.strip_prefix(verdict));
    let found: Vec<_> = found
        .filter_map(|l| l.trim_start().strip_prefix(what))
        .collect();
    assert!(
        !found.is_empty(),
        "no '{verdict}' about '{what}' in {lines:#?}"
    );
    found.into_iter().map(str::trim).collect()
}

#[test]
fn root_doctor_reports_working_features_and_the_libraries_of_every_process() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let (status, lines) = doctor(&[], &[]);
    assert_eq!(status, Some(0));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(about(&lines, "ok", "kernel")[0].starts_with(release.trim()));
    assert_eq!(about(&lines, "ok", "BTF"), ["/sys/kernel/btf/vmlinux"]);
    for what in [
        "CAP_BPF",
        "CAP_PERFMON",
        "uprobe.multi",
        "perf-event uprobes",
        "attaching",
    ] {
        about(&lines, "ok", what);
    }
    assert!(lines.iter().any(|l| l.contains("uprobe.session")));
    let verdict = lines.last().unwrap();
    assert!(
        verdict.starts_with("Ready: memory, launches, copies, stacks"),
        "{verdict}"
    );
    let path = standin().path("libcuda.so.1").display().to_string();
    let found = about(&lines, "ok", "libcuda ");
    let of_path = found.iter().filter(|line| line.starts_with(&path));
    assert_eq!(of_path.count(), 1, "{lines:#?}");
}

#[test]
fn root_doctor_lists_the_libraries_and_functions_of_a_process() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let pid = workload.pid.to_string();
    let (status, short) = doctor(&[], &["--pid", &pid]);
    assert_eq!(status, Some(0));
    let (status, lines) = doctor(&[], &["--verbose", "--pid", &pid]);
    assert_eq!(status, Some(0));
    for (library, file, functions) in [
        ("libcudart", "libcudart.so.12", ["cudaMalloc", "cudaFree"]),
        (
            "libcuda ",
            "libcuda.so.1",
            ["cuMemAlloc_v2", "cuMemFree_v2"],
        ),
    ] {
        let found = about(&lines, "ok", library);
        assert_eq!(found.len(), 1, "{lines:#?}");
        assert!(
            found[0].starts_with(standin().path(file).to_str().unwrap()),
            "{found:?}"
        );
        // One line with a count; the names only with a PID.
        let count = about(&short, "ok", library);
        let (_, counted) = count[0].split_once(": has ").unwrap();
        let names = found[0].strip_prefix(count[0]).unwrap();
        let names = names.strip_prefix(": ").unwrap();
        let (exported, rest) = counted.split_once(" of the ").unwrap();
        assert_eq!(names.split(' ').count().to_string(), exported);
        assert!(rest.ends_with(" functions that are traced"), "{counted}");
        let of_it = |lines: &[String]| lines.iter().filter(|l| l.contains(file)).count();
        assert_eq!(of_it(&short), 1, "{short:#?}");
        for function in functions {
            assert!(
                found[0].split(' ').any(|word| word == function),
                "{function} in {found:?}"
            );
        }
    }
    about(&lines, "ok", "dynamic loader");
}

#[test]
fn root_doctor_names_slow_and_refused_functions() {
    let about_probes = |lines: &[String]| -> Vec<String> {
        let lines = lines
            .iter()
            .filter(|line| line.contains("first instruction"));
        lines.cloned().collect()
    };
    let own = OwnCopy::new();
    let path = own.standin().path("libcuda.so.1");
    let doctor_of_new = || {
        let mut command = Command::new(own.standin().program(Backend::Driver));
        let workload = Workload::spawn(&mut command);
        let (status, lines) = doctor(&[], &["--pid", &workload.pid.to_string()]);
        assert_eq!(status, Some(0));
        lines
    };
    assert!(about_probes(&doctor_of_new()).is_empty());
    // enter $0,$0
    begin(&path, "cuMemAlloc_v2", [0xc8, 0, 0, 0]);
    // ds push %rbp; push %rsp; pop %rbp
    begin(&path, "cuMemFree_v2", [0x3e, 0x55, 0x54, 0x5d]);
    let lines = doctor_of_new();
    let found = about_probes(&lines);
    assert_eq!(found.len(), 2, "{lines:#?}");
    let notes = about(&found, "note", "libcuda ");
    for (what, function) in [
        ("slow: the kernel cannot emulate", "cuMemAlloc_v2"),
        ("not probed: the kernel allows no probe on", "cuMemFree_v2"),
    ] {
        let note = format!(
            "{}: {what} the first instruction of {function}",
            path.display()
        );
        assert!(notes.contains(&&*note), "{note} in {notes:#?}");
    }
}

#[test]
fn root_doctor_reports_a_process_without_cuda() {
    let workload = Workload::start(Backend::Dlopen);
    let (status, lines) = doctor(&[], &["--pid", &workload.pid.to_string()]);
    assert_eq!(status, Some(0));
    assert!(about(&lines, "note", "process")[0].contains("no CUDA library"));
    let (status, lines) = doctor(&[], &["--pid", "4194305"]);
    assert_ne!(status, Some(0));
    assert!(lines.is_empty());
}

#[test]
fn root_doctor_reports_missing_features() {
    let no_capabilities = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"];
    for (wrapper, missing, why) in [
        (
            &no_capabilities[..],
            &["CAP_BPF", "CAP_PERFMON", "attaching"][..],
            "no CAP_BPF and CAP_PERFMON; run as root (sudo)",
        ),
        (
            &WITHOUT_BTF,
            &["BTF", "attaching"],
            "there is no /sys/kernel/btf/vmlinux; a kernel with BTF (CONFIG_DEBUG_INFO_BTF) is needed",
        ),
    ] {
        let (status, lines) = doctor(wrapper, &[]);
        assert_eq!(status, Some(1));
        for what in missing {
            about(&lines, "MISSING", what);
        }
        let verdict = lines.last().unwrap();
        let begins = "Ready: nothing. Not ready: memory, launches, copies, stacks, activity";
        let begins = format!("{begins} ({why}");
        assert!(verdict.starts_with(&begins), "{verdict}");
    }
}
