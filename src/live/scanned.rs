//! Result of a process scan.

use std::collections::HashSet;

use anyhow::Error;

use crate::host::LibraryId;
use gpuprobe_stacks::functions::FunctionInFile as FoundFunction;
use gpuprobe_stacks::instruction::FirstInstruction;

/// Result of a process scan.
#[derive(Debug, Default)]
pub struct ScanResult {
    /// Number of CUDA functions newly probed.
    pub functions: usize,
    /// At least one library could not be probed, now or in an earlier scan.
    pub incomplete: bool,
    /// The probed files that the process has mapped.
    pub uses: HashSet<LibraryId>,
    /// Failures not reported to the user yet.
    pub failures: Vec<Error>,
}

impl ScanResult {
    /// Prints and clears the failures.
    pub fn warn(&mut self) {
        for failure in self.failures.drain(..) {
            tracing::warn!("{failure:#}");
        }
    }
}

/// The names of the `functions` that begin with such an instruction, at most three of them and the
/// number of the others; `None` if there are none.
pub(super) fn beginning(functions: &[FoundFunction], first: FirstInstruction) -> Option<String> {
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
