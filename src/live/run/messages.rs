//! Messages of a session on standard error.

use tokio::process::Child;

use super::super::empty_run;
use super::Run;
use gpuprobe_os::say;

impl Run<'_> {
    /// Prints the reason if nothing was traced. Returns whether there was one.
    pub(super) fn say_why_nothing(&self) -> bool {
        let why = empty_run::why(self.config, self.tracer.loaded, &self.sink.filter);
        if let Some(why) = &why {
            say(format_args!("nothing was traced: {why}"));
        }
        why.is_some()
    }

    /// Warns if CUPTI delivered no record.
    pub(super) fn warn_of_silence(&self) {
        let told = self.sink.state.activity.processes().next().is_some();
        if self.config.modes.activity && !told {
            say(
                "no GPU activity recorded: the command has not used CUDA or has not loaded libcupti; \
                 `gpuprobe doctor` looks for libcupti",
            );
        }
    }

    /// Prints the default name of the recording. A command's process id is added to it after the last write,
    /// as SQLite needs the name under which it opened the file.
    pub(super) fn name_recording(&mut self, child: Option<&Child>) {
        let Some(record) = &self.config.record else {
            return;
        };
        let Some(name) = &record.name else {
            return;
        };
        say(format_args!("recording into {}", record.path.display()));
        if let Some(pid) = child.and_then(Child::id) {
            self.sink.input_recorder.rename(&name.path_of(pid));
        }
    }
}
