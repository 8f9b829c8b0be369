//! Which options have an effect beside which others.

use super::OptionRule;
use super::UnusedOption::{Error, Warning};

/// Live tracing.
const LIVE: &[&str] = &[TRACE, "record"];
/// Name that stands for the subcommand where there is none.
pub(super) const TRACE: &str = "trace";
/// Options that select a part of a file.
const SELECTION: &[&str] = &["pid", "device", "host", "from", "to"];

pub(super) const RULES: &[OptionRule] = &[
    OptionRule {
        commands: LIVE,
        options: &["kind"],
        works: |given| given.memleak(),
        grade: Error,
        why: "kinds are those of memory, which is not traced; add --memleak",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["older_than", "min_size", "max_size"],
        works: |given| given.memleak(),
        grade: Error,
        why: "allocations are not traced; add --memleak",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["fail_on_leak"],
        works: |given| given.memleak(),
        grade: Error,
        why: "leaks are of memory, which is not traced; add --memleak",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["fail_on_leak"],
        works: |given| given.takes_stacks(),
        grade: Warning,
        why: "without call stacks, what libraries and frameworks keep is not told from leaks; take \
              --stacks auto",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["max_file_size"],
        works: |given| given.has("record"),
        grade: Error,
        why: "nothing is recorded; add --record FILE",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["folded", "flamegraph", "pprof"],
        works: |given| given.memleak(),
        grade: Error,
        why: "profiles are about memory, which is not traced; add --memleak",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["group", "sort", "site", "allocations"],
        works: |given| given.memleak(),
        grade: Warning,
        why: "allocations are not traced; add --memleak",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["depth", "full_stacks", "stacks_native", "stacks_shown"],
        works: |given| given.memleak() && given.takes_stacks(),
        grade: Warning,
        why: "no call stacks are taken; trace --memleak with --stacks auto",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["full_names"],
        works: |given| given.has("cudatrace") || given.activity(),
        grade: Warning,
        why: "no kernels are listed; add --cudatrace or --activity",
    },
    OptionRule {
        commands: LIVE,
        options: &["stacks"],
        works: |given| given.memleak() || given.records_launch_stacks(),
        grade: Warning,
        why: "only memory has call stacks, and launches in a recording with --cudatrace and \
              --activity; add --memleak",
    },
    OptionRule {
        commands: LIVE,
        options: &["python"],
        works: |given| given.has_stacks(),
        grade: Warning,
        why: "no call stacks are taken; trace --memleak with --stacks auto",
    },
    OptionRule {
        commands: LIVE,
        options: &["tensors"],
        works: |given| given.memleak(),
        grade: Warning,
        why: "tensors are a part of memory, which is not traced; add --memleak",
    },
    OptionRule {
        commands: LIVE,
        options: &["on_oom"],
        works: |given| given.memleak(),
        grade: Error,
        why: "allocations are not traced; add --memleak",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["top"],
        works: |given| given.memleak() || given.has("cudatrace") || given.activity(),
        grade: Warning,
        why: "copies are listed by direction, all of them; add --memleak, --cudatrace or --activity",
    },
    OptionRule {
        commands: &[TRACE, "report", "replay"],
        options: &["stacks_shown", "site", "allocations", "full_names"],
        works: |given| given.is_text(),
        grade: Warning,
        why: "it is about text; other formats have all of them",
    },
    OptionRule {
        commands: &[TRACE, "report", "replay", "explain"],
        options: &["color"],
        works: |given| given.is_text(),
        grade: Warning,
        why: "colours are for text",
    },
    OptionRule {
        commands: &[TRACE],
        options: &["scroll"],
        works: |given| !given.has("command") && !given.has("output"),
        grade: Warning,
        why: "reports take each other's place only on a terminal that no command writes to",
    },
    OptionRule {
        commands: LIVE,
        options: &["api"],
        works: |given| !given.is_only_activity(),
        grade: Warning,
        why: "--activity has the calls of both layers",
    },
    OptionRule {
        commands: LIVE,
        options: &["children"],
        works: |given| given.has("pid") || given.has("command"),
        grade: Error,
        why: "there is no process whose children these would be; give --pid",
    },
    OptionRule {
        commands: LIVE,
        options: &["children"],
        works: |given| !given.has("command"),
        grade: Warning,
        why: "children of COMMAND are always traced",
    },
    OptionRule {
        commands: &[TRACE, "report"],
        options: &["weight", "of"],
        works: |given| given.profiles(),
        grade: Warning,
        why: "no profile is written; give --folded, --flamegraph or --pprof",
    },
    OptionRule {
        commands: &["report"],
        options: &["group"],
        works: |given| given.lists_allocations() || given.has("diff"),
        grade: Error,
        why: "it is about lists of call sites; ask for --analysis watermark or leakage, or for --diff",
    },
    OptionRule {
        commands: &["report"],
        options: &[
            "sort",
            "depth",
            "older_than",
            "min_size",
            "max_size",
            "site",
            "allocations",
        ],
        works: |given| given.lists_allocations(),
        grade: Error,
        why: "it is about lists of allocations; ask for --analysis watermark or leakage",
    },
    OptionRule {
        commands: &["report"],
        options: &["full_stacks", "stacks_shown"],
        works: |given| given.lists_allocations() || given.profiles() || given.has("diff"),
        grade: Warning,
        why: "no call stack is written; ask for --analysis watermark or leakage, or for a profile",
    },
    OptionRule {
        commands: &["report"],
        options: &["stacks_native"],
        works: |given| given.lists_allocations(),
        grade: Warning,
        why: "no call stack is listed; ask for --analysis watermark or leakage",
    },
    OptionRule {
        commands: &["report"],
        options: &["top"],
        works: |given| !given.is("analysis", "usage"),
        grade: Warning,
        why: "--analysis usage has a row for every change; --from and --to select some",
    },
    OptionRule {
        commands: &["report"],
        options: &["host"],
        works: |given| !given.is_about_the_gpu(),
        grade: Warning,
        why: "it is about memory; ask for --analysis watermark, leakage or usage",
    },
    OptionRule {
        commands: &["export"],
        options: &["device", "host", "from", "to"],
        works: |given| given.is("format", "tsv"),
        grade: Error,
        why: "traces and snapshots are whole; take --format tsv",
    },
    OptionRule {
        commands: &["plot"],
        options: &["top"],
        works: |given| given.is("by", "site") || given.has("usage"),
        grade: Warning,
        why: "every kind has an area; give --by site",
    },
    OptionRule {
        commands: &["plot"],
        options: &["by", "top"],
        works: |given| !given.has("usage"),
        grade: Error,
        why: "the report that --usage names has neither kinds nor call sites; plot the recording",
    },
    OptionRule {
        commands: &["plot"],
        options: SELECTION,
        works: |given| !given.has("usage"),
        grade: Error,
        why: "the report that --usage names is drawn as it is; select when it is made",
    },
];
