//! Every call is counted once, by every API layer and attach mode.

use crate::harness::report::Totals;
use crate::harness::{Backend, OwnCopy, Report, Setup, Workload, host_wide};

const EIGHT_MIB: u64 = 8 << 20;

/// Three blocks of 8 MiB, two of them freed.
fn leak_one(talk: &mut crate::harness::talk::Talk) {
    talk.say("alloc 8388608 3");
    talk.say("free 0 2");
}

fn check_leak(report: &Report, pid: u32, backend: Backend) {
    report.assert_holds(pid, EIGHT_MIB, 1);
    assert_eq!(report.process(pid)["peak_bytes"], 3 * EIGHT_MIB);
    assert_eq!(report.process(pid)["comm"], backend.program());
    assert_eq!(report.process(pid)["uid"], 0);
    let block = report.allocations(pid)[0];
    assert_eq!(block["bytes"], EIGHT_MIB);
    assert_eq!(block["api"], backend.allocates_with());
    assert_eq!(block["kind"], "device");
    assert_eq!(report.thread(pid, pid)["comm"], backend.program());
}

fn check_alone(report: &Report, pid: u32, backend: Backend) {
    report.assert_totals(Totals {
        alloc_calls: 3,
        free_calls: 2,
        live_bytes: EIGHT_MIB,
        live_allocations: 1,
        ..Totals::default()
    });
    report.assert_calls(&[(backend.allocates_with(), 3)]);
    assert_eq!(report["memleak"]["peak_bytes"], 3 * EIGHT_MIB);
    check_leak(report, pid, backend);
}

fn load_if_needed(copy: &OwnCopy, backend: Backend, talk: &mut crate::harness::talk::Talk) {
    if backend == Backend::Dlopen {
        talk.say(&format!("load {}", copy.standin().runtime()));
    }
}

fn started_by_us(kind: &str) {
    let copy = OwnCopy::for_attach(kind);
    let mut traced: Vec<_> = Backend::ALL
        .into_iter()
        .map(|backend| {
            let mut gpuprobe =
                Setup::command_without_stacks([copy.standin().program_text(backend)])
                    .args(["--attach", kind])
                    .start();
            let pid = gpuprobe.talk.ready();
            load_if_needed(&copy, backend, &mut gpuprobe.talk);
            leak_one(&mut gpuprobe.talk);
            let truth = gpuprobe.talk.done();
            (backend, pid, truth, gpuprobe)
        })
        .collect();
    for (backend, pid, truth, gpuprobe) in &mut traced {
        let report = gpuprobe.final_report();
        report.assert_totals(*truth);
        check_alone(&report, *pid, *backend);
        assert_eq!(report.process(*pid)["exited"], true);
    }
}

fn attached_late(kind: &str) {
    let copy = OwnCopy::for_attach(kind);
    let mut traced: Vec<_> = Backend::ALL
        .into_iter()
        .map(|backend| {
            let mut workload = Workload::of(&copy, backend);
            load_if_needed(&copy, backend, &mut workload);
            // The static runtime opens the driver at its first call.
            workload.say("freenull");
            let gpuprobe = Setup::pid_without_stacks(workload.pid)
                .args(["--attach", kind])
                .start();
            (backend, workload, gpuprobe)
        })
        .collect();
    for (_, workload, gpuprobe) in &mut traced {
        leak_one(workload);
        gpuprobe.interrupt();
    }
    for (backend, workload, gpuprobe) in &mut traced {
        let report = gpuprobe.final_report();
        report.assert_totals(workload.status());
        check_alone(&report, workload.pid, *backend);
        assert_eq!(report.process(workload.pid)["exited"], false);
    }
}

fn system_wide_with(kind: &str) {
    let _shared = host_wide();
    let copy = OwnCopy::for_attach(kind);
    let start = |backend| {
        let mut workload = Workload::of(&copy, backend);
        load_if_needed(&copy, backend, &mut workload);
        workload
    };
    let mut workloads: Vec<_> = Backend::ALL.map(|b| (b, start(b))).into();
    for (_, workload) in &mut workloads {
        workload.say("freenull");
    }
    let mut gpuprobe = Setup::everything().args(["--attach", kind]).start();
    // Their libraries are already attached to: they are traced from their first call.
    workloads.extend(Backend::ALL.map(|b| (b, start(b))));
    for (_, workload) in &mut workloads {
        leak_one(workload);
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    for (backend, workload) in &mut workloads {
        check_leak(&report, workload.pid, *backend);
        let truth = workload.status();
        assert_eq!((truth.bytes, truth.live), (EIGHT_MIB, 1));
    }
}

macro_rules! for_each_attach_kind {
    ($($kind:ident)*) => {$(
        mod $kind {
            #[test]
            fn root_command_is_exact() {
                super::started_by_us(stringify!($kind));
            }

            #[test]
            fn root_late_attach_is_exact() {
                super::attached_late(stringify!($kind));
            }

            #[test]
            fn root_host_wide_is_exact() {
                super::system_wide_with(stringify!($kind));
            }
        }
    )*};
}

for_each_attach_kind! { session multi perf offset }
