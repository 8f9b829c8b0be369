//! Unwinding on other stacks than the thread's, of deep stacks, and through anonymous code.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gpuprobe_model::abi::{RawStack, record};
use gpuprobe_model::stack::Language;
use gpuprobe_stacks::StackCopy;
use gpuprobe_stacks::helper::{FileReader, ProcessReader, Wanted};
use gpuprobe_stacks::store::StackStore;
use zerocopy::{FromZeros, IntoBytes};

use crate::harness::{Build, Stopped, World, folder};

fn start(folder: &Path, what: &str) -> Stopped {
    let build = Build {
        source: "contexts.c",
        flags: &["-O2", "-fomit-frame-pointer"],
        is_stripped: false,
    };
    Stopped::start(&build.put(folder), &[what])
}

fn names(what: &str) -> Vec<String> {
    let folder = folder();
    World::new().names(&start(folder.path(), what))
}

#[test]
fn through_a_signal_handler() {
    let names = names("signal");
    let expected = [
        "bottom",
        "handler",
        "libc",
        "interrupted",
        "handle",
        "main",
        "libc",
        "_start",
    ];
    let inlined = names.iter().filter(|name| *name != "handle");
    let expected = expected.iter().filter(|name| **name != "handle");
    assert!(inlined.eq(expected), "{names:?}");
}

#[test]
fn on_an_alternate_signal_stack() {
    let folder = folder();
    let process = start(folder.path(), "altstack");
    let mut world = World::new();
    let (unwound, names) = world.stack(&process, 1 << 14);
    // The thread's own stack is elsewhere, and not in the copy.
    assert_eq!(names, ["bottom", "handler", "libc", "interrupted"]);
    assert!(!unwound.stack.is_complete);
}

#[test]
fn on_the_stack_of_a_coroutine() {
    let folder = folder();
    let mut world = World::new();
    let (unwound, names) = world.stack(&start(folder.path(), "coroutine"), 1 << 14);
    assert_eq!(names, ["bottom", "in_coroutine", "libc"]);
    // The caller of the coroutine is on another stack. Some versions of glibc mark the end.
    assert!(unwound.slots.len() == 2);
}

/// Neither stack nor frame pointer leads to the callers, only saved other registers.
#[test]
fn through_functions_that_keep_their_frames_in_other_registers() {
    const PATH: [&str; 7] = [
        "bottom", "saver", "by_r12", "by_rbx", "main", "libc", "_start",
    ];
    for frame in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
        let build = Build {
            source: "registers.c",
            flags: &["-O2", frame],
            is_stripped: false,
        };
        let folder = folder();
        let process = Stopped::start(&build.put(folder.path()), &[]);
        assert_eq!(World::new().names(&process), PATH, "{frame}");
    }
}

#[test]
fn on_the_stack_of_a_thread() {
    assert_eq!(names("thread"), ["bottom", "in_thread", "libc"]);
}

const PYTHON_PATH: [&str; 8] = [
    "bottom", "Step.run", "between", "train", "jit", "main", "libc", "_start",
];

/// `CPython`'s trampolines, which have no unwind tables, in a program without frame pointers.
#[test]
fn through_code_that_was_made_at_run_time() {
    for form in ["jit-bare", "jit-framed"] {
        let folder = folder();
        let process = start(folder.path(), form);
        assert_eq!(World::new().names(&process), PYTHON_PATH, "{form}");
        fs::remove_file(format!("/tmp/perf-{}.map", process.pid())).unwrap();
    }
}

/// Its memory and its perf map are gone.
#[test]
fn through_code_of_a_process_that_has_ended() {
    for form in ["jit-bare", "jit-framed"] {
        let folder = folder();
        let process = start(folder.path(), form);
        let pid = process.pid();
        let mut world = World::new();
        world.spaces.refresh(pid);
        let registers = process.registers();
        let bytes = process.stack(registers.rsp, 1 << 20);
        let map = ProcessReader::default().open(&Wanted::PerfMap(pid), None);
        drop(process);
        fs::remove_file(format!("/tmp/perf-{pid}.map")).unwrap();
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let copy = StackCopy {
            ip: registers.rip,
            sp: registers.rsp,
            bp: registers.rbp,
            bytes: &bytes,
            replaced: &[],
        };
        let unwound = world.spaces.unwind(pid, &copy);
        world.symbolizer.keep_perf_map(pid, map);
        let frames = world.frames(pid, &unwound.stack);
        assert_eq!(crate::harness::names(&frames), PYTHON_PATH, "{form}");
        let step = frames.iter().find(|frame| frame.function == "Step.run");
        let step = step.unwrap();
        assert_eq!(step.file.as_deref(), Some("/x/step.py"));
        assert_eq!((step.language, &*step.module), (Language::Python, "[jit]"));
    }
}

/// Paths through trampolines are recognised, by the kernel side and here.
#[test]
fn paths_through_code_that_was_made_at_run_time_are_known_again() {
    let folder = folder();
    let process = start(folder.path(), "jit-bare");
    let mut world = World::new();
    world.spaces.refresh(process.pid());
    let (unwound, _) = world.stack(&process, 1 << 20);
    // As if `bottom` had just called a function.
    let sp = unwound.slots[0];
    let bytes = process.stack(sp, 1 << 14);
    let mut raw = RawStack::new_zeroed();
    (raw.record_type, raw.tgid, raw.process) = (record::STACK, process.pid(), 1);
    (raw.sp, raw.fp, raw.root) = (sp, process.registers().rbp, 7);
    raw.return_address = unwound.stack.locations[1].address;
    raw.copied = bytes.len().try_into().unwrap();
    let mut store = StackStore::new(false, FileReader::default(), ProcessReader::default());
    for id in [1, 2] {
        raw.id = id;
        let record = [raw.as_bytes(), &bytes].concat();
        assert!(store.take(&record));
        let named = store.calls.lock().of_call(process.pid(), id, 0).unwrap();
        assert_eq!((named.id, named.new.is_some()), (1, id == 1));
        let learnt = store.take_updates().learnt;
        assert_eq!(learnt.is_empty(), id == 2, "{learnt:?}");
    }
    fs::remove_file(format!("/tmp/perf-{}.map", process.pid())).unwrap();
}

#[test]
fn deeper_than_the_copy() {
    let folder = folder();
    let process = start(folder.path(), "10000");
    let mut world = World::new();
    let begin = Instant::now();
    let (unwound, names) = world.stack(&process, 64 << 10);
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(!unwound.stack.is_complete);
    assert!(names.len() > 500, "{}", names.len());
    assert_eq!(names[0], "bottom");
    assert!(names[1..].iter().all(|name| name == "recurse"));
}

#[test]
fn the_beginning_of_a_stack_is_unwound_alone() {
    let folder = folder();
    let process = start(folder.path(), "thread");
    let mut world = World::new();
    for size in [0, 1, 7, 8, 9, 15, 16, 24, 32, 48, 64] {
        let (unwound, names) = world.stack(&process, size);
        assert!(!unwound.stack.is_complete, "{size}: {names:?}");
        let all = ["bottom", "in_thread", "libc"];
        assert_eq!(names, all[..names.len()], "{size}");
    }
}

/// A uretprobe's trampoline replaces the return address.
#[test]
fn return_addresses_that_were_replaced() {
    use gpuprobe_stacks::StackCopy;
    let folder = folder();
    let process = start(folder.path(), "coroutine");
    let mut world = World::new();
    let (expected, _) = world.stack(&process, 1 << 14);
    let registers = process.registers();
    let mut bytes = process.stack(registers.rsp, 1 << 14);
    let mut replaced = Vec::new();
    for (slot, location) in expected.slots.iter().zip(&expected.stack.locations[1..]) {
        let at = usize::try_from(slot - registers.rsp).unwrap();
        let word: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
        assert_eq!(u64::from_le_bytes(word), location.address);
        bytes[at..at + 8].fill(0x7f);
        replaced.push((*slot, location.address));
    }
    let copy = StackCopy {
        ip: registers.rip,
        sp: registers.rsp,
        bp: registers.rbp,
        bytes: &bytes,
        replaced: &replaced,
    };
    assert_eq!(world.spaces.unwind(process.pid(), &copy), expected);
}
