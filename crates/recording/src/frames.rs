//! Frames that are stored in a recording, so that a replay shows the same call stacks.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::log::LogNote;
use gpuprobe_model::stack::{Frame, FramesKey, Location, ModuleId, Symbolize, bare_frame};

/// Frames already in the recording, as hashes because they may be replaced by better ones, and
/// modules.
#[derive(Debug, Default)]
pub struct RecordedFrames {
    frames: HashMap<FramesKey, u64>,
    modules: HashSet<ModuleId>,
}

impl RecordedFrames {
    /// Returns a note with the frames of a location of process `pid`; `None` if they are in the
    /// recording already.
    pub fn note(
        &mut self,
        pid: u32,
        location: &Location,
        is_innermost: bool,
        frames: &[Frame],
    ) -> Option<LogNote> {
        // Unresolved locations in a file are not recorded: their address differs in each process.
        let is_bare = location.module.is_some() && frames == [bare_frame(location)];
        let frames = if is_bare { &[] } else { frames };
        let hash = hash_of(frames);
        let key = FramesKey::of(pid, location, is_innermost);
        let before = self.frames.insert(key, hash);
        let is_new = before.unwrap_or(hash_of(&[])) != hash;
        is_new.then(|| LogNote::Frames(pid, *location, is_innermost, frames.to_vec()))
    }

    /// Returns a note with the path of a module; `None` if it is in the recording already.
    fn note_module(&mut self, module: ModuleId, path: &str) -> Option<LogNote> {
        let is_new = self.modules.insert(module);
        is_new.then(|| LogNote::Module(module, path.to_owned()))
    }
}

/// Hash of the frames without their addresses, which differ by process.
fn hash_of(frames: &[Frame]) -> u64 {
    let mut hasher = DefaultHasher::new();
    frames.len().hash(&mut hasher);
    for frame in frames {
        let address = 0;
        let frame = Frame {
            address,
            ..frame.clone()
        };
        frame.hash(&mut hasher);
    }
    hasher.finish()
}

/// Symbols that collect the frames they return, which must be recorded before the report that shows
/// them.
pub struct FrameWitness<'a> {
    symbols: &'a dyn Symbolize,
    reported: RefCell<&'a mut RecordedFrames>,
    notes: RefCell<Vec<LogNote>>,
}

impl<'a> FrameWitness<'a> {
    /// Wraps `symbols`; frames in `reported` are not collected again.
    pub fn new(symbols: &'a dyn Symbolize, reported: &'a mut RecordedFrames) -> Self {
        Self {
            symbols,
            reported: RefCell::new(reported),
            notes: RefCell::default(),
        }
    }

    /// The collected frames as notes.
    pub fn into_notes(self) -> Vec<LogNote> {
        self.notes.into_inner()
    }
}

impl Symbolize for FrameWitness<'_> {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        let frames = self.symbols.frames(pid, location, is_innermost);
        let mut reported = self.reported.borrow_mut();
        if let Some(note) = reported.note(pid, location, is_innermost, &frames) {
            self.notes.borrow_mut().push(note);
        }
        frames
    }

    fn module(&self, location: &Location) -> Option<String> {
        let path = self.symbols.module(location)?;
        let note = self
            .reported
            .borrow_mut()
            .note_module(location.module?, &path);
        self.notes.borrow_mut().extend(note);
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{KnownFrames, ModuleId, NoSymbols};

    #[test]
    fn frames_are_recorded_once_and_again_when_they_change() {
        let location = Location {
            address: 0x10,
            module: None,
            offset: 0,
        };
        let mut reported = RecordedFrames::default();
        let witness = FrameWitness::new(&NoSymbols, &mut reported);
        let given = witness.frames(7, &location, false);
        assert_eq!(witness.frames(7, &location, false), given);
        let expected = LogNote::Frames(7, location, false, given.clone());
        assert_eq!(witness.into_notes(), [expected]);
        let mut better = KnownFrames::default();
        let mut named = given;
        named[0].function = "main".to_owned();
        better.insert(7, location, false, named.clone());
        let witness = FrameWitness::new(&better, &mut reported);
        assert_eq!(witness.frames(7, &location, false), named);
        assert_eq!(witness.into_notes().len(), 1);
    }

    #[test]
    fn modules_are_recorded_once() {
        let at = |offset| Location {
            address: offset,
            module: Some(ModuleId(1)),
            offset,
        };
        let mut reported = RecordedFrames::default();
        let mut known = KnownFrames::default();
        let witness = FrameWitness::new(&known, &mut reported);
        assert_eq!(witness.module(&at(0)), None);
        assert!(witness.into_notes().is_empty());
        known.insert_module(ModuleId(1), "/lib/libx.so");
        let witness = FrameWitness::new(&known, &mut reported);
        for offset in [0, 8] {
            assert_eq!(witness.module(&at(offset)).as_deref(), Some("/lib/libx.so"));
        }
        let expected = LogNote::Module(ModuleId(1), "/lib/libx.so".to_owned());
        assert_eq!(witness.into_notes(), [expected]);
    }

    #[test]
    fn frames_of_a_module_are_recorded_once_for_all_processes() {
        let at = |address| Location {
            address,
            module: Some(ModuleId(1)),
            offset: 0x10,
        };
        let mut reported = RecordedFrames::default();
        let mut known = KnownFrames::default();
        // Unresolved locations are not recorded.
        for (pid, address) in [(7, 0x1010), (8, 0x2010)] {
            let witness = FrameWitness::new(&known, &mut reported);
            let bare = witness.frames(pid, &at(address), false);
            assert_eq!(bare, [bare_frame(&at(address))]);
            assert!(witness.into_notes().is_empty());
        }
        let mut named = bare_frame(&at(0x1010));
        named.function = "main".to_owned();
        known.insert(7, at(0x1010), false, vec![named]);
        for (pid, address, notes) in [(7, 0x1010, 1), (8, 0x2010, 0)] {
            let witness = FrameWitness::new(&known, &mut reported);
            let frames = witness.frames(pid, &at(address), false);
            assert_eq!(
                (&frames[0].function[..], frames[0].address),
                ("main", address)
            );
            assert_eq!(witness.into_notes().len(), notes);
        }
        // Frames that are no longer resolved are recorded as such.
        let none = KnownFrames::default();
        let witness = FrameWitness::new(&none, &mut reported);
        witness.frames(8, &at(0x2010), false);
        let forgotten = LogNote::Frames(8, at(0x2010), false, Vec::new());
        assert_eq!(witness.into_notes(), [forgotten]);
    }
}
