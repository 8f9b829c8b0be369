//! `--activity` and what belongs to it, as it is typed.

use clap::Args;
use clap::error::ErrorKind;
use gpuprobe_wire::settings::{ActivityKinds, BUFFER_BYTES, BUFFER_BYTES_RANGE};

use super::super::view::parse_size;
use super::super::{heading, wrong};
use super::modes::SINGLE;
use crate::live::{CollectorSettings, Target};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::TRACE)]
#[allow(clippy::doc_markdown, reason = "it is the help, which has no markdown")]
pub(super) struct ActivityArgs {
    /// Report GPU activity: CUPTI, loaded into COMMAND.
    ///
    /// KINDS, separated by commas [default: all but graph]: device, context, stream, name, driver, runtime, memcpy, memcpy2, memset, kernel,
    /// concurrent_kernel, memory, memory_pool, sync, graph, overhead, external_correlation,
    /// marker. With graph, a graph launch is one record, without the kernels, copies and sets in it.
    #[arg(
        long,
        value_name = "KINDS",
        num_args = 0..=1,
        require_equals = true,
        group = SINGLE
    )]
    activity: Option<Option<ActivityKinds>>,

    /// Size of CUPTI's buffers in COMMAND.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "8MiB",
        value_parser = parse_buffer,
        requires = "activity",
        hide = true
    )]
    cupti_buffer: usize,
}

/// Why nothing but a command can be told of.
const NEEDS_COMMAND: &str = "--activity needs a command to start: CUPTI cannot be loaded into a \
    process that is already running. Give `-- COMMAND`; of running processes, --cudatrace counts \
    the launches, --bandwidth-util the copies and --memleak the memory";

impl ActivityArgs {
    pub(super) fn is_on(&self) -> bool {
        self.activity.is_some()
    }

    /// Activity to collect, if anything; exits if it cannot be collected from `target`.
    pub(super) fn collect(&self, target: &Target) -> Option<CollectorSettings> {
        let kinds = self.activity?;
        if !matches!(target, Target::Command(_)) {
            wrong(ErrorKind::ArgumentConflict, NEEDS_COMMAND);
        }
        Some(CollectorSettings {
            kinds: kinds.unwrap_or(ActivityKinds::USUAL),
            buffer_bytes: self.cupti_buffer,
        })
    }
}

fn parse_buffer(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    let fits = usize::try_from(bytes).ok();
    fits.filter(|bytes| BUFFER_BYTES_RANGE.contains(bytes))
        .ok_or_else(|| {
            let (least, most) = (BUFFER_BYTES_RANGE.start(), BUFFER_BYTES_RANGE.end());
            format!(
                "'{text}' is out of range: from {} KiB to {} MiB",
                least >> 10,
                most >> 20
            )
        })
}

const _: () = assert!(BUFFER_BYTES == 8 << 20, "the help says 8MiB");

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::super::super::{Action as Any, Cli};
    use super::super::TraceCommandAction;
    use super::*;

    fn collect(words: &[&str]) -> Result<Option<CollectorSettings>, String> {
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let (activity, target) = match &cli.action {
            Some(Any::Live(TraceCommandAction::Record(record))) => {
                (&record.activity, record.target.target())
            }
            _ => (&cli.trace.activity, cli.trace.target.target()),
        };
        Ok(activity.collect(&target))
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
            assert_eq!(
                (usual.kinds, usual.buffer_bytes),
                (ActivityKinds::USUAL, 8 << 20)
            );
            let some = of(&[
                "--activity=kernel,memset",
                "--cupti-buffer",
                "1MiB",
                "--",
                "app",
            ]);
            let some = some.unwrap().unwrap();
            assert_eq!(some.kinds.to_string(), "memset,kernel");
            assert_eq!(some.buffer_bytes, 1 << 20);
            assert_eq!(of(&["--memleak", "--", "app"]), Ok(None));
            for wrong in [
                &["--activity=kernels", "--", "app"][..],
                &["--activity", "--cupti-buffer", "1", "--", "app"],
                &["--cupti-buffer", "1MiB", "--memleak", "--", "app"],
            ] {
                assert!(of(wrong).is_err(), "{wrong:?}");
            }
        }
    }
}
