//! Where answers are written to.

use std::fs;

use crate::{Folder, gpuprobe, report};

#[test]
fn nothing_is_written_over_a_recording() {
    let folder = Folder::new();
    let file = folder.real_export();
    let file = file.to_str().unwrap();
    let other = folder.path("other.svg");
    fs::copy(file, &other).unwrap();
    let precious = fs::read(&other).unwrap();
    let tables = folder.path("tables");
    fs::create_dir(&tables).unwrap();
    fs::copy(file, tables.join("valid.tsv")).unwrap();
    let path = other.to_str().unwrap();
    for words in [
        &["report", file, "-o", path][..],
        &["report", file, "-o", file],
        &["report", file, "--folded", path],
        &["report", file, "--flamegraph", path],
        &["report", file, "--pprof", path],
        &["report", file, "--export-tsv", tables.to_str().unwrap()],
        &["plot", file, "-o", path],
        &["export", file, "-o", path],
    ] {
        let done = gpuprobe(words);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{words:?}: {said}");
        assert!(
            said.contains("it is an SQLite database, as recordings are; write to another file"),
            "{words:?}: {said}"
        );
        for kept in [path, file, tables.join("valid.tsv").to_str().unwrap()] {
            assert!(fs::read(kept).unwrap() == precious, "{words:?}: {kept}");
        }
    }
    // Anything else is.
    fs::write(&other, b"SQLite format 2\0 and so on").unwrap();
    let done = gpuprobe(&["report", file, "-o", path]);
    assert!(done.status.success());
    assert_eq!(
        fs::read_to_string(&other).unwrap(),
        report(file.as_ref(), &[])
    );
}

#[test]
fn a_dash_is_standard_output() {
    let folder = Folder::new();
    let file = folder.real_export();
    let name = file.to_str().unwrap();
    let plain = |words: &[&str]| gpuprobe(&[words, &[name]].concat()).stdout;
    let dashed = |words: &[&str]| gpuprobe(&[words, &[name, "-o", "-"]].concat()).stdout;
    for words in [&["report"][..], &["report", "--kernels"], &["export"]] {
        assert!(!plain(words).is_empty(), "{words:?}");
        assert_eq!(dashed(words), plain(words), "{words:?}");
    }
    let picture = String::from_utf8(dashed(&["plot"])).unwrap();
    assert!(picture.starts_with("<svg"), "{picture}");
    // With a profile, the answer too is written then.
    let folded = folder.path("folded");
    let words = ["report", "--folded", folded.to_str().unwrap()];
    assert_eq!(dashed(&words), plain(&["report"]));
    assert!(plain(&words).is_empty());
}
