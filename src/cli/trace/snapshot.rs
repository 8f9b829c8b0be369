//! `gpuprobe snapshot`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::host::process::ProcessHandle;
use gpuprobe_analysis::snapshot::FoundSnapshot;
use gpuprobe_model::text::size;
use gpuprobe_os::say;
use gpuprobe_stacks::blocks::BlockReader;
use gpuprobe_stacks::helper::{FileReader, HelperHost, ProcessReader};
use gpuprobe_views::export::write_snapshot;
use gpuprobe_views::to_output;

/// How long a process that uses its allocator all the time is tried.
const TRIED_FOR: Duration = Duration::from_secs(10);

/// A snapshot of a running process.
#[derive(Debug, Args)]
pub(in crate::cli) struct SnapshotArgs {
    /// The process.
    #[arg(short, long, value_name = "PID")]
    pid: u32,

    /// Write to this file instead of standard output (`-`).
    #[arg(
        short,
        long,
        value_name = "PATH",
        default_value = "-",
        hide_default_value = true
    )]
    output: PathBuf,
}

impl SnapshotArgs {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let pid = self.pid;
        ProcessHandle::of(pid).with_context(|| format!("there is no process with id {pid}"))?;
        let files = FileReader::new(HelperHost::Process);
        let mut blocks = BlockReader::new(files, ProcessReader::new(HelperHost::Process));
        let found = blocks.read_tried(pid, TRIED_FOR);
        let found = found
            .map_err(|why| anyhow!("PyTorch's allocator in process {pid} cannot be read: {why}"))?;
        to_output(Some(&self.output), false, |out| {
            Ok(write_snapshot(&FoundSnapshot::new(&found, None), out)?)
        })?;
        for device in &found.devices {
            say(format_args!(
                "cuda:{}: {} allocated of {} reserved, in {} blocks",
                device.device,
                size(device.allocated_bytes),
                size(device.reserved_bytes),
                device.blocks.len()
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}
