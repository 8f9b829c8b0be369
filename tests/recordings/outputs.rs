//! Output files of analyses.

use std::fs;

use std::process::{Command, Output};

use crate::{Folder, gpuprobe, report};

#[test]
fn recordings_are_not_overwritten() {
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
    // Any other file is replaced.
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
    // With `-o -`, the report is written beside the profile.
    let folded = folder.path("folded");
    let words = ["report", "--folded", folded.to_str().unwrap()];
    assert_eq!(dashed(&words), plain(&["report"]));
    assert!(plain(&words).is_empty());
}

/// Runs `gpuprobe ARGUMENTS` in `folder`.
fn within(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprobe"));
    let command = command.args(arguments).env_remove("GPUPROBE_LOG");
    command.current_dir(folder.path("")).output().unwrap()
}

#[test]
fn newest_recording_is_the_default() {
    let folder = Folder::new();
    let without = within(&folder, &["report"]);
    assert_eq!(without.status.code(), Some(2));
    assert!(without.stdout.is_empty());
    let said = String::from_utf8(without.stderr).unwrap();
    assert!(
        said.contains("no gpuprobe-*.sqlite in this folder"),
        "{said}"
    );
    let export = folder.real_export();
    let (old, new) = ("gpuprobe-old-1.sqlite", "gpuprobe-new-2.sqlite");
    fs::write(folder.path(old), "no database").unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    let file = fs::File::options().write(true).open(folder.path(old));
    file.unwrap().set_modified(long_ago).unwrap();
    fs::rename(&export, folder.path(new)).unwrap();
    for words in [&["report"][..], &["report", "--copies"], &["export"]] {
        let named = within(&folder, &[words, &[new]].concat());
        let unnamed = within(&folder, words);
        assert!(unnamed.status.success(), "{words:?}");
        assert_eq!(unnamed.stdout, named.stdout, "{words:?}");
        let said = String::from_utf8(unnamed.stderr).unwrap();
        let first = format!("gpuprobe: reading {new}, the newer of 2 recordings here\n");
        assert!(said.starts_with(&first), "{words:?}: {said}");
    }
    // Plots are named after the recording, and none replaces another.
    for name in ["gpuprobe-new-2.svg", "gpuprobe-new-2-2.svg"] {
        assert!(!folder.path(name).exists());
        let drawn = within(&folder, &["plot"]);
        assert!(drawn.status.success());
        let said = String::from_utf8(drawn.stderr).unwrap();
        assert!(
            said.ends_with(&format!("gpuprobe: drawn: {name}\n")),
            "{said}"
        );
        assert!(
            fs::read_to_string(folder.path(name))
                .unwrap()
                .starts_with("<svg")
        );
    }
}
