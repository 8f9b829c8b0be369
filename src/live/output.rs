//! Destination of the reports.

use std::io::{self, BufWriter, ErrorKind, Write};

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::screen::Screen;
use super::sink::Sink;
use super::{Target, TraceConfig};
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_os::color::ColorOption;
use gpuprobe_os::terminal::{self, Layout, StandardStream};
use gpuprobe_os::{files, say};
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::{Report, ReportWriter, records, words};
use gpuprobe_views::{ReportFormat, text};

/// An open destination, with the writer of the format.
pub(super) struct Output {
    destination: BufWriter<Box<dyn Write>>,
    /// `None` if no reports are written: a recording, documents or screens take their place.
    writer: Option<Box<dyn ReportWriter>>,
    /// The stream that is written to, which may be a terminal.
    stream: Option<StandardStream>,
    is_terminal: bool,
    /// Set if a report replaces the last one on the screen.
    screen: Option<Screen>,
    is_text: bool,
    color: ColorOption,
    full_names: bool,
    verbose: bool,
    /// The last report had nothing, in text.
    is_idle: bool,
    /// The losses printed on standard error, if the format has no place for them.
    lost_said: Option<Lost>,
    /// Nobody reads what is written any more.
    pub(super) is_closed: bool,
}

impl Output {
    /// Opens the destination, so that a bad path fails before anything is traced. With a command, standard output is
    /// the command's, so reports go to standard error.
    pub(super) fn open(config: &TraceConfig) -> Result<Self> {
        let is_recorded_only = config.record.as_ref().is_some_and(|record| record.only);
        let is_on_screens = config.screens.is_some() && config.output.is_none();
        let is_written = !is_recorded_only && config.serve.is_none() && !is_on_screens;
        let is_command = matches!(config.target, Target::Command(_));
        let single_lines = config.per_call || config.single_records;
        let stream = match &config.output {
            _ if !is_written => None,
            Some(path) => files::is_stdout(path).then_some(StandardStream::Stdout),
            None if is_command => Some(StandardStream::Stderr),
            None => Some(StandardStream::Stdout),
        };
        let colored = Layout::of(stream, config.color, false).colored;
        let destination: Box<dyn Write> = match (stream, &config.output) {
            (Some(StandardStream::Stdout), _) => terminal::stdout(colored),
            (Some(StandardStream::Stderr), _) => terminal::stderr(colored),
            (None, Some(path)) if is_written => {
                let file = files::create(path);
                Box::new(file.with_context(|| format!("cannot write to {}", path.display()))?)
            }
            (None, _) => Box::new(io::sink()),
        };
        let (is_terminal, _) = stream.map(StandardStream::look).unwrap_or_default();
        // On a terminal to which nothing else is written.
        let redraws = stream == Some(StandardStream::Stdout)
            && !is_command
            && !single_lines
            && config.format == ReportFormat::Text
            && Screen::is_possible();
        Ok(Self {
            destination: BufWriter::new(destination),
            writer: is_written.then(|| config.format.writer(single_lines)),
            stream,
            is_terminal,
            screen: redraws.then(Screen::default),
            is_text: config.format == ReportFormat::Text,
            color: config.color,
            full_names: config.view.full_names,
            verbose: config.view.verbose,
            is_idle: false,
            lost_said: (config.format == ReportFormat::Csv).then(Lost::default),
            is_closed: false,
        })
    }

    /// Writes a report.
    pub(super) fn write(&mut self, report: &Report) -> Result<()> {
        if let Some(said) = &mut self.lost_said
            && *said != report.lost
        {
            *said = report.lost;
            say_lost(report);
        }
        // A second one says no more, where it does not take the place of the first.
        let is_idle = self.is_text && self.screen.is_none() && text::is_empty(report);
        if std::mem::replace(&mut self.is_idle, is_idle) && is_idle {
            return Ok(());
        }
        let mut screen = self.screen.take();
        let written = self.with_writer(|writer, out| match &mut screen {
            Some(screen) => {
                let mut text = Vec::new();
                writer.write(report, &mut text)?;
                let drawn = screen.draw(&String::from_utf8_lossy(&text), report.is_final)?;
                out.write_all(drawn.as_bytes())
            }
            None => writer.write(report, out),
        });
        self.screen = screen;
        written
    }

    /// Writes the GPU records and copies that are written one by one, a line for each.
    pub(super) fn write_lines(&mut self, sink: &mut Sink, clock: &WallClock) -> Result<()> {
        let new = sink.records.as_mut().map(std::mem::take);
        let new = records::in_order(new.unwrap_or_default());
        let copies = sink.copies.as_mut().map(std::mem::take).unwrap_or_default();
        if new.is_empty() && copies.is_empty() {
            return Ok(());
        }
        self.with_writer(|writer, out| {
            for record in &new {
                let line = records::line(record, &sink.state.activity, clock.monotonic_ns());
                writer.write_activity(&line, out)?;
            }
            for copy in &copies {
                writer.write_copy(&CopyReport::of(copy, clock), out)?;
            }
            Ok(())
        })
    }

    /// Writes lines laid out for the output as it is now: a terminal may have been resized.
    fn with_writer(
        &mut self,
        write: impl FnOnce(&mut dyn ReportWriter, &mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let Some(writer) = self.writer.as_mut().filter(|_| !self.is_closed) else {
            return Ok(());
        };
        writer.lay_out(Layout {
            verbose: self.verbose,
            ..Layout::of(self.stream, self.color, self.full_names)
        });
        let out = &mut self.destination;
        // EIO is the permanent result of writes to a closed terminal.
        let hung_up =
            |error: &io::Error| self.is_terminal && error.raw_os_error() == Some(Errno::EIO as i32);
        match write(&mut **writer, out).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe || hung_up(&error) => {
                self.is_closed = true;
                Ok(())
            }
            written => written.context("cannot write the report"),
        }
    }
}

/// Says what was lost, and of whom.
pub(super) fn say_lost(report: &Report) {
    let lost = words::describe_lost(&report.lost);
    let losers = text::describe_losers(&report.lost_by_user).join("; ");
    let colon = if losers.is_empty() { "" } else { ": " };
    say(format_args!("lost events: {lost}{colon}{losers}"));
}
