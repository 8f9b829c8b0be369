//! The corpora of the fuzz targets, TARGET.tar.gz each: seeds and past findings. `scripts/fuzz.sh`
//! packs them.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use flate2::read::GzDecoder;
use tar::Archive;

/// Timeout; an input takes milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

/// An input of a fuzz target.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// The corpus of `target`, sorted by name.
pub(crate) fn inputs(target: &str) -> Vec<Input> {
    // The tests of every crate of the workspace find it.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let archive = above
        .map(|folder| folder.join(format!("tests/untrusted/{target}.tar.gz")))
        .find(|archive| archive.exists())
        .unwrap_or_else(|| panic!("there is no corpus of {target}"));
    let mut archive = Archive::new(GzDecoder::new(File::open(archive).unwrap()));
    let mut inputs = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        inputs.push(Input { name, bytes });
    }
    assert!(!inputs.is_empty(), "the corpus of {target} is empty");
    inputs
}

/// The results of `read` for each input of `target`. Each input is read on a thread of its name,
/// which panics and stack overflows are reported with.
///
/// # Panics
///
/// If `read` panics or does not return, with the names of these inputs.
pub(crate) fn replay<T, F>(target: &str, read: F) -> Vec<T>
where
    T: Send + 'static,
    F: Fn(&[u8]) -> T + Send + Sync + 'static,
{
    let read = Arc::new(read);
    let mut results = Vec::new();
    let mut failed = Vec::new();
    for Input { name, bytes } in inputs(target) {
        let name = format!("{target}/{name}");
        let (result, results_of_input) = mpsc::channel();
        let read = Arc::clone(&read);
        let reader = thread::Builder::new().name(name.clone());
        let reader = reader.spawn(move || result.send(read(&bytes))).unwrap();
        match results_of_input.recv_timeout(LIMIT) {
            Ok(result) => results.push(result),
            Err(mpsc::RecvTimeoutError::Disconnected) => failed.push(name),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name} is not read in {LIMIT:?}"),
        }
        // Its panic is reported with the names below.
        let _ = reader.join();
    }
    assert!(failed.is_empty(), "these inputs panic: {failed:?}");
    results
}
