//! `--activity` and what belongs to it, as it is typed.

use clap::Args;
use gpuprobe_wire::settings::{BUFFER_BYTES, BUFFER_BYTES_RANGE, Kinds};

use super::view::parse_size;
use crate::live::{Collect, Target};

#[derive(Clone, Debug, Args)]
#[allow(clippy::doc_markdown, reason = "it is the help, which has no markdown")]
pub(super) struct ActivityArgs {
    /// Tell what the GPU itself does and when, through NVIDIA's CUPTI, which COMMAND is made to
    /// load: of these kinds, separated by commas [default: all but graph].
    ///
    /// Kinds: device, context, stream, name, driver, runtime, memcpy, memcpy2, memset, kernel,
    /// concurrent_kernel, memory, memory_pool, sync, graph, overhead, external_correlation,
    /// marker. With graph, a graph is told as a whole, and no longer the kernels, copies and sets
    /// in it.
    #[arg(long, value_name = "KINDS", num_args = 0..=1, require_equals = true)]
    activity: Option<Option<Kinds>>,

    /// Size of the buffers that CUPTI fills in COMMAND.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "8MiB",
        value_parser = parse_buffer,
        requires = "activity"
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

    /// What is collected, if anything is.
    ///
    /// # Errors
    /// It cannot be collected from `target`; says why.
    pub(super) fn collect(&self, target: &Target) -> Result<Option<Collect>, &'static str> {
        let Some(kinds) = self.activity else {
            return Ok(None);
        };
        if !matches!(target, Target::Command(_)) {
            return Err(NEEDS_COMMAND);
        }
        Ok(Some(Collect {
            kinds: kinds.unwrap_or(Kinds::USUAL),
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

    use super::super::{Action, Cli};
    use super::*;

    fn collect(words: &[&str]) -> Result<Option<Collect>, String> {
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let (activity, target) = match &cli.action {
            Some(Action::Record(record)) => (&record.activity, record.target.target()),
            _ => (&cli.trace.activity, cli.trace.target.target()),
        };
        activity.collect(&target).map_err(ToOwned::to_owned)
    }

    #[test]
    fn kinds_are_told_as_one_word() {
        for program in [&["gpuprobe"][..], &["gpuprobe", "record", "-o", "f"]] {
            let of = |words: &[&str]| collect(&[program, words].concat());
            let usual = of(&["--activity", "--", "app", "kernel"]).unwrap().unwrap();
            assert_eq!((usual.kinds, usual.buffer_bytes), (Kinds::USUAL, 8 << 20));
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
