//! Requests to the helpers, and their answers: values in postcard's encoding.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A question. Each is answered by a value, but for those of which this is said. The file in question comes with
/// it, or is known by a number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The file that comes with this has this number from now on. Not answered.
    Open(u64),
    /// The file of this number is done with. Not answered.
    Close(u64),
    /// All files are. Not answered.
    CloseAll,
    /// The headers of a file: `Result<Headers, Refusal>`.
    Headers(u64),
    /// The functions of the table that a file exports: `Result<Vec<FunctionInFile>, String>`.
    Functions(u64),
    /// A dynamic loader's rendezvous: `Result<Option<Rendezvous>, String>`.
    Rendezvous(u64),
    /// How to unwind in the function at this address: `Option<FunctionRules>`.
    Rules(u64, u64),
    /// The interpreter of Python in a file: `Option<Interpreter>`.
    Interpreter(u64),
    /// The mangled name of the function at this address: `Option<String>`.
    Symbol(u64, u64),
    /// Bytes of a variable: `Option<u64>`.
    Variable(u64, String),
    /// The links to files with debugging information: `DebugLinks`.
    Links(u64),
    /// The checksum of a whole file: `u32`.
    Checksum(u64),
    /// The functions at an address: `Option<Vec<SymbolName>>`.
    Names(WantedNames),
    /// The name at an address in a perf map: `Option<String>`.
    JitSymbol(u64, u64),
    /// The beginning of the command line of a process, these variables, and which of these GPUs have device nodes:
    /// `InspectedProcess`.
    Process {
        pid: u32,
        variables: Vec<String>,
        gpus: Vec<u32>,
    },
    /// Memory of a process: the bytes.
    Memory {
        pid: u32,
        address: u64,
        size_bytes: usize,
    },
    /// A file: `()`, with the file if it could be opened.
    File(Wanted),
}

/// Which names are wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WantedNames {
    /// The file that has the code.
    pub(crate) module: u64,
    /// A file that has its symbols, too, and better ones.
    pub(crate) debug: Option<u64>,
    /// A file with what the debugging information of several has in common.
    pub(crate) supplement: Option<u64>,
    /// The address that it states.
    pub(crate) address: u64,
    /// Debugging information may be read.
    pub(crate) with_details: bool,
}

/// A file that is wanted. It is opened only if it is a regular one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Wanted {
    /// The map that process `pid` has written for `perf`.
    PerfMap(u32),
    /// At a path of ours, or in the root of a process, if one is named, which user may read.
    At(Vec<u8>, Option<u32>, u32),
    /// At a path below the folder that comes with this, of a process, as this user.
    Below {
        /// The path.
        path: Vec<u8>,
        /// The process.
        pid: u32,
        /// The user, the group, and other groups.
        user: (u32, u32, Vec<u32>),
    },
}

/// A function at some place of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SymbolName {
    /// Name of the function, as in the file.
    pub(crate) function: String,
    /// The file that it was written in.
    pub(crate) file: Option<String>,
    /// Line in the source file; `None` if not known.
    pub(crate) line: Option<u32>,
    /// It is part of the next one.
    pub(crate) inlined: bool,
}

/// The links in a file to those with its debugging information.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DebugLinks {
    /// The name and the checksum in a `.gnu_debuglink`.
    pub(crate) debug: Option<(Vec<u8>, u32)>,
    /// The path and the build id in a `.gnu_debugaltlink`.
    pub(crate) alt: Option<(Vec<u8>, Vec<u8>)>,
}

/// Facts from the memory and the root folder of a process, which may have put anything there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectedProcess {
    /// The beginning of its command line: words, each terminated by a zero byte.
    pub command_line: Vec<u8>,
    /// Values of the variables that were asked for.
    pub variables: Vec<Option<Vec<u8>>>,
    /// Minor numbers of the GPUs with a device node in its root.
    pub gpus: Vec<u32>,
}

/// The bytes of a request or an answer.
pub(crate) fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    // A vector takes whatever is written to it.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// The value of these bytes, if they are one and no more.
pub(crate) fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}
