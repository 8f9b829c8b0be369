//! The HTML report in a browser: the figures that it shows are those of JSON.
//!
//! These tests need node, the packages of `web/` (`npm ci` there) and Chromium; `scripts/test.sh` runs them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Figures, html, list, numbers, random_calls, reported, run, selected};
use crate::{Folder, report_json, scene};

/// The figures that the page shows for the bins from `first` to before `last`.
fn shown(page: &Path, first: usize, last: usize) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/test/figures.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(page);
    command.args([
        "--from-edge",
        &first.to_string(),
        "--to-edge",
        &last.to_string(),
    ]);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Compares the page of `file` with its reports, for some ranges.
fn compare(file: &Path) {
    let run = run(file);
    let edges = numbers(&run["edges_ns"]);
    let bins = edges.len() - 1;
    html(file, &[]);
    for (first, last) in [(0, bins), (bins / 3, bins - 2), (0, bins / 2)] {
        let words = selected(&edges, first, last);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let shown = shown(&file.with_extension("html"), first, last);
        let number = |key: &str| shown[key].as_i64().unwrap();
        let Figures {
            never_freed,
            at_peak,
            peak_ns,
            ..
        } = reported(file, &words);
        let amounts = ["never_freed_bytes", "never_freed_allocations"].map(number);
        assert_eq!(amounts, never_freed, "{words:?}");
        let amounts = ["at_peak_bytes", "at_peak_allocations"].map(number);
        assert_eq!(
            (amounts, number("peak_ns")),
            (at_peak, peak_ns),
            "{words:?}"
        );
        assert_eq!(number("peak_bytes"), at_peak[0]);
        assert_eq!([number("violations"), number("requests")], [0, 0]);
    }
}

#[test]
#[ignore = "needs node and Chromium"]
fn browser_shows_the_memory_of_reports() {
    let folder = Folder::new();
    compare(&folder.real_export());
    compare(&random_calls(&folder, 3_000, 6));
}

#[test]
#[ignore = "needs node and Chromium"]
fn browser_shows_the_work_of_reports() {
    let folder = Folder::new();
    for (file, all) in [
        (folder.real_export(), true),
        (folder.path("run.sqlite"), false),
    ] {
        if !all {
            scene::launches(&file);
        }
        html(&file, &[]);
        let bins = numbers(&run(&file)["edges_ns"]).len() - 1;
        let shown = shown(&file.with_extension("html"), 0, bins);
        let report = report_json(&file, &["--kernels"]);
        let (kernels, count) = match all {
            true => (&report["activity"]["processes"][0]["kernels"], "count"),
            false => (&report["cudatrace"]["kernels"], "launches"),
        };
        assert!(!list(kernels).is_empty());
        for kernel in list(kernels) {
            let name = kernel["name"].as_str().unwrap();
            assert_eq!(shown["kernels"][name], kernel[count], "{name}");
        }
    }
}
