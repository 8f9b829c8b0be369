//! Modes of a trace, as they are typed for reports, recordings and metrics alike.

use clap::{ArgGroup, Args};

use super::super::heading;
use gpuprobe_cuda::Modes;

/// Whatever has single events that can be written.
pub(super) const SINGLE: &str = "single";

/// The mode where none is given.
pub(super) const MEMORY: Modes = Modes {
    memleak: true,
    cudatrace: false,
    bandwidth_util: false,
    activity: false,
};

#[derive(Debug, Args)]
#[command(next_help_heading = heading::TRACE, group = ArgGroup::new(SINGLE).multiple(true))]
pub(super) struct ModeArgs {
    /// Memory allocated and not freed; the default.
    #[arg(long)]
    memleak: bool,

    /// Which kernels are launched, and how often.
    #[arg(long)]
    cudatrace: bool,

    /// How much is copied, and how fast.
    #[arg(long, group = SINGLE)]
    bandwidth_util: bool,
}

impl ModeArgs {
    /// The modes, `activity` among them; `None` if there is none.
    pub(super) fn with(&self, activity: bool) -> Option<Modes> {
        let modes = Modes {
            memleak: self.memleak,
            cudatrace: self.cudatrace,
            bandwidth_util: self.bandwidth_util,
            activity,
        };
        Some(modes).filter(|modes| *modes != Modes::default())
    }
}
