//! Activity beside copies, whose report becomes more exact.

use super::{setup, traced};
use crate::harness::Backend;

#[test]
fn root_asynchronous_copies_have_gpu_throughput() {
    let both = setup(Backend::Driver).modes(["--activity", "--bandwidth-util"]);
    let work = "stream; copy h2d 1048576 4 via=cuMemcpyHtoDAsync_v2; copy d2d 65536 3; set 512 2";
    let (pid, _, report) = traced(both, work);
    for (direction, count, bytes) in [
        ("H2D", 4, 4 << 20),
        ("D2D", 3, 3 * 65_536),
        ("set", 2, 1024),
    ] {
        let found = report.direction(pid, direction, "async");
        assert!(
            found["bytes_per_second"].is_null(),
            "the call's time means nothing"
        );
        let gpu = &found["gpu"];
        assert_eq!(
            (&gpu["count"], &gpu["bytes"]),
            (&count.into(), &bytes.into()),
            "{found}"
        );
        let seconds = gpu["seconds"].as_f64().unwrap();
        let Some(speed) = gpu["bytes_per_second"].as_f64() else {
            // Sets of the stand-in may take 0 ns; those have no throughput.
            assert_eq!((direction, seconds), ("set", 0.0));
            continue;
        };
        assert!(
            (seconds * speed / f64::from(bytes) - 1.0).abs() < 1e-6,
            "{gpu}"
        );
    }
}
