//! Every kind of memory, in every attach mode, in programs that run already.

use super::{EVERY_KIND, Rows};
use crate::harness::report::Totals;
use crate::harness::{Backend, Setup, Truth, Workload};

pub(crate) fn is_exact(attach: &str, backends: &[Backend]) {
    let mut rows = Rows::start(&["--attach", attach]);
    for &backend in backends {
        rows.play(backend, EVERY_KIND, |_, _| ());
    }
    rows.end();
}

#[test]
fn root_every_kind_is_exact_in_each_attach_mode() {
    is_exact("session", &[Backend::Shared, Backend::Static]);
    is_exact("multi", &[Backend::Driver, Backend::PerThread]);
}

#[test]
fn root_every_kind_is_exact_after_late_attach() {
    for arguments in [
        ["--api", "auto"],
        ["--api", "driver"],
        ["--attach", "multi"],
    ] {
        let mut workloads = Backend::LINKED.map(Workload::start);
        for workload in &mut workloads {
            // The runtime opens the driver at the first call.
            workload.say("synchronize");
        }
        let setup = Setup::pids_without_stacks(workloads.iter().map(|workload| workload.pid));
        let mut gpuprobe = setup.args(arguments).start();
        for workload in &mut workloads {
            workload.play(EVERY_KIND);
        }
        let report = gpuprobe.stop();
        let mut sum = Truth::default();
        for workload in &mut workloads {
            let truth = workload.status();
            assert_eq!(report.process(workload.pid)["kinds"], truth.kinds());
            sum = sum + truth;
        }
        report.assert_kinds(sum);
    }
}

#[test]
fn root_late_attach_counts_unknown_frees_of_every_kind() {
    for backend in [Backend::Shared, Backend::Driver] {
        let mut workload = Workload::start(backend);
        workload.play(
            "alloc 4096; pitched 100 10; managed 1000; pinned 4096; register 8192; array 64 32 0 4 8; \
             mipmap 64 64 0 3 4 8; async 4096; vcreate 2097152; extimport 65536; \
             pool create; poolalloc 0 512; vreserve 4194304; vmap 7 0",
        );
        let before = workload.status().allocs;
        let mut gpuprobe = Setup::pid(workload.pid).start();
        // Mappings from before the attach are unknown, too.
        workload.play(
            "free 0; kfree 0 10; vunmap 0x700000000000 2097152; managed 2000; poolalloc 0 256",
        );
        let report = gpuprobe.stop();
        assert_eq!(before, 11);
        report.assert_totals(Totals {
            alloc_calls: 2,
            free_calls: 11,
            unknown_frees: 11,
            live_bytes: 2256,
            live_allocations: 2,
            ..Totals::default()
        });
        assert_eq!(workload.status().live, 2);
    }
}

#[test]
fn root_references_from_before_the_attach_do_no_harm() {
    let mut workload = Workload::start(Backend::Driver);
    workload.play("vcreate 2097152; vreserve 8388608; vmap 0 0; primary retain; primary retain");
    let mut gpuprobe = Setup::pid(workload.pid).start();
    workload.play("alloc 512; vretain 0; vcreate 4194304; vmap 1 0 4194304; vrelease 1");
    workload.play("vrelease 0; vrelease 0; primary release");
    let report = gpuprobe.stop();
    // That context has other references, which are not observable.
    assert_eq!(report["memleak"]["kinds"]["device"]["bytes"], 512);
    assert_eq!(report["memleak"]["kinds"]["vmm"]["bytes"], 4_194_304);
    report.assert_nothing_lost();
}
