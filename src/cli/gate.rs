//! Options for continuous integration, as they are typed.

use std::path::PathBuf;

use clap::Args;

use super::heading;
use super::view::parse_size;
use gpuprobe_report::gate::GateConfig;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(super) struct GateArgs {
    /// Exit with status 100 after a leak over SIZE.
    ///
    /// Of processes that have ended. What libraries allocate once and what frameworks keep in pools is no leak.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0"
    )]
    fail_on_leak: Option<u64>,

    /// With --fail-on-leak, count only growth since FILE, an earlier report in JSON.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
    baseline: Option<PathBuf>,

    /// With --fail-on-leak, ignore call sites whose owner, label, function, library or source
    /// file matches GLOB; repeatable.
    #[arg(long, value_name = "GLOB", requires = "fail_on_leak")]
    ignore: Vec<String>,

    /// Like --ignore for each line of FILE, with the reason after a #; repeatable.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
    suppressions: Vec<PathBuf>,

    /// With --fail-on-leak, write junit XML to FILE: a failed test for each leak.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
    junit: Option<PathBuf>,
}

impl GateArgs {
    /// Configuration of the gate; `None` without `--fail-on-leak`.
    pub(super) fn config(self) -> Option<GateConfig> {
        let tolerated_bytes = self.fail_on_leak?;
        Some(GateConfig {
            tolerated_bytes,
            baseline: self.baseline,
            ignored: self.ignore,
            suppressions: self.suppressions,
            junit: self.junit,
        })
    }
}
