//! `--activity` and what belongs to it, as it is typed.

use clap::{ArgGroup, Args};
use gpuprobe_wire::settings::{ActivityKinds, BUFFER_BYTES, BUFFER_BYTES_RANGE};

use super::super::heading;
use super::super::view::parse_size;
use crate::live::{CollectorSettings, Target};

/// Whatever turns on that something is collected.
pub(super) const COLLECTS: &str = "collects";

#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new(COLLECTS).multiple(true))]
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
        group = COLLECTS,
        help_heading = heading::TRACE
    )]
    activity: Option<Option<ActivityKinds>>,

    /// Size of CUPTI's buffers in COMMAND.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "8MiB",
        value_parser = parse_buffer,
        requires = COLLECTS,
        help_heading = heading::TRACE,
        hide_short_help = true
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

    /// Activity to collect, if anything `is_on`: by default also without --activity.
    ///
    /// # Errors
    /// It cannot be collected from `target`; says why.
    pub(super) fn collect(
        &self,
        target: &Target,
        is_on: bool,
    ) -> Result<Option<CollectorSettings>, &'static str> {
        if !is_on {
            return Ok(None);
        }
        if !matches!(target, Target::Command(_)) {
            return Err(NEEDS_COMMAND);
        }
        Ok(Some(CollectorSettings {
            kinds: self.activity.flatten().unwrap_or(ActivityKinds::USUAL),
            buffer_bytes: self.cupti_buffer,
        }))
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
        let (activity, target, summary) = match &cli.action {
            Some(Any::Live(TraceCommandAction::Record(record))) => {
                (&record.activity, record.target.target(), false)
            }
            _ => {
                let trace = &cli.trace;
                (
                    &trace.activity,
                    trace.target.target(),
                    trace.activity_summary,
                )
            }
        };
        let is_on = activity.is_on() || summary;
        activity.collect(&target, is_on).map_err(ToOwned::to_owned)
    }

    #[test]
    fn a_summary_of_activity_needs_no_other_option() {
        let alone = ["gpuprobe", "--activity-summary", "--", "app"];
        let usual = collect(&alone).unwrap().unwrap();
        assert_eq!(
            (usual.kinds, usual.buffer_bytes),
            (ActivityKinds::USUAL, 8 << 20)
        );
        let config = Cli::try_parse_from(alone).unwrap().trace.into_config();
        assert!(config.modes.activity && config.collect.is_some());
        assert!(!config.single_records);
        let single = |words: &[&str]| {
            let cli = Cli::try_parse_from([words, &["--", "app"]].concat());
            cli.map(|cli| cli.trace.into_config().single_records)
        };
        assert_eq!(single(&["gpuprobe", "--activity"]).ok(), Some(false));
        let lines = single(&["gpuprobe", "--activity", "--per-record"]);
        assert_eq!(lines.ok(), Some(true));
        assert!(single(&["gpuprobe", "--memleak", "--per-record"]).is_err());
        let both = ["gpuprobe", "--activity-summary", "--per-record"];
        assert!(single(&both).is_err());
        let with = |words: &[&str]| collect(&[&["gpuprobe", "--activity-summary"], words].concat());
        let small = with(&["--cupti-buffer", "1MiB", "--", "app"]);
        assert_eq!(small.unwrap().unwrap().buffer_bytes, 1 << 20);
        let kernels = with(&["--activity=kernel", "--", "app"]).unwrap().unwrap();
        assert_eq!(kernels.kinds.to_string(), "kernel");
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
            for running in [&["--activity", "--pid", "7"][..], &["--activity"]] {
                let refused = of(running).unwrap_err();
                assert!(refused.contains("--cudatrace"), "{refused}");
            }
        }
    }
}
