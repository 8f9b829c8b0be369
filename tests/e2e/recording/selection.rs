//! Recordings of selected processes and kinds of memory.

use serde_json::json as value;

use super::{analysed, json, recorded};
use crate::harness::{Backend, Setup};

#[test]
fn root_recording_has_the_selected_kinds_only() {
    let setup = Setup::workload(Backend::Shared).args(["--kind", "managed,async"]);
    let script = "alloc 1048576 3; managed 8192; async 1000 2; afree 0";
    let (recording, last, _) = recorded(setup, script);
    let memleak = &last["memleak"];
    let live = value!({"bytes": memleak["live_bytes"], "allocations": memleak["live_allocations"]});
    assert_eq!(live["allocations"], 2, "{memleak}");
    let leaked = analysed(&recording.file, "leakage");
    assert_eq!(leaked["totals"]["total"], live);
    let peak = analysed(&recording.file, "watermark");
    assert_eq!(peak["totals"]["total"]["bytes"], memleak["peak_bytes"]);
    let replayed = json(&["replay", &recording.text(), "--last"]);
    assert_eq!(replayed["memleak"], *memleak);
}
