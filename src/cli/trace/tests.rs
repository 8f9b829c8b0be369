use std::ffi::OsString;
use std::fs;
use std::path::Path;

use clap::{CommandFactory, Parser};
use gpuprobe_wire::settings::ActivityKinds;

use crate::live::Target;

use super::super::{Action, Cli, command};
use super::*;

/// Columns and lines of the screen that `-h` fits on.
const SCREEN: (usize, usize) = (80, 40);

/// Lines that `--help` may have.
const TWO_SCREENS: usize = 100;

/// Characters of an option's summary: two lines of help on that screen.
const SUMMARY: usize = 2 * (SCREEN.0 - 10);

/// Compares `help` with the snapshot in `tests`, or writes that where `GPUPROBE_WRITE_GOLDEN` is set.
fn assert_snapshot(help: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name);
    let help = format!("{}\n", help.trim_end());
    if std::env::var_os("GPUPROBE_WRITE_GOLDEN").is_some() {
        fs::write(&path, &help).unwrap();
    }
    assert_eq!(help, fs::read_to_string(&path).unwrap());
}

#[test]
fn help_is_the_snapshot_and_fits_two_screens() {
    let help = command(true).term_width(100).render_help().to_string();
    assert_snapshot(&help, "help.txt");
    for inner in command(true).get_subcommands_mut() {
        let help = inner.clone().term_width(100).render_help().to_string();
        assert!(help.lines().count() <= TWO_SCREENS, "{help}");
    }
    assert!(help.lines().count() <= TWO_SCREENS, "{help}");
}

#[test]
fn short_help_is_the_snapshot_and_fits_a_screen() {
    let help = command(false)
        .term_width(SCREEN.0)
        .render_help()
        .to_string();
    assert_snapshot(&help, "help-short.txt");
    for line in help.lines() {
        assert!(line.chars().count() <= SCREEN.0, "{line}");
    }
    assert!(help.lines().count() <= SCREEN.1, "{help}");
}

#[test]
fn options_have_short_summaries() {
    let command = command(false);
    for command in command.get_subcommands().chain([&command]) {
        for option in command.get_arguments() {
            let summary = option.get_help().unwrap_or_default().to_string();
            let (command, option) = (command.get_name(), option.get_id());
            assert!(!summary.is_empty(), "{command}: {option}");
            assert!(summary.len() <= SUMMARY, "{command}: {option}: {summary}");
        }
    }
}

#[test]
fn every_option_of_tracing_has_a_heading() {
    for option in Cli::command().get_arguments() {
        let has_heading = option.get_help_heading().is_some();
        assert!(has_heading, "{}", option.get_id());
    }
}

#[test]
fn memory_is_what_is_traced_by_default() {
    let modes = |words: &[&str]| {
        Cli::try_parse_from(words)
            .unwrap()
            .trace
            .into_config()
            .modes
    };
    let memleak = Modes {
        memleak: true,
        ..Modes::default()
    };
    for target in [&["gpuprobe", "-p", "7"][..], &["gpuprobe", "--", "app"]] {
        assert_eq!(modes(target), memleak);
        let others = [&target[..1], &["--cudatrace"], &target[1..]].concat();
        assert!(!modes(&others).memleak);
    }
    let alone = Cli::try_parse_from(["gpuprobe"]).unwrap().trace;
    alone.check_said(true);
    // What is said of the target or the time is enough, whoever looks on.
    for line in [
        "-a",
        "--all",
        "--comm a",
        "--uid 7",
        "--cgroup /c",
        "--exclude a",
        "-d 5s",
        "-p 7",
    ] {
        let words = format!("gpuprobe {line}");
        let said = Cli::try_parse_from(words.split(' ')).unwrap().trace;
        said.check_said(false);
        assert_eq!(said.into_config().modes, memleak, "{line}");
    }
}

#[test]
fn targets() {
    let target = |arguments: &[&str]| {
        let all = ["gpuprobe", "--memleak"].iter().chain(arguments);
        Cli::try_parse_from(all).map(|cli| cli.trace.into_config().target)
    };
    assert_eq!(target(&[]).unwrap(), Target::Everything);
    for (words, pids) in [
        (&["--pid", "7"][..], &[7][..]),
        (&["-p7"], &[7]),
        (&["-p", "7,8", "--pid", "9"], &[7, 8, 9]),
    ] {
        assert_eq!(target(words).unwrap(), Target::Processes(pids.to_vec()));
    }
    let command = vec![OsString::from("app"), OsString::from("--pid")];
    assert_eq!(
        target(&["--", "app", "--pid"]).unwrap(),
        Target::Command(command)
    );
    assert!(target(&["--pid", "7", "--", "app"]).is_err());
}

fn collect(words: &[&str]) -> Result<Option<CollectorSettings>, String> {
    let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    Ok(match cli.action {
        Some(Action::Live(TraceCommandAction::Record(record))) => record.collect,
        _ => cli.trace.collect,
    })
}

#[test]
fn single_events_are_those_of_the_modes() {
    let single = |line: &str| {
        let words = format!("gpuprobe {line} -- app");
        let config = Cli::try_parse_from(words.split(' '))
            .ok()?
            .trace
            .into_config();
        Some((config.per_call, config.single_records))
    };
    assert_eq!(single("--activity"), Some((false, false)));
    assert_eq!(single("--activity --per-call"), Some((false, true)));
    assert_eq!(single("--bandwidth-util --per-call"), Some((true, false)));
    assert_eq!(
        single("--activity --bandwidth-util --per-call"),
        Some((true, true))
    );
    assert_eq!(single("--memleak --per-call"), None);
}

#[test]
fn kinds_are_told_as_one_word() {
    for program in [&["gpuprobe"][..], &["gpuprobe", "record", "-o", "f"]] {
        let of = |words: &[&str]| collect(&[program, words].concat());
        let usual = of(&["--activity", "--", "app", "kernel"]).unwrap().unwrap();
        assert_eq!(usual.kinds, ActivityKinds::USUAL);
        let some = of(&["--activity=kernel,memset", "--", "app"]);
        let some = some.unwrap().unwrap();
        assert_eq!(some.kinds.to_string(), "memset,kernel");
        assert_eq!(of(&["--memleak", "--", "app"]), Ok(None));
        assert!(of(&["--activity=kernels", "--", "app"]).is_err());
    }
}
