//! The programs of scripts/stress, with the stand-in's libcudart.

use std::path::Path;

use super::{check_anomaly, traced};
use crate::harness::report::number;
use crate::harness::standin;

/// A program of scripts/stress that calls the stand-in's libcudart.
fn script(name: &str, options: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/stress");
    let program = folder.join(name).to_str().unwrap().to_owned();
    let (library, words) = (standin().runtime(), options.split_whitespace());
    let fixed = ["python3", "-B", &program, "--duration", "0"];
    let backend = ["--backend", "runtime", "--libcudart", &library];
    let all = fixed.into_iter().chain(backend).chain(words);
    all.map(str::to_owned).collect()
}

#[test]
fn root_stress_scripts_totals_equal_gpuprobes() {
    for (name, options) in [
        (
            "paced.py",
            "--throughput 5000 --calls 2000 --free-ratio 0.5",
        ),
        ("training.py", "--epochs 20 --sleep-ms 0 --compute"),
        (
            "multi_process.py",
            "--procs 2 --iterations 40 --sleep-ms 0 --leak-prob 0.2",
        ),
        (
            "multi_thread.py",
            "--threads 3 --iterations 200 --sleep-ms 0 --memory-cap-mb 200",
        ),
    ] {
        let (_, said) = traced(script(name, options), &[]);
        assert_eq!(said["ended_by"], "done", "{name}");
        assert!(number(&said, "live") > 0, "{name} leaves something");
    }
}

#[test]
fn root_stress_scripts_anomaly_is_on_top_of_its_thread() {
    let (report, said) = traced(script("anomaly.py", "--iterations 15 --sleep-ms 0"), &[]);
    check_anomaly(&report, &said);
}
