//! Test programs with known call paths: build, stop, unwind.

mod build;
mod stopped;

pub(crate) use build::{Build, folder, named, run};
pub(crate) use stopped::Stopped;

use std::path::Path;

use gpuprobe_model::stack::{CallStack, Frame};
use gpuprobe_stacks::helper::{FileReader, HelperHost, ProcessReader};
use gpuprobe_stacks::program::ON_THREADS;
use gpuprobe_stacks::symbols::{SymbolRequest, Symbolizer};
use gpuprobe_stacks::{AddressSpaces, StackCopy, Unwound};

/// An unwinder and a symboliser.
pub(crate) struct World {
    pub(crate) spaces: AddressSpaces,
    pub(crate) symbolizer: Symbolizer,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::at(ON_THREADS)
    }

    /// With helpers at `place`.
    pub(crate) fn at(place: HelperHost) -> Self {
        let (files, processes) = (FileReader::new(place), ProcessReader::new(place));
        Self {
            symbolizer: Symbolizer::new(files.slow(), processes.clone()),
            spaces: AddressSpaces::new(files, processes),
        }
    }

    pub(crate) fn frames(&mut self, pid: u32, stack: &CallStack) -> Vec<Frame> {
        let mut frames = Vec::new();
        for (index, location) in stack.locations.iter().enumerate() {
            let module = location.module.and_then(|id| self.spaces.module(id));
            let request = SymbolRequest {
                pid,
                location: *location,
                is_innermost: index == 0,
            };
            frames.extend(self.symbolizer.answer(request, module.as_ref()).frames);
        }
        frames
    }

    /// The functions of a stack, of which at most `size` bytes are copied.
    pub(crate) fn stack(&mut self, process: &Stopped, size: usize) -> (Unwound, Vec<String>) {
        let registers = process.registers();
        let bytes = process.stack(registers.rsp, size);
        let copy = StackCopy {
            ip: registers.rip,
            sp: registers.rsp,
            bp: registers.rbp,
            bytes: &bytes,
            replaced: &[],
        };
        let unwound = self.spaces.unwind(process.pid(), &copy);
        assert_eq!(unwound.slots.len() + 1, unwound.stack.locations.len());
        let frames = self.frames(process.pid(), &unwound.stack);
        let names = names(&frames);
        (unwound, names)
    }

    /// The functions of the whole stack.
    pub(crate) fn names(&mut self, process: &Stopped) -> Vec<String> {
        self.spaces.refresh(process.pid());
        let (unwound, names) = self.stack(process, 1 << 20);
        assert!(unwound.stack.is_complete, "{names:#?}");
        names
    }
}

/// The frames of the program when it stands still, with files that are read there.
pub(crate) fn frames_of(program: &Path, place: HelperHost) -> Vec<Frame> {
    let process = Stopped::start(program, &[]);
    let mut world = World::at(place);
    world.spaces.refresh(process.pid());
    let (unwound, _) = world.stack(&process, 1 << 16);
    world.frames(process.pid(), &unwound.stack)
}

/// Function names, with `inlined` if so; system libraries as one frame each.
pub(crate) fn names(frames: &[Frame]) -> Vec<String> {
    let name = |frame: &Frame| {
        let library = frame.module.rsplit('/').next().unwrap_or_default();
        if library.starts_with("libc.so") || library.starts_with("ld-linux") {
            return "libc".to_owned();
        }
        let mark = if frame.inlined { " inlined" } else { "" };
        format!("{}{mark}", frame.function)
    };
    let mut names: Vec<_> = frames.iter().map(name).collect();
    names.dedup_by(|a, b| a == b && a == "libc");
    // What is inlined at the stop depends on the compiler.
    let own = names.iter().position(|name| !name.ends_with(" inlined"));
    names.split_off(own.unwrap_or(0))
}
