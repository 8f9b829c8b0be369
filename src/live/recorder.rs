//! The recording of a session.

use std::time::Duration;

use anyhow::Result;
use chrono::SecondsFormat;

use super::{Target, TraceConfig};
use gpuprobe_model::GpuUsage;
use gpuprobe_model::clock::WallClock;
use gpuprobe_recording::log::Mark;
use gpuprobe_recording::{Facts, Recorder};
use gpuprobe_report::{Options, Report};

/// Creates the recording of `config`, so that a bad path fails before anything is traced.
pub(super) fn open(config: &TraceConfig, clock: WallClock) -> Result<Recorder> {
    let Some(record) = &config.record else {
        return Ok(Recorder::default());
    };
    let command = match &config.target {
        Target::Command(words) => words
            .iter()
            .map(|w| w.to_string_lossy().into_owned())
            .collect(),
        Target::Everything | Target::Processes(_) => Vec::new(),
    };
    let line = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let facts = Facts {
        clock,
        command,
        command_line: line.collect(),
        kinds: config.kinds,
        ..Facts::now(config.modes)
    };
    Recorder::start(&record.path, facts, record.max_bytes)
}

/// The parts of `report` that cannot be derived from the state in a replay.
pub(super) fn mark_of(report: &Report, options: &Options, usage: Option<&GpuUsage>) -> Mark {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Mark {
        time: report.time.map_or_else(String::new, |time| {
            time.to_rfc3339_opts(SecondsFormat::Nanos, false)
        }),
        is_final: options.is_final,
        since_last_ns: ns(options.since_last),
        since_start_ns: ns(options.since_start),
        stacks: options.stacks,
        host_wide: options.host_wide,
        now_ns: Some(options.now_ns),
        usage: usage.cloned(),
        lost_by_user: report.lost_by_user.clone(),
        link: options.link.map(|link| (link.gigatransfers, link.lanes)),
    }
}
