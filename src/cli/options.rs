//! Options that have no effect beside others: said, so that nobody waits for what does not come.

mod rules;
#[cfg(test)]
mod tests;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use super::Cli;
use gpuprobe_os::say;
use rules::{RULES, TRACE};

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

/// The command line as typed.
struct TypedOptions<'a> {
    command: &'a str,
    matches: &'a ArgMatches,
}

impl<'a> TypedOptions<'a> {
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

    fn has_stacks(&self) -> bool {
        let of_launches = self.records_launch_stacks() && !self.is("stacks", "off");
        (self.memleak() && self.takes_stacks()) || of_launches
    }

    fn is_text(&self) -> bool {
        !self.has("format") || self.is("format", "text")
    }

    fn records_launch_stacks(&self) -> bool {
        let records = self.command == "record" || self.has("record");
        records && self.has("cudatrace") && self.activity()
    }

    fn profiles(&self) -> bool {
        let forms = ["folded", "flamegraph", "pprof"];
        forms.into_iter().any(|form| self.has(form))
    }

    fn is_about_the_gpu(&self) -> bool {
        let questions = ["kernels", "copies", "calls", "waits", "nvtx"];
        questions.into_iter().any(|question| self.has(question))
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
    let found = without_effect(&TypedOptions::of(matches));
    if let Some((_, said)) = found
        .iter()
        .find(|(grade, _)| *grade == UnusedOption::Error)
    {
        Cli::command()
            .error(ErrorKind::ArgumentConflict, said)
            .exit();
    }
    for (_, said) in found {
        say(format_args!("warning: {said}"));
    }
}
