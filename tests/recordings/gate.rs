//! `--fail-on-leak`: the exit status, and what is said of leaks and of memory that is none.

use std::fs;

use crate::{Folder, gpuprobe, python, report, scene, tensors};

const LEAKED: i32 = 100;

fn scenes() -> Folder {
    let folder = Folder::new();
    scene::training(&folder.path("training.sqlite"));
    python::scene::record(&folder.path("python.sqlite"));
    for kept in [0, 3] {
        let file = folder.path(&format!("tensors-{kept}.sqlite"));
        tensors::record_scene(&file, kept);
    }
    folder
}

/// Exit status of `gpuprobe report SCENE --fail-on-leak`, and the messages.
fn judged(folder: &Folder, scene: &str, options: &[&str]) -> (i32, Vec<String>) {
    let file = folder.path(scene).with_extension("sqlite");
    let file = file.to_str().unwrap();
    let output = gpuprobe(&[&["report", file][..], options].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    let lines = said
        .lines()
        .filter_map(|line| line.strip_prefix("gpuprobe: "));
    (
        output.status.code().unwrap(),
        lines.map(str::to_owned).collect(),
    )
}

const LEAKS: [&str; 3] = [
    "leaked: 210.00 MiB in 2 allocations at 2 call sites",
    "  110.00 MiB in 1 allocation  raw/__init__.py:7 Raw.grab  (python, python3 train.py pid 574)",
    "  100.00 MiB in 1 allocation  cache.py Cache.fill  (python, python3 train.py pid 574)",
];
const NONE: &str = "leaked: nothing";
const TENSORS: &str = "  48.00 MiB in 3 allocations  train.py:88 step  (libtorch, python3 train.py --epochs 3 pid 574)";

#[test]
fn leaks_are_counted_and_all_else_is_excused() {
    let folder = scenes();
    let file = folder.path("known.supp");
    let text = "# of the vendor\n\nraw/*  # its workspace\ncache.py # its workspace\nlibnot*\n";
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let unused = format!("unused suppression: libnot* ({file}:5)");
    let rows: &[(&str, &[&str], i32, &[&str])] = &[
        ("python", &["--fail-on-leak"], LEAKED, &LEAKS),
        (
            "python",
            &["--fail-on-leak=210MiB"],
            0,
            &["leaked: 210.00 MiB in 2 allocations at 2 call sites (210.00 MiB tolerated)"],
        ),
        ("python", &["--fail-on-leak=220200959"], LEAKED, &LEAKS[1..]),
        (
            "training",
            &["--fail-on-leak"],
            0,
            &[
                NONE,
                "no leak: 2.73 GiB at 2 call stacks in pools of frameworks, whose tensors are judged where these are \
                 told",
                "no leak: 757.00 MiB at 5 call stacks allocated once by a library",
            ],
        ),
        // The program is on every call path.
        (
            "training",
            &["--fail-on-leak", "--ignore", "pyth?n3"],
            0,
            &[NONE, "suppressed: 7 call stacks, 3.47 GiB (pyth?n3)"],
        ),
        (
            "python",
            &["--fail-on-leak", "--suppressions", file],
            0,
            &[
                NONE,
                "suppressed: 2 call stacks, 210.00 MiB (its workspace)",
                &unused,
            ],
        ),
        // Tensors are judged, and not their segments.
        ("tensors-3", &["--fail-on-leak"], LEAKED, &[TENSORS]),
        (
            "tensors-0",
            &["--fail-on-leak"],
            LEAKED,
            &["leaked: 512.00 KiB in 1 allocation at 1 call site"],
        ),
    ];
    for (scene, options, expected, lines) in rows {
        let (status, said) = judged(&folder, scene, options);
        assert_eq!(status, *expected, "{scene} {options:?}: {said:#?}");
        for line in *lines {
            let has = said.iter().any(|said| said == line);
            assert!(has, "{scene} {options:?}: {line} in {said:#?}");
        }
    }
}

#[test]
fn leaks_as_in_the_baseline_are_excused() {
    let folder = scenes();
    let baseline = folder.path("earlier.json");
    let with = ["--fail-on-leak", "--baseline", baseline.to_str().unwrap()];
    let earlier = |scene: &str| {
        let file = folder.path(scene).with_extension("sqlite");
        let text = report(&file, &["--analysis", "leakage", "--format", "json"]);
        fs::write(&baseline, text).unwrap();
    };
    earlier("python");
    let (status, said) = judged(&folder, "python", &with);
    assert_eq!((status, said[0].as_str()), (0, NONE), "{said:#?}");
    let excused = "no leak: 210.00 MiB at 2 call stacks as in the baseline";
    assert!(said.iter().any(|line| line == excused), "{said:#?}");
    // One more than in the baseline.
    tensors::record_scene(&folder.path("tensors-4.sqlite"), 4);
    earlier("tensors-3");
    let (status, said) = judged(&folder, "tensors-4", &with);
    assert_eq!(status, LEAKED);
    let more = "  64.00 MiB in 4 allocations, 48.00 MiB in 3 allocations in the baseline  train.py:88 step";
    assert!(said[1].starts_with(more), "{said:#?}");
    fs::write(&baseline, "PID: 7").unwrap();
    let (status, said) = judged(&folder, "python", &with);
    assert_eq!(status, 1);
    assert!(said[0].contains("is no report in JSON"), "{said:#?}");
}

#[test]
fn each_leak_is_a_failed_test_in_junit_xml() {
    let folder = scenes();
    let file = folder.path("out.xml");
    let with = ["--fail-on-leak", "--junit", file.to_str().unwrap()];
    assert_eq!(judged(&folder, "python", &with).0, LEAKED);
    let xml = fs::read_to_string(&file).unwrap();
    for part in [
        "<testsuite name=\"gpuprobe\" tests=\"2\" failures=\"2\"",
        "<testcase classname=\"gpuprobe.python3 train.py\" name=\"raw/__init__.py:7 Raw.grab\">",
        "110.00 MiB in 1 allocation never freed\ncudaMalloc of python in python3 train.py pid 574\n  ffi_call",
        "  main  (python3.12)</failure>",
    ] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
    assert_eq!(judged(&folder, "training", &with).0, 0);
    let xml = fs::read_to_string(&file).unwrap();
    let none = "<testcase classname=\"gpuprobe\" name=\"no leaks\"/>";
    assert!(xml.contains(none), "{xml}");
}
