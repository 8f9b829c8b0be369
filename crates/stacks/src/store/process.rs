//! The call stacks of one process.

use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use lru::LruCache;

use crate::AddressSpaces;
use crate::paths::Paths;
use crate::python::code::PythonStack;
use crate::python::line_store::KnownLines;
use crate::python::process::{Running, Sent};
use gpuprobe_model::abi::RawStack;
use gpuprobe_model::stack::{CallStack, Location};

/// Maximum number of distinct stacks of a process, and of their locations, of 24 bytes each.
const MAX_STACKS: usize = 1 << 17;
const MAX_LOCATIONS: usize = 1 << 22;
/// Maximum number of aliases of stacks seen before; more than the kernel side's cache of sent walks
/// holds.
const MAX_ALIASES: usize = 1 << 18;

/// Bytes of a stack in two maps, without its locations, and another id of one.
const STACK_BYTES: usize = 160;
const ALIAS_BYTES: usize = 48;

/// The call stacks of one program in a process.
#[derive(Debug)]
pub(super) struct StackStoreProcess {
    /// Number of the process or program, as process ids are reused.
    pub(super) id: u32,
    /// When its mappings were last read because the kernel side's were stale.
    pub(super) looked: Instant,
    /// There is no room for more.
    pub(super) is_full: bool,
    /// What [`Self::bytes`] was when the sum of all was last updated.
    pub(super) counted: usize,
    pub(super) paths: Paths,
    stacks: HashMap<u64, KnownStack>,
    ids: HashMap<Arc<CallStack>, u64>,
    /// Other ids of the same stacks.
    aliases: LruCache<u64, u64>,
    /// Number of locations of all stacks.
    locations: usize,
    /// Interpreter of the process, and its code objects.
    pub(super) python: Option<Arc<Running>>,
    pub(super) sent: Sent,
}

#[derive(Debug)]
struct KnownStack {
    stack: Arc<CallStack>,
    is_reported: bool,
}

/// The stack of a call.
#[derive(Clone, Debug)]
pub struct NamedStack {
    /// Id of the stack in its process.
    pub id: u64,
    /// The stack, if this is its first call.
    pub new: Option<Arc<CallStack>>,
}

impl StackStoreProcess {
    /// A process or program without stacks.
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            looked: Instant::now(),
            is_full: false,
            counted: 0,
            paths: Paths::default(),
            stacks: HashMap::new(),
            ids: HashMap::new(),
            aliases: LruCache::unbounded(),
            locations: 0,
            python: None,
            sent: Sent::default(),
        }
    }

    /// About what is kept of it takes.
    pub(super) fn bytes(&self) -> usize {
        let stacks = self.stacks.len() * STACK_BYTES + self.locations * size_of::<Location>();
        stacks + self.aliases.len() * ALIAS_BYTES + self.sent.bytes()
    }

    /// The id of `stack`, which has number `id` on the kernel side. `None` if the limit is reached.
    pub(super) fn name(&mut self, id: u64, stack: CallStack) -> Option<u64> {
        let stack = Arc::new(stack);
        if let Some(&known) = self.ids.get(&stack) {
            self.alias(id, known);
            return Some(known);
        }
        let is_full = self.ids.len() >= MAX_STACKS || self.locations >= MAX_LOCATIONS;
        if is_full || self.is_full {
            return None;
        }
        self.locations += stack.locations.len();
        self.ids.insert(Arc::clone(&stack), id);
        let is_reported = false;
        self.stacks.insert(id, KnownStack { stack, is_reported });
        Some(id)
    }

    /// [`super::CallStacks::of_call`] for this process.
    pub(super) fn of_call(&mut self, id: u64) -> Option<NamedStack> {
        let id = self.aliases.peek(&id).copied().unwrap_or(id);
        let known = self.stacks.get_mut(&id)?;
        let is_new = !std::mem::replace(&mut known.is_reported, true);
        Some(NamedStack {
            id,
            new: is_new.then(|| Arc::clone(&known.stack)),
        })
    }

    /// The places in the stacks that calls have, and whether they are the first of theirs.
    pub(super) fn reported_places(&self) -> impl Iterator<Item = (Location, bool)> {
        let told = self.stacks.values().filter(|known| known.is_reported);
        told.flat_map(|known| {
            let places = known.stack.locations.iter().enumerate();
            places.map(|(index, place)| (*place, index == 0))
        })
    }

    /// Merges Python frames with their native stack, which is sent before them. Returns whether none are missing.
    pub(super) fn merge(
        &mut self,
        python: &PythonStack,
        spaces: &AddressSpaces,
        lines: &mut KnownLines,
    ) -> bool {
        let native = self.aliases.peek(&python.native);
        let native = native.unwrap_or(&python.native);
        let Some(native) = self.stacks.get(native) else {
            return !self.is_full;
        };
        let (stack, lacks_some) = match &self.python {
            Some(running) => self
                .sent
                .merged(&native.stack, python, running, spaces, lines),
            None => ((*native.stack).clone(), true),
        };
        self.name(python.id, stack).is_some() && !lacks_some
    }

    /// Whether a stack contains Python frames.
    pub(super) fn has_python(&self, id: u64) -> bool {
        let has = |known: &KnownStack| {
            let mut locations = known.stack.locations.iter();
            locations.any(|location| location.python_line().is_some())
        };
        self.stacks.get(&id).is_some_and(has)
    }

    /// The id of a copied stack whose path is known; it was sent before the kernel side knew the path.
    pub(super) fn recognise(&self, raw: &RawStack, copied: &[u8]) -> Option<u64> {
        let word = |offset: u16| word_at(copied, 8 * usize::from(offset));
        self.paths.find(raw.root, word)
    }

    pub(super) fn alias(&mut self, id: u64, known: u64) {
        if id != known && !self.is_full {
            self.aliases.get_or_insert(id, || known);
        }
        if self.aliases.len() > MAX_ALIASES {
            self.aliases.pop_lru();
        }
    }
}

/// The word at offset `at` of a copied stack.
pub(super) fn word_at(copied: &[u8], at: usize) -> Option<u64> {
    let word = copied.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::paths::PathStep;
    use gpuprobe_model::stack::ModuleId;

    fn stack(addresses: &[u64]) -> CallStack {
        let location = |&address| Location {
            address,
            module: Some(ModuleId(1)),
            offset: address,
        };
        CallStack {
            locations: addresses.iter().map(location).collect(),
            is_complete: true,
        }
    }

    #[test]
    fn a_stack_has_one_id_and_others_lead_to_it() {
        let mut process = StackStoreProcess::new(1);
        assert_eq!(process.name(11, stack(&[1, 2, 3])), Some(11));
        let one = 160 + 3 * size_of::<Location>();
        assert_eq!((process.bytes(), process.locations), (one, 3));
        assert_eq!(process.name(12, stack(&[1, 2, 3])), Some(11));
        assert_eq!(process.name(11, stack(&[1, 2, 3])), Some(11));
        assert_eq!(process.bytes(), one + 48);
        assert_eq!(process.name(13, stack(&[4])), Some(13));
        let two = one + 160 + size_of::<Location>();
        assert_eq!((process.bytes(), process.locations), (two + 48, 4));
        assert_eq!(process.reported_places().count(), 0);
        let call = process.of_call(12).unwrap();
        assert!(call.id == 11 && call.new.is_some());
        assert!(process.of_call(11).unwrap().new.is_none());
        assert!(process.of_call(99).is_none());
        let places: Vec<_> = process.reported_places().collect();
        let [first, second, third] = [1, 2, 3].map(|at| stack(&[at]).locations[0]);
        assert_eq!(places, [(first, true), (second, false), (third, false)]);
    }

    #[test]
    fn a_full_process_knows_its_stacks_and_takes_no_others() {
        let mut process = StackStoreProcess::new(1);
        process.locations = MAX_LOCATIONS - 1;
        assert_eq!(process.name(11, stack(&[1])), Some(11));
        assert_eq!(process.name(12, stack(&[2])), None, "too many locations");
        process.locations = 1;
        assert_eq!(process.name(12, stack(&[2])), Some(12));
        process.is_full = true;
        assert_eq!(process.name(13, stack(&[3])), None);
        assert_eq!(process.name(14, stack(&[2])), Some(12));
        assert!(process.aliases.is_empty(), "it is full");
    }

    #[test]
    fn the_oldest_of_too_many_aliases_is_forgotten() {
        let mut process = StackStoreProcess::new(1);
        process.name(0, stack(&[1]));
        process.alias(0, 0);
        assert!(process.aliases.is_empty());
        let limit = MAX_ALIASES as u64;
        for id in 1..=limit {
            process.alias(id, 0);
        }
        process.alias(1, 0);
        assert_eq!(process.aliases.len(), MAX_ALIASES);
        assert_eq!(process.of_call(1).unwrap().id, 0);
        process.alias(limit + 1, 0);
        assert_eq!(process.aliases.len(), MAX_ALIASES);
        assert!(process.of_call(2).is_none() && process.of_call(1).is_some());
    }

    #[test]
    fn known_paths_are_recognised_in_a_copied_stack() {
        let mut process = StackStoreProcess::new(1);
        let step = PathStep {
            offset: 2,
            word: 0x77,
        };
        process.paths.learn(5, &[step], 11);
        let mut raw = RawStack::new_zeroed();
        raw.root = 5;
        let copied = [1, 2, 0x77, 4].map(u64::to_ne_bytes).concat();
        assert_eq!(process.recognise(&raw, &copied), Some(11));
        assert_eq!(process.recognise(&raw, &copied[..23]), None);
        assert_eq!(process.recognise(&raw, &copied[8..]), None);
        assert_eq!(word_at(&copied, 8), Some(2));
        assert_eq!(word_at(&copied, 25), None);
    }

    #[test]
    fn python_frames_are_merged_when_their_native_stack_is_known() {
        let mut process = StackStoreProcess::new(1);
        let python = |id, native| PythonStack {
            process: 1,
            id,
            native,
            frames: Vec::new(),
            is_cut: false,
            is_unreadable: false,
            is_of_main_thread: false,
        };
        let (spaces, mut lines) = (AddressSpaces::default(), KnownLines::default());
        let mut merge = |process: &mut StackStoreProcess, id, native| {
            process.merge(&python(id, native), &spaces, &mut lines)
        };
        process.name(11, stack(&[1, 2]));
        process.alias(12, 11);
        assert!(merge(&mut process, 21, 99), "its native stack is not known");
        assert!(process.of_call(21).is_none());
        for (id, native) in [(22, 11), (23, 12)] {
            assert!(
                !merge(&mut process, id, native),
                "without an interpreter, frames lack"
            );
            assert_eq!(process.of_call(id).unwrap().id, 11);
        }
        assert!(!process.has_python(11));
        let mut mixed = stack(&[1]);
        mixed.locations.push(Location::python(3));
        process.name(31, mixed);
        assert!(process.has_python(31) && !process.has_python(99));
    }
}
