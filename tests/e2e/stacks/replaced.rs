//! Symbols of a mapped file that was replaced on disk: they are read through `/proc/PID/map_files`,
//! which needs root. The tests that need no root are in `tests/stacks`.

use std::fs;

#[path = "../../../crates/stacks/tests/stacks/harness/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the tests of stacks use more of it"
)]
mod harness;

use crate::harness::require_bpf;
use harness::{Build, Stopped, World, folder};

const NAMES: [&str; 5] = ["leaf", "inner", "middle", "outer", "main"];

#[test]
fn root_symbols_of_a_replaced_file_that_is_still_mapped() {
    require_bpf();
    let folder = folder();
    let chain = Build {
        source: "chain.c",
        flags: &["-O2"],
        is_stripped: false,
    };
    let program = chain.put(folder.path());
    let process = Stopped::start(&program, &[]);
    let other = Build {
        source: "contexts.c",
        flags: &["-O0"],
        is_stripped: false,
    };
    fs::rename(other.put(folder.path()), &program).unwrap();
    let mut world = World::new();
    let names = world.names(&process);
    assert_eq!(names[..5], NAMES);
    // The new file has the same path and is another module.
    let newer = Stopped::start(&program, &["altstack"]);
    let (_, names) = world.stack(&newer, 1 << 14);
    assert_eq!(names[0], "bottom");
}
