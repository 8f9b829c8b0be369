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
];

/// What takes the place of an option that was removed.
pub(super) fn replacement(option: &str) -> Option<&'static str> {
    let row = REMOVED.iter().find(|(removed, _)| *removed == option)?;
    Some(row.1)
}

/// `error`, or where it is about an option that was removed, one that says what takes its place.
pub(super) fn explain(error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    match replacement(option) {
        Some(why) if error.kind() == ErrorKind::UnknownArgument => {
            clap::Error::raw(error.kind(), format!("{option} was removed: {why}\n"))
        }
        _ => error,
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
        ] {
            let words = format!("gpuprobe {line}");
            let error = Cli::try_parse_from(words.split(' ')).unwrap_err();
            let error = explain(error);
            let said = error.to_string();
            let option = REMOVED.iter().find(|(option, _)| line.contains(option));
            let (option, instead) = option.unwrap();
            assert_eq!(said, format!("error: {option} was removed: {instead}\n"));
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        let other = Cli::try_parse_from(["gpuprobe", "--otl"]).unwrap_err();
        assert!(explain(other).to_string().contains("'--otl'"));
    }
}
