//! Messages on standard error about the traced processes and libraries.

use super::{Target, TraceConfig, Tracer};
use gpuprobe_cuda::Modes;
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
        let only_gpu = Modes {
            activity: true,
            ..Modes::default()
        };
        if config.modes == only_gpu {
            say(format_args!("tracing {target}: its GPUs ({kind})"));
            return Self::default();
        }
        let gpus = if config.modes.activity {
            "its GPUs, "
        } else {
            ""
        };
        let waits = tracer.libraries == 0;
        let calls = if waits {
            "waiting for CUDA".to_owned()
        } else {
            attached(tracer)
        };
        say(format_args!("tracing {target}: {gpus}{calls} ({kind})"));
        if let (true, Target::Processes(pids)) = (waits, &config.target) {
            let (have, them) = if pids.len() == 1 {
                ("it has", "it")
            } else {
                ("they have", "them")
            };
            say(format_args!(
                "{have} no CUDA library loaded; waiting for {them} to load one"
            ));
        }
        Self {
            libraries: tracer.libraries,
            lines_left: if waits { MAX_LINES } else { 0 },
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
    match &config.target {
        Target::Everything => "every CUDA process".to_owned(),
        Target::Processes(pids) => describe_processes(pids, config.children),
        Target::Command(command) => command[0].to_string_lossy().into_owned(),
    }
}

fn describe_processes(pids: &[u32], children: bool) -> String {
    let names: Vec<_> = pids.iter().map(u32::to_string).collect();
    let (are, whose) = match names.len() {
        1 => ("process", "its"),
        _ => ("processes", "their"),
    };
    let too = if children {
        format!(" and {whose} children")
    } else {
        String::new()
    };
    format!("{are} {}{too}", names.join(", "))
}

fn attached(tracer: &Tracer) -> String {
    let (libraries, functions) = (tracer.libraries, tracer.functions);
    let plural = if libraries == 1 { "y" } else { "ies" };
    format!("{functions} functions in {libraries} CUDA librar{plural}")
}
