//! Every kind of memory, by every API layer and probed layer.

use super::{EVERY_KIND, RUNTIME_KINDS, Rows};
use crate::harness::Backend;

#[test]
fn root_every_kind_is_exact_for_every_backend() {
    let mut rows = Rows::start(&[]);
    for backend in Backend::LINKED {
        rows.play(backend, EVERY_KIND, |report, row| {
            let kinds = row.truth.kinds();
            assert_eq!(kinds.as_object().unwrap().len(), 11, "{kinds}");
            let process = report.process(row.pid);
            assert_eq!(process["modules"].as_u64().map(|n| n > 0), Some(true));
            assert_eq!(process["reserved_address_bytes"], 4_194_304);
        });
    }
    rows.end();
}

#[test]
fn root_every_kind_is_exact_at_one_layer_alone() {
    let of_runtime = [Backend::Shared, Backend::PerThread];
    for (layer, script, backends) in [
        ("driver", EVERY_KIND, &Backend::LINKED[..]),
        ("runtime", RUNTIME_KINDS, &of_runtime),
    ] {
        let mut rows = Rows::start(&["--api", layer]);
        for &backend in backends {
            rows.play(backend, script, move |report, row| {
                for allocation in report.allocations(row.pid) {
                    let api = allocation["api"].as_str().unwrap();
                    assert_eq!(api.starts_with("cuda"), layer == "runtime", "{api}");
                    assert!(api.starts_with("cu"), "{api}");
                }
            });
        }
        rows.end();
    }
}
