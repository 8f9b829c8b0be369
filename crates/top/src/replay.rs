//! Plays a recording on the screen, faster or slower, from any moment.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use gpuprobe_analysis::playback::{ReplayMoment, play};
use gpuprobe_os::files;
use gpuprobe_report::ProcessDetail;
use gpuprobe_views::ReportFormat;

use crate::feed::{PlaybackState, Request, ScreenNotice, Update};
use crate::screen::TopScreen;
use crate::view::ScreenConfig;

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
    let mut top_replay = TopReplay {
        output: output.transpose()?,
        screen: TopScreen::start(config.screen)?,
        config,
        speed: config.speed,
        detail: None,
        is_stopped: false,
        from_ns: None,
        now_ns: 0,
        end: None,
    };
    loop {
        play(&config.file, &mut |moment, now_ns| {
            top_replay.at(moment, now_ns)
        })?;
        // Earlier moments are played to from the beginning.
        if let Some(end) = top_replay.end.take() {
            return end;
        }
    }
}

struct TopReplay<'a> {
    screen: TopScreen,
    config: &'a TopReplayConfig,
    speed: f64,
    detail: Option<ProcessDetail>,
    is_stopped: bool,
    /// The moment to which it is played without showing anything.
    from_ns: Option<u64>,
    now_ns: u64,
    output: Option<File>,
    /// The user has quit, or an error.
    end: Option<Result<()>>,
}

impl TopReplay<'_> {
    fn at(&mut self, moment: &mut ReplayMoment, now_ns: u64) -> ControlFlow<(), u64> {
        let (begin_ns, end_ns) = moment.span_ns;
        if let Some(from_ns) = self.from_ns
            && now_ns < from_ns
            && (end_ns <= begin_ns || now_ns < end_ns)
        {
            return ControlFlow::Continue(from_ns);
        }
        self.from_ns = None;
        self.now_ns = now_ns;
        self.stay(moment).unwrap_or_else(|error| {
            self.end = Some(Err(error));
            ControlFlow::Break(())
        })
    }

    /// Shows this moment until the next one is due.
    fn stay(&mut self, moment: &mut ReplayMoment) -> Result<ControlFlow<(), u64>> {
        self.show(moment)?;
        let (begin_ns, end_ns) = moment.span_ns;
        let is_over = end_ns > begin_ns && self.now_ns >= end_ns;
        let interval = self.config.interval;
        let due = Instant::now() + interval;
        loop {
            let left = match self.is_stopped || is_over {
                true => Duration::MAX,
                false => due.saturating_duration_since(Instant::now()),
            };
            match self.screen.wait(left) {
                None => {
                    let step_ns = interval.as_nanos() as f64 * self.speed;
                    let next_ns = self.now_ns.saturating_add(step_ns as u64);
                    return Ok(ControlFlow::Continue(next_ns));
                }
                Some(Request::Quit) => {
                    self.end = Some(Ok(()));
                    return Ok(ControlFlow::Break(()));
                }
                Some(Request::Seek(seconds)) => {
                    let to_ns = self.now_ns as f64 + seconds * 1e9;
                    let to_ns = (to_ns as u64).min(end_ns).max(begin_ns);
                    self.from_ns = Some(to_ns);
                    return Ok(match to_ns < self.now_ns {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(to_ns),
                    });
                }
                Some(request) => self.serve(&request, moment)?,
            }
        }
    }

    /// Shows this moment.
    fn show(&mut self, moment: &mut ReplayMoment) -> Result<()> {
        let report = moment.report(self.detail, self.output.is_none());
        if let Some(output) = &mut self.output {
            let mut writer = ReportFormat::Json.writer(false);
            let written = writer.write(&report, output).and_then(|()| output.flush());
            written.context("cannot write the report")?;
        }
        let (begin_ns, end_ns) = moment.span_ns;
        let name = self.config.file.file_name().unwrap_or_default();
        self.screen.feed.publish(Update {
            report: Arc::new(report),
            now_ns: self.now_ns,
            detail: self.detail,
            parents: Arc::default(),
            verdicts: moment.verdicts(),
            playing: Some(PlaybackState {
                file: name.to_string_lossy().into_owned(),
                at_ns: self.now_ns.saturating_sub(begin_ns),
                length_ns: end_ns.saturating_sub(begin_ns),
                speed: self.speed,
                is_stopped: self.is_stopped,
            }),
        });
        Ok(())
    }

    /// Does what the user has asked for.
    fn serve(&mut self, request: &Request, moment: &mut ReplayMoment) -> Result<()> {
        match *request {
            Request::Faster(factor) => self.speed = (self.speed * factor).clamp(0.01, 1e6),
            Request::Stop => self.is_stopped = !self.is_stopped,
            Request::Detail(detail) => self.detail = detail,
            Request::Explain(pid) => {
                if let Some(explain) = moment.explain() {
                    let explained = ScreenNotice::Explained(pid, Box::new(explain));
                    self.screen.feed.notify(explained);
                }
                return Ok(());
            }
            Request::Flamegraph(_) => {
                let how = "a flame graph of a recording: gpuprobe report FILE --flamegraph OUT.svg";
                self.screen
                    .feed
                    .notify(ScreenNotice::Message(how.to_owned()));
                return Ok(());
            }
            _ => return Ok(()),
        }
        self.show(moment)
    }
}
