//! NVML samples of the memory used on each GPU by all programs.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use gpuprobe_model::clock;
use gpuprobe_os::{privileges, say};
use gpuprobe_recording::log::LogNote;

/// NVML as installed by the driver; the library's default name is that of the development package.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Result of one query.
enum NvmlSample {
    /// Time on the monotonic clock in ns, GPU index, and bytes used.
    Used(u64, u32, u64),
    /// GPU index and NVML's error.
    Failed(u32, NvmlError),
}

/// Sampling on a thread of its own, so that a slow driver delays nothing.
pub(super) struct Samples {
    receiver: Receiver<NvmlSample>,
    taken: u64,
    failed: u64,
    error: Option<NvmlError>,
}

impl Samples {
    /// Begins to sample at the interval `every`.
    ///
    /// # Errors
    /// Returns an error if NVML is not available.
    pub(super) fn start(every: Duration) -> Result<Self> {
        let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
        let nvml = nvml.map_err(|error| {
            tracing::debug!("{error}");
            anyhow!("--smi-interval needs NVML: cannot load {LIBRARY}; install NVIDIA's driver")
        })?;
        let count = nvml.device_count().context("NVML cannot count the GPUs")?;
        let (sender, receiver) = mpsc::channel();
        let sample = move || {
            privileges::keep_only_here(&[]);
            let mut next = Instant::now();
            loop {
                if (0..count).any(|gpu| sender.send(NvmlSample::of(&nvml, gpu)).is_err()) {
                    return;
                }
                // Missed samples are skipped.
                next = (next + every).max(Instant::now());
                thread::sleep(next - Instant::now());
            }
        };
        let named = thread::Builder::new().name("gpuprobe-nvml".to_owned());
        named
            .spawn(sample)
            .context("cannot start the sampling thread")?;
        Ok(Self {
            receiver,
            taken: 0,
            failed: 0,
            error: None,
        })
    }

    /// The samples since the last call; prints the first failure.
    pub(super) fn taken(&mut self) -> Vec<LogNote> {
        let mut notes = Vec::new();
        for sample in self.receiver.try_iter() {
            match sample {
                NvmlSample::Used(time_ns, gpu, bytes) => {
                    notes.push(LogNote::Used(time_ns, gpu, bytes));
                }
                NvmlSample::Failed(gpu, error) => {
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
        self.taken += notes.len() as u64;
        notes
    }

    /// Prints the number of failed samples, if any.
    pub(super) fn say_failures(&self) {
        let Some(error) = &self.error else { return };
        let all = self.taken + self.failed;
        say(format_args!(
            "warning: --smi-interval: {} of {all} samples failed and are not in the recording: NVML: \
             {error}",
            self.failed
        ));
    }
}

impl NvmlSample {
    fn of(nvml: &Nvml, gpu: u32) -> Self {
        let device = nvml.device_by_index(gpu);
        match device.and_then(|device| device.memory_info()) {
            Ok(memory) => Self::Used(clock::monotonic_ns(), gpu, memory.used),
            Err(error) => Self::Failed(gpu, error),
        }
    }
}
