//! What the traced command is given so that CUPTI tells what its GPU does.

use std::ffi::OsString;
use std::fs;
use std::os::linux::fs::MetadataExt;

use anyhow::{Context, Result, bail};
use gpuprobe_wire::settings::{FLUSH_MS, Kinds, Settings, Tracer};
use procfs::process::Process;

use crate::probe::Probe;
use crate::probe::library::Library;
use gpuprobe_wire::SETTINGS_VARIABLE;

/// The library that the CUDA driver loads into a process as it is initialised.
const INJECTION_VARIABLE: &str = "CUDA_INJECTION64_PATH";

/// The library that NVTX hands a program's ranges and names to.
const NVTX_VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// What is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collect {
    /// Which records.
    pub kinds: Kinds,
    /// Size of the buffers that CUPTI fills.
    pub buffer_bytes: usize,
}

/// A collector that waits for the command to load it. Dropping it removes its file.
pub(super) struct Collector {
    library: Library,
    settings: Settings,
}

impl Collector {
    /// Writes the file and probes it.
    ///
    /// # Errors
    /// Another library is to be loaded in its place, or the file cannot be written or probed.
    pub(super) fn start(collect: &Collect, probe: &mut Probe) -> Result<Self> {
        if let Some(other) = std::env::var_os(INJECTION_VARIABLE) {
            bail!(
                "{INJECTION_VARIABLE} is set to {}: the CUDA driver loads one such library only, so \
                 --activity and that tool exclude each other; unset it, or leave out --activity",
                other.display()
            );
        }
        let library = Library::write()?;
        let attached = probe
            .attach_batches(&library.attach_path(), library.batch_offset())
            .with_context(|| {
                let path = library.path().display();
                format!("cannot probe the collector in {path}")
            })?;
        probe.keep(None, attached);
        Ok(Self {
            library,
            settings: Settings {
                kinds: collect.kinds,
                buffer_bytes: collect.buffer_bytes,
                flush_ms: FLUSH_MS,
                tracer: ourselves(),
            },
        })
    }

    /// The variables that the command is to be given.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let path = || self.library.path().into();
        let mut variables = vec![
            (INJECTION_VARIABLE, path()),
            (SETTINGS_VARIABLE, self.settings.to_string().into()),
        ];
        if wants_nvtx(self.settings.kinds) && std::env::var_os(NVTX_VARIABLE).is_none() {
            variables.push((NVTX_VARIABLE, path()));
        }
        variables
    }
}

/// Whether what the program says through NVTX was asked for by name: there is a CUPTI (13.0.0) that
/// crashes programs that use it.
fn wants_nvtx(kinds: Kinds) -> bool {
    kinds != Kinds::USUAL && (kinds.contains("marker") || kinds.contains("name"))
}

/// By what the collector knows that we have gone, and that nobody listens any more.
fn ourselves() -> Option<Tracer> {
    let start_ticks = Process::myself().and_then(|process| process.stat());
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?;
    Some(Tracer {
        pid: std::process::id(),
        start_ticks: start_ticks.ok()?.starttime,
        namespace: namespace.st_ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvtx_is_asked_for_by_name() {
        let kinds = |names: &[&str]| {
            names
                .iter()
                .try_fold(Kinds::NONE, |kinds, name| kinds.with(name))
        };
        assert!(!wants_nvtx(Kinds::USUAL));
        assert_eq!(kinds(&["kernel", "memcpy"]).map(wants_nvtx), Ok(false));
        assert_eq!(kinds(&["kernel", "marker"]).map(wants_nvtx), Ok(true));
        assert_eq!(kinds(&["name"]).map(wants_nvtx), Ok(true));
    }

    #[test]
    fn we_can_be_told_from_who_comes_after_us() {
        let own = ourselves();
        assert!(own.is_some_and(|own| own.pid == std::process::id() && own.start_ticks > 0));
        assert_eq!(own, ourselves());
    }
}
