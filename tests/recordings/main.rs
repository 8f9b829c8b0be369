//! Analyses of recordings and exports: the gpuprobe binary on files. Needs no root.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod all_modes;
mod bad;
#[cfg(feature = "live")]
mod book;
#[cfg(feature = "live")]
#[path = "../book/mod.rs"]
mod book_commands;
mod contexts;
#[path = "../untrusted/corpus.rs"]
mod corpus;
mod endless;
mod explain;
mod export;
mod holders;
mod html;
mod incidents;
mod launches;
mod many;
#[cfg(not(feature = "live"))]
mod no_live;
mod profiles;
mod progress;
mod python;
mod range;
mod replay;
mod scene;
mod schema;
mod silent;
mod snapshots;
mod stacks;
mod terminal;
mod texts;
mod torch;
mod untrusted;
#[path = "../schema/validator.rs"]
mod validator;
mod values;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

use validator::check_all;

/// A temporary folder for one test.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A real export of Nsight Systems 2025.3.2 from an H200.
    pub(crate) fn real_export(&self) -> PathBuf {
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let packed = File::open(packed.join("nsys-export-h200.sqlite.gz")).unwrap();
        let path = self.path("export.sqlite");
        let mut file = File::create(&path).unwrap();
        std::io::copy(&mut GzDecoder::new(packed), &mut file).unwrap();
        path
    }

    /// A database made by `sql`.
    pub(crate) fn database(&self, sql: &str) -> PathBuf {
        let path = self.path("made.sqlite");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        path
    }
}

/// Runs `gpuprobe ARGUMENTS`.
pub(crate) fn gpuprobe(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprobe"));
    command
        .args(arguments)
        .env_remove("GPUPROBE_LOG")
        .output()
        .unwrap()
}

/// Output of `gpuprobe report FILE ARGUMENTS`; asserts that the file is unchanged and that JSON
/// matches its schema.
pub(crate) fn report(file: &Path, arguments: &[&str]) -> String {
    let before = fs::read(file).unwrap();
    let mut words = vec!["report", file.to_str().unwrap()];
    words.extend(arguments);
    let output = gpuprobe(&words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(fs::read(file).unwrap() == before, "the file was changed");
    let written = String::from_utf8(output.stdout).unwrap();
    if arguments.contains(&"json") {
        check_all(&written);
    }
    written
}

/// The call sites of a report.
pub(crate) fn sites(report: &Value) -> Vec<Value> {
    let processes = report["memleak"]["processes"].as_array().unwrap();
    let sites = processes
        .iter()
        .flat_map(|p| p["sites"].as_array().unwrap());
    sites.cloned().collect()
}

pub(crate) fn report_json(file: &Path, arguments: &[&str]) -> Value {
    let mut words = arguments.to_vec();
    words.extend(["--format", "json"]);
    serde_json::from_str(&report(file, &words)).unwrap()
}
