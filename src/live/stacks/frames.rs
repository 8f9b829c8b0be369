//! Frames that are known.

use super::StackState;
use gpuprobe_model::stack::{Frame, JIT, Language, Location, Symbolize};

/// The frame cache, with the paths of all modules.
pub(crate) struct FrameCache<'a>(pub(super) &'a StackState);

impl Symbolize for FrameCache<'_> {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        self.0.frames.frames(pid, location, is_innermost)
    }

    fn module(&self, location: &Location) -> Option<String> {
        match self.0.store.spaces.module(location.module?) {
            Some(module) => Some(module.path.to_string_lossy().into_owned()),
            None => self.0.frames.module(location),
        }
    }
}

/// Drops the Python file of a frame of the `-X perf` trampoline: Python frames are walked separately.
pub(super) fn without_language(frame: &mut Frame) {
    if frame.module == JIT {
        frame.language = Language::Native;
        frame.file = None;
    }
}
