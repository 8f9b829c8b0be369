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
    verbose: bool,
    libraries: usize,
    lines_left: usize,
    late: usize,
    is_first: bool,
}

impl Announced {
    /// Prints the target and the libraries attached by now.
    pub(super) fn begin(config: &TraceConfig, tracer: &Tracer) -> Self {
        let target = describe(config);
        let waits = tracer.libraries == 0;
        let verbose = config.view.verbose;
        let what = match (waits, verbose) {
            _ if config.traces_only_gpus() => String::new(),
            (true, _) => ": waiting for CUDA".to_owned(),
            (false, true) => format!(": {} ({})", attached(tracer), tracer.probe.kind),
            (false, false) => String::new(),
        };
        // The last line of a screen has the keys.
        let on_screens = config.screens.is_some();
        if !on_screens {
            say(format_args!("tracing {target}{what}"));
        }
        Self {
            verbose,
            libraries: tracer.libraries,
            lines_left: match waits && !on_screens && !config.traces_only_gpus() {
                true => MAX_LINES,
                false => 0,
            },
            late: 0,
            is_first: true,
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
            match self.verbose {
                true => say(format_args!("attached to {}", attached(tracer))),
                false if self.is_first => say("attached: CUDA is loaded"),
                false => {}
            }
            self.is_first = false;
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
        1 => format!("{functions} functions in 1 CUDA library"),
        _ => format!("{functions} functions in {libraries} CUDA libraries"),
    }
}
