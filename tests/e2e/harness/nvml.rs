//! The stand-in NVML, with scripted answers.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{Setup, standin};

/// An NVML with a number of GPUs and a process list that can be changed.
pub(crate) struct Nvml {
    gpus: u32,
    folder: TempDir,
}

impl Nvml {
    /// Starts with no process on any GPU.
    pub(crate) fn with_gpus(gpus: u32) -> Self {
        let folder = TempDir::new().unwrap();
        let nvml = Self { gpus, folder };
        nvml.says(&[]);
        nvml
    }

    /// Sets the bytes that these processes use on these GPUs.
    pub(crate) fn says(&self, uses: &[(u32, u32, u64)]) {
        let lines = uses.iter();
        let lines = lines.map(|(gpu, pid, bytes)| format!("{gpu} {pid} {bytes}\n"));
        self.write(&lines.collect::<String>());
    }

    /// Sets a process on the first GPU whose memory use NVML cannot tell.
    pub(crate) fn does_not_know(&self, pid: u32) {
        self.write(&format!("0 {pid} x\n"));
    }

    /// Renamed into place, so that no reader sees a partial file.
    fn write(&self, text: &str) {
        let [new, current] = ["new", "processes"].map(|file| self.folder.path().join(file));
        fs::write(&new, text).unwrap();
        fs::rename(&new, &current).unwrap();
    }

    /// The file with its processes.
    pub(crate) fn processes(&self) -> PathBuf {
        self.folder.path().join("processes")
    }

    /// Makes gpuprobe load it.
    pub(crate) fn given_to(&self, setup: Setup) -> Setup {
        let folder = standin().path("");
        let processes = self.processes();
        setup
            .env("LD_LIBRARY_PATH", folder.to_str().unwrap())
            .env("STANDIN_NVML_DEVICES", &self.gpus.to_string())
            .env("STANDIN_NVML_PROCESSES", processes.to_str().unwrap())
    }

    /// The UUID of a GPU.
    pub(crate) fn uuid(gpu: u32) -> String {
        format!("GPU-00000000-0000-0000-0000-{gpu:012x}")
    }
}

/// Makes gpuprobe load an invalid NVML, even where a real one is installed.
pub(crate) fn broken(setup: Setup) -> (TempDir, Setup) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("libnvidia-ml.so.1"), "no library").unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    (folder, setup.env("LD_LIBRARY_PATH", &path))
}
