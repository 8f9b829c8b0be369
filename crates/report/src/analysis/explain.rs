//! Implements `gpuprobe explain` for a file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::Filter;
use super::answer::AnalysisWriter;
use super::file::Analysis;
use super::report::{AnalysisFormat, layout, of_all_sites, open};
use crate::View;
use crate::explain::Explain;
use gpuprobe_os::color::ColorChoice;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_recording::Database;

/// Options of `gpuprobe explain FILE`.
#[derive(Clone, Debug)]
pub struct ExplainFileConfig {
    /// The recording or export.
    pub file: PathBuf,
    /// Filter on the events of the file.
    pub filter: Filter,
    /// Write JSON instead of text.
    pub json: bool,
    /// Output file; `None` and `-` for standard output.
    pub output: Option<PathBuf>,
    /// When text has colours.
    pub color: ColorChoice,
}

/// Explains the memory events of a file; `progress` shows how far reading is.
///
/// # Errors
///
/// Returns an error if the file cannot be read or has no memory events, or if the output cannot be
/// written.
pub fn run(config: &ExplainFileConfig, progress: &SharedProgress) -> Result<Explain> {
    let view = View::default();
    let database = Database::open_with(&config.file, progress)?;
    let mut report = of_all_sites(&database, &config.filter, view, Analysis::Explain)?;
    report.explain = Explain::of(&report);
    let layout = layout(config.output.as_deref(), config.color);
    let mut out = open(config.output.as_deref(), layout)?;
    let writer = AnalysisWriter {
        format: match config.json {
            true => AnalysisFormat::Json,
            false => AnalysisFormat::Text,
        },
        top: usize::MAX,
        layout,
        view,
        host: false,
    };
    writer.question(Analysis::Explain, &report, &mut *out)?;
    out.flush().context("cannot write the report")?;
    report.explain.context("the file has no memory events")
}
