//! Streams, events, modules and contexts by the call site that made them, as the workloads made and destroyed them.

use serde_json::Value;

use crate::harness::report::{list, number};
use crate::harness::{Backend, Session};

/// Kind, the end of the label of the line that made them, and how many were created, destroyed and are live.
type Made = (&'static str, &'static str, [u64; 3]);

/// The objects of a process that were made at these lines of the workload.
fn assert_made(process: &Value, expected: &[Made]) {
    let handles = list(process, "handles");
    for (kind, function, counts) in expected {
        let is_it = |one: &&Value| {
            let label = one["where"].as_str().unwrap();
            one["kind"] == *kind && label.ends_with(function)
        };
        let found: Vec<_> = handles.iter().filter(is_it).collect();
        let [found] = found[..] else {
            panic!("{kind} at {function}: {handles:#?}");
        };
        let made = ["created", "destroyed", "live"].map(|name| number(found, name));
        assert_eq!(made, *counts, "{found}");
        assert!(!list(found, "stack").is_empty(), "{found}");
    }
}

#[test]
fn root_objects_are_counted_by_the_line_that_made_them() {
    let communicators =
        "communicators 10; split 2; split 3 none; communicatorfree 0; communicatorfree 2";
    let streams = "stream; ".repeat(12) + "streamdestroy 3; streamdestroy 11; ";
    let by_runtime =
        streams + &"event; ".repeat(9) + "eventdestroy 0; stream; plan; plan; plan; planfree 2";
    let by_driver = "module m v=64; module m v=64; symbol v; unload 0; ctx create; stream; event; \
                     ctx create; ctx destroy 0; primary retain; alloc 64; green create 0; green create 0; \
                     green destroy 0; endpoint create 5; endpoint create 9; endpoint destroy 5; endpoint create 5";
    let [shared, driver] = [Backend::Shared, Backend::Driver];
    let rows = [
        ("", shared, &*by_runtime),
        ("", driver, by_driver),
        ("", shared, communicators),
    ];
    let (report, _, ended) = Session::table(|setup| setup, &rows);
    let [of_runtime, of_driver, of_nccl] =
        [0, 1, 2].map(|row: usize| report.process(ended[row].pid));
    // One call makes ten. A child does not block, and there is none where the rank is not in it.
    let expected = [
        ("NCCL communicator", "run_communicators", [10, 1, 9]),
        ("NCCL communicator", "run_split", [1, 1, 0]),
    ];
    assert_made(of_nccl, &expected);
    let expected = [
        ("stream", "run_stream", [13, 2, 11]),
        ("event", "run_event", [9, 1, 8]),
        // Its library makes them by a call of another of its functions.
        ("cuFFT plan", "run_plan", [3, 1, 2]),
    ];
    assert_made(of_runtime, &expected);
    let expected = [
        ("module", "load_module", [2, 1, 1]),
        ("context", " create", [2, 1, 1]),
        ("primary context", "make_context", [1, 0, 1]),
        ("green context", "run_green", [2, 1, 1]),
        ("logical endpoint", "run_endpoint", [3, 1, 2]),
        // They end with their context.
        ("stream", "stream_create", [1, 1, 0]),
        ("event", "event_create", [1, 1, 0]),
    ];
    assert_made(of_driver, &expected);
    let mut sites = list(of_driver, "sites").iter();
    let of_module = sites.find(|site| site["kinds"][0] == "static").unwrap();
    assert_eq!(of_module["api"], "cuModuleLoadData", "{of_module}");
    assert!(!list(of_module, "stack").is_empty(), "{of_module}");
}
