//! Options that have no effect beside others: said, so that nobody waits for what does not come. What an option needs
//! or excludes in every case, clap knows.

#[cfg(test)]
mod tests;

use clap::ArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;

use super::wrong;
use gpuprobe_os::say;

/// Severity of an option that has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnusedOption {
    /// The output is as meant, if not all of it.
    Warning,
    /// The output looks like something that it is not.
    Error,
}

/// Options, and when they have an effect.
struct OptionRule {
    /// Subcommands; `trace` is none.
    commands: &'static [&'static str],
    /// Ids of options.
    options: &'static [&'static str],
    /// Whether they have an effect beside the others.
    works: fn(&TypedOptions<'_>) -> bool,
    grade: UnusedOption,
    /// Why not, and what to do.
    why: &'static str,
}

/// Name that stands for the subcommand where there is none.
const TRACE: &str = "trace";

/// How stacks are shown.
const STACKS: &[&str] = &["depth", "full_stacks", "stacks_shown"];

const RULES: &[OptionRule] = &[
    OptionRule {
        commands: &[TRACE, "record"],
        options: &[
            "kind",
            "older_than",
            "min_size",
            "fail_on",
            "folded",
            "flamegraph",
            "pprof",
            "sort",
            "site",
            "allocations",
            "depth",
            "full_stacks",
            "stacks_shown",
            "on_oom",
        ],
        works: |given| given.memleak(),
        grade: UnusedOption::Error,
        why: "it is about memory, which is not traced; add --memleak",
    },
    OptionRule {
        commands: &[TRACE, "record"],
        options: &["group"],
        works: |given| given.memleak() || given.has("bandwidth_util"),
        grade: UnusedOption::Error,
        why: "it is about memory and copies, which are not traced; add --memleak or --bandwidth-util",
    },
    OptionRule {
        commands: &[TRACE],
        options: STACKS,
        works: |given| given.takes_stacks(),
        grade: UnusedOption::Warning,
        why: "no call stacks are taken; add --stacks auto",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["fail_on"],
        works: |given| given.takes_stacks(),
        grade: UnusedOption::Warning,
        why: "without call stacks, what libraries and frameworks keep is not told from leaks; add --stacks auto",
    },
    OptionRule {
        commands: &["report"],
        options: STACKS,
        works: |given| given.lists_allocations() || given.has("diff") || given.profiles(),
        grade: UnusedOption::Error,
        why: "it is about call sites; add --analysis watermark or leakage, or --diff",
    },
    OptionRule {
        commands: &["report"],
        options: &["group"],
        works: |given| {
            let has_sites = given.lists_allocations() || given.is("analysis", "copies");
            has_sites || given.has("diff") || given.profiles()
        },
        grade: UnusedOption::Error,
        why: "it is about call sites; add --analysis watermark, leakage or copies, or --diff",
    },
    OptionRule {
        commands: &["report"],
        options: &["sort", "older_than", "min_size", "site", "allocations"],
        works: |given| given.lists_allocations(),
        grade: UnusedOption::Error,
        why: "it is about lists of allocations; add --analysis watermark or leakage",
    },
    OptionRule {
        commands: &["export"],
        options: &["device", "host", "from", "to"],
        works: |given| given.is("format", "tsv"),
        grade: UnusedOption::Error,
        why: "traces and snapshots are whole; take --format tsv",
    },
];

/// The command line as typed.
struct TypedOptions<'a> {
    command: &'a str,
    matches: &'a ArgMatches,
}

impl<'a> TypedOptions<'a> {
    fn of(matches: &'a ArgMatches) -> Self {
        let (command, matches) = matches.subcommand().unwrap_or((TRACE, matches));
        Self { command, matches }
    }

    /// Whether an option was typed; false if there is none of that name.
    fn has(&self, option: &str) -> bool {
        matches!(self.matches.try_contains_id(option), Ok(true))
            && self.matches.value_source(option) == Some(ValueSource::CommandLine)
    }

    fn has_one_of(&self, options: &[&str]) -> bool {
        options.iter().any(|option| self.has(option))
    }

    /// Whether an option was typed with this value.
    fn is(&self, option: &str, value: &str) -> bool {
        let typed = self.matches.try_get_raw(option).ok().flatten();
        typed.is_some_and(|mut values| values.any(|typed| typed == value))
    }

    /// Memory is what is traced without a mode, too.
    fn memleak(&self) -> bool {
        self.has("memleak") || !self.has_one_of(&["cudatrace", "bandwidth_util", "activity"])
    }

    fn takes_stacks(&self) -> bool {
        !self.is("stacks", "off") && self.has_one_of(&["pid", "command", "stacks"])
    }

    fn profiles(&self) -> bool {
        self.has_one_of(&["folded", "flamegraph", "pprof"])
    }

    fn lists_allocations(&self) -> bool {
        self.is("analysis", "watermark") || self.is("analysis", "leakage")
    }
}

/// Options without effect: what is said of each.
fn without_effect(given: &TypedOptions<'_>) -> Vec<(UnusedOption, String)> {
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
    for (grade, said) in without_effect(&TypedOptions::of(matches)) {
        match grade {
            UnusedOption::Error => wrong(ErrorKind::ArgumentConflict, &said),
            UnusedOption::Warning => say(format_args!("warning: {said}")),
        }
    }
}
