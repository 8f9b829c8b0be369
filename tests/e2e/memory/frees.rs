//! Frees of each kind: by any thread, by either of two functions, or by the wrong one.

use super::{EVERY_KIND, Rows};
use crate::harness::Backend::{self, Driver, PerThread, Shared};
use crate::harness::report::list;

#[test]
fn root_frees_by_any_thread_and_function() {
    let mut rows = Rows::start(&[]);
    for backend in Backend::LINKED {
        let made = EVERY_KIND.split(';').map(str::trim);
        let made: Vec<_> = made.map(|command| format!("@maker {command}")).collect();
        let script = format!(
            "thread maker; thread other; {}; @other vfreeall; freeall; @other kfreeall; \
             unload 0; join maker; join other",
            made.join("; ")
        );
        rows.play(backend, &script, |report, row| {
            // Memory that only the end of the context frees.
            let kinds = row.truth.kinds();
            let kinds = kinds.as_object().unwrap();
            assert_eq!(kinds.keys().collect::<Vec<_>>(), ["static"]);
            assert_eq!(report.allocations(row.pid).len(), 1);
        });
    }
    // Each kind belongs to the allocating thread.
    for backend in [Shared, Driver] {
        let script = "thread a; @a managed 1000; @a pinned 4096; @a async 512; @a vcreate 2097152; \
             @a extimport 65536; managed 3000; array 64 32 0 4 8; kfree 5";
        rows.play(backend, script, |report, row| {
            let threads = list(report.process(row.pid), "threads");
            assert_eq!(threads.len(), 2);
            let maker = &threads[0];
            assert_eq!(maker["comm"], "a");
            for (key, expected) in [
                ("live_bytes", 1000 + 512 + 2_097_152),
                ("live_allocations", 3),
                ("host_bytes", 4096),
                ("host_allocations", 1),
                ("imported_bytes", 65536),
                ("imported_allocations", 1),
            ] {
                assert_eq!(maker[key], expected, "{key}");
            }
            assert_eq!(threads[1]["live_bytes"], 64 * 32 * 4);
        });
    }
    // Plain and stream ordered memory are freed by either function.
    rows.table(
        &[Shared, Driver, PerThread],
        &[
            "async 4096 3; afree 0 2 plain; kfree 2 => nothing",
            "alloc 512 3; freeasync 0 2; free 2 => nothing",
            "async 4096 2; reset; afree 0 => async 4096 in 1",
            "async 4096 2; reset; afree 0 1 plain => async 4096 in 1",
        ],
    );
    // The wrong function frees nothing.
    rows.table(
        &[Shared, Driver],
        &[
            "pinned 4096; freeaddr $pinned; afree 0 => pinned 4096 in 1",
            "register 4096; freeaddr $register; afree 0 => registered 4096 in 1",
            "vcreate 2097152; freeaddr $vcreate; afree 0 => vmm 2097152 in 1",
            "module one v=100; symbol v; afree 0 => static 100 in 1",
            "extimport 64; freeaddr $extimport => imported 64 in 1",
        ],
    );
    // Address reuse by another kind.
    rows.table(
        &[Shared, Driver],
        &[
            "alloc 4096; free 0; managed 4096; kfree 0; pitched 512 8 => pitched 4096 in 1",
            "array 8 8 0 1 8; kfree 0; mipmap 8 8 0 1 1 8; alloc 64 => device 64 in 1, array 64 in 1",
            "pinned 4096; kfree 0; hostalloc 100 => pinned 100 in 1",
        ],
    );
    rows.end();
}
