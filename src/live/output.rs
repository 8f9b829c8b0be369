//! Destination of the reports.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::screen::Screen;
use super::{Target, TraceConfig};
use gpuprobe_os::color::ColorChoice;
use gpuprobe_os::files;
use gpuprobe_os::terminal;
use gpuprobe_os::terminal::{Layout, StandardStream};
use gpuprobe_report as report;
use gpuprobe_report::Report;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::records::PerRecordLine;
use gpuprobe_views::ReportFormat;

/// An open destination, with the writer of the format.
pub(super) struct Output {
    destination: BufWriter<Box<dyn Write>>,
    writer: Box<dyn report::ReportWriter>,
    format: ReportFormat,
    /// The destination is a terminal, which may be closed.
    on_terminal: bool,
    /// Set if a report replaces the last one on the screen.
    screen: Option<Screen>,
    color: ColorChoice,
    full_names: bool,
    place: OutputTarget,
}

/// Whether the destination is still read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputReader {
    Reading,
    Gone,
}

/// Where the reports are written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OutputTarget {
    /// No reports: only a recording is made.
    Nowhere,
    Stdout,
    Stderr,
    File(PathBuf),
}

impl OutputTarget {
    /// The destination of the reports of a run. With a command, standard output is the command's, so
    /// reports go to standard error.
    fn of(config: &TraceConfig) -> Self {
        let is_recorded_only = config.record.as_ref().is_some_and(|record| record.only);
        if is_recorded_only || config.serve.is_some() {
            return Self::Nowhere;
        }
        if config.screens.is_some() && config.output.is_none() {
            return Self::Nowhere;
        }
        match (&config.output, &config.target) {
            (Some(path), _) if files::is_stdout(path) => Self::Stdout,
            (Some(path), _) => Self::File(path.clone()),
            (None, Target::Command(_)) => Self::Stderr,
            (None, _) => Self::Stdout,
        }
    }

    /// The stream, which may be a terminal.
    fn stream(&self) -> Option<StandardStream> {
        match self {
            Self::Stdout => Some(StandardStream::Stdout),
            Self::Stderr => Some(StandardStream::Stderr),
            Self::Nowhere | Self::File(_) => None,
        }
    }
}

/// Whether a report replaces the last: on a terminal to which nothing else is written.
fn redraws(config: &TraceConfig, place: &OutputTarget) -> bool {
    let alone = !matches!(config.target, Target::Command(_));
    let only_reports = !config.per_call && !config.single_records;
    let is_text = config.format == ReportFormat::Text;
    *place == OutputTarget::Stdout && alone && only_reports && is_text && Screen::is_possible()
}

impl Output {
    /// Opens the destination, so that a bad path fails before anything is traced.
    pub(super) fn open(config: &TraceConfig) -> Result<Self> {
        let place = OutputTarget::of(config);
        let colored = Layout::of(place.stream(), config.color).colored;
        let (destination, on_terminal): (Box<dyn Write>, _) = match &place {
            OutputTarget::Nowhere => (Box::new(io::sink()), false),
            OutputTarget::Stdout => (terminal::stdout(colored), io::stdout().is_terminal()),
            OutputTarget::Stderr => (terminal::stderr(colored), io::stderr().is_terminal()),
            OutputTarget::File(path) => {
                let file = files::create(path)
                    .with_context(|| format!("cannot write to {}", path.display()))?;
                (Box::new(file), false)
            }
        };
        Ok(Self {
            destination: BufWriter::new(destination),
            writer: config
                .format
                .writer(config.per_call || config.single_records),
            format: config.format,
            on_terminal,
            screen: redraws(config, &place).then(Screen::default),
            color: config.color,
            full_names: config.view.full_names,
            place,
        })
    }

    /// Whether the format includes lost events.
    pub(super) fn shows_losses(&self) -> bool {
        self.format != ReportFormat::Csv
    }

    /// Writes a report. Pending single copies are written before it.
    pub(super) fn write(&mut self, report: &Report) -> Result<OutputReader> {
        if self.place == OutputTarget::Nowhere {
            return Ok(OutputReader::Reading);
        }
        self.lay_out();
        let written = match &mut self.screen {
            Some(screen) => {
                let mut text = Vec::new();
                self.writer.write(report, &mut text).and_then(|()| {
                    let text = String::from_utf8_lossy(&text);
                    let drawn = screen.draw(&text, report.is_final)?;
                    self.destination.write_all(drawn.as_bytes())
                })
            }
            None => self.writer.write(report, &mut self.destination),
        };
        let written = written.and_then(|()| self.destination.flush());
        self.outcome(written)
    }

    /// Lays lines out for the output as it is now: a terminal may have been resized.
    fn lay_out(&mut self) {
        let layout = Layout::of(self.place.stream(), self.color);
        self.writer.lay_out(layout.with_full_names(self.full_names));
    }

    /// Writes copies, a line for each.
    pub(super) fn write_copies(&mut self, copies: &[CopyReport]) -> Result<OutputReader> {
        self.lay_out();
        let mut written = Ok(());
        for copy in copies {
            written = written.and_then(|()| self.writer.write_copy(copy, &mut self.destination));
        }
        let written = written.and_then(|()| self.destination.flush());
        self.outcome(written)
    }

    /// Writes GPU records, a line for each.
    pub(super) fn write_records<'a>(
        &mut self,
        mut lines: impl Iterator<Item = PerRecordLine<'a>>,
    ) -> Result<OutputReader> {
        self.lay_out();
        let written = lines
            .try_for_each(|line| self.writer.write_activity(&line, &mut self.destination))
            .and_then(|()| self.destination.flush());
        self.outcome(written)
    }

    fn outcome(&self, written: io::Result<()>) -> Result<OutputReader> {
        // EIO is the permanent result of writes to a closed terminal.
        let hung_up =
            |error: &io::Error| self.on_terminal && error.raw_os_error() == Some(Errno::EIO as i32);
        match written {
            Ok(()) => Ok(OutputReader::Reading),
            Err(error) if error.kind() == ErrorKind::BrokenPipe || hung_up(&error) => {
                Ok(OutputReader::Gone)
            }
            Err(error) => Err(error).context("cannot write the report"),
        }
    }
}
