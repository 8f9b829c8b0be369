//! Frames that somebody else has found, and what is shown where nobody has.

use std::collections::HashMap;

use super::{Frame, Language, Location, ModuleId, Symbols};

/// Where a frame is whose file is not known.
pub const NO_MODULE: &str = "[unknown]";

/// Where a frame is whose code a runtime has made.
pub const JIT: &str = "[jit]";

/// The frame of a location of which nothing is known but its address.
pub fn bare_frame(location: &Location) -> Frame {
    Frame {
        function: format!("{:#x}", location.address),
        file: None,
        line: None,
        module: NO_MODULE.to_owned(),
        address: location.address,
        source: None,
        language: Language::Native,
        inlined: false,
    }
}

/// Knows no symbols: every frame is an address.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn frames(&self, _pid: u32, location: &Location, _is_innermost: bool) -> Vec<Frame> {
        vec![bare_frame(location)]
    }
}

/// By what the frames at a location are known. Those of a place in a file are the same in every
/// process, wherever it has mapped the file; only what is in no file is a process's own. So what is
/// remembered does not grow with every process that comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FramesKey {
    /// 0 if it is in a file.
    pid: u32,
    module: Option<ModuleId>,
    place: u64,
    is_innermost: bool,
}

impl FramesKey {
    /// Of a location of process `pid`.
    pub fn of(pid: u32, location: &Location, is_innermost: bool) -> Self {
        let (pid, place) = match location.module {
            Some(_) => (0, location.offset),
            None => (pid, location.address),
        };
        Self {
            pid,
            module: location.module,
            place,
            is_innermost,
        }
    }
}

/// The frames that were told, as a recording has them; what was told last counts.
#[derive(Clone, Debug, Default)]
pub struct KnownFrames {
    frames: HashMap<FramesKey, Vec<Frame>>,
    /// The paths of files of code.
    modules: HashMap<ModuleId, String>,
    bytes: usize,
}

/// Bytes that the frames at a place take.
fn size_of_frames(frames: &[Frame]) -> usize {
    let size = |frame: &Frame| {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let optional = length(&frame.file) + length(&frame.source);
        size_of::<Frame>() + frame.function.len() + optional + frame.module.len()
    };
    frames.iter().map(size).sum()
}

impl KnownFrames {
    /// Remembers the frames at a location of process `pid`. If there are none, they are not known
    /// any more.
    pub fn learn(&mut self, pid: u32, location: Location, is_innermost: bool, frames: Vec<Frame>) {
        let key = FramesKey::of(pid, &location, is_innermost);
        let path = frames.last().map(|frame| frame.module.as_str());
        if let (Some(module), Some(path)) = (location.module, path) {
            self.learn_module(module, path);
        }
        self.bytes += size_of_frames(&frames);
        if let Some(before) = self.frames.insert(key, frames) {
            self.bytes -= size_of_frames(&before);
        }
    }

    /// Remembers the path of a file of code; what is no path, and the file of Python's lines, is not one.
    pub fn learn_module(&mut self, module: ModuleId, path: &str) {
        let is_path = !path.is_empty() && ![JIT, NO_MODULE].contains(&path);
        if is_path && module != ModuleId::PYTHON && !self.modules.contains_key(&module) {
            self.bytes += path.len();
            self.modules.insert(module, path.to_owned());
        }
    }

    /// Bytes of memory that the frames and paths take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the frames at a location were told.
    pub fn knows(&self, pid: u32, location: &Location, is_innermost: bool) -> bool {
        self.told(pid, location, is_innermost).is_some()
    }

    /// The frames at a location, if they were told.
    pub fn get(&self, pid: u32, location: &Location, is_innermost: bool) -> Option<Vec<Frame>> {
        let told = self.told(pid, location, is_innermost)?;
        let here = |frame: &Frame| Frame {
            address: location.address,
            ..frame.clone()
        };
        Some(told.iter().map(here).collect())
    }

    /// As they were told, perhaps of another process.
    fn told(&self, pid: u32, location: &Location, is_innermost: bool) -> Option<&[Frame]> {
        let frames = self
            .frames
            .get(&FramesKey::of(pid, location, is_innermost))?;
        (!frames.is_empty()).then_some(frames)
    }
}

impl Symbols for KnownFrames {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        let known = self.get(pid, location, is_innermost);
        known.unwrap_or_else(|| vec![bare_frame(location)])
    }

    fn module(&self, location: &Location) -> Option<String> {
        self.modules.get(&location.module?).cloned()
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
    fn what_is_in_a_file_is_known_of_every_process_that_has_it() {
        let mut known = KnownFrames::default();
        let named = |address, name: &str| Frame {
            function: name.to_owned(),
            ..bare_frame(&at(address, None))
        };
        known.learn(7, at(0x5010, Some(1)), false, vec![named(0x5010, "f")]);
        assert_eq!(
            known.get(8, &at(0x9010, Some(1)), false),
            Some(vec![named(0x9010, "f")])
        );
        for (location, is_innermost) in [
            (at(0x9010, Some(2)), false),
            (at(0x9020, Some(1)), false),
            (at(0x9010, Some(1)), true),
            (at(0x5010, None), false),
        ] {
            assert!(!known.knows(8, &location, is_innermost), "{location:?}");
        }
    }

    #[test]
    fn a_file_is_known_by_any_frame_in_it() {
        let mut known = KnownFrames::default();
        let place = at(0x5010, Some(1));
        let named = |module: &str| Frame {
            module: module.to_owned(),
            ..bare_frame(&place)
        };
        known.learn(7, place, false, vec![bare_frame(&place)]);
        assert_eq!(known.module(&place), None);
        known.learn(7, place, false, vec![named("/lib/libx.so")]);
        let elsewhere = at(0x9999, Some(1));
        assert_eq!(known.module(&elsewhere).as_deref(), Some("/lib/libx.so"));
        // A number is of one file.
        known.learn_module(ModuleId(1), "/lib/liby.so");
        assert_eq!(known.module(&elsewhere).as_deref(), Some("/lib/libx.so"));
        assert_eq!(known.module(&at(0x9999, Some(2))), None);
        assert_eq!(known.module(&at(0x5010, None)), None);
    }

    #[test]
    fn what_is_in_no_file_is_the_processs_own() {
        let mut known = KnownFrames::default();
        let location = at(0x5010, None);
        known.learn(7, location, false, vec![bare_frame(&location)]);
        assert!(known.knows(7, &location, false));
        assert!(!known.knows(8, &location, false));
        assert!(known.bytes() > size_of::<Frame>());
        known.learn(7, location, false, Vec::new());
        assert!(!known.knows(7, &location, false));
        assert_eq!(known.bytes(), 0);
    }
}
