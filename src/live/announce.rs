//! What a run says of what it traces, on standard error.

use super::{Config, Target, Tracer};
use gpuprobe_cuda::Modes;
use gpuprobe_os::say;

/// Lines at most about libraries that are loaded after a start without any. A program may load the
/// runtime first and the driver when it is needed; its children may bring their own of both.
const MAX_LINES: usize = 4;

/// What has been said of the libraries that are attached to.
#[derive(Debug, Default)]
pub(super) struct Announced {
    libraries: usize,
    lines_left: usize,
}

impl Announced {
    /// Says what is traced, and what is attached to by now.
    pub(super) fn begin(config: &Config, tracer: &Tracer) -> Self {
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
        if waits && matches!(config.target, Target::Process(_)) {
            say("it has no CUDA library loaded; waiting for it to load one");
        }
        Self {
            libraries: tracer.libraries,
            lines_left: if waits { MAX_LINES } else { 0 },
        }
    }

    /// Says what came of waiting, if anything new did.
    pub(super) fn go_on(&mut self, tracer: &Tracer) {
        if self.lines_left > 0 && tracer.libraries > self.libraries {
            self.libraries = tracer.libraries;
            self.lines_left -= 1;
            say(format_args!("attached to {}", attached(tracer)));
        }
    }
}

fn describe(config: &Config) -> String {
    match &config.target {
        Target::Everything => "every CUDA process".to_owned(),
        Target::Process(pid) if config.children => format!("process {pid} and its children"),
        Target::Process(pid) => format!("process {pid}"),
        Target::Command(command) => command[0].to_string_lossy().into_owned(),
    }
}

fn attached(tracer: &Tracer) -> String {
    let (libraries, functions) = (tracer.libraries, tracer.functions);
    let plural = if libraries == 1 { "y" } else { "ies" };
    format!("{functions} functions in {libraries} CUDA librar{plural}")
}
