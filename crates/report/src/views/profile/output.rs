//! Output files of profiles.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Profile, ProfiledMemory, Weight, flamegraph, folded, pprof};
use crate::words::plural;
use gpuprobe_model::text::size;
use gpuprobe_os::files;
use gpuprobe_os::say;

/// Options for the output of profiles.
#[derive(Clone, Debug, Default)]
pub struct ProfileConfig {
    /// File for folded stacks.
    pub folded: Option<PathBuf>,
    /// File for a flame graph.
    pub flamegraph: Option<PathBuf>,
    /// File for a pprof profile.
    pub pprof: Option<PathBuf>,
    /// Quantity shown as the width of a frame.
    pub weight: Weight,
    /// Show CUDA's own frames, too.
    pub full_stacks: bool,
    /// Memory that the profiles are about.
    pub of: ProfiledMemory,
}

impl ProfileConfig {
    /// Whether any file is to be written.
    pub fn any(&self) -> bool {
        self.folded.is_some() || self.flamegraph.is_some() || self.pprof.is_some()
    }
}

/// Writes a profile in one format.
type WriteProfile = fn(&Profile, Weight, &mut dyn Write) -> Result<()>;

/// The open output files.
#[derive(Debug)]
pub struct Outputs {
    files: Vec<(WriteProfile, PathBuf, File)>,
    weight: Weight,
}

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
        let mut files = Vec::new();
        for (write, path) in wanted {
            if let Some(path) = path {
                if input.is_some() && path.canonicalize().ok() == input {
                    bail!(
                        "cannot write to {}: it is the input; write to another file",
                        path.display()
                    );
                }
                let why = || format!("cannot write to {}", path.display());
                files.push((write, path.clone(), files::create(path).with_context(why)?));
            }
        }
        Ok(Self {
            files,
            weight: config.weight,
        })
    }

    /// Whether any file is open.
    pub fn any(&self) -> bool {
        !self.files.is_empty()
    }

    /// Writes `profile` into all files, and prints a summary of each.
    pub fn write(self, profile: &Profile) -> Result<()> {
        let weight = self.weight;
        let sum = profile.sum(weight);
        let left_out = match profile.left_out.join(", ") {
            nothing if nothing.is_empty() => nothing,
            what => format!("; not in it: {what}"),
        };
        for (write, path, file) in self.files {
            let mut out = BufWriter::new(file);
            write(profile, weight, &mut out)
                .and_then(|()| out.flush().map_err(Into::into))
                .with_context(|| format!("cannot write to {}", path.display()))?;
            say(format_args!(
                "{}: {} {}, in {}{left_out}",
                path.display(),
                size(sum.bytes),
                weight.describe(),
                plural(sum.allocations, "allocation")
            ));
        }
        Ok(())
    }
}
