//! Grouping of call stacks into call sites.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{MIB, folder, leakage, replayed, sites};
use crate::replay::replay;

/// The sums of a site, for all sites.
fn sum(sites: &[Value], what: &str) -> i64 {
    sites.iter().map(|site| site[what].as_i64().unwrap()).sum()
}

#[test]
fn user_line_is_one_site() {
    let folder = folder();
    for (together, apart) in [
        (
            replayed(&folder, &[]),
            replayed(&folder, &["--group", "native-stack"]),
        ),
        (
            leakage(&folder, &["--group"]),
            leakage(&folder, &["--group", "native-stack"]),
        ),
    ] {
        let (together, apart) = (sites(&together), sites(&apart));
        assert_eq!((together.len(), apart.len()), (9, 10));
        let first = &together[0];
        assert_eq!(first["id"], 0);
        assert_eq!(first["label"], "train.py:41 training_step > cudaMalloc");
        // The second is freed; the first holds most.
        assert_eq!(
            (&first["variants"], &first["live_bytes"]),
            (&2.into(), &(552 * MIB).into())
        );
        assert_eq!(first["stack"][2]["function"], "THPVariable_mul");
        let called = (&first["api"], &first["other_apis"]);
        assert_eq!(called, (&"cudaMalloc".into(), &json!(["cudaMallocAsync"])));
        // 552 to 808 MiB were live at once: the exact peak is unknown.
        assert_eq!(first["peak_bytes"], Value::Null);
        let single = |site: &Value| site["variants"] == 1 && site["peak_bytes"].is_u64();
        assert!(together[1..].iter().chain(apart).all(single));
        for what in ["live_bytes", "live_allocations", "host_bytes"] {
            assert_eq!(sum(together, what), sum(apart, what), "{what}");
        }
        // The freed variant is a part of the site, and no site of its own.
        let freed = i64::try_from(256 * MIB).unwrap();
        assert_eq!(
            sum(together, "alloc_bytes"),
            sum(apart, "alloc_bytes") + freed
        );
        assert_eq!(sum(together, "freed_bytes"), freed);
        // Host memory at the same lines is another site.
        let pinned = together
            .iter()
            .find(|site| site["kinds"] == json!(["pinned"]));
        assert_eq!(pinned.unwrap()["host_bytes"], 64 * MIB);
    }
}

#[test]
fn changes_sum_all_stacks_of_a_site() {
    let folder = folder();
    let file = folder.path("python.sqlite");
    let reports = replay(&file, &["--format", "json"]);
    let second: Value = serde_json::from_str(reports.lines().nth(1).unwrap()).unwrap();
    let first = &sites(&second)[0];
    assert_eq!(first["change_bytes"], -248 * i64::try_from(MIB).unwrap());
    assert_eq!(first["change_allocations"], 0);
    let changes = sum(sites(&second), "change_bytes");
    assert_eq!(
        changes,
        second["memleak"]["processes"][0]["change_bytes"]
            .as_i64()
            .unwrap()
    );
}

#[test]
fn site_is_found_by_any_of_its_stack_ids() {
    let folder = folder();
    let file = folder.path("python.sqlite");
    let of = |number: &str| {
        let words = ["--last", "--site", number, "--allocations", "--top", "all"];
        replay(&file, &words)
    };
    let found = of("0");
    assert!(found.contains("peak 552.00 MiB to 808.00 MiB"), "{found}");
    // 1 holds nothing any more; its memory and that of 2 are of this site.
    assert_eq!(of("1"), found);
    assert_eq!(of("2"), found);
    assert_eq!(
        found.lines().filter(|line| line.contains("gpu_0")).count(),
        3,
        "{found}"
    );
    assert!(of("3").contains("cudaHostAlloc"));
    assert!(of("99").contains("nothing is live at site 99"));
    let native = ["--last", "--site", "2", "--group", "native-stack"];
    assert!(
        replay(&file, &native).contains("wrap_mul"),
        "listed by itself"
    );
}

/// A report of the file equals the live report, site by site.
#[test]
fn recordings_have_the_live_sites() {
    let folder = folder();
    for group in [&[][..], &["--group", "native-stack"]] {
        let (live, file) = (replayed(&folder, group), leakage(&folder, group));
        let what = |sites: &[Value]| -> BTreeSet<String> {
            let one = |site: &Value| {
                let told = [
                    "id",
                    "api",
                    "variants",
                    "live_bytes",
                    "peak_bytes",
                    "complete",
                ];
                let told = told.map(|key| site[key].to_string()).join(" ");
                // Tables contain no tabs or newlines within fields.
                let stack = site["stack"]
                    .to_string()
                    .replace("\\t", " ")
                    .replace("\\n", " ");
                format!("{told} {stack}")
            };
            sites.iter().map(one).collect()
        };
        assert_eq!(what(sites(&live)), what(sites(&file)));
    }
}
