//! Destination of the reports.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::screen::Screen;
use super::{Config, Target};
use gpuprobe_os::files;
use gpuprobe_os::terminal;
use gpuprobe_report as report;
use gpuprobe_report::activity::lines::Line;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::{Format, Report};

/// An open destination, with the writer of the format.
pub(super) struct Output {
    destination: BufWriter<Box<dyn Write>>,
    writer: Box<dyn report::Writer>,
    format: Format,
    /// The destination is a terminal, which may be closed.
    on_terminal: bool,
    /// Set if a report replaces the last one on the screen.
    screen: Option<Screen>,
    /// Width of a line, if given by the user.
    columns: Option<usize>,
    place: Place,
}

/// Whether the destination is still read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Reading,
    Gone,
}

/// Where the reports are written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// No reports: only a recording is made.
    Nowhere,
    Stdout,
    Stderr,
    File(PathBuf),
}

impl Place {
    /// The destination of the reports of a run. With a command, standard output is the command's, so
    /// reports go to standard error.
    fn of(config: &Config) -> Self {
        if config.record.as_ref().is_some_and(|record| record.only) {
            return Self::Nowhere;
        }
        match (&config.output, &config.target) {
            (Some(path), _) if files::is_stdout(path) => Self::Stdout,
            (Some(path), _) => Self::File(path.clone()),
            (None, Target::Command(_)) => Self::Stderr,
            (None, _) => Self::Stdout,
        }
    }
}

/// Whether a report replaces the last: on a terminal to which nothing else is written.
fn redraws(config: &Config, place: &Place) -> bool {
    let alone = !matches!(config.target, Target::Command(_));
    let only_reports = !config.per_call && !config.single_records && !config.scroll;
    let is_text = config.format == Format::Text;
    *place == Place::Stdout && alone && only_reports && is_text && Screen::is_possible()
}

impl Output {
    /// Opens the destination, so that a bad path fails before anything is traced.
    pub(super) fn open(config: &Config) -> Result<Self> {
        let place = Place::of(config);
        let (destination, on_terminal): (Box<dyn Write>, _) = match &place {
            Place::Nowhere => (Box::new(io::sink()), false),
            Place::Stdout => (terminal::stdout(), io::stdout().is_terminal()),
            Place::Stderr => (terminal::stderr(), io::stderr().is_terminal()),
            Place::File(path) => {
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
            columns: terminal::columns(),
            place,
        })
    }

    /// Whether the format includes lost events.
    pub(super) fn shows_losses(&self) -> bool {
        self.format != Format::Csv
    }

    /// Writes a report. Pending single copies are written before it.
    pub(super) fn write(&mut self, report: &Report) -> Result<Reader> {
        let size = match self.place {
            Place::Stdout => terminal::size(io::stdout()),
            Place::Stderr => terminal::size(io::stderr()),
            Place::Nowhere | Place::File(_) => None,
        };
        let columns = size.map(|(columns, _)| columns);
        self.writer.resize(self.columns.or(columns));
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

    /// Writes copies, a line for each.
    pub(super) fn write_copies(&mut self, copies: &[CopyReport]) -> Result<Reader> {
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
        mut lines: impl Iterator<Item = Line<'a>>,
    ) -> Result<Reader> {
        let written = lines
            .try_for_each(|line| self.writer.write_activity(&line, &mut self.destination))
            .and_then(|()| self.destination.flush());
        self.outcome(written)
    }

    fn outcome(&self, written: io::Result<()>) -> Result<Reader> {
        // EIO is the permanent result of writes to a closed terminal.
        let hung_up =
            |error: &io::Error| self.on_terminal && error.raw_os_error() == Some(Errno::EIO as i32);
        match written {
            Ok(()) => Ok(Reader::Reading),
            Err(error) if error.kind() == ErrorKind::BrokenPipe || hung_up(&error) => {
                Ok(Reader::Gone)
            }
            Err(error) => Err(error).context("cannot write the report"),
        }
    }
}
