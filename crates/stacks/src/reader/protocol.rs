//! Requests to a reader and its answers: JSON, so that nothing but plain values crosses.

use serde::{Deserialize, Serialize};

/// A question. The file in question comes with it, or is known by a number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ReaderRequest {
    /// The file that comes with this has this number from now on. Not answered.
    Open(u64),
    /// The file of this number is done with. Not answered.
    Close(u64),
    /// All numbers are forgotten. Not answered.
    CloseAll,
    /// The headers of a file.
    Headers(u64),
    /// The functions of the table that a file exports, of this layer.
    Functions(u64, u16),
    /// A dynamic loader's rendezvous.
    Rendezvous(u64),
    /// How to unwind in the function at this address.
    Rules(u64, u64),
    /// The interpreter of Python in a file.
    Interpreter(u64),
    /// Where a C library keeps thread-specific values.
    Storage(u64),
    /// The mangled name of the function at this address.
    Symbol(u64, u64),
    /// Bytes of a variable.
    Variable(u64, String),
    /// The name and the checksum in a `.gnu_debuglink`.
    DebugLink(u64),
    /// The path and the build id in a `.gnu_debugaltlink`.
    AltLink(u64),
    /// The checksum of a whole file.
    Checksum(u64),
    /// The functions at an address.
    Names(WantedNames),
    /// The file that comes with this, if one does, is the perf map of a process, some of which may be
    /// known.
    PerfMap(u32),
    /// The name of what a process has made at an address.
    JitSymbol(u32, u64),
    /// A process runs another program. Not answered.
    Forget(u32),
}

/// Which names are wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WantedNames {
    /// The file that has the code.
    pub(crate) module: u64,
    /// Files with its symbols, best first.
    pub(crate) files: Vec<u64>,
    /// A file with what the debugging information of several has in common.
    pub(crate) supplement: Option<u64>,
    /// The address that it states.
    pub(crate) address: u64,
    /// Debugging information may be read.
    pub(crate) with_details: bool,
}

/// A function at some place of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolName {
    /// Name of the function, as in the file.
    pub function: String,
    /// The file that it was written in.
    pub file: Option<String>,
    /// Line in the source file; `None` if not known.
    pub line: Option<u32>,
    /// It is part of the next one.
    pub inlined: bool,
}

/// A function of the table, as it is sent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SentFunction {
    /// The row, and which of its symbols.
    pub(crate) row: u16,
    pub(crate) symbol: usize,
    pub(crate) offset: u64,
    pub(crate) first: crate::instruction::FirstInstruction,
}
