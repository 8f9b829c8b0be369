//! Options that have no effect beside others: said, so that nobody waits for what does not come.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use super::Cli;
use gpuprobe_os::say;

/// What becomes of a command line with an option that has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    /// What comes is what is meant, if not all of it.
    Warning,
    /// What comes looks like something that it is not.
    Error,
}

use Grade::{Error, Warning};

/// Options, and when they have an effect.
struct Rule {
    /// Subcommands; `trace` is none.
    commands: &'static [&'static str],
    /// Ids of options.
    options: &'static [&'static str],
    /// Whether they have an effect beside the others.
    works: fn(&Given<'_>) -> bool,
    grade: Grade,
    /// Why not, and what to do.
    why: &'static str,
}

const LIVE: &[&str] = &[TRACE, "record"];
const TRACE: &str = "trace";
const SELECTION: &[&str] = &["pid", "device", "host", "from", "to"];

const RULES: &[Rule] = &[
    Rule {
        commands: LIVE,
        options: &["kind"],
        works: |given| given.memleak(),
        grade: Error,
        why: "kinds are those of memory, which is not traced; add --memleak",
    },
    Rule {
        commands: &[TRACE],
        options: &["older_than", "min_size", "max_size"],
        works: |given| given.memleak(),
        grade: Error,
        why: "allocations are not traced; add --memleak",
    },
    Rule {
        commands: &[TRACE],
        options: &["folded", "flamegraph", "pprof"],
        works: |given| given.memleak(),
        grade: Error,
        why: "profiles are about memory, which is not traced; add --memleak",
    },
    Rule {
        commands: &[TRACE],
        options: &["group", "sort"],
        works: |given| given.memleak(),
        grade: Warning,
        why: "allocations are not traced; add --memleak",
    },
    Rule {
        commands: &[TRACE],
        options: &["depth", "full_stacks"],
        works: |given| given.memleak() && given.takes_stacks(),
        grade: Warning,
        why: "no call stacks are taken; trace --memleak with --stacks auto",
    },
    Rule {
        commands: LIVE,
        options: &["stacks"],
        works: |given| given.memleak() || given.records_launch_stacks(),
        grade: Warning,
        why: "only memory has call stacks, and launches in a recording with --cudatrace and \
              --activity; add --memleak",
    },
    Rule {
        commands: &[TRACE],
        options: &["top"],
        works: |given| given.memleak() || given.has("cudatrace") || given.activity(),
        grade: Warning,
        why: "copies are listed by direction, all of them; add --memleak, --cudatrace or --activity",
    },
    Rule {
        commands: LIVE,
        options: &["api"],
        works: |given| !given.is_only_activity(),
        grade: Warning,
        why: "--activity has the calls of both layers",
    },
    Rule {
        commands: LIVE,
        options: &["children"],
        works: |given| given.has("pid") || given.has("command"),
        grade: Error,
        why: "there is no process whose children these would be; give --pid",
    },
    Rule {
        commands: LIVE,
        options: &["children"],
        works: |given| !given.has("command"),
        grade: Warning,
        why: "children of COMMAND are always traced",
    },
    Rule {
        commands: &[TRACE, "report"],
        options: &["weight"],
        works: |given| given.profiles(),
        grade: Warning,
        why: "no profile is written; give --folded, --flamegraph or --pprof",
    },
    Rule {
        commands: &["report"],
        options: &[
            "group",
            "sort",
            "depth",
            "older_than",
            "min_size",
            "max_size",
        ],
        works: |given| given.lists_allocations(),
        grade: Error,
        why: "it is about lists of allocations; ask for --analysis watermark or leakage",
    },
    Rule {
        commands: &["report"],
        options: &["full_stacks"],
        works: |given| given.lists_allocations() || given.profiles(),
        grade: Warning,
        why: "no call stack is written; ask for --analysis watermark or leakage, or for a profile",
    },
    Rule {
        commands: &["report"],
        options: &["top"],
        works: |given| !given.is("analysis", "usage"),
        grade: Warning,
        why: "--analysis usage has a row for every change; --from and --to select some",
    },
    Rule {
        commands: &["report"],
        options: &["host"],
        works: |given| !given.has("kernels") && !given.has("copies"),
        grade: Warning,
        why: "it is about memory; ask for --analysis watermark, leakage or usage",
    },
    Rule {
        commands: &["plot"],
        options: &["top"],
        works: |given| given.is("by", "site") || given.has("usage"),
        grade: Warning,
        why: "every kind has an area; give --by site",
    },
    Rule {
        commands: &["plot"],
        options: &["by", "top"],
        works: |given| !given.has("usage"),
        grade: Error,
        why: "the report that --usage names has neither kinds nor call sites; plot the recording",
    },
    Rule {
        commands: &["plot"],
        options: SELECTION,
        works: |given| !given.has("usage"),
        grade: Error,
        why: "the report that --usage names is drawn as it is; select when it is made",
    },
];

/// What was typed.
struct Given<'a> {
    command: &'a str,
    matches: &'a ArgMatches,
}

impl<'a> Given<'a> {
    fn of(matches: &'a ArgMatches) -> Self {
        match matches.subcommand() {
            Some((command, matches)) => Self { command, matches },
            None => Self {
                command: TRACE,
                matches,
            },
        }
    }

    /// Whether an option was typed; false if there is none of that name.
    fn has(&self, option: &str) -> bool {
        matches!(self.matches.try_contains_id(option), Ok(true))
            && self.matches.value_source(option) == Some(ValueSource::CommandLine)
    }

    /// Whether an option was typed with this value.
    fn is(&self, option: &str, value: &str) -> bool {
        self.has(option)
            && self
                .matches
                .get_raw(option)
                .is_some_and(|mut values| values.any(|typed| typed == value))
    }

    fn activity(&self) -> bool {
        self.has("activity") || self.has("activity_summary")
    }

    /// Memory is what is traced without a mode, too.
    fn memleak(&self) -> bool {
        let others = self.has("cudatrace") || self.has("bandwidth_util") || self.activity();
        self.has("memleak") || !others
    }

    fn is_only_activity(&self) -> bool {
        let others = self.has("cudatrace") || self.has("bandwidth_util");
        self.activity() && !others && !self.memleak()
    }

    fn takes_stacks(&self) -> bool {
        let few = self.has("pid") || self.has("command");
        !self.is("stacks", "off") && (few || self.has("stacks"))
    }

    fn records_launch_stacks(&self) -> bool {
        let records = self.command == "record" || self.has("record");
        records && self.has("cudatrace") && self.activity()
    }

    fn profiles(&self) -> bool {
        let forms = ["folded", "flamegraph", "pprof"];
        forms.into_iter().any(|form| self.has(form))
    }

    fn lists_allocations(&self) -> bool {
        self.is("analysis", "watermark") || self.is("analysis", "leakage")
    }
}

/// Options without effect: what is said of each.
fn without_effect(given: &Given<'_>) -> Vec<(Grade, String)> {
    let mut found = Vec::new();
    for rule in RULES {
        let is_meant = rule.commands.contains(&given.command) && !(rule.works)(given);
        let options = rule.options.iter().filter(|option| given.has(option));
        let names: Vec<_> = options
            .map(|id| format!("--{}", id.replace('_', "-")))
            .collect();
        if is_meant && !names.is_empty() {
            let have = if names.len() == 1 { "has" } else { "have" };
            let said = format!("{} {have} no effect here: {}", names.join(", "), rule.why);
            found.push((rule.grade, said));
        }
    }
    found
}

/// Says which options have no effect; exits if that would mislead.
pub(super) fn check(matches: &ArgMatches) {
    let found = without_effect(&Given::of(matches));
    if let Some((_, said)) = found.iter().find(|(grade, _)| *grade == Error) {
        Cli::command()
            .error(ErrorKind::ArgumentConflict, said)
            .exit();
    }
    for (_, said) in found {
        say(format_args!("warning: {said}"));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What is said of a command line: the grade and the options.
    fn said(line: &str) -> Vec<(Grade, String)> {
        let words = line.split_whitespace();
        let matches = Cli::command().try_get_matches_from(words).unwrap();
        let found = without_effect(&Given::of(&matches));
        let options = |said: String| said.split(" ha").next().unwrap().to_owned();
        found
            .into_iter()
            .map(|(grade, said)| (grade, options(said)))
            .collect()
    }

    /// Command lines, and of which options something is said.
    const LINES: &[(&str, &[(Grade, &str)])] = &[
        ("report f --depth 3", &[(Error, "--depth")]),
        (
            "report f --sort age --min-size 1 --kernels",
            &[(Error, "--sort, --min-size")],
        ),
        ("report f --analysis leakage --depth 3 --full-stacks", &[]),
        ("report f --analysis usage --top 3", &[(Warning, "--top")]),
        ("report f --kernels --top 3", &[]),
        ("report f --kernels --host", &[(Warning, "--host")]),
        ("report f --full-stacks", &[(Warning, "--full-stacks")]),
        ("report f --full-stacks --weight peak --folded x", &[]),
        ("report f --weight peak", &[(Warning, "--weight")]),
        ("plot f --top 3", &[(Warning, "--top")]),
        ("plot f --top 3 --by site --pid 7", &[]),
        ("plot --usage f --top 3", &[(Error, "--top")]),
        (
            "plot --usage f --from 1s --host",
            &[(Error, "--host, --from")],
        ),
    ];

    #[cfg(feature = "live")]
    const LIVE_LINES: &[(&str, &[(Grade, &str)])] = &[
        ("-p 7 --kind vmm --depth 3 --top 3 --sort age --group", &[]),
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
        ("--memleak --depth 3", &[(Warning, "--depth")]),
        ("--memleak --depth 3 --stacks fp", &[]),
        (
            "--memleak -p 7 --full-stacks --stacks off",
            &[(Warning, "--full-stacks")],
        ),
        ("--cudatrace -p 7 --stacks fp", &[(Warning, "--stacks")]),
        ("--cudatrace --activity --record f --stacks fp -- app", &[]),
        ("record --cudatrace --activity --stacks fp -- app", &[]),
        ("--activity --api driver -- app", &[(Warning, "--api")]),
        ("--activity --memleak --api driver -- app", &[]),
        ("--children", &[(Error, "--children")]),
        ("--children -- app", &[(Warning, "--children")]),
        ("record --children -p 7", &[]),
        ("--weight peak -p 7", &[(Warning, "--weight")]),
        ("--weight peak -p 7 --pprof x", &[]),
    ];

    #[cfg(not(feature = "live"))]
    const LIVE_LINES: &[(&str, &[(Grade, &str)])] = &[];

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
                let given = Given::of(&matches);
                rule.commands.contains(&given.command)
                    && rule.options.iter().any(|option| given.has(option))
                    && !(rule.works)(&given)
            });
            assert!(is_tried, "{:?}: {}", rule.options, rule.why);
        }
    }

    /// Options that have an effect beside whatever can be given with them.
    const ALWAYS: &[&str] = &[
        "help",
        "version",
        "verbose",
        "file",
        "output",
        "format",
        "title",
        "width",
        "height",
        "smi",
        "usage",
        "analysis",
        "kernels",
        "copies",
        "summary",
        "diff",
        "export_tsv",
        "last",
        // clap sees to what they need.
        "per_call",
        "cupti_buffer",
        "as_root",
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
        "map_entries",
        "record",
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
                    ruled.contains(&id) || ALWAYS.contains(&id),
                    "{id}: rule or ALWAYS?"
                );
            }
        }
    }
}
