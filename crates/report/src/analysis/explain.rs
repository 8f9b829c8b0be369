//! `gpuprobe explain` of a file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::answer::Answer;
use super::file::{File, Question};
use super::report::{Format, open};
use super::{Selection, present};
use crate::View;
use crate::explain::Explain;
use gpuprobe_os::terminal;
use gpuprobe_recording::{Database, Session};

/// What `gpuprobe explain FILE` does.
#[derive(Clone, Debug)]
pub struct Config {
    /// The recording or export.
    pub file: PathBuf,
    /// What of it is looked at.
    pub selection: Selection,
    /// Write JSON instead of text.
    pub json: bool,
    /// Where to; `None` and `-` for standard output.
    pub output: Option<PathBuf>,
}

/// Says what the memory events of a file mean.
///
/// # Errors
/// The file cannot be read or has no memory events, or the output not be written.
pub fn run(config: &Config) -> Result<Explain> {
    let database = Database::open(&config.file)?;
    present::check(&database, &config.selection, true)?;
    let session = Session::read(&database)?;
    let file = File {
        database: &database,
        session: &session,
        selection: &config.selection,
        view: View::default(),
        top: None,
        allocations: false,
    };
    let mut report = file.report(Question::Explain)?;
    report.explain = Explain::of(&report);
    let (mut out, _) = open(config.output.as_deref())?;
    let writer = Answer {
        format: match config.json {
            true => Format::Json,
            false => Format::Text,
        },
        top: usize::MAX,
        width: match config.output {
            Some(_) => terminal::columns(),
            None => terminal::width(),
        },
        view: file.view,
        host: false,
    };
    writer.question(Question::Explain, &report, &mut *out)?;
    out.flush().context("cannot write the report")?;
    report.explain.context("the file has no memory events")
}
