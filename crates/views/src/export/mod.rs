//! Implements `gpuprobe export`: converts a recording, or an Nsight Systems export, to other formats.

mod chrome;
mod pickle;
mod torch;
mod tsv;
pub use torch::write_found as write_snapshot;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{are_same, to_output};
use gpuprobe_analysis::snapshot::Snapshot;
use gpuprobe_analysis::trace_rows;
use gpuprobe_analysis::{File, Filter, NEWEST};
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::{files, say};

/// Output formats of `gpuprobe export`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// JSON trace for Chrome's tracing and Perfetto.
    #[default]
    Chrome,
    /// Memory snapshot for PyTorch's viewers, with the memory of other libraries; from a recording
    /// made with --memleak.
    Torch,
    /// Tables of memory events: valid.tsv, invalid.tsv and driver.tsv in a folder.
    Tsv,
}

/// Options of `gpuprobe export`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportConfig {
    /// A recording or Nsight Systems export [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE", default_value = NEWEST, hide_default_value = true)]
    pub file: PathBuf,

    /// Format of the output.
    #[arg(long, value_enum, default_value_t)]
    pub format: ExportFormat,

    /// Write to this file instead of standard output (`-`), packed if it ends in `.gz`; with --format tsv, into this
    /// folder.
    #[arg(short, long, value_name = "PATH", required_if_eq("format", "tsv"))]
    pub output: Option<PathBuf>,

    /// The process of a snapshot, and the events of tables.
    #[command(flatten)]
    pub filter: Filter,
}

/// Writes the trace, snapshot or tables; `progress` shows how far it is.
///
/// # Errors
///
/// Returns an error if the file cannot be read or contains nothing to show, or if the output cannot
/// be written.
pub fn run(config: &ExportConfig, progress: &SharedProgress) -> Result<()> {
    let path = config.output.as_deref();
    let path = path.filter(|path| !files::is_stdout(path));
    let input = &config.file;
    let open = || File::open(input, config.filter, progress);
    match config.format {
        ExportFormat::Chrome => {
            if config.filter.pid.is_some() {
                bail!("--pid is for --format torch and tsv: a trace includes every process");
            }
            let file = open()?;
            let about = trace_rows::about(&file)?;
            write_to(input, path, |out| chrome::write(&file, &about, out))
        }
        ExportFormat::Torch => {
            let snapshot = Snapshot::read(&open()?)?;
            write_to(input, path, |out| Ok(torch::write(&snapshot, out)?))?;
            snapshot.notes.iter().for_each(say);
            Ok(())
        }
        ExportFormat::Tsv => {
            let folder = path.context("tables are three files: name their folder with -o")?;
            tsv::write(&open()?, folder)
        }
    }
}

/// Calls `write` with the output, which must not be the input.
fn write_to(
    input: &Path,
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let Some(path) = path else {
        return to_output(None, false, write);
    };
    if are_same(input, path) {
        bail!("{} is what is to be exported", path.display());
    }
    let is_packed = path.extension().is_some_and(|extension| extension == "gz");
    to_output(Some(path), false, |out| {
        if !is_packed {
            return write(out);
        }
        let mut packed = GzEncoder::new(out, Compression::default());
        write(&mut packed)?;
        packed.finish()?;
        Ok(())
    })
}
