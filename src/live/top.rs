//! The session's side of the screens of `gpuprobe top`: reports for them, and what keys ask for.

mod recording_job;

use std::collections::{HashMap, HashSet};
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Target;
use super::name::recording_path;
use super::output::say_lost;
use super::run::{Reading, Snapshots, symbols};
use chrono::Local;
use gpuprobe_cuda::Modes;
use gpuprobe_os::{Diversion, proc};
use gpuprobe_report::profile::ProfileScope;
use gpuprobe_report::{Options, Report, WorstVerdicts};
use gpuprobe_top::{Request, ScreenConfig, ScreenNotice, TopScreen, Update};
use gpuprobe_views::profile::flamegraph;

use recording_job::RecordingJob;

/// How long names are waited for when the screens are closed, or a key asks for them.
pub(super) const NAMES_WITHIN: Duration = Duration::from_millis(200);

/// Ancestors of a process among which one that is listed is looked for, at most.
const MAX_ANCESTORS: usize = 64;

/// The screens of a session.
pub(super) struct TopSession {
    screen: TopScreen,
    recording_job: RecordingJob,
    /// The listed processes, and those of them that are the nearest ancestors of others.
    listed: HashSet<u32>,
    parents: Arc<HashMap<u32, u32>>,
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
        let screen = TopScreen::start(*config).context("cannot show gpuprobe top")?;
        let feed = screen.feed.clone();
        let recording_job = RecordingJob::start()?;
        let diversion = gpuprobe_os::divert(move |line| {
            let line = line.strip_prefix("gpuprobe: ").unwrap_or(line);
            feed.notify(ScreenNotice::Message(line.to_owned()));
        });
        Ok(Self {
            screen,
            recording_job,
            listed: HashSet::new(),
            parents: Arc::default(),
            last: None,
            worst_verdicts: WorstVerdicts::default(),
            is_quit: false,
            _diversion: diversion,
        })
    }

    /// Does what the user has asked for.
    pub(super) fn serve(
        &mut self,
        reading: &mut Reading<'_>,
        snapshots: &mut Snapshots,
    ) -> Result<()> {
        while !self.is_quit
            && let Some(request) = self.screen.wait(Duration::ZERO)
        {
            match request {
                Request::Detail(detail) => {
                    snapshots.detail = detail;
                    if detail.is_some() {
                        self.show_memory(reading, snapshots)?;
                    }
                }
                Request::Explain(pid) => self.explain(pid, reading, snapshots)?,
                Request::Flamegraph(pid) => self.flamegraph(pid, reading)?,
                Request::Record(pid) => self.recording_job.record(pid),
                Request::Quit => self.is_quit = true,
                // Of recordings.
                Request::Seek(_) | Request::Faster(_) | Request::Stop => {}
            }
        }
        Ok(())
    }

    /// Passes a report to the screens.
    pub(super) fn show(&mut self, reading: &Reading<'_>, report: Report, options: &Options) {
        let memleak = report.memleak.iter();
        let listed = memleak.flat_map(|memleak| &memleak.processes);
        let listed: HashSet<u32> = listed.map(|process| process.who.pid).collect();
        if listed != self.listed {
            let parent = |pid: &u32| Some((*pid, ancestor_in(&listed, *pid)?));
            self.parents = Arc::new(listed.iter().filter_map(parent).collect());
            self.listed = listed;
        }
        let (ledger, symbols) = (&reading.sink.state.ledger, symbols(&reading.sink));
        let report = Arc::new(report);
        self.last = Some(Arc::clone(&report));
        self.screen.feed.publish(Update {
            report,
            now_ns: options.now_ns,
            detail: options.detail,
            parents: Arc::clone(&self.parents),
            verdicts: self.worst_verdicts.update(ledger, options, symbols),
            playing: None,
        });
    }

    /// Shows the memory of the process looked at, before the next report is due. Rates are those of the last.
    fn show_memory(&mut self, reading: &mut Reading<'_>, snapshots: &mut Snapshots) -> Result<()> {
        let options = Options {
            modes: Modes::MEMORY,
            ..snapshots.options(reading, false)
        };
        let mut report = snapshots.snapshot(reading, &options, NAMES_WITHIN, None)?;
        if let Some(last) = &self.last {
            report.cudatrace.clone_from(&last.cudatrace);
            report.bandwidth_util.clone_from(&last.bandwidth_util);
        }
        self.show(reading, report, &options);
        Ok(())
    }

    fn explain(
        &self,
        pid: u32,
        reading: &mut Reading<'_>,
        snapshots: &mut Snapshots,
    ) -> Result<()> {
        let options = Options {
            modes: Modes::MEMORY,
            explains: true,
            top: None,
            detail: None,
            only_detail: false,
            ..snapshots.options(reading, false)
        };
        let report = snapshots.snapshot(reading, &options, NAMES_WITHIN, None)?;
        if let Some(explain) = report.explain {
            let explained = ScreenNotice::Explained(pid, Box::new(explain));
            self.screen.feed.notify(explained);
        }
        Ok(())
    }

    fn flamegraph(&self, pid: u32, reading: &mut Reading<'_>) -> Result<()> {
        let scope = ProfileScope {
            pid: Some(pid),
            ..ProfileScope::default()
        };
        let mut profile = reading.profile(scope, NAMES_WITHIN)?;
        if profile.samples.is_empty() {
            let nothing = format!("no flame graph: process {pid} holds no GPU memory");
            self.screen.feed.notify(ScreenNotice::Message(nothing));
            return Ok(());
        }
        profile.run = reading.describe_run();
        let mut svg = Vec::new();
        flamegraph::write(&profile, &mut svg)?;
        let path = recording_path(&Target::Processes(vec![pid]), Local::now());
        self.recording_job.write(path.with_extension("svg"), svg);
        Ok(())
    }

    /// Ends the screens, so that the terminal is as before; what was lost is said below.
    pub(super) fn end(self) {
        let last = self.last.as_ref();
        if let Some(last) = last.filter(|last| last.lost.any()) {
            say_lost(last);
        }
        self.recording_job.end();
    }
}

/// The nearest ancestor of process `pid` that is `listed`.
fn ancestor_in(listed: &HashSet<u32>, pid: u32) -> Option<u32> {
    let parent = |pid: &u32| u32::try_from(proc::stat(*pid).ok()?.ppid).ok();
    let mut ancestors = successors(parent(&pid), parent).take(MAX_ANCESTORS);
    ancestors.find(|pid| listed.contains(pid))
}
