//! Kernel runs of a process, by kernel name.

use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

use super::tally::Tally;
use gpuprobe_stacks::symbols;
use gpuprobe_wire as wire;

/// Kernels counted separately per process; runs of further ones are counted together.
const MAX_KERNELS: usize = 16_384;

/// A kernel and its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRuns {
    /// Demangled name, as in the source.
    pub name: Arc<str>,
    /// Mangled name, as the compiler emits it.
    pub mangled: Arc<str>,
    /// Number and durations of its runs.
    pub runs: Tally,
    /// Number of runs at the last report.
    pub reported: u64,
    /// Blocks of the first run, in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block of the first run, in x, y and z.
    pub block: [u32; 3],
    /// Registers per thread of the first run.
    pub registers_per_thread: u16,
    /// Static and dynamic shared memory per block of the first run, bytes.
    pub shared_memory: u64,
}

/// The kernels of a process, by mangled name.
#[derive(Clone, Debug, Default)]
pub struct KernelsOfProcess {
    kernels: IndexMap<Arc<str>, KernelRuns, DefaultHashBuilder>,
    /// Runs of kernels without a name.
    pub unnamed: Tally,
    /// Runs of kernels beyond the limit on separate kernels.
    pub others: Tally,
}

impl KernelsOfProcess {
    /// Counts a run of the kernel `name`.
    pub(super) fn add(&mut self, name: Option<&Arc<str>>, run: &wire::Kernel) {
        let (start_ns, end_ns) = (run.start_ns, run.end_ns);
        let Some(name) = name else {
            self.unnamed.add(start_ns, end_ns);
            return;
        };
        if let Some(known) = self.kernels.get_mut(name) {
            known.runs.add(start_ns, end_ns);
            return;
        }
        if self.kernels.len() >= MAX_KERNELS {
            self.others.add(start_ns, end_ns);
            return;
        }
        let mut kernel = KernelRuns {
            name: symbols::demangle(name).into(),
            mangled: Arc::clone(name),
            runs: Tally::default(),
            reported: 0,
            grid: run.grid,
            block: run.block,
            registers_per_thread: run.registers_per_thread,
            shared_memory: u64::from(run.static_shared_memory)
                + u64::from(run.dynamic_shared_memory),
        };
        kernel.runs.add(start_ns, end_ns);
        self.kernels.insert(Arc::clone(name), kernel);
    }

    /// All kernels that are counted separately.
    pub fn iter(&self) -> impl Iterator<Item = &KernelRuns> {
        self.kernels.values()
    }

    /// The demangled name of the kernel with this mangled name, if it has run.
    pub fn name_of(&self, mangled: &str) -> Option<&Arc<str>> {
        Some(&self.kernels.get(mangled)?.name)
    }

    pub(super) fn mark_reported(&mut self) {
        for kernel in self.kernels.values_mut() {
            kernel.reported = kernel.runs.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start_ns: u64, end_ns: u64) -> wire::Kernel {
        wire::Kernel {
            start_ns,
            end_ns,
            registers_per_thread: 3,
            ..wire::Kernel::default()
        }
    }

    #[test]
    fn names_are_the_same_wherever_they_are_in_memory() {
        let mut kernels = KernelsOfProcess::default();
        let (first, second): (Arc<str>, Arc<str>) = ("_Z1av".into(), "_Z1av".into());
        for name in [&first, &second, &first] {
            kernels.add(Some(name), &run(10, 12));
        }
        kernels.add(None, &run(10, 17));
        assert_eq!((kernels.unnamed.count, kernels.unnamed.total_ns), (1, 7));
        let kernel = kernels.iter().next();
        let kernel = kernel.map(|k| (&*k.name, k.runs.count, k.registers_per_thread));
        assert_eq!(kernel, Some(("a()", 3, 3)));
        let names = ["_Z1av", "_Z1bv"].map(|name| kernels.name_of(name).map(|name| &**name));
        assert_eq!(names, [Some("a()"), None]);
    }

    #[test]
    fn kernels_are_bounded() {
        let mut kernels = KernelsOfProcess::default();
        let name = |number: usize| Arc::from(format!("kernel {number}"));
        for number in 0..MAX_KERNELS + 2 {
            kernels.add(Some(&name(number)), &run(1, 2));
        }
        assert_eq!(
            (kernels.iter().count(), kernels.others.count),
            (MAX_KERNELS, 2)
        );
        kernels.add(Some(&name(0)), &run(1, 2));
        let first = kernels.iter().next().map(|kernel| kernel.runs.count);
        assert_eq!(first, Some(2));
    }
}
