//! Recordings of runs on the stand-in, and what was written about them when that was last looked at.
//!
//! `tests/snapshots/recordings.tar.gz` has recordings that end-to-end tests made, each by the name of a test at that
//! time, and each with something that no other has. The other archives have the outputs of a command, a line a document. An output
//! that is meant to change is written again with
//!
//! ```text
//! GPUPROBE_TEST_UPDATE=1 cargo test --test recordings snapshots
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use tar::{Archive, Builder, Header};
use tempfile::TempDir;

use crate::gpuprobe;
use crate::validator::check_all;

/// Differences that a failure shows.
const SHOWN: usize = 8;

fn archive(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    folder.join(name).with_extension("tar.gz")
}

/// The recordings, unpacked.
fn recordings() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let unpack = || {
        let folder = TempDir::new().unwrap();
        let packed = File::open(archive("recordings")).unwrap();
        Archive::new(GzDecoder::new(packed))
            .unpack(folder.path())
            .unwrap();
        folder
    };
    FOLDER.get_or_init(unpack).path()
}

/// The recording of this test.
pub(crate) fn recording(test: &str) -> PathBuf {
    recordings().join(test).with_extension("sqlite")
}

/// Outputs by recording.
type Outputs = BTreeMap<String, String>;

/// The output about each recording.
fn written(command: &[&str]) -> Outputs {
    let mut outputs = Outputs::new();
    for entry in fs::read_dir(recordings()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.to_str().unwrap();
        let mut arguments = vec![command[0], file];
        arguments.extend(&command[1..]);
        arguments.extend(["--format", "json"]);
        let output = gpuprobe(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        let mut text = String::from_utf8(output.stdout).unwrap();
        check_all(&text);
        if !output.status.success() {
            let said = said.replace(file, "FILE");
            writeln!(text, "{}: {said}", output.status).unwrap();
        }
        let recording = path.file_stem().unwrap().to_str().unwrap();
        outputs.insert(recording.to_owned(), text);
    }
    outputs
}

fn expected(name: &str) -> Outputs {
    let packed = File::open(archive(name)).unwrap();
    let mut archive = Archive::new(GzDecoder::new(packed));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name, text)
    };
    archive.entries().unwrap().map(read).collect()
}

fn update(name: &str, outputs: &Outputs) {
    let packed = File::create(archive(name)).unwrap();
    let mut archive = Builder::new(GzEncoder::new(packed, Compression::best()));
    for (name, text) in outputs {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
}

/// Adds where `now` differs from `before` to `found`.
fn compare(place: &str, before: &Value, now: &Value, found: &mut Vec<String>) {
    let null = Value::Null;
    match (before, now) {
        _ if before == now => {}
        (Value::Object(old), Value::Object(new)) => {
            let all: BTreeMap<_, _> = old.iter().chain(new).collect();
            for key in all.into_keys() {
                let sides = [old, new].map(|side| side.get(key).unwrap_or(&null));
                compare(&format!("{place}.{key}"), sides[0], sides[1], found);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                let sides = [old, new].map(|side| side.get(index).unwrap_or(&null));
                compare(&format!("{place}[{index}]"), sides[0], sides[1], found);
            }
        }
        _ => found.push(format!("{place}: {before} before, {now} now")),
    }
}

fn documents(text: &str) -> Value {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
    text.lines().map(parse).collect()
}

/// Compares the outputs of a command with those in the archive `name`.
fn are_as_before(name: &str, command: &[&str]) {
    let written = written(command);
    assert!(written.len() > 50);
    if std::env::var_os("GPUPROBE_TEST_UPDATE").is_some() {
        update(name, &written);
    }
    let expected = expected(name);
    let mut found = Vec::new();
    for (name, now) in &written {
        let before = expected.get(name).map_or("", String::as_str);
        if before != now {
            compare(name, &documents(before), &documents(now), &mut found);
        }
    }
    let count = found.len();
    found.truncate(SHOWN);
    assert_eq!(count, 0, "differences, of which the first: {found:#?}");
    assert_eq!(written.len(), expected.len());
}

#[test]
fn replays_of_recorded_runs_are_as_before() {
    are_as_before("replay", &["replay"]);
}

#[test]
fn reports_of_recorded_runs_are_as_before() {
    are_as_before("report", &["report"]);
}

#[test]
fn watermarks_of_recorded_runs_are_as_before() {
    are_as_before("watermark", &["report", "--analysis", "watermark"]);
}

#[test]
fn leakages_of_recorded_runs_are_as_before() {
    are_as_before("leakage", &["report", "--analysis", "leakage"]);
}

#[test]
fn usages_of_recorded_runs_are_as_before() {
    are_as_before("usage", &["report", "--analysis", "usage"]);
}

#[test]
fn explanations_of_recorded_runs_are_as_before() {
    are_as_before("explain", &["explain"]);
}
