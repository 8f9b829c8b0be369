//! The device of an allocation.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use nix::sys::signal::Signal;

use crate::harness::{
    Backend, OwnCopy, Report, Session, Setup, Workload, host_wide, standin, wait_for,
};

/// Devices of a process that chose them before gpuprobe attached. With a single GPU on the host,
/// the device is known.
fn unknown() -> Value {
    let gpus = fs::read_dir("/proc/driver/nvidia/gpus").map(Iterator::count);
    if gpus.is_ok_and(|count| count == 1) {
        json!(0)
    } else {
        Value::Null
    }
}

/// The devices of a process's allocations, by size.
fn device(report: &Report, pid: u32, bytes: u64) -> Value {
    let allocations = report.allocations(pid);
    let mut found = allocations.iter().filter(|a| a["bytes"] == bytes);
    let device = found
        .next()
        .unwrap_or_else(|| panic!("no {bytes} bytes in {}", **report))["device"]
        .clone();
    assert!(found.next().is_none());
    device
}

/// A process that is to have these devices in the end, by size.
type Expected = (u32, Vec<(u64, u32)>);

fn each_thread_has_its_own(session: &mut Session, words: &str) -> Expected {
    let mut member = session.program(words);
    member.play(
        "alloc 1000; thread a; thread b; thread c; @a setdevice 2; @a alloc 1002; @b alloc 1010; \
         setdevice 3; alloc 1003; @b alloc 1020; @c setdevice 1; @c alloc 1001; @a alloc 1022; \
         setdevice 0; alloc 1030; @a setdevice 1; @a alloc 1011",
    );
    let of_threads = [
        (1000, 0),
        (1001, 1),
        (1002, 2),
        (1003, 3),
        (1010, 0),
        (1020, 0),
        (1022, 2),
        (1030, 0),
        (1011, 1),
    ];
    (session.done(member).pid, of_threads.into())
}

fn destroying_a_context_pops_to_the_previous_one(session: &mut Session) -> Expected {
    let mut member = session.workload(Backend::Driver);
    let create = |device: u32| member.ask(&format!("ctx create {device}"));
    let [first, _, third]: [String; 3] = [1, 2, 3].map(create);
    // Memory in the other contexts is freed with them. The first is not current: nothing is popped.
    member.play(&format!(
        "alloc 1003; ctx destroy {third}; alloc 1002; ctx destroy {first}; alloc 1022"
    ));
    (session.done(member).pid, vec![(1002, 2), (1022, 2)])
}

#[test]
fn root_every_thread_of_a_command_has_its_device() {
    let mut session = Session::start(|setup| setup.without_stacks().env("STANDIN_DEVICES", "4"));
    let driver = standin().program_text(Backend::Driver);
    let mut all = Vec::new();
    for words in [
        &standin().program_text(Backend::Shared),
        &standin().program_text(Backend::Static),
        // Here each thread has the device of its context.
        &driver,
        &format!("{driver} --ctx create"),
    ] {
        all.push(each_thread_has_its_own(&mut session, words));
    }
    all.push(destroying_a_context_pops_to_the_previous_one(&mut session));
    // A device that does not exist changes nothing.
    let mut refused = session.workload(Backend::Shared);
    refused.play("setdevice 2; !setdevice 7; alloc 1000");
    all.push((session.done(refused).pid, vec![(1000, 2)]));
    // A new program starts on the first device.
    let mut executes = session.workload(Backend::Shared);
    executes.play("setdevice 3; alloc 1000");
    executes.send(&format!("exec {}", standin().program_text(Backend::Shared)));
    let executed = executes.ready();
    executes.say("alloc 2000");
    session.done(executes);

    let (report, _) = session.end();
    report.assert_nothing_lost();
    assert_eq!(report.totals().alloc_calls, 4 * 9 + 3 + 1 + 2);
    for (pid, expected) in all {
        assert_eq!(report.allocations(pid).len(), expected.len());
        for (bytes, number) in expected {
            let found = device(&report, pid, bytes);
            assert_eq!(found, number, "{bytes} bytes of {pid}");
        }
    }
    let found = |entry: &Value| {
        let live = &entry["threads"][0]["allocations"][0];
        (entry["live_bytes"].clone(), live["device"].clone())
    };
    let found: Vec<_> = report.entries(executed).into_iter().map(found).collect();
    assert_eq!(found, [(json!(2000), json!(0)), (json!(1000), json!(3))]);
}

#[test]
fn root_late_attach_device_is_unknown_until_selected() {
    let start =
        |backend| Workload::spawn(&mut Workload::command(backend, &[("STANDIN_DEVICES", "4")]));
    let mut workloads = [Backend::Shared, Backend::Static, Backend::Driver].map(start);
    for workload in &mut workloads {
        workload.play("setdevice 2; alloc 512; thread old; @old alloc 512");
    }
    let mut with_contexts = start(Backend::Driver);
    with_contexts.play("ctx create 1; ctx create 2");
    let visible = format!(
        "CUDA_VISIBLE_DEVICES=0 {}",
        standin().program_text(Backend::Shared)
    );
    let mut single = Workload::spawn(Command::new("env").args(visible.split(' ')));
    single.say("alloc 512");

    let all = workloads.iter().chain([&with_contexts, &single]);
    let mut gpuprobe = Setup::pids_without_stacks(all.map(|workload| workload.pid)).start();
    let mut text = Setup::pid_without_stacks(workloads[0].pid)
        .args(["--group", "thread"])
        .format("text")
        .start();
    for workload in &mut workloads {
        workload.play(
            "alloc 1000; @old alloc 1001; setdevice 3; alloc 1003; thread new; @new alloc 1010; \
             @new setdevice 1; @new alloc 1011",
        );
    }
    // Contexts that were current before gpuprobe attached are below the seen ones on the stack, and unknown. At
    // the bottom of the seen stack, the created context replaces the current one.
    let made: String = with_contexts.ask("ctx create 3");
    with_contexts.play(&format!(
        "ctx pop; alloc 1002; ctx set {made}; alloc 1003; ctx pop; alloc 1001; \
         ctx push {made}; alloc 1030; ctx pop; alloc 1010"
    ));
    single.say("alloc 1000");

    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let of_threads = [
        (1000, unknown()),
        (1001, unknown()),
        (1003, json!(3)),
        // The runtime makes a context current that was created before gpuprobe attached.
        (1010, unknown()),
        (1011, json!(1)),
    ];
    let of_contexts = [
        (1002, unknown()),
        (1003, json!(3)),
        (1001, unknown()),
        (1030, json!(3)),
        (1010, unknown()),
    ];
    let [shared, of_static, driver] = workloads.each_ref().map(|workload| workload.pid);
    for (pid, expected) in [
        (shared, &of_threads[..]),
        (of_static, &of_threads),
        (driver, &of_threads),
        (with_contexts.pid, &of_contexts),
        // A single visible device is known.
        (single.pid, &[(1000, json!(0))]),
    ] {
        for (bytes, expected) in expected {
            let found = device(&report, pid, *bytes);
            assert_eq!(found, *expected, "{bytes} bytes of {pid}");
        }
    }
    text.interrupt();
    text.wait();
    let text = fs::read_to_string(&text.reports).unwrap();
    let row = text.lines().find(|line| line.contains("  1000 B  "));
    let shown = if unknown().is_null() { "?" } else { "0" };
    let row: Vec<_> = row.expect("a row").split_whitespace().collect();
    // Address, size and unit, GPU.
    assert_eq!(row[3], shown, "{row:?}");
}

#[test]
fn root_late_attach_device_is_known_once_a_thread_has_queried_it() {
    // With one GPU nothing is queried: the device is known.
    if !unknown().is_null() {
        return;
    }
    for backend in [Backend::Shared, Backend::Driver] {
        let mut workload =
            Workload::spawn(&mut Workload::command(backend, &[("STANDIN_DEVICES", "4")]));
        workload.say("setdevice 2");
        workload.say("thread old");
        workload.say("@old setdevice 1");
        let mut gpuprobe = Setup::pid_without_stacks(workload.pid)
            .interval("100ms")
            .start();
        // The queries are probed from time to time.
        let mut bytes = 1000;
        wait_for("the devices of both threads", || {
            workload.say("getdevice");
            workload.say("@old getdevice");
            workload.say(&format!("alloc {bytes}"));
            workload.say(&format!("@old alloc {}", bytes + 1));
            bytes += 2;
            let report = gpuprobe.next_report();
            let found = |bytes: u64| {
                let allocations = report.allocations(workload.pid).into_iter();
                allocations
                    .filter(|a| a["bytes"] == bytes)
                    .map(|a| a["device"].clone())
                    .next()
            };
            let known = |from: u64, device: u32| {
                (from..bytes)
                    .step_by(2)
                    .any(|bytes| found(bytes) == Some(json!(device)))
            };
            (known(1000, 2) && known(1001, 1)).then_some(())
        });
        let report = gpuprobe.stop();
        report.assert_nothing_lost();
        for allocation in report.allocations(workload.pid) {
            let of_main = allocation["bytes"].as_u64().unwrap() % 2 == 0;
            let expected = if of_main { json!(2) } else { json!(1) };
            let device = &allocation["device"];
            assert!(device.is_null() || *device == expected, "{allocation}");
        }
    }
}

#[test]
fn root_devices_beyond_a_full_context_map_are_unknown() {
    let _shared = host_wide();
    let mut gpuprobe = Setup::everything()
        .interval("100ms")
        .args(["--map-entries", "late_views=1"])
        .start();
    // Each with its own library, which is attached to at its first use.
    gpuprobe.child.signal(Signal::SIGSTOP);
    let own = [OwnCopy::new(), OwnCopy::new(), OwnCopy::new()];
    let mut late: Vec<_> = own
        .iter()
        .map(|own| {
            let mut command = Command::new(own.standin().program(Backend::Driver));
            let mut workload = Workload::spawn(command.env("STANDIN_DEVICES", "4"));
            workload.say("setdevice 2");
            workload
        })
        .collect();
    gpuprobe.child.signal(Signal::SIGCONT);
    for workload in &mut late {
        gpuprobe.until_it_sees(workload.pid, workload);
        workload.say("alloc 1000");
        workload.say("setdevice 3");
        workload.say("alloc 1003");
    }
    let report = gpuprobe.stop();
    for workload in &late {
        assert_eq!(device(&report, workload.pid, 1000), unknown());
        assert_eq!(device(&report, workload.pid, 1003), json!(3));
    }
}
