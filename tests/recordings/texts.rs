//! Text output, byte for byte, at several widths: `tests/data/text/*.txt`. After an intended
//! change, `GPUPROBE_WRITE_GOLDEN=1 cargo test --test recordings texts` rewrites the files; review
//! them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Folder, python, scene, snapshots, tensors};

/// Columns of a terminal; `None` for a pipe.
const WIDTHS: [Option<usize>; 4] = [Some(80), Some(120), Some(200), None];

/// The arguments for each file.
const COMMANDS: &[&[&str]] = &[
    &["replay", "training.sqlite"],
    &["replay", "training.sqlite", "--last", "--group", "kind"],
    &["replay", "training.sqlite", "--last", "--group", "process"],
    &["replay", "training.sqlite", "--last", "--group", "thread"],
    &[
        "replay",
        "training.sqlite",
        "--last",
        "--top",
        "2",
        "--stacks-shown",
    ],
    &[
        "replay",
        "training.sqlite",
        "--last",
        "--site",
        "0",
        "--allocations",
    ],
    &["replay", "training.sqlite", "--last", "--min-size", "90M"],
    &["replay", "python.sqlite"],
    &["replay", "python.sqlite", "--last", "--stacks-shown"],
    &["replay", "python.sqlite", "--last", "--site", "2"],
    &[
        "replay",
        "python.sqlite",
        "--last",
        "--site",
        "0",
        "--full-stacks",
    ],
    &[
        "replay",
        "python.sqlite",
        "--last",
        "--site",
        "8",
        "--stacks-native",
    ],
    &[
        "replay",
        "python.sqlite",
        "--last",
        "--group",
        "native-stack",
    ],
    &["replay", "host.sqlite"],
    &["replay", "launches.sqlite", "--last"],
    &["replay", "copies.sqlite", "--last"],
    &["replay", "activity.sqlite", "--last"],
    &["report", "training.sqlite"],
    &[
        "report",
        "training.sqlite",
        "--analysis",
        "watermark",
        "--top",
        "3",
    ],
    &[
        "report",
        "training.sqlite",
        "--analysis",
        "leakage",
        "--host",
    ],
    &[
        "report",
        "python.sqlite",
        "--analysis",
        "leakage",
        "--host",
        "--stacks-shown",
    ],
    &[
        "report",
        "python.sqlite",
        "--diff",
        "training.sqlite",
        "--stacks-shown",
    ],
    &["report", "activity.sqlite", "--kernels"],
    &["report", "activity.sqlite", "--copies"],
    &["report", "export.sqlite"],
    &["report", "export.sqlite", "--analysis", "watermark"],
    &["report", "export.sqlite", "--kernels"],
    &["report", "export.sqlite", "--copies"],
    &["report", "export.sqlite", "--calls", "--top", "6"],
    &["report", "export.sqlite", "--waits"],
    &["report", "export.sqlite", "--processes"],
    &["report", "training.sqlite", "--diff", "host.sqlite"],
    &["replay", "tensors.sqlite"],
    &["replay", "tensors.sqlite", "--last", "--site", "T0"],
    &["report", "tensors.sqlite"],
    &["report", "training.sqlite", "--diff", "tensors.sqlite"],
];

/// Recordings of `tests/snapshots` with lines that the scenes lack: kinds of memory, pools, names, losses, failures,
/// graphs, single copies.
const RECORDED: [&str; 10] = [
    "every_kind_is_exact_for_every_backend",
    "used_and_reserved_are_different_numbers",
    "processes_with_different_device_numbers_add_up_by_gpu",
    "memory_belongs_to_the_requesting_library",
    "threads_are_distinguished_by_tid_and_name",
    "launch_functions_of_each_layer_are_distinguished",
    "a_graph_of_5_kernels_launched_23_times_is_23_graph_launches",
    "copies_that_return_early_have_no_throughput",
    "copy_batches_of_unknown_size_are_counted_as_lost",
    "text_shows_failed_copies",
];
const FORMATS: [&[&str]; 6] = [
    &["--last"],
    &["--last", "--top", "2"],
    &["--last", "--group", "thread"],
    &["--last", "--format", "csv"],
    &["--per-call"],
    &["--per-call", "--format", "csv"],
];

fn scenes() -> Folder {
    let folder = Folder::new();
    scene::training(&folder.path("training.sqlite"));
    python::scene::record(&folder.path("python.sqlite"));
    tensors::record_scene(&folder.path("tensors.sqlite"), 20);
    scene::host(&folder.path("host.sqlite"));
    scene::launches(&folder.path("launches.sqlite"));
    scene::copies(&folder.path("copies.sqlite"));
    scene::activity(&folder.path("activity.sqlite"));
    folder.real_export();
    folder
}

fn written(folder: &Path, arguments: &[&str], columns: Option<usize>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprobe"));
    command
        .args(arguments)
        .current_dir(folder)
        .env_remove("COLUMNS")
        .env_remove("GPUPROBE_LOG");
    if let Some(columns) = columns {
        command.env("COLUMNS", columns.to_string());
    }
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    // The program's version.
    String::from_utf8(output.stdout)
        .unwrap()
        .replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

/// Asserts that a file of `tests/data/text` is equal to `made`.
fn compare(name: &str, made: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/text");
    let path = folder.join(name).with_extension("txt");
    if std::env::var_os("GPUPROBE_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(folder).unwrap();
        fs::write(&path, made).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap();
    for (number, (known, made)) in known.lines().zip(made.lines()).enumerate() {
        assert_eq!(made, known, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(made.len(), known.len(), "{}", path.display());
}

#[test]
fn text_matches_the_golden_files() {
    let folder = scenes();
    for columns in WIDTHS {
        let mut all = String::new();
        for arguments in COMMANDS {
            all += &format!("$ gpuprobe {}\n", arguments.join(" "));
            all += &written(&folder.path(""), arguments, columns);
            all += "\n";
        }
        let name = columns.map_or("piped".to_owned(), |columns| columns.to_string());
        compare(&name, &all);
    }
}

#[test]
fn each_format_of_recorded_runs_matches_its_golden_file() {
    let mut all = String::new();
    for name in RECORDED {
        let path = snapshots::recording(name);
        let file = path.file_name().unwrap().to_str().unwrap();
        for format in FORMATS {
            let arguments = [&["replay", file], format].concat();
            all += &format!("$ gpuprobe {}\n", arguments.join(" "));
            all += &written(path.parent().unwrap(), &arguments, None);
            all += "\n";
        }
    }
    compare("recorded", &all);
}

#[test]
fn lines_are_as_wide_as_the_terminal() {
    let folder = scenes();
    for arguments in COMMANDS {
        // Output for scripts is not shortened.
        let is_classic = arguments.contains(&"thread");
        for columns in [80, 120, 200] {
            let text = written(&folder.path(""), arguments, Some(columns));
            let too_long = text.lines().find(|line| line.chars().count() > columns);
            assert!(
                is_classic || too_long.is_none(),
                "{arguments:?} at {columns}: {too_long:?}"
            );
        }
    }
}

/// The cells of the last column of the table that begins with `heading`.
fn last_column(text: &str, heading: &str) -> Vec<String> {
    let mut lines = text.lines().skip_while(|line| !line.ends_with(heading));
    let begin = lines.next().unwrap().find(heading).unwrap();
    let rows = lines.take_while(|line| {
        line.chars().count() > begin && line.trim_start().starts_with(|c: char| c.is_ascii_digit())
    });
    rows.map(|line| line.chars().skip(begin).collect())
        .collect()
}

#[test]
fn no_two_rows_look_the_same_at_80_columns() {
    let folder = scenes();
    let at_80 = |arguments: &[&str]| written(&folder.path(""), arguments, Some(80));
    let sites = last_column(&at_80(&["replay", "training.sqlite"]), "WHERE");
    assert_eq!(sites.len(), 8, "{sites:?}");
    let launched = last_column(&at_80(&["replay", "launches.sqlite", "--last"]), "KERNEL");
    let ran = last_column(&at_80(&["replay", "activity.sqlite", "--last"]), "KERNEL");
    let reported = last_column(
        &at_80(&["report", "activity.sqlite", "--kernels"]),
        "KERNEL",
    );
    for kernels in [&launched, &ran, &reported] {
        assert_eq!(kernels.len(), scene::KERNELS.len(), "{kernels:?}");
    }
    for list in [sites, launched, ran, reported] {
        let different: HashSet<_> = list.iter().collect();
        assert_eq!(different.len(), list.len(), "{list:?}");
    }
}
