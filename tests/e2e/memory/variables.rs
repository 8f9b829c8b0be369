//! Variables of modules, which no call allocates: they are known once a program queries them.

use super::{Rows, left, of_kind, only};
use crate::harness::Backend::{self, Driver, Shared};

#[test]
fn root_variables_are_known_once_they_are_queried() {
    let mut rows = Rows::start(&[]);
    for backend in Backend::LINKED {
        let script = "module one v=100 w=m200; symbol v; symbol w; symbol v; \
                      symbol standin_table; symbol standin_counter";
        rows.play(backend, script, |report, row| {
            assert_eq!(row.truth.allocs, 0);
            let mut named: Vec<_> = of_kind(report, row.pid, "static")
                .iter()
                .map(|v| (v["name"].as_str(), v["bytes"].as_u64()))
                .collect();
            named.sort_unstable();
            // The runtime queries the driver with the name that it has registered.
            let expected = [
                (Some("standin_counter"), Some(4096)),
                (Some("standin_table"), Some(65536)),
                (Some("v"), Some(100)),
                (Some("w"), Some(200)),
            ];
            assert_eq!(named, expected);
        });
    }
    // They are freed with their modules.
    let two = "module one v=100 w=m200; module two x=70; symbol v; symbol w; symbol x";
    let unloaded: &[&str] = &[
        &format!("{two}; unload 0 => static 70 in 1"),
        &format!("{two}; unload 1 => static 300 in 2"),
        &format!("{two}; unload 0; unload 1 => nothing"),
        &format!("{two}; unload 0; module one v=9; symbol v => static 79 in 2"),
    ];
    rows.table(&[Shared, Driver], unloaded);
    rows.table(
        &[Driver],
        &[
            "module one v=8 via=library; symbol v => static 8 in 1",
            "module one v=8 via=library; symbol v; unload 0 => nothing",
            "module one v=8 w=m16 via=library; symbol v; symbol w; reset => nothing",
        ],
    );
    // They are of their modules' context, whichever is current at the query.
    rows.after(
        &[Driver],
        "module one v=8; ctx create; module two x=16; symbol v; symbol x; ctx pop; ",
        &[
            "symbol x => static 24 in 2",
            "ctx destroy 0 => static 8 in 1",
            "reset => static 16 in 1",
        ],
    );
    for (script, modules) in [
        ("module a; module b; module c", 3),
        ("module a; module b; module c; unload 1", 2),
        ("module a; module b; reset", 0),
        ("module a; ctx create; module b; ctx destroy 0", 1),
    ] {
        rows.play(
            Driver,
            &format!("{script}; alloc 64"),
            move |report, row| {
                assert_eq!(report.process(row.pid)["modules"], modules);
            },
        );
    }
    rows.table(
        &[Shared, Driver],
        &[
            "module one v=100; symbol v size => nothing",
            "module one v=100; symbol v size; symbol v => static 100 in 1",
        ],
    );
    let script = "module one v=100; symbol v; alloc 1000";
    rows.play(Driver, script, |report, row| {
        left("device 1000 in 1, static 100 in 1")(report, row);
        report.assert_holds(row.pid, 1100, 2);
        let variable = only(report, row.pid, "static");
        assert_eq!(variable["api"], "cuModuleGetGlobal_v2");
        assert_eq!(variable["device"], 0);
        assert!(only(report, row.pid, "device").get("name").is_none());
    });
    rows.end();
}
