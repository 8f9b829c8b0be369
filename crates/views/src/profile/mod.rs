//! Memory by call stack, for profile viewers: flame graphs, folded stacks, pprof.

pub mod flamegraph;
mod folded;
pub mod pprof;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use gpuprobe_model::text::size;
use gpuprobe_os::files;
use gpuprobe_os::say;
use gpuprobe_report::profile::{Profile, ProfileScope};
use gpuprobe_report::words::plural;

/// Options for the output of profiles.
#[derive(Clone, Debug, Default)]
pub struct ProfileConfig {
    /// File for folded stacks.
    pub folded: Option<PathBuf>,
    /// File for a flame graph.
    pub flamegraph: Option<PathBuf>,
    /// File for a pprof profile.
    pub pprof: Option<PathBuf>,
    /// Memory that the profiles are about.
    pub scope: ProfileScope,
}

/// Writes a profile in one format.
type WriteProfile = fn(&Profile, &mut dyn Write) -> Result<()>;

/// The open output files.
#[derive(Debug)]
pub struct Outputs(Vec<(WriteProfile, PathBuf, File)>);

impl Outputs {
    /// Opens the files, so that a bad path fails before anything else is done.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written, or if it is `input`.
    pub fn open(config: &ProfileConfig, input: Option<&Path>) -> Result<Self> {
        let input = input.and_then(|path| path.canonicalize().ok());
        let wanted: [(WriteProfile, _); 3] = [
            (folded::write, &config.folded),
            (flamegraph::write, &config.flamegraph),
            (pprof::write, &config.pprof),
        ];
        let wanted = wanted.into_iter();
        let open = |(write, path): (_, &Option<PathBuf>)| {
            let path = path.clone()?;
            if input.is_some() && path.canonicalize().ok() == input {
                let why = "it is the input; write to another file";
                return Some(Err(anyhow!("{}: {why}", cannot_write(&path))));
            }
            let file = files::create(&path).with_context(|| cannot_write(&path));
            Some(file.map(|file| (write, path, file)))
        };
        wanted.filter_map(open).collect::<Result<_>>().map(Self)
    }

    /// Whether any file is open.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Writes `profile` into all files, and prints a summary of each.
    pub fn write(self, profile: &Profile) -> Result<()> {
        let bytes = size(profile.sum.bytes);
        let allocations = plural(profile.sum.allocations, "allocation");
        let left_out = match profile.left_out.join(", ") {
            nothing if nothing.is_empty() => nothing,
            what => format!("; not in it: {what}"),
        };
        let weight = profile.weight.describe();
        for (write, path, file) in self.0 {
            let mut out = BufWriter::new(file);
            write(profile, &mut out)
                .and_then(|()| out.flush().map_err(Into::into))
                .with_context(|| cannot_write(&path))?;
            let path = path.display();
            say(format_args!(
                "{path}: {bytes} {weight}, in {allocations}{left_out}"
            ));
        }
        Ok(())
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write to {}", path.display())
}
