//! Options of the last version. For one release, the error says what takes their place.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What takes the place of options that were about pushing.
const PULL: &str = "gpuprobe pushes nothing; let Prometheus, an OpenTelemetry collector with its prometheus receiver, \
    Grafana Alloy (pyroscope.scrape) or Parca scrape /metrics and /debug/pprof";

/// What takes the place of the size of a picture.
const SVG: &str = "pictures have 1600 by 800 pixels; take an SVG, which has any size";

/// What takes the place of a number of series.
const SERIES: &str = "the largest of a process have series of their own";

/// Removed options, and what takes their place.
const REMOVED: &[(&str, &str)] = &[
    ("--otlp", PULL),
    ("--push-pyroscope", PULL),
    ("--push-interval", PULL),
    ("--push-headers", PULL),
    ("--push-ca", PULL),
    ("--push-host", PULL),
    ("--export-tsv", "take export --format tsv -o DIR"),
    ("--rotate", "recording stops at --max-file-size"),
    ("--fail-on-leak", "take --fail-on leak, or leak=SIZE"),
    ("--activity-summary", "take --activity"),
    ("--cupti-buffer", "CUPTI's buffers have 8 MiB"),
    ("--scroll", "take | cat, and --color always for colours"),
    ("--max-size", "take --min-size, or --format json and jq"),
    ("--stacks-native", "take --full-stacks"),
    ("--title", "it is the command, the GPU and the date"),
    ("--width", SVG),
    ("--height", SVG),
    ("--all-tables", "tables without rows are not created"),
    ("--config", "give the options on the command line"),
    ("--top-kernels", SERIES),
    ("--top-sites", SERIES),
    ("--kernels", "take --analysis kernels"),
    ("--copies", "take --analysis copies"),
    ("--calls", "take --analysis calls"),
    ("--waits", "take --analysis waits"),
    ("--nvtx", "take --analysis nvtx"),
    ("--processes", "take --analysis processes"),
    ("--summary", "leave it out"),
    ("--per-record", "take --per-call"),
    ("--usage", "take plot FILE"),
    ("--replay", "take top FILE"),
];

/// `error`, or where it is about an option that was removed, one that says what takes its place.
pub(super) fn explain(mut error: clap::Error) -> clap::Error {
    // What follows `--` is a command here, and the usage of all options at once helps nobody.
    error.insert(ContextKind::Suggested, ContextValue::None);
    error.insert(ContextKind::Usage, ContextValue::None);
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    if is_unknown && option.parse::<u32>().is_ok() {
        let many = format!(
            "{option} is left over: several processes are PID,PID, as `pgrep -d, NAME` prints them\n"
        );
        return clap::Error::raw(error.kind(), many);
    }
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
            "explain f --fail-on-leak",
            "report f --fail-on-leak=4K",
            "serve --config=f",
            "report f --kernels",
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
        let left = Cli::try_parse_from(["gpuprobe", "--pid", "1", "2"]).unwrap_err();
        assert!(explain(left).to_string().contains("PID,PID"));
    }
}
