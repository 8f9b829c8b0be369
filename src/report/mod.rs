//! What is printed: a report is a plain value, and there is one writer per format.
//!
//! The serialised form of [`Report`] is the documented JSON (`schema` 1): keys may be added, none
//! are renamed.

pub mod bandwidth;
mod csv;
pub mod cudatrace;
mod json;
mod memleak;
mod text;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use chrono::{DateTime, FixedOffset, Local};
use serde::{Deserialize, Serialize, Serializer};

use crate::api::Modes;
use crate::clock::{self, Clock};
use crate::discover::link::Link;
use crate::state::State;

use bandwidth::{BandwidthUtil, CopyReport};
use cudatrace::Cudatrace;

pub use text::describe_lost;
pub(crate) use text::{printable, size};

/// Events that did not reach the ledger, by consequence. Any non-zero value means that figures
/// are incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Memory calls: the ring or a map was full, or a result could not be read.
    pub memory: u64,
    /// Names and ends of processes and threads.
    pub tasks: u64,
    /// Hints that a process has mapped a new library.
    pub notices: u64,
    /// Facts about which context is on which device.
    pub contexts: u64,
    /// Children of the traced command that are not followed.
    pub children: u64,
    /// Launches that were not counted.
    pub launches: u64,
    /// Names of kernels.
    pub names: u64,
    /// Copies.
    pub copies: u64,
    /// Records that could not be decoded.
    pub undecodable: u64,
}

impl Lost {
    /// Whether anything was lost.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// The losses by the names that they have in JSON.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let named = serde_json::to_value(self).and_then(serde_json::from_value);
        named.unwrap_or_default()
    }
}

/// One report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the JSON form: 1.
    pub schema: u32,
    /// When the report was made.
    #[serde(serialize_with = "seconds")]
    pub time: DateTime<FixedOffset>,
    /// The last report of the run.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// What is missing.
    pub lost: Lost,
    /// Who holds memory, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memleak: Option<Memleak>,
    /// Which kernels are launched, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cudatrace: Option<Cudatrace>,
    /// What copies move, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_util: Option<BandwidthUtil>,
}

/// What a report shows.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What is reported.
    pub modes: Modes,
    /// Rows per thread; `None` for all.
    pub top: Option<usize>,
    /// The last report: ended processes are listed once more.
    pub is_final: bool,
    /// Time since the last report.
    pub since_last: Duration,
    /// Time since tracing began.
    pub since_start: Duration,
    /// The link between host and GPUs, if known.
    pub link: Option<Link>,
}

/// Makes a report of `state` as it is now.
pub fn build(state: &State, lost: Lost, clock: &Clock, options: &Options) -> Report {
    let modes = options.modes;
    Report {
        schema: 1,
        time: Local::now().fixed_offset(),
        is_final: options.is_final,
        lost,
        memleak: modes
            .memleak
            .then(|| memleak::build(&state.ledger, clock, options)),
        cudatrace: modes
            .cudatrace
            .then(|| cudatrace::build(&state.launches, options)),
        bandwidth_util: modes
            .bandwidth_util
            .then(|| bandwidth::build(&state.transfers, options)),
    }
}

/// Who holds memory, and what was called.
#[derive(Clone, Debug, Serialize)]
pub struct Memleak {
    /// Successful allocating calls, once each, whatever they nest.
    pub alloc_calls: u64,
    /// Successful frees of something.
    pub free_calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Frees of memory that was allocated before tracing began.
    pub unknown_frees: u64,
    /// Successful frees of a null pointer, which do nothing.
    pub null_frees: u64,
    /// Bytes allocated and not freed, over the processes listed.
    pub live_bytes: u64,
    /// Their number of allocations.
    pub live_allocations: u64,
    /// The most bytes that living processes held together.
    pub peak_bytes: u64,
    /// Successful calls of each allocating function that was called.
    #[serde(serialize_with = "as_map")]
    pub calls: Vec<(&'static str, u64)>,
    /// Processes, largest first.
    pub processes: Vec<ProcessReport>,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessReport {
    /// Process id.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name, if known.
    pub comm: Option<String>,
    /// It has ended, or runs another program now: what is listed was never freed.
    pub exited: bool,
    /// Bytes allocated and not freed.
    pub live_bytes: u64,
    /// Their number of allocations.
    pub live_allocations: u64,
    /// The most bytes that it held.
    pub peak_bytes: u64,
    /// Threads that allocated what is live, largest first.
    pub threads: Vec<ThreadReport>,
}

/// One thread.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Thread id.
    pub tid: u32,
    /// Name, if known.
    pub comm: Option<String>,
    /// Bytes that it allocated and that are live.
    pub live_bytes: u64,
    /// Their number of allocations.
    pub live_allocations: u64,
    /// The largest of them, largest first; `--top` limits their number.
    pub allocations: Vec<AllocationReport>,
    /// Allocations left out by `--top`.
    pub omitted_allocations: u64,
    /// Their bytes.
    pub omitted_bytes: u64,
}

/// One live allocation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AllocationReport {
    /// Device address, `0x...` in JSON.
    #[serde(serialize_with = "hex")]
    pub address: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Device index as CUDA numbers it for the process, if known.
    pub device: Option<u16>,
    /// Kind of memory.
    pub kind: &'static str,
    /// The function that allocated it, as the user called it.
    pub api: &'static str,
    /// When it was allocated.
    #[serde(serialize_with = "clock_micros")]
    pub time: DateTime<FixedOffset>,
}

fn hex<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}

fn seconds<S: Serializer>(t: &DateTime<FixedOffset>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&clock::rfc3339_seconds(t))
}

fn clock_micros<S: Serializer>(
    t: &DateTime<FixedOffset>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&clock::rfc3339_micros(t))
}

fn as_map<S: Serializer>(calls: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(calls.iter().copied())
}

/// Writes reports in one format.
pub trait Writer {
    /// Writes one report to `out`.
    ///
    /// # Errors
    /// Those of `out`.
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()>;

    /// Writes one copy to `out`.
    ///
    /// # Errors
    /// Those of `out`.
    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()>;
}

/// Formats that reports can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line per report.
    Json,
    /// One row per live allocation, kernel, or direction of copies.
    Csv,
}

impl Format {
    /// A writer of this format; with `per_call`, single copies are written too.
    pub fn writer(self, per_call: bool) -> Box<dyn Writer> {
        match self {
            Self::Text => Box::new(text::Text),
            Self::Json => Box::new(json::Json),
            Self::Csv => Box::new(csv::Csv {
                per_call,
                header_written: false,
            }),
        }
    }

    /// Rows per thread when the user does not say: a screenful for people, everything for
    /// programs.
    pub fn default_top(self) -> Option<usize> {
        match self {
            Self::Text => Some(10),
            Self::Json | Self::Csv => None,
        }
    }
}
