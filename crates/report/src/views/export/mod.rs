//! Implements `gpuprobe export`: converts a recording, or an Nsight Systems export, to other formats.

mod calls;
mod events;
mod memory;
mod nvtx;
mod pickle;
mod torch;
mod tracks;
mod tsv;
mod work;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::analysis::Filter;
use crate::snapshot::Snapshot;
use events::ChromeEventWriter;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::{files, say, terminal};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Resolver, Session, gpu_rows};
use tracks::Tracks;

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

/// Tables shown in a trace.
const SHOWN: [&str; 8] = [
    calls::CALLS,
    gpu_rows::KERNELS.name,
    gpu_rows::COPIES.name,
    gpu_rows::SETS.name,
    gpu_rows::GRAPHS.name,
    MEMORY,
    nvtx::NVTX,
    calls::OVERHEAD,
];

/// Writes the trace, snapshot or tables; `progress` shows how far it is.
///
/// # Errors
///
/// Returns an error if the file cannot be read or contains nothing to show, or if the output cannot
/// be written.
pub fn run(config: &ExportConfig, progress: &SharedProgress) -> Result<()> {
    match config.format {
        ExportFormat::Chrome => {
            if config.filter.pid.is_some() {
                bail!("--pid is for --format torch and tsv: a trace includes every process");
            }
            let database = Database::open_with(&config.file, progress)?;
            if !SHOWN.iter().any(|table| database.has_table(table)) {
                bail!(
                    "{} has no calls, no GPU work and no memory events: nothing to show over time",
                    config.file.display()
                );
            }
            let session = Session::read(&database)?;
            to_output(config, |out| chrome(&database, &session, out))
        }
        ExportFormat::Torch => {
            let is_file = config
                .output
                .as_deref()
                .is_some_and(|path| !files::is_stdout(path));
            if !is_file && io::stdout().is_terminal() {
                bail!(
                    "cannot write a snapshot to a terminal: it is binary; write it to a file with -o"
                );
            }
            let snapshot = Snapshot::read(&config.file, config.filter.pid, progress)?;
            to_output(config, |out| Ok(torch::write(&snapshot, out)?))?;
            snapshot.notes.iter().for_each(say);
            Ok(())
        }
        ExportFormat::Tsv => {
            let folder = config.output.as_deref();
            let folder = folder.filter(|path| !files::is_stdout(path));
            let folder = folder.context("tables are three files: name their folder with -o")?;
            let database = Database::open_with(&config.file, progress)?;
            tsv::write(&database, &config.filter, folder)
        }
    }
}

/// Opens the output and calls `write`. A closed pipe is not an error.
fn to_output<T: Default>(
    config: &ExportConfig,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let path = config.output.as_deref();
    let Some(path) = path.filter(|path| !files::is_stdout(path)) else {
        return match write(&mut terminal::stdout(false)) {
            Err(error) if is_broken_pipe(&error) => Ok(T::default()),
            done => done,
        };
    };
    let why = || format!("cannot write to {}", path.display());
    let mut file = create(&config.file, path)?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut packed = GzEncoder::new(file, Compression::default());
        let done = write(&mut packed).with_context(why)?;
        packed.finish().with_context(why)?;
        Ok(done)
    } else {
        write(&mut file).with_context(why)
    }
}

/// Creates the output, which must not be the input.
fn create(input: &Path, output: &Path) -> Result<File> {
    let same = |path: &Path| path.canonicalize().ok();
    if same(output).is_some_and(|output| same(input) == Some(output)) {
        bail!("{} is what is to be exported", output.display());
    }
    files::create(output).with_context(|| format!("cannot write to {}", output.display()))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Writes a trace for Chrome's tracing, table by table: viewers sort the events.
pub fn chrome(database: &Database, session: &Session, out: &mut dyn Write) -> Result<()> {
    let mut events = ChromeEventWriter::begin(BufWriter::with_capacity(1 << 18, out), session)?;
    let mut tracks = Tracks::new(database, session)?;
    let resolver = Resolver::new(database)?;
    calls::calls(database, &resolver, &mut tracks, &mut events)?;
    calls::overhead(database, &resolver, &mut tracks, &mut events)?;
    work::work(database, &resolver, &mut tracks, &mut events)?;
    nvtx::nvtx(database, &resolver, &mut tracks, &mut events)?;
    memory::memory(database, &mut tracks, &mut events)?;
    tracks.describe(&mut events)?;
    events.finish()
}
