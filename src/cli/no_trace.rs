//! Stands for live tracing in a build without it.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// There are no helper processes.
pub(super) fn run_as_helper() -> Option<ExitCode> {
    None
}

/// Nothing is loaded by libbpf.
pub(super) fn log_libbpf() {}

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// Anything but the subcommands there are: the options of live tracing.
    #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

impl TraceArgs {
    /// Says why nothing is traced.
    pub(super) fn run(self) -> Result<ExitCode> {
        let asked = match self.words.first() {
            Some(word) => format!("{}: ", word.display()),
            None => String::new(),
        };
        bail!(
            "{asked}this build has no live tracing (feature `live`), only report, plot, export, \
             replay and functions"
        )
    }
}
