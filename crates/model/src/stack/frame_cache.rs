//! Cache of resolved frames, and frames without symbols.

use std::collections::HashMap;

use super::{Frame, Location, ModuleId, Symbolize};

/// Module name of a frame whose file is unknown.
pub const NO_MODULE: &str = "[unknown]";

/// Module name of a frame in code generated at run time.
pub const JIT: &str = "[jit]";

/// A frame that shows only the address of its location.
pub fn bare_frame(location: &Location) -> Frame {
    Frame {
        function: format!("{:#x}", location.address),
        module: NO_MODULE.to_owned(),
        address: location.address,
        ..Frame::default()
    }
}

/// Symbol source without symbols: every frame is an address.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbolize for NoSymbols {
    fn frames(&self, _pid: u32, location: &Location, _is_innermost: bool) -> Vec<Frame> {
        vec![bare_frame(location)]
    }
}

/// Cache key of the frames at a location. A location in a file has the same key in every process
/// that maps the file; a location outside of files belongs to its process. The cache therefore does
/// not grow with every new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FramesKey {
    /// 0 for a location in a file.
    pid: u32,
    module: Option<ModuleId>,
    place: u64,
    is_innermost: bool,
}

impl FramesKey {
    /// Key of a location of process `pid`.
    pub fn of(pid: u32, location: &Location, is_innermost: bool) -> Self {
        let (pid, place) = match location.module {
            Some(_) => (0, location.offset),
            None => (pid, location.address),
        };
        Self {
            pid,
            module: location.module,
            place,
            // A line is the same wherever it is.
            is_innermost: is_innermost && location.python_line().is_none(),
        }
    }
}

/// Frames that were resolved before or read from a recording; later entries replace earlier ones.
#[derive(Clone, Debug, Default)]
pub struct KnownFrames {
    frames: HashMap<FramesKey, Vec<Frame>>,
    /// Paths of executable files by module.
    modules: HashMap<ModuleId, String>,
    /// Names of functions beyond the function table, by number.
    functions: HashMap<u16, String>,
    bytes: usize,
}

/// Memory taken by the frames of a location, bytes.
fn size_of_frames(frames: &[Frame]) -> usize {
    let size = |frame: &Frame| {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let optional = length(&frame.file) + length(&frame.source);
        size_of::<Frame>() + frame.function.len() + optional + frame.module.len()
    };
    frames.iter().map(size).sum()
}

impl KnownFrames {
    /// Stores the frames of a location of process `pid`; an empty list removes them.
    pub fn insert(&mut self, pid: u32, location: Location, is_innermost: bool, frames: Vec<Frame>) {
        let key = FramesKey::of(pid, &location, is_innermost);
        let path = frames.last().map(|frame| frame.module.as_str());
        if let (Some(module), Some(path)) = (location.module, path) {
            self.insert_module(module, path);
        }
        self.bytes += size_of_frames(&frames);
        if let Some(before) = self.frames.insert(key, frames) {
            self.bytes -= size_of_frames(&before);
        }
    }

    /// Stores the path of a module; `[jit]`, `[unknown]` and the empty path are ignored.
    pub fn insert_module(&mut self, module: ModuleId, path: &str) {
        let is_path = !path.is_empty() && ![JIT, NO_MODULE].contains(&path);
        if is_path && module != ModuleId::PYTHON && !self.modules.contains_key(&module) {
            self.bytes += path.len();
            self.modules.insert(module, path.to_owned());
        }
    }

    /// Stores the name of a function with a number beyond the function table.
    pub fn insert_function(&mut self, number: u16, name: String) {
        self.functions.insert(number, name);
    }

    /// Memory taken by the frames and paths, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether frames of the location are stored.
    pub fn contains(&self, pid: u32, location: &Location, is_innermost: bool) -> bool {
        self.lookup(pid, location, is_innermost).is_some()
    }

    /// The stored frames of the location, with its address.
    pub fn get(&self, pid: u32, location: &Location, is_innermost: bool) -> Option<Vec<Frame>> {
        let stored = self.lookup(pid, location, is_innermost)?;
        let here = |frame: &Frame| Frame {
            address: location.address,
            ..frame.clone()
        };
        Some(stored.iter().map(here).collect())
    }

    /// The stored frames of the location; their addresses may be those of another process.
    fn lookup(&self, pid: u32, location: &Location, is_innermost: bool) -> Option<&[Frame]> {
        let frames = self
            .frames
            .get(&FramesKey::of(pid, location, is_innermost))?;
        (!frames.is_empty()).then_some(frames)
    }
}

impl Symbolize for KnownFrames {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        let known = self.get(pid, location, is_innermost);
        known.unwrap_or_else(|| vec![bare_frame(location)])
    }

    fn module(&self, location: &Location) -> Option<String> {
        self.modules.get(&location.module?).cloned()
    }

    fn function(&self, number: u16) -> Option<&str> {
        self.functions.get(&number).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64, module: Option<u32>) -> Location {
        Location {
            address,
            module: module.map(ModuleId),
            offset: address & 0xfff,
        }
    }

    #[test]
    fn frames_in_a_file_are_shared_by_processes() {
        let mut frames = KnownFrames::default();
        let named = |address, name: &str| Frame {
            function: name.to_owned(),
            ..bare_frame(&at(address, None))
        };
        frames.insert(7, at(0x5010, Some(1)), false, vec![named(0x5010, "f")]);
        assert_eq!(
            frames.get(8, &at(0x9010, Some(1)), false),
            Some(vec![named(0x9010, "f")])
        );
        for (location, is_innermost) in [
            (at(0x9010, Some(2)), false),
            (at(0x9020, Some(1)), false),
            (at(0x9010, Some(1)), true),
            (at(0x5010, None), false),
        ] {
            assert!(!frames.contains(8, &location, is_innermost), "{location:?}");
        }
    }

    #[test]
    fn a_module_path_is_found_by_any_frame_in_it() {
        let mut frames = KnownFrames::default();
        let place = at(0x5010, Some(1));
        let named = |module: &str| Frame {
            module: module.to_owned(),
            ..bare_frame(&place)
        };
        frames.insert(7, place, false, vec![bare_frame(&place)]);
        assert_eq!(frames.module(&place), None);
        frames.insert(7, place, false, vec![named("/lib/libx.so")]);
        let elsewhere = at(0x9999, Some(1));
        assert_eq!(frames.module(&elsewhere).as_deref(), Some("/lib/libx.so"));
        // The first path of a module id is kept.
        frames.insert_module(ModuleId(1), "/lib/liby.so");
        assert_eq!(frames.module(&elsewhere).as_deref(), Some("/lib/libx.so"));
        assert_eq!(frames.module(&at(0x9999, Some(2))), None);
        assert_eq!(frames.module(&at(0x5010, None)), None);
    }

    #[test]
    fn frames_outside_files_belong_to_one_process() {
        let mut frames = KnownFrames::default();
        let location = at(0x5010, None);
        frames.insert(7, location, false, vec![bare_frame(&location)]);
        assert!(frames.contains(7, &location, false));
        assert!(!frames.contains(8, &location, false));
        assert!(frames.bytes() > size_of::<Frame>());
        frames.insert(7, location, false, Vec::new());
        assert!(!frames.contains(7, &location, false));
        assert_eq!(frames.bytes(), 0);
    }

    #[test]
    fn frames_are_counted_in_bytes() {
        let mut frames = KnownFrames::default();
        let location = at(0x5010, Some(1));
        let frame = Frame {
            function: "function".to_owned(),
            file: Some("a.py".to_owned()),
            source: Some("x".to_owned()),
            module: "/lib".to_owned(),
            ..bare_frame(&location)
        };
        let one = size_of::<Frame>() + 8 + 4 + 1 + 4;
        frames.insert(7, location, false, vec![frame.clone(), frame.clone()]);
        // The path of the module is counted once more.
        assert_eq!(frames.bytes(), 2 * one + 4);
        frames.insert(7, location, false, vec![frame]);
        assert_eq!(frames.bytes(), one + 4);
        frames.insert_module(ModuleId(2), "/usr");
        for (module, path) in [
            (ModuleId(2), "/other"),
            (ModuleId(3), ""),
            (ModuleId(3), JIT),
            (ModuleId::PYTHON, "/python"),
        ] {
            frames.insert_module(module, path);
        }
        assert_eq!(frames.bytes(), one + 8);
        let shown = frames.frames(7, &at(0x9010, Some(1)), false);
        assert_eq!(
            (shown[0].function.as_str(), shown[0].address),
            ("function", 0x9010)
        );
        let unknown = at(0x1, None);
        assert_eq!(frames.frames(7, &unknown, false), [bare_frame(&unknown)]);
    }
}
