//! Rarely needed options of tracing.

use std::num::NonZeroU32;

use clap::Args;

use super::{ApiChoice, OnOom};
use crate::probe::AttachKind;

/// Options of every command that traces.
#[derive(Clone, Debug, Default, Args)]
pub struct AdvancedOptions {
    /// Which layer's memory calls are probed.
    #[arg(long, value_enum, default_value_t, hide = true)]
    pub api: ApiChoice,

    /// How probes are attached [default: the best that the kernel has].
    #[arg(long, value_enum, value_name = "KIND", hide = true)]
    pub attach: Option<AttachKind>,

    /// On arm64, attach although uprobes there have corrupted GPU programs.
    #[arg(long, hide = true)]
    pub allow_arm64: bool,

    /// Also probe functions that begin with a 5-byte nop, on Linux 6.18 to 7.2.
    ///
    /// These kernels replace it by a call, which overwrites what the caller may keep below its stack
    /// pointer and crashes forked children.
    #[arg(long, hide = true)]
    pub allow_nop5: bool,

    /// Also read and probe files on FUSE and user mounts.
    ///
    /// The user who serves one can have gpuprobe, and every process that forks, wait for as long as
    /// they like.
    #[arg(long)]
    pub untrusted_mounts: bool,

    /// Run COMMAND as root, also under sudo.
    #[arg(long, requires = "command")]
    pub as_root: bool,

    /// Give a BPF map room for N entries, to see what happens when it is full; repeatable.
    #[arg(long, value_name = "MAP=N", value_parser = map_entries, hide = true)]
    pub map_entries: Vec<(String, NonZeroU32)>,

    /// Run COMMAND when an allocation fails with out-of-memory and retries don't help; or `snapshot`.
    ///
    /// `snapshot` writes PyTorch's memory as it is then to gpuprobe-oom-PID-N.pickle, for its viewer. COMMAND has
    /// words as in a shell, but without one; {pid} is the process, {file} a description in JSON. One
    /// at a time, at most one in a second, killed after a minute; as the user who called sudo. The
    /// file is there until COMMAND ends. For pipes: 'sh -c "jq . < $1 | mail root" sh {file}'.
    #[arg(long, value_name = "COMMAND", value_parser = OnOom::parse)]
    pub on_oom: Option<OnOom>,
}

fn map_entries(text: &str) -> Result<(String, NonZeroU32), String> {
    let parts = text.split_once('=');
    let parsed = parts.and_then(|(map, entries)| Some((map.to_owned(), entries.parse().ok()?)));
    parsed.ok_or_else(|| format!("'{text}' is not MAP=N"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_sizes_are_parsed() {
        let parsed = |text| map_entries(text).map(|(map, entries)| (map, entries.get()));
        assert_eq!(parsed("threads=16"), Ok(("threads".to_owned(), 16)));
        for wrong in ["threads", "threads=", "threads=0", "threads=-1", "=x"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
