//! Rarely needed options of tracing, as they are typed for reports and for recordings alike.

use clap::Args;

use super::super::heading;
use crate::live::{ApiChoice, HookCommand};
use crate::probe::{AttachKind, MapEntries};

#[derive(Debug, Args)]
pub(super) struct AdvancedArgs {
    /// Which layer's memory calls are probed.
    #[arg(
        long,
        value_enum,
        default_value_t = ApiChoice::Auto,
        hide = true
    )]
    pub(super) api: ApiChoice,

    /// How probes are attached [default: the best that the kernel has].
    #[arg(long, value_enum, value_name = "KIND", hide = true)]
    pub(super) attach: Option<AttachKind>,

    /// On arm64, attach although uprobes there have corrupted GPU programs.
    #[arg(long, hide = true)]
    pub(super) allow_arm64: bool,

    /// Also probe functions that begin with a 5-byte nop, on Linux 6.18 to 7.2.
    ///
    /// These kernels replace it by a call, which overwrites what the caller may keep below its stack
    /// pointer and crashes forked children.
    #[arg(long, hide = true)]
    pub(super) allow_nop5: bool,

    /// Also read and probe files on FUSE and user mounts.
    ///
    /// The user who serves one can have gpuprobe, and every process that forks, wait for as long as
    /// they like.
    #[arg(long, help_heading = heading::ADVANCED, hide_short_help = true)]
    pub(super) untrusted_mounts: bool,

    /// Run COMMAND as root, also under sudo.
    #[arg(long, requires = "command", help_heading = heading::ADVANCED, hide_short_help = true)]
    pub(super) as_root: bool,

    /// Give a BPF map room for N entries, to see what happens when it is full; repeatable.
    #[arg(long, value_name = "MAP=N", hide = true)]
    pub(super) map_entries: Vec<MapEntries>,

    /// Run COMMAND when an allocation fails for want of GPU memory and no retry helps.
    ///
    /// Words as in a shell, but without one; {pid} is the process, {file} a description in JSON. One
    /// at a time, at most one in a second, killed after a minute; as the user who called sudo. The
    /// file is there until COMMAND ends. For pipes: 'sh -c "jq . < $1 | mail root" sh {file}'.
    #[arg(
        long,
        value_name = "COMMAND",
        value_parser = parse_hook,
        help_heading = heading::ADVANCED,
        hide_short_help = true
    )]
    pub(super) on_oom: Option<HookCommand>,
}

fn parse_hook(text: &str) -> Result<HookCommand, String> {
    HookCommand::parse(text).map_err(|error| error.to_string())
}
