//! Any lines as paths below a folder with links out of it, for the process that opens files.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use gpuprobe_stacks::untrusted::{plant, try_opener};

/// The folder, which is made anew by each run.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<&Path> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../target/fuzz-runs/opener/planted"
        );
        let folder = Path::new(folder);
        let _ = fs::remove_dir_all(folder);
        plant(folder).expect("it can be written");
        folder
    })
}

libfuzzer_sys::fuzz_target!(|lines: &[u8]| {
    try_opener(folder(), lines).expect("the folder is there");
});
