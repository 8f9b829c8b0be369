//! Frames that somebody else has found, and what is shown where nobody has.

use std::collections::HashMap;

use super::{Frame, Language, Location, Symbols};

/// Where a frame is whose file is not known.
pub const NO_MODULE: &str = "[unknown]";

/// The frame of a location of which nothing is known but its address.
pub fn bare_frame(location: &Location) -> Frame {
    Frame {
        function: format!("{:#x}", location.address),
        file: None,
        line: None,
        module: NO_MODULE.to_owned(),
        address: location.address,
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

/// The frames that were told, as a recording has them; what was told last counts.
#[derive(Clone, Debug, Default)]
pub struct KnownFrames(HashMap<(u32, Location, bool), Vec<Frame>>);

impl KnownFrames {
    /// Remembers the frames at a location of process `pid`.
    pub fn learn(&mut self, pid: u32, location: Location, is_innermost: bool, frames: Vec<Frame>) {
        self.0.insert((pid, location, is_innermost), frames);
    }

    /// The frames at a location, if they were told.
    pub fn get(&self, pid: u32, location: &Location, is_innermost: bool) -> Option<&[Frame]> {
        let frames = self.0.get(&(pid, *location, is_innermost))?;
        (!frames.is_empty()).then_some(frames)
    }
}

impl Symbols for KnownFrames {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        let known = self.get(pid, location, is_innermost);
        known.map_or_else(|| vec![bare_frame(location)], <[Frame]>::to_vec)
    }
}
