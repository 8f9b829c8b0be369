//! Command lines, and what is said of their options.

#![allow(clippy::unwrap_used)]

#[cfg(feature = "live")]
use std::collections::BTreeSet;

use clap::CommandFactory;

use super::super::Cli;
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
        "report f --sort age --min-size 1 --analysis kernels",
        &[(Error, "--sort, --min-size")],
    ),
    ("report f --analysis leakage --depth 3 --full-stacks", &[]),
    ("report f --diff g --group native-stack", &[]),
    ("report f --analysis calls --group", &[(Error, "--group")]),
    ("report f --full-stacks", &[(Error, "--full-stacks")]),
    ("report f --full-stacks --weight peak --folded x", &[]),
    ("report f --fail-on leak --junit x --baseline y", &[]),
    (
        "export f --format torch --from 1s --host",
        &[(Error, "--host, --from")],
    ),
    ("export f --from 1s", &[(Error, "--from")]),
    ("export f --format tsv -o d --from 1s --host", &[]),
];

#[cfg(feature = "live")]
const LIVE_LINES: &[(&str, &[(UnusedOption, &str)])] = &[
    (
        "-p 7 --kind vmm --depth 3 --stacks-shown --top 3 --sort age --site 1 --allocations",
        &[],
    ),
    ("--cudatrace -p 7 --kind vmm", &[(Error, "--kind")]),
    ("record --cudatrace -p 7 --kind vmm", &[(Error, "--kind")]),
    ("--cudatrace -p 7 --group", &[(Error, "--group")]),
    (
        "--activity --older-than 1s --folded x -- app",
        &[(Error, "--older-than, --folded")],
    ),
    ("--memleak --depth 3", &[(Warning, "--depth")]),
    ("--memleak --depth 3 --stacks fp --site 1", &[]),
    (
        "--memleak -p 7 --full-stacks --stacks off",
        &[(Warning, "--full-stacks")],
    ),
    ("-p 7 --fail-on leak --junit x --ignore y --ignore z", &[]),
    (
        "--bandwidth-util -p 7 --fail-on leak=4K",
        &[(Error, "--fail-on")],
    ),
    (
        "-p 7 --fail-on leak --stacks off",
        &[(Warning, "--fail-on")],
    ),
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

/// Command lines that clap refuses: an option that needs another, or excludes it.
#[cfg(feature = "live")]
#[test]
fn options_need_others() {
    for line in [
        "-p 7 --max-file-size 1G",
        "-p 7 --weight peak",
        "-p 7 --of tensors",
        "-p 7 --per-call",
        "-p 7 --junit x",
        "-p 7 --all",
        "--children",
        "report f --of tensors",
        "report f --diff g --analysis calls",
        "report f --html x --top 3",
        "top --speed 3x",
        "serve --tls-cert x",
    ] {
        let words = format!("gpuprobe {line}");
        let parsed = Cli::command().try_get_matches_from(words.split(' '));
        let kind = parsed.unwrap_err().kind();
        let is_refused = [
            ErrorKind::MissingRequiredArgument,
            ErrorKind::ArgumentConflict,
        ];
        assert!(is_refused.contains(&kind), "{line}: {kind}");
    }
}

/// Options that are listed by `--help`, over all commands.
#[cfg(feature = "live")]
#[test]
fn options_are_few() {
    let command = super::super::command(true);
    let shown = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set());
    let arguments = shown
        .chain([&command])
        .flat_map(clap::Command::get_arguments);
    let visible = arguments.filter(|option| !option.is_hide_set());
    let names: BTreeSet<_> = visible.filter_map(clap::Arg::get_long).collect();
    assert!(
        names.len() <= 74,
        "and --version: {} {names:?}",
        names.len()
    );
}
