//! The session's side of the screens of `gpuprobe top`: reports for them, and what keys ask for.

mod parents;
mod recording_job;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

use super::Target;
use super::name::RecordingName;
use super::run::Run;
use super::stacks::StackState;
use chrono::Local;
use gpuprobe_cuda::Modes;
use gpuprobe_model::clock;
use gpuprobe_model::stack::{NoSymbols, Symbolize};
use gpuprobe_os::Diversion;
use gpuprobe_report::profile::{self, ProfileScope};
use gpuprobe_report::{Options, ProcessDetail, Report, WorstVerdicts};
use gpuprobe_top::{Request, ScreenConfig, ScreenNotice, TopScreen, Update, Verdicts};
use gpuprobe_views::profile::flamegraph;

use parents::Parents;
use recording_job::RecordingJob;

/// How long names are waited for when the screens are closed, or a key asks for them.
const NAMES_WITHIN: Duration = Duration::from_millis(200);

/// The screens of a session.
pub(super) struct TopSession {
    screen: TopScreen,
    recording_job: RecordingJob,
    parents: Parents,
    /// The process that is looked at.
    pub(super) detail: Option<ProcessDetail>,
    /// The report that was shown last.
    last: Option<Arc<Report>>,
    worst_verdicts: WorstVerdicts,
    /// The user has quit.
    pub(super) is_quit: bool,
    /// Messages are written to standard error once the terminal is as before.
    _diversion: Diversion,
}

impl TopSession {
    /// Takes the terminal over; from then on, messages are shown on the screen.
    ///
    /// # Errors
    /// Returns an error if there is no terminal, or threads cannot be started.
    pub(super) fn start(config: &ScreenConfig) -> Result<Self> {
        let drop_all = || gpuprobe_os::privileges::keep_only_here(&[]);
        let screen = TopScreen::start(*config, drop_all).context("cannot show gpuprobe top")?;
        let feed = screen.feed.clone();
        let recording_job = RecordingJob::start()?;
        let diversion = gpuprobe_os::divert(move |line| {
            let line = line.strip_prefix("gpuprobe: ").unwrap_or(line);
            feed.notify(ScreenNotice::Message(line.to_owned()));
        });
        Ok(Self {
            screen,
            recording_job,
            parents: Parents::default(),
            detail: None,
            last: None,
            worst_verdicts: WorstVerdicts::default(),
            is_quit: false,
            _diversion: diversion,
        })
    }

    /// What the user asks for, until that is the end.
    fn request(&self) -> Option<Request> {
        let wanted = self.screen.wait(Duration::ZERO);
        wanted.filter(|_| !self.is_quit)
    }

    fn tell(&self, message: impl Into<String>) {
        self.screen
            .feed
            .notify(ScreenNotice::Message(message.into()));
    }

    fn publish(&mut self, report: Arc<Report>, options: &Options, verdicts: Verdicts) {
        let memleak = report.memleak.iter();
        let listed = memleak.flat_map(|memleak| &memleak.processes);
        let parents = self.parents.of(listed.map(|process| process.who.pid));
        self.last = Some(Arc::clone(&report));
        self.screen.feed.publish(Update {
            report,
            now_ns: options.now_ns,
            detail: options.detail,
            parents,
            verdicts,
            playing: None,
        });
    }
}

impl Run<'_> {
    /// Passes a report to the screens, if there are any.
    pub(super) fn show(&mut self, report: Report, options: &Options) {
        let Some(top) = &mut self.top else {
            return;
        };
        let known = self.sink.stacks.as_ref().map(StackState::symbols);
        let symbols = known
            .as_ref()
            .map_or(&NoSymbols as &dyn Symbolize, |known| known);
        let ledger = &self.sink.state.ledger;
        let verdicts = top.worst_verdicts.update(ledger, options, symbols);
        top.publish(Arc::new(report), options, verdicts);
    }

    /// Does what the user has asked for.
    pub(super) fn serve_screen(&mut self) -> Result<()> {
        while let Some(request) = self.top.as_ref().and_then(TopSession::request) {
            self.obey(request)?;
        }
        Ok(())
    }

    fn obey(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Detail(detail) => {
                if let Some(top) = &mut self.top {
                    top.detail = detail;
                }
                if detail.is_some() {
                    self.show_now()?;
                }
            }
            Request::Explain(pid) => self.explain(pid)?,
            Request::Flamegraph(pid) => self.flamegraph(pid)?,
            Request::Record(pid) => {
                if let Some(top) = &mut self.top {
                    top.recording_job.record(pid);
                }
            }
            Request::Quit => {
                if let Some(top) = &mut self.top {
                    top.is_quit = true;
                }
            }
            // Of recordings.
            Request::Seek(_) | Request::Faster(_) | Request::Stop => {}
        }
        Ok(())
    }

    /// Shows the memory of the process looked at, before the next report is due. Rates are those of the last.
    fn show_now(&mut self) -> Result<()> {
        let options = Options {
            modes: only_memory(),
            ..self.options(false)
        };
        self.find_names(&options, NAMES_WITHIN)?;
        let usage = self.usage();
        let mut report = self.make(&options, usage.as_ref());
        let last = self.top.as_ref().and_then(|top| top.last.as_ref());
        if let Some(last) = last {
            report.cudatrace.clone_from(&last.cudatrace);
            report.bandwidth_util.clone_from(&last.bandwidth_util);
        }
        self.show(report, &options);
        Ok(())
    }

    fn explain(&mut self, pid: u32) -> Result<()> {
        let options = Options {
            modes: only_memory(),
            explains: true,
            top: None,
            detail: None,
            only_detail: false,
            ..self.options(false)
        };
        self.find_names(&options, NAMES_WITHIN)?;
        let usage = self.usage();
        let report = self.make(&options, usage.as_ref());
        if let (Some(top), Some(explain)) = (&self.top, report.explain) {
            let explained = ScreenNotice::Explained(pid, Box::new(explain));
            top.screen.feed.notify(explained);
        }
        Ok(())
    }

    fn flamegraph(&mut self, pid: u32) -> Result<()> {
        let scope = ProfileScope {
            pid: Some(pid),
            ..ProfileScope::default()
        };
        if let Some(stacks) = &mut self.sink.stacks {
            let needed = profile::needed_locations(&self.sink.state.ledger, scope);
            stacks.want(needed.into_iter());
            self.wait_for_frames(NAMES_WITHIN)?;
        }
        let Some(top) = &mut self.top else {
            return Ok(());
        };
        let ledger = &self.sink.state.ledger;
        let known = self.sink.stacks.as_ref().map(StackState::symbols);
        let symbols = known
            .as_ref()
            .map_or(&NoSymbols as &dyn Symbolize, |known| known);
        let now = self.clock.wall(clock::monotonic_ns());
        let mut made = profile::of_ledger(ledger, symbols, scope, now.timestamp_nanos_opt());
        if made.samples.is_empty() {
            top.tell(format!("no flame graph: process {pid} holds no GPU memory"));
            return Ok(());
        }
        made.run = gpuprobe_analysis::describe_run(None, [], Some(now));
        let mut svg = Vec::new();
        flamegraph::write(&made, &mut svg)?;
        let name = RecordingName::of(&Target::Processes(vec![pid]), Local::now());
        top.recording_job
            .write(name.path().with_extension("svg"), svg);
        Ok(())
    }

    /// Ends the screens, so that the terminal is as before.
    pub(super) fn close_screen(&mut self) {
        if let Some(top) = self.top.take() {
            self.names_until = Some(Instant::now() + NAMES_WITHIN);
            top.recording_job.end();
        }
    }
}

/// The modes of reports that are about memory only.
fn only_memory() -> Modes {
    Modes {
        memleak: true,
        ..Modes::default()
    }
}
