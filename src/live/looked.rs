//! What came of looking at a process.

use std::collections::HashSet;

use anyhow::Error;

use crate::host::LibraryId;
use gpuprobe_stacks::functions::Function as FoundFunction;
use gpuprobe_stacks::instruction::First;

/// What came of looking at a process.
#[derive(Debug, Default)]
pub struct Looked {
    /// CUDA functions that are newly probed.
    pub functions: usize,
    /// A library could not be probed, now or before.
    pub incomplete: bool,
    /// The probed files that it has mapped.
    pub uses: HashSet<LibraryId>,
    /// Failures that the user has not been told yet.
    pub failures: Vec<Error>,
}

impl Looked {
    /// Tells the user what could not be probed.
    pub fn warn(&mut self) {
        for failure in self.failures.drain(..) {
            tracing::warn!("{failure:#}");
        }
    }
}

/// Which of `functions` begin with such an instruction, for messages; `None` if none do.
pub(super) fn beginning(functions: &[FoundFunction], first: First) -> Option<String> {
    const NAMED: usize = 3;
    let found = functions.iter().filter(|f| f.first == first);
    let names: Vec<_> = found.map(|f| f.symbol).collect();
    let some = names[..names.len().min(NAMED)].join(", ");
    match names.len() {
        0 => None,
        1..=NAMED => Some(some),
        count => Some(format!("{some} and {} others", count - NAMED)),
    }
}
