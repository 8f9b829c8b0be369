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

pub use known::{FramesKey, JIT, KnownFrames, NO_MODULE, NoSymbols, bare_frame};

/// A file that code was mapped from, by its number within the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModuleId(pub u32);

impl ModuleId {
    /// No file: the location is a line of Python, and its offset the number of that line within the
    /// run.
    pub const PYTHON: Self = Self(u32::MAX - 1);
}

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

impl Location {
    /// The line of Python with this number.
    pub fn python(number: u32) -> Self {
        Self {
            address: 0,
            module: Some(ModuleId::PYTHON),
            offset: u64::from(number),
        }
    }

    /// The number of the line of Python that it is, if it is one.
    pub fn python_line(&self) -> Option<u32> {
        let is_python = self.module == Some(ModuleId::PYTHON);
        u32::try_from(self.offset).ok().filter(|_| is_python)
    }
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
    /// The demangled name; `MODULE+0xOFFSET` if it has none. Of Python, the qualified name.
    pub function: String,
    /// The source file, if the module has debugging information.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The text of that line, without what it begins and ends with, if it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The path of the file that the code is in, as the process sees it; `[jit]` or `[unknown]` if
    /// it is in none. Empty for Python, `null` in JSON.
    #[serde(serialize_with = "text_or_null", deserialize_with = "null_or_text")]
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

    /// The path of the file that `location` is in, without looking for its function; none if it is in
    /// no file, or that is not known.
    fn module(&self, location: &Location) -> Option<String> {
        let _ = location;
        None
    }

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

    /// The same where callers with the same lines of Python are one call site.
    fn folded_id(&self, number: u32) -> u32 {
        self.caller_id(number)
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

fn text_or_null<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let text = Some(text).filter(|text| !text.is_empty());
    text.serialize(serializer)
}

fn null_or_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn from_hex<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    u64::from_str_radix(digits, 16).map_err(serde::de::Error::custom)
}
