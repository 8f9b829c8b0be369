//! Plays a recording on the screen, faster or slower, from any moment.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use gpuprobe_os::files;
use gpuprobe_report::playback::{ReplayMoment, Viewer, play};
use gpuprobe_report::profile::{Weight, flamegraph};
use gpuprobe_report::{ProcessDetail, ReportFormat};

use crate::feed::{PlaybackState, Request, ScreenNotice, Update};
use crate::screen::TopScreen;
use crate::view::ScreenConfig;

/// How long requests are waited for while time stands still.
const STILL: Duration = Duration::from_secs(3600);

/// Settings of a replay.
#[derive(Clone, Debug)]
pub struct TopReplayConfig {
    /// Path of the recording.
    pub file: PathBuf,
    /// Factor by which it is played faster than it was recorded.
    pub speed: f64,
    /// Time between two updates of the screen.
    pub interval: Duration,
    /// File for the reports that are shown, in JSON.
    pub output: Option<PathBuf>,
    /// Settings of the screen.
    pub screen: ScreenConfig,
}

/// Plays a recording until the user quits.
///
/// # Errors
/// Returns an error if the recording cannot be read, the output cannot be written, or there is no terminal.
pub fn replay(config: &TopReplayConfig) -> Result<()> {
    let output = config.output.as_ref().map(|path| {
        let why = || format!("cannot write to {}", path.display());
        files::create(path).with_context(why)
    });
    let output = output.transpose()?;
    let mut screen = TopScreen::start(config.screen, || {})?;
    let name = config.file.file_name().unwrap_or_default();
    let mut top_replay = TopReplay {
        screen: &mut screen,
        name: name.to_string_lossy().into_owned(),
        speed: config.speed,
        interval: config.interval,
        detail: None,
        is_stopped: false,
        is_quit: false,
        from_ns: None,
        now_ns: 0,
        output,
        failed: None,
    };
    let played = loop {
        let played = play(&config.file, &mut top_replay);
        // Earlier moments are played to from the beginning.
        if played.is_err() || top_replay.is_quit || top_replay.failed.is_some() {
            break played;
        }
    };
    let failed = top_replay.failed.take();
    screen.close();
    played?;
    failed.map_or(Ok(()), Err)
}

struct TopReplay<'a> {
    screen: &'a mut TopScreen,
    name: String,
    speed: f64,
    interval: Duration,
    detail: Option<ProcessDetail>,
    is_stopped: bool,
    is_quit: bool,
    /// The moment to which it is played without showing anything.
    from_ns: Option<u64>,
    now_ns: u64,
    output: Option<File>,
    failed: Option<anyhow::Error>,
}

impl Viewer for TopReplay<'_> {
    fn at(&mut self, moment: &mut ReplayMoment<'_>, now_ns: u64) -> ControlFlow<(), u64> {
        let (begin_ns, end_ns) = moment.span_ns;
        if let Some(from_ns) = self.from_ns
            && now_ns < from_ns
            && (end_ns <= begin_ns || now_ns < end_ns)
        {
            return ControlFlow::Continue(from_ns);
        }
        self.from_ns = None;
        self.now_ns = now_ns;
        if let Err(error) = self.show(moment) {
            self.failed = Some(error);
            return ControlFlow::Break(());
        }
        let is_over = end_ns > begin_ns && now_ns >= end_ns;
        let due = Instant::now() + self.interval;
        loop {
            let left = match self.is_stopped || is_over {
                true => STILL,
                false => due.saturating_duration_since(Instant::now()),
            };
            let Some(request) = self.screen.source.wait(left) else {
                if self.is_stopped || is_over {
                    continue;
                }
                let step_ns = self.interval.as_nanos() as f64 * self.speed;
                return ControlFlow::Continue(now_ns.saturating_add(step_ns as u64));
            };
            if let Some(next) = self.serve(&request, moment) {
                return next;
            }
        }
    }
}

impl TopReplay<'_> {
    /// Shows this moment.
    fn show(&mut self, moment: &mut ReplayMoment<'_>) -> Result<()> {
        let report = moment.report(self.detail, self.output.is_none());
        if let Some(output) = &mut self.output {
            let mut writer = ReportFormat::Json.writer(false);
            let written = writer.write(&report, output).and_then(|()| output.flush());
            written.context("cannot write the report")?;
        }
        let (begin_ns, end_ns) = moment.span_ns;
        self.screen.source.publish(Update {
            report: Arc::new(report),
            now_ns: self.now_ns,
            detail: self.detail,
            parents: Arc::default(),
            verdicts: moment.verdicts(),
            playing: Some(PlaybackState {
                file: self.name.clone(),
                at_ns: self.now_ns.saturating_sub(begin_ns),
                length_ns: end_ns.saturating_sub(begin_ns),
                speed: self.speed,
                is_stopped: self.is_stopped,
            }),
        });
        Ok(())
    }

    /// Does what the user has asked for; returns how it is played on, if at once.
    fn serve(
        &mut self,
        request: &Request,
        moment: &mut ReplayMoment<'_>,
    ) -> Option<ControlFlow<(), u64>> {
        match *request {
            Request::Quit => {
                self.is_quit = true;
                return Some(ControlFlow::Break(()));
            }
            Request::Seek(seconds) => {
                let by_ns = (seconds.abs() * 1e9) as u64;
                let (begin_ns, end_ns) = moment.span_ns;
                let to_ns = match seconds < 0.0 {
                    true => self.now_ns.saturating_sub(by_ns).max(begin_ns),
                    false => self.now_ns.saturating_add(by_ns).min(end_ns),
                };
                self.from_ns = Some(to_ns);
                return Some(match to_ns < self.now_ns {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(to_ns),
                });
            }
            Request::Faster(factor) => {
                self.speed = (self.speed * factor).clamp(0.01, 1e6);
                return self.shown_again(moment);
            }
            Request::Stop => {
                self.is_stopped = !self.is_stopped;
                return self.shown_again(moment);
            }
            Request::Detail(detail) => {
                self.detail = detail;
                return self.shown_again(moment);
            }
            Request::Explain(pid) => {
                if let Some(explain) = moment.explain() {
                    let explained = ScreenNotice::Explained(pid, Box::new(explain));
                    self.screen.source.notify(explained);
                }
            }
            Request::Flamegraph(pid) => {
                let message = self.flamegraph(moment, pid);
                let message = message.unwrap_or_else(|error| format!("{error:#}"));
                self.screen.source.notify(ScreenNotice::Message(message));
            }
            // Of live sessions.
            Request::Record(_) | Request::Source(_) => {}
        }
        None
    }

    /// Shows this moment with other settings.
    fn shown_again(&mut self, moment: &mut ReplayMoment<'_>) -> Option<ControlFlow<(), u64>> {
        let shown = self.show(moment);
        shown.err().map(|error| {
            self.failed = Some(error);
            ControlFlow::Break(())
        })
    }

    /// Writes a flame graph of a process into the current folder; returns the message about it.
    fn flamegraph(&self, moment: &ReplayMoment<'_>, pid: u32) -> Result<String> {
        let profile = moment.profile(pid);
        if profile.samples.is_empty() {
            return Ok(format!("no flame graph: process {pid} holds no GPU memory"));
        }
        let mut svg = Vec::new();
        flamegraph::write(&profile, Weight::End, &mut svg)?;
        let at_s = self.now_ns / 1_000_000_000;
        let path = PathBuf::from(format!("gpuprobe-{pid}-{at_s}.svg"));
        let why = || format!("cannot write to {}", path.display());
        let mut file = files::create(&path).with_context(why)?;
        file.write_all(&svg).with_context(why)?;
        Ok(format!("flame graph in {}", path.display()))
    }
}
