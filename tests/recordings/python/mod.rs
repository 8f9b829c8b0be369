//! Python frames in every output with call stacks.

mod forms;
mod grouping;
pub(crate) mod scene;

use serde_json::Value;

use crate::replay::replay;
use crate::{Folder, report_json};
use scene::MIB;

/// The sites of a report of the only process.
fn sites(report: &Value) -> &[Value] {
    let memory = report.get("memleak").unwrap_or(report);
    let sites = &memory["processes"][0]["sites"];
    sites.as_array().unwrap()
}

/// The last report of a replay.
fn replayed(folder: &Folder, arguments: &[&str]) -> Value {
    let file = folder.path("python.sqlite");
    let words = [&["--last", "--format", "json"], arguments].concat();
    serde_json::from_str(&replay(&file, &words)).unwrap()
}

/// The same sites from the tables.
fn leakage(folder: &Folder, arguments: &[&str]) -> Value {
    let words = [&["--analysis", "leakage", "--host"], arguments].concat();
    report_json(&folder.path("python.sqlite"), &words)
}

fn folder() -> Folder {
    let folder = Folder::new();
    scene::record(&folder.path("python.sqlite"));
    folder
}
