//! `gpuprobe export`: a recording, or an Nsight Systems export, in the formats of other viewers.

mod calls;
mod events;
mod memory;
mod nvtx;
mod torch;
mod tracks;
mod work;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use events::Events;
use gpuprobe_os::{files, say, terminal};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Resolver, Session, gpu_rows};
use tracks::Tracks;

/// Formats of other viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Format {
    /// JSON of Chrome's tracing, which Perfetto opens, too.
    Chrome,
    /// A memory snapshot for PyTorch's viewers, with memory that is not PyTorch's in it: of a recording
    /// with --memleak.
    Torch,
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
    /// Of which process, where the format is about one.
    pub pid: Option<u32>,
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

/// Writes the trace or snapshot.
///
/// # Errors
/// Those of the file and of the output; the file has nothing that can be shown.
pub fn run(config: &Config) -> Result<()> {
    match config.format {
        Format::Chrome => {
            if config.pid.is_some() {
                bail!("a trace has every process in it: --pid is for --format torch");
            }
            let database = Database::open(&config.file)?;
            if !SHOWN.iter().any(|table| database.has_table(table)) {
                bail!(
                    "{} has no calls, no GPU work and no memory events: nothing to show over time",
                    config.file.display()
                );
            }
            let session = Session::read(&database)?;
            to_output(config, |out| chrome(&database, &session, out))
        }
        Format::Torch => {
            let is_file = config
                .output
                .as_deref()
                .is_some_and(|path| !files::is_stdout(path));
            if !is_file && io::stdout().is_terminal() {
                bail!("a snapshot is nothing to read on a terminal: write it to a file, with -o");
            }
            let subject = torch::find(&config.file, config.pid)?;
            let said = to_output(config, |out| subject.write(out))?;
            said.iter().for_each(say);
            Ok(())
        }
    }
}

/// Opens the output and has it written. Where nobody reads it to its end, there is nothing to say.
fn to_output<T: Default>(
    config: &Config,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let path = config.output.as_deref();
    let Some(path) = path.filter(|path| !files::is_stdout(path)) else {
        return match write(&mut terminal::stdout()) {
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
