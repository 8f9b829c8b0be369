//! NVML samples of the memory used on each GPU by all programs, and by each process on all GPUs.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nvml_wrapper::error::NvmlError;

use crate::host::nvml::{Gpu, Nvml};
use gpuprobe_engine::Ledger;
use gpuprobe_model::clock;
use gpuprobe_os::{privileges, say};
use gpuprobe_recording::Recorder;
use gpuprobe_recording::log::LogNote;

/// Interval of the samples of processes at first, and the share of the time so far that it is then, as far as to the last.
const PROCESSES_EVERY: Duration = Duration::from_secs(1);
const SHARE: u32 = 60;
const PROCESSES_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// A sample, or the index of the GPU that NVML cannot read, and why.
type Sample = Result<LogNote, (u32, NvmlError)>;

/// Sampling on a thread of its own, so that a slow driver delays nothing.
pub(super) struct Samples {
    receiver: Receiver<Sample>,
    count: u64,
    failed: u64,
    error: Option<NvmlError>,
}

impl Samples {
    /// Begins to sample at the interval `every`.
    ///
    /// # Errors
    /// Returns an error if NVML is not available.
    pub(super) fn start(every: Duration) -> Result<Self> {
        let nvml = Nvml::open().context(
            "--smi-interval needs NVML: cannot load libnvidia-ml.so.1; install NVIDIA's driver",
        )?;
        let (sender, receiver) = mpsc::channel();
        let run = move || {
            let mut next = Instant::now();
            let send = |gpu: &Gpu| sender.send(sample(&nvml, gpu.index)).is_ok();
            while nvml.gpus.iter().all(send) {
                // Missed samples are skipped.
                next = (next + every).max(Instant::now());
                thread::sleep(next - Instant::now());
            }
        };
        Self::spawn(receiver, run)
    }

    /// Begins to sample what processes use, if NVML is available: that is found out on the thread.
    pub(super) fn of_processes() -> Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let run = move || {
            let Some(nvml) = Nvml::open() else { return };
            let begun = Instant::now();
            while sender.send(Ok(used_by_processes(&nvml))).is_ok() {
                let every = begun.elapsed() / SHARE;
                thread::sleep(every.clamp(PROCESSES_EVERY, PROCESSES_AT_LEAST_EVERY));
            }
        };
        Self::spawn(receiver, run)
    }

    fn spawn(receiver: Receiver<Sample>, run: impl FnOnce() + Send + 'static) -> Result<Self> {
        let thread = thread::Builder::new().name("gpuprobe-nvml".to_owned());
        let confined = move || {
            privileges::keep_only_here(&[]);
            run();
        };
        thread
            .spawn(confined)
            .context("cannot start the sampling thread")?;
        Ok(Self {
            receiver,
            count: 0,
            failed: 0,
            error: None,
        })
    }

    /// Applies and records the samples since the last call; prints the first failure.
    pub(super) fn note(&mut self, ledger: &mut Ledger, recorder: &mut Recorder) {
        for sample in self.receiver.try_iter() {
            self.count += 1;
            match sample {
                Ok(LogNote::ProcessesUsed(now_ns, mut used)) => {
                    used.retain(|(pid, _)| ledger.process_of(*pid).is_some());
                    ledger.note_used(now_ns, &used);
                    if !used.is_empty() {
                        recorder.note(LogNote::ProcessesUsed(now_ns, used));
                    }
                }
                Ok(note) => recorder.note(note),
                Err((gpu, error)) => {
                    self.failed += 1;
                    if self.error.is_none() {
                        say(format_args!(
                            "warning: --smi-interval: NVML cannot read the memory usage of GPU {gpu}: \
                             {error}; sampling continues, further failures are counted"
                        ));
                        self.error = Some(error);
                    }
                }
            }
        }
    }

    /// Prints the number of failed samples, if any.
    pub(super) fn say_failures(&self) {
        let Some(error) = &self.error else { return };
        say(format_args!(
            "warning: --smi-interval: {} of {} samples failed and are not in the recording: NVML: {error}",
            self.failed, self.count
        ));
    }
}

fn used_by_processes(nvml: &Nvml) -> LogNote {
    let used = nvml.processes().into_iter();
    let on_all = |on: Vec<(u32, u64)>| on.iter().fold(0_u64, |sum, (_, b)| sum.saturating_add(*b));
    let used = used.map(|(pid, on)| (pid, on_all(on)));
    LogNote::ProcessesUsed(clock::monotonic_ns(), used.collect())
}

fn sample(nvml: &Nvml, gpu: u32) -> Sample {
    let memory = nvml.memory(gpu).map_err(|error| (gpu, error))?;
    Ok(LogNote::Used(clock::monotonic_ns(), gpu, memory.used))
}
