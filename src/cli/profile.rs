//! Options for profiles, as they are typed.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::heading;

use gpuprobe_report::profile::{ProfileScope, ProfiledMemory, Weight};
use gpuprobe_views::profile::ProfileConfig;

/// Whatever writes a profile.
const PROFILES: &str = "profiles";

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::STACKS, group = ArgGroup::new(PROFILES).multiple(true))]
pub(super) struct ProfileArgs {
    /// Write folded stacks to FILE: `process;main;...;cudaMalloc BYTES`.
    #[arg(long, value_name = "FILE", group = PROFILES)]
    folded: Option<PathBuf>,

    /// Draw a flame graph into FILE, an SVG.
    #[arg(long, value_name = "FILE", group = PROFILES)]
    flamegraph: Option<PathBuf>,

    /// Write a profile for pprof to FILE, usually `*.pb.gz`.
    #[arg(long, value_name = "FILE", group = PROFILES)]
    pprof: Option<PathBuf>,

    /// Memory in --folded, --flamegraph and --pprof.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Weight::End, requires = PROFILES)]
    weight: Weight,

    /// Allocator whose memory is in these files.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = ProfiledMemory::Cuda, requires = PROFILES)]
    of: ProfiledMemory,
}

impl ProfileArgs {
    pub(super) fn config(self, full_stacks: bool) -> ProfileConfig {
        ProfileConfig {
            folded: self.folded,
            flamegraph: self.flamegraph,
            pprof: self.pprof,
            scope: ProfileScope {
                weight: self.weight,
                full_stacks,
                of: self.of,
                ..ProfileScope::default()
            },
        }
    }
}
