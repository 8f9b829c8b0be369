//! Messages on standard error about the traced processes and libraries.

use super::{Target, TraceConfig, Tracer};
use gpuprobe_model::text::printable;
use gpuprobe_os::say;

/// Maximum number of lines about libraries loaded after the start. A program may load the runtime
/// first and the driver when it is needed; its children may bring their own copies of both.
const MAX_LINES: usize = 4;

/// The libraries announced so far.
#[derive(Debug, Default)]
pub(super) struct Announced {
    libraries: usize,
    lines_left: usize,
    late: usize,
}

impl Announced {
    /// Prints the target and the libraries attached by now.
    pub(super) fn begin(config: &TraceConfig, tracer: &Tracer) -> Self {
        let target = describe(config);
        let kind = tracer.probe.kind;
        let waits = tracer.libraries == 0;
        let what = match config.modes.activity {
            _ if config.traces_only_gpus() => "its GPUs".to_owned(),
            true => format!("its GPUs, {}", attached(tracer)),
            false => attached(tracer),
        };
        say(format_args!("tracing {target}: {what} ({kind})"));
        Self {
            libraries: tracer.libraries,
            lines_left: if waits && !config.traces_only_gpus() {
                MAX_LINES
            } else {
                0
            },
            late: 0,
        }
    }

    /// Says that a process had mapped libraries that were not probed yet.
    pub(super) fn announce_late(&mut self, pid: u32, comm: &str, after_ms: u64) {
        self.late += 1;
        if self.late > MAX_LINES {
            return;
        }
        let more = match self.late == MAX_LINES {
            true => "; of others only reports say so",
            false => "",
        };
        say(format_args!(
            "process {pid} ({}) is traced from {after_ms} ms after its start: its CUDA libraries were not probed \
             before{more}",
            printable(comm),
        ));
    }

    /// Prints the libraries that were attached since, if any.
    pub(super) fn announce_new(&mut self, tracer: &Tracer) {
        if self.lines_left > 0 && tracer.libraries > self.libraries {
            self.libraries = tracer.libraries;
            self.lines_left -= 1;
            say(format_args!("attached to {}", attached(tracer)));
        }
    }
}

/// The target in words.
pub(super) fn describe(config: &TraceConfig) -> String {
    let pids = match &config.target {
        Target::Everything => return "every CUDA process".to_owned(),
        Target::Command(command) => return command[0].to_string_lossy().into_owned(),
        Target::Processes(pids) => pids,
    };
    let names: Vec<_> = pids.iter().map(u32::to_string).collect();
    let (are, whose) = match names.len() {
        1 => ("process", "its"),
        _ => ("processes", "their"),
    };
    let too = match config.children {
        true => format!(" and {whose} children"),
        false => String::new(),
    };
    format!("{are} {}{too}", names.join(", "))
}

fn attached(tracer: &Tracer) -> String {
    let (libraries, functions) = (tracer.libraries, tracer.functions);
    match libraries {
        0 => "waiting for CUDA".to_owned(),
        1 => format!("{functions} functions in 1 CUDA library"),
        _ => format!("{functions} functions in {libraries} CUDA libraries"),
    }
}
