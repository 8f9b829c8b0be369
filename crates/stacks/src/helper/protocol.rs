//! Requests to the helpers, and their answers: values in postcard's encoding.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A question. Each is answered by a value. The files in question come with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The headers of a file: `Result<Headers, Refusal>`.
    Headers,
    /// The functions of the table that a file exports: `Result<Vec<FunctionInFile>, String>`.
    Functions,
    /// A dynamic loader's rendezvous: `Result<Option<Rendezvous>, String>`.
    Rendezvous,
    /// How to unwind in the function at this address: `Option<FunctionRules>`.
    Rules(u64),
    /// The interpreter of Python in a file: `Option<Interpreter>`.
    Interpreter,
    /// The mangled name of the function at this offset: `Option<String>`.
    Symbol(u64),
    /// Bytes of a variable: `Option<u64>`.
    Variable(String),
    /// The address in the file of what it exports under this name: `Option<u64>`.
    Address(String),
    /// The links to files with debugging information: `DebugLinks`.
    Links,
    /// Whether a file has this build id or, where it or the other has none, its contents this checksum: `bool`.
    IsMeant(Option<Vec<u8>>, Option<u32>),
    /// The functions at an address, with their lines if debugging information may be read: `Option<Vec<SymbolName>>`.
    /// The first file has the code, the second the same or better symbols, and the third, if there is one, what the
    /// debugging information of several has in common.
    Names(u64, bool),
    /// The name at an address in a perf map, to which more may have been written since it was asked about under the same
    /// number: `Option<String>`.
    JitSymbol(u64, u64),
    /// The beginning of the command line of a process, these variables, and which of these GPUs have device nodes:
    /// `InspectedProcess`.
    Process(u32, Vec<String>, Vec<u32>),
    /// Memory of a process at this address, so many bytes: the bytes.
    Memory(u32, u64, usize),
    /// Memory of a process at these addresses, so many bytes of each: `Vec<Vec<u8>>`. They are read some times, until it is
    /// the same in the first and the last so many ranges.
    Ranges(u32, Vec<(u64, usize)>, usize),
    /// A file: `()`, with the file if it could be opened.
    File(Wanted),
}

/// A file that is wanted. It is opened only if it is a regular one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Wanted {
    /// The map that process `pid` has written for `perf`.
    PerfMap(u32),
    /// At a path of ours, or of a process, if one is named: below the folder that comes with this, or in its root.
    /// As this user, with this group and other groups.
    At(Vec<u8>, Option<u32>, (u32, u32, Vec<u32>)),
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
