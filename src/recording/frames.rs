//! What a recording must know about frames, so that a replay shows those that were shown.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::log::Note;
use crate::stacks::{Frame, Location, Symbols};

/// The frames that a recording has been told, as hashes: they may become better known.
#[derive(Debug, Default)]
pub struct Told(HashMap<(u32, Location, bool), u64>);

impl Told {
    /// The note that tells the frames at a location of process `pid`; none if they have been told.
    pub fn tell(
        &mut self,
        pid: u32,
        location: &Location,
        is_innermost: bool,
        frames: &[Frame],
    ) -> Option<Note> {
        let mut hasher = DefaultHasher::new();
        frames.hash(&mut hasher);
        let hash = hasher.finish();
        let before = self.0.insert((pid, *location, is_innermost), hash);
        let is_news = before != Some(hash);
        is_news.then(|| Note::Frames(pid, *location, is_innermost, frames.to_vec()))
    }
}

/// Symbols that remember which frames they gave: these are to be noted before the report that shows
/// them.
pub struct FrameWitness<'a> {
    symbols: &'a dyn Symbols,
    told: RefCell<&'a mut Told>,
    notes: RefCell<Vec<Note>>,
}

impl<'a> FrameWitness<'a> {
    /// Asks `symbols`; what is in `told` is not noted again.
    pub fn new(symbols: &'a dyn Symbols, told: &'a mut Told) -> Self {
        Self {
            symbols,
            told: RefCell::new(told),
            notes: RefCell::default(),
        }
    }

    /// What was given and had not been told.
    pub fn into_notes(self) -> Vec<Note> {
        self.notes.into_inner()
    }
}

impl Symbols for FrameWitness<'_> {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        let frames = self.symbols.frames(pid, location, is_innermost);
        let mut told = self.told.borrow_mut();
        if let Some(note) = told.tell(pid, location, is_innermost, &frames) {
            self.notes.borrow_mut().push(note);
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::{KnownFrames, NoSymbols};

    #[test]
    fn frames_are_told_once_and_again_when_they_are_better_known() {
        let location = Location {
            address: 0x10,
            module: None,
            offset: 0,
        };
        let mut told = Told::default();
        let witness = FrameWitness::new(&NoSymbols, &mut told);
        let given = witness.frames(7, &location, false);
        assert_eq!(witness.frames(7, &location, false), given);
        let expected = Note::Frames(7, location, false, given.clone());
        assert_eq!(witness.into_notes(), [expected]);
        let mut better = KnownFrames::default();
        let mut named = given;
        named[0].function = "main".to_owned();
        better.learn(7, location, false, named.clone());
        let witness = FrameWitness::new(&better, &mut told);
        assert_eq!(witness.frames(7, &location, false), named);
        assert_eq!(witness.into_notes().len(), 1);
    }
}
