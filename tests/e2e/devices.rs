//! The device of an allocation.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use nix::sys::signal::Signal;

use crate::harness::{
    Backend, Gpuprobe, OwnCopy, Report, Setup, Workload, host_wide, standin, wait_for,
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

fn four_devices(backend: Backend, arguments: &[&str]) -> Gpuprobe {
    let mut command = vec![standin().program_text(backend)];
    command.extend(arguments.iter().map(|&a| a.to_owned()));
    Setup::command_without_stacks(command)
        .env("STANDIN_DEVICES", "4")
        .start()
}

fn each_thread_has_its_own(backend: Backend, arguments: &[&str]) {
    let mut gpuprobe = four_devices(backend, arguments);
    let talk = &mut gpuprobe.talk;
    let pid = talk.ready();
    talk.say("alloc 1000");
    for name in ["a", "b", "c"] {
        talk.say(&format!("thread {name}"));
    }
    talk.say("@a setdevice 2");
    talk.say("@a alloc 1002");
    talk.say("@b alloc 1010");
    talk.say("setdevice 3");
    talk.say("alloc 1003");
    talk.say("@b alloc 1020");
    talk.say("@c setdevice 1");
    talk.say("@c alloc 1001");
    talk.say("@a alloc 1022");
    talk.say("setdevice 0");
    talk.say("alloc 1030");
    talk.say("@a setdevice 1");
    talk.say("@a alloc 1011");
    let truth = talk.done();
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    for (bytes, expected) in [
        (1000, 0),
        (1001, 1),
        (1002, 2),
        (1003, 3),
        (1010, 0),
        (1020, 0),
        (1022, 2),
        (1030, 0),
        (1011, 1),
    ] {
        assert_eq!(
            device(&report, pid, bytes),
            expected,
            "{bytes} bytes with {backend:?}"
        );
    }
}

#[test]
fn root_each_thread_has_its_device() {
    each_thread_has_its_own(Backend::Shared, &[]);
    each_thread_has_its_own(Backend::Static, &[]);
}

#[test]
fn root_each_thread_has_the_device_of_its_context() {
    each_thread_has_its_own(Backend::Driver, &[]);
    each_thread_has_its_own(Backend::Driver, &["--ctx", "create"]);
}

#[test]
fn root_a_device_that_does_not_exist_changes_nothing() {
    let mut gpuprobe = four_devices(Backend::Shared, &[]);
    let talk = &mut gpuprobe.talk;
    let pid = talk.ready();
    talk.say("setdevice 2");
    talk.send("setdevice 7");
    assert!(talk.hear().starts_with("error"));
    talk.say("alloc 1000");
    talk.done();
    assert_eq!(device(&gpuprobe.final_report(), pid, 1000), 2);
}

#[test]
fn root_a_forked_child_and_a_new_program_start_on_the_first_device() {
    let mut gpuprobe = four_devices(Backend::Shared, &[]);
    let talk = &mut gpuprobe.talk;
    let pid = talk.ready();
    talk.say("setdevice 3");
    talk.say("alloc 1000");
    talk.send(&format!("exec {}", standin().program_text(Backend::Shared)));
    talk.ready();
    talk.say("alloc 2000");
    talk.done();
    let report = gpuprobe.final_report();
    let devices: Vec<_> = report
        .entries(pid)
        .iter()
        .map(|e| {
            (
                &e["live_bytes"],
                &e["threads"][0]["allocations"][0]["device"],
            )
        })
        .collect();
    assert_eq!(
        devices,
        [(&json!(2000), &json!(0)), (&json!(1000), &json!(3))]
    );
}

#[test]
fn root_late_attach_device_is_unknown_until_selected() {
    for backend in [Backend::Shared, Backend::Static, Backend::Driver] {
        let mut workload =
            Workload::spawn(&mut Workload::command(backend, &[("STANDIN_DEVICES", "4")]));
        workload.say("setdevice 2");
        workload.say("alloc 512");
        workload.say("thread old");
        workload.say("@old alloc 512");
        let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
        let mut text = Setup::pid_without_stacks(workload.pid)
            .args(["--group", "thread"])
            .format("text")
            .start();
        workload.say("alloc 1000");
        workload.say("@old alloc 1001");
        workload.say("setdevice 3");
        workload.say("alloc 1003");
        workload.say("thread new");
        workload.say("@new alloc 1010");
        workload.say("@new setdevice 1");
        workload.say("@new alloc 1011");
        let report = gpuprobe.stop();
        report.assert_nothing_lost();
        for (bytes, expected) in [
            (1000, unknown()),
            (1001, unknown()),
            (1003, json!(3)),
            // The runtime makes a context current that was created before gpuprobe attached.
            (1010, unknown()),
            (1011, json!(1)),
        ] {
            let found = device(&report, workload.pid, bytes);
            assert_eq!(found, expected, "{bytes} bytes with {backend:?}");
        }
        text.interrupt();
        text.wait();
        let text = fs::read_to_string(&text.reports).unwrap();
        let row = text
            .lines()
            .find(|line| line.ends_with(": 1000 B"))
            .unwrap();
        let shown = if unknown().is_null() {
            ":gpu_?:"
        } else {
            ":gpu_0:"
        };
        assert!(row.contains(shown), "{row}");
    }
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
fn root_destroying_a_context_pops_to_the_previous_one() {
    let mut gpuprobe = four_devices(Backend::Driver, &[]);
    let talk = &mut gpuprobe.talk;
    let pid = talk.ready();
    let create = |device: u32| {
        let made = talk.say(&format!("ctx create {device}"));
        made.split(' ').next().unwrap().to_owned()
    };
    let [first, _, third] = [1, 2, 3].map(create);
    talk.say("alloc 1003");
    talk.say(&format!("ctx destroy {third}"));
    talk.say("alloc 1002");
    // A context that is not current: nothing is popped.
    talk.say(&format!("ctx destroy {first}"));
    talk.say("alloc 1022");
    talk.done();
    let report = gpuprobe.final_report();
    for bytes in [1002, 1022] {
        assert_eq!(device(&report, pid, bytes), 2, "{bytes} bytes");
    }
    // Memory in the other contexts was freed with them.
    assert_eq!(report.allocations(pid).len(), 2);
}

/// Contexts that were current before gpuprobe attached are below the seen ones on the stack, and
/// unknown.
#[test]
fn root_late_attach_device_is_unknown_below_the_seen_context_stack() {
    let settings = [("STANDIN_DEVICES", "4")];
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &settings));
    for device in [1, 2] {
        workload.say(&format!("ctx create {device}"));
    }
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    // At the bottom of the seen stack, the created context replaces the current one.
    let made = workload.say("ctx create 3");
    let made = made.split(' ').next().unwrap().to_owned();
    workload.say("ctx pop");
    workload.say("alloc 1002");
    workload.say(&format!("ctx set {made}"));
    workload.say("alloc 1003");
    workload.say("ctx pop");
    workload.say("alloc 1001");
    // From here on, as usual.
    workload.say(&format!("ctx push {made}"));
    workload.say("alloc 1030");
    workload.say("ctx pop");
    workload.say("alloc 1010");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    for (bytes, expected) in [
        (1002, unknown()),
        (1003, json!(3)),
        (1001, unknown()),
        (1030, json!(3)),
        (1010, unknown()),
    ] {
        let found = device(&report, workload.pid, bytes);
        assert_eq!(found, expected, "{bytes} bytes");
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

#[test]
fn root_late_attach_device_is_known_with_a_single_visible_device() {
    let settings = [("CUDA_VISIBLE_DEVICES", "0")];
    let mut command = Command::new("env");
    command
        .args(settings.map(|(name, value)| format!("{name}={value}")))
        .arg(standin().program(Backend::Shared));
    let mut workload = Workload::spawn(&mut command);
    workload.say("alloc 512");
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.say("alloc 1000");
    assert_eq!(device(&gpuprobe.stop(), workload.pid, 1000), 0);
}
