//! Formats: each writes values that `report` built, and asks neither the engine nor a file.
//!
//! For: text, JSON, CSV and TSV, pages, plots, profiles, metrics and traces, of a live run and of a file.
//! May use: `report`, and `model`, `cuda` and `os`.
//! Gives: [`ReportFormat::writer`]; a module for each other format.

pub(crate) mod csv;
pub mod export;
pub mod gate;
pub mod html;
pub mod json;
pub mod metrics;
pub mod plot;
pub mod profile;
pub mod report;
pub(crate) mod tables;
pub mod text;
mod usage;

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

use gpuprobe_os::{files, terminal};
use gpuprobe_report::ReportWriter;

/// Opens the file to write to; without one, standard output.
fn output(path: Option<&Path>, colored: bool) -> Result<Box<dyn Write>> {
    let Some(path) = path else {
        return Ok(Box::new(terminal::stdout(colored)));
    };
    let file =
        files::create(path).with_context(|| format!("cannot write to {}", path.display()))?;
    Ok(Box::new(file))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Output formats of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// Text for a terminal.
    Text,
    /// JSON Lines: one object per report.
    Json,
    /// CSV: one row per live allocation, kernel, or direction of copies.
    Csv,
}

impl ReportFormat {
    /// A writer of this format; with `singles`, single copies or records are written too.
    pub fn writer(self, singles: bool) -> Box<dyn ReportWriter> {
        match self {
            Self::Text => Box::new(text::TextWriter::default()),
            Self::Json => Box::new(json::Json),
            Self::Csv => Box::new(csv::Csv {
                singles,
                header_written: false,
            }),
        }
    }

    /// Default limit on the rows per thread: a screenful for text, no limit otherwise.
    pub fn default_top(self) -> Option<usize> {
        match self {
            Self::Text => Some(10),
            Self::Json | Self::Csv => None,
        }
    }
}
