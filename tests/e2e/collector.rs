//! Which libcupti the collector loads when other users own files. The tests that need no root are
//! in `tests/collector`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

#[path = "../collector/run.rs"]
#[allow(dead_code, reason = "the tests of the collector use more of it")]
mod run;

use crate::harness::{copy_program, standin};
use run::{CollectorSetup, of};

const WORK: &str = "module k; launch k 3";

/// A program in a folder below a world-writable folder such as `/tmp`.
#[test]
fn root_libcupti_of_another_user_is_not_loaded() {
    let shared = tempfile::TempDir::new().unwrap();
    fs::set_permissions(shared.path(), Permissions::from_mode(0o1777)).unwrap();
    let build = shared.path().join("build");
    fs::create_dir(&build).unwrap();
    for file in ["workload", "libcuda.so.1", "libcudart.so.12"] {
        copy_program(standin().path(file), build.join(file));
    }
    let run = || {
        let program = build.join("workload");
        let setup = CollectorSetup::new(program.to_str().unwrap(), WORK).without("GPUPROBE_CUPTI");
        setup.run().unharmed()
    };
    // Beside the folder of its libcudart.
    let planted = shared.path().join("extras/CUPTI/lib64");
    fs::create_dir_all(&planted).unwrap();
    let library = planted.join("libcupti.so.13");
    fs::copy(standin().path("cupti/libcupti.so.13"), &library).unwrap();
    // The whole tree, the file alone, or a parent folder.
    let whole: Vec<_> = library
        .ancestors()
        .take_while(|path| *path != shared.path())
        .map(Path::to_owned)
        .collect();
    for theirs in [&whole[..], &whole[..1], &whole[whole.len() - 1..]] {
        for path in theirs {
            chown(path, Some(65_534), None).unwrap();
        }
        let run = run().says("belongs to user 65534");
        assert!(run.handed.headers.is_empty());
        for path in theirs {
            chown(path, Some(0), None).unwrap();
        }
    }
    // Owned by the user but world-writable.
    fs::set_permissions(&planted, Permissions::from_mode(0o777)).unwrap();
    run().says("is writable by everybody");
    fs::set_permissions(&planted, Permissions::from_mode(0o755)).unwrap();
    let run = run().silent();
    assert_eq!(of!(run.handed, Kernel).len(), 3);
}
