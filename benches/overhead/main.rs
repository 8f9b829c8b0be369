//! Overhead of tracing on the stand-in CUDA libraries: `sudo cargo bench --package gpuprobe-benches --bench overhead`.
//!
//! Compared variants alternate within one run, and ratios are reported, because absolute times
//! depend on the machine. Prints a table, and a line of JSON at the end. `-- --quick` runs a small
//! version; `-- NAME...` measures only the named parts of `pairs`, `layer`, `bystanders`,
//! `stacks`, `launches`, `copies`, `load`, `memory`.
//!
//! `-- hold PID MODE...` attaches empty programs to the functions that these of `--memleak`,
//! `--cudatrace` and `--bandwidth-util` probe in a running process, prints a line when done, and
//! detaches them when its input ends.

#![allow(missing_docs, clippy::print_stdout)]

mod bpftrace;
mod calls;
mod floor;
#[path = "../gpuprobe.rs"]
mod gpuprobe;
mod load;
mod programs;

use std::path::PathBuf;

use ::gpuprobe::host::{LibraryRole, process};
use anyhow::{Result, bail};
use floor::{Floor, FloorKind};
use gpuprobe_cuda::Layer;

/// Configuration and results of a run.
pub(crate) struct Bench {
    /// Directory of the stand-in libraries and the workloads.
    pub(crate) standin: PathBuf,
    pub(crate) libraries: [(PathBuf, Layer); 2],
    pub(crate) rounds: usize,
    /// Number of calls per round.
    pub(crate) calls: u64,
    /// Duration of a paced run.
    pub(crate) seconds: f64,
    /// Number of live allocations.
    pub(crate) live: u64,
    figures: serde_json::Map<String, serde_json::Value>,
}

impl Bench {
    fn new(is_quick: bool) -> Result<Self> {
        let standin = programs::build_standin()?;
        let (rounds, calls, seconds, live) = if is_quick {
            (3, 20_000, 3.0, 50_000)
        } else {
            (7, 200_000, 12.0, 1_000_000)
        };
        Ok(Self {
            libraries: [
                (standin.join("libcudart.so.12"), Layer::Runtime),
                (standin.join("libcuda.so.1"), Layer::Driver),
            ],
            standin,
            rounds,
            calls,
            seconds,
            live,
            figures: serde_json::Map::new(),
        })
    }

    pub(crate) fn workload(&self) -> PathBuf {
        self.standin.join("workload")
    }

    /// Adds a figure to the results.
    pub(crate) fn figure(&mut self, name: &str, value: f64, goal: &str) {
        println!("{name:<56} {value:>12.3}   {goal}");
        self.figures
            .insert(name.to_owned(), serde_json::json!(value));
    }
}

type Part = fn(&mut Bench) -> Result<()>;

const PARTS: [(&str, Part); 8] = [
    ("pairs", calls::measure_pairs),
    ("layer", calls::measure_one_layer),
    ("bystanders", calls::measure_bystanders),
    ("stacks", calls::measure_stacks),
    ("launches", calls::measure_launches),
    ("copies", calls::measure_copies),
    ("load", load::measure_load),
    ("memory", load::measure_memory),
];

/// What each mode probes.
const MODES: [(&str, FloorKind); 4] = [
    ("--memleak", FloorKind::Session),
    ("--memleak", FloorKind::Hooks),
    ("--cudatrace", FloorKind::Launches),
    ("--bandwidth-util", FloorKind::Copies),
];

/// Keeps the empty programs of `modes` attached to process `pid` until input ends.
fn hold(pid: u32, modes: &[String]) -> Result<()> {
    let mapped = process::mapped(pid)?;
    let libraries: Vec<_> = mapped
        .iter()
        .filter_map(|library| match library.role {
            LibraryRole::Cuda(layer) => Some((library.path.as_path(), layer)),
            LibraryRole::Library => Some((library.path.as_path(), Layer::Library)),
            LibraryRole::Framework => Some((library.path.as_path(), Layer::Framework)),
            LibraryRole::Requests | LibraryRole::Loader => None,
        })
        .collect();
    let floors: Result<Vec<_>> = MODES
        .iter()
        .filter(|(mode, _)| modes.iter().any(|wanted| wanted == mode))
        .map(|(_, kind)| Floor::attach(*kind, &libraries, pid))
        .collect();
    let _floors = floors?;
    println!("attached");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn main() -> Result<()> {
    let (options, names): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|a| a.starts_with("--"));
    if let [hold_it, pid] = &names[..]
        && hold_it == "hold"
    {
        return hold(pid.parse()?, &options);
    }
    for name in &names {
        if PARTS.iter().all(|(part, _)| part != name) {
            bail!("no part is named {name}");
        }
    }
    let mut bench = Bench::new(options.iter().any(|option| option == "--quick"))?;
    println!("{:<56} {:>12}   goal", "figure", "value");
    for (name, part) in PARTS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            part(&mut bench)?;
        }
    }
    println!("{}", serde_json::Value::Object(bench.figures));
    Ok(())
}
