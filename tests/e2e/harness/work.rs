//! Reports of launches and copies, and their invariants.

use serde_json::{Value, json};

use super::Report;
use super::report::{list, number};

fn sum<'a>(parts: impl IntoIterator<Item = &'a Value>, key: &str) -> u64 {
    parts.into_iter().map(|part| number(part, key)).sum()
}

impl Report {
    /// Asserts that each level is the sum of the level below it. Kernels of exited processes are
    /// listed twice only: at the exit and in the last report.
    pub(super) fn check_work_sums(&self) {
        if let Some(cudatrace) = self.get("cudatrace") {
            let calls = cudatrace["calls"].as_object().expect("an object");
            let by_function: u64 = calls.values().filter_map(Value::as_u64).sum();
            let launches = number(cudatrace, "launches");
            assert_eq!(launches, by_function, "launches by function");
            let listed = sum(list(cudatrace, "kernels"), "launches");
            assert!(listed <= launches, "{listed} launches are listed");
            if self.is_final() {
                assert_eq!(launches, listed, "launches by kernel");
                let captured = sum(list(cudatrace, "kernels"), "captured_launches");
                assert!(captured <= number(cudatrace, "captured_launches"));
            }
            let graphs = sum(list(cudatrace, "graphs"), "launches");
            assert_eq!(number(cudatrace, "graph_launches"), graphs);
        }
        if let Some(bandwidth) = self.get("bandwidth_util") {
            let (sets, copies): (Vec<_>, Vec<_>) = list(bandwidth, "directions")
                .iter()
                .partition(|d| d["direction"] == "set");
            assert_eq!(number(bandwidth, "sets"), sum(sets, "calls"));
            assert_eq!(number(bandwidth, "copies"), sum(copies, "calls"));
            list(bandwidth, "directions")
                .iter()
                .for_each(check_direction);
        }
    }

    /// Launches that ran, graph launches, and launches captured into a graph.
    pub(crate) fn launches(&self) -> [u64; 3] {
        let keys = ["launches", "graph_launches", "captured_launches"];
        keys.map(|key| number(&self["cudatrace"], key))
    }

    /// Launches that ran, by function.
    pub(crate) fn assert_launch_calls(&self, expected: &[(&str, u64)]) {
        let expected: std::collections::BTreeMap<_, _> = expected.iter().copied().collect();
        assert_eq!(self["cudatrace"]["calls"], json!(expected));
    }

    /// The kernels of a process, most launched first.
    pub(crate) fn kernels(&self, pid: u32) -> Vec<&Value> {
        let kernels = list(&self["cudatrace"], "kernels").iter();
        kernels.filter(|k| k["pid"] == pid).collect()
    }

    /// The only kernel of a process with this name.
    pub(crate) fn kernel(&self, pid: u32, name: &str) -> &Value {
        let kernels = self.kernels(pid);
        let mut named = kernels.iter().filter(|k| k["name"] == name);
        let found = named
            .next()
            .unwrap_or_else(|| panic!("no {name} in {kernels:#?}"));
        assert!(named.next().is_none(), "several {name} in {kernels:#?}");
        found
    }

    /// The launches of a process's kernels, by name.
    pub(crate) fn launched(&self, pid: u32) -> Vec<(&str, u64)> {
        let kernels = self.kernels(pid).into_iter();
        let mut launched: Vec<_> = kernels
            .map(|k| (k["name"].as_str().unwrap(), number(k, "launches")))
            .collect();
        launched.sort_unstable();
        launched
    }

    /// A process's copies in one direction and mode.
    pub(crate) fn direction(&self, pid: u32, direction: &str, mode: &str) -> &Value {
        let all = list(&self["bandwidth_util"], "directions");
        let mut wanted = all
            .iter()
            .filter(|d| d["pid"] == pid && d["direction"] == direction && d["mode"] == mode);
        let found = wanted.next();
        assert!(wanted.next().is_none(), "several {direction} in {all:#?}");
        found.unwrap_or_else(|| panic!("no {direction} {mode} in {all:#?}"))
    }

    /// Direction, mode, calls and bytes of all copies of a process, sorted.
    pub(crate) fn moved(&self, pid: u32) -> Vec<(&str, &str, u64, u64)> {
        let directions = list(&self["bandwidth_util"], "directions").iter();
        let mut moved: Vec<_> = directions
            .filter(|d| d["pid"] == pid)
            .map(|d| {
                let text = |key: &str| d[key].as_str().unwrap();
                let (calls, bytes) = (number(d, "calls"), number(d, "bytes"));
                (text("direction"), text("mode"), calls, bytes)
            })
            .collect();
        moved.sort_unstable();
        moved
    }
}

/// Asserts that a throughput is present exactly where copies have a duration, and that it equals
/// bytes by time.
fn check_direction(direction: &Value) {
    let is_sync = direction["mode"] == "sync";
    assert!(is_sync || direction["mode"] == "async", "{direction}");
    for key in ["seconds", "bytes_per_second", "peak_bytes_per_second"] {
        assert_eq!(direction[key].is_f64(), is_sync, "{key} of {direction}");
    }
    if !is_sync {
        assert!(direction["now_bytes_per_second"].is_null(), "{direction}");
        assert!(direction["link_utilisation"].is_null(), "{direction}");
    }
    let sized: u64 = list(direction, "sizes")
        .iter()
        .map(|pair| pair[1].as_u64().unwrap())
        .sum();
    // Each copy of a batch, which is one call, has a size.
    let is_all = sized == number(direction, "calls");
    assert!(
        is_all || !is_sync && sized > number(direction, "calls"),
        "sizes of {direction}"
    );
}
