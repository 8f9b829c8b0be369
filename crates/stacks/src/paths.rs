//! Call paths as the kernel side knows them, so that it can tell them apart without unwinding.
//!
//! The layout of a function's frame is given by the place that it is called from, so a path is
//! recognised step by step: who is at one return address knows where the next one lies. All paths
//! of a process are one tree. A state is what comes out of mixing all return addresses so far
//! ([`mix`]); a node lists where the next few return addresses lie and is found by the state
//! before them. Where paths part, nodes are split. The walk itself is in `bpf/paths.h`, and in the
//! tests below.

use std::collections::HashMap;

use gpuprobe_model::abi::{PATH_LEVELS, PATH_STEPS, PATH_WORDS, RawPath};

/// `enum gp_mix_factor` of `bpf/abi.h`.
pub const MIX_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The state after `word`; the twin of `gp_mix` in `bpf/paths.h`.
pub fn mix(state: u64, word: u64) -> u64 {
    let state = (state ^ word).wrapping_mul(MIX_FACTOR);
    state ^ state >> 32
}

/// A return address on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it is: 8-byte words above the stack pointer at the entry of the function.
    pub offset: u16,
    /// The return address.
    pub word: u64,
}

#[derive(Clone, Debug)]
struct Node {
    /// Of the path that it was made for; others share the offsets.
    steps: Vec<Step>,
    /// The path that ends behind it: the state there and its stack.
    end: Option<(u64, u64)>,
}

impl Node {
    fn raw(&self) -> RawPath {
        let mut offsets = [0; PATH_STEPS];
        for (offset, step) in offsets.iter_mut().zip(&self.steps) {
            *offset = step.offset;
        }
        let (end, stack) = self.end.unwrap_or_default();
        RawPath {
            end,
            stack,
            count: u16::try_from(self.steps.len()).unwrap_or(0),
            offsets,
        }
    }
}

/// The call paths of one process.
#[derive(Debug, Default)]
pub struct Paths {
    nodes: HashMap<u64, Node>,
}

/// An update for the kernel side: how the path goes on from a state.
pub type Change = (u64, RawPath);

impl Paths {
    /// Enters a path that begins with the state `root` and has the stack `stack`. Gives what is
    /// new, in the order in which it is to be entered; nothing if the path cannot be told apart
    /// from another by its return addresses.
    pub fn learn(&mut self, root: u64, mut steps: &[Step], stack: u64) -> Vec<Change> {
        let mut state = root;
        for _ in 0..PATH_LEVELS {
            let Some(node) = self.nodes.get(&state) else {
                return self.append(state, steps, stack);
            };
            let same = |(a, b): &(&Step, &Step)| a.offset == b.offset;
            let shared = node.steps.iter().zip(steps).take_while(same).count();
            if shared < node.steps.len() {
                return self.split(state, shared, steps, stack);
            }
            let end = node.end;
            (state, steps) = (after(state, &steps[..shared]), &steps[shared..]);
            if end.is_some_and(|(at, _)| at == state) {
                return Vec::new();
            }
        }
        Vec::new()
    }

    /// Appends what no other path shares.
    fn append(&mut self, mut state: u64, mut steps: &[Step], stack: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            let (some, rest) = steps.split_at(part(steps));
            let next = after(state, some);
            let node = Node {
                steps: some.to_vec(),
                end: rest.is_empty().then_some((next, stack)),
            };
            changes.push((state, node.raw()));
            self.nodes.insert(state, node);
            if rest.is_empty() {
                // A reader on the way down finds either nothing or all of it.
                changes.reverse();
                return changes;
            }
            (state, steps) = (next, rest);
        }
    }

    /// Cuts the node at `state` after `shared` steps, and appends what is left of both paths.
    fn split(&mut self, state: u64, shared: usize, steps: &[Step], stack: u64) -> Vec<Change> {
        let Some(node) = self.nodes.get_mut(&state) else {
            return Vec::new();
        };
        let of_old = after(state, &node.steps[..shared]);
        let of_new = after(state, &steps[..shared]);
        // The same return addresses, but the next lies elsewhere (`alloca`), or there is none.
        if of_old == of_new {
            return Vec::new();
        }
        let rest = Node {
            steps: node.steps.split_off(shared),
            end: node.end.take(),
        };
        let cut = (state, node.raw());
        let mut changes = vec![(of_old, rest.raw())];
        self.nodes.insert(of_old, rest);
        changes.extend(self.append(of_new, &steps[shared..], stack));
        changes.push(cut);
        changes
    }

    /// The stack of the path that begins with the state `root`, if it is known: what the kernel
    /// side finds in the stack whose words are `word`, once it has been told.
    pub fn find(&self, root: u64, word: impl Fn(u16) -> Option<u64>) -> Option<u64> {
        let mut state = root;
        for _ in 0..PATH_LEVELS {
            let node = self.nodes.get(&state)?;
            for step in &node.steps {
                state = mix(state, word(step.offset)?);
            }
            if let Some((_, stack)) = node.end.filter(|(end, _)| *end == state) {
                return Some(stack);
            }
        }
        None
    }

    /// The states that the kernel side knows.
    pub fn states(&self) -> impl ExactSizeIterator<Item = u64> {
        self.nodes.keys().copied()
    }
}

/// How many of these steps one node can list: the kernel side reads the words that they lie in at
/// once.
fn part(steps: &[Step]) -> usize {
    let Some(first) = steps.first() else {
        return 0;
    };
    let words = |step: &Step| usize::from(step.offset).wrapping_sub(usize::from(first.offset));
    let fits = |step: &&Step| words(step) < PATH_WORDS;
    steps.iter().take(PATH_STEPS).take_while(fits).count()
}

fn after(state: u64, steps: &[Step]) -> u64 {
    steps
        .iter()
        .fold(state, |state, step| mix(state, step.word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The kernel side.
    #[derive(Default)]
    struct Kernel(HashMap<u64, RawPath>);

    impl Kernel {
        fn enter(&mut self, changes: Vec<Change>) {
            self.0.extend(changes);
        }

        /// `gp_cached_path`.
        fn walk(&self, mut state: u64, stack: &[u64]) -> u64 {
            for _ in 0..PATH_LEVELS {
                let Some(path) = self.0.get(&state) else {
                    return 0;
                };
                let offsets = &path.offsets[..usize::from(path.count)];
                assert!(
                    offsets
                        .last()
                        .is_none_or(|last| usize::from(last - offsets[0]) < PATH_WORDS)
                );
                for offset in offsets {
                    let word = stack.get(usize::from(*offset)).copied();
                    state = mix(state, word.unwrap_or(0));
                }
                if state == path.end {
                    return path.stack;
                }
            }
            0
        }
    }

    /// A program: the function around place `n` has a frame of a size that `n` determines, and its
    /// locals are noise.
    fn stack(path: &[u8], noise: u64) -> (Vec<u64>, Vec<Step>) {
        let (mut words, mut steps) = (vec![1], Vec::new());
        let mut inside = 4;
        for (index, place) in path.iter().enumerate() {
            for local in 0..std::mem::replace(&mut inside, *place) % 7 {
                words.push(noise ^ (u64::from(local) << 8 | index as u64));
            }
            let (offset, word) = (words.len(), 0x1000 + u64::from(*place));
            words.push(word);
            let offset = u16::try_from(offset).unwrap_or(u16::MAX);
            steps.push(Step { offset, word });
        }
        words.push(noise);
        (words, steps)
    }

    /// Complete paths: they all end in the same outermost function, which is nowhere else.
    fn paths() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let path = prop::collection::vec(1u8..6, 0..60).prop_map(|mut path| {
            path.push(200);
            path
        });
        prop::collection::vec(path, 1..20)
    }

    proptest! {
        #[test]
        fn every_path_is_told_apart(paths in paths(), noise in any::<u64>()) {
            let (mut tree, mut kernel) = (Paths::default(), Kernel::default());
            let mut known: HashMap<Vec<u8>, u64> = HashMap::new();
            for (index, path) in paths.iter().enumerate() {
                let id = index as u64 + 1;
                let (_, steps) = stack(path, noise);
                kernel.enter(tree.learn(7, &steps, *known.entry(path.clone()).or_insert(id)));
                for (path, id) in &known {
                    // Each is found whatever its locals are now, or not found: never another.
                    let (words, steps) = stack(path, noise.wrapping_mul(3));
                    let found = kernel.walk(7, &words);
                    prop_assert!(found == *id || found == 0, "{found} is not {id}");
                    let word = |at: u16| words.get(usize::from(at)).copied();
                    prop_assert_eq!(tree.find(7, word).unwrap_or(0), found);
                    // With so many parts at most, only what parts from many others is not found.
                    prop_assert!(found == *id || steps.len() > PATH_LEVELS);
                }
            }
        }

        #[test]
        fn learning_never_panics(
            paths in prop::collection::vec(
                prop::collection::vec((0u16..8, 0u64..4), 0..40), 0..20),
        ) {
            let mut tree = Paths::default();
            for (index, path) in paths.iter().enumerate() {
                let steps: Vec<_> =
                    path.iter().map(|&(offset, word)| Step { offset, word }).collect();
                tree.learn(0, &steps, index as u64 + 1);
            }
        }
    }

    #[test]
    fn a_path_that_parts_late_shares_what_comes_before() {
        let (mut tree, mut kernel) = (Paths::default(), Kernel::default());
        let mut one: Vec<u8> = vec![3; 40];
        let mut other = one.clone();
        one.push(1);
        other.push(2);
        let (words, steps) = stack(&one, 5);
        kernel.enter(tree.learn(1, &steps, 11));
        assert_eq!(kernel.walk(1, &words), 11);
        let (others, steps) = stack(&other, 6);
        assert_eq!(kernel.walk(1, &others), 0);
        let changes = tree.learn(1, &steps, 22);
        assert!(changes.len() <= 3, "{changes:?}");
        kernel.enter(changes);
        assert_eq!((kernel.walk(1, &words), kernel.walk(1, &others)), (11, 22));
        assert!(tree.learn(1, &steps, 22).is_empty(), "known by now");
    }
}
