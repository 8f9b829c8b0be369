//! Options for continuous integration, as they are typed.

use std::path::PathBuf;

use clap::Args;

use super::view::parse_size;
use gpuprobe_report::gate::Config;

#[derive(Clone, Debug, Args)]
pub(super) struct GateArgs {
    /// End with status 100 if processes that have ended never freed something, beyond what libraries
    /// allocate once and what frameworks keep in pools: more than SIZE in all, if given.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0"
    )]
    fail_on_leak: Option<u64>,

    /// With --fail-on-leak, fail only for what holds more than in FILE, an earlier report in JSON.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
    baseline: Option<PathBuf>,

    /// With --fail-on-leak, leave out call sites of an owner, label, function, library or source file of
    /// this name, in which * stands for anything. Can be given again.
    #[arg(long, value_name = "GLOB", requires = "fail_on_leak")]
    ignore: Vec<String>,

    /// Likewise of all names in FILE, one a line, each with a reason behind a #. Can be given again.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
    suppressions: Vec<PathBuf>,

    /// With --fail-on-leak, write XML as of junit to FILE: a failed test for each leak.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
    junit: Option<PathBuf>,
}

impl GateArgs {
    /// What is a leak, if that is to be found out.
    pub(super) fn config(self) -> Option<Config> {
        let tolerated_bytes = self.fail_on_leak?;
        Some(Config {
            tolerated_bytes,
            baseline: self.baseline,
            ignored: self.ignore,
            suppressions: self.suppressions,
            junit: self.junit,
        })
    }
}
