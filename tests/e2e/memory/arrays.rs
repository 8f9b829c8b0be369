//! Arrays, whose sizes no API returns: they are computed from the arguments.

use super::{Rows, left, of_kind, only};
use crate::harness::Backend::{self, Driver, PerThread, Shared, Static};
use crate::harness::report::number;

/// Makes each array, compares all sizes with the workload's and with the expected ones, and frees
/// every other array.
fn arrays(rows: &mut Rows, backends: &[Backend], arrays: &[(&str, u64)]) {
    for &backend in backends {
        let mut member = rows.session.workload(backend);
        for (command, bytes) in arrays {
            let reply = member.say(command);
            let said = reply.split("bytes=").nth(1).map(str::parse);
            assert_eq!(said, Some(Ok(*bytes)), "{backend:?}: {command}");
        }
        let mut kept: Vec<u64> = Vec::new();
        for (slot, (_, bytes)) in arrays.iter().enumerate() {
            if slot % 2 == 0 {
                member.say(&format!("kfree {slot}"));
            } else {
                kept.push(*bytes);
            }
        }
        kept.sort_unstable();
        rows.done(member, "arrays", move |report, row| {
            let all = report.allocations(row.pid);
            assert!(
                all.iter()
                    .all(|a| a["kind"] == "array" && a["computed"] == true)
            );
            let mut sizes: Vec<_> = all.iter().map(|a| number(a, "bytes")).collect();
            sizes.sort_unstable();
            assert_eq!(sizes, kept, "{backend:?}");
        });
    }
}

#[test]
fn root_array_sizes_are_computed() {
    let mut rows = Rows::start(&[]);
    let every_shape = [
        ("array 64 0 0 2 16", 256),
        ("array 64 32 0 4 8", 8192),
        ("array 64 32 0 1 32", 8192),
        ("array 64 64 4 2 float", 131_072),
        ("array 64 64 4 1 half", 32768),
        ("array 64 64 4 4 int8", 65536),
        ("array 64 64 4 1 int32", 65536),
        // Layered arrays, of cubes too.
        ("array 64 64 6 1 32 4", 98304),
        ("array 64 0 5 1 8 1", 320),
        ("array 32 32 12 2 16 5", 49152),
        // Without memory of their own: sparse, and mapped later.
        ("array 32 32 0 1 8 64", 0),
        ("array 32 32 0 1 8 128", 0),
        ("mipmap 64 64 0 3 4 8", 21504),
        ("mipmap 16 16 16 5 1 half", 9362),
        ("mipmap 64 1 0 2 1 8", 96),
        // Mipmap levels shrink, layers do not.
        ("mipmap 8 8 6 4 1 8 4", 510),
        ("mipmap 64 64 3 2 1 8 1", 15360),
        ("mipmap 64 64 0 3 4 8 64", 0),
    ];
    arrays(
        &mut rows,
        &[Shared, Static, Driver, PerThread],
        &every_shape,
    );
    arrays(&mut rows, &[Shared], &every_shape[1..]);
    let driver_formats = [
        ("array 64 64 0 4 bc1", 2048),
        ("array 65 3 0 1 bc7", 272),
        ("array 64 64 0 4 bc2", 4096),
        ("array 64 64 0 1 bc4", 2048),
        ("array 64 64 0 2 bc5", 4096),
        ("array 64 64 0 1 unorm8", 4096),
        ("array 64 64 0 4 unorm8x4", 16384),
        ("array 64 64 0 2 unorm16x2", 16384),
        ("array 8 8 0 4 snorm16x4", 512),
        ("array 8 8 0 4 unorm101010", 256),
        ("mipmap 8 8 0 3 4 bc1", 48),
        ("mipmap 64 64 0 3 4 bc7", 5376),
    ];
    arrays(&mut rows, &[Driver], &driver_formats);
    arrays(&mut rows, &[Driver], &driver_formats[1..]);

    // They name the function that made them.
    let script = "array 64 32 0 4 8; array 64 64 4 2 float; mipmap 64 64 0 3 4 8; alloc 512";
    rows.play(Shared, script, |report, row| {
        left("device 512 in 1, array 160768 in 3")(report, row);
        let mut apis: Vec<_> = of_kind(report, row.pid, "array")
            .iter()
            .map(|a| a["api"].as_str().unwrap())
            .collect();
        apis.sort_unstable();
        assert_eq!(
            apis,
            [
                "cudaMalloc3DArray",
                "cudaMallocArray",
                "cudaMallocMipmappedArray"
            ]
        );
        assert!(only(report, row.pid, "device").get("computed").is_none());
    });
    rows.end();
}
