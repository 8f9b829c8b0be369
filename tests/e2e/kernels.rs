//! The tests that `scripts/test-kernels.sh` runs on other kernels: one run each, as a start takes
//! seconds there. On this kernel, BTF is hidden, and functions are made unsuitable for probes.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use gpuprobe::host::{LibraryRole, MappedLibrary};
use gpuprobe_cuda::Layer;
use gpuprobe_stacks::helper::FileReader;

use crate::harness::objects::Objects;
use crate::harness::standin::OwnCopy;
use crate::harness::talk::Talk;
use crate::harness::{Backend, Report, Setup, Truth, Workload, host_wide, standin};

const ALL: [&str; 3] = ["--memleak", "--cudatrace", "--bandwidth-util"];

/// Hides the kernel's BTF from a program.
pub(crate) const WITHOUT_BTF: [&str; 6] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"",
    "sh",
];

fn some_of_everything(talk: &mut Talk) {
    for command in [
        "alloc 4096 5",
        "free 0 2",
        "launch 0 100",
        "copy d2h 65536 7",
    ] {
        talk.say(command);
    }
}

fn check(report: &Report, pid: u32, truth: Truth) {
    report.assert_totals(truth);
    report.assert_holds(pid, truth.bytes, truth.live);
    assert_eq!(report.launches(), [100, 0, 0]);
    assert_eq!(report.moved(pid), [("D2H", "sync", 7, 7 * 65536)]);
}

/// A stack that all runs on a processor share would be another thread's after a preemption.
#[test]
#[cfg(target_arch = "x86_64")]
fn root_programs_on_functions_run_on_the_kernels_stack() {
    // movabs $..., %r9; add %gs:..., %r9
    let takes_shared_stack = |code: &[u8]| {
        let mut places = code.windows(15);
        places.any(|at| at.starts_with(&[0x49, 0xb9]) && at[10..] == [0x65, 0x4c, 0x03, 0x0c, 0x25])
    };
    let workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid).modes(ALL).start();
    let code = Objects::of(gpuprobe.child.pid()).machine_code();
    gpuprobe.stop();
    assert!(!code.is_empty());
    for (name, code) in code {
        assert!(
            !code.is_empty(),
            "{name} is not compiled, or may not be read"
        );
        assert!(!takes_shared_stack(&code), "{name}");
    }
}

#[test]
fn root_a_command_and_its_recording_are_exact() {
    let folder = TempDir::new().unwrap();
    let recording = folder.path().join("run.sqlite");
    let file = recording.to_str().unwrap();
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)])
        .modes(ALL)
        .args(["--record", file])
        .start();
    let pid = gpuprobe.talk.ready();
    some_of_everything(&mut gpuprobe.talk);
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    check(&report, pid, truth);
    let database = Connection::open_with_flags(&recording, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let database = database.unwrap();
    let count = |what: &str| -> u64 {
        let query = format!("SELECT count(*) FROM {what}");
        let found: i64 = database.query_row(&query, [], |row| row.get(0)).unwrap();
        found.cast_unsigned()
    };
    let calls = "CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId \
        WHERE r.eventClass <> 67 AND s.value";
    assert_eq!(count(&format!("{calls} = 'cudaMalloc'")), truth.allocs);
    assert_eq!(count(&format!("{calls} = 'cudaFree'")), truth.frees);
    assert_eq!(count("GPUPROBE_LAUNCHES"), truth.launches);
}

#[test]
fn root_a_running_process_is_exact_until_it_is_killed() {
    let mut workload = Workload::start(Backend::Static);
    workload.say("launch 0");
    let before = workload.status();
    let mut gpuprobe = Setup::pid(workload.pid).modes(ALL).start();
    some_of_everything(&mut workload);
    let truth = workload.status() - before;
    workload.child.signal(Signal::SIGKILL);
    let report = gpuprobe.final_report();
    check(&report, workload.pid, truth);
    assert_eq!(report.process(workload.pid)["exited"], true);
}

#[test]
fn root_host_wide_with_late_library_is_exact() {
    let _shared = host_wide();
    let mut before = Workload::start(Backend::Driver);
    let mut gpuprobe = Setup::everything().start();
    let mut after = Workload::start(Backend::Shared);
    for workload in [&mut before, &mut after] {
        workload.say("alloc 4096 5");
        workload.say("free 0 2");
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost_of([before.pid, after.pid]);
    for workload in [&before, &after] {
        report.assert_holds(workload.pid, 3 * 4096, 3);
    }
}

#[test]
fn root_without_btf_one_line_says_what_is_needed() {
    let mut gpuprobe = Setup::everything().wrapped(WITHOUT_BTF).spawn();
    assert_eq!(gpuprobe.exit_code(), 1);
    let error = "gpuprobe: error: cannot load BPF programs: there is no /sys/kernel/btf/vmlinux; a kernel with BTF \
                 (CONFIG_DEBUG_INFO_BTF) is needed, Linux 5.15 or newer";
    assert_eq!(gpuprobe.said(), [error]);
}

/// Replaces the first instructions `push %rbp; mov %rsp,%rbp` of a function of the library at
/// `path` with the equivalent `code`.
pub(crate) fn begin(path: &Path, symbol: &str, code: [u8; 4]) {
    let library = MappedLibrary::open(path, path, LibraryRole::Cuda(Layer::Driver)).unwrap();
    let functions = library
        .functions(&FileReader::default(), Layer::Driver)
        .unwrap();
    let found = functions.iter().find(|f| f.symbol == symbol);
    let offset = usize::try_from(found.unwrap().offset).unwrap();
    let mut bytes = fs::read(path).unwrap();
    let place = &mut bytes[offset..offset + 4];
    assert_eq!(place, [0x55, 0x48, 0x89, 0xe5]);
    place.copy_from_slice(&code);
    fs::write(path, bytes).unwrap();
}

#[test]
fn root_slow_and_refused_functions_are_named() {
    let own = OwnCopy::new();
    let path = own.standin().path("libcuda.so.1");
    // enter $0,$0
    begin(&path, "cuMemAlloc_v2", [0xc8, 0, 0, 0]);
    // ds push %rbp; push %rsp; pop %rbp
    begin(&path, "cuMemFree_v2", [0x3e, 0x55, 0x54, 0x5d]);
    let mut gpuprobe = Setup::command([own.standin().program_text(Backend::Driver)]).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("alloc 4096 3");
    gpuprobe.talk.say("free 0");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.allocs, truth.frees), (3, 1));
    let report = gpuprobe.final_report();
    // Functions that cannot be probed are not seen; those with a slow first instruction are.
    report.assert_calls(&[("cuMemAlloc_v2", 3)]);
    report.assert_holds(pid, 3 * 4096, 3);
    let said = gpuprobe.said();
    for (about, symbol) in [
        ("cuMemFree_v2 of ", "refused"),
        ("slow probes on cuMemAlloc_v2 of ", "dear"),
    ] {
        let found = said.iter().filter(|line| line.contains(about)).count();
        assert_eq!(found, 1, "{symbol}: {said:#?}");
    }
}
