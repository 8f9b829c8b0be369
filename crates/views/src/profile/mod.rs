//! Memory by call stack, for profile viewers: flame graphs, folded stacks, pprof.

pub mod flamegraph;
mod folded;
pub mod pprof;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};

use super::are_same;

use gpuprobe_model::text::size;
use gpuprobe_os::files;
use gpuprobe_os::say;
use gpuprobe_report::profile::{Profile, ProfileScope};
use gpuprobe_report::words::plural;

/// Options for the output of profiles.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Call stacks", group = ArgGroup::new("profiles").multiple(true))]
pub struct ProfileConfig {
    /// Write folded stacks to FILE: `process;main;...;cudaMalloc BYTES`.
    #[arg(long, value_name = "FILE", group = "profiles")]
    pub folded: Option<PathBuf>,

    /// Draw a flame graph into FILE, an SVG.
    #[arg(long, value_name = "FILE", group = "profiles")]
    pub flamegraph: Option<PathBuf>,

    /// Write a profile for pprof to FILE, usually `*.pb.gz`.
    #[arg(long, value_name = "FILE", group = "profiles")]
    pub pprof: Option<PathBuf>,

    /// Memory that the profiles are about.
    #[command(flatten)]
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
        let wanted: [(WriteProfile, _); 3] = [
            (folded::write, &config.folded),
            (flamegraph::write, &config.flamegraph),
            (pprof::write, &config.pprof),
        ];
        let mut all = Vec::new();
        for (write, path) in wanted {
            let Some(path) = path.clone() else { continue };
            if input.is_some_and(|input| are_same(input, &path)) {
                let why = "it is the input; write to another file";
                bail!("{}: {why}", cannot_write(&path));
            }
            let file = files::create(&path).with_context(|| cannot_write(&path))?;
            all.push((write, path, file));
        }
        Ok(Self(all))
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
