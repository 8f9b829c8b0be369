//! Implements `gpuprobe export`: converts a recording, or an Nsight Systems export, to other formats.

mod chrome;
mod pickle;
mod torch;
mod tsv;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::is_broken_pipe;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::{files, say, terminal};
use gpuprobe_report::analysis::{File, Filter};
use gpuprobe_report::snapshot::Snapshot;
use gpuprobe_report::trace_rows;

/// Output formats of `gpuprobe export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// JSON trace for Chrome's tracing and Perfetto.
    Chrome,
    /// Memory snapshot for PyTorch's viewers, with the memory of other libraries; from a recording
    /// made with --memleak.
    Torch,
    /// Tables of memory events: valid.tsv, invalid.tsv and driver.tsv in a folder.
    Tsv,
}

/// Options of `gpuprobe export`.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// The recording or export.
    pub file: PathBuf,
    /// Format of the output.
    pub format: ExportFormat,
    /// Output file, compressed if it ends in `.gz`; `None` and `-` for standard output. The folder of tables.
    pub output: Option<PathBuf>,
    /// The process of a snapshot, and the events of tables.
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
            to_output(input, path, |out| chrome::write(&file, &about, out))
        }
        ExportFormat::Torch => {
            if path.is_none() && io::stdout().is_terminal() {
                bail!(
                    "cannot write a snapshot to a terminal: it is binary; write it to a file with -o"
                );
            }
            let snapshot = Snapshot::read(&open()?)?;
            to_output(input, path, |out| Ok(torch::write(&snapshot, out)?))?;
            snapshot.notes.iter().for_each(say);
            Ok(())
        }
        ExportFormat::Tsv => {
            let folder = path.context("tables are three files: name their folder with -o")?;
            tsv::write(&open()?, folder)
        }
    }
}

/// Opens the output, which must not be the input, and calls `write`. A closed pipe is not an error.
fn to_output(
    input: &Path,
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let Some(path) = path else {
        return match write(&mut terminal::stdout(false)) {
            Err(error) if is_broken_pipe(&error) => Ok(()),
            done => done,
        };
    };
    let why = || format!("cannot write to {}", path.display());
    if path.canonicalize().ok() == Some(input.canonicalize()?) {
        bail!("{} is what is to be exported", path.display());
    }
    let mut file = files::create(path).with_context(why)?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut packed = GzEncoder::new(file, Compression::default());
        write(&mut packed).with_context(why)?;
        packed.finish().with_context(why)?;
        Ok(())
    } else {
        write(&mut file).with_context(why)
    }
}
