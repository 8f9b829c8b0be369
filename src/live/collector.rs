//! The CUPTI collector: a library that the CUDA driver loads into the traced command.

use std::ffi::OsString;
use std::fs;
use std::os::linux::fs::MetadataExt;

use anyhow::{Context, Result, bail};
use clap::Args;
use gpuprobe_wire::settings::{ActivityKinds, TracerId, WireSettings};
use libbpf_rs::Link;

use crate::probe::library::CollectorLibrary;
use crate::probe::{Probe, ProbePoint, Purpose};
use gpuprobe_os::proc;
use gpuprobe_wire::SETTINGS_VARIABLE;

/// Names the library that the CUDA driver loads at `cuInit`.
const INJECTION_VARIABLE: &str = "CUDA_INJECTION64_PATH";

/// Names the library that receives a program's NVTX calls.
const NVTX_VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// Settings of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "What to trace")]
#[allow(clippy::doc_markdown, reason = "it is the help, which has no markdown")]
pub struct CollectorSettings {
    /// Report GPU activity: CUPTI, loaded into COMMAND.
    ///
    /// KINDS, separated by commas [default: all but graph]: device, context, stream, name, driver, runtime, memcpy, memcpy2, memset, kernel,
    /// concurrent_kernel, memory, memory_pool, sync, graph, overhead, external_correlation,
    /// marker. With graph, a graph launch is one record, without the kernels, copies and sets in it.
    #[arg(
        id = "activity",
        long = "activity",
        value_name = "KINDS",
        value_parser = parse_kinds,
        required = false,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        group = "single"
    )]
    pub kinds: ActivityKinds,
}

fn parse_kinds(text: &str) -> Result<ActivityKinds, String> {
    match text {
        "" => Ok(ActivityKinds::USUAL),
        _ => text.parse(),
    }
}

/// The collector's file, ready for the command to load; removed on drop.
pub(super) struct Collector {
    _links: Vec<Link>,
    library: CollectorLibrary,
    settings: WireSettings,
}

impl Collector {
    /// Writes the collector's file and probes it.
    ///
    /// # Errors
    /// Returns an error if another injection library is set, or the file cannot be written or probed.
    pub(super) fn start(collect: &CollectorSettings, probe: &Probe) -> Result<Self> {
        if let Some(other) = std::env::var_os(INJECTION_VARIABLE) {
            bail!(
                "{INJECTION_VARIABLE} is set to {}: the CUDA driver loads one such library only, so \
                 --activity and that tool exclude each other; unset it, or leave out --activity",
                other.display()
            );
        }
        let library = CollectorLibrary::write()?;
        let point = ProbePoint {
            offset: library.batch_offset,
            cookie: 0,
        };
        let attached = probe.attach(Purpose::Batches, &library.file, &[point], &[]);
        let links = attached.with_context(|| {
            let path = library.path.display();
            format!("cannot probe the collector in {path}")
        })?;
        Ok(Self {
            _links: links,
            library,
            settings: WireSettings {
                kinds: collect.kinds,
                tracer: ourselves(),
                ..WireSettings::default()
            },
        })
    }

    /// The environment variables for the command.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let path = || self.library.path.clone().into();
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

/// Whether NVTX records were requested explicitly. They are not part of the default, as CUPTI 13.0.0
/// crashes programs that use NVTX.
fn wants_nvtx(kinds: ActivityKinds) -> bool {
    kinds != ActivityKinds::USUAL && (kinds.contains("marker") || kinds.contains("name"))
}

/// Identity of this process, by which the collector notices that gpuprobe has ended.
fn ourselves() -> Option<TracerId> {
    let pid = std::process::id();
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?;
    Some(TracerId {
        pid,
        start_ticks: proc::stat(pid).ok()?.starttime,
        namespace: namespace.st_ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvtx_takes_an_explicit_request() {
        let kinds = |names: &[&str]| {
            names
                .iter()
                .try_fold(ActivityKinds::NONE, |kinds, name| kinds.with(name))
        };
        assert!(!wants_nvtx(ActivityKinds::USUAL));
        assert_eq!(kinds(&["kernel", "memcpy"]).map(wants_nvtx), Ok(false));
        assert_eq!(kinds(&["kernel", "marker"]).map(wants_nvtx), Ok(true));
        assert_eq!(kinds(&["name"]).map(wants_nvtx), Ok(true));
    }

    #[test]
    fn ourselves_identifies_this_process() {
        let own = ourselves();
        assert!(own.is_some_and(|own| own.pid == std::process::id() && own.start_ticks > 0));
        assert_eq!(own, ourselves());
    }
}
