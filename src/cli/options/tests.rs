//! Command lines, and what is said of their options.

#![allow(clippy::unwrap_used)]

#[cfg(feature = "live")]
use std::collections::BTreeSet;

use super::UnusedOption::{Error, Warning};
use super::*;

/// Complaints about a command line: the grade and the options.
fn said(line: &str) -> Vec<(UnusedOption, String)> {
    let words = line.split_whitespace();
    let matches = Cli::command().try_get_matches_from(words).unwrap();
    let found = without_effect(&TypedOptions::of(&matches));
    let options = |said: String| said.split(" ha").next().unwrap().to_owned();
    found
        .into_iter()
        .map(|(grade, said)| (grade, options(said)))
        .collect()
}

/// Command lines, and of which options something is said.
const LINES: &[(&str, &[(UnusedOption, &str)])] = &[
    ("report f --depth 3", &[(Error, "--depth")]),
    (
        "report f --sort age --min-size 1 --kernels",
        &[(Error, "--sort, --min-size")],
    ),
    ("report f --analysis leakage --depth 3 --full-stacks", &[]),
    ("report f --diff g --group native-stack", &[]),
    ("report f --kernels --group", &[(Error, "--group")]),
    ("report f --analysis usage --top 3", &[(Warning, "--top")]),
    ("report f --kernels --top 3", &[]),
    ("report f --kernels --host", &[(Warning, "--host")]),
    ("report f --full-stacks", &[(Warning, "--full-stacks")]),
    ("report f --full-stacks --weight peak --folded x", &[]),
    (
        "report f --stacks-native --folded x",
        &[(Warning, "--stacks-native")],
    ),
    ("report f --stacks-native --analysis leakage", &[]),
    ("report f --fail-on-leak --junit x --baseline y", &[]),
    ("report f --weight peak", &[(Warning, "--weight")]),
    ("report f --color always", &[]),
    (
        "replay f --color always --format json",
        &[(Warning, "--color")],
    ),
    (
        "export f --format torch --from 1s --host",
        &[(Error, "--host, --from")],
    ),
    ("export f --format tsv -o d --from 1s --host", &[]),
    ("plot f --top 3", &[(Warning, "--top")]),
    ("plot f --top 3 --by site --pid 7", &[]),
    ("plot --usage f --top 3", &[(Error, "--top")]),
    (
        "plot --usage f --from 1s --host",
        &[(Error, "--host, --from")],
    ),
];

#[cfg(feature = "live")]
const LIVE_LINES: &[(&str, &[(UnusedOption, &str)])] = &[
    (
        "-p 7 --kind vmm --depth 3 --stacks-shown --top 3 --sort age",
        &[],
    ),
    ("-p 7 --depth 3 --full-stacks", &[]),
    ("-p 7 --full-names", &[(Warning, "--full-names")]),
    ("-p 7 --cudatrace --full-names", &[]),
    ("--cudatrace -p 7 --kind vmm", &[(Error, "--kind")]),
    ("record --cudatrace -p 7 --kind vmm", &[(Error, "--kind")]),
    (
        "--cudatrace -p 7 --older-than 1s --max-size 1",
        &[(Error, "--older-than, --max-size")],
    ),
    ("--cudatrace -p 7 --folded x", &[(Error, "--folded")]),
    (
        "--cudatrace -p 7 --sort age --top 3",
        &[(Warning, "--sort")],
    ),
    ("--bandwidth-util -p 7 --top 3", &[(Warning, "--top")]),
    ("--memleak --depth 3 --format json", &[(Warning, "--depth")]),
    ("--memleak --depth 3 --stacks fp --site 1", &[]),
    (
        "--memleak -p 7 --full-stacks --stacks off --format csv",
        &[(Warning, "--full-stacks")],
    ),
    (
        "-p 7 --stacks-native --stacks off",
        &[(Warning, "--stacks-native")],
    ),
    ("-p 7 --python off --stacks-native", &[]),
    ("-p 7 --python off --stacks off", &[(Warning, "--python")]),
    ("--memleak --python auto", &[(Warning, "--python")]),
    (
        "record --cudatrace --activity --stacks fp --python off -- app",
        &[],
    ),
    ("--cudatrace -p 7 --stacks fp", &[(Warning, "--stacks")]),
    ("--cudatrace --activity --record f --stacks fp -- app", &[]),
    ("record --cudatrace --activity --stacks fp -- app", &[]),
    ("--activity --api driver -- app", &[(Warning, "--api")]),
    ("--activity --memleak --api driver -- app", &[]),
    ("-p 7 --site 1 --allocations", &[]),
    (
        "-p 7 --cudatrace --allocations",
        &[(Warning, "--allocations")],
    ),
    ("-p 7 --site 1 --format json", &[(Warning, "--site")]),
    ("--children", &[(Error, "--children")]),
    ("-p 7 --scroll", &[]),
    ("-p 7 --color never", &[]),
    ("-p 7 --color always --format csv", &[(Warning, "--color")]),
    ("-p 7 --scroll -o f", &[(Warning, "--scroll")]),
    ("--children -- app", &[(Warning, "--children")]),
    ("record --children -p 7", &[]),
    ("-p 7 --max-file-size 1G", &[(Error, "--max-file-size")]),
    ("-p 7 --record f --max-file-size 1G", &[]),
    ("record -p 7 --max-file-size 1G", &[]),
    ("--weight peak -p 7", &[(Warning, "--weight")]),
    ("--weight peak -p 7 --pprof x", &[]),
    ("-p 7 --of tensors", &[(Warning, "--of")]),
    ("-p 7 --of tensors --pprof x", &[]),
    ("-p 7 --fail-on-leak --junit x --ignore y --ignore z", &[]),
    (
        "--cudatrace -p 7 --fail-on-leak=4K",
        &[(Error, "--fail-on-leak")],
    ),
    (
        "-p 7 --fail-on-leak --stacks off",
        &[(Warning, "--fail-on-leak")],
    ),
    ("-p 7 --tensors requested", &[]),
    ("-p 7 --cudatrace --tensors off", &[(Warning, "--tensors")]),
    ("-p 7 --on-oom true", &[]),
    ("record -p 7 --on-oom true", &[]),
    ("-p 7 --cudatrace --on-oom true", &[(Error, "--on-oom")]),
];

#[cfg(not(feature = "live"))]
const LIVE_LINES: &[(&str, &[(UnusedOption, &str)])] = &[];

#[test]
fn options_without_effect_are_told_from_others() {
    for (line, expected) in LINES.iter().chain(LIVE_LINES) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(grade, options)| (*grade, (*options).to_owned()))
            .collect();
        assert_eq!(said(&format!("gpuprobe {line}")), expected, "{line}");
    }
}

#[cfg(feature = "live")]
#[test]
fn every_rule_is_tried() {
    let lines = || LINES.iter().chain(LIVE_LINES);
    let of = |line: &str| {
        let words: Vec<_> = format!("gpuprobe {line}")
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        Cli::command().try_get_matches_from(words).unwrap()
    };
    for rule in RULES {
        let is_tried = lines().any(|(line, _)| {
            let matches = of(line);
            let given = TypedOptions::of(&matches);
            rule.commands.contains(&given.command)
                && rule.options.iter().any(|option| given.has(option))
                && !(rule.works)(&given)
        });
        assert!(is_tried, "{:?}: {}", rule.options, rule.why);
    }
}

/// Options that have an effect beside whatever can be given with them.
#[cfg(feature = "live")]
const UNCONDITIONAL: &[&str] = &[
    "help",
    "version",
    "fail_on",
    "verbose",
    "file",
    "folder",
    "shell",
    "output",
    "format",
    "html",
    "title",
    "width",
    "height",
    "smi",
    "usage",
    "analysis",
    "kernels",
    "copies",
    "calls",
    "waits",
    "nvtx",
    "processes",
    "summary",
    "diff",
    "last",
    "replay",
    "speed",
    // clap sees to what they need.
    "per_call",
    "per_record",
    "cupti_buffer",
    "as_root",
    "baseline",
    "ignore",
    "suppressions",
    "junit",
    // What is traced, and how.
    "memleak",
    "cudatrace",
    "bandwidth_util",
    "activity",
    "activity_summary",
    "command",
    "pid",
    "comm",
    "uid",
    "exclude",
    "container",
    "cgroup",
    "duration",
    "interval",
    "attach",
    "allow_arm64",
    "allow_nop5",
    "untrusted_mounts",
    "map_entries",
    "record",
    "listen",
    "tls_cert",
    "tls_key",
    "client_ca",
    "token_file",
    "insecure_listen",
    "max_series",
    "top_kernels",
    "top_sites",
    "config",
    "all_tables",
    "smi_interval",
];

/// A new option needs a rule, or a thought. What a replay has an effect on depends on what was
/// recorded.
#[cfg(feature = "live")]
#[test]
fn every_option_has_been_thought_of() {
    let ruled: BTreeSet<_> = RULES.iter().flat_map(|rule| rule.options).collect();
    let command = Cli::command();
    let all = command
        .get_subcommands()
        .filter(|command| command.get_name() != "replay");
    for command in all.chain([&command]) {
        for option in command.get_arguments() {
            let id = option.get_id().as_str();
            assert!(
                ruled.contains(&id) || UNCONDITIONAL.contains(&id),
                "{id}: rule or UNCONDITIONAL?"
            );
        }
    }
}
