//! Options for profiles, as they are typed.

use std::path::PathBuf;

use clap::Args;

use gpuprobe_report::profile::{Config, Of, Weight};

#[derive(Clone, Debug, Args)]
pub(super) struct ProfileArgs {
    /// Write folded stacks to FILE: `process;main;...;cudaMalloc BYTES`.
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,

    /// Draw a flame graph into FILE, an SVG.
    #[arg(long, value_name = "FILE")]
    flamegraph: Option<PathBuf>,

    /// Write a profile for pprof to FILE, usually `*.pb.gz`.
    #[arg(long, value_name = "FILE")]
    pprof: Option<PathBuf>,

    /// What these files are about: what is live at the end, what was live when most was, or
    /// everything that was ever allocated.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Weight::End)]
    weight: Weight,

    /// Whose memory these files are about: what programs have from CUDA, or what PyTorch's allocator has
    /// handed out of that.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Of::Cuda)]
    of: Of,
}

impl ProfileArgs {
    pub(super) fn config(self, full_stacks: bool) -> Config {
        Config {
            folded: self.folded,
            flamegraph: self.flamegraph,
            pprof: self.pprof,
            weight: self.weight,
            full_stacks,
            of: self.of,
        }
    }
}
