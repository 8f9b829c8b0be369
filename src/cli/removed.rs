//! Options of the last version. For one release, the error says what takes their place.

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
    ("--kernels", "take --analysis kernels"),
    ("--copies", "take --analysis copies"),
    ("--calls", "take --analysis calls"),
    ("--waits", "take --analysis waits"),
    ("--nvtx", "take --analysis nvtx"),
    ("--processes", "take --analysis processes"),
    ("--summary", "leave it out, or take --analysis summary"),
    ("--fail-on", "take --fail-on-leak"),
    ("--per-record", "take --per-call"),
    ("--activity-summary", "take --activity, which reports sums"),
    ("--scroll", "take | cat, and --color always for colours"),
    ("--max-size", "take --min-size, or --format json and jq"),
    (
        "--stacks-native",
        "take --full-stacks, which has native frames beside Python's",
    ),
    ("--usage", "take gpuprobe plot FILE, whatever the file is"),
    ("--replay", "take gpuprobe top FILE"),
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
            "report f --kernels",
            "explain f --fail-on growing",
            "--activity --per-record -- app",
            "serve --config=f",
            "top --replay f",
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
        let other = Cli::try_parse_from(["gpuprobe", "--otl"]).unwrap_err();
        assert!(explain(other).to_string().contains("'--otl'"));
    }
}
