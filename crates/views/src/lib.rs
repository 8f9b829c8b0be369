//! Formats: each writes values that `report` built, and asks neither the engine nor a file.
//!
//! For: text, JSON, CSV and TSV, pages, plots, profiles, metrics and traces, of a live run and of a file.
//! May use: `report`, and `model`, `cuda` and `os`.
//! Gives: [`ReportFormat::writer`]; a module for each other format.

mod classic;
pub(crate) mod csv;
pub mod export;
pub mod gate;
pub mod html;
pub mod json;
pub mod metrics;
pub mod plot;
pub mod profile;
pub mod report;
pub mod status;
pub(crate) mod tables;
pub mod text;
mod usage;

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use gpuprobe_os::{files, terminal};
use gpuprobe_report::ReportWriter;

/// Calls `write` with a file, or with standard output without one and for `-`, where a closed pipe is no error.
///
/// # Errors
/// Returns the error of `write`, or says that the output cannot be written to.
pub fn to_output(
    path: Option<&Path>,
    colored: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let path = path.filter(|path| !files::is_stdout(path));
    let name = path.map_or("standard output".into(), Path::to_string_lossy);
    let why = || format!("cannot write to {name}");
    let mut out: Box<dyn Write> = match path {
        None => Box::new(terminal::stdout(colored)),
        Some(path) => Box::new(files::create(path).with_context(why)?),
    };
    let mut out = BufWriter::with_capacity(1 << 18, &mut out);
    match write(&mut out).and_then(|()| Ok(out.flush()?)) {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        // Those of what is read say what they are about.
        Err(error) if error.chain().count() == 1 && error.is::<io::Error>() => {
            Err(error.context(why()))
        }
        done => done,
    }
}

/// Whether both are the same file, which exists.
fn are_same(one: &Path, other: &Path) -> bool {
    let file = one.canonicalize().ok();
    file.is_some() && file == other.canonicalize().ok()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Output formats of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// Text for a terminal.
    #[default]
    Text,
    /// JSON Lines: one object per report.
    Json,
    /// CSV: one row per live allocation, kernel, or direction of copies.
    Csv,
    /// The text of the first gpuprobe.
    Classic,
}

impl ReportFormat {
    /// A writer of this format; with `singles`, single copies or records are written too.
    pub fn writer(self, singles: bool) -> Box<dyn ReportWriter> {
        match self {
            Self::Text => Box::new(text::TextWriter::default()),
            Self::Classic => Box::new(classic::Classic),
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
            Self::Text | Self::Classic => Some(10),
            Self::Json | Self::Csv => None,
        }
    }
}
