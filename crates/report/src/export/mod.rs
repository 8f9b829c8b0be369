//! `gpuprobe export`: a recording, or an Nsight Systems export, in the format of other viewers.

mod calls;
mod events;
mod memory;
mod nvtx;
mod tracks;
mod work;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use events::Events;
use gpuprobe_os::files;
use gpuprobe_os::terminal;
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Resolver, Session, gpu_rows};
use tracks::Tracks;

/// Formats of other viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Format {
    /// JSON of Chrome's tracing, which Perfetto opens, too.
    Chrome,
}

/// What `gpuprobe export` does.
#[derive(Clone, Debug)]
pub struct Config {
    /// The recording or export.
    pub file: PathBuf,
    /// For which viewer.
    pub format: Format,
    /// Where to, packed if it ends in `.gz`; `None` and `-` for standard output.
    pub output: Option<PathBuf>,
}

/// Tables of which a trace shows something.
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

/// Writes the trace.
///
/// # Errors
/// Those of the file and of the output; the file has nothing that can be shown.
pub fn run(config: &Config) -> Result<()> {
    let Format::Chrome = config.format;
    let database = Database::open(&config.file)?;
    if !SHOWN.iter().any(|table| database.has_table(table)) {
        bail!(
            "{} has no calls, no GPU work and no memory events: nothing to show over time",
            config.file.display()
        );
    }
    let session = Session::read(&database)?;
    match config
        .output
        .as_deref()
        .filter(|path| !files::is_stdout(path))
    {
        None => match chrome(&database, &session, &mut terminal::stdout()) {
            Err(error) if is_broken_pipe(&error) => Ok(()),
            done => done,
        },
        Some(path) => {
            let why = || format!("cannot write to {}", path.display());
            let file = create(&config.file, path)?;
            if path.extension().is_some_and(|extension| extension == "gz") {
                let mut packed = GzEncoder::new(file, Compression::default());
                chrome(&database, &session, &mut packed).with_context(why)?;
                packed.finish().map(|_| ()).with_context(why)
            } else {
                let mut file = file;
                chrome(&database, &session, &mut file).with_context(why)
            }
        }
    }
}

/// Opens the output, which must not be the input.
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

/// Writes a trace of Chrome's tracing, table by table: viewers put events in order themselves.
///
/// # Errors
/// Those of the file and of the output.
pub fn chrome(database: &Database, session: &Session, out: &mut dyn Write) -> Result<()> {
    let mut events = Events::begin(BufWriter::with_capacity(1 << 18, out), session)?;
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
