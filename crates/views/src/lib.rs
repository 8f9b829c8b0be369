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

use gpuprobe_report::ReportWriter;

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
