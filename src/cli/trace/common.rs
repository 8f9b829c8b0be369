//! The configuration that all commands that trace start from.

use std::sync::Arc;
use std::time::Duration;

use super::advanced::AdvancedArgs;
use super::target::TargetArgs;
use crate::live::TraceConfig;
use gpuprobe_cuda::Modes;
use gpuprobe_os::color::ColorChoice;
use gpuprobe_report::View;
use gpuprobe_views::ReportFormat;
use gpuprobe_views::profile::ProfileConfig;

/// The configuration of a trace without text, a recording, a screen or a progress bar. `interval` is the time between
/// two reports, or between two readings of the kernel's counts.
pub(super) fn config(
    target: &TargetArgs,
    advanced: AdvancedArgs,
    modes: Modes,
    interval: Duration,
) -> TraceConfig {
    TraceConfig {
        collect: None,
        single_records: false,
        stacks: target.stacks(modes.memleak),
        python: target.python(),
        tensors: target.tensors(modes.memleak),
        view: View::default(),
        profiles: ProfileConfig::default(),
        gate: None,
        target: target.target(),
        children: target.children,
        as_root: advanced.as_root,
        filter: target.filter(),
        kinds: target.kinds(),
        modes,
        per_call: false,
        interval,
        duration: target.duration,
        top: None,
        format: ReportFormat::Json,
        output: None,
        color: ColorChoice::Never,
        api: advanced.api,
        attach: advanced.attach,
        map_entries: advanced.map_entries,
        allow_arm64: advanced.allow_arm64,
        allow_nop5: advanced.allow_nop5,
        untrusted_mounts: advanced.untrusted_mounts,
        on_oom: advanced.on_oom,
        record: None,
        progress: Arc::new(()),
        explains: None,
        serve: None,
        screens: None,
    }
}
