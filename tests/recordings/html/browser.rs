//! The HTML report in a browser: the figures that it shows are those of JSON.
//!
//! These tests need node, the packages of `web/` (`npm ci` there) and Chromium; `scripts/test.sh` runs them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Figures, html, list, numbers, random_calls, reported, run, selected};
use crate::{Folder, report};

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

/// Sums of the rows of the command that the page has for `question`, by name: of a table, the columns `names`, and
/// `figures`.
fn commanded(
    file: &Path,
    shown: &Value,
    question: &str,
    (names, figures): (&[&str], &[&str]),
) -> BTreeMap<String, Vec<i64>> {
    let commands = list(&shown["commands"]).iter();
    let mut commands = commands.filter_map(Value::as_str);
    let Some(command) = commands.find(|one| one.contains(question)) else {
        return BTreeMap::new();
    };
    let (_, options) = command.split_once(".sqlite ").unwrap();
    let words: Vec<_> = options.split(' ').chain(["--format", "tsv"]).collect();
    let text = report(file, &words);
    let mut lines = text
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let cells = |row: &[&str], wanted: &[&str]| -> Vec<String> {
        let place = |name: &&str| columns.iter().position(|column| column == name).unwrap();
        wanted
            .iter()
            .map(|name| row[place(name)].to_owned())
            .collect()
    };
    let mut sums = BTreeMap::new();
    for row in lines {
        let sum: &mut Vec<i64> = sums.entry(cells(&row, names).join(" ")).or_default();
        sum.resize(figures.len(), 0);
        for (sum, cell) in sum.iter_mut().zip(cells(&row, figures)) {
            *sum += cell.parse::<i64>().unwrap();
        }
    }
    sums.retain(|_, sum| sum[0] > 0);
    sums
}

/// Figures of the page by name, each a number or several.
fn on_page(shown: &Value) -> BTreeMap<String, Vec<i64>> {
    let figures = shown.as_object().unwrap().iter();
    let number = |value: &Value| value.as_i64().unwrap();
    let figures = figures.map(|(name, value)| match value {
        Value::Array(several) => (name.clone(), several.iter().map(number).collect()),
        one => (name.clone(), vec![number(one)]),
    });
    figures.collect()
}

#[test]
#[ignore = "needs node and Chromium"]
fn commands_of_a_range_print_the_figures_of_the_page() {
    let folder = Folder::new();
    for file in [folder.real_export(), folder.scene("launches")] {
        html(&file, &[]);
        let bins = numbers(&run(&file)["edges_ns"]).len() - 1;
        let mut filled = 0;
        for (first, last) in [
            (0, bins),
            (bins / 3, bins - 2),
            (bins / 2, bins),
            (0, bins / 2),
        ] {
            let shown = shown(&file.with_extension("html"), first, last);
            let kernels = commanded(
                &file,
                &shown,
                "--analysis kernels",
                (&["name"], &["launches"]),
            );
            assert_eq!(on_page(&shown["kernels"]), kernels, "{first} {last}");
            let copies = (&["direction", "mode"][..], &["count", "bytes"][..]);
            let copies = commanded(&file, &shown, "--analysis copies", copies);
            assert_eq!(on_page(&shown["copies"]), copies, "{first} {last}");
            filled += usize::from(!kernels.is_empty());
        }
        assert!(filled > 1, "{}", file.display());
    }
}
