//! Full BPF maps: entries that do not fit are counted exactly, and space is available again when
//! processes end. Full rings are tested in `losses`, `bandwidth::losses` and
//! `long::recording::losses`, the launch map in `long::kernels`.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::Programs;
use crate::harness::child::state_of;
use crate::harness::report::{Report, list, number};
use crate::harness::{Backend, Gpuprobe, Setup, Workload, standin, wait_for};

/// The non-zero loss counters.
fn losses(report: &Report) -> BTreeMap<String, u64> {
    let lost = report["lost"].as_object().unwrap().iter();
    lost.map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Entries of a map.
const ROOM: u64 = 16;

/// Two rounds of `alive WHAT COUNT 5` with a map of this size.
fn alive(what: &str, count: u64, map: &str, room: u64) -> Report {
    let programs = Programs::built(&["alive.c"]);
    let words = [programs.text("alive"), what.to_owned()];
    let numbers = [count, 5].map(|n| n.to_string());
    let mut gpuprobe = Setup::command(words.into_iter().chain(numbers))
        .args(["--map-entries".to_owned(), format!("{map}={room}")])
        .interval("50ms")
        .start();
    for round in 0..2 {
        assert_eq!(gpuprobe.talk.hear(), format!("round {round}"));
        // The last exit has been reported, too.
        gpuprobe.next_report();
        gpuprobe.talk.send("");
    }
    assert_eq!(gpuprobe.exit_code(), 0);
    gpuprobe.final_report()
}

#[test]
fn root_calls_of_threads_beyond_a_full_map_are_counted() {
    const THREADS: u64 = 60;
    let report = alive("threads", THREADS, "threads", ROOM);
    assert_eq!(report.totals().alloc_calls, 2 * ROOM * 5);
    let lost = 2 * (THREADS - ROOM) * 5;
    assert_eq!(losses(&report), [("memory".to_owned(), lost)].into());
}

#[test]
fn root_calls_of_processes_beyond_a_full_map_are_counted() {
    const PROCESSES: u64 = 40;
    let report = alive("processes", PROCESSES, "processes", ROOM);
    assert_eq!(report.totals().alloc_calls, 2 * ROOM * 5);
    let lost = 2 * (PROCESSES - ROOM) * 5;
    assert_eq!(losses(&report), [("memory".to_owned(), lost)].into());
}

#[test]
fn root_children_beyond_a_full_map_are_counted() {
    const PROCESSES: u64 = 40;
    // One entry is the parent's.
    let report = alive("processes", PROCESSES, "targets", 16);
    assert_eq!(report.totals().alloc_calls, 2 * 15 * 5);
    let lost = 2 * (PROCESSES - 15);
    assert_eq!(losses(&report), [("children".to_owned(), lost)].into());
}

/// Live bytes at the call sites of the only process, by function.
fn sites(report: &Report, pid: u32) -> BTreeMap<Vec<String>, u64> {
    let name = |frame: &Value| frame["function"].as_str().unwrap().to_owned();
    let sites = list(report.process(pid), "sites").iter();
    let stack = |site: &Value| list(site, "stack").iter().map(name).collect();
    sites
        .map(|site| (stack(site), number(site, "live_allocations")))
        .collect()
}

#[test]
fn root_call_stacks_stay_right_with_full_path_caches() {
    let run = |limits: &[&str]| {
        let program = standin().path("paths_bare").to_str().unwrap().to_owned();
        let limits = limits.iter().flat_map(|limit| ["--map-entries", limit]);
        let mut gpuprobe = Setup::command([program]).args(limits).start();
        let pid = gpuprobe.talk.ready();
        for _ in 0..4 {
            gpuprobe.talk.say("all 6 512");
            gpuprobe.talk.say("thread 3 5 100 1");
        }
        gpuprobe.talk.send("exit");
        let report = gpuprobe.final_report();
        report.assert_nothing_lost();
        sites(&report, pid)
    };
    let roomy = run(&[]);
    assert_eq!(roomy.len(), 64 + 1);
    // One of the code maps belongs to no process.
    for few in ["paths=8", "code_maps=1", "sent_copies=8", "sent_walks=8"] {
        assert_eq!(run(&[few]), roomy, "{few}");
    }
    let all = ["paths=8", "code_maps=1", "sent_copies=8", "sent_walks=8"];
    assert_eq!(run(&all), roomy, "few of all");
}

#[test]
fn root_devices_of_evicted_contexts_are_unknown_and_never_wrong() {
    const CONTEXTS: usize = 28;
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .env("STANDIN_DEVICES", "4")
        .args(["--map-entries", "contexts=8"])
        .start();
    let pid = gpuprobe.talk.ready();
    let talk = &mut gpuprobe.talk;
    let made: Vec<String> = (0..CONTEXTS)
        .map(|n| talk.say(&format!("ctx create {}", n % 4)))
        .collect();
    let mut sizes = BTreeMap::new();
    for (number, context) in made.iter().enumerate() {
        let index = context.split(' ').next().unwrap();
        talk.say(&format!("ctx set {index}"));
        talk.say(&format!("alloc {}", 512 * (number + 1)));
        sizes.insert(512 * (number as u64 + 1), number as u64 % 4);
    }
    let truth = talk.done();
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    let mut unknown = 0;
    for allocation in report.allocations(pid) {
        match allocation["device"].as_u64() {
            Some(device) => assert_eq!(device, sizes[&number(allocation, "bytes")]),
            None => unknown += 1,
        }
    }
    assert!(unknown > 0, "the map was to be full");
}

#[test]
fn root_launches_into_evicted_captures_count_as_run() {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(["--cudatrace"])
        .args(["--map-entries", "captures=8"])
        .start();
    gpuprobe.talk.ready();
    let talk = &mut gpuprobe.talk;
    let streams: Vec<String> = (0..60).map(|_| talk.say("stream")).collect();
    let streams: Vec<_> = streams
        .iter()
        .map(|reply| reply.split(' ').next_back().unwrap())
        .collect();
    for stream in &streams {
        talk.say(&format!("capture {stream}"));
    }
    for stream in &streams {
        talk.say(&format!("launch 0 5 stream={stream}"));
    }
    for stream in &streams {
        talk.say(&format!("endcapture {stream}"));
    }
    talk.say("launch 0 7");
    talk.done();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let [ran, _, captured] = report.launches();
    assert_eq!(ran + captured, 60 * 5 + 7);
    assert!(ran > 7 && captured > 0, "{ran} ran, {captured} captured");
}

#[test]
fn root_evicted_programs_and_loaders_are_rediscovered() {
    let program = standin().program_text(Backend::Dlopen);
    let runtime = standin().runtime();
    let one = format!("{program} -c 'load {runtime}; alloc 64 10; free 0 4; exit' >&2 &");
    let script = one.repeat(12) + "wait;" + &one.repeat(12) + "wait";
    let maps = ["loaders", "known_images", "programs", "late_views"];
    let limits = maps.map(|map| ["--map-entries".to_owned(), format!("{map}=1")]);
    let mut gpuprobe = Setup::command(["sh", "-c", &script])
        .args(limits.concat())
        .start();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    // Of these that start at the same time, one may run on while the libraries are being probed: its call is
    // then seen in the driver only.
    let calls = &report["memleak"]["calls"];
    let of_driver = calls
        .get("cuMemAlloc_v2")
        .map_or(0, |_| number(calls, "cuMemAlloc_v2"));
    assert_eq!(number(calls, "cudaMalloc") + of_driver, 24 * 10, "{calls}");
    assert_eq!(number(&report["memleak"], "free_calls"), 24 * 4);
}

fn suspended(gpuprobe: &Gpuprobe) {
    let pid = gpuprobe.child.pid();
    gpuprobe.child.signal(Signal::SIGSTOP);
    wait_for("gpuprobe to stop", || {
        (state_of(pid) == Some('T')).then_some(())
    });
}

#[test]
fn root_notices_beyond_a_full_ring_are_counted_exactly() {
    // Ring bytes, of which one is always free, and the bytes of a notice with its header.
    const BYTES: u64 = 16 * 1024;
    const NOTICE: u64 = 40 + 8;
    const ROOM: u64 = (BYTES - 1) / NOTICE;
    const EXECS: u64 = ROOM + 100;
    let programs = Programs::built(&["crowd.c", "nothing.c"]);
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let ring = format!("control_ring={BYTES}");
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--children", "--map-entries", &ring])
        .start();
    suspended(&gpuprobe);
    let (crowd, nothing) = (programs.text("crowd"), programs.text("nothing"));
    // The first is `crowd` itself, which maps a library, too.
    let reply = workload.say(&format!("forkexec {crowd} 0 {} {nothing}", EXECS - 1));
    assert!(reply.ends_with("status=0"), "{reply}");
    gpuprobe.child.signal(Signal::SIGCONT);
    workload.say("alloc 4096 3");
    let truth = workload.status();
    let report = gpuprobe.stop();
    assert_eq!(
        losses(&report),
        [("notices".to_owned(), EXECS + 1 - ROOM)].into()
    );
    assert_eq!(report.totals().alloc_calls, truth.allocs);
}

#[test]
fn root_stacks_beyond_a_full_ring_are_counted_and_their_calls_are_kept() {
    const DEPTH: u32 = 13;
    let program = standin().path("paths_bare").to_str().unwrap().to_owned();
    // A process that runs already and so is not held with no tracer to resume it.
    let mut paths = Workload::spawn(&mut std::process::Command::new(program));
    paths.say("call 1 0 64 1");
    let mut gpuprobe = Setup::pid(paths.pid).start();
    suspended(&gpuprobe);
    paths.say(&format!("all {DEPTH} 512"));
    gpuprobe.child.signal(Signal::SIGCONT);
    paths.say("call 3 5 4096 7");
    let report = gpuprobe.stop();
    let calls = (1u64 << DEPTH) + 7;
    assert_eq!(report.totals().alloc_calls, calls);
    report.assert_holds(paths.pid, (512 << DEPTH) + 7 * 4096, calls);
    let lost = losses(&report);
    let stacks = |name: &String| name == "stacks" || name == "partial_stacks";
    assert!(lost.keys().all(stacks), "{lost:?}");
    // Each path is another, and a copy is sent for some of them only.
    let partial = lost.get("partial_stacks").copied().unwrap_or(0);
    assert!((1..calls - 7).contains(&partial), "{lost:?}");
    // Each call is at one of the sites or has no stack.
    let sites = list(report.process(paths.pid), "sites").iter();
    let at_sites: u64 = sites.map(|site| number(site, "live_allocations")).sum();
    assert_eq!(at_sites, calls);
}

#[test]
fn root_unknown_map_name_is_refused() {
    let mut gpuprobe = Setup::command(["true"])
        .args(["--map-entries", "nonsense=5"])
        .spawn();
    assert_eq!(gpuprobe.exit_code(), 1);
    let told = gpuprobe.said();
    assert!(told[0].contains("there is no map nonsense"), "{told:#?}");
}
