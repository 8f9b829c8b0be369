//! Call stacks.
//!
//! A [`CallStack`] is a list of [`Location`]s, resolved when the call was made: an address, and the
//! offset in the file that was mapped there. A [`Frame`] is a function with its source line; a
//! location has several where functions were inlined. [`Symbolize`] turns locations into frames, only
//! for output.

mod frame_cache;

use serde::{Deserialize, Serialize};

use crate::text::hex;

pub use frame_cache::{FramesKey, JIT, KnownFrames, NO_MODULE, NoSymbols, bare_frame};

/// Number, within the run, of a file that code was mapped from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModuleId(pub u32);

impl ModuleId {
    /// Pseudo module of Python: the offset of the location is the run's number of a Python line.
    pub const PYTHON: Self = Self(u32::MAX - 1);
}

/// Location of an instruction in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Address in the process: for the innermost location of a stack the instruction to be
    /// executed, for all others the return address.
    pub address: u64,
    /// Mapped file at the address; `None` for code generated at run time.
    pub module: Option<ModuleId>,
    /// Offset in the file, bytes.
    pub offset: u64,
}

impl Location {
    /// The location of the Python line with this number.
    pub fn python(number: u32) -> Self {
        Self {
            address: 0,
            module: Some(ModuleId::PYTHON),
            offset: u64::from(number),
        }
    }

    /// The number of the Python line; `None` for native code.
    pub fn python_line(&self) -> Option<u32> {
        let is_python = self.module == Some(ModuleId::PYTHON);
        u32::try_from(self.offset).ok().filter(|_| is_python)
    }
}

/// A call stack of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallStack {
    /// Locations, innermost first; the first is the entry of the probed function.
    pub locations: Vec<Location>,
    /// The last location is the outermost one of the thread; otherwise the stack is truncated.
    pub is_complete: bool,
}

/// Language of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Compiled to machine code.
    #[default]
    Native,
    /// A function in Python source code.
    Python,
}

impl Language {
    /// Whether the frame is of Python source code.
    pub fn is_python(self) -> bool {
        self == Self::Python
    }

    /// Name in the tables of recordings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Python => "python",
        }
    }
}

/// One function of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Demangled name, or `MODULE+0xOFFSET` without a symbol; for Python, the qualified name.
    pub function: String,
    /// Source file, if the module has debug information.
    pub file: Option<String>,
    /// Line in the source file.
    pub line: Option<u32>,
    /// Text of that line without leading and trailing white space, if it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Path of the file as the process sees it; `[jit]` or `[unknown]` outside of files. Empty for
    /// Python, `null` in JSON.
    #[serde(serialize_with = "text_or_null", deserialize_with = "null_or_text")]
    pub module: String,
    /// Address in the process, `0x...` in JSON.
    #[serde(serialize_with = "hex", deserialize_with = "from_hex")]
    pub address: u64,
    /// Language of the function.
    #[serde(default)]
    pub language: Language,
    /// The function was inlined into the next frame.
    #[serde(default)]
    pub inlined: bool,
}

impl Frame {
    /// Whether the function has a symbol; without one it is a place in the file or an address.
    pub fn is_named(&self) -> bool {
        !self.function.contains("+0x") && !self.function.starts_with("0x")
    }
}

/// A source of frames for locations.
pub trait Symbolize {
    /// The frames at `location` of process `pid`, innermost first: inlined functions, then the
    /// function that contains them. Never empty: without a symbol, the frame has the module and the
    /// offset in it. `is_innermost`: the location is the first of its stack, not a return address.
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame>;

    /// The path of the file of `location`, without a symbol lookup; `None` outside of files or if
    /// unknown.
    fn module(&self, location: &Location) -> Option<String> {
        let _ = location;
        None
    }

    /// Name of a function with a number beyond the function table; `None` if it has no name.
    fn function(&self, number: u16) -> Option<&str> {
        let _ = number;
        None
    }
}

impl CallStack {
    /// All frames of the stack, innermost first.
    pub fn frames(&self, pid: u32, symbols: &dyn Symbolize) -> Vec<Frame> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn python_lines_are_locations_of_a_pseudo_module() {
        let line = Location::python(7);
        assert_eq!(
            (line.address, line.module, line.offset),
            (0, Some(ModuleId::PYTHON), 7)
        );
        assert_eq!(line.python_line(), Some(7));
        let beyond = Location {
            offset: 1 << 32,
            ..line
        };
        let native = Location {
            module: Some(ModuleId(1)),
            ..line
        };
        assert_eq!((beyond.python_line(), native.python_line()), (None, None));
        assert_eq!(ModuleId::PYTHON.0, 0xffff_fffe);
    }

    #[test]
    fn frames_are_the_same_after_json() {
        let native = Frame {
            function: "f".to_owned(),
            file: Some("a.c".to_owned()),
            line: Some(3),
            source: None,
            module: "/lib/libx.so".to_owned(),
            address: 0xabc,
            language: Language::Native,
            inlined: true,
        };
        let python = Frame {
            source: Some("x = 1".to_owned()),
            module: String::new(),
            language: Language::Python,
            ..native.clone()
        };
        for (frame, module) in [
            (native, "/lib/libx.so".into()),
            (python, serde_json::Value::Null),
        ] {
            let json = serde_json::to_value(&frame).unwrap();
            assert_eq!(
                (&json["module"], &json["address"]),
                (&module, &"0xabc".into())
            );
            assert_eq!(serde_json::from_value::<Frame>(json).unwrap(), frame);
        }
        let mut json = serde_json::to_value(bare_frame(&Location::python(1))).unwrap();
        json["address"] = "ff".into();
        let frame: Frame = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(frame.address, 0xff);
        json["address"] = "0xg".into();
        assert!(serde_json::from_value::<Frame>(json).is_err());
    }

    #[test]
    fn a_stack_has_the_frames_of_its_locations() {
        struct Innermost;
        impl Symbolize for Innermost {
            fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
                vec![Frame {
                    function: format!("{pid} {} {is_innermost}", location.offset),
                    ..bare_frame(location)
                }]
            }
        }
        let stack = CallStack {
            locations: [1, 2, 3].map(Location::python).to_vec(),
            is_complete: true,
        };
        let frames = stack.frames(9, &Innermost);
        let names: Vec<_> = frames.iter().map(|frame| frame.function.as_str()).collect();
        assert_eq!(names, ["9 1 true", "9 2 false", "9 3 false"]);
        assert_eq!(Innermost.module(&stack.locations[0]), None);
        assert_eq!(Innermost.function(7), None);
        let bare = NoSymbols.frames(1, &stack.locations[0], true);
        assert_eq!(bare, [bare_frame(&stack.locations[0])]);
    }
}
