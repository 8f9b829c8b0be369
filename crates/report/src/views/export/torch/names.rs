//! Numbers for call stacks and for owners of memory.

use std::collections::HashMap;
use std::rc::Rc;

use crate::label;
use crate::owners::Owners;
use gpuprobe_model::stack::{CallStack, Frame, KnownFrames};

/// Owner of memory: the category in the viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner(u32);

impl Owner {
    /// Memory of PyTorch's caching allocator.
    pub(super) const PYTORCH: Self = Self(0);
    /// Memory that NVML reports beyond traced memory.
    pub(super) const CONTEXT: Self = Self(1);
    /// The call stack is missing, or names no owner.
    const UNKNOWN: Self = Self(2);
}

/// A category that the viewer requires.
pub(super) use crate::owners::UNKNOWN;

/// Call sites of tensors with a category of their own: the viewer has ten colours in all.
const SITES: usize = 5;

/// Number of a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StackId(u32);

impl StackId {
    /// No stack was captured.
    pub(super) const NONE: Self = Self(0);
    /// Stands for context memory, which has a description instead of a stack.
    pub(super) const CONTEXT: Self = Self(1);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The call stacks of a process, and the owners of their memory.
pub(super) struct StackNames<'a> {
    pid: u32,
    symbols: &'a KnownFrames,
    stacks: HashMap<Rc<CallStack>, StackId>,
    /// The same by address of the stack, which is quicker to look up; holding the `Rc` keeps the
    /// address from being reused.
    by_pointer: HashMap<*const CallStack, (StackId, Rc<CallStack>)>,
    by_id: Vec<Rc<CallStack>>,
    libraries: Owners<'a>,
    owners: Vec<String>,
    by_name: HashMap<String, Owner>,
    by_stack: HashMap<StackId, Owner>,
    /// Categories of tensors, by the call stack of the allocation.
    sites: HashMap<StackId, Owner>,
}

impl<'a> StackNames<'a> {
    /// For process `pid`, with frames named by `symbols`.
    pub(super) fn new(pid: u32, symbols: &'a KnownFrames) -> Self {
        let mut names = Self {
            pid,
            symbols,
            stacks: HashMap::new(),
            by_pointer: HashMap::new(),
            by_id: vec![Rc::default(), Rc::default()],
            libraries: Owners::new(symbols),
            owners: Vec::new(),
            by_name: HashMap::new(),
            by_stack: HashMap::new(),
            sites: HashMap::new(),
        };
        // In the order of their numbers.
        for name in ["PyTorch", "context", UNKNOWN] {
            names.owner_named(name);
        }
        names
    }

    /// Number of a call stack.
    pub(super) fn stack(&mut self, stack: &Rc<CallStack>) -> StackId {
        let pointer = Rc::as_ptr(stack);
        if let Some((known, _)) = self.by_pointer.get(&pointer) {
            return *known;
        }
        let next = StackId(u32::try_from(self.by_id.len()).unwrap_or(0));
        let id = *self.stacks.entry(Rc::clone(stack)).or_insert(next);
        if id == next {
            self.by_id.push(Rc::clone(stack));
        }
        self.by_pointer.insert(pointer, (id, Rc::clone(stack)));
        id
    }

    /// Forgets addresses of call stacks: the log is replayed, which creates them anew.
    pub(super) fn begin_replay(&mut self) {
        self.by_pointer.clear();
    }

    /// Frames of a call stack, innermost first.
    pub(super) fn frames(&self, stack: StackId) -> Vec<Frame> {
        self.by_id[stack.index()].frames(self.pid, self.symbols)
    }

    /// Name of an owner.
    pub(super) fn name(&self, owner: Owner) -> &str {
        &self.owners[owner.0 as usize]
    }

    /// Category of a block: its owner; for PyTorch's, the call site if that is one of the largest.
    pub(super) fn category(&self, owner: Owner, stack: StackId) -> &str {
        let site = self.sites.get(&stack).filter(|_| owner == Owner::PYTORCH);
        self.name(site.copied().unwrap_or(owner))
    }

    /// Adds call sites of tensors, with the peak of live bytes of each: the largest become
    /// categories of their own.
    pub(super) fn note_sites(&mut self, sites: &[(Rc<CallStack>, u64)]) {
        let mut labels: HashMap<String, (u64, Vec<StackId>)> = HashMap::new();
        for (stack, bytes) in sites {
            let stack = self.stack(stack);
            if let Some(label) = label::label(&self.frames(stack)) {
                let (sum, stacks) = labels.entry(label).or_default();
                *sum = sum.saturating_add(*bytes);
                stacks.push(stack);
            }
        }
        let mut labels: Vec<_> = labels.into_iter().collect();
        labels.sort_by(|a, b| (b.1.0, &a.0).cmp(&(a.1.0, &b.0)));
        for (label, (_, stacks)) in labels.into_iter().take(SITES) {
            let owner = self.owner_named(&label);
            self.sites
                .extend(stacks.into_iter().map(|stack| (stack, owner)));
        }
    }

    fn owner_named(&mut self, name: &str) -> Owner {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let next = Owner(u32::try_from(self.owners.len()).unwrap_or(Owner::UNKNOWN.0));
        self.owners.push(name.to_owned());
        self.by_name.insert(name.to_owned(), next);
        next
    }

    /// Owner of memory allocated with this call stack.
    pub(super) fn owner_of(&mut self, stack: StackId) -> Owner {
        if let Some(known) = self.by_stack.get(&stack) {
            return *known;
        }
        let library = self.libraries.of_stack(&self.by_id[stack.index()]).owner;
        let name = self.libraries.name(library).to_owned();
        let owner = self.owner_named(&name);
        self.by_stack.insert(stack, owner);
        owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Language, Location, ModuleId, bare_frame};

    #[test]
    fn owners_are_categories_besides_the_fixed_ones() {
        let mut symbols = KnownFrames::default();
        let mut stack = |files: &[&str]| {
            let location = |(number, file): (u32, &&str)| {
                let module = ModuleId(number + 10 * u32::try_from(files.len()).unwrap_or(0));
                symbols.insert_module(module, file);
                Location {
                    address: 0,
                    module: Some(module),
                    offset: 0,
                }
            };
            Rc::new(CallStack {
                locations: (0..).zip(files).map(location).collect(),
                is_complete: true,
            })
        };
        let cases = [
            (
                stack(&["/x/libcudart.so.12", "/x/libnccl.so.2", "/srv/app"]),
                "libnccl",
            ),
            (stack(&["/x/libcudart.so.12", "/srv/app"]), "app"),
            (stack(&["/x/libcudart.so.12"]), UNKNOWN),
        ];
        let mut names = StackNames::new(1, &symbols);
        for (stack, expected) in cases {
            let id = names.stack(&stack);
            let owner = names.owner_of(id);
            assert_eq!(names.name(owner), expected);
            assert_eq!(names.stack(&Rc::new((*stack).clone())), id);
        }
        let none = names.owner_of(StackId::NONE);
        assert_eq!(names.name(none), UNKNOWN);
        assert_eq!(names.name(Owner::PYTORCH), "PyTorch");
        assert_eq!(names.name(Owner::CONTEXT), "context");
    }

    #[test]
    fn the_largest_call_sites_of_tensors_are_categories() {
        let mut symbols = KnownFrames::default();
        let mut sites = Vec::new();
        // Two stacks per line; later lines have more bytes.
        for line in 0..7u32 {
            let named = |location: &Location| Frame {
                function: "step".to_owned(),
                file: Some("/home/ada/train.py".to_owned()),
                line: Some(line),
                module: String::new(),
                language: Language::Python,
                ..bare_frame(location)
            };
            for number in [line, line + 100] {
                let location = Location::python(number);
                symbols.insert(1, location, true, vec![named(&location)]);
                let stack = CallStack {
                    locations: vec![location],
                    is_complete: true,
                };
                sites.push((Rc::new(stack), u64::from(line) + 1));
            }
        }
        let mut names = StackNames::new(1, &symbols);
        names.note_sites(&sites);
        let found: Vec<_> = sites
            .iter()
            .map(|(stack, _)| {
                let stack = names.stack(stack);
                assert_eq!(names.category(Owner::CONTEXT, stack), "context");
                names.category(Owner::PYTORCH, stack).to_owned()
            })
            .collect();
        let named = |line: u32| vec![format!("train.py:{line} step"); 2];
        let others = vec!["PyTorch".to_owned(); 4];
        assert_eq!(found, [others, (2..7).flat_map(named).collect()].concat());
    }
}
