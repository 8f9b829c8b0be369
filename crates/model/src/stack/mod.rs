//! Call stacks: which line of whose code made a call.
//!
//! A [`CallStack`] is a list of [`Location`]s, each as it was when the call was made: an address
//! and the place in a file that was mapped there. [`Frame`]s are what people read; a location has
//! several where the compiler has inlined functions. [`Symbols`] makes frames of locations, only
//! for what is printed.

mod known;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::text::hex;

pub use known::{FramesKey, KnownFrames, NO_MODULE, NoSymbols, bare_frame};

/// A file that code was mapped from, by its number within the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModuleId(pub u32);

/// Where an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Its address in the process. Of the innermost location of a stack, the instruction that was
    /// about to run; of all others, the one that a call would have returned to.
    pub address: u64,
    /// The file that was mapped there; none for code that was made at run time.
    pub module: Option<ModuleId>,
    /// Bytes from the beginning of that file.
    pub offset: u64,
}

/// A call stack of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallStack {
    /// Innermost first; the first is the entry of the function that was called.
    pub locations: Vec<Location>,
    /// The last location is the outermost one of the thread. If not, what called it is not known.
    pub is_complete: bool,
}

/// What a function is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Compiled to machine code.
    #[default]
    Native,
    /// Python.
    Python,
}

/// One function of a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The demangled name; `MODULE+0xOFFSET` if it has none.
    pub function: String,
    /// The source file, if the module has debugging information.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The path of the file that the code is in, as the process sees it; `[jit]` or `[unknown]` if
    /// it is in none.
    pub module: String,
    /// The address in the process, `0x...` in JSON.
    #[serde(serialize_with = "hex", deserialize_with = "from_hex")]
    pub address: u64,
    /// What it is written in.
    #[serde(default)]
    pub language: Language,
    /// The compiler has put it into the function that comes next.
    #[serde(default)]
    pub inlined: bool,
}

/// Makes frames of locations.
pub trait Symbols {
    /// The frames at `location` of process `pid`, innermost first: the functions that were inlined
    /// there, then the one that they are in. Never empty: without a symbol, the frame names the
    /// module and the place in it. `is_innermost`: the location is the first of its stack, not an
    /// address that a call would have returned to.
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame>;

    /// The frames of the caller to which the reader of a file's rows gave this number, innermost first,
    /// and whether they reach the outermost one.
    fn caller(&self, number: u32) -> (Vec<Frame>, bool) {
        let _ = number;
        (Vec::new(), false)
    }

    /// The number by which that caller is known: the same for all that are alike.
    fn caller_id(&self, number: u32) -> u32 {
        number
    }

    /// What is known of that caller's calls: `valid`, `invalid` or `driver`.
    fn caller_trace(&self, number: u32) -> Option<&'static str> {
        let _ = number;
        None
    }

    /// The function with a number beyond the function table; none if nobody has named it.
    fn function(&self, number: u16) -> Option<Cow<'static, str>> {
        let _ = number;
        None
    }
}

impl CallStack {
    /// All frames, innermost first.
    pub fn frames(&self, pid: u32, symbols: &dyn Symbols) -> Vec<Frame> {
        let frames = |(index, location)| symbols.frames(pid, location, index == 0);
        self.locations.iter().enumerate().flat_map(frames).collect()
    }
}

fn from_hex<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    u64::from_str_radix(digits, 16).map_err(serde::de::Error::custom)
}
