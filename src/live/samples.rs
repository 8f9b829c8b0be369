//! What the GPUs' memory holds, as NVML says it: everything on them, of every program.

use std::sync::mpsc::{self, Receiver, TryIter};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nvml_wrapper::Nvml;

use gpuprobe_model::clock;
use gpuprobe_os::privileges;
use gpuprobe_recording::log::Note;

/// The library of the driver. NVML's default name is that of the development package.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Samples that are taken by a thread of their own, so that slow answers of the driver delay
/// nothing.
pub(super) struct Samples(Receiver<Note>);

impl Samples {
    /// Begins to sample.
    ///
    /// # Errors
    /// NVML is not there.
    pub(super) fn start(every: Duration) -> Result<Self> {
        let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
        let nvml = nvml.map_err(|error| {
            tracing::debug!("{error}");
            anyhow!("--smi-interval needs NVML ({LIBRARY}), which comes with NVIDIA's driver")
        })?;
        let count = nvml
            .device_count()
            .context("NVML does not say how many GPUs there are")?;
        let (sender, receiver) = mpsc::channel();
        let sample = move || {
            privileges::keep_only_here(&[]);
            let mut next = Instant::now();
            loop {
                for gpu in 0..count {
                    let used = nvml
                        .device_by_index(gpu)
                        .and_then(|device| device.memory_info());
                    let Ok(memory) = used else { continue };
                    let note = Note::Used(clock::monotonic_ns(), gpu, memory.used);
                    if sender.send(note).is_err() {
                        return;
                    }
                }
                // What was missed is not made up for.
                next = (next + every).max(Instant::now());
                thread::sleep(next - Instant::now());
            }
        };
        let named = thread::Builder::new().name("gpuprobe-nvml".to_owned());
        named
            .spawn(sample)
            .context("cannot start the thread that samples")?;
        Ok(Self(receiver))
    }

    /// What was sampled since this was last asked.
    pub(super) fn taken(&self) -> TryIter<'_, Note> {
        self.0.try_iter()
    }
}
