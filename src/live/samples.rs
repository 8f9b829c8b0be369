//! NVML samples of the memory used on each GPU by all programs.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nvml_wrapper::error::NvmlError;

use crate::host::nvml::{Gpu, Nvml};
use gpuprobe_model::clock;
use gpuprobe_os::{privileges, say};
use gpuprobe_recording::Recorder;
use gpuprobe_recording::log::LogNote;

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
            privileges::keep_only_here(&[]);
            let mut next = Instant::now();
            let send = |gpu: &Gpu| sender.send(sample(&nvml, gpu.index)).is_ok();
            while nvml.gpus.iter().all(send) {
                // Missed samples are skipped.
                next = (next + every).max(Instant::now());
                thread::sleep(next - Instant::now());
            }
        };
        let thread = thread::Builder::new().name("gpuprobe-nvml".to_owned());
        thread
            .spawn(run)
            .context("cannot start the sampling thread")?;
        Ok(Self {
            receiver,
            count: 0,
            failed: 0,
            error: None,
        })
    }

    /// Records the samples since the last call; prints the first failure.
    pub(super) fn note(&mut self, recorder: &mut Recorder) {
        for sample in self.receiver.try_iter() {
            self.count += 1;
            match sample {
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

fn sample(nvml: &Nvml, gpu: u32) -> Sample {
    let memory = nvml.memory(gpu).map_err(|error| (gpu, error))?;
    Ok(LogNote::Used(clock::monotonic_ns(), gpu, memory.used))
}
