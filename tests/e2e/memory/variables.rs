//! Variables of modules, which no call allocates: they are known once a program queries them.

use super::{MemoryRow, check, check_after, check_rows, of_kind, only, traced};
use crate::harness::Backend::{self, Driver, Shared};

#[test]
fn root_variables_have_their_names() {
    for backend in Backend::LINKED {
        let (report, truth, pid) = traced(
            backend,
            "module one v=100 w=m200; symbol v; symbol w; symbol v; symbol standin_table; \
             symbol standin_counter",
        );
        report.assert_kinds(truth);
        assert_eq!((truth.allocs, truth.kind("static").allocations), (0, 4));
        let mut named: Vec<_> = of_kind(&report, pid, "static")
            .iter()
            .map(|v| (v["name"].as_str(), v["bytes"].as_u64()))
            .collect();
        named.sort_unstable();
        let mut expected = [
            (Some("standin_counter"), Some(4096)),
            (Some("standin_table"), Some(65536)),
            (Some("v"), Some(100)),
            (Some("w"), Some(200)),
        ];
        // The runtime queries the driver with the name that it has registered.
        expected.sort_unstable();
        assert_eq!(named, expected, "{backend:?}");
    }
}

#[test]
fn root_variables_are_freed_with_their_modules() {
    let two = "module one v=100 w=m200; module two x=70; symbol v; symbol w; symbol x";
    let rows: &[MemoryRow<'_>] = &[
        (&format!("{two}; unload 0"), &[("static", 70, 1)]),
        (&format!("{two}; unload 1"), &[("static", 300, 2)]),
        (&format!("{two}; unload 0; unload 1"), &[]),
        (
            &format!("{two}; unload 0; module one v=9; symbol v"),
            &[("static", 79, 2)],
        ),
    ];
    check_rows(&[Shared, Driver], rows);
    check_rows(
        &[Driver],
        &[
            ("module one v=8 via=library; symbol v", &[("static", 8, 1)]),
            ("module one v=8 via=library; symbol v; unload 0", &[]),
            (
                "module one v=8 w=m16 via=library; symbol v; symbol w; reset",
                &[],
            ),
        ],
    );
}

#[test]
fn root_variables_are_of_their_modules_context() {
    // In whichever context is current at the query.
    let two = "module one v=8; ctx create; module two x=16; symbol v; symbol x; ctx pop";
    check_after(
        &[Driver],
        two,
        &[
            ("symbol x", &[("static", 24, 2)]),
            ("ctx destroy 0", &[("static", 8, 1)]),
            ("reset", &[("static", 16, 1)]),
        ],
    );
}

#[test]
fn root_modules_are_counted() {
    for (script, modules) in [
        ("module a; module b; module c", 3),
        ("module a; module b; module c; unload 1", 2),
        ("module a; module b; reset", 0),
        ("module a; ctx create; module b; ctx destroy 0", 1),
    ] {
        let (report, _, pid) = traced(Driver, &format!("{script}; alloc 64"));
        assert_eq!(report.process(pid)["modules"], modules, "{script}");
    }
}

#[test]
fn root_variable_lookup_of_address_or_size_alone() {
    // A variable whose size alone was queried takes memory too, but at an unknown address.
    check_rows(
        &[Shared, Driver],
        &[
            ("module one v=100; symbol v size", &[]),
            (
                "module one v=100; symbol v size; symbol v",
                &[("static", 100, 1)],
            ),
        ],
    );
}

#[test]
fn root_variables_are_gpu_memory() {
    let (report, truth, pid) = traced(Driver, "module one v=100; symbol v; alloc 1000");
    check(
        &report,
        truth,
        &[("device", 1000, 1), ("static", 100, 1)],
        "both",
    );
    report.assert_holds(pid, 1100, 2);
    let variable = only(&report, pid, "static");
    assert_eq!(variable["api"], "cuModuleGetGlobal_v2");
    assert_eq!(variable["device"], 0);
    assert!(only(&report, pid, "device").get("name").is_none());
}
