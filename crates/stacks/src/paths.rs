//! Call paths in the kernel side's form, which identifies a stack without unwinding it.
//!
//! The layout of a function's frame follows from its call site, so a path is recognised step by step: the
//! return address found so far determines where the next one is. The paths of a process form a tree. A
//! state is a hash of all return addresses so far ([`mix`]); a node has the offsets of the next few return
//! addresses and is looked up by the state before them. Where paths diverge, nodes are split. The walk
//! itself is in `bpf/paths.h`, and in the tests below.

use std::collections::HashMap;

use gpuprobe_model::abi::{MIX_HIGH, MIX_LOW, PATH_LEVELS, PATH_STEPS, PATH_WORDS, RawPath};

/// The state after return address `word`, as `gp_mix` in `bpf/paths.h` computes it.
pub fn mix(state: u64, word: u64) -> u64 {
    let state = (state ^ word).wrapping_mul(MIX_HIGH << 32 | MIX_LOW);
    state ^ state >> 32
}

/// A return address on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Offset in 8-byte words above the stack pointer at function entry.
    pub offset: u16,
    /// The return address found there.
    pub word: u64,
}

#[derive(Clone, Debug)]
struct PathNode {
    /// Steps of the path that created the node; other paths through it share the offsets only.
    steps: Vec<PathStep>,
    /// State and stack id of the path that ends after these steps.
    end: Option<(u64, u64)>,
}

impl PathNode {
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

/// The call paths of a process.
#[derive(Debug, Default)]
pub struct Paths {
    nodes: HashMap<u64, PathNode>,
}

/// An update for the kernel side: a state, and the continuation from there.
pub type Change = (u64, RawPath);

impl Paths {
    /// Adds a path that begins in state `root` and has stack id `stack`. Returns the updates in the order in
    /// which they must be applied; none if the path has the same return addresses as another.
    pub fn learn(&mut self, root: u64, mut steps: &[PathStep], stack: u64) -> Vec<Change> {
        let mut state = root;
        for _ in 0..PATH_LEVELS {
            let Some(node) = self.nodes.get(&state) else {
                return self.append(state, steps, stack);
            };
            let same = |(a, b): &(&PathStep, &PathStep)| a.offset == b.offset;
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

    /// Appends the part that no other path shares.
    fn append(&mut self, mut state: u64, mut steps: &[PathStep], stack: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            let (some, rest) = steps.split_at(part(steps));
            let next = after(state, some);
            let node = PathNode {
                steps: some.to_vec(),
                end: rest.is_empty().then_some((next, stack)),
            };
            changes.push((state, node.raw()));
            self.nodes.insert(state, node);
            if rest.is_empty() {
                // Last part first: a concurrent walk finds either nothing or the whole path.
                changes.reverse();
                return changes;
            }
            (state, steps) = (next, rest);
        }
    }

    /// Splits the node at `state` after `shared` steps and appends the rest of both paths.
    fn split(&mut self, state: u64, shared: usize, steps: &[PathStep], stack: u64) -> Vec<Change> {
        let Some(node) = self.nodes.get_mut(&state) else {
            return Vec::new();
        };
        let of_old = after(state, &node.steps[..shared]);
        let of_new = after(state, &steps[..shared]);
        // The same return addresses, but the next one is at another offset (`alloca`) or missing.
        if of_old == of_new {
            return Vec::new();
        }
        let rest = PathNode {
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

    /// The stack id of the path from state `root` through the stack with words `word`, if it is known: the
    /// result of the kernel side's walk once all updates are applied.
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

    /// The states with a node.
    pub fn states(&self) -> impl ExactSizeIterator<Item = u64> {
        self.nodes.keys().copied()
    }
}

/// Number of leading steps that fit a node, whose words the kernel side reads at once.
fn part(steps: &[PathStep]) -> usize {
    let Some(first) = steps.first() else {
        return 0;
    };
    let words = |step: &PathStep| usize::from(step.offset).wrapping_sub(usize::from(first.offset));
    let fits = |step: &&PathStep| words(step) < PATH_WORDS;
    steps.iter().take(PATH_STEPS).take_while(fits).count()
}

fn after(state: u64, steps: &[PathStep]) -> u64 {
    steps
        .iter()
        .fold(state, |state, step| mix(state, step.word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A model of the kernel side's map.
    #[derive(Default)]
    struct PathMap(HashMap<u64, RawPath>);

    impl PathMap {
        fn enter(&mut self, changes: Vec<Change>) {
            self.0.extend(changes);
        }

        /// The walk of `gp_cached_path`.
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

    /// A stack of a program in which call site `n` determines the size of the caller's frame; locals are
    /// noise.
    fn stack(path: &[u8], noise: u64) -> (Vec<u64>, Vec<PathStep>) {
        let (mut words, mut steps) = (vec![1], Vec::new());
        let mut inside = 4;
        for (index, place) in path.iter().enumerate() {
            for local in 0..std::mem::replace(&mut inside, *place) % 7 {
                words.push(noise ^ (u64::from(local) << 8 | index as u64));
            }
            let (offset, word) = (words.len(), 0x1000 + u64::from(*place));
            words.push(word);
            let offset = u16::try_from(offset).unwrap_or(u16::MAX);
            steps.push(PathStep { offset, word });
        }
        words.push(noise);
        (words, steps)
    }

    /// Complete paths: all end in the same outermost function, which occurs only there.
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
            let (mut tree, mut kernel) = (Paths::default(), PathMap::default());
            let mut known: HashMap<Vec<u8>, u64> = HashMap::new();
            for (index, path) in paths.iter().enumerate() {
                let id = index as u64 + 1;
                let (_, steps) = stack(path, noise);
                kernel.enter(tree.learn(7, &steps, *known.entry(path.clone()).or_insert(id)));
                for (path, id) in &known {
                    // Found whatever the locals are, or not found; never another one.
                    let (words, steps) = stack(path, noise.wrapping_mul(3));
                    let found = kernel.walk(7, &words);
                    prop_assert!(found == *id || found == 0, "{found} is not {id}");
                    let word = |at: u16| words.get(usize::from(at)).copied();
                    prop_assert_eq!(tree.find(7, word).unwrap_or(0), found);
                    // Not found only beyond the number of levels, after many divergences.
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
                    path.iter().map(|&(offset, word)| PathStep { offset, word }).collect();
                tree.learn(0, &steps, index as u64 + 1);
            }
        }
    }

    #[test]
    fn diverging_paths_share_their_common_part() {
        let (mut tree, mut kernel) = (Paths::default(), PathMap::default());
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

    #[test]
    fn states_are_those_of_the_kernel_side() {
        assert_eq!(mix(3, 1), 0x3c6e_f372_c2fa_0b58);
        assert_eq!(mix(0, 0x1000), 0x779b_97f4_d05a_c7f4);
        let step = |offset| PathStep { offset, word: 1 };
        let part = |offsets: &[u16]| {
            let steps: Vec<_> = offsets.iter().copied().map(step).collect();
            part(&steps)
        };
        let many: Vec<u16> = (0..100).collect();
        assert_eq!([part(&[]), part(&many)], [0, PATH_STEPS]);
        // A part spans as many words.
        assert_eq!([part(&[0, 511]), part(&[0, 512])], [2, 1]);
        assert_eq!(
            [part(&[5, 516, 517]), part(&[5, 517]), part(&[5, 4])],
            [2, 1, 1]
        );
    }
}
