//! `gpuprobe snapshot`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::cli::progress;
use crate::host::host_info::ProcFs;
use crate::host::process::{ProcessHandle, task_of};
use gpuprobe_analysis::snapshot::FoundSnapshot;
use gpuprobe_analysis::{Filter, page};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::State;
use gpuprobe_model::abi::PROCESS_PID_SHIFT;
use gpuprobe_model::blocks::FoundBlocks;
use gpuprobe_model::event::{Event, Task};
use gpuprobe_model::text::size;
use gpuprobe_os::say;
use gpuprobe_recording::{Facts, Recorder};
use gpuprobe_stacks::helper::{FileReader, HelperHost, ProcessReader};
use gpuprobe_views::export::write_snapshot;
use gpuprobe_views::{html, to_output};

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

    /// Format of the output [default: html for a file that ends in `.html`, else pickle].
    #[arg(long, value_enum)]
    format: Option<SnapshotFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SnapshotFormat {
    /// For PyTorch's viewer.
    Pickle,
    /// One self-contained page, as `gpuprobe report --html` writes.
    Html,
}

impl SnapshotArgs {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let pid = self.pid;
        ProcessHandle::of(pid).with_context(|| format!("there is no process with id {pid}"))?;
        let facts = Facts::now(Modes::MEMORY);
        let files = FileReader::new(HelperHost::Process);
        let host_info = ProcFs::open(files, ProcessReader::new(HelperHost::Process));
        let found = host_info.blocks.borrow_mut().read_tried(pid, TRIED_FOR);
        let found = found
            .map_err(|why| anyhow!("PyTorch's allocator in process {pid} cannot be read: {why}"))?;
        let is_html = self.output.extension().is_some_and(|it| it == "html");
        let is_html = self.format.map_or(is_html, |it| it == SnapshotFormat::Html);
        if is_html {
            self.write_page(facts, &host_info, &found)?;
        } else {
            to_output(Some(&self.output), false, |out| {
                Ok(write_snapshot(&FoundSnapshot::new(&found, None), out)?)
            })?;
        }
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

    /// Writes the page of a recording that has nothing but these blocks.
    fn write_page(&self, facts: Facts, host_info: &ProcFs, found: &FoundBlocks) -> Result<()> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let file = folder.path().join(format!("process {}", self.pid));
        let mut recorder = Recorder::start(&file, facts, None)?;
        let mut state = State::default();
        state.watch(true);
        let task = Task {
            process: self.pid << PROCESS_PID_SHIFT,
            time_ns: found.time_ns,
            ..task_of(self.pid)?
        };
        for event in [Event::Process(task), Event::Blocks(found.clone())] {
            recorder.enter(&mut state, &event, Modes::MEMORY, host_info);
            recorder.event(event, None, state.changes());
        }
        recorder.finish_quietly();
        let progress = progress::on_stderr();
        let page = page::read(&file, None, &Filter::default(), &progress)?;
        html::write(&page, &self.output)
    }
}
