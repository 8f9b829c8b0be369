//! One user floods every ring and map. Other users' processes are traced as if it did not, and the
//! losses are counted for the flooding user.

mod hog;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::promises::{
    ALLOCATION_BYTES, MEMORY_BYTES, assert_ends, assert_reports_come, resident_bytes,
};
use crate::harness::report::{Report, list, number};
use crate::harness::{Backend, OwnCopy, Setup, Workload, alone};
use crate::losses::pause;
pub(crate) use hog::Hog;
use hog::Jitted;

/// Report interval of floods, and of small maps.
const INTERVAL: Duration = Duration::from_millis(500);
const SHORT_INTERVAL: Duration = Duration::from_millis(100);

/// The flooding user, and another.
const HOG: u32 = 1001;
const OTHER: u32 = 1002;

/// A user's losses in the report.
pub(crate) fn lost_of(report: &Report, uid: u32, what: &str) -> u64 {
    let rows = report.get("lost_by_user").and_then(|rows| rows.as_array());
    let rows = rows.into_iter().flatten();
    rows.filter(|row| row["uid"] == uid && row["what"] == what)
        .map(|row| number(row, "count"))
        .sum()
}

/// Asserts that all losses are this user's.
fn assert_all_of(report: &Report, uid: u32) {
    for (what, count) in report["lost"].as_object().unwrap() {
        let of_user = lost_of(report, uid, what);
        assert_eq!(*count, of_user, "{what}: {}", report["lost_by_user"]);
    }
}

fn live(report: &Report, pid: u32) -> u64 {
    number(report.process(pid), "live_allocations")
}

#[test]
fn root_ring_flood_of_one_user_costs_others_nothing() {
    const KEPT: u64 = 40_000;
    let _alone = alone();
    let mut victim = Workload::start(Backend::Shared);
    let mut hog = Hog::start(HOG, "calls", 600_000);
    // Host-wide, there may be others.
    let mut gpuprobe = Setup::pid(victim.pid)
        .args(["--pid", &hog.pid.to_string(), "--stacks", "off"])
        .args(["--top", "5"])
        .interval("500ms")
        .start();
    // All of it waits in the ring, whichever process wrote it.
    pause(&gpuprobe);
    hog.begin();
    victim.say(&format!("alloc 512 {KEPT}"));
    let made = hog.made();
    victim.say(&format!("alloc 1024 {KEPT}"));
    gpuprobe.child.signal(Signal::SIGCONT);
    assert_reports_come(&gpuprobe, INTERVAL, 2);
    let report = assert_ends(&mut gpuprobe);
    assert_eq!(live(&report, victim.pid), 2 * KEPT);
    assert_all_of(&report, HOG);
    let lost = lost_of(&report, HOG, "memory");
    assert!(lost > made / 2, "{lost} of {made}: it was to be too much");
    let totals = report.totals();
    let seen = totals.alloc_calls + totals.free_calls;
    assert_eq!(seen + lost, made + 2 * KEPT);
    let rows = list(&report, "lost_by_user");
    let row = rows.iter().find(|row| row["what"] == "memory").unwrap();
    assert_eq!(
        (&row["pid"], &row["comm"]),
        (&hog.pid.into(), &"hog".into())
    );
}

#[test]
fn root_rename_flood_of_one_user_costs_others_nothing() {
    const KEPT: u64 = 40_000;
    let _alone = alone();
    let mut victim = Workload::start(Backend::Shared);
    let mut hog = Hog::start(HOG, "renames", 300_000);
    let mut gpuprobe = Setup::everything()
        .args(["--stacks", "off", "--top", "5"])
        .interval("500ms")
        .start();
    pause(&gpuprobe);
    hog.take();
    victim.say(&format!("alloc 512 {KEPT}"));
    gpuprobe.child.signal(Signal::SIGCONT);
    assert_reports_come(&gpuprobe, INTERVAL, 2);
    let report = assert_ends(&mut gpuprobe);
    assert_eq!(live(&report, victim.pid), KEPT);
    // Programs of other tests may have lost something while gpuprobe was stopped.
    let rows = report["lost_by_user"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["pid"] != victim.pid), "{rows:#?}");
    assert!(lost_of(&report, HOG, "tasks") > 100_000);
}

/// Asserts what the flooding user lost, and that the other one lost nothing. Programs of other tests have entries
/// of these small maps too, as root: a user has half at most.
fn assert_lost_nothing_else(report: &Report, lost: &str, missed: u64) {
    for row in list(report, "lost_by_user") {
        assert_ne!(row["uid"], OTHER, "{row}");
        assert!(row["uid"] != HOG || row["what"] == lost, "{row}");
    }
    assert_eq!(lost_of(report, HOG, lost), missed);
}

/// One user takes 100 entries of a map of 128, another 24: the first gets 64, the other all 24, and there
/// are 40 for root's programs of other tests. When the first user's processes have exited, it gets 64 again.
fn share(map: &str, what: &str, lost: &str) -> Report {
    const TRIED: u64 = 100;
    const SIZE: u64 = 128;
    let _alone = alone();
    // Its libraries are attached to from the start.
    let _there = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::everything()
        .args(["--map-entries".to_owned(), format!("{map}={SIZE}")])
        // A thread without a map entry cannot be known to be in a runtime call.
        .args(["--api", "runtime", "--stacks", "auto", "--comm", "hog"])
        .interval("100ms")
        .start();
    let mut hog = Hog::start(HOG, what, TRIED);
    assert_eq!(hog.take(), TRIED);
    let mut other = Hog::start(OTHER, what, 24);
    assert_eq!(other.take(), 24);
    assert_reports_come(&gpuprobe, SHORT_INTERVAL, 3);
    let report = gpuprobe.next_report();
    let missed = TRIED - SIZE / 2;
    assert_lost_nothing_else(&report, lost, missed);
    drop(hog);
    gpuprobe.next_report();
    let mut again = Hog::start(HOG, what, SIZE / 2);
    assert_eq!(again.take(), SIZE / 2);
    let report = assert_ends(&mut gpuprobe);
    // There is room again.
    assert_lost_nothing_else(&report, lost, missed);
    report
}

#[test]
fn root_one_user_gets_half_of_the_thread_map() {
    let report = share("threads", "threads", "memory");
    assert_eq!(report.totals().alloc_calls, 64 + 24 + 64);
}

#[test]
fn root_one_user_gets_half_of_the_process_map() {
    let report = share("processes", "processes", "memory");
    assert_eq!(report.totals().alloc_calls, 64 + 24 + 64);
}

#[test]
fn root_one_user_gets_half_of_the_walk_map() {
    let report = share("walks", "threads", "stacks");
    assert_eq!(report.totals().alloc_calls, 100 + 24 + 64);
}

#[test]
fn root_one_user_gets_half_of_the_kernel_map() {
    let _alone = alone();
    let copy = OwnCopy::for_everyone();
    let _there = Workload::of(&copy, Backend::Driver);
    let mut gpuprobe = Setup::everything()
        .modes(["--cudatrace"])
        .args(["--map-entries", "launches=64"])
        .interval("100ms")
        .start();
    let launch = |uid: u32, kernels: u32| {
        let mut command = Command::new(copy.standin().program(Backend::Driver));
        let mut workload = Workload::spawn(command.uid(uid).gid(uid));
        workload.say(&format!("module generated={kernels}"));
        workload.say("launch all 1");
        workload
    };
    let (hog, other) = (launch(HOG, 100), launch(OTHER, 24));
    assert_reports_come(&gpuprobe, SHORT_INTERVAL, 3);
    let report = gpuprobe.next_report();
    assert_eq!(report.kernels(other.pid).len(), 24);
    assert_eq!(report.kernels(hog.pid).len(), 32);
    assert_eq!(lost_of(&report, HOG, "launches"), 68);
    drop(hog);
    gpuprobe.report_where("its end", |report| report.kernels(other.pid).len() == 24);
    // Its entries are removed at the first read after its exit.
    gpuprobe.next_report();
    gpuprobe.next_report();
    let again = launch(HOG, 32);
    let report = assert_ends(&mut gpuprobe);
    assert_eq!(report.kernels(again.pid).len(), 32);
    assert_eq!(report.lost("launches"), 68);
    assert_all_of(&report, HOG);
}

#[test]
fn root_reports_are_on_time_in_a_call_flood_and_others_lose_nothing() {
    let _alone = alone();
    let mut victim = Workload::start(Backend::Shared);
    let mut hog = Hog::start(HOG, "calls", 1_500_000);
    let mut gpuprobe = Setup::everything()
        .args(["--stacks", "off"])
        .interval("500ms")
        .start();
    hog.begin();
    victim.send("pace 2000 4 64");
    assert_reports_come(&gpuprobe, INTERVAL, 6);
    victim.hear();
    victim.say("alloc 512 1000");
    let truth = victim.status();
    hog.made();
    let report = assert_ends(&mut gpuprobe);
    assert_eq!(live(&report, victim.pid), truth.live);
    assert_all_of(&report, HOG);
}

#[test]
fn root_memory_of_gpuprobe_is_bounded_with_endless_leaks() {
    let _alone = alone();
    let mut hog = Hog::start(HOG, "keep", 1_000_000);
    let mut gpuprobe = Setup::everything()
        .args(["--top", "5"])
        .interval("500ms")
        .start();
    let pid = gpuprobe.child.pid();
    hog.begin();
    let mut resident = 0;
    for _ in 0..4 {
        assert_reports_come(&gpuprobe, INTERVAL, 1);
        resident = resident.max(resident_bytes(pid));
    }
    let made = hog.made();
    // What waits in the ring is in a later report.
    let kept = gpuprobe.report_where("all calls", |report| {
        let held = report.entries(hog.pid);
        let live = held.iter().map(|held| number(held, "live_allocations"));
        live.sum::<u64>() + lost_of(report, HOG, "memory") == made
    });
    let live = live(&kept, hog.pid);
    resident = resident.max(resident_bytes(pid));
    let bound = MEMORY_BYTES + ALLOCATION_BYTES * live;
    assert!(resident < bound, "{resident} bytes for {live} allocations");
    assert_ends(&mut gpuprobe);
}

/// Live allocations of these users.
fn live_of(report: &Report, users: [u32; 2]) -> u64 {
    let users = users.map(u64::from);
    let processes = list(&report["memleak"], "processes").iter();
    let of_users = processes.filter(|process| users.contains(&number(process, "uid")));
    of_users
        .map(|process| number(process, "live_allocations"))
        .sum()
}

#[test]
fn root_memory_of_gpuprobe_is_bounded_whatever_two_users_do() {
    // Half of what these call sites take without a limit.
    const LIMIT_MIB: u64 = 60;
    // What readers have besides in any case.
    const READERS_MIB: u64 = 20;
    // What fits into the ring, even if gpuprobe does not run meanwhile.
    const AT_ONCE: u64 = 1024;
    let _alone = alone();
    let mut hogs = [HOG, OTHER].map(|user| Hog::start(user, "paths", AT_ONCE));
    // The names of either fit into the memory of the readers, and those of both do not.
    let mut jitted = [HOG, OTHER].map(|user| Jitted::start(user, 135_000));
    let mut gpuprobe = Setup::everything()
        .args(["--top", "5", "--stacks", "fp"])
        .args(["--memory-limit", &LIMIT_MIB.to_string()])
        .interval("250ms")
        .start();
    let pid = gpuprobe.child.pid();
    jitted[0].hog.take();
    gpuprobe.report_where("the name in the perf map", |report| {
        report["memleak"].to_string().contains("made_at_run_time_0")
    });
    jitted[1].hog.take();
    gpuprobe
        .stderr
        .line_with(&["there is little memory left for reading files"]);
    let mut made = 0;
    for _ in 0..8 {
        hogs.iter_mut().for_each(Hog::begin);
        made = 2 + hogs.iter_mut().map(Hog::made).sum::<u64>();
        assert_reports_come(&gpuprobe, INTERVAL, 1);
        // The ring is empty before the next calls.
        gpuprobe.report_where("the calls", |report| live_of(report, [HOG, OTHER]) == made);
        let most = ((LIMIT_MIB + READERS_MIB) << 20) + ALLOCATION_BYTES * made;
        let resident = resident_bytes(pid);
        assert!(resident < most, "{resident} bytes");
    }
    let mut modest = Workload::start(Backend::Shared);
    modest.say("alloc 4096 10");
    gpuprobe.next_report();
    let report = gpuprobe.next_report();
    assert_eq!(live_of(&report, [HOG, OTHER]), made);
    for hog in [HOG, OTHER] {
        assert!(lost_of(&report, hog, "stacks") > made / 32);
    }
    let site = &list(report.process(modest.pid), "sites")[0];
    assert_eq!(number(site, "live_bytes"), 10 * 4096);
    assert!(!list(site, "stack").is_empty(), "{site}");
    let resident = resident_bytes(pid);
    assert_ends(&mut gpuprobe);
    let most = ((LIMIT_MIB + READERS_MIB) << 20) + ALLOCATION_BYTES * made;
    assert!(resident < most, "{resident} bytes");
    let said = gpuprobe.said();
    for what in [
        "are left out until it takes less",
        "there is little memory left for reading files",
    ] {
        let says = |line: &&String| line.contains(what);
        assert_eq!(said.iter().filter(says).count(), 1, "{what}: {said:#?}");
    }
}

#[test]
fn root_reports_are_on_time_beside_many_processes_that_remap_constantly() {
    let _alone = alone();
    let mut hog = Hog::start(HOG, "looks", 300);
    let mut gpuprobe = Setup::everything()
        .modes(["--memleak", "--bandwidth-util"])
        .interval("500ms")
        .start();
    hog.take();
    // Begins while the others take every turn.
    let mut other = Workload::start(Backend::Shared);
    other.say("alloc 4096 100");
    for _ in 0..6 {
        other.say("copy h2d 4096 1000");
        assert_reports_come(&gpuprobe, INTERVAL, 1);
    }
    let truth = other.status();
    let report = assert_ends(&mut gpuprobe);
    report.assert_holds(other.pid, 100 * 4096, 100);
    let directions = list(&report["bandwidth_util"], "directions").iter();
    let its = directions.filter(|direction| direction["pid"] == other.pid);
    let copies: u64 = its.map(|direction| number(direction, "calls")).sum();
    assert_eq!(copies, truth.copies);
    report.assert_nothing_lost();
}
