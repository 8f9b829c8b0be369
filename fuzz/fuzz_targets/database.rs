//! Any file as a recording or nsys export.
#![no_main]

#[path = "../entry/report.rs"]
mod report;

use std::path::PathBuf;
use std::sync::OnceLock;

/// A directory on tmpfs, if there is one.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let shared = PathBuf::from("/dev/shm");
        let parent = if shared.is_dir() { shared } else { std::env::temp_dir() };
        let folder = parent.join(format!("gpuprobe-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    })
}

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let path = folder().join("file.sqlite");
    std::fs::write(&path, file).expect("written");
    report::analyse(&path, folder());
});
