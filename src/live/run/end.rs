//! The end of a session.

use super::super::output::OutputReader;
use super::super::samples::Samples;
use super::super::{command, empty_run};
use super::reports::FIND_FOR;
use super::{Run, TERMINATED_FOR};
use anyhow::Result;
use gpuprobe_report::gate::LEAKED;
use nix::sys::signal::Signal;
use std::process::{ExitCode, ExitStatus};
use tokio::process::Child;
use tokio::time::Instant;

/// How long names of functions are waited for after a signal: whoever sends SIGTERM may soon send what cannot be
/// handled.
pub(super) fn names_until(signal: Signal) -> Option<Instant> {
    (signal == Signal::SIGTERM).then(|| Instant::now() + TERMINATED_FOR)
}

impl Run<'_> {
    /// Writes the last report and the other outputs of the end.
    pub(super) async fn end(
        mut self,
        reader: OutputReader,
        child: Option<Child>,
        status: Option<ExitStatus>,
    ) -> Result<ExitCode> {
        self.close_screen();
        // Everything that the probes have seen until now counts.
        self.follow()?;
        self.announced.announce_new(&self.tracer);
        let reported = match reader {
            OutputReader::Reading if self.served.is_none() => self.report(true).map(|_| ()),
            _ => Ok(()),
        };
        // The last read may have settled an incident.
        self.tell_incidents(true);
        reported?;
        let is_reported = reader == OutputReader::Reading && self.served.is_none();
        let nothing = is_reported && !self.is_watched() && self.say_why_nothing();
        if !nothing {
            self.warn_of_silence();
        }
        self.samples.iter().for_each(Samples::say_failures);
        let written = self.write_profiles();
        let fails = self.fails();
        let judged = self.judge();
        let (status, is_recorded) = self.finish(child, status).await?;
        let status = match status.map(command::exit_code) {
            None | Some(0) if nothing => empty_run::NOTHING,
            None | Some(0) if fails || matches!(judged, Ok(true)) => LEAKED,
            None | Some(0) if !is_recorded => 1,
            status => status.unwrap_or(0),
        };
        judged?;
        written.map(|()| ExitCode::from(status))
    }

    /// Whether a leak was found that sets the exit status.
    fn fails(&self) -> bool {
        self.leaks && self.config.explains.is_some_and(|explains| explains.fails)
    }

    /// Detaches, then waits for the command if it still runs. Returns its status, and whether `gpuprobe record` has
    /// recorded the whole run.
    async fn finish(
        mut self,
        mut child: Option<Child>,
        status: Option<ExitStatus>,
    ) -> Result<(Option<ExitStatus>, bool)> {
        self.resume_held();
        self.wait_for_frames(FIND_FOR)?;
        self.sink.input_recorder.finish();
        // The rest may not have found room.
        let is_recorded = !self.has_stopped_recording();
        self.tracer.detach();
        // A stop signal in flight has arrived now.
        self.resume_held();
        drop(self.guard.take());
        // Only the exit status is outstanding, so hooks may take their time.
        drop(self.reported_incidents.hooks.take());
        let status = match (status, &mut child) {
            (None, Some(child)) => Some(child.wait().await?),
            (status, _) => status,
        };
        Ok((status, is_recorded))
    }
}
