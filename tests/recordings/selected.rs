//! Selections that match nothing in a file: the message lists the available values.

use crate::{Folder, gpuprobe};

/// Exit status of an empty result.
const NOTHING: i32 = 3;

#[test]
fn unmatched_selection_lists_available_values() {
    let folder = Folder::new();
    let file = folder.real_export();
    let file = file.to_str().unwrap();
    let picture = folder.path("chart.svg");
    let plot = ["plot", file, "-o", picture.to_str().unwrap()];
    for words in [
        &["report", file][..],
        &["report", file, "--kernels"],
        &["report", file, "--analysis", "usage"],
        &plot,
    ] {
        for (option, value, said) in [
            ("--pid", "99", "no process 99 in"),
            ("--device", "7", "no device 7 in"),
            ("--from", "1h", "--from is beyond the end of"),
        ] {
            let done = gpuprobe(&[words, &[option, value]].concat());
            let errors = String::from_utf8(done.stderr).unwrap();
            assert_eq!(
                done.status.code(),
                Some(NOTHING),
                "{words:?} {option}: {errors}"
            );
            assert!(done.stdout.is_empty(), "{words:?} {option}");
            let line = format!("gpuprobe: error: {said} {file}: ");
            assert!(
                errors.starts_with(&line) && errors.lines().count() == 1,
                "{errors}"
            );
        }
    }
    assert!(!picture.exists());
    let said = |option: &str, value: &str| {
        let done = gpuprobe(&["report", file, option, value]);
        String::from_utf8(done.stderr).unwrap()
    };
    let pids = said("--pid", "99");
    let pid = pids.trim_end().rsplit_once("--pid can be ").unwrap().1;
    let pid = pid.split(' ').next().unwrap();
    assert!(said("--device", "7").ends_with("--device can be 0\n"));
    // The named values are in the file.
    for (option, value) in [("--pid", pid), ("--device", "0"), ("--from", "0.001s")] {
        let done = gpuprobe(&["report", file, option, value]);
        assert!(done.status.success(), "{option} {value}");
    }
}
