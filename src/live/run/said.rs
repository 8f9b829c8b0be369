//! What a run says of itself on standard error.

use tokio::process::Child;

use super::super::nothing;
use super::Run;
use gpuprobe_os::say;

impl Run<'_> {
    /// Says why nothing was traced, if nothing was.
    pub(super) fn say_why_nothing(&self) -> bool {
        let why = nothing::why(self.config, self.tracer.loaded, &self.sink.sieve);
        if let Some(why) = &why {
            say(format_args!("nothing was traced: {why}"));
        }
        why.is_some()
    }

    /// Says why nothing may have come of what the GPU did, if nothing has.
    pub(super) fn warn_of_silence(&self) {
        let told = self.sink.state.activity.processes().next().is_some();
        if self.config.modes.activity && !told {
            say(
                "nothing came from CUPTI: the command has not used CUDA, or has not loaded \
                 libcupti; `gpuprobe doctor` says where one is",
            );
        }
    }

    /// Says what the recording is called that was given no name. That of a command gets its process id
    /// once nothing is written to it any more: SQLite wants the name that it has opened.
    pub(super) fn name_recording(&mut self, child: Option<&Child>) {
        let Some(record) = &self.config.record else {
            return;
        };
        let Some(name) = &record.name else {
            return;
        };
        say(format_args!("recording into {}", record.path.display()));
        if let Some(pid) = child.and_then(Child::id) {
            self.sink.tap.rename(&name.path_of(pid));
        }
    }
}
