//! Names of functions in a process's memory.

mod debug_file;
mod guard;
mod links;
mod perf_map;
mod resolve;
mod service;
mod source;
mod sources;
mod vet;

use std::fs::File;
use std::sync::Arc;

use crate::Module;
use gpuprobe_model::stack::{Frame, Location};

pub use perf_map::open_perf_map;
pub use resolve::Symbolizer;
#[doc(hidden)]
pub use resolve::try_symbols;
pub use service::Service;
pub use source::Files;
pub(super) use sources::AllSources;

/// A location whose functions are wanted: plain numbers, which can cross a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The process.
    pub pid: u32,
    /// The location in it.
    pub location: Location,
    /// It is the first of its stack. Others are where a call returns to, which may be the beginning
    /// of another function or line.
    pub is_innermost: bool,
}

/// The functions at a location: numbers and text, which can cross a pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The location that was asked about.
    pub request: Request,
    /// Innermost first; never empty.
    pub frames: Vec<Frame>,
}

/// Names functions. Everything that a traced program can shape is read behind this, so that a
/// process without capabilities can take the place of [`Symbolizer`]: requests and answers are
/// plain values, and of a module it needs the id, the path, the process, and the open file, which
/// is passed as a descriptor.
pub trait Symbolize {
    /// Makes a module known that the next request names.
    fn open(&mut self, module: &Arc<Module>);

    /// The functions at the requested location.
    fn answer(&mut self, request: Request) -> Answer;

    /// Takes the file in which process `pid` writes down what its runtime has made, which is open
    /// ([`open_perf_map`]): it can be read when the process has ended.
    fn keep_perf_map(&mut self, pid: u32, file: File);

    /// The process runs another program or has ended: names of code that it has made at run time
    /// are dropped.
    fn forget(&mut self, pid: u32);
}
