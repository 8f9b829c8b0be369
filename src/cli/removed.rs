//! Options of the last version. For one release, those with another name are understood, and for the others the error
//! says what takes their place.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Removed options, and what takes their place.
const REMOVED: &[(&str, &str)] = &[
    (
        "--otlp",
        "gpuprobe pushes no metrics; let Prometheus, or an OpenTelemetry collector with its prometheus receiver, \
         scrape /metrics",
    ),
    (
        "--push-pyroscope",
        "gpuprobe pushes no profiles; let Grafana Alloy (pyroscope.scrape) or Parca scrape /debug/pprof/gpu_inuse",
    ),
    (
        "--push-interval",
        "gpuprobe pushes nothing; scrape /metrics and /debug/pprof, and set the interval there",
    ),
    (
        "--push-headers",
        "gpuprobe pushes nothing; scrape /metrics and /debug/pprof, and give the scraper the token of --token-file",
    ),
    (
        "--push-ca",
        "gpuprobe pushes nothing; scrape /metrics and /debug/pprof, and give the scraper the authority of --tls-cert",
    ),
    (
        "--push-host",
        "gpuprobe pushes nothing; scrape /metrics and /debug/pprof: the scraper's label `instance` is the host",
    ),
    (
        "--export-tsv",
        "take gpuprobe export FILE --format tsv -o DIR",
    ),
    (
        "--rotate",
        "recording stops at --max-file-size, and tracing with reports continues; for a new file, record again",
    ),
    ("--fail-on", "take --fail-on-leak"),
    ("--activity-summary", "take --activity, which reports sums"),
    ("--scroll", "take | cat, and --color always for colours"),
    ("--max-size", "take --min-size, or --format json and jq"),
    (
        "--stacks-native",
        "take --full-stacks, which has native frames beside Python's",
    ),
    ("--title", "the title is the command, the GPU and the date"),
    (
        "--width",
        "pictures are 1600 pixels wide; take an SVG, which has any size",
    ),
    (
        "--height",
        "pictures are 800 pixels high; take an SVG, which has any size",
    ),
    (
        "--all-tables",
        "tables without rows are not created; look for them in sqlite_master",
    ),
    (
        "--config",
        "give the options on the command line, in a unit with ExecStart=",
    ),
    (
        "--top-kernels",
        "the largest kernels of a process have series of their own",
    ),
    (
        "--top-sites",
        "the largest call sites of a process have series of their own",
    ),
];

/// Names that options had, and those that they have; none where the option may be left out.
const RENAMED: &[(&str, &str)] = &[
    ("--kernels", "--analysis=kernels"),
    ("--copies", "--analysis=copies"),
    ("--calls", "--analysis=calls"),
    ("--waits", "--analysis=waits"),
    ("--nvtx", "--analysis=nvtx"),
    ("--processes", "--analysis=processes"),
    ("--summary", "--analysis=summary"),
    ("--per-record", "--per-call"),
    ("--usage", ""),
    ("--replay", ""),
];

/// `words` with the names that options have now; those of a command stay.
pub(super) fn renamed(mut words: Vec<OsString>) -> Vec<OsString> {
    let ours = words.iter().position(|word| word == "--");
    let command = words.split_off(ours.unwrap_or(words.len()));
    for (old, new) in RENAMED {
        let Some(at) = words.iter().position(|word| word == old) else {
            continue;
        };
        match new.is_empty() || words.iter().any(|word| word == new) {
            true => drop(words.remove(at)),
            false => words[at] = OsString::from(new),
        }
    }
    words.extend(command);
    words
}

/// `error`, or where it is about an option that was removed, one that says what takes its place.
pub(super) fn explain(error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let mut removed = REMOVED.iter().filter(|_| is_unknown);
    match removed.find(|(removed, _)| removed == option) {
        Some((_, why)) => clap::Error::raw(error.kind(), format!("{option} was removed: {why}\n")),
        None => error,
    }
}

#[cfg(all(test, feature = "live"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::super::Cli;
    use super::*;

    #[test]
    fn a_removed_option_is_an_error_of_one_line_that_says_what_to_do_instead() {
        for line in [
            "serve --otlp http://a:4318",
            "serve --push-pyroscope=http://a:4040",
            "serve --push-interval 30s --memleak",
            "serve --push-headers f",
            "serve --push-ca f",
            "serve --push-host a",
            "report f --export-tsv dir",
            "record --max-file-size 1G --rotate 2 -- app",
            "explain f --fail-on growing",
            "serve --config=f",
        ] {
            let words = format!("gpuprobe {line}");
            let error = Cli::try_parse_from(words.split(' ')).unwrap_err();
            let error = explain(error);
            let said = error.to_string();
            let typed = |option: &str| line.split([' ', '=']).any(|word| word == option);
            let option = REMOVED.iter().find(|(option, _)| typed(option));
            let (option, instead) = option.unwrap();
            assert_eq!(said, format!("error: {option} was removed: {instead}\n"));
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        let of = |line: &str| {
            let words = renamed(line.split(' ').map(OsString::from).collect());
            words.join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(
            of("gpuprobe report f --kernels"),
            "gpuprobe report f --analysis=kernels"
        );
        assert_eq!(of("gpuprobe top --replay f"), "gpuprobe top f");
        let both = "gpuprobe replay f --per-call --per-record";
        assert_eq!(of(both), "gpuprobe replay f --per-call");
        assert_eq!(of("gpuprobe -- app --calls"), "gpuprobe -- app --calls");
        let other = Cli::try_parse_from(["gpuprobe", "--otl"]).unwrap_err();
        assert!(explain(other).to_string().contains("'--otl'"));
    }
}
