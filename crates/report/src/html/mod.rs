//! `gpuprobe report --html`: a recording as one HTML file, with its data inside.
//!
//! The page is built from `web/` and kept in `web/dist/report.html`. Its data are changes by call
//! site, kernel and copy in at most 256 bins of time, from which the page sums up any range of bins exactly. The file
//! has the same numbers as `gpuprobe report --format json --from --to`.

mod allocations;
mod bins;
mod callers;
mod document;
mod facts;
mod frames;
mod holdings;
mod map;
mod memory;
mod page;
mod run;
mod span;
mod tensor_changes;
mod tensors;
mod timelines;
mod work;

use std::path::PathBuf;

use anyhow::Result;

use crate::analysis::{Filter, diff};
use document::PageData;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_recording::Database;

/// Configuration of `gpuprobe report --html`.
#[derive(Clone, Debug)]
pub struct HtmlConfig {
    /// The recording or export.
    pub file: PathBuf,
    /// A later run to show beside it.
    pub after: Option<PathBuf>,
    /// The HTML file to write; `-` for standard output.
    pub output: PathBuf,
    /// Process and device to show; its times are not used.
    pub filter: Filter,
}

/// Writes the HTML file; `progress` shows how far reading is.
///
/// # Errors
///
/// Returns an error if a file cannot be read, has nothing of what is selected, or the output cannot be written.
pub fn run(config: &HtmlConfig, progress: &SharedProgress) -> Result<()> {
    let before = Database::open_with(&config.file, progress)?;
    let mut runs = vec![run::read(&before, &config.filter)?];
    let mut compared = None;
    if let Some(after) = &config.after {
        let after = Database::open_with(after, progress)?;
        runs.push(run::read(&after, &config.filter)?);
        compared = Some(diff::diff(&before, &after, &config.filter, true)?);
    }
    page::write(&PageData::new(runs, compared), &config.output)
}
