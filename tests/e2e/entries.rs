//! Functions that do not begin with `push %rbp`.

use std::path::Path;

use crate::harness::report::list;
use crate::harness::standin::Entry;
use crate::harness::{Backend, Gpuprobe, OwnCopy, Report, Session, Setup, Workload};
use gpuprobe_stacks::functions::exported_function;

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
const NOP5: &[u8] = &[0x0f, 0x1f, 0x44, 0x00, 0x00];
const MIB: u64 = 1 << 20;

/// Asserts that functions of both libraries begin with `code`.
fn assert_begins(copy: &OwnCopy, code: &[u8]) {
    for (library, functions) in [
        ("libcudart.so.12", ["cudaMalloc", "cudaFree"]),
        ("libcuda.so.1", ["cuMemAlloc_v2", "cuMemFree_v2"]),
    ] {
        let bytes = std::fs::read(copy.standin().path(library)).unwrap();
        for name in functions {
            let offset = exported_function(&bytes, name).unwrap().unwrap();
            let begins = &bytes[usize::try_from(offset).unwrap()..];
            assert!(begins.starts_with(code), "{name}: {:02x?}", &begins[..8]);
        }
    }
}

/// Allocates, frees and launches.
fn work(talk: &mut crate::harness::talk::Talk) {
    talk.say("alloc 1048576 3");
    talk.say("free 0 2");
    talk.say("launch 0 40");
}

fn check(report: &Report, pid: u32, backend: Backend) {
    report.assert_nothing_lost();
    report.assert_holds(pid, MIB, 1);
    assert_eq!(report.process(pid)["peak_bytes"], 3 * MIB);
    let launched: u64 = report.launched(pid).iter().map(|(_, count)| count).sum();
    assert_eq!(launched, 40);
    let block = report.allocations(pid)[0];
    assert_eq!(block["api"], backend.allocates_with());
    assert_eq!(block["bytes"], MIB);
}

/// Asserts that the live block was allocated by `main` of the workload, and that frame pointers have
/// given the whole stack.
fn check_stack(report: &Report, pid: u32) {
    let sites = list(report.process(pid), "sites");
    assert_eq!(sites.len(), 1, "{sites:#?}");
    assert_eq!(sites[0]["complete"], true);
    let frames = list(&sites[0], "stack").iter();
    let names: Vec<_> = frames.filter_map(|f| f["function"].as_str()).collect();
    assert!(names.contains(&"run_alloc"), "{names:?}");
    assert!(names.contains(&"main"), "{names:?}");
}

fn about_entries(gpuprobe: &mut Gpuprobe) -> Vec<String> {
    let mut said = gpuprobe.said();
    said.retain(|line| line.contains("slow probes") || line.contains("not probed"));
    said
}

pub(crate) fn behind_endbr64(kind: &str) {
    let copy = OwnCopy::with_entry(Entry::Endbr64, kind);
    assert_begins(&copy, ENDBR64);
    let set = |setup: Setup| {
        let setup = setup.modes(["--memleak", "--cudatrace"]);
        setup.args(["--attach", kind])
    };
    let mut session = Session::start(set);
    let backends = [Backend::Shared, Backend::Static, Backend::Driver];
    let ended = backends.map(|backend| {
        let mut member = session.program(&copy.standin().program_text(backend));
        work(&mut member);
        (session.done(member).pid, backend)
    });
    let (report, truth) = session.end();
    report.assert_totals(truth);
    for (pid, backend) in ended {
        check(&report, pid, backend);
        check_stack(&report, pid);
    }
    assert_eq!(
        about_entries(&mut session.gpuprobe),
        <[String; 0]>::default()
    );
    let mut workload = Workload::of(&copy, Backend::Shared);
    workload.say("freenull");
    let mut gpuprobe = set(Setup::pid(workload.pid)).start();
    work(&mut workload);
    let report = gpuprobe.stop();
    check(&report, workload.pid, Backend::Shared);
    check_stack(&report, workload.pid);
}

#[test]
fn root_functions_with_endbr64_are_probed_behind_it() {
    ["session", "multi"].into_iter().for_each(behind_endbr64);
}

/// Whether this kernel's optimisation of probes on such nops is faulty.
fn replaces_nops() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().unwrap().parse::<u32>().unwrap();
    ((6, 18)..=(7, 2)).contains(&(number(), number()))
}

#[test]
fn root_nops_that_the_kernel_replaces_are_probed_on_request_only() {
    let copy = OwnCopy::with_entry(Entry::Nop5, "session");
    assert_begins(&copy, NOP5);
    let traced = |arguments: &[&str]| {
        let mut gpuprobe = Setup::command([copy.standin().program_text(Backend::Shared)])
            .modes(["--memleak", "--cudatrace"])
            .args(arguments.iter().copied())
            .start();
        let pid = gpuprobe.talk.ready();
        work(&mut gpuprobe.talk);
        let truth = gpuprobe.talk.done();
        (pid, truth, gpuprobe)
    };
    if replaces_nops() {
        let (_, _, mut gpuprobe) = traced(&[]);
        gpuprobe.exit_code();
        let said = about_entries(&mut gpuprobe);
        for library in ["libcudart.so.12", "libcuda.so.1"] {
            let path = copy.standin().path(library);
            let about = format!(
                "of {} not probed: they begin with a 5-byte nop",
                path.display()
            );
            let found = said.iter().filter(|line| line.contains(&about));
            assert_eq!(found.count(), 1, "{said:#?}");
        }
        assert!(said[0].contains("--allow-nop5"), "{said:#?}");
        let lines = doctor_about(&copy);
        assert!(
            lines.iter().any(|line| line.contains("--allow-nop5")),
            "{lines:#?}"
        );
    }
    let (pid, truth, mut gpuprobe) = traced(&["--allow-nop5"]);
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    check(&report, pid, Backend::Shared);
    assert!(
        !about_entries(&mut gpuprobe)
            .iter()
            .any(|line| line.contains("not probed"))
    );
}

/// What `gpuprobe doctor` says of the libraries of a program.
fn doctor_about(copy: &OwnCopy) -> Vec<String> {
    let workload = Workload::of(copy, Backend::Driver);
    let made = std::process::Command::new(Path::new(env!("CARGO_BIN_EXE_gpuprobe")))
        .args(["doctor", "--pid", &workload.pid.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}
