//! Output formats of launch reports.

use std::fs;

use tempfile::TempDir;

use super::{KERNELS, LAUNCHES, name, traced_by};
use crate::harness::gpuprobe::output_of;
use crate::harness::report::list;
use crate::harness::{Backend, Setup, said, standin};

/// A run that is traced once and recorded: each format is a replay.
struct Recorded {
    folder: TempDir,
    pid: u32,
    replies: Vec<String>,
}

impl Recorded {
    fn of(commands: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("run.sqlite");
        let setup = Setup::command([standin().program_text(Backend::Driver)]);
        let setup = setup.args(["--record", file.to_str().unwrap()]);
        let traced = traced_by(setup, commands);
        Self {
            folder,
            pid: traced.pid,
            replies: traced.replies,
        }
    }

    fn replay(&self, format: &str, arguments: &[&str]) -> String {
        let file = self.folder.path().join("run.sqlite");
        let words = [
            "replay",
            file.to_str().unwrap(),
            "--last",
            "--format",
            format,
        ];
        output_of(&[&words, arguments].concat())
    }
}

/// The words of the first line that contains `word`.
fn words<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
    let line = text.lines().find(|line| line.contains(word));
    let line = line.unwrap_or_else(|| panic!("no {word} in {text}"));
    line.split_whitespace().collect()
}

#[test]
fn root_text_lists_kernels_as_documented() {
    let commands = [
        "launch 0 250 grid=4,5,6 block=7,8,9",
        "launch 1 500",
        "launch 2 250 via=ex",
        "graph 5 23",
    ];
    // Live: the others are replays.
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(LAUNCHES)
        .format("text")
        .start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.play(&commands.join(";"));
    gpuprobe.talk.done();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    assert_eq!(
        words(&text, &format!("pid {pid}"))[..3],
        ["workload_driver", "pid", &pid.to_string()]
    );
    assert!(text.contains("(ended)"), "{text}");
    assert!(
        text.contains(
            "1000 launches of 3 kernels by cuLaunchKernel (750), cuLaunchKernelEx (250)\n"
        ),
        "{text}"
    );
    assert_eq!(
        words(&text, "LAUNCHES"),
        [
            "#",
            "LAUNCHES",
            "%LAUNCHES",
            "PER",
            "SEC",
            "GRID",
            "BLOCK",
            "KERNEL"
        ]
    );
    let rows = [
        (
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3>>",
            ["500", "50.0"],
            ["80", "128", "████████"],
        ),
        (KERNELS[2].1, ["250", "25.0"], ["80", "128", "████"]),
        ("vecAdd", ["250", "25.0"], ["4x5x6", "7x8x9", "████"]),
    ];
    for (kernel, counts, rest) in rows {
        let row = words(&text, kernel);
        assert_eq!(row[1..3], counts, "{text}");
        let (_, decimals) = row[3].split_once('.').expect("a decimal");
        assert_eq!(decimals.len(), 1, "{text}");
        assert!(row[3].parse::<f64>().unwrap() > 0.0, "{text}");
        assert_eq!(row[4..7], rest, "{text}");
    }
    assert!(
        text.contains(&format!("\npid {pid}: 23 launches of 1 graph\n")),
        "{text}"
    );
    assert!(
        text.contains("\n5 launches were captured into graphs and did not run\n"),
        "{text}"
    );
}

#[test]
fn root_text_lists_the_most_launched_of_a_process() {
    let run = Recorded::of(&["module generated=12", "launch all 2", "launch 0 7"]);
    for (arguments, listed, rest) in [
        (&[][..], 10, "... 3 more kernels, 6 launches (--top all)"),
        (
            &["--top", "1"][..],
            1,
            "... 12 more kernels, 24 launches (--top all)",
        ),
        (&["--top", "13"][..], 13, ""),
    ] {
        let text = run.replay("text", arguments);
        let rows = text.lines().skip_while(|line| !line.contains("LAUNCHES"));
        let rows: Vec<_> = rows.skip(1).take_while(|line| line.contains('.')).collect();
        let rows: Vec<_> = rows
            .iter()
            .filter(|line| !line.starts_with("..."))
            .collect();
        assert_eq!(rows.len(), listed, "{text}");
        assert!(rows[0].ends_with("  vecAdd"), "{text}");
        assert!(text.lines().any(|l| l == rest), "{text}");
        assert_eq!(text.contains("more kernels"), !rest.is_empty());
        assert!(
            text.contains("31 launches of 13 kernels by cuLaunchKernel\n"),
            "{text}"
        );
    }
    // In every format.
    let text = run.replay("json", &["--top", "2"]);
    let report: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(report["cudatrace"]["launches"], 31);
    let kernels = list(&report["cudatrace"], "kernels");
    assert_eq!(kernels[0]["name"], name(0));
    assert_eq!(kernels.len(), 2, "{kernels:#?}");
    let text = run.replay("csv", &["--top", "2"]);
    assert_eq!(text.lines().count(), 3, "{text}");

    let text = Recorded::of(&["alloc 4096"]).replay("text", &[]);
    assert!(text.starts_with("no kernel was launched  "), "{text}");
}

#[test]
fn root_csv_has_one_row_per_kernel() {
    let commands = ["launch 0 3 grid=4,5,6 block=7,8,9", "graph 5 2"];
    let run = Recorded::of(&commands);
    let (pid, text) = (run.pid, run.replay("csv", &[]));
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<_> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4, "{text}");
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    let pid = pid.to_string();
    for (name, value) in [
        ("final", "true"),
        ("pid", &pid),
        ("uid", "0"),
        ("comm", "workload_driver"),
        ("exited", "true"),
        ("name", KERNELS[0].1),
        ("mangled", KERNELS[0].0),
        ("handle", said(&run.replies[0], "handle")),
        ("launches", "3"),
        ("captured_launches", "2"),
        ("grid", "4x5x6"),
        ("block", "7x8x9"),
        ("api", "cuLaunchKernel"),
    ] {
        assert_eq!(&rows[0][column(name)], value, "{name}");
    }
    assert!(rows[0][column("per_second")].parse::<f64>().unwrap() > 0.0);
    for row in &rows[1..] {
        let counts = [&row[column("launches")], &row[column("captured_launches")]];
        assert_eq!(counts, ["0", "1"]);
        assert_eq!(&row[column("per_second")], "0");
    }
}
