//! Call stacks and owners of memory, by numbers.

use std::collections::HashMap;
use std::rc::Rc;

use crate::label;
use gpuprobe_model::stack::{CallStack, Frame, JIT, KnownFrames, Language, NO_MODULE};
use gpuprobe_stacks::allocators::is_inner;
use gpuprobe_stacks::cuda::file_name;

/// Whose memory is: the category that the viewer shows it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner(u32);

impl Owner {
    /// PyTorch's caching allocator.
    pub(super) const PYTORCH: Self = Self(0);
    /// What `nvidia-smi` says beyond what was traced.
    pub(super) const CONTEXT: Self = Self(1);
    /// A call stack was not taken, or names nobody.
    const UNKNOWN: Self = Self(2);
}

/// The category without which the viewer stops with an error.
pub(super) const UNKNOWN: &str = "unknown";

/// Call sites of tensors that are categories: the viewer has ten colours for all.
const SITES: usize = 5;

/// A call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StackId(u32);

impl StackId {
    /// None was taken.
    pub(super) const NONE: Self = Self(0);
    /// There is none; what it is is said instead.
    pub(super) const CONTEXT: Self = Self(1);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The call stacks of a process and who called.
pub(super) struct Names<'a> {
    pid: u32,
    symbols: &'a KnownFrames,
    stacks: HashMap<Rc<CallStack>, StackId>,
    /// The same by where they are, which is quicker to find; and they, so that they stay there.
    by_pointer: HashMap<*const CallStack, (StackId, Rc<CallStack>)>,
    by_id: Vec<Rc<CallStack>>,
    owners: Vec<String>,
    by_name: HashMap<String, Owner>,
    by_stack: HashMap<StackId, Owner>,
    /// Categories of tensors, by the call stack with which they were handed out.
    sites: HashMap<StackId, Owner>,
}

impl<'a> Names<'a> {
    /// Of the process `pid`, whose frames `symbols` knows.
    pub(super) fn new(pid: u32, symbols: &'a KnownFrames) -> Self {
        let mut names = Self {
            pid,
            symbols,
            stacks: HashMap::new(),
            by_pointer: HashMap::new(),
            by_id: vec![Rc::default(), Rc::default()],
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

    /// The number of a call stack.
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

    /// The log is played from its beginning, which makes the call stacks anew.
    pub(super) fn begin_again(&mut self) {
        self.by_pointer.clear();
    }

    /// The frames of a call stack, innermost first.
    pub(super) fn frames(&self, stack: StackId) -> Vec<Frame> {
        self.by_id[stack.index()].frames(self.pid, self.symbols)
    }

    /// What an owner is called.
    pub(super) fn name(&self, owner: Owner) -> &str {
        &self.owners[owner.0 as usize]
    }

    /// What a block is shown as: its owner; of PyTorch's, the call site if that is one of the largest.
    pub(super) fn category(&self, owner: Owner, stack: StackId) -> &str {
        let site = self.sites.get(&stack).filter(|_| owner == Owner::PYTORCH);
        self.name(site.copied().unwrap_or(owner))
    }

    /// The call sites of tensors, with the most bytes that were live at each: the largest are categories of
    /// their own.
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

    /// Whose memory it is that was allocated with this call stack: the file of the first native frame that
    /// is neither CUDA's nor an allocator's.
    pub(super) fn owner_of(&mut self, stack: StackId) -> Owner {
        if let Some(known) = self.by_stack.get(&stack) {
            return *known;
        }
        let frames = self.frames(stack);
        let owner = match frames.iter().find_map(library) {
            Some(name) => self.owner_named(name),
            None => Owner::UNKNOWN,
        };
        self.by_stack.insert(stack, owner);
        owner
    }
}

/// The library or program that a frame is of, without its version, if it can be an owner.
fn library(frame: &Frame) -> Option<&str> {
    let is_file = !matches!(&*frame.module, "" | JIT | NO_MODULE);
    let is_owner = frame.language == Language::Native && is_file && !is_inner(frame);
    let name = file_name(&frame.module);
    is_owner.then(|| name.split(".so").next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Location, ModuleId, bare_frame};

    #[test]
    fn the_owner_is_who_called_an_allocator_or_cuda() {
        let mut symbols = KnownFrames::default();
        let mut stack = |frames: &[(&str, &str)]| {
            let mut locations = Vec::new();
            for (function, module) in frames {
                let offset = symbols.bytes() as u64;
                let location = Location {
                    address: offset,
                    module: Some(ModuleId(1)),
                    offset,
                };
                let frame = Frame {
                    function: (*function).to_owned(),
                    module: (*module).to_owned(),
                    ..bare_frame(&location)
                };
                for is_innermost in [false, true] {
                    symbols.learn(1, location, is_innermost, vec![frame.clone()]);
                }
                locations.push(location);
            }
            Rc::new(CallStack {
                locations,
                is_complete: true,
            })
        };
        let malloc = ("cudaMalloc", "/usr/lib/libcudart.so.12");
        let main = ("main", "/srv/app");
        let cases = [
            (
                stack(&[
                    malloc,
                    ("ncclCudaMalloc", "/x/libnccl.so.2"),
                    ("ncclInit", "/x/libnccl.so.2"),
                    main,
                ]),
                "libnccl",
            ),
            (
                stack(&[
                    ("cuMemAlloc_v2", "/usr/lib/libcuda.so.1"),
                    malloc,
                    ("f", "/x/libcublasLt.so.12.8"),
                    main,
                ]),
                "libcublasLt",
            ),
            (
                stack(&[
                    malloc,
                    ("c10::cuda::alloc()", "/x/libc10_cuda.so"),
                    ("at::f", "/x/libtorch_cuda.so"),
                    main,
                ]),
                "libtorch_cuda",
            ),
            (stack(&[malloc, main]), "app"),
            (stack(&[malloc, ("0x12", NO_MODULE)]), UNKNOWN),
            (stack(&[]), UNKNOWN),
        ];
        let mut names = Names::new(1, &symbols);
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
        // Two stacks for each line, the more bytes the later it is.
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
                symbols.learn(1, location, true, vec![named(&location)]);
                let stack = CallStack {
                    locations: vec![location],
                    is_complete: true,
                };
                sites.push((Rc::new(stack), u64::from(line) + 1));
            }
        }
        let mut names = Names::new(1, &symbols);
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
