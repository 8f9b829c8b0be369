//! Memory of readers while gpuprobe itself has much.

use std::fmt::Write;
use std::fs::{self, File};

use gpuprobe_model::stack::Location;
use gpuprobe_stacks::reader::limit_readers;
use gpuprobe_stacks::symbols::SymbolRequest;
use procfs::process::{Process, all_processes};

use crate::PLACE;
use crate::harness::{World, folder};

const PID: u32 = 7;
/// More functions than a reader can keep in the memory that it has in any case.
const FUNCTIONS: u64 = 200_000;
const STEP: u64 = 0x10;

/// The name in the perf map of the function at this place.
fn name(world: &mut World, place: u64) -> Option<String> {
    let request = SymbolRequest {
        pid: PID,
        location: Location {
            address: (place + 1) * STEP,
            module: None,
            offset: 0,
        },
        is_innermost: true,
    };
    let frames = world.symbolizer.answer(request).frames;
    let function = frames.first().map(|frame| frame.function.clone())?;
    function.starts_with("made_").then_some(function)
}

/// Resident memory of the largest child process, KiB.
fn largest_child_kib() -> u64 {
    let own = i32::try_from(std::process::id()).unwrap();
    let is_ours = |process: &Process| process.stat().is_ok_and(|stat| stat.ppid == own);
    let children = all_processes().unwrap().flatten().filter(is_ours);
    let kib = children.filter_map(|child| child.status().ok()?.rssanon);
    kib.max().unwrap_or(0)
}

/// It fails at what takes more, which is not held against the file, and is ended if it has more already.
pub(crate) fn a_reader_has_the_memory_that_is_left() {
    let folder = folder();
    let path = folder.path().join("perf.map");
    let mut map = String::new();
    for place in 0..FUNCTIONS {
        let begin = (place + 1) * STEP;
        writeln!(map, "{begin:x} {STEP:x} made_{place:040}").unwrap();
    }
    fs::write(&path, &map).unwrap();
    let mut world = World::at(PLACE);
    limit_readers(0);
    let file = File::open(&path).unwrap();
    world.symbolizer.keep_perf_map(PID, file);
    assert_eq!(name(&mut world, 1), None);
    assert!(largest_child_kib() < 8 << 10);
    for place in 2..4 {
        limit_readers(u64::MAX);
        let expected = format!("made_{place:040}");
        assert_eq!(name(&mut world, place), Some(expected));
        assert!(largest_child_kib() > 8 << 10);
        limit_readers(0);
        // A process that is being ended has its memory for a moment.
        while largest_child_kib() > 8 << 10 {
            std::thread::yield_now();
        }
    }
    limit_readers(u64::MAX);
}
