//! `gpuprobe snapshot`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::host::process::ProcessHandle;
use gpuprobe_cuda::Framework;
use gpuprobe_model::blocks::DeviceBlocks;
use gpuprobe_model::text::size;
use gpuprobe_os::{files, say};
use gpuprobe_stacks::blocks::{BlockReader, Unread};
use gpuprobe_stacks::helper::{FileReader, HelperHost, ProcessReader};
use gpuprobe_views::export;

/// How long a process that uses its allocator all the time is tried, and the pause between two tries.
const TRIED_FOR: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

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
        let found = blocks_of(pid)?;
        let path = Some(&*self.output).filter(|path| !files::is_stdout(path));
        export::snapshot(&found, path)?;
        for device in &found {
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

fn blocks_of(pid: u32) -> Result<Vec<DeviceBlocks>> {
    let files = FileReader::new(HelperHost::Process);
    let mut reader = BlockReader::new(files, ProcessReader::new(HelperHost::Process));
    let until = Instant::now() + TRIED_FOR;
    loop {
        match reader.read(pid, Framework::PyTorch, &[]) {
            Ok(found) => return Ok(found),
            Err(Unread::Empty) => {
                bail!(
                    "process {pid} has no memory from PyTorch's allocator, or a PyTorch before 2.0"
                )
            }
            Err(why) if why == Unread::Unreadable || Instant::now() > until => {
                bail!("PyTorch's allocator in process {pid} cannot be read: {why}")
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
