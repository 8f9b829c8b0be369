//! GPU memory samples from NVML in recordings.

use std::fs;
use std::process::Command;

use super::{Recording, count, open};
use crate::harness::gpuprobe::BINARY;
use crate::harness::{require_bpf, standin};

/// Records while a command sleeps, on two GPUs of which the first is used; returns the messages.
fn recorded(recording: &Recording, environment: &[(&str, &str)]) -> String {
    require_bpf();
    let processes = recording.file.with_extension("processes");
    fs::write(&processes, "0 1 1048576\n").unwrap();
    let output = Command::new(BINARY)
        .args(["record", "--smi-interval", "10ms", "-o", &recording.text()])
        .args(["--", "sleep", "0.3"])
        .env("LD_LIBRARY_PATH", standin().path(""))
        .env("STANDIN_NVML_DEVICES", "2")
        .env("STANDIN_NVML_PROCESSES", &processes)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn root_samples_of_nvml_are_recorded() {
    let recording = Recording::new();
    let said = recorded(&recording, &[]);
    assert!(!said.contains("--smi-interval"), "{said}");
    let samples = count(&recording.file, "GPUPROBE_SMI");
    assert!(samples >= 4, "{samples} samples in 0.3 s, every 10 ms");
    let mut held: Vec<(i64, i64)> = Vec::new();
    let connection = open(&recording.file);
    let mut statement = connection
        .prepare("SELECT DISTINCT gpu, usedBytes FROM GPUPROBE_SMI ORDER BY 1")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    held.extend(rows.unwrap().map(Result::unwrap));
    assert_eq!(held, [(0, 1 << 20), (1, 0)]);
}

#[test]
fn root_failed_samples_are_counted_and_reported() {
    let recording = Recording::new();
    let said = recorded(&recording, &[("STANDIN_NVML_NO_MEMORY", "1")]);
    assert_eq!(count(&recording.file, "GPUPROBE_SMI"), 0);
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.contains("--smi-interval"))
        .collect();
    let [first, last] = lines[..] else {
        panic!("{said}");
    };
    for line in [first, last] {
        assert!(
            line.starts_with("gpuprobe: warning: ") && line.contains("not available"),
            "{line}"
        );
    }
    assert!(first.contains("GPU 0"), "{first}");
    let counts = last
        .strip_prefix("gpuprobe: warning: --smi-interval: ")
        .unwrap();
    let words: Vec<_> = counts.split(' ').collect();
    assert!(
        words[0] == words[2] && words[0].parse::<u32>().unwrap() >= 4,
        "{last}"
    );
}
