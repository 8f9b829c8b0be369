//! The collector finds libcupti without an explicit path.

use std::fs;

use crate::harness::standin::standin;
use crate::run::{CollectorSetup, of};

const WORK: &str = "module k; launch k 3";

/// Asserts that the collector has the records of CUPTI.
fn has_records(setup: CollectorSetup) {
    let run = setup.run().unharmed().silent();
    assert_eq!(of!(run.handed, Kernel).len(), 3);
}

/// The collector without a path of CUPTI.
fn unguided() -> CollectorSetup {
    CollectorSetup::new("workload", WORK).without("GPUPROBE_CUPTI")
}

#[test]
fn libcupti_is_found_by_the_dynamic_loader() {
    has_records(unguided().variable("LD_LIBRARY_PATH", standin().path("cupti")));
}

#[test]
fn libcupti_mapped_in_the_process_is_used() {
    has_records(unguided().variable("LD_PRELOAD", standin().path("cupti/libcupti.so.13")));
}

#[test]
fn libcupti_is_found_in_a_python_package() {
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let packages = folder.path().join("lib/python3.12/site-packages");
    let cupti = packages.join("nvidia/cuda_cupti/lib");
    let runtime = packages.join("nvidia/cuda_runtime/lib");
    for (original, folder) in [
        ("cupti/libcupti.so.13", &cupti),
        ("libcudart.so.12", &runtime),
        ("libcuda.so.1", &runtime),
    ] {
        fs::create_dir_all(folder).unwrap();
        let original = standin().path(original);
        fs::copy(&original, folder.join(original.file_name().unwrap())).unwrap();
    }
    has_records(unguided().variable("LD_PRELOAD", runtime.join("libcudart.so.12")));
}

#[test]
fn nvtx_is_forwarded_to_the_libcupti_found() {
    let setup = || CollectorSetup::new("workload", WORK).variable("SPY_NVTX", "1");
    has_records(setup());
    // Without libcupti, NVTX gets an error; the spy then stops.
    let none = setup().variable("GPUPROBE_CUPTI", "/nowhere").run();
    assert!(!none.status.success());
    assert!(
        none.stderr.contains("InitializeInjectionNvtx2: wrong"),
        "{}",
        none.stderr
    );
}

#[test]
fn unusable_libcupti_is_skipped() {
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let cupti = folder.path().join("extras/CUPTI/lib64");
    fs::create_dir_all(&cupti).unwrap();
    let lacking = standin().path("cupti_lacking/libcupti.so.13");
    fs::copy(lacking, cupti.join("libcupti.so.13")).unwrap();
    fs::write(cupti.join("libcupti.so.14"), "no library").unwrap();
    let setup = unguided().variable("CUDA_HOME", folder.path());
    has_records(setup.variable("LD_LIBRARY_PATH", standin().path("cupti")));
}
