//! The collector finds libcupti without an explicit path.

use std::fs;
use std::path::Path;

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
fn libcupti_is_found_beside_the_runtime() {
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let copy = |original: &str, folder: &Path| {
        fs::create_dir_all(folder).unwrap();
        let original = standin().path(original);
        let copy = folder.join(original.file_name().unwrap());
        fs::copy(original, &copy).unwrap();
        copy
    };
    // As in a wheel.
    let packages = folder.path().join("nvidia");
    let runtime = packages.join("cuda_runtime/lib");
    copy("libcuda.so.1", &runtime);
    let runtime = copy("libcudart.so.12", &runtime);
    copy("cupti/libcupti.so.13", &packages.join("cuda_cupti/lib"));
    let setup = || unguided().variable("LD_PRELOAD", &runtime);
    has_records(setup());
    // What cannot be used is skipped.
    let near = packages.join("cuda_runtime/extras/CUPTI/lib64");
    copy("cupti_lacking/libcupti.so.13", &near);
    fs::write(near.join("libcupti.so.12"), "no library").unwrap();
    has_records(setup());
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
