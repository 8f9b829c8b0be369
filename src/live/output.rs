//! Where reports go.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::Config;
use gpuprobe_os::files;
use gpuprobe_os::terminal;
use gpuprobe_report as report;
use gpuprobe_report::activity::lines::Line;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::{Format, Report};

/// An open destination with a writer for the format.
pub(super) struct Output {
    destination: BufWriter<Box<dyn Write>>,
    writer: Box<dyn report::Writer>,
    format: Format,
    /// The destination is the terminal, which may be closed.
    on_terminal: bool,
}

/// Whether there is anyone left to write for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Reading,
    Gone,
}

impl Output {
    /// Opens the destination, so that a bad path fails before anything is traced.
    pub(super) fn open(config: &Config) -> Result<Self> {
        let silent = config.record.as_ref().is_some_and(|record| record.only);
        let destination: Box<dyn Write> = match &config.output {
            _ if silent => Box::new(io::sink()),
            Some(path) => Box::new(
                files::create(path)
                    .with_context(|| format!("cannot write to {}", path.display()))?,
            ),
            None => terminal::stdout(),
        };
        Ok(Self {
            destination: BufWriter::new(destination),
            writer: config
                .format
                .writer(config.per_call || config.single_records),
            format: config.format,
            on_terminal: !silent && config.output.is_none() && io::stdout().is_terminal(),
        })
    }

    /// Whether the format itself shows what was lost.
    pub(super) fn shows_losses(&self) -> bool {
        self.format != Format::Csv
    }

    /// Writes a report, after the single copies that came before it.
    pub(super) fn write(&mut self, report: &Report) -> Result<Reader> {
        let written = self
            .writer
            .write(report, &mut self.destination)
            .and_then(|()| self.destination.flush());
        self.outcome(written)
    }

    /// Writes single copies.
    pub(super) fn write_copies(&mut self, copies: &[CopyReport]) -> Result<Reader> {
        let mut written = Ok(());
        for copy in copies {
            written = written.and_then(|()| self.writer.write_copy(copy, &mut self.destination));
        }
        let written = written.and_then(|()| self.destination.flush());
        self.outcome(written)
    }

    /// Writes single records of what the GPU did.
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
        // What is written to a terminal that was closed fails like this, for good.
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
